/*
 * Hashes that appear in traces, and therefore must never change: FNV-1a for bytes (here),
 * df_mix64() for numbers (runtime/base/hash.h). No state.
 */
#ifndef DF_TRACE_RECORD_TRACE_HASH_H
#define DF_TRACE_RECORD_TRACE_HASH_H

#include <stddef.h>
#include <stdint.h>
#include "runtime/base/hash.h"

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

#endif
