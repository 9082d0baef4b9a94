/*
 * Description: arithmetic of the PTX emulator against the CPU's, also with extreme operands;
 * numbers of 16 and 8 bits.
 */
#include <math.h>
#include "runtime/base/rng.h"
#include "tests/cuda/ptx/int.h"
#include "tests/cuda/ptx_test.h"

/*
 * Each of 64 threads computes d = op(a, b, c) on a row of its own. want() returns the expected
 * result.
 */
struct row {
	uint64_t a, b, c, d;
};
static const char *const fetch_row = "mul.wide.u32 %rd2, %r1, 32;\nadd.s64 %rd3, %rd1, %rd2;\n";

static uint64_t bits_f(float x)
{
	uint32_t u;

	memcpy(&u, &x, 4);
	return u;
}
static float f_bits(uint64_t v)
{
	uint32_t u = (uint32_t)v;
	float x;

	memcpy(&x, &u, 4);
	return x;
}

/* Returns the bits; all NaNs have one form. */
static uint64_t number(float x)
{
	return isnan(x) ? 0x7fffffff : bits_f(x);
}

/* Rounds with the compiler's _Float16, which the emulator does not use. */
static uint16_t own_half(float x)
{
	_Float16 h = (_Float16)x;
	uint16_t u;

	memcpy(&u, &h, 2);
	return isnan(x) ? 0x7fff : u;
}
static uint16_t add_half(uint16_t a, uint16_t b)
{
	_Float16 x, y;

	memcpy(&x, &a, 2);
	memcpy(&y, &b, 2);
	return own_half((float)(_Float16)(x + y));
}

#define OP(name, ...)                                                                              \
	static uint64_t name(uint64_t a, uint64_t b, uint64_t c)                                   \
	{                                                                                          \
		(void)a, (void)b, (void)c;                                                         \
		return (uint64_t)(__VA_ARGS__);                                                    \
	}

OP(add32, (uint32_t)(a + b))
OP(sub64, a - b)
OP(mul32, (uint32_t)(a *b))
OP(wide32, (uint64_t)(uint32_t)a *(uint32_t)b)
OP(wides32, (int64_t)(int32_t)a *(int32_t)b)
OP(hi64, (unsigned __int128)a *b >> 64)
OP(mad32, (uint32_t)(a *b + c))
OP(div32, (uint32_t)b ? (uint32_t)a / (uint32_t)b : UINT32_MAX)
OP(divs64, !b ? UINT64_MAX : b == UINT64_MAX ? 0 - a : (uint64_t)((int64_t)a / (int64_t)b))
OP(rem64, b ? a % b : a)
OP(mins32, (uint32_t)((int32_t)a < (int32_t)b ? a : b))
OP(maxu64, a > b ? a : b)
OP(shl32, (uint32_t)b > 31 ? 0 : (uint32_t)a << (uint32_t)b)
OP(shrs32, (uint32_t)((int32_t)a >> ((uint32_t)b > 31 ? 31 : (uint32_t)b)))
OP(shr64, (uint32_t)b > 63 ? 0 : a >> (uint32_t)b)
OP(xor64, a ^ b)
OP(not32, (uint32_t)~a)
OP(popc64, __builtin_popcountll(a))
OP(clz32, (uint32_t)a ? __builtin_clz((uint32_t)a) : 32)
OP(lt, (int32_t)a < (int32_t)b ? 7 : 9)
OP(cvts8, (uint32_t)(int32_t)(int8_t)a)
OP(addf, number(f_bits(a) + f_bits(b)))
OP(fma_f32, number(fmaf(f_bits(a), f_bits(b), f_bits(c))))
OP(nan_f32, isnan(f_bits(a)) || isnan(f_bits(b)) ? 7 : 9)
OP(from_u64, bits_f((float)a))
OP(addh, add_half((uint16_t)a, (uint16_t)b) |
		 (uint32_t)add_half((uint16_t)(a >> 16), (uint16_t)(b >> 16)) << 16)

static uint64_t to_int(uint64_t a, uint64_t b, uint64_t c)
{
	float x = truncf(f_bits(a));

	(void)b, (void)c;
	if (isnan(x))
		return 0;
	return (uint32_t)(x <= -2147483648.0f  ? INT32_MIN
			  : x >= 2147483648.0f ? INT32_MAX
					       : (int32_t)x);
}

static uint64_t prmt(uint64_t a, uint64_t b, uint64_t c)
{
	uint64_t v = (uint32_t)a | b << 32, r = 0;

	for (int i = 0; i < 4; i++) {
		uint64_t s = c >> 4 * i & 15, byte = v >> 8 * (s & 7) & 255;

		r |= (s & 8 ? (byte & 128 ? 255 : 0) : byte) << 8 * i;
	}
	return r;
}

