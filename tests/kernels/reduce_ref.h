/*
 * The reference of the data path's tests: dfk_move() element by element, written from the definition in
 * kernels/reduce.h with ldexp(), frexp() and nearbyint() instead of bit patterns, so that it shares
 * nothing with what it checks. Slow. One thread.
 */
#ifndef TESTS_REDUCE_REF_H
#define TESTS_REDUCE_REF_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "kernels/reduce.h"

/* A floating format: mantissa bits, exponent of the smallest normal number, largest finite value. */
struct ref_format {
	int man, emin;
	double max;
	bool has_inf, saturates;
	uint32_t nan; /* canonical */
};

static inline const struct ref_format *ref_format(uint32_t type)
{
	static const struct ref_format f16 = {10, -14, 65504, true, false, 0x7fff};
	static const struct ref_format bf16 = {7, -126, 0x1.fep127, true, false, 0x7fff};
	static const struct ref_format e4m3 = {3, -6, 448, false, true, 0x7f};
	static const struct ref_format e5m2 = {2, -14, 57344, true, true, 0x7f};

	switch (type) {
	case DF_FLOAT16:
		return &f16;
	case DF_BFLOAT16:
		return &bf16;
	case DF_FLOAT8E4M3:
		return &e4m3;
	case DF_FLOAT8E5M2:
		return &e5m2;
	default:
		return NULL;
	}
}

static inline double ref_decode(const struct ref_format *f, uint32_t bits, int width)
{
	uint32_t sign = bits >> (width - 1) & 1, man = bits & ((1u << f->man) - 1);
	int e_bits = width - 1 - f->man, e = (int)(bits >> f->man & ((1u << e_bits) - 1));
	double v;

	if (f->has_inf ? e == (1 << e_bits) - 1 : (bits & 0x7f) == 0x7f) {
		if (man && (f->has_inf || man == 7))
			return NAN;
		v = INFINITY;
	} else if (e == 0) {
		v = ldexp(man, f->emin - f->man);
	} else {
		v = ldexp((1 << f->man) + (int)man, f->emin + e - 1 - f->man);
	}
	return sign ? -v : v;
}

/* To the nearest value of f with unbounded exponent upwards; ties to even. */
static inline double ref_round(int man, int emin, double v)
{
	int e;

	if (v == 0 || !isfinite(v))
		return v;
	frexp(v, &e);
	e = e - 1 < emin ? emin : e - 1;
	return ldexp(nearbyint(ldexp(v, man - e)), e - man);
}

/* v as a value of f after rounding, saturation or overflow; half: by way of fp16, as NCCL does it. */
static inline double ref_fit(const struct ref_format *f, double v, bool half)
{
	if (isnan(v))
		return v;
	if (f->saturates) {
		v = half ? ref_round(10, -14, v) : v;
		v = ref_round(f->man, f->emin, v);
		return fabs(v) > f->max ? copysign(f->max, v) : v;
	}
	v = ref_round(f->man, f->emin, v);
	return fabs(v) > f->max ? copysign(INFINITY, v) : v;
}

static inline uint32_t ref_encode(const struct ref_format *f, double v, int width)
{
	uint32_t sign = signbit(v) ? 1u << (width - 1) : 0;
	int e;

	if (isnan(v))
		return f->nan;
	v = fabs(v);
	if (isinf(v))
		return sign | (((1u << (width - 1 - f->man)) - 1) << f->man);
	if (v < ldexp(1, f->emin))
		return sign | (uint32_t)ldexp(v, f->man - f->emin);
	frexp(v, &e);
	return sign | (uint32_t)(e - f->emin) << f->man |
	       ((uint32_t)ldexp(v, f->man - e + 1) - (1u << f->man));
}

static inline double ref_extreme(bool max, double x, double y)
{
	if (isnan(x))
		return y;
	if (isnan(y))
		return x;
	if (x == 0 && y == 0)
		return (max ? signbit(x) && signbit(y) : signbit(x) || signbit(y)) ? -0.0 : 0.0;
	return max == (x > y) ? x : y;
}

enum ref_op { REF_ADD, REF_MUL, REF_MAX, REF_MIN, REF_DIV };

