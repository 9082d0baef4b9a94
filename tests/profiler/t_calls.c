/*
 * Calls of the profiler plugin that NCCL does not make, or makes too late: without a description, a
 * place for the handle, or a context; with unknown types, functions and states; with handles that
 * have ended or belong to another process. Nothing is recorded for them, and later calls are
 * recorded as before.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "interpose/profiler/nccl_profiler.h"
#include "tests/lib/test.h"

static const struct df_profiler_v5 *p;
static void *context;

static void load(void)
{
	char path[4096];
	void *lib;
	int mask = -1;

	snprintf(path, sizeof(path), "%s/libnccl-profiler-dfshim.so", getenv("B"));
	lib = dlopen(path, RTLD_NOW);
	ck_assert_msg(lib != NULL, "%s", dlerror());
	p = dlsym(lib, "ncclProfiler_v5");
	ck_assert_ptr_nonnull(p);
	ck_assert_str_eq(p->name, "dfshim");
	ck_assert_int_eq(p->init(&context, 1, &mask, NULL, 1, 2, 0, NULL), 0);
	ck_assert_ptr_nonnull(context);
	ck_assert_int_ne(mask & DF_PROFILER_KERNEL_CH, 0);
}

static struct df_profiler_v5_event coll(const char *func)
{
	struct df_profiler_v5_event e = {.type = DF_PROFILER_COLL};

	e.coll.is.func = func;
	e.coll.is.type = "ncclFloat32";
	e.coll.is.count = 1;
	e.coll.is.channels = 1;
	return e;
}

static void *kernel(void *op)
{
	struct df_profiler_v5_event e = {.type = DF_PROFILER_KERNEL_CH, .parent = op};
	void *h = NULL;

	ck_assert_int_eq(p->start(context, &h, &e), 0);
	return h;
}

START_TEST(test_nothing)
{
	struct df_profiler_v5_event e = coll("AllReduce");
	int mask = 1;
	void *h = (void *)1;

	ck_assert_int_eq(p->init(NULL, 1, &mask, NULL, 1, 2, 0, NULL), 0);
	ck_assert_int_eq(p->init(&h, 1, NULL, NULL, 1, 2, 0, NULL), 0);
	ck_assert_int_eq(p->finalize(h), 0);
	ck_assert_int_eq(p->start(context, NULL, &e), 0);
	ck_assert_int_eq(p->start(context, &h, NULL), 0);
	ck_assert_ptr_null(h);
	ck_assert_int_eq(p->start(NULL, &h, &e), 0);
	ck_assert_ptr_null(h);
	ck_assert_int_eq(p->stop(NULL), 0);
	ck_assert_int_eq(p->state(NULL, 24, NULL), 0);
	ck_assert_int_eq(p->finalize(NULL), 0);
}
END_TEST

START_TEST(test_unknown)
{
	struct df_profiler_v5_event e = coll("Levitate");
	void *h = (void *)1;

	ck_assert_int_eq(p->start(context, &h, &e), 0);
	ck_assert_ptr_null(h);
	e = coll(NULL);
	ck_assert_int_eq(p->start(context, &h, &e), 0);
	ck_assert_ptr_null(h);
	for (int bit = 11; bit < 63; bit++) {
		e = (struct df_profiler_v5_event){.type = 1ull << bit};
		ck_assert_int_eq(p->start(context, &h, &e), 0);
		ck_assert_ptr_null(h);
	}
	/* Elements of an unknown type count as one byte. */
	e = coll("AllReduce");
	e.coll.is.type = NULL;
	ck_assert_int_eq(p->start(context, &h, &e), 0);
	ck_assert_ptr_nonnull(h);
	for (int to = -2; to < 100; to++)
		ck_assert_int_eq(p->state(h, to, NULL), 0);
	ck_assert_int_eq(p->stop(kernel(h)), 0);
}
END_TEST

/*
 * Handles that have ended, that were never returned, or that belong to another process are ignored.
 */
START_TEST(test_handles)
{
	struct df_profiler_v5_event e = coll("AllReduce"), proxy = {.type = DF_PROFILER_PROXY_OP};
	void *op, *k, *h;

	ck_assert_int_eq(p->start(context, &op, &e), 0);
	k = kernel(op);
	ck_assert_ptr_nonnull(k);
	ck_assert_int_eq(p->stop(op), 0);
	ck_assert_int_eq(p->stop(k), 0);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(p->stop(op), 0);
		ck_assert_int_eq(p->stop(k), 0);
		ck_assert_ptr_null(kernel(op));
	}
	/* The new operation reuses the place. The old handle must not find the new operation. */
	ck_assert_int_eq(p->start(context, &h, &e), 0);
	ck_assert_ptr_ne(h, op);
	ck_assert_ptr_null(kernel(op));
	ck_assert_int_eq(p->stop(kernel(h)), 0);
	for (uintptr_t bits = 1; bits < 1ull << 63; bits *= 3) {
		ck_assert_ptr_null(kernel((void *)bits));
		ck_assert_int_eq(p->stop((void *)bits), 0);
		ck_assert_int_eq(p->state((void *)bits, 9, NULL), 0);
		ck_assert_int_eq(p->start((void *)bits, &h, &e), 0);
		ck_assert_ptr_null(h);
	}
	/* With PXN a proxy works for another process, whose pointers are no handles here. */
	proxy.parent = (void *)0x7fff12345678;
	proxy.proxy_op.pid = getpid() + 1;
	proxy.proxy_op.steps = 1;
	ck_assert_int_eq(p->start((void *)0x7fff87654321, &h, &proxy), 0);
	ck_assert_ptr_nonnull(h);
	proxy = (struct df_profiler_v5_event){.type = DF_PROFILER_PROXY_STEP, .parent = h};
	ck_assert_int_eq(p->start((void *)0x7fff87654321, &op, &proxy), 0);
	ck_assert_int_eq(p->state(op, DF_PROFILER_SEND_WAIT, NULL), 0);
	ck_assert_int_eq(p->stop(op), 0);
	ck_assert_int_eq(p->stop(h), 0);
	ck_assert_int_eq(p->stop(h), 0);
}
END_TEST

/* A step of a proxy that has ended, whose place another proxy uses. */
START_TEST(test_old_step)
{
	struct df_profiler_v5_event e = {.type = DF_PROFILER_PROXY_OP},
				    s = {.type = DF_PROFILER_PROXY_STEP};
	void *proxy, *step, *other;

	e.proxy_op.pid = getpid();
	ck_assert_int_eq(p->start(context, &proxy, &e), 0);
	s.parent = proxy;
	ck_assert_int_eq(p->start(context, &step, &s), 0);
	ck_assert_int_eq(p->stop(proxy), 0);
	ck_assert_int_eq(p->start(context, &other, &e), 0);
	ck_assert_ptr_ne(other, proxy);
	ck_assert_int_eq(p->state(step, DF_PROFILER_SEND_WAIT, NULL), 0);
	ck_assert_int_eq(p->stop(step), 0);
	ck_assert_int_eq(p->start(context, &step, &s), 0);
	ck_assert_ptr_null(step);
	ck_assert_int_eq(p->stop(other), 0);
}
END_TEST

int main(void)
{
	return DF_TESTS("profiler calls", {.before = load}, {test_nothing}, {test_unknown},
			{test_handles}, {test_old_step});
}
