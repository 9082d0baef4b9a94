/*
 * Description: the PTX emulator itself (tests/cuda/ptx): its arithmetic against the host's, threads that part and meet again,
 * barriers, votes and shuffles, and each fault it has to report: found where it is, and not where it is not.
 */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/base/rng.h"
#include "tests/cuda/ptx/int.h"
#include "tests/lib/test.h"

static char faults[4096];
static int nr_faults;

static void fault(void *arg, const char *text)
{
	(void)arg;
	nr_faults++;
	snprintf(faults + strlen(faults), sizeof(faults) - strlen(faults), "%s\n", text);
}

/* The kernel `k` of one pointer: body, with %rd1 the pointer, %r1 the thread. */
static struct ptx_module *load(const char *decls, const char *body)
{
	static char text[16384];

	snprintf(
		text, sizeof(text),
		".version 8.0\n.target sm_80\n.address_size 64\n"
		".visible .entry k(.param .u64 k_p)\n{\n"
		".reg .pred %%p<20>;\n.reg .b16 %%rs<20>;\n.reg .b32 %%r<40>;\n.reg .b64 %%rd<40>;\n"
		".reg .f32 %%f<20>;\n.reg .f64 %%fd<20>;\n%s\n"
		"ld.param.u64 %%rd1, [k_p];\nmov.u32 %%r1, %%tid.x;\n%s\nret;\n}\n",
		decls, body);
	return ptx_load(text, strlen(text), "t_ptx");
}

/* On blocks of so many threads; the number of faults. */
static int run(const char *decls, const char *body, void *arg, unsigned int blocks,
	       unsigned int threads)
{
	struct ptx_module *m = load(decls, body);
	struct ptx_launch l = {.grid = {blocks, 1, 1},
			       .block = {threads, 1, 1},
			       .params = &arg,
			       .seed = df_test_seed(),
			       .fault = fault};
	int r;

	ck_assert_msg(m != NULL, "not read: %s", body);
	l.kernel = ptx_kernel(m, "k");
	faults[0] = 0;
	nr_faults = 0;
	r = ptx_run(&l);
	ck_assert_int_eq(r, nr_faults);
	ptx_unload(m);
	return r;
}

#define FINE(decls, body, arg, blocks, threads)                                                    \
	ck_assert_msg(run(decls, body, arg, blocks, threads) == 0, "%s", faults)

/* ---- arithmetic ------------------------------------------------------------------------------------- */

/* d = op(a, b, c) by each of 64 threads on its own row of four words; want() says what must come. */
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

/* What is no number has one form. */
static uint64_t number(float x)
{
	return isnan(x) ? 0x7fffffff : bits_f(x);
}

/* By the processor's own half, which is not how the emulator does it. */
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
	{"mov.b32 %f1, %r2; mov.b32 %f2, %r3; add.rn.f32 %f3, %f1, %f2; mov.b32 %r5, %f3; cvt.u64.u32 %rd9, %r5;",
	 addf},
	{"mov.b32 %f1, %r2; mov.b32 %f2, %r3; mov.b32 %f4, %r4; fma.rn.f32 %f3, %f1, %f2, %f4; mov.b32 %r5, %f3;"
	 "cvt.u64.u32 %rd9, %r5;",
	 fma_f32},
	{"mov.b32 %f1, %r2; mov.b32 %f2, %r3; setp.nan.f32 %p1, %f1, %f2; selp.u64 %rd9, 7, 9, %p1;",
	 nan_f32},
	{"mov.b32 %f1, %r2; cvt.rzi.s32.f32 %r5, %f1; cvt.u64.u32 %rd9, %r5;", to_int},
	{"cvt.rn.f32.u64 %f1, %rd4; mov.b32 %r5, %f1; cvt.u64.u32 %rd9, %r5;", from_u64},
	{"add.rn.f16x2 %r5, %r2, %r3; cvt.u64.u32 %rd9, %r5;", addh},
};

/* Also where operations have corners. */
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
		"%sld.global.u64 %%rd4, [%%rd3];\nld.global.u64 %%rd5, [%%rd3+8];\nld.global.u64 %%rd6, [%%rd3+16];\n"
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
	/* All of them there and back. */
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
	/* Half-way between two of them: the even one. */
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
		/* Of halves all sums of products are exact in 64 bits of digits, and rounded once by the processor. */
		exact = (long double)half_of(a) * half_of(b) + half_of(c);
		if (isfinite((double)exact)) {
			_Float16 h = (_Float16)exact;
			uint16_t u;

			memcpy(&u, &h, 2);
			ck_assert_msg(half_fma(a, b, c) == u, "fma of %#x, %#x, %#x: %#x, not %#x",
				      a, b, c, half_fma(a, b, c), u);
		}
	}
	/* A sum that is half-way but for what is far below: rounded in two steps it would go to the even one. */
	ck_assert_uint_eq(bf16_fma(0x3f80, 0x4380, 0x3f80), 0x4380);
	ck_assert_uint_eq(bf16_fma(bf16_to(257), bf16_to(1), bf16_to(0)), bf16_to(257));
	ck_assert_uint_eq(bf16_fma(bf16_to(129), bf16_to(129), bf16_to(0x1p-100f)),
			  bf16_to(nextafterf(16641, 1e9f)));
}
END_TEST

