/*
 * Shared by arena.c and arena_directory.c: the state of the arena and the layout of the first
 * segment.
 */
#ifndef DF_TRANSPORT_ARENA_ARENA_INT_H
#define DF_TRANSPORT_ARENA_ARENA_INT_H

#include "runtime/base/lock.h"
#include "runtime/transport/arena/arena.h"

#define DF_SEG0_MAGIC 0x30676573666464ull /* "ddfseg0" */

struct df_table {
	uint64_t where; /* segment << 48 | offset */
	uint64_t mask;	/* entries - 1 */
};

/* At the start of segment 0. */
struct df_seg0 {
	uint64_t magic;
	uint32_t version, pad0;
	uint64_t process;
	uint64_t pad1[5];
	struct df_bell bell;
	uint32_t nr_tables; /* the owner stores it with RELEASE when tables[nr - 1] is usable */
	uint32_t pad2[15];
	struct df_table tables[DF_TABLES_MAX];
};

struct df_arena {
	struct df_mutex lock;
	struct df_view view;
	struct df_seg0 *seg0;
};

extern struct df_arena df_arena;

/* fresh: the caller has to back the pages before use. */
int df_arena_take_locked(uint64_t bytes, struct df_block *out, int *fresh);
int df_arena_back(const struct df_block *block);

#define DF_WHERE(seg, offset) ((uint64_t)(seg) << 48 | (offset))
#define DF_WHERE_SEG(w)	      ((uint32_t)((w) >> 48))
#define DF_WHERE_OFFSET(w)    ((w) & ((1ull << 48) - 1))

#endif
