/*
 * The loops of dfk_move() over vectors of VB bytes, for one instruction set. The including file
 * sets VB, LOOPS (the table to define) and LOOPS_NAME. A loop processes whole vectors only;
 * kernels/reduce_cpu.c pads the rest, so no other code computes elements.
 *
 * The paths are bitwise equal for three reasons. Each operation rounds by itself: a rounding step
 * with integer instructions separates a product and a sum, so they cannot be fused. NaN results are
 * made canonical, because the compiler's operand order decides which operand's NaN survives. And
 * hardware conversions are used only where the result is defined to the bit.
 */
#ifdef __FAST_MATH__
#error "the arithmetic of dfk_move() must not be relaxed: build without -ffast-math"
#endif
#ifdef __x86_64__
#include <immintrin.h>
#endif

#define INL    static inline __attribute__((always_inline))
#define VEC(t) __attribute__((vector_size(VB))) t
#define UNROLL _Pragma("GCC unroll 4")

typedef VEC(uint8_t) vu8;
typedef VEC(int8_t) vi8;
typedef VEC(uint16_t) vu16;
typedef VEC(uint32_t) vu32;
typedef VEC(int32_t) vi32;
typedef VEC(uint64_t) vu64;
typedef VEC(int64_t) vi64;
typedef VEC(float) vf32;
typedef VEC(double) vf64;
/* Any memory, any alignment. */
typedef vu8 vmem __attribute__((aligned(1), may_alias));

INL vu8 load(const uint8_t *p)
{
	return *(const vmem *)p;
}

INL void store(uint8_t *d, uint8_t *d2, size_t i, vu8 v)
{
	*(vmem *)(d + i) = v;
	if (d2)
		*(vmem *)(d2 + i) = v;
}

/* Bytes of m are all ones or all zeros. */
#define SELECT(m, yes, no) (((m) & (yes)) | (~(m) & (no)))

/* ---- interleaving: the order of elements inside is free, but pack undoes unpack ------------- */

#if VB == 64
#define MM(f) _mm512_##f
#define MI    __m512i
#define MZERO _mm512_setzero_si512()
#elif VB == 32
#define MM(f) _mm256_##f
#define MI    __m256i
#define MZERO _mm256_setzero_si256()
#elif defined(__x86_64__)
#define MM(f) _mm_##f
#define MI    __m128i
#define MZERO _mm_setzero_si128()
#endif

#ifdef MM

INL void widen8(vu8 v, vu16 w[2])
{
	w[0] = (vu16)MM(unpacklo_epi8)((MI)v, MZERO);
	w[1] = (vu16)MM(unpackhi_epi8)((MI)v, MZERO);
}
INL vu8 narrow16(const vu16 w[2])
{
	return (vu8)MM(packus_epi16)((MI)w[0], (MI)w[1]);
}
INL void widen16(vu16 v, vu32 w[2])
{
	w[0] = (vu32)MM(unpacklo_epi16)((MI)v, MZERO);
	w[1] = (vu32)MM(unpackhi_epi16)((MI)v, MZERO);
}
/* The same into the upper halves, zeros below. */
INL void widen16_high(vu16 v, vu32 w[2])
{
	w[0] = (vu32)MM(unpacklo_epi16)(MZERO, (MI)v);
	w[1] = (vu32)MM(unpackhi_epi16)(MZERO, (MI)v);
}
/* The upper halves. Signed saturation, for SSE2 has no other; it never saturates. */
INL vu16 narrow32_high(const vu32 w[2])
{
	return (vu16)MM(packs_epi32)((MI)((vi32)w[0] >> 16), (MI)((vi32)w[1] >> 16));
}

#else

#define LO8   0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define HI8   8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#define EVEN8 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30
#define LO16  0, 8, 1, 9, 2, 10, 3, 11
#define HI16  4, 12, 5, 13, 6, 14, 7, 15
#define ODD16 1, 3, 5, 7, 9, 11, 13, 15

