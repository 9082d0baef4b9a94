/* Records the steps and waits of warps, to print the path that leads to a store. */
#ifndef DF_TESTS_PTX_CHAIN_H
#define DF_TESTS_PTX_CHAIN_H

#include <stdio.h>
#include "tests/cuda/ptx/int.h"

enum chain_kind {
	CHAIN_RUN,
	CHAIN_SHARED,
	CHAIN_L2, /* and in the order of enum ptx_place */
	CHAIN_HBM,
	CHAIN_PEER,
	CHAIN_HOST,
	CHAIN_RESULT, /* of an instruction that is no load */
	CHAIN_CODE,
	CHAIN_FENCE,
	CHAIN_MEET
};

/* The warp that has stored a word and the moment; the last load before that. */
struct chain_word {
	struct warp *by;
	uint64_t at, looked;
};

/* From where a register's value is. by: not NULL if its warp has polled for it. */
struct chain_load {
	enum chain_kind kind;
	struct warp *by;
	uint64_t at;
};

void chain_start(struct block *b, struct warp *w);
void chain_free(struct warp *w);
/* Whether the word that was stored by a warp at that moment was polled before. */
int chain_polled(const struct chain_word *word, uint64_t since);
void chain_loaded(struct warp *w, slot d, const struct chain_load *from);
/* NULL: nothing is recorded. */
const struct chain_load *chain_load_of(const struct warp *w, slot d);
/*
 * The warp executes this instruction since its last step; by: it has waited for a step of that warp
 * at that moment; NULL: for no other.
 */
void chain_step(struct warp *w, const struct insn *in, enum chain_kind kind, struct warp *by,
		uint64_t by_at);
/* The path to what the warp does at that moment, since another. */
void chain_print(FILE *f, struct warp *w, uint64_t at, uint64_t since);

#endif
