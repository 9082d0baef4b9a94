/*
 * Hashes bytes and words, for tables and for identities inside one job. Not safe against chosen
 * input. Ranks exchange the values, so they must be the same on every machine.
 */
#ifndef DF_BASE_HASH_H
#define DF_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* A bijection; every bit of x affects the whole result. */
static inline uint64_t df_mix64(uint64_t x)
{
	x ^= x >> 30;
	x *= 0xbf58476d1ce4e5b9ull;
	x ^= x >> 27;
	x *= 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

/* Chains values; their order matters. */
static inline uint64_t df_hash_u64(uint64_t hash, uint64_t value)
{
	return df_mix64(hash * 0x9e3779b97f4a7c15ull + value + 1);
}

/* FNV-1a over the bytes, then mixed. To chain, pass the last result as seed. */
static inline uint64_t df_hash_bytes(const void *data, size_t len, uint64_t seed)
{
	const unsigned char *p = data;
	uint64_t h = 0xcbf29ce484222325ull ^ seed;
	size_t i;

	for (i = 0; i < len; i++)
		h = (h ^ p[i]) * 0x100000001b3ull;
	return df_mix64(h ^ len);
}

#endif