INL void widen8(vu8 v, vu16 w[2])
{
	w[0] = (vu16)__builtin_shufflevector(v, (vu8){0}, LO8);
	w[1] = (vu16)__builtin_shufflevector(v, (vu8){0}, HI8);
}
INL vu8 narrow16(const vu16 w[2])
{
	return __builtin_shufflevector((vu8)w[0], (vu8)w[1], EVEN8);
}
INL void widen16(vu16 v, vu32 w[2])
{
	w[0] = (vu32)__builtin_shufflevector(v, (vu16){0}, LO16);
	w[1] = (vu32)__builtin_shufflevector(v, (vu16){0}, HI16);
}
INL void widen16_high(vu16 v, vu32 w[2])
{
	w[0] = (vu32)__builtin_shufflevector((vu16){0}, v, LO16);
	w[1] = (vu32)__builtin_shufflevector((vu16){0}, v, HI16);
}
INL vu16 narrow32_high(const vu32 w[2])
{
	return __builtin_shufflevector((vu16)w[0], (vu16)w[1], ODD16);
}

#endif

/* The lower halves; the upper ones are zero. */
INL vu16 narrow32(const vu32 w[2])
{
#if VB == 64
	return (vu16)_mm512_packus_epi32((MI)w[0], (MI)w[1]);
#elif VB == 32
	return (vu16)_mm256_packus_epi32((MI)w[0], (MI)w[1]);
#else
	vu32 high[2] = {w[0] << 16, w[1] << 16};

	return narrow32_high(high);
#endif
}

/* ---- floating-point formats, as floats ------------------------------------------------------ */

#define SIGN	 0x80000000u
#define EXP32(e) ((uint32_t)((e) + 127) << 23) /* bits of 2^e */

INL vu32 nan32(vf32 x)
{
	return (vu32)(x != x);
}

INL vf32 splat32(uint32_t bits)
{
	return (vf32)((vu32){0} + bits);
}

INL vf32 canon32(vf32 x)
{
	vu32 m = nan32(x);

	return (vf32)SELECT(m, ~SIGN, (vu32)x);
}

INL vf64 canon64(vf64 x)
{
	vu64 m = (vu64)(x != x);

	return (vf64)SELECT(m, ~0ull >> 1, (vu64)x);
}

/*
 * Small formats by arithmetic: with exponent and mantissa moved to their position in float, the
 * value is off by a power of two, which one multiplication corrects, for denormals as well.
 */
INL vf32 widen_format(vu32 bits, int up, int exp, uint32_t inf_or_nan, vu32 sign)
{
	vu32 em = bits << up;
	vu32 special = (vu32)((vi32)em >= (int32_t)(inf_or_nan << up));
	vf32 f = (vf32)em * splat32(EXP32(exp));

	return (vf32)((vu32)f | (special & 0x7f800000u) | sign);
}

/*
 * The magnitude of x in a format with `man` mantissa bits whose smallest normal number is 2^emin,
 * to nearest even. The addition of a power of two makes the FPU round denormals at the right bit.
 */
INL vu32 narrow_format(vf32 x, int man, int emin)
{
	vu32 a = (vu32)x & ~SIGN;
	int drop = 23 - man;
	uint32_t one = EXP32(emin - man + 23);
	vu32 small = (vu32)((vf32)a + splat32(one)) - one;
	vu32 big = a - EXP32(emin - 1);
	vu32 m = (vu32)((vi32)a < (int32_t)EXP32(emin));

	big = (big + ((1u << (drop - 1)) - 1) + ((big >> drop) & 1)) >> drop;
	return SELECT(m, small, big);
}

INL vu32 min32(vu32 x, int32_t max)
{
	vu32 m = (vu32)((vi32)x > max);

	return SELECT(m, (vu32){0} + (uint32_t)max, x);
}

INL void f32_unpack(vu8 v, vf32 x[1])
{
	x[0] = (vf32)v;
}
INL vu8 f32_pack(const vf32 x[1])
{
	return (vu8)canon32(x[0]);
}

