/* Records the steps and waits of warps, to print the path of steps that leads to a store. */
#ifndef DF_TESTS_PTX_CHAIN_H
#define DF_TESTS_PTX_CHAIN_H

#include <stdio.h>
#include "tests/cuda/ptx/int.h"

enum chain_kind {
	CHAIN_RUN,
	CHAIN_SHARED,
	CHAIN_L2, /* the four places follow in the order of enum ptx_place */
	CHAIN_HBM,
	CHAIN_PEER,
	CHAIN_HOST,
	CHAIN_RESULT, /* waits for the result of an instruction that is no load */
	CHAIN_CODE,
	CHAIN_FENCE,
	CHAIN_MEET
};

/*
 * For a word: the warp that stored it, the moment of the store, and the moment of the last load
 * before that.
 */
struct chain_word {
	struct warp *by;
	uint64_t at, looked;
};

/*
 * Where the value of a register is from. `by` is the warp that stored it, at the moment `at`, if
 * the value was polled for; else NULL.
 */
struct chain_load {
	enum chain_kind kind;
	struct warp *by;
	uint64_t at;
};

void chain_start(struct block *b, struct warp *w);
void chain_free(struct warp *w);
/* Whether a warp polled the word before it changed at the moment `since`. */
int chain_polled(const struct chain_word *word, uint64_t since);
void chain_loaded(struct warp *w, slot d, const struct chain_load *from);
/* Returns the last load into the register, or NULL if nothing is recorded. */
const struct chain_load *chain_load_of(const struct warp *w, slot d);
/*
 * Records that the warp has executed `in` since its last step. If it waited for another warp's
 * step, `by` is that warp and `by_at` the moment of the step; else `by` is NULL.
 */
void chain_step(struct warp *w, const struct insn *in, enum chain_kind kind, struct warp *by,
		uint64_t by_at);
/* Prints the path that leads to what `w` does at the moment `at`, from the moment `since` on. */
void chain_print(FILE *f, struct warp *w, uint64_t at, uint64_t since);

#endif
