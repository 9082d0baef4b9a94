/*
 * The interface between kernels/reduce_cpu.c, which chooses the instruction set, and the loops of
 * each one (kernels/reduce_base.c, reduce_avx2.c, reduce_avx512.c). Private to them.
 */
#ifndef DFK_REDUCE_INT_H
#define DFK_REDUCE_INT_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/abi.h"

#define DFK_MAX_VEC 64

/*
 * Whole vectors: `bytes` is a multiple of the path's vec_bytes. d2 and b may be NULL, d and a may
 * not.
 */
struct dfk_span {
	uint8_t *d, *d2;
	const uint8_t *a, *b;
	size_t bytes;
	uint64_t arg;
	uint32_t pre_a, pre_b, post;
};

typedef void (*dfk_loop_fn)(const struct dfk_span *s);

/*
 * MUL_DIV: the sum, with multiplication before and division after it, as the span requires; b may
 * be NULL.
 */
enum dfk_loop {
	DFK_LOOP_SUM,
	DFK_LOOP_PROD,
	DFK_LOOP_MAX,
	DFK_LOOP_MIN,
	DFK_LOOP_MUL_DIV,
	DFK_NR_LOOPS
};

struct dfk_loops {
	const char *name;
	uint32_t vec_bytes;
	dfk_loop_fn fn[DF_NR_TYPES][DFK_NR_LOOPS];
};

extern const struct dfk_loops dfk_loops_base;
#ifdef __x86_64__
extern const struct dfk_loops dfk_loops_avx2, dfk_loops_avx512;
#endif

#endif