INL void bf16_unpack(vu8 v, vf32 x[2])
{
	vu32 w[2];

	widen16_high((vu16)v, w);
	x[0] = (vf32)w[0];
	x[1] = (vf32)w[1];
}
INL vu8 bf16_pack(const vf32 x[2])
{
	vu32 w[2];

	UNROLL
	for (int k = 0; k < 2; k++) {
		vu32 u = (vu32)x[k], m = nan32(x[k]);
		vu32 r = u + 0x7fff + ((u >> 16) & 1);

		w[k] = SELECT(m, 0x7fff0000u, r);
	}
	return (vu8)narrow32_high(w);
}

#if VB == 64
INL void f16_unpack(vu8 v, vf32 x[2])
{
	x[0] = (vf32)_mm512_cvtph_ps(_mm512_castsi512_si256((MI)v));
	x[1] = (vf32)_mm512_cvtph_ps(_mm512_extracti64x4_epi64((MI)v, 1));
}
INL vu8 f16_pack(const vf32 x[2])
{
	__m256i lo = _mm512_cvtps_ph((__m512)canon32(x[0]), _MM_FROUND_TO_NEAREST_INT);
	__m256i hi = _mm512_cvtps_ph((__m512)canon32(x[1]), _MM_FROUND_TO_NEAREST_INT);

	return (vu8)_mm512_inserti64x4(_mm512_castsi256_si512(lo), hi, 1);
}
#elif VB == 32
INL void f16_unpack(vu8 v, vf32 x[2])
{
	x[0] = (vf32)_mm256_cvtph_ps(_mm256_castsi256_si128((MI)v));
	x[1] = (vf32)_mm256_cvtph_ps(_mm256_extracti128_si256((MI)v, 1));
}
INL vu8 f16_pack(const vf32 x[2])
{
	__m128i lo = _mm256_cvtps_ph((__m256)canon32(x[0]), _MM_FROUND_TO_NEAREST_INT);
	__m128i hi = _mm256_cvtps_ph((__m256)canon32(x[1]), _MM_FROUND_TO_NEAREST_INT);

	return (vu8)_mm256_inserti128_si256(_mm256_castsi128_si256(lo), hi, 1);
}
#else
INL void f16_unpack(vu8 v, vf32 x[2])
{
	vu32 w[2];

	widen16((vu16)v, w);
	UNROLL
	for (int k = 0; k < 2; k++)
		x[k] = widen_format(w[k] & 0x7fff, 13, 112, 0x7c00, (w[k] & 0x8000) << 16);
}
INL vu8 f16_pack(const vf32 x[2])
{
	vu32 w[2];

	UNROLL
	for (int k = 0; k < 2; k++) {
		vu32 m = nan32(x[k]), h = min32(narrow_format(x[k], 10, -14), 0x7c00);

		w[k] = SELECT(m, 0x7fffu, h | (((vu32)x[k] & SIGN) >> 16));
	}
	return (vu8)narrow32(w);
}
#endif

INL void fp8_widen(vu8 v, vu32 w[4])
{
	vu16 h[2];

	widen8(v, h);
	widen16(h[0], w);
	widen16(h[1], w + 2);
}

INL vu8 fp8_pack(const vf32 x[4], int man, int emin, int32_t max)
{
	vu32 w[4];
	vu16 h[2];

	UNROLL
	for (int k = 0; k < 4; k++) {
		vu32 m = nan32(x[k]), r = min32(narrow_format(x[k], man, emin), max);

		w[k] = SELECT(m, 0x7fu, r | (((vu32)x[k] & SIGN) >> 24));
	}
	h[0] = narrow32(w);
	h[1] = narrow32(w + 2);
	return narrow16(h);
}

INL void e4m3_unpack(vu8 v, vf32 x[4])
{
	vu32 w[4];

	fp8_widen(v, w);
	UNROLL
	for (int k = 0; k < 4; k++)
		x[k] = widen_format(w[k] & 0x7f, 20, 120, 0x7f, (w[k] & 0x80) << 24);
}
INL vu8 e4m3_pack(const vf32 x[4])
{
	return fp8_pack(x, 3, -6, 0x7e);
}

