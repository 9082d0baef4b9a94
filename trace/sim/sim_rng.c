/*
 * Implements MT19937, seeded and read as in CPython's random module. State update and tempering are
 * plain loops over the whole block, which compilers vectorise. A second copy of the loops is
 * compiled for processors with AVX2.
 */
#include <string.h>

#include "trace/sim/sim_rng.h"

#define N DF_MT_WORDS
#define M 397

static void init_genrand(uint32_t *mt, uint32_t s)
{
	mt[0] = s;
	for (int i = 1; i < N; i++)
		mt[i] = 1812433253u * (mt[i - 1] ^ (mt[i - 1] >> 30)) + (uint32_t)i;
}

void df_mt_seed(struct df_mt *mt, uint64_t seed, double bound)
{
	uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
	int len = key[1] ? 2 : 1, i = 1, j = 0;
	uint32_t *s = mt->state;

	init_genrand(s, 19650218u);
	for (int k = N; k; k--) {
		s[i] = (s[i] ^ ((s[i - 1] ^ (s[i - 1] >> 30)) * 1664525u)) + key[j] + (uint32_t)j;
		if (++i >= N) {
			s[0] = s[N - 1];
			i = 1;
		}
		if (++j >= len)
			j = 0;
	}
	for (int k = N - 1; k; k--) {
		s[i] = (s[i] ^ ((s[i - 1] ^ (s[i - 1] >> 30)) * 1566083941u)) - (uint32_t)i;
		if (++i >= N) {
			s[0] = s[N - 1];
			i = 1;
		}
	}
	s[0] = 0x80000000u;
	/* A draw can lie below the bound only if its upper 27 bits do not exceed the bound's. */
	{
		uint64_t hi = df_mt_threshold(bound) >> 26;

		mt->low_word = hi >= 1u << 27 ? UINT32_MAX : (uint32_t)(hi << 5 | 31);
	}
	mt->next = mt->next_low = DF_MT_DRAWS;
	mt->nr_low_seen = 0;
	mt->low[0] = DF_MT_DRAWS;
}

#define MIX(u, v) ((((u)&0x80000000u) | ((v)&0x7fffffffu)) >> 1 ^ (-((v)&1u) & 0x9908b0dfu))

static inline __attribute__((always_inline)) void generate(uint32_t *restrict s,
							   uint32_t *restrict out)
{
	int k;

	for (k = 0; k < N - M; k++)
		s[k] = s[k + M] ^ MIX(s[k], s[k + 1]);
	for (; k < N - 1; k++)
		s[k] = s[k + M - N] ^ MIX(s[k], s[k + 1]);
	s[N - 1] = s[M - 1] ^ MIX(s[N - 1], s[0]);
	for (k = 0; k < N; k++) {
		uint32_t y = s[k];

		y ^= y >> 11;
		y ^= y << 7 & 0x9d2c5680u;
		y ^= y << 15 & 0xefc60000u;
		out[k] = y ^ y >> 18;
	}
}

#define CHUNK 24 /* draws; divides DF_MT_DRAWS */

/*
 * Finds the draws whose first word does not exceed `bound`. Such draws are rare, so the loop
 * excludes a whole chunk at a time.
 */
static inline __attribute__((always_inline)) int find_low(const uint32_t *restrict out,
							  uint32_t bound, uint16_t *restrict low)
{
	int nr = 0;

	for (int c = 0; c < DF_MT_DRAWS; c += CHUNK) {
		uint32_t least = UINT32_MAX;

		/*
		 * The minimum includes the second words of draws, so that the loop has no stride.
		 * This lets a few more chunks pass.
		 */
		for (int i = 2 * c; i < 2 * (c + CHUNK); i++)
			least = out[i] < least ? out[i] : least;
		if (least > bound)
			continue;
		for (int i = c; i < c + CHUNK; i++) {
			low[nr] = (uint16_t)i;
			nr += out[2 * i] <= bound;
		}
	}
	return nr;
}

static inline __attribute__((always_inline)) void refill(struct df_mt *mt)
{
	generate(mt->state, mt->out);
	mt->nr_low_seen = find_low(mt->out, mt->low_word, mt->low);
}

#ifndef __clang__ /* clang vectorises such loops by itself */
__attribute__((optimize("O3")))
#endif
static void
refill_base(struct df_mt *mt)
{
	refill(mt);
}

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
__attribute__((target("avx2"), optimize("O3"))) static void refill_avx2(struct df_mt *mt)
{
	refill(mt);
}
#define HAVE_AVX2() __builtin_cpu_supports("avx2")
#else
#define refill_avx2 refill_base
#define HAVE_AVX2() 0
#endif

void df_mt_refill(struct df_mt *mt)
{
	if (HAVE_AVX2())
		refill_avx2(mt);
	else
		refill_base(mt);
	mt->low[mt->nr_low_seen] = DF_MT_DRAWS;
	mt->nr_low_seen = 0;
	mt->next_low = mt->low[0];
	mt->next = 0;
}