/* ---- threads ---------------------------------------------------------------------------------------- */

START_TEST(divergence)
{
	uint32_t out[96];
	uint32_t i;

	memset(out, 0, sizeof(out));
	/* Each thread goes round as often as its number says; odd ones another way; all meet for the end. */
	FINE("",
	     "mul.wide.u32 %rd2, %r1, 4;\nadd.s64 %rd3, %rd1, %rd2;\nmov.u32 %r2, 0;\nmov.u32 %r3, 0;\n"
	     "$L_loop:\nsetp.ge.u32 %p1, %r2, %r1;\n@%p1 bra $L_end;\nand.b32 %r4, %r1, 1;\nsetp.eq.s32 %p2, %r4, 1;\n"
	     "@%p2 bra $L_odd;\nadd.s32 %r3, %r3, 2;\nbra.uni $L_next;\n$L_odd:\nadd.s32 %r3, %r3, 3;\n$L_next:\n"
	     "add.s32 %r2, %r2, 1;\nbra.uni $L_loop;\n$L_end:\n"
	     "st.global.u32 [%rd3], %r3;",
	     out, 1, 96);
	for (i = 0; i < 96; i++)
		ck_assert_uint_eq(out[i], i * (i & 1 ? 3 : 2));
}
END_TEST

START_TEST(waits_for_its_own_warp)
{
	uint32_t flag = 0;

	/* Thread 0 waits, at the lower place in the code, for what thread 1 writes. */
	FINE("",
	     "setp.ne.s32 %p1, %r1, 0;\n@%p1 bra $L_other;\n$L_wait:\nld.relaxed.sys.b32 %r2, [%rd1];\n"
	     "setp.eq.s32 %p2, %r2, 0;\n@%p2 bra $L_wait;\nbra.uni $L_end;\n$L_other:\nsetp.ne.s32 %p3, %r1, 1;\n"
	     "@%p3 bra $L_end;\nst.relaxed.sys.b32 [%rd1], 1;\n$L_end:",
	     &flag, 1, 32);
	ck_assert_uint_eq(flag, 1);
}
END_TEST

START_TEST(barriers)
{
	uint32_t out[256], i;

	/* Through shared memory, reversed; then with a value for all. */
	FINE(".shared .align 4 .b8 box[1024];",
	     "mul.wide.u32 %rd2, %r1, 4;\nadd.s64 %rd3, %rd1, %rd2;\nmov.u32 %r2, box;\nshl.b32 %r3, %r1, 2;\n"
	     "add.s32 %r4, %r2, %r3;\nst.shared.u32 [%r4], %r1;\nbar.sync 0;\nsub.s32 %r5, 255, %r1;\nshl.b32 %r6, %r5, 2;\n"
	     "add.s32 %r7, %r2, %r6;\nld.shared.u32 %r8, [%r7];\nsetp.lt.u32 %p1, %r1, 77;\nbar.red.popc.u32 %r9, 0, %p1;\n"
	     "mad.lo.s32 %r8, %r9, 65536, %r8;\nst.global.u32 [%rd3], %r8;",
	     out, 1, 256);
	for (i = 0; i < 256; i++)
		ck_assert_uint_eq(out[i], 77 * 65536 + 255 - i);
}
END_TEST

START_TEST(votes_and_shuffles)
{
	uint32_t out[64], i;

	FINE("",
	     "mul.wide.u32 %rd2, %r1, 4;\nadd.s64 %rd3, %rd1, %rd2;\nsetp.gt.u32 %p1, %r1, 40;\n"
	     "vote.sync.ballot.b32 %r2, %p1, -1;\nshfl.sync.bfly.b32 %r3|%p2, %r1, 1, 31, -1;\npopc.b32 %r4, %r2;\n"
	     "mad.lo.s32 %r5, %r4, 256, %r3;\nst.global.u32 [%rd3], %r5;",
	     out, 1, 64);
	for (i = 0; i < 64; i++)
		ck_assert_uint_eq(out[i], (i < 32 ? 0 : 23) * 256 + (i ^ 1));
}
END_TEST

