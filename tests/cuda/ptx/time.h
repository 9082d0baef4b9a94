/*
 * Virtual time of the emulator, between its files. A moment is picoseconds, shifted by WHEN_BITS,
 * and below them the number of loads of host memory, each dependent on the one before it, on the
 * path that ends at that moment: the later of two moments brings its own path along.
 */
#ifndef DF_TESTS_PTX_TIME_H
#define DF_TESTS_PTX_TIME_H

#include "tests/cuda/ptx/chain.h"
#include "tests/cuda/ptx/int.h"

typedef uint64_t when;

#define WHEN_BITS 12

static inline uint64_t when_ps(when t)
{
	return t >> WHEN_BITS;
}

struct access {
	enum ptx_place place;
	unsigned int bytes[2]; /* loaded, stored */
	struct chain_word by;  /* who has stored it, if it was polled */
	when word; /* not 0: the moment of the strong store whose value a load has returned */
};

/*
 * Whether the instruction starts now: if not, the warp waits until its clock, which has been set.
 */
int time_starts(struct block *b, struct warp *w, const struct insn *in);
/* The instruction has been executed: sets the moments of its results. */
void time_ends(struct block *b, struct warp *w, const struct insn *in, uint32_t mask);
/* A fence of all that the block has stored. */
void time_fence(struct block *b, struct warp *w, const struct insn *in);
/* Global memory, from a lane of the instruction that runs. */
uint64_t time_load(struct block *b, struct warp *w, const struct insn *in, uintptr_t at,
		   unsigned int bytes);
void time_store(struct block *b, struct warp *w, const struct insn *in, uintptr_t at,
		unsigned int bytes, uint64_t v);
/* An atomic operation on it, done in memory at once. */
void time_atomic(struct block *b, uintptr_t at, unsigned int bytes);

/* In cycles.c. */
uint64_t time_cycles(const struct insn *in);

/* In run.c. */
struct block *ptx_block_new(struct run *r);
void ptx_block_start(struct block *b, unsigned int index);
void ptx_block_free(struct block *b);
/* All live threads wait at the barrier of the block: they go on. 0: some do not wait there. */
int ptx_block_release(struct block *b);
unsigned int ptx_warp_run(struct block *b, struct warp *w, unsigned int budget);

#endif