INL void e5m2_unpack(vu8 v, vf32 x[4])
{
	vu32 w[4];

	fp8_widen(v, w);
	UNROLL
	for (int k = 0; k < 4; k++)
		x[k] = widen_format(w[k] & 0x7f, 21, 112, 0x7c, (w[k] & 0x80) << 24);
}
INL vu8 e5m2_pack(const vf32 x[4])
{
	return fp8_pack(x, 2, -14, 0x7b);
}

INL void f64_unpack(vu8 v, vf64 x[1])
{
	x[0] = (vf64)v;
}
INL vu8 f64_pack(const vf64 x[1])
{
	return (vu8)canon64(x[0]);
}

/* ---- operations ----------------------------------------------------------------------------- */

/*
 * Equal operands differ at most in the sign of zero: AND gives the greater, OR the smaller zero. A
 * NaN in x loses every comparison; a NaN in y is tested for.
 */
#define FLOAT_OP(F, U)                                                                             \
	INL v##F F##_max(v##F x, v##F y)                                                           \
	{                                                                                          \
		v##U take = (v##U)(x > y) | (v##U)(y != y), eq = (v##U)(x == y);                   \
		return (v##F)(SELECT(take, (v##U)x, (v##U)y) & ((v##U)x | ~eq));                   \
	}                                                                                          \
	INL v##F F##_min(v##F x, v##F y)                                                           \
	{                                                                                          \
		v##U take = (v##U)(x < y) | (v##U)(y != y), eq = (v##U)(x == y);                   \
		return (v##F)(SELECT(take, (v##U)x, (v##U)y) | ((v##U)x & eq));                    \
	}                                                                                          \
	INL v##F F##_op(enum dfk_loop op, v##F x, v##F y)                                          \
	{                                                                                          \
		switch (op) {                                                                      \
		case DFK_LOOP_PROD:                                                                \
			return x * y;                                                              \
		case DFK_LOOP_MAX:                                                                 \
			return F##_max(x, y);                                                      \
		case DFK_LOOP_MIN:                                                                 \
			return F##_min(x, y);                                                      \
		default:                                                                           \
			return x + y;                                                              \
		}                                                                                  \
	}
FLOAT_OP(f32, u32)
FLOAT_OP(f64, u64)

#define INT_OP(U, C)                                                                               \
	INL v##U C##_op(enum dfk_loop op, v##U x, v##U y)                                          \
	{                                                                                          \
		v##U m = (v##U)((v##C)x > (v##C)y);                                                \
		switch (op) {                                                                      \
		case DFK_LOOP_PROD:                                                                \
			return x * y;                                                              \
		case DFK_LOOP_MAX:                                                                 \
			return SELECT(m, x, y);                                                    \
		case DFK_LOOP_MIN:                                                                 \
			return SELECT(m, y, x);                                                    \
		default:                                                                           \
			return x + y;                                                              \
		}                                                                                  \
	}
INT_OP(u8, i8)
INT_OP(u8, u8)
INT_OP(u32, i32)
INT_OP(u32, u32)
INT_OP(u64, i64)
INT_OP(u64, u64)

/*
 * Division of magnitudes. Up to 32 bits, the upper half of x * ceil(2^64 / d) is exactly floor(x /
 * d), for every d > 1 of 32 bits; a greater d gives 0, which is right.
 */
struct divisor {
	uint64_t d, magic;
};

INL struct divisor divisor_of(uint64_t d)
{
	struct divisor v = {d, d > 1 ? ~0ull / d + 1 : 0};

	return v;
}

INL uint64_t divide(uint64_t x, const struct divisor *v, int bits)
{
	if (bits == 64)
		return x / v->d;
	return v->d >> 32 ? 0 : (uint64_t)((unsigned __int128)x * v->magic >> 64);
}

#define INT_DIV(U, S, ct, sign, bits)                                                              \
	INL v##U S##_div(v##U x, const struct divisor *v)                                          \
	{                                                                                          \
		ct##_t e[VB / sizeof(ct##_t)];                                                     \
		__builtin_memcpy(e, &x, VB);                                                       \
		for (size_t i = 0; i < VB / sizeof(ct##_t); i++) {                                 \
			ct##_t neg = (sign) ? (ct##_t)(0 - (e[i] >> (bits - 1))) : 0;              \
			ct##_t q = (ct##_t)divide((ct##_t)((e[i] ^ neg) - neg), v, bits);          \
			e[i] = (ct##_t)((q ^ neg) - neg);                                          \
		}                                                                                  \
		__builtin_memcpy(&x, e, VB);                                                       \
		return x;                                                                          \
	}
INT_DIV(u8, i8, uint8, 1, 8)
INT_DIV(u8, u8, uint8, 0, 8)
INT_DIV(u32, i32, uint32, 1, 32)
INT_DIV(u32, u32, uint32, 0, 32)
INT_DIV(u64, i64, uint64, 1, 64)
INT_DIV(u64, u64, uint64, 0, 64)

/* ---- loops ---------------------------------------------------------------------------------- */

/* A vector full of the scalar. */
INL vu8 scalar_bits(uint64_t arg, size_t bytes)
{
	uint8_t e[VB];

	for (size_t i = 0; i < VB; i += bytes)
		__builtin_memcpy(e + i, &arg, bytes);
	return load(e);
}

#define LOOP_FNS(T)                                                                                \
	static void T##_sum(const struct dfk_span *s)                                              \
	{                                                                                          \
		T##_loop(s, DFK_LOOP_SUM);                                                         \
	}                                                                                          \
	static void T##_prod(const struct dfk_span *s)                                             \
	{                                                                                          \
		T##_loop(s, DFK_LOOP_PROD);                                                        \
	}                                                                                          \
	static void T##_maximum(const struct dfk_span *s)                                          \
	{                                                                                          \
		T##_loop(s, DFK_LOOP_MAX);                                                         \
	}                                                                                          \
	static void T##_minimum(const struct dfk_span *s)                                          \
	{                                                                                          \
		T##_loop(s, DFK_LOOP_MIN);                                                         \
	}

#define SPAN_LOCALS                                                                                \
	uint8_t *d = s->d, *d2 = s->d2;                                                            \
	const uint8_t *a = s->a, *b = s->b;                                                        \
	size_t bytes = s->bytes

/*
 * T is computed in N vectors of F per vector of T. Every operation is followed by a rounding to T.
 */
#define FLOAT_LOOPS(T, F, C, N)                                                                    \
	INL void T##_loop(const struct dfk_span *s, enum dfk_loop op)                              \
	{                                                                                          \
		SPAN_LOCALS;                                                                       \
		for (size_t i = 0; i < bytes; i += VB) {                                           \
			v##F x[N], y[N];                                                           \
			T##_unpack(load(a + i), x);                                                \
			T##_unpack(load(b + i), y);                                                \
			UNROLL                                                                     \
			for (int k = 0; k < N; k++)                                                \
				x[k] = F##_op(op, x[k], y[k]);                                     \
			store(d, d2, i, T##_pack(x));                                              \
		}                                                                                  \
	}                                                                                          \
	LOOP_FNS(T)                                                                                \
	INL vu8 T##_mul(vu8 v, const v##F *by)                                                     \
	{                                                                                          \
		v##F x[N];                                                                         \
		T##_unpack(v, x);                                                                  \
		UNROLL                                                                             \
		for (int k = 0; k < N; k++)                                                        \
			x[k] = x[k] * by[k];                                                       \
		return T##_pack(x);                                                                \
	}                                                                                          \
	static void T##_mul_div(const struct dfk_span *s)                                          \
	{                                                                                          \
		SPAN_LOCALS;                                                                       \
		v##F by[N], over = (v##F){0} + (C)s->arg;                                          \
		T##_unpack(scalar_bits(s->arg, sizeof(C) / N), by);                                \
		for (size_t i = 0; i < bytes; i += VB) {                                           \
			vu8 v = load(a + i);                                                       \
			v##F x[N], y[N];                                                           \
			if (s->pre_a)                                                              \
				v = T##_mul(v, by);                                                \
			if (b) {                                                                   \
				vu8 w = load(b + i);                                               \
				if (s->pre_b)                                                      \
					w = T##_mul(w, by);                                        \
				T##_unpack(v, x);                                                  \
				T##_unpack(w, y);                                                  \
				UNROLL                                                             \
				for (int k = 0; k < N; k++)                                        \
					x[k] = x[k] + y[k];                                        \
				v = T##_pack(x);                                                   \
			}                                                                          \
			if (s->post) {                                                             \
				T##_unpack(v, x);                                                  \
				UNROLL                                                             \
				for (int k = 0; k < N; k++)                                        \
					x[k] = x[k] / over;                                        \
				v = T##_pack(x);                                                   \
			}                                                                          \
			store(d, d2, i, v);                                                        \
		}                                                                                  \
	}
FLOAT_LOOPS(f16, f32, float, 2)
FLOAT_LOOPS(f32, f32, float, 1)
FLOAT_LOOPS(f64, f64, double, 1)
FLOAT_LOOPS(bf16, f32, float, 2)
FLOAT_LOOPS(e4m3, f32, float, 4)
FLOAT_LOOPS(e5m2, f32, float, 4)

#define INT_LOOPS(T, U)                                                                            \
	INL void T##_loop(const struct dfk_span *s, enum dfk_loop op)                              \
	{                                                                                          \
		SPAN_LOCALS;                                                                       \
		for (size_t i = 0; i < bytes; i += VB)                                             \
			store(d, d2, i, (vu8)T##_op(op, (v##U)load(a + i), (v##U)load(b + i)));    \
	}                                                                                          \
	LOOP_FNS(T)                                                                                \
	static void T##_mul_div(const struct dfk_span *s)                                          \
	{                                                                                          \
		SPAN_LOCALS;                                                                       \
		v##U by = (v##U)scalar_bits(s->arg, sizeof(by[0]));                                \
		struct divisor over = divisor_of(s->arg);                                          \
		for (size_t i = 0; i < bytes; i += VB) {                                           \
			v##U x = (v##U)load(a + i);                                                \
			if (s->pre_a)                                                              \
				x = x * by;                                                        \
			if (b) {                                                                   \
				v##U y = (v##U)load(b + i);                                        \
				x = x + (s->pre_b ? y * by : y);                                   \
			}                                                                          \
			if (s->post)                                                               \
				x = T##_div(x, &over);                                             \
			store(d, d2, i, (vu8)x);                                                   \
		}                                                                                  \
	}
INT_LOOPS(i8, u8)
INT_LOOPS(u8, u8)
INT_LOOPS(i32, u32)
INT_LOOPS(u32, u32)
INT_LOOPS(i64, u64)
INT_LOOPS(u64, u64)

/* In the order of enum dfk_loop. */
#define ROW(T)                                                                                     \
	{                                                                                          \
		T##_sum, T##_prod, T##_maximum, T##_minimum, T##_mul_div                           \
	}
const struct dfk_loops LOOPS = {
	.name = LOOPS_NAME,
	.vec_bytes = VB,
	.fn =
		{
			[DF_INT8] = ROW(i8),
			[DF_UINT8] = ROW(u8),
			[DF_INT32] = ROW(i32),
			[DF_UINT32] = ROW(u32),
			[DF_INT64] = ROW(i64),
			[DF_UINT64] = ROW(u64),
			[DF_FLOAT16] = ROW(f16),
			[DF_FLOAT32] = ROW(f32),
			[DF_FLOAT64] = ROW(f64),
			[DF_BFLOAT16] = ROW(bf16),
			[DF_FLOAT8E4M3] = ROW(e4m3),
			[DF_FLOAT8E5M2] = ROW(e5m2),
		},
};
