/*
 * The emulator's knowledge of memory: the last accesses (mem.c), stores of a block that are not
 * published yet, and old values that the block still sees (weak.c).
 */
#ifndef DF_TESTS_PTX_MEM_H
#define DF_TESTS_PTX_MEM_H

#include "tests/cuda/ptx/int.h"

/* The last write or the last read of a cell. epoch 0: there was none. */
struct touch {
	uint32_t epoch;
	uint32_t insn;
	uint32_t sub; /* number of the warp's barriers */
	uint16_t thread;
	uint8_t bytes; /* a bit for each accessed byte */
	uint8_t flags;
};
#define STRONG 1 /* not a plain access */
#define MANY   2 /* several threads read; `thread` is one of them */
#define WARPS  4 /* and they are of several warps */

struct cell {
	struct touch write, read;
};

#define PAGE 4096u
/* beyond this number of pages, all accesses of global memory are forgotten */
#define MAX_PAGES 2048u

/* Eight bytes as the block sees them. */
struct word {
	uint64_t value;
	uint32_t stamp;	 /* block.acquires when `value` was loaded; 0: never loaded */
	uint32_t epoch;	 /* epoch of the last store that is not published */
	uint16_t thread; /* the thread that made this store */
	uint8_t dirty;	 /* a bit for each byte that is not published */
};

struct page {
	uintptr_t at;
	struct cell cells[PAGE / 4];
	struct word words[PAGE / 8];
	UT_hash_handle hh;
};

/* An access: the instruction, and the thread that executes it. */
struct who {
	const struct insn *in;
	struct warp *w;
	uint32_t thread;
	int strong;
};

/* Returns the page of global memory that contains `a`. Creates it if it does not exist. */
struct page *mem_page(struct block *b, uintptr_t a);
uint64_t mem_load(uintptr_t at, unsigned int bytes);
void mem_store(uintptr_t at, unsigned int bytes, uint64_t v);

/* Access global memory as a thread may see it in a weakly ordered memory. */
uint64_t weak_load(struct block *b, const struct who *me, uintptr_t at, unsigned int bytes);
void weak_store(struct block *b, const struct who *me, uintptr_t at, unsigned int bytes,
		uint64_t v);
/*
 * Call weak_atomic() before and weak_acquire() after an atomic operation, which itself works in
 * memory. weak_release() publishes the stores that a release by the thread must publish.
 */
void weak_atomic(struct block *b, const struct who *me, uintptr_t at);
void weak_acquire(struct block *b, const struct who *me);
void weak_release(struct block *b, uint32_t thread);
/* Publishes one store, chosen at random. */
void weak_step(struct block *b);
/* Publishes all stores. */
void weak_flush(struct block *b);

#endif
