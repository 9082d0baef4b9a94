/*
 * The state of memory: its last accesses (mem.c), the writes of a block that others do not see yet,
 * and the old values that it still has (weak.c).
 */
#ifndef DF_TESTS_PTX_MEM_H
#define DF_TESTS_PTX_MEM_H

#include "tests/cuda/ptx/int.h"

/* The last write and the last read of a cell; epoch 0: none. */
struct touch {
	uint32_t epoch;
	uint32_t insn;
	uint32_t sub; /* epoch of the warp */
	uint16_t thread;
	uint8_t bytes; /* bits */
	uint8_t flags;
};
#define STRONG 1 /* not a plain access */
#define MANY   2 /* of several threads, this is one */

struct cell {
	struct touch write, read;
};

#define PAGE	  4096u
#define MAX_PAGES 2048u /* of global memory: what is known of older ones is forgotten */

/* Eight bytes as a block has them. */
struct word {
	uint64_t value;
	uint32_t stamp;	 /* as new as this acquire of the block; 0: not at all */
	uint32_t epoch;	 /* of the last store that is not out yet */
	uint16_t thread; /* whose it was */
	uint8_t dirty;	 /* bytes that are not out yet */
};

struct page {
	uintptr_t at;
	struct cell cells[PAGE / 4];
	struct word words[PAGE / 8];
	UT_hash_handle hh;
};

/* A thread that accesses memory. */
struct who {
	const struct insn *in;
	struct warp *w;
	uint32_t thread;
	int strong;
};

/* The cell of global memory; made if there is none. */
struct page *mem_page(struct block *b, uintptr_t a);
uint64_t mem_load(uintptr_t at, unsigned int bytes);
void mem_store(uintptr_t at, unsigned int bytes, uint64_t v);

/* Global memory as one thread may see it. */
uint64_t weak_load(struct block *b, const struct who *me, uintptr_t at, unsigned int bytes);
void weak_store(struct block *b, const struct who *me, uintptr_t at, unsigned int bytes,
		uint64_t v);
/* Before and after an atomic operation, which itself is done in memory. */
void weak_atomic(struct block *b, const struct who *me, uintptr_t at);
void weak_acquire(struct block *b, const struct who *me);
void weak_release(struct block *b, uint32_t thread);
/* Something goes out, in no order: called again and again, all does. */
void weak_step(struct block *b);
/* All that is not out goes out. */
void weak_flush(struct block *b);

#endif
