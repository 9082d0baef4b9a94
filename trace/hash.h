/*
 * Hashes that appear in traces and so must never change: FNV-1a over bytes, and a mixer for numbers.
 * Leaf header; no state.
 */
#ifndef DF_TRACE_HASH_H
#define DF_TRACE_HASH_H

#include <stddef.h>
#include <stdint.h>

static inline uint64_t df_hash64_more(uint64_t h, const void *data, size_t bytes)
{
	const unsigned char *p = data;

	for (size_t i = 0; i < bytes; i++)
		h = (h ^ p[i]) * 0x100000001b3ULL;
	return h;
}

static inline uint64_t df_hash64(const void *data, size_t bytes)
{
	return df_hash64_more(0xcbf29ce484222325ULL, data, bytes);
}

/* A bijection that spreads neighbouring numbers. */
static inline uint64_t df_mix64(uint64_t x)
{
	x ^= x >> 33;
	x *= 0xff51afd7ed558ccdULL;
	x ^= x >> 33;
	x *= 0xc4ceb9fe1a85ec53ULL;
	return x ^ (x >> 33);
}

#endif
