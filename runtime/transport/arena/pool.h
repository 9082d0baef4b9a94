/*
 * Cuts blocks out of numbered segments without touching their memory; used by the host arena
 * (arena.c) and for GPU memory (runtime/device/cuda/cuda_far.c). Block sizes have four steps
 * per doubling. Blocks are taken from free lists or from the end of the last segment. No lock: the
 * owner's lock guards it.
 */
#ifndef DF_TRANSPORT_ARENA_POOL_H
#define DF_TRANSPORT_ARENA_POOL_H

#include <stdint.h>

#define DF_POOL_CLASSES 256

struct df_pool_piece {
	uint32_t seg;
	uint64_t offset, bytes;
};

struct df_pool_free;

struct df_pool {
	struct df_pool_free *lists[DF_POOL_CLASSES];
	uint32_t nr_segs;
	uint64_t seg_bytes, seg_used; /* of the last segment */
	uint64_t out;		      /* bytes allocated now */
};

/*
 * Returns 1 if the piece was never allocated before, else 0. Returns -ENOSPC if a segment of at
 * least out->bytes has to be added (df_pool_seg()), or -ENOMEM if the piece is too large for any.
 */
int df_pool_take(struct df_pool *p, uint64_t bytes, struct df_pool_piece *out);
void df_pool_give(struct df_pool *p, const struct df_pool_piece *piece);
/* Adds a segment of this size with the next number. The rest of the last segment is lost. */
void df_pool_seg(struct df_pool *p, uint64_t bytes);
/* Removes the last segment, of which nothing has been taken. */
void df_pool_drop(struct df_pool *p);
/* Returns the free bytes at the end of the last segment. */
uint64_t df_pool_left(const struct df_pool *p);

#endif