START_TEST(atomics)
{
	uint64_t sum = 0;

	FINE("", "cvt.u64.u32 %rd2, %r1;\natom.global.add.u64 %rd3, [%rd1], %rd2;", &sum, 5, 100);
	ck_assert_uint_eq(sum, 5 * 4950);
}
END_TEST

/* ---- faults ----------------------------------------------------------------------------------------- */

#define FAULT(decls, body, arg, threads, words)                                                    \
	do {                                                                                       \
		ck_assert_int_ge(run(decls, body, arg, 1, threads), 1);                            \
		ck_assert_msg(strstr(faults, words) != NULL, "no \"%s\" in: %s", words, faults);   \
	} while (0)

static const char *const write_all = "st.shared.u32 [%r4], %r1;";

START_TEST(races)
{
	uint32_t out[64];
	const char *box = ".shared .align 4 .b8 box[1024];";
	char body[1024];
	const char *head =
		"mul.wide.u32 %rd2, %r1, 4;\nadd.s64 %rd3, %rd1, %rd2;\nmov.u32 %r2, box;\nshl.b32 %r3, %r1, 2;\n"
		"add.s32 %r4, %r2, %r3;\nxor.b32 %r5, %r3, 4;\nadd.s32 %r6, %r2, %r5;\n";

	/* What the neighbour wrote, behind a barrier or not. */
	snprintf(body, sizeof(body), "%s%s\nbar.sync 0;\nld.shared.u32 %%r7, [%%r6];", head,
		 write_all);
	FINE(box, body, out, 1, 64);
	snprintf(body, sizeof(body), "%s%s\nld.shared.u32 %%r7, [%%r6];", head, write_all);
	FAULT(box, body, out, 64, "race in shared memory");
	/* Written over what the neighbour may still read. */
	snprintf(body, sizeof(body), "%sld.shared.u32 %%r7, [%%r6];\n%s", head, write_all);
	FAULT(box, body, out, 64, "race in shared memory");
	/* In global memory; with accesses that are meant for it it is none. */
	FAULT("", "st.global.u32 [%rd1], %r1;", out, 64, "race in global memory");
	FINE("", "st.relaxed.sys.b32 [%rd1], %r1;", out, 1, 64);
	/* All may read. */
	FINE("", "ld.global.u32 %r2, [%rd1];", out, 1, 64);
	/* Neighbouring bytes of a word are not the same place. */
	FINE("", "cvt.u64.u32 %rd2, %r1;\nadd.s64 %rd3, %rd1, %rd2;\nst.global.u8 [%rd3], %r1;",
	     out, 1, 64);
}
END_TEST

static uint64_t known_generation;
static int known_none(uintptr_t at, size_t bytes, uintptr_t *from, uintptr_t *to)
{
	(void)at, (void)bytes;
	*from = *to = 0;
	return 0;
}

START_TEST(addresses)
{
	static uint64_t out[8];
	struct ptx_module *m = load("", "st.global.u64 [%rd1], %rd1;");
	void *arg = out;
	struct ptx_launch l = {.kernel = ptx_kernel(m, "k"),
			       .grid = {1, 1, 1},
			       .block = {32, 1, 1},
			       .params = &arg,
			       .known = known_none,
			       .generation = &known_generation,
			       .fault = fault};

	FAULT("", "ld.global.u64 %rd2, [%rd1+4];", out, 32, "not a multiple");
	FAULT("", "ld.v2.u64 {%rd2, %rd3}, [%rd1+8];", (void *)((uintptr_t)out & ~(uintptr_t)15),
	      32, "not a multiple");
	FAULT(".shared .align 8 .b8 box[16];", "mov.u32 %r2, box;\nld.shared.u64 %rd2, [%r2+16];",
	      out, 32, "does not know as shared memory");
	faults[0] = 0;
	nr_faults = 0;
	ck_assert_int_eq(ptx_run(&l), 1);
	ck_assert_msg(strstr(faults, "which the device does not know") != NULL, "%s", faults);
	ck_assert(out[0] == 0);
	ptx_unload(m);
}
END_TEST

START_TEST(missed_barriers)
{
	uint32_t out[64];

	FAULT("",
	      "setp.lt.u32 %p1, %r1, 7;\n@%p1 bra $L_a;\nbar.sync 0;\nbra.uni $L_b;\n$L_a:\nbar.sync 0;\n$L_b:\nmov.u32 %r2, 0;",
	      out, 64, "another barrier");
	FAULT("", "setp.lt.u32 %p1, %r1, 7;\n@%p1 ret;\nbar.sync 0;", out, 64, "have left");
	FAULT("", "setp.lt.u32 %p1, %r1, 7;\n@%p1 bra $L_a;\nbar.warp.sync -1;\n$L_a:\nbar.sync 0;",
	      out, 64, "never come");
}
END_TEST

