/*
 * Compares dfk_move() on the CPU with a reference, on every instruction set of this machine: small
 * formats exhaustively, everything else at random (SEED repeats a run).
 */
#include <check.h>
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __x86_64__
#include <xmmintrin.h>
#endif

#include "kernels/reduce.h"
#include "tests/lib/test.h"

/* ---- reference ------------------------------------------------------------------------------- */

/*
 * dfk_move() element by element, written from the definition in kernels/reduce.h. It uses ldexp(),
 * frexp() and nearbyint() instead of bit patterns, so that it shares no code with the tested
 * functions. It is slow and uses one thread.
 */

/*
 * A floating point format: bits of the mantissa, exponent of the smallest normal number, largest
 * finite value.
 */
struct ref_format {
	int man, emin;
	double max;
	bool has_inf, saturates;
	uint32_t nan; /* the canonical NaN */
};

static const struct ref_format *ref_format(uint32_t type)
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

static double ref_decode(const struct ref_format *f, uint32_t bits, int width)
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

/* Rounds to the nearest value of a format without an upper limit of the exponent; ties to even. */
static double ref_round(int man, int emin, double v)
{
	int e;

	if (v == 0 || !isfinite(v))
		return v;
	frexp(v, &e);
	e = e - 1 < emin ? emin : e - 1;
	return ldexp(nearbyint(ldexp(v, man - e)), e - man);
}

/*
 * Returns v as a value of f after rounding and saturation or overflow. With `half`, it is rounded
 * to fp16 first, as NCCL does.
 */
static double ref_fit(const struct ref_format *f, double v, bool half)
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

static uint32_t ref_encode(const struct ref_format *f, double v, int width)
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

static double ref_extreme(bool max, double x, double y)
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

static uint64_t ref_f64(enum ref_op op, double x, double y)
{
	double r = op == REF_ADD   ? x + y
		   : op == REF_MUL ? x * y
		   : op == REF_DIV ? x / y
				   : ref_extreme(op == REF_MAX, x, y);
	uint64_t bits;

	memcpy(&bits, &r, 8);
	return isnan(r) ? ~0ull >> 1 : bits;
}

static float ref_float_op(enum ref_op op, float x, float y)
{
	return op == REF_ADD   ? x + y
	       : op == REF_MUL ? x * y
	       : op == REF_DIV ? x / y
			       : (float)ref_extreme(op == REF_MAX, x, y);
}

/* Applies an operation to the bits of two values. For REF_DIV, y is the divisor itself. */
static uint64_t ref_op(enum ref_op op, uint32_t type, uint64_t x, uint64_t y)
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
		/* The greater bit pattern of two negative numbers is the greater number. */
		return (nx != ny ? nx == (op == REF_MIN) : (x > y) == (op == REF_MAX)) ? x : y;
	}
}

static uint64_t ref_get(const void *p, uint64_t i, uint32_t bytes)
{
	uint64_t v = 0;

	memcpy(&v, (const uint8_t *)p + i * bytes, bytes);
	return v;
}

/* Returns the element that dfk_move() must write at index i. */
static uint64_t ref_move(const struct dfk_move *m, uint64_t i)
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

#define MAX_ELEMS 1500
#define GUARD	  64
#define BUF	  (GUARD + 64 + MAX_ELEMS * 8 + GUARD)

static const char *const type_name[] = {"i8",  "u8",  "i32", "u32",  "i64",  "u64",
					"f16", "f32", "f64", "bf16", "e4m3", "e5m2"};

static uint64_t seed, state;

