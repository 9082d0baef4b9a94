/*
 * NCCL's twelve types on the CPU, from their bit formats alone, for reference results. Floating
 * point types get their values from nine numbers that all of them can represent.
 */
#ifndef CLIENT_TYPES_H
#define CLIENT_TYPES_H

#include <math.h>
#include <nccl.h>
#include <stdint.h>
#include <string.h>

#define NR_TYPES 12

struct type_info {
	const char *name;
	ncclDataType_t type;
	int bytes;
	int is_float, is_signed;
	int man_bits, exp_bits; /* for floating point types */
};

static const struct type_info type_infos[NR_TYPES] = {
	{"int8", ncclInt8, 1, 0, 1, 0, 0},	    {"uint8", ncclUint8, 1, 0, 0, 0, 0},
	{"int32", ncclInt32, 4, 0, 1, 0, 0},	    {"uint32", ncclUint32, 4, 0, 0, 0, 0},
	{"int64", ncclInt64, 8, 0, 1, 0, 0},	    {"uint64", ncclUint64, 8, 0, 0, 0, 0},
	{"half", ncclFloat16, 2, 1, 1, 10, 5},	    {"float", ncclFloat32, 4, 1, 1, 23, 8},
	{"double", ncclFloat64, 8, 1, 1, 52, 11},   {"bfloat16", ncclBfloat16, 2, 1, 1, 7, 8},
	{"fp8e4m3", ncclFloat8e4m3, 1, 1, 1, 3, 4}, {"fp8e5m2", ncclFloat8e5m2, 1, 1, 1, 2, 5},
};

static const double float_values[9] = {-2, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, 2};

static inline uint64_t type_bits(const struct type_info *t, const void *p)
{
	uint64_t bits = 0;

	memcpy(&bits, p, (size_t)t->bytes); /* little endian */
	return bits;
}

static inline double type_decode(const struct type_info *t, uint64_t bits)
{
	int bias = (1 << (t->exp_bits - 1)) - 1, e;
	uint64_t man = bits & ((1ull << t->man_bits) - 1);
	double sign = bits >> (t->man_bits + t->exp_bits) & 1 ? -1 : 1;

	e = (int)(bits >> t->man_bits & ((1ull << t->exp_bits) - 1));
	if (t->type == ncclFloat8e4m3) {
		if (e == 15 && man == 7)
			return NAN;
	} else if (e == (1 << t->exp_bits) - 1) {
		return man ? NAN : sign * INFINITY;
	}
	if (!e)
		return sign * ldexp((double)man, 1 - bias - t->man_bits);
	return sign * ldexp((double)(man | 1ull << t->man_bits), e - bias - t->man_bits);
}

/* v must be exactly representable. */
static inline uint64_t type_encode(const struct type_info *t, double v)
{
	int bias = (1 << (t->exp_bits - 1)) - 1, e;
	uint64_t sign = v < 0;
	double m;

	if (v == 0)
		return 0;
	m = frexp(fabs(v), &e); /* in [0.5, 1) */
	return sign << (t->man_bits + t->exp_bits) | (uint64_t)(e - 1 + bias) << t->man_bits |
	       ((uint64_t)ldexp(m, t->man_bits + 1) & ((1ull << t->man_bits) - 1));
}

static inline double type_epsilon(const struct type_info *t)
{
	return ldexp(1, -t->man_bits);
}

/* Returns an integer of the type, sign-extended. */
static inline int64_t type_integer(const struct type_info *t, uint64_t bits)
{
	int shift = 64 - 8 * t->bytes;

	return t->is_signed ? (int64_t)(bits << shift) >> shift : (int64_t)(bits << shift >> shift);
}

#endif
