/*
 * Numbers in registers, for the files that do arithmetic (alu.c, bits.c, convert.c), and their
 * shared functions.
 */
#ifndef DF_TESTS_PTX_ALU_H
#define DF_TESTS_PTX_ALU_H

#include <math.h>
#include <string.h>
#include "tests/cuda/ptx/int.h"

static inline float f32(uint64_t v)
{
	uint32_t u = (uint32_t)v;
	float f;

	memcpy(&f, &u, 4);
	return f;
}
/* All values that are not a number have one form. */
static inline uint64_t of_f32(float f)
{
	uint32_t u;

	if (isnan(f))
		return 0x7fffffff;
	memcpy(&u, &f, 4);
	return u;
}
static inline double f64(uint64_t v)
{
	double f;

	memcpy(&f, &v, 8);
	return f;
}
static inline uint64_t of_f64(double f)
{
	uint64_t u;

	memcpy(&u, &f, 8);
	return u;
}
static inline uint64_t half2(uint16_t lo, uint16_t hi)
{
	return (uint32_t)lo | (uint32_t)hi << 16;
}

/* 0: not with these types. */
int alu_bits(struct block *b, struct warp *w, const struct insn *in, uint32_t mask);
int alu_compare(struct block *b, struct warp *w, const struct insn *in, uint32_t mask);
int alu_convert(struct block *b, struct warp *w, const struct insn *in, uint32_t mask);
int alu_move(struct block *b, struct warp *w, const struct insn *in, uint32_t mask);

#endif