static uint64_t rnd(void)
{
	uint64_t z = state += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

static void seed_init(void)
{
	seed = df_test_seed();
	state = seed;
}

/* Returns random bits, in half of the calls a pattern that is special in some format. */
static uint64_t rnd_bits(uint32_t bytes)
{
	int width = (int)bytes * 8, b = (int)(rnd() % (uint64_t)width);
	uint64_t top = 1ull << (width - 1), v = rnd();

	switch (rnd() % 8) {
	case 0:
		v = 0;
		break;
	case 1:
		v = (1ull << b) - (rnd() & 1);
		break;
	case 2:
		v = -(1ull << b);
		break;
	case 3:
		v = rnd() % 5;
		break;
	case 4: /* a medium exponent, so that sums are rounded */
		v = (v & ~(15ull << (width - 5))) | 7ull << (width - 5);
		break;
	default:
		break;
	}
	if (rnd() % 8 == 0)
		v ^= top;
	return width == 64 ? v : v & ((1ull << width) - 1);
}

struct area {
	uint8_t bytes[BUF] __attribute__((aligned(64)));
};

static void fill(struct area *r, uint32_t bytes)
{
	for (size_t i = 0; i < BUF / 8; i++) {
		uint64_t v = 0;

		for (uint32_t k = 0; k < 8; k += bytes)
			v |= rnd_bits(bytes) << (8 * k);
		memcpy(r->bytes + 8 * i, &v, 8);
	}
}

static void explain(char *text, size_t size, const struct dfk_move *m, uint64_t i)
{
	snprintf(text, size,
		 "seed %llu path %s type %s op %u elems %llu arg %#llx pre %u %u post %u "
		 "dst %p dst2 %p a %p b %p at element %llu",
		 (unsigned long long)seed, dfk_path_name(), type_name[m->type], m->redop,
		 (unsigned long long)m->elems, (unsigned long long)m->arg, m->pre_a, m->pre_b,
		 m->post, m->dst, m->dst2, m->a, m->b, (unsigned long long)i);
}

/*
 * Executes m and compares all areas with the expected bytes, including bytes that it must not
 * write.
 */
static void check_move(const struct dfk_move *m, struct area *const src[2], struct area *dst[2])
{
	uint32_t bytes = dfk_type_bytes(m->type);
	struct area *areas[4] = {src[0], src[1], dst[0], dst[1]};
	static struct area expect[4], before[4];
	char text[512];

	memset(expect, 0, sizeof(expect));
	for (int k = 0; k < 4; k++)
		before[k] = *areas[k];
	for (int k = 0; k < 4; k++)
		expect[k] = before[k];
	for (int t = 0; t < 2; t++) {
		uint8_t *d = t ? m->dst2 : m->dst;

		if (!d)
			continue;
		for (int k = 0; k < 4; k++) {
			if (d < areas[k]->bytes || d >= areas[k]->bytes + BUF)
				continue;
			for (uint64_t i = 0; i < m->elems; i++) {
				uint64_t v = ref_move(m, i);

				memcpy(expect[k].bytes + (d - areas[k]->bytes) + i * bytes, &v,
				       bytes);
			}
		}
	}
	dfk_move(m);
	for (int k = 0; k < 4; k++) {
		if (memcmp(expect[k].bytes, areas[k]->bytes, BUF) == 0)
			continue;
		for (size_t i = 0; i < BUF; i++) {
			size_t at = i / bytes * bytes;

			if (expect[k].bytes[i] == areas[k]->bytes[i])
				continue;
			explain(text, sizeof(text), m, 0);
			ck_abort_msg(
				"%s: area %d byte %zu (of %p): %#llx, expected %#llx, was %#llx",
				text, k, i, (void *)areas[k]->bytes,
				(unsigned long long)ref_get(areas[k]->bytes + at, 0, bytes),
				(unsigned long long)ref_get(expect[k].bytes + at, 0, bytes),
				(unsigned long long)ref_get(before[k].bytes + at, 0, bytes));
		}
	}
}

static void random_move(void)
{
	static struct area area[4];
	struct area *src[2] = {&area[0], &area[1]}, *dst[2] = {&area[2], &area[3]};
	struct dfk_move m = {0};
	uint32_t bytes;

	m.type = (uint32_t)(rnd() % DF_NR_TYPES);
	m.redop = (uint32_t)(rnd() % DF_NR_REDOPS);
	bytes = dfk_type_bytes(m.type);
	m.elems = rnd() % (rnd() % 4 ? 70 : MAX_ELEMS);
	for (int k = 0; k < 4; k++)
		fill(&area[k], bytes);
#define PLACE(k) (area[k].bytes + GUARD + (rnd() & 1 ? rnd() % (64 / bytes) * bytes : 0))
	m.a = PLACE(0);
	m.b = rnd() % 4 ? PLACE(1) : NULL;
	m.dst = PLACE(2);
	m.dst2 = rnd() & 1 ? PLACE(3) : NULL;
	switch (rnd() % 8) {
	case 0:
		m.dst = (void *)m.a;
		break;
	case 1:
		m.dst = (void *)(m.b ? m.b : m.a);
		break;
	case 2:
		m.dst2 = (void *)m.a;
		break;
	case 3:
		m.dst2 = (void *)(m.b ? m.b : m.a);
		break;
	case 4:
		m.dst2 = PLACE(3);
		m.dst = NULL;
		break;
	case 5:
		m.b = m.a;
		break;
	default:
		break;
	}
	m.arg = m.redop == DF_SUMPOSTDIV && rnd() % 8 ? rnd() % 300 : rnd_bits(8);
	m.pre_a = rnd() & 1;
	m.pre_b = rnd() & 1;
	m.post = rnd() & 1;
	check_move(&m, src, dst);
}

static const enum dfk_path paths[] = {DFK_PATH_BASE, DFK_PATH_AVX2, DFK_PATH_AVX512};

static bool path_begin(int i)
{
	seed_init();
	if (dfk_path_set(paths[i]) == 0)
		return true;
	fprintf(stderr, "t_reduce: path %d is not on this machine, left out\n", (int)paths[i]);
	return false;
}

START_TEST(random_moves)
{
	if (!path_begin(_i))
		return;
	for (int i = 0; i < 4000; i++)
		random_move();
}
END_TEST

/* Tests every value of the formats of up to 16 bits: signs, NaNs, infinities, denormal numbers. */
START_TEST(small_formats)
{
	static const uint32_t types[] = {DF_FLOAT16, DF_BFLOAT16, DF_FLOAT8E4M3, DF_FLOAT8E5M2};
	static uint16_t in[65536], other[65536], out[65536];
	uint32_t type = types[_i % 4], bytes = dfk_type_bytes(type);

	if (!path_begin(_i / 4))
		return;
	for (uint32_t round = 0; round < 16; round++) {
		struct dfk_move m = {.dst = out, .a = in, .b = other, .elems = 65536, .type = type};
		uint64_t scalar = rnd_bits(2);
		char text[512];

		for (uint32_t i = 0; i < 65536; i++) {
			if (bytes == 2) {
				in[i] = (uint16_t)i;
				other[i] = (uint16_t)(round < 8 ? rnd_bits(2) : scalar);
			} else { /* all pairs */
				((uint8_t *)in)[i] = (uint8_t)i;
				((uint8_t *)other)[i] = (uint8_t)(i >> 8);
			}
		}
		m.redop = round % DF_NR_REDOPS;
		m.arg = m.redop == DF_SUMPOSTDIV ? 3 : rnd_bits(bytes);
		if (round == 4) { /* times one: tests the conversions alone */
			m.arg = ref_encode(ref_format(type), 1, 8 * (int)bytes);
			m.b = NULL;
		}
		m.pre_a = m.post = 1;
		dfk_move(&m);
		for (uint32_t i = 0; i < 65536; i++) {
			uint64_t got = ref_get(out, i, bytes), want = ref_move(&m, i);

			if (got == want)
				continue;
			explain(text, sizeof(text), &m, i);
			ck_abort_msg("%s: %#llx op %#llx gives %#llx, expected %#llx", text,
				     (unsigned long long)ref_get(in, i, bytes),
				     (unsigned long long)ref_get(other, i, bytes),
				     (unsigned long long)got, (unsigned long long)want);
		}
	}
}
END_TEST

/* Tests the reference: it encodes what it has decoded to the same bits. */
START_TEST(reference_formats)
{
	for (uint32_t type = 0; type < DF_NR_TYPES; type++) {
		const struct ref_format *f = ref_format(type);
		int width = (int)dfk_type_bytes(type) * 8;

		for (uint32_t i = 0; f && i < 1u << width; i++) {
			double v = ref_decode(f, i, width);

			if (!isnan(v))
				ck_assert_uint_eq(ref_encode(f, v, width), i);
			if (isfinite(v))
				ck_assert(ref_fit(f, v, true) == v);
		}
	}
	ck_assert(ref_decode(ref_format(DF_FLOAT16), 0x3c00, 16) == 1);
	ck_assert(ref_decode(ref_format(DF_BFLOAT16), 0xc040, 16) == -3);
	ck_assert(ref_decode(ref_format(DF_FLOAT8E4M3), 0x7e, 8) == 448);
	ck_assert(ref_decode(ref_format(DF_FLOAT8E5M2), 0x01, 8) == 0x1p-16);
}
END_TEST

/* Tests all dividends of 8 bits, and random and special ones of 32 and 64 bits. */
START_TEST(division)
{
	static const uint64_t d[] = {
		2,   3,	  5,	 7,	     8,		 127,	     128,	 129,	     255,
		256, 257, 65537, 0x7fffffff, 0x80000000, 0xfffffffe, 0xffffffff, 1ull << 32, ~0ull};
	uint32_t type = (uint32_t)_i % 6;

	if (!path_begin(_i / 6))
		return;
	for (size_t k = 0; k < sizeof(d) / sizeof(d[0]); k++) {
		uint64_t in[256], out[256];
		uint32_t bytes = dfk_type_bytes(type);
		struct dfk_move m = {.dst = out, .a = in, .type = type, .redop = DF_SUMPOSTDIV};

		m.arg = d[k];
		m.post = 1;
		m.elems = 256;
		for (uint64_t i = 0; i < 256; i++) {
			uint64_t v = bytes == 1	 ? i
				     : rnd() & 1 ? rnd() * d[k] - (rnd() & 1)
						 : rnd_bits(bytes);

			memcpy((uint8_t *)in + i * bytes, &v, bytes);
		}
		dfk_move(&m);
		for (uint64_t i = 0; i < 256; i++)
			ck_assert_msg(ref_get(out, i, bytes) == ref_move(&m, i),
				      "seed %llu path %s type %s: %#llx / %llu gives %#llx, "
				      "expected %#llx",
				      (unsigned long long)seed, dfk_path_name(), type_name[type],
				      (unsigned long long)ref_get(in, i, bytes),
				      (unsigned long long)d[k],
				      (unsigned long long)ref_get(out, i, bytes),
				      (unsigned long long)ref_move(&m, i));
	}
}
END_TEST

/* A long copy with two destinations is done in several pieces. */
START_TEST(long_copy)
{
	size_t n = 100003;
	uint8_t *a = malloc(n), *d = malloc(n + 1), *d2 = malloc(n + 1);
	struct dfk_move m = {.dst = d, .dst2 = d2, .a = a, .elems = n, .type = DF_INT8};

	seed_init();
	ck_assert(a && d && d2);
	for (size_t i = 0; i < n; i++)
		a[i] = (uint8_t)rnd();
	d[n] = d2[n] = 0x5a;
	dfk_move(&m);
	ck_assert(!memcmp(a, d, n) && !memcmp(a, d2, n) && d[n] == 0x5a && d2[n] == 0x5a);
	free(a);
	free(d);
	free(d2);
}
END_TEST

#ifdef __x86_64__
/*
 * A program with -ffast-math, or one that traps on NaN, gets the same bits, and its settings are
 * restored.
 */
START_TEST(foreign_fp_mode)
{
	static const unsigned int modes[] = {0x9fc0, 0x7f80, 0x3f80, 0x0000};
	uint32_t in[37], out[37], want[37];
	struct dfk_move m = {.dst = want, .a = in, .b = in, .elems = 37, .type = DF_FLOAT32};

	seed_init();
	for (int i = 0; i < 37; i++)
		in[i] = i % 3 ? (uint32_t)i : i % 2 ? 0x3f800001u : 0x7f800001u;
	dfk_move(&m);
	m.dst = out;
	for (size_t k = 0; k < sizeof(modes) / sizeof(modes[0]); k++) {
		unsigned int saved = _mm_getcsr(), after;

		_mm_setcsr(modes[k]);
		dfk_move(&m);
		after = _mm_getcsr();
		_mm_setcsr(saved);
		ck_assert_uint_eq(after, modes[k]);
		ck_assert(!memcmp(out, want, sizeof(out)));
	}
}
END_TEST
#endif

static void *first_call(void *arg)
{
	float a[5] = {1, 2, 3, 4, 5}, d[5];
	struct dfk_move m = {.dst = d, .a = a, .b = a, .elems = 5, .type = DF_FLOAT32};

	dfk_move(&m);
	*(float *)arg = d[4];
	return NULL;
}

/* Tests the process's first call from several threads at the same time. */
START_TEST(first_calls)
{
	pthread_t t[8];
	float r[8];

	for (int i = 0; i < 8; i++)
		ck_assert_int_eq(pthread_create(&t[i], NULL, first_call, &r[i]), 0);
	for (int i = 0; i < 8; i++) {
		pthread_join(t[i], NULL);
		ck_assert(r[i] == 10);
	}
}
END_TEST

int main(void)
{
	const struct df_test tests[] = {
		{first_calls},	   {reference_formats}, {small_formats, 12},
		{division, 18},	   {long_copy},
#ifdef __x86_64__
		{foreign_fp_mode},
#endif
		{random_moves, 3},
	};

	return df_tests("reduce", tests, DF_ARRAY_LEN(tests));
}
