/*
 * For the tests of the PTX emulator: runs a kernel of a few instructions and collects its faults.
 */
#ifndef DF_TESTS_PTX_TEST_H
#define DF_TESTS_PTX_TEST_H

#include <check.h>
#include <stdio.h>
#include <string.h>
#include "tests/cuda/ptx/ptx.h"
#include "tests/lib/test.h"

static char faults[4096];
static int nr_faults;

static void fault(void *arg, const char *text)
{
	(void)arg;
	nr_faults++;
	snprintf(faults + strlen(faults), sizeof(faults) - strlen(faults), "%s\n", text);
}

/*
 * Returns a module with the kernel `k`, which has one parameter, a pointer. In `body`, %rd1 is the
 * pointer and %r1 the number of the thread.
 */
static struct ptx_module *load_kernel(const char *decls, const char *body)
{
	static char text[16384];

	snprintf(text, sizeof(text),
		 ".version 8.0\n.target sm_80\n.address_size 64\n"
		 ".visible .entry k(.param .u64 k_p)\n{\n"
		 ".reg .pred %%p<20>;\n.reg .b16 %%rs<20>;\n.reg .b32 %%r<40>;\n"
		 ".reg .b64 %%rd<40>;\n"
		 ".reg .f32 %%f<20>;\n.reg .f64 %%fd<20>;\n%s\n"
		 "ld.param.u64 %%rd1, [k_p];\nmov.u32 %%r1, %%tid.x;\n%s\nret;\n}\n",
		 decls, body);
	return ptx_load(text, strlen(text), "t_ptx");
}

/* Runs such a kernel with `blocks` blocks of `threads` threads. Returns the number of faults. */
static inline int run(const char *decls, const char *body, void *arg, unsigned int blocks,
		      unsigned int threads)
{
	struct ptx_module *m = load_kernel(decls, body);
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

#endif
