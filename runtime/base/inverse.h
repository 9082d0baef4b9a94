/*
 * 1/n in the formats of NCCL's data types. An average multiplies the inputs of a sum by it. Pure.
 */
#ifndef DF_BASE_INVERSE_H
#define DF_BASE_INVERSE_H

#include <stdint.h>
#include <string.h>

/*
 * Rounds x, a positive normal number of at most 1, to nearest even in a smaller format. Returns its
 * bits.
 */
static inline uint64_t df_narrow(float x, int mantissa_bits, int bias)
{
	int shift = 23 - mantissa_bits, e;
	uint32_t bits, m, rest;

	memcpy(&bits, &x, sizeof(bits));
	e = (int)(bits >> 23) - 127 + bias;
	m = (bits & 0x7fffff) | 0x800000;
	if (e < 1) { /* subnormal in the smaller format */
		shift += 1 - e;
		e = 1;
	}
	if (shift > 24)
		return 0;
	rest = m & ((1u << shift) - 1);
	m >>= shift;
	if (rest > 1u << (shift - 1) || (rest == 1u << (shift - 1) && m & 1))
		m++;
	/* The leading 1 of a normal mantissa adds 1 to the exponent. */
	return ((uint64_t)(e - 1) << mantissa_bits) + m;
}

/*
 * Returns the bits of 1/n in a type, numbered as ncclDataType_t. For integers it returns n, by
 * which the caller divides the sum.
 */
static inline uint64_t df_inverse(unsigned type, int n)
{
	double d = 1.0 / n;
	float f = (float)d;
	uint64_t bits = 0;

	switch (type) {
	case 8: /* float64 */
		memcpy(&bits, &d, sizeof(d));
		return bits;
	case 7: /* float32 */
		memcpy(&bits, &f, sizeof(f));
		return bits;
	case 6: /* float16 */
		return df_narrow(f, 10, 15);
	case 9: /* bfloat16 */
		return df_narrow(f, 7, 127);
	case 10: /* float8e4m3 */
		return df_narrow(f, 3, 7);
	case 11: /* float8e5m2 */
		return df_narrow(f, 2, 15);
	default:
		return (uint64_t)n;
	}
}

#endif