static inline uint64_t ref_f64(enum ref_op op, double x, double y)
{
	double r = op == REF_ADD   ? x + y
		   : op == REF_MUL ? x * y
		   : op == REF_DIV ? x / y
				   : ref_extreme(op == REF_MAX, x, y);
	uint64_t bits;

	memcpy(&bits, &r, 8);
	return isnan(r) ? ~0ull >> 1 : bits;
}

static inline float ref_float_op(enum ref_op op, float x, float y)
{
	return op == REF_ADD   ? x + y
	       : op == REF_MUL ? x * y
	       : op == REF_DIV ? x / y
			       : (float)ref_extreme(op == REF_MAX, x, y);
}

/* One operation on the bits of a type; for REF_DIV, y is the divisor itself. */
static inline uint64_t ref_op(enum ref_op op, uint32_t type, uint64_t x, uint64_t y)
{
	int width = (int)dfk_type_bytes(type) * 8;
	uint64_t mask = width == 64 ? ~0ull : (1ull << width) - 1;
	const struct ref_format *f = ref_format(type);
	bool is_signed = type == DF_INT8 || type == DF_INT32 || type == DF_INT64;
	bool nx, ny;

	if (f) {
		double u = ref_decode(f, (uint32_t)x, width);
		double v = op == REF_DIV ? (double)(float)y : ref_decode(f, (uint32_t)y, width);

		return ref_encode(
			f, ref_fit(f, ref_float_op(op, (float)u, (float)v), op != REF_DIV), width);
	}
	if (type == DF_FLOAT32) {
		uint32_t bx = (uint32_t)x, by = (uint32_t)y, br;
		float u, v, r;

		memcpy(&u, &bx, 4);
		memcpy(&v, &by, 4);
		r = ref_float_op(op, u, op == REF_DIV ? (float)y : v);
		memcpy(&br, &r, 4);
		return isnan(r) ? 0x7fffffffu : br;
	}
	if (type == DF_FLOAT64) {
		double u, v;

		memcpy(&u, &x, 8);
		memcpy(&v, &y, 8);
		return ref_f64(op, u, op == REF_DIV ? (double)y : v);
	}
	nx = is_signed && (x >> (width - 1) & 1);
	ny = is_signed && (y >> (width - 1) & 1);
	switch (op) {
	case REF_ADD:
		return (x + y) & mask;
	case REF_MUL:
		return (x * y) & mask;
	case REF_DIV:
		return (nx ? -((-x & mask) / y) : x / y) & mask;
	default:
		/* Of two negative numbers the greater pattern is the greater number, too. */
		return (nx != ny ? nx == (op == REF_MIN) : (x > y) == (op == REF_MAX)) ? x : y;
	}
}

static inline uint64_t ref_get(const void *p, uint64_t i, uint32_t bytes)
{
	uint64_t v = 0;

	memcpy(&v, (const uint8_t *)p + i * bytes, bytes);
	return v;
}

/* The element that dfk_move() must write at i. */
static inline uint64_t ref_move(const struct dfk_move *m, uint64_t i)
{
	static const enum ref_op ops[DF_NR_REDOPS] = {REF_ADD, REF_MUL, REF_MAX,
						      REF_MIN, REF_ADD, REF_ADD};
	uint32_t bytes = dfk_type_bytes(m->type);
	uint64_t x = ref_get(m->a, i, bytes), y;
	uint64_t scalar = bytes == 8 ? m->arg : m->arg & ((1ull << (8 * bytes)) - 1);

	if (m->redop == DF_PREMULSUM && m->pre_a)
		x = ref_op(REF_MUL, m->type, x, scalar);
	if (m->b) {
		y = ref_get(m->b, i, bytes);
		if (m->redop == DF_PREMULSUM && m->pre_b)
			y = ref_op(REF_MUL, m->type, y, scalar);
		x = ref_op(ops[m->redop], m->type, x, y);
	}
	if (m->redop == DF_SUMPOSTDIV && m->post && m->arg > 1)
		x = ref_op(REF_DIV, m->type, x, m->arg);
	return x;
}

#endif
