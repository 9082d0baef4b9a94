/*
 * Description: the PTX emulator itself (tests/cuda/ptx): divergent threads, barriers, votes and
 * shuffles, weak memory, and each fault that it must report: found where it is, and only there.
 */
#include <stdlib.h>
#include "tests/cuda/ptx_test.h"

/* ---- threads --------------------------------------------------------------------------------- */

START_TEST(divergence)
{
	uint32_t out[96];
	uint32_t i;

	memset(out, 0, sizeof(out));
	/*
	 * The number of iterations is the thread's number. Odd threads take another branch. All
	 * threads meet at the end.
	 */
	FINE("",
	     "mul.wide.u32 %rd2, %r1, 4;\nadd.s64 %rd3, %rd1, %rd2;\nmov.u32 %r2, 0;\n"
	     "mov.u32 %r3, 0;\n"
	     "$L_loop:\nsetp.ge.u32 %p1, %r2, %r1;\n@%p1 bra $L_end;\nand.b32 %r4, %r1, 1;\n"
	     "setp.eq.s32 %p2, %r4, 1;\n"
	     "@%p2 bra $L_odd;\nadd.s32 %r3, %r3, 2;\nbra.uni $L_next;\n$L_odd:\n"
	     "add.s32 %r3, %r3, 3;\n$L_next:\n"
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

	/* Thread 0 waits, at the lower position in the code, for the word that thread 1 stores. */
	FINE("",
	     "setp.ne.s32 %p1, %r1, 0;\n@%p1 bra $L_other;\n$L_wait:\n"
	     "ld.relaxed.sys.b32 %r2, [%rd1];\n"
	     "setp.eq.s32 %p2, %r2, 0;\n@%p2 bra $L_wait;\nbra.uni $L_end;\n$L_other:\n"
	     "setp.ne.s32 %p3, %r1, 1;\n"
	     "@%p3 bra $L_end;\nst.relaxed.sys.b32 [%rd1], 1;\n$L_end:",
	     &flag, 1, 32);
	ck_assert_uint_eq(flag, 1);
}
END_TEST

START_TEST(barriers)
{
	uint32_t out[256], i;

	/*
	 * Threads exchange values through shared memory in reversed order; then a barrier counts a
	 * predicate.
	 */
	FINE(".shared .align 4 .b8 box[1024];",
	     "mul.wide.u32 %rd2, %r1, 4;\nadd.s64 %rd3, %rd1, %rd2;\nmov.u32 %r2, box;\n"
	     "shl.b32 %r3, %r1, 2;\n"
	     "add.s32 %r4, %r2, %r3;\nst.shared.u32 [%r4], %r1;\nbar.sync 0;\n"
	     "sub.s32 %r5, 255, %r1;\nshl.b32 %r6, %r5, 2;\n"
	     "add.s32 %r7, %r2, %r6;\nld.shared.u32 %r8, [%r7];\nsetp.lt.u32 %p1, %r1, 77;\n"
	     "bar.red.popc.u32 %r9, 0, %p1;\n"
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
	     "vote.sync.ballot.b32 %r2, %p1, -1;\nshfl.sync.bfly.b32 %r3|%p2, %r1, 1, 31, -1;\n"
	     "popc.b32 %r4, %r2;\n"
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

/* ---- weak memory ---- */

/*
 * Block 0 stores data and then a flag. Block 1 has loaded the data before; it waits for the flag
 * and loads the data again. All threads of a block take part, behind a barrier. Returns in how many
 * of 40 runs block 1 reads old data.
 */
static int stale(const char *store, const char *load, const char *barrier)
{
	static const char text[] =
		"mul.wide.u32 %%rd2, %%r1, 8;\nadd.s64 %%rd3, %%rd1, %%rd2;\n"
		"mov.u32 %%r2, %%ctaid.x;\n"
		"setp.ne.s32 %%p2, %%r1, 0;\nsetp.ne.s32 %%p1, %%r2, 0;\n@%%p1 bra $L_reads;\n"
		/*
		 * When block 1 has loaded the data: store the data, then the flag. Thread 0 then
		 * stays for a while, because a block publishes all its stores when it ends.
		 */
		"@%%p2 bra $L_go;\n$L_first:\nld.acquire.sys.b64 %%rd5, [%%rd1+2040];\n"
		"setp.eq.s64 %%p3, %%rd5, 0;\n"
		"@%%p3 bra $L_first;\n$L_go:\nbar.sync 0;\nst.global.u64 [%%rd3+8], 7;\n%s\n"
		"@%%p2 bra $L_end;\n"
		"st.%s.sys.b64 [%%rd1], 1;\nmov.u32 %%r3, 0;\n$L_stay:\nadd.s32 %%r3, %%r3, 1;\n"
		"setp.lt.u32 %%p4, %%r3, 100000;\n@%%p4 bra $L_stay;\nbra.uni $L_end;\n"
		"$L_reads:\nld.global.u64 %%rd4, [%%rd3+8];\nbar.sync 0;\n@%%p2 bra $L_here;\n"
		"st.release.sys.b64 [%%rd1+2040], 1;\n"
		"$L_wait:\nld.%s.sys.b64 %%rd5, [%%rd1];\nsetp.eq.s64 %%p3, %%rd5, 0;\n"
		"@%%p3 bra $L_wait;\n$L_here:\n%s\n"
		"ld.global.u64 %%rd4, [%%rd3+8];\nst.global.u64 [%%rd3+1024], %%rd4;\n$L_end:\n"
		"mov.u32 %%r9, 0;";
	uint64_t box[256];
	char body[2048];
	int i, l, nr = 0; /* number of runs with old data */
	struct ptx_module *m;
	void *arg = box;

	snprintf(body, sizeof(body), text, barrier, store, load, barrier);
	m = load_kernel("", body);
	ck_assert_ptr_nonnull(m);
	for (i = 0; i < 40; i++) {
		struct ptx_launch la = {.kernel = ptx_kernel(m, "k"),
					.grid = {2, 1, 1},
					.block = {64, 1, 1},
					.params = &arg,
					.seed = df_test_seed() + (uint64_t)i,
					.weak = 1,
					.fault = fault};
		int old = 0;

		memset(box, 0, sizeof(box));
		ptx_run(&la);
		for (l = 0; l < 64; l++)
			old += box[128 + l] != 7;
		nr += old != 0;
	}
	ptx_unload(m);
	return nr;
}

START_TEST(weak_memory)
{
	const char *bar = "bar.sync 0;";

	ck_assert_int_eq(stale("release", "acquire", bar), 0);
	ck_assert_int_gt(stale("relaxed", "acquire", bar), 0);
	ck_assert_int_gt(stale("release", "relaxed", bar), 0);
	/* Without barriers, thread 0's release and acquire do not cover other threads' data. */
	ck_assert_int_gt(stale("release", "acquire", ""), 0);
}
END_TEST

/* ---- faults ---------------------------------------------------------------------------------- */

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
		"mul.wide.u32 %rd2, %r1, 4;\nadd.s64 %rd3, %rd1, %rd2;\nmov.u32 %r2, box;\n"
		"shl.b32 %r3, %r1, 2;\n"
		"add.s32 %r4, %r2, %r3;\nxor.b32 %r5, %r3, 4;\nadd.s32 %r6, %r2, %r5;\n";

	/* Reads the neighbour's value, after a barrier or without one. */
	snprintf(body, sizeof(body), "%s%s\nbar.sync 0;\nld.shared.u32 %%r7, [%%r6];", head,
		 write_all);
	FINE(box, body, out, 1, 64);
	snprintf(body, sizeof(body), "%s%s\nld.shared.u32 %%r7, [%%r6];", head, write_all);
	FAULT(box, body, out, 64, "race in shared memory");
	/* Overwrites a value that the neighbour may still read. */
	snprintf(body, sizeof(body), "%sld.shared.u32 %%r7, [%%r6];\n%s", head, write_all);
	FAULT(box, body, out, 64, "race in shared memory");
	/*
	 * Several threads store to the same global word: a race with plain stores, none with
	 * relaxed ones.
	 */
	FAULT("", "st.global.u32 [%rd1], %r1;", out, 64, "race in global memory");
	FINE("", "st.relaxed.sys.b32 [%rd1], %r1;", out, 1, 64);
	/* Several threads read the same word: no race. */
	FINE("", "ld.global.u32 %r2, [%rd1];", out, 1, 64);
	/* Neighbouring bytes of a word are different places. */
	FINE("", "cvt.u64.u32 %rd2, %r1;\nadd.s64 %rd3, %rd1, %rd2;\nst.global.u8 [%rd3], %r1;",
	     out, 1, 64);
}
END_TEST

static uint64_t known_generation;
static int known_none(void *arg, uintptr_t at, size_t bytes, uintptr_t *from, uintptr_t *to)
{
	(void)arg, (void)at, (void)bytes;
	*from = *to = 0;
	return 0;
}

START_TEST(addresses)
{
	static uint64_t out[8];
	struct ptx_module *m = load_kernel("", "st.global.u64 [%rd1], %rd1;");
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
	      "setp.lt.u32 %p1, %r1, 7;\n@%p1 bra $L_a;\nbar.sync 0;\nbra.uni $L_b;\n$L_a:\n"
	      "bar.sync 0;\n$L_b:\nmov.u32 %r2, 0;",
	      out, 64, "another barrier");
	FAULT("", "setp.lt.u32 %p1, %r1, 7;\n@%p1 ret;\nbar.sync 0;", out, 64, "have left");
	FAULT("", "setp.lt.u32 %p1, %r1, 7;\n@%p1 bra $L_a;\nbar.warp.sync -1;\n$L_a:\nbar.sync 0;",
	      out, 64, "never arrive");
}
END_TEST

START_TEST(unknown)
{
	uint32_t out[64];
	struct ptx_module *m;

	/* An unknown instruction is a fault only if it is executed. */
	FINE("", "bra.uni $L_a;\nwgmma.fence.sync.aligned;\n$L_a:\nmov.u32 %r2, 0;", out, 1, 32);
	FAULT("", "wgmma.fence.sync.aligned;", out, 32, "does not know");
	FAULT("", "add.rz.f32 %f1, %f2, %f3;", out, 32, "does not know");
	FAULT("", "trap;", out, 32, "traps");
	/* A text that is no PTX is refused. */
	m = load_kernel("", "mov.u32 %r2, 0");
	ck_assert_ptr_null(m);
	m = load_kernel("", "bra $L_nowhere;");
	ck_assert_ptr_null(m);
	m = load_kernel("", "setp.ne.s32 %q1, %r1, 0;\n@%q1 ret;");
	ck_assert_ptr_null(m);
	m = ptx_load("GARBAGE", 7, "garbage");
	ck_assert_ptr_null(m);
}
END_TEST

START_TEST(variables)
{
	static const char text[] =
		".version 8.0\n.target sm_80\n.address_size 64\n"
		".global .align 4 .u32 count = 5;\n"
		".const .align 4 .b8 table[8] = {1, 2, 3, 4, 5, 6, 7, 8};\n"
		".visible .entry k(.param .u32 k_a, .param .align 8 .b8 k_b[24], .param .u64 k_c)\n"
		".maxntid 64, 2, 1\n{\n"
		".reg .pred %p<2>;\n.reg .b32 %r<9>;\n.reg .b64 %rd<9>;\n"
		".local .align 8 .b8 own[16];\n"
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
	return DF_TESTS("ptx", {divergence}, {waits_for_its_own_warp}, {barriers},
			{votes_and_shuffles}, {atomics}, {weak_memory}, {races}, {addresses},
			{missed_barriers}, {unknown}, {variables});
}
