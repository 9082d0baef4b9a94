/*
 * Random numbers of the simulator.
 *
 * There are two sources. `df_rng` is ours. It has one independent stream per (seed, round, part),
 * so the outcome of a round does not depend on which thread ran it or on what was skipped before
 * it. `df_mt` yields the numbers of CPython's random.random() after random.seed(n). The published
 * program draws these in one sequence over all rounds of a process, so `df_mt` reproduces it bit
 * for bit.
 *
 * Nothing here is shared between threads.
 */
#ifndef DF_TRACE_SIM_SIM_RNG_H
#define DF_TRACE_SIM_SIM_RNG_H

#include <math.h>
#include <stdint.h>

/* -- xoshiro256++ (Blackman, Vigna), seeded by splitmix64 ------------------------------------- */

struct df_rng {
	uint64_t s[4];
};

static inline uint64_t df_splitmix(uint64_t *x)
{
	uint64_t z = (*x += 0x9e3779b97f4a7c15ull);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

static inline void df_rng_seed(struct df_rng *r, uint64_t seed, uint64_t round, uint64_t part)
{
	uint64_t x = seed;

	x = df_splitmix(&x) ^ round;
	x = df_splitmix(&x) ^ part;
	for (int i = 0; i < 4; i++)
		r->s[i] = df_splitmix(&x);
}

static inline uint64_t df_rng_u64(struct df_rng *r)
{
	uint64_t *s = r->s, sum = s[0] + s[3], t = s[1] << 17;
	uint64_t out = ((sum << 23) | (sum >> 41)) + s[0];

	s[2] ^= s[0];
	s[3] ^= s[1];
	s[1] ^= s[2];
	s[0] ^= s[3];
	s[2] ^= t;
	s[3] = (s[3] << 45) | (s[3] >> 19);
	return out;
}

/* Returns a number uniform in (0, 1]. 0 is excluded so that its logarithm is finite. */
static inline double df_rng_unit(struct df_rng *r)
{
	return (double)((df_rng_u64(r) >> 11) + 1) * 0x1p-53;
}

#define DF_RNG_NEVER (INT64_MAX / 4)

/*
 * Returns the number of failures before the first success of a coin with log(1 - p) == log_q. log_q
 * is < 0; it is -inf for p == 1, and 0 for p == 0, which returns DF_RNG_NEVER.
 */
static inline int64_t df_rng_geometric(struct df_rng *r, double log_q)
{
	double n;

	if (log_q == 0)
		return DF_RNG_NEVER;
	n = log(df_rng_unit(r)) / log_q;
	return n < (double)DF_RNG_NEVER ? (int64_t)n : DF_RNG_NEVER;
}

/* -- MT19937 as CPython uses it ---------------------------------------------------------------- */

#define DF_MT_WORDS 624
#define DF_MT_DRAWS (DF_MT_WORDS / 2) /* one random() takes two words */

/*
 * A stream of random() values, made in blocks. The simulator acts only on values below `bound`,
 * which are rare, so each block has a list of the draws that may be below `bound`. `next_low` is
 * the first draw of this list at or after `next`.
 */
struct df_mt {
	uint32_t state[DF_MT_WORDS];
	uint32_t out[DF_MT_WORDS];
	uint16_t low[DF_MT_DRAWS + 1]; /* ends with DF_MT_DRAWS */
	int nr_low_seen;	       /* index of next_low in low[] */
	int next_low;
	int next; /* index of the next draw to deliver */
	uint32_t low_word;
};

/*
 * Seeds mt as random.seed(seed) does. `bound` is the largest probability that values will be
 * compared with.
 */
void df_mt_seed(struct df_mt *mt, uint64_t seed, double bound);

/* Fills the next block; df_mt_draw() calls it. */
void df_mt_refill(struct df_mt *mt);

/*
 * Returns the integer t for which r < p holds exactly when df_mt_draw()'s 53-bit integer of r is
 * below t.
 */
static inline uint64_t df_mt_threshold(double p)
{
	return (uint64_t)ceil(ldexp(p, 53));
}

/* Returns the next random() as its 53-bit integer. */
static inline uint64_t df_mt_draw(struct df_mt *mt)
{
	uint64_t hi, lo;

	if (mt->next == DF_MT_DRAWS)
		df_mt_refill(mt);
	hi = mt->out[2 * mt->next] >> 5;
	lo = mt->out[2 * mt->next + 1] >> 6;
	if (mt->next == mt->next_low)
		mt->next_low = mt->low[++mt->nr_low_seen];
	mt->next++;
	return hi << 26 | lo;
}

#endif
