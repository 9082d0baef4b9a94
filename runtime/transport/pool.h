/*
 * Cuts blocks out of numbered segments whose memory it never touches: the host arena (arena.c) and the GPUs'
 * (runtime/device/cuda/mem/cuda_far.c) are built on it. Blocks come in sizes of four steps per doubling, from free lists
 * or the end of the last segment. No lock of its own: the owner's guards it.
 */
#ifndef DF_TRANSPORT_POOL_H
#define DF_TRANSPORT_POOL_H

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
	uint64_t out;		      /* bytes handed out now */
};

/*
 * -ENOSPC: another segment of at least out->bytes is needed (df_pool_seg). -ENOMEM: too large for any.
 * Returns 1 if the piece has never been handed out before, else 0.
 */
int df_pool_take(struct df_pool *p, uint64_t bytes, struct df_pool_piece *out);
void df_pool_give(struct df_pool *p, const struct df_pool_piece *piece);
/* The next segment, numbered on from the last, has so many bytes; what is left of the last one is lost. */
void df_pool_seg(struct df_pool *p, uint64_t bytes);
/* What the end of the last segment still holds. */
uint64_t df_pool_left(const struct df_pool *p);

#endif
