/*
 * The emulator's virtual time, shared by its files. A moment (`when`) contains picoseconds in the
 * bits from WHEN_BITS up. The lower bits hold the number of loads of host memory, each dependent on
 * the one before it, on the path that ends at that moment. So the later of two moments carries its
 * own path.
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
	struct chain_word by;  /* who stored the word, if it was polled */
	when word;	       /* the moment of the strong store that a load has seen; 0: none */
};

/*
 * Returns whether the instruction starts now. If not, the warp's clock is set to its earliest
 * moment.
 */
int time_starts(struct block *b, struct warp *w, const struct insn *in);
/* Sets the moments of the results of an instruction that was executed. */
void time_ends(struct block *b, struct warp *w, const struct insn *in, uint32_t mask);
/* Waits until all stores of the block have arrived. */
void time_fence(struct block *b, struct warp *w, const struct insn *in);
/* These access global memory for a lane of the present instruction. */
uint64_t time_load(struct block *b, struct warp *w, const struct insn *in, uintptr_t at,
		   unsigned int bytes);
void time_store(struct block *b, struct warp *w, const struct insn *in, uintptr_t at,
		unsigned int bytes, uint64_t v);
/* Counts an atomic operation on memory, which is performed at once. */
void time_atomic(struct block *b, uintptr_t at, unsigned int bytes);

/* cycles.c */
uint64_t time_cycles(const struct insn *in);

/* run.c */
struct block *ptx_block_new(struct run *r);
void ptx_block_start(struct block *b, unsigned int index);
void ptx_block_free(struct block *b);
/*
 * If all live threads wait at the barrier of the block, lets them continue and returns 1. Else
 * returns 0.
 */
int ptx_block_release(struct block *b);
unsigned int ptx_warp_run(struct block *b, struct warp *w, unsigned int budget);

#endif