static const struct {
	const char *text;
	uint64_t (*want)(uint64_t, uint64_t, uint64_t);
} ops[] = {
	{"add.s32 %r5, %r2, %r3; cvt.u64.u32 %rd9, %r5;", add32},
	{"sub.s64 %rd9, %rd4, %rd5;", sub64},
	{"mul.lo.s32 %r5, %r2, %r3; cvt.u64.u32 %rd9, %r5;", mul32},
	{"mul.wide.u32 %rd9, %r2, %r3;", wide32},
	{"mul.wide.s32 %rd9, %r2, %r3;", wides32},
	{"mul.hi.u64 %rd9, %rd4, %rd5;", hi64},
	{"mad.lo.s32 %r5, %r2, %r3, %r4; cvt.u64.u32 %rd9, %r5;", mad32},
	{"div.u32 %r5, %r2, %r3; cvt.u64.u32 %rd9, %r5;", div32},
	{"div.s64 %rd9, %rd4, %rd5;", divs64},
	{"rem.u64 %rd9, %rd4, %rd5;", rem64},
	{"min.s32 %r5, %r2, %r3; cvt.u64.u32 %rd9, %r5;", mins32},
	{"max.u64 %rd9, %rd4, %rd5;", maxu64},
	{"shl.b32 %r5, %r2, %r3; cvt.u64.u32 %rd9, %r5;", shl32},
	{"shr.s32 %r5, %r2, %r3; cvt.u64.u32 %rd9, %r5;", shrs32},
	{"shr.u64 %rd9, %rd4, %r3;", shr64},
	{"xor.b64 %rd9, %rd4, %rd5;", xor64},
	{"not.b32 %r5, %r2; cvt.u64.u32 %rd9, %r5;", not32},
	{"popc.b64 %r5, %rd4; cvt.u64.u32 %rd9, %r5;", popc64},
	{"clz.b32 %r5, %r2; cvt.u64.u32 %rd9, %r5;", clz32},
	{"setp.lt.s32 %p1, %r2, %r3; selp.b64 %rd9, 7, 9, %p1;", lt},
	{"cvt.s32.s8 %r5, %r2; cvt.u64.u32 %rd9, %r5;", cvts8},
	{"prmt.b32 %r5, %r2, %r3, %r4; cvt.u64.u32 %rd9, %r5;", prmt},
	{"mov.b32 %f1, %r2; mov.b32 %f2, %r3; add.rn.f32 %f3, %f1, %f2; mov.b32 %r5, %f3; "
	 "cvt.u64.u32 %rd9, %r5;",
	 addf},
	{"mov.b32 %f1, %r2; mov.b32 %f2, %r3; mov.b32 %f4, %r4; fma.rn.f32 %f3, %f1, %f2, %f4; "
	 "mov.b32 %r5, %f3;cvt.u64.u32 %rd9, %r5;",
	 fma_f32},
	{"mov.b32 %f1, %r2; mov.b32 %f2, %r3; setp.nan.f32 %p1, %f1, %f2; selp.u64 %rd9, 7, 9, "
	 "%p1;",
	 nan_f32},
	{"mov.b32 %f1, %r2; cvt.rzi.s32.f32 %r5, %f1; cvt.u64.u32 %rd9, %r5;", to_int},
	{"cvt.rn.f32.u64 %f1, %rd4; mov.b32 %r5, %f1; cvt.u64.u32 %rd9, %r5;", from_u64},
	{"add.rn.f16x2 %r5, %r2, %r3; cvt.u64.u32 %rd9, %r5;", addh},
};

/* Returns a random operand, often an extreme one. */
static uint64_t operand_of(struct df_rng *r)
{
	uint64_t v = df_rng_u64(r);

	switch (df_rng_u64(r) % 6) {
	case 0:
		return v % 70;
	case 1:
		return 0 - v % 3;
	case 2:
		return 1ull << v % 64;
	case 3:
		return (v & ~0x7f800000ull) | (0x7f800000ull - (v >> 40 & 1) * 0x800000);
	default:
		return v;
	}
}

