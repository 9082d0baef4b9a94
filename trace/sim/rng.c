/*
 * MT19937 seeded and read as CPython's random module does. The state update and the tempering are
 * plain loops over the whole block that compilers turn into vector code; where the processor has
 * wider vectors than the baseline, a second copy of the same loops is used.
 */
#include <string.h>

#include "trace/sim/rng.h"

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

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
__attribute__((target("avx2"), optimize("O3"))) static void generate_avx2(uint32_t *s,
									  uint32_t *out)
{
	generate(s, out);
}
#define HAVE_AVX2() __builtin_cpu_supports("avx2")
#else
#define generate_avx2 generate_base
#define HAVE_AVX2()   0
#endif

__attribute__((optimize("O3"))) static void generate_base(uint32_t *s, uint32_t *out)
{
	generate(s, out);
}

void df_mt_refill(struct df_mt *mt)
{
	int nr = 0;

	if (HAVE_AVX2())
		generate_avx2(mt->state, mt->out);
	else
		generate_base(mt->state, mt->out);
	for (int i = 0; i < DF_MT_DRAWS; i++) {
		mt->low[nr] = (uint16_t)i;
		nr += mt->out[2 * i] <= mt->low_word;
	}
	mt->low[nr] = DF_MT_DRAWS;
	mt->nr_low_seen = 0;
	mt->next_low = mt->low[0];
	mt->next = 0;
}
