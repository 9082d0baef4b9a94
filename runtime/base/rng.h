/*
 * Seeded random numbers (xoshiro256**, seeded by splitmix64) for tests, fault injection and
 * back-off. A generator belongs to one thread. Equal seeds give equal sequences on every machine.
 */
#ifndef DF_BASE_RNG_H
#define DF_BASE_RNG_H

#include <stddef.h>
#include <stdint.h>

struct df_rng {
	uint64_t s[4];
};

static inline uint64_t df_rng_splitmix_(uint64_t *x)
{
	uint64_t z = *x += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

static inline void df_rng_init(struct df_rng *r, uint64_t seed)
{
	int i;

	for (i = 0; i < 4; i++)
		r->s[i] = df_rng_splitmix_(&seed);
}

static inline uint64_t df_rng_rotl_(uint64_t x, int k)
{
	return x << k | x >> (64 - k);
}

static inline uint64_t df_rng_u64(struct df_rng *r)
{
	uint64_t result = df_rng_rotl_(r->s[1] * 5, 7) * 9, t = r->s[1] << 17;

	r->s[2] ^= r->s[0];
	r->s[3] ^= r->s[1];
	r->s[1] ^= r->s[2];
	r->s[0] ^= r->s[3];
	r->s[2] ^= t;
	r->s[3] = df_rng_rotl_(r->s[3], 45);
	return result;
}

/* Uniform in [0, n), or 0 if n is 0. */
static inline uint64_t df_rng_below(struct df_rng *r, uint64_t n)
{
	uint64_t x, limit;

	if (!n)
		return 0;
	limit = -n % n; /* 2^64 mod n: smaller values would make some results likelier */
	do {
		x = df_rng_u64(r);
	} while (x < limit);
	return x % n;
}

/* Uniform in [lo, hi], both included. */
static inline int64_t df_rng_range(struct df_rng *r, int64_t lo, int64_t hi)
{
	return lo + (int64_t)df_rng_below(r, (uint64_t)hi - (uint64_t)lo + 1);
}

#endif
