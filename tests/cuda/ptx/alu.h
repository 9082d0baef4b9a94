/*
 * Conversions between registers and C's numbers, for the files that do arithmetic (alu.c, bits.c,
 * convert.c), and the functions that these files share.
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
/* Returns the bits of `f`. Every NaN becomes the same one, as on a GPU. */
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

/*
 * Each function executes one instruction. It returns 0 if the emulator lacks the instruction for
 * these types.
 */
int alu_bits(struct block *b, struct warp *w, const struct insn *in, uint32_t mask);
int alu_compare(struct block *b, struct warp *w, const struct insn *in, uint32_t mask);
int alu_convert(struct block *b, struct warp *w, const struct insn *in, uint32_t mask);
int alu_move(struct block *b, struct warp *w, const struct insn *in, uint32_t mask);

#endif
