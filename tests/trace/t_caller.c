/*
 * Finds call sites from inside a call. Each place has its own site, also if several places call one
 * helper, if frames vary in size, and if many threads call at once. A known place needs no walk of
 * the stack, which would add a SITE record. The ring keeps the stack of a site that is still used.
 */
#define _GNU_SOURCE
#include <alloca.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unwind.h>
#include "tests/lib/test.h"
#include "trace/read/reader.h"
#include "trace/record/module.h"
#include "trace/record/site.h"
#include "trace/record/writer.h"

#define NR_THREADS 4

/* Only on x86-64 does the table of frames replace the unwinder (trace/record/caller.c). */
#ifdef __x86_64__
#define HAS_STEPS 1
#else
#define HAS_STEPS 0
#endif

static unsigned walks;

/*
 * Counts calls of the unwinder, which is called after this function. (backtrace() finds the
 * unwinder in another way and is not counted.)
 */
_Unwind_Reason_Code _Unwind_Backtrace(_Unwind_Trace_Fn fn, void *arg)
{
	_Unwind_Reason_Code (*real)(_Unwind_Trace_Fn, void *);

	*(void **)&real = dlsym(RTLD_NEXT, "_Unwind_Backtrace");
	__atomic_add_fetch(&walks, 1, __ATOMIC_RELAXED);
	return real(fn, arg);
}

static unsigned searches;

/* Counts searches for a symbol, which take milliseconds in a library that has many. */
int dladdr(const void *pc, Dl_info *info)
{
	int (*real)(const void *, Dl_info *);

	*(void **)&real = dlsym(RTLD_NEXT, "dladdr");
	__atomic_add_fetch(&searches, 1, __ATOMIC_RELAXED);
	return real(pc, info);
}

static void open_ring(void)
{
	const struct df_trace_config cfg = {.mb = 1, .rank = -1};

	ck_assert_int_eq(df_trace_open(&cfg), 0);
}

static uint64_t count(enum df_rec_type type, uint64_t site)
{
	const struct df_trace_header *h = df_trace_ring();
	struct df_reader r;
	const struct df_rec *rec;
	uint64_t index, nr = 0;

	ck_assert_int_eq(df_reader_open_image(&r, h, df_trace_ring_bytes(), NULL), 0);
	while ((rec = df_reader_next(&r, &index)))
		nr += rec->type == type && (!site || rec->op == site);
	df_reader_close(&r);
	return nr;
}

/*
 * Stands for the hook of a wait, called by a function of the application. The barrier prevents a
 * tail call.
 */
__attribute__((noinline)) static uint32_t hook(void)
{
	uint32_t site = df_trace_caller();

	__asm__ volatile("" ::: "memory");
	return site;
}

__attribute__((noinline)) static uint32_t helper(void)
{
	uint32_t site = hook();

	__asm__ volatile("" ::: "memory");
	return site;
}

/* Its frame has another size in each call. */
__attribute__((noinline)) static uint32_t on_varying(size_t bytes)
{
	volatile char *room = alloca(bytes);
	uint32_t site;

	room[0] = room[bytes - 1] = 1;
	site = helper();
	room[0] = 2;
	return site;
}

START_TEST(places)
{
	uint32_t a, b, first_a = 0, first_b = 0, here = 0;
	uint64_t stacks = 0;
	unsigned known = 0;

	open_ring();
	for (int i = 0; i < 2000; i++) {
		a = helper();
		b = helper();
		here = hook();
		if (!i) {
			ck_assert_uint_gt(walks, 0);
			known = walks;
			first_a = a;
			first_b = b;
			stacks = count(DF_REC_SITE, 0);
			ck_assert_uint_gt(count(DF_REC_SITE, a), 1);
		}
		ck_assert_uint_eq(a, first_a);
		ck_assert_uint_eq(b, first_b);
	}
	if (HAS_STEPS)
		ck_assert_uint_eq(walks, known);
	ck_assert_uint_ne(a, 0);
	ck_assert_uint_ne(b, 0);
	ck_assert_uint_ne(here, 0);
	ck_assert_uint_ne(a, b);
	ck_assert_uint_ne(a, here);
	ck_assert_uint_ne(b, here);
	ck_assert_uint_eq(count(DF_REC_SITE, 0), stacks);
	df_trace_close();
}
END_TEST