START_TEST(unknown)
{
	uint32_t out[64];
	struct ptx_module *m;

	/* Only where it is executed. */
	FINE("", "bra.uni $L_a;\nwgmma.fence.sync.aligned;\n$L_a:\nmov.u32 %r2, 0;", out, 1, 32);
	FAULT("", "wgmma.fence.sync.aligned;", out, 32, "does not know");
	FAULT("", "add.rz.f32 %f1, %f2, %f3;", out, 32, "does not know");
	FAULT("", "trap;", out, 32, "traps");
	/* What is no PTX at all is said with its line. */
	m = load("", "mov.u32 %r2, 0");
	ck_assert_ptr_null(m);
	m = load("", "bra $L_nowhere;");
	ck_assert_ptr_null(m);
	m = load("", "setp.ne.s32 %q1, %r1, 0;\n@%q1 ret;");
	ck_assert_ptr_null(m);
	m = ptx_load("GARBAGE", 7, "garbage");
	ck_assert_ptr_null(m);
}
END_TEST

START_TEST(variables)
{
	static const char text[] =
		".version 8.0\n.target sm_80\n.address_size 64\n"
		".global .align 4 .u32 count = 5;\n.const .align 4 .b8 table[8] = {1, 2, 3, 4, 5, 6, 7, 8};\n"
		".visible .entry k(.param .u32 k_a, .param .align 8 .b8 k_b[24], .param .u64 k_c)\n.maxntid 64, 2, 1\n{\n"
		".reg .pred %p<2>;\n.reg .b32 %r<9>;\n.reg .b64 %rd<9>;\n.local .align 8 .b8 own[16];\n"
		"ld.param.u64 %rd1, [k_b+8];\nld.param.u32 %r1, [k_a];\nmov.u32 %r2, %tid.x;\n"
		"mov.u64 %rd2, own;\nst.local.u32 [%rd2], %r2;\nld.const.u8 %r3, [table+3];\n"
		"ld.global.u32 %r4, [count];\nld.local.u32 %r5, [%rd2];\nsub.s32 %r5, %r5, %r2;\n"
		"add.s32 %r6, %r1, %r3;\nadd.s32 %r6, %r6, %r4;\nadd.s32 %r6, %r6, %r5;\n"
		"setp.ne.s32 %p1, %r2, 0;\n@%p1 ret;\nst.global.u32 [%rd1], %r6;\nret;\n}\n";
	struct ptx_module *m = ptx_load(text, sizeof(text) - 1, "variables");
	const struct ptx_kernel *k;
	uint32_t out = 0;
	uint8_t params[64] = {0};
	uint64_t where = (uint64_t)(uintptr_t)&out;
	size_t at, bytes;
	struct ptx_launch l = {
		.grid = {1, 1, 1}, .block = {64, 1, 1}, .params = params, .fault = fault};

	ck_assert_ptr_nonnull(m);
	k = ptx_kernel(m, "k");
	ck_assert_ptr_null(ptx_kernel(m, "other"));
	ck_assert_uint_eq(ptx_nr_params(k), 3);
	ptx_param(k, 1, &at, &bytes);
	ck_assert_uint_eq(at, 8);
	ck_assert_uint_eq(bytes, 24);
	ck_assert_uint_eq(ptx_param_bytes(k), 40);
	ck_assert_uint_eq(ptx_max_threads(k), 128);
	ck_assert_uint_eq(*(uint32_t *)ptx_variable(m, "count", &bytes), 5);
	ck_assert_uint_eq(bytes, 4);
	ck_assert_ptr_null(ptx_variable(m, "own", &bytes));
	params[0] = 100;
	memcpy(params + 16, &where, 8);
	*(uint32_t *)ptx_variable(m, "count", &bytes) = 1000;
	l.kernel = k;
	faults[0] = 0;
	nr_faults = 0;
	ck_assert_msg(ptx_run(&l) == 0, "%s", faults);
	ck_assert_uint_eq(out, 1104);
	ptx_unload(m);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("ptx");
	TCase *t = tcase_create("all");

	tcase_add_loop_test(t, arithmetic, 0, sizeof(ops) / sizeof(*ops));
	tcase_add_test(t, small_numbers);
	tcase_add_test(t, divergence);
	tcase_add_test(t, waits_for_its_own_warp);
	tcase_add_test(t, barriers);
	tcase_add_test(t, votes_and_shuffles);
	tcase_add_test(t, atomics);
	tcase_add_test(t, races);
	tcase_add_test(t, addresses);
	tcase_add_test(t, missed_barriers);
	tcase_add_test(t, unknown);
	tcase_add_test(t, variables);
	tcase_set_timeout(t, 60);
	suite_add_tcase(s, t);
	return df_test_run(s);
}