START_TEST(arithmetic)
{
	struct row rows[64];
	struct df_rng r;
	char body[1024];
	int round, i;

	df_rng_init(&r, df_test_seed() + (uint64_t)_i);
	snprintf(
		body, sizeof(body),
		"%sld.global.u64 %%rd4, [%%rd3];\nld.global.u64 %%rd5, [%%rd3+8];\n"
		"ld.global.u64 %%rd6, [%%rd3+16];\n"
		"cvt.u32.u64 %%r2, %%rd4;\ncvt.u32.u64 %%r3, %%rd5;\ncvt.u32.u64 %%r4, %%rd6;\n%s\n"
		"st.global.u64 [%%rd3+24], %%rd9;",
		fetch_row, ops[_i].text);
	for (round = 0; round < 40; round++) {
		for (i = 0; i < 64; i++)
			rows[i] = (struct row){operand_of(&r), operand_of(&r), operand_of(&r), 0};
		FINE("", body, rows, 1, 64);
		for (i = 0; i < 64; i++)
			ck_assert_msg(
				rows[i].d == ops[_i].want(rows[i].a, rows[i].b, rows[i].c),
				"%s of %#llx, %#llx, %#llx: %#llx, not %#llx", ops[_i].text,
				(unsigned long long)rows[i].a, (unsigned long long)rows[i].b,
				(unsigned long long)rows[i].c, (unsigned long long)rows[i].d,
				(unsigned long long)ops[_i].want(rows[i].a, rows[i].b, rows[i].c));
	}
}
END_TEST

START_TEST(small_numbers)
{
	struct df_rng r;
	uint32_t i;

	df_rng_init(&r, df_test_seed());
	/* Converts every number to a float and back. */
	for (i = 0; i < 65536; i++) {
		_Float16 h;
		uint16_t u = (uint16_t)i;
		float x = half_of(u);

		memcpy(&h, &u, 2);
		ck_assert(isnan(x) ? h != h : x == (float)h);
		ck_assert_uint_eq(half_to(x), isnan(x) ? 0x7fff : u);
		x = bf16_of(u);
		ck_assert_uint_eq(bf16_to(x), isnan(x) ? 0x7fff : u);
	}
	for (i = 0; i < 256; i++)
		for (int e = 4; e <= 5; e++) {
			float x = fp8_of((uint8_t)i, e);

			if (isfinite(x))
				ck_assert_uint_eq(fp8_to(x, e), i);
		}
	ck_assert(fp8_of(0x7e, 4) == 448 && fp8_of(0x7b, 5) == 57344 && fp8_of(1, 4) == 0x1p-9f &&
		  fp8_of(1, 5) == 0x1p-16f);
	ck_assert_uint_eq(fp8_to(1e9f, 4), 0x7e);
	ck_assert_uint_eq(fp8_to(-1e9f, 5), 0xfb);
	/* A value half-way between two numbers is rounded to the even one. */
	for (i = 0; i < 0x7e; i++) {
		float mid = (fp8_of((uint8_t)i, 4) + fp8_of((uint8_t)(i + 1), 4)) / 2;

		ck_assert_uint_eq(fp8_to(mid, 4), i & 1 ? i + 1 : i);
		ck_assert_uint_eq(fp8_to(nextafterf(mid, 0), 4), i);
		ck_assert_uint_eq(fp8_to(nextafterf(mid, 1e9f), 4), i + 1);
	}
	for (i = 0; i < 200000; i++) {
		uint16_t a = (uint16_t)df_rng_u64(&r), b = (uint16_t)df_rng_u64(&r),
			 c = (uint16_t)df_rng_u64(&r);
		float x = f_bits(df_rng_u64(&r));
		long double exact;

		ck_assert_msg(half_to(x) == own_half(x), "%a", (double)x);
		/*
		 * `exact` has 64 bits of digits, which holds every a * b + c of halves exactly. The
		 * conversion to _Float16 rounds once.
		 */
		exact = (long double)half_of(a) * half_of(b) + half_of(c);
		if (isfinite((double)exact)) {
			_Float16 h = (_Float16)exact;
			uint16_t u;

			memcpy(&u, &h, 2);
			ck_assert_msg(half_fma(a, b, c) == u, "fma of %#x, %#x, %#x: %#x, not %#x",
				      a, b, c, half_fma(a, b, c), u);
		}
	}
	/*
	 * Sums slightly above a half-way point: rounding in two steps would give the even number.
	 */
	ck_assert_uint_eq(bf16_fma(0x3f80, 0x4380, 0x3f80), 0x4380);
	ck_assert_uint_eq(bf16_fma(bf16_to(257), bf16_to(1), bf16_to(0)), bf16_to(257));
	ck_assert_uint_eq(bf16_fma(bf16_to(129), bf16_to(129), bf16_to(0x1p-100f)),
			  bf16_to(nextafterf(16641, 1e9f)));
}
END_TEST

int main(void)
{
	return DF_TESTS("ptx_alu", {arithmetic, sizeof(ops) / sizeof(*ops)}, {small_numbers});
}