/*
 * Old contents of the stack must not be taken for a caller. A place whose frames vary still has one
 * site.
 */
START_TEST(varying)
{
	uint64_t stacks = 0;
	uint32_t last = 0, other;
	unsigned known = 0;

	open_ring();
	for (int i = 0; i < 2000; i++) {
		uint32_t site = on_varying((size_t)(16 + i * 48 % 3000));

		ck_assert_uint_ne(site, 0);
		/* After the first calls the site is described by fewer frames. */
		if (i > 2)
			ck_assert_uint_eq(site, last);
		last = site;
		if (i == 2) {
			stacks = count(DF_REC_SITE, 0);
			known = walks;
		}
	}
	if (HAS_STEPS)
		ck_assert_uint_eq(walks, known);
	ck_assert_uint_eq(count(DF_REC_SITE, 0), stacks);
	other = helper();
	ck_assert_uint_ne(other, last);
	df_trace_close();
}
END_TEST

static void *many(void *arg)
{
	uint32_t *out = arg;

	for (int i = 0; i < 20000; i++) {
		uint32_t a = helper(), b = hook(), c = on_varying((size_t)(16 + i % 100 * 16));

		/*
		 * While other threads still learn, a place may have been described by more frames
		 * than later.
		 */
		if (i > 19000 && out[0])
			ck_assert(a == out[0] && b == out[1] && c == out[2]);
		out[0] = a;
		out[1] = b;
		out[2] = c;
	}
	return NULL;
}

START_TEST(threads)
{
	pthread_t id[NR_THREADS];
	uint32_t out[NR_THREADS][3] = {{0}};

	open_ring();
	for (int i = 0; i < NR_THREADS; i++)
		ck_assert_int_eq(pthread_create(&id[i], NULL, many, out[i]), 0);
	for (int i = 0; i < NR_THREADS; i++)
		pthread_join(id[i], NULL);
	for (int i = 0; i < NR_THREADS; i++) {
		ck_assert_uint_ne(out[i][0], out[i][1]);
		ck_assert_uint_ne(out[i][0], out[i][2]);
		ck_assert(!memcmp(out[i], out[0], sizeof(out[0])));
	}
	df_trace_close();
}
END_TEST

/* After days a job that hangs still has the stacks of the calls in which it hangs. */
START_TEST(kept)
{
	uint64_t nr_recs;
	uint32_t site = 0, nccl = 0;

	open_ring();
	nr_recs = df_trace_ring()->nr_recs;
	for (uint64_t i = 0; i < nr_recs * 5; i++) {
		site = hook();
		nccl = df_trace_site(__builtin_return_address(0));
		df_trace(DF_REC_MARK, -1, 0, -1, i, 0, 0, 0, 0);
	}
	ck_assert_uint_gt(count(DF_REC_SITE, site), 1);
	ck_assert_uint_gt(count(DF_REC_SITE, nccl), 0);
	ck_assert_uint_gt(count(DF_REC_MARK, 0), nr_recs / 2);
	df_trace_close();
}
END_TEST

/* A new site searches symbols only for the frames that it records. A known one searches none. */
START_TEST(symbols)
{
	unsigned before = searches;

	open_ring();
	for (volatile int i = 0; i < 3; i++) /* not unrolled: one place */
		hook();
	ck_assert_uint_eq(searches - before, count(DF_REC_SITE, 0));
	df_trace_close();
}
END_TEST

int main(void);

/* The file of an address of the program, of a library, and of no file. */
START_TEST(modules)
{
	struct df_module m;
	int local;

	ck_assert(df_module_of((const void *)(uintptr_t)main, &m));
	ck_assert_str_eq(m.name, "t_caller");
	ck_assert((uintptr_t)main >= m.start && (uintptr_t)main < m.end);
	/* No sanitizer replaces this function. */
	ck_assert(df_module_of(dlsym(RTLD_DEFAULT, "gnu_get_libc_version"), &m));
	ck_assert(!strncmp(m.name, "libc.", 5));
	ck_assert(!df_module_of(&local, &m));
}
END_TEST

int main(void)
{
	return DF_TESTS("caller", {places}, {varying}, {threads}, {kept}, {symbols}, {modules});
}
