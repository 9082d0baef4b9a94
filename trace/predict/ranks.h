/* Sets of a program's ranks. A set is plain data; its owner locks it. */
#ifndef DF_TRACE_PREDICT_RANKS_H
#define DF_TRACE_PREDICT_RANKS_H

#include <stdint.h>

#define DF_MODEL_RANKS	   1024
#define DF_MODEL_RANK_BITS 64

struct df_ranks {
	uint64_t word[DF_MODEL_RANKS / DF_MODEL_RANK_BITS];
};

static inline void df_ranks_add(struct df_ranks *s, int rank)
{
	s->word[rank / DF_MODEL_RANK_BITS] |= 1ULL << rank % DF_MODEL_RANK_BITS;
}

static inline int df_ranks_has(const struct df_ranks *s, int rank)
{
	return s->word[rank / DF_MODEL_RANK_BITS] >> rank % DF_MODEL_RANK_BITS & 1;
}

static inline void df_ranks_remove(struct df_ranks *s, int rank)
{
	s->word[rank / DF_MODEL_RANK_BITS] &= ~(1ULL << rank % DF_MODEL_RANK_BITS);
}

static inline void df_ranks_join(struct df_ranks *s, const struct df_ranks *more)
{
	for (int i = 0; i < DF_MODEL_RANKS / DF_MODEL_RANK_BITS; i++)
		s->word[i] |= more->word[i];
}

/* Returns the lowest rank of the set that is not below `rank`, or -1 if there is none. */
static inline int df_ranks_from(const struct df_ranks *s, int rank)
{
	for (int i = rank / DF_MODEL_RANK_BITS; i < DF_MODEL_RANKS / DF_MODEL_RANK_BITS; i++) {
		uint64_t rest = s->word[i];

		if (i == rank / DF_MODEL_RANK_BITS)
			rest &= ~0ULL << rank % DF_MODEL_RANK_BITS;
		if (rest)
			return i * DF_MODEL_RANK_BITS + __builtin_ctzll(rest);
	}
	return -1;
}

/* Whether all ranks of `part` are in s. */
static inline int df_ranks_cover(const struct df_ranks *s, const struct df_ranks *part)
{
	uint64_t rest = 0;

	for (int i = 0; i < DF_MODEL_RANKS / DF_MODEL_RANK_BITS; i++)
		rest |= part->word[i] & ~s->word[i];
	return !rest;
}

/* Whether the sets have a rank in common. */
static inline int df_ranks_meet(const struct df_ranks *a, const struct df_ranks *b)
{
	uint64_t both = 0;

	for (int i = 0; i < DF_MODEL_RANKS / DF_MODEL_RANK_BITS; i++)
		both |= a->word[i] & b->word[i];
	return both != 0;
}

/* Returns the number of ranks of the set below this rank. */
static inline int df_ranks_below(const struct df_ranks *s, int rank)
{
	int nr = 0;

	for (int i = 0; i * DF_MODEL_RANK_BITS < rank; i++) {
		int bits = rank - i * DF_MODEL_RANK_BITS;

		nr += __builtin_popcountll(
			bits < DF_MODEL_RANK_BITS ? s->word[i] & ((1ULL << bits) - 1) : s->word[i]);
	}
	return nr;
}

static inline int df_ranks_count(const struct df_ranks *s)
{
	return df_ranks_below(s, DF_MODEL_RANKS);
}

#endif
