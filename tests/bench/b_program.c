/*
 * Measures the cost of programs before they run: building one rank's built-in program (at the first
 * use of a signature), compiling and proving a program of the library, and reading and proving a
 * file. Each figure is the median of several runs. `b_program [GLOB]` runs the figures whose names
 * match.
 */
#define _GNU_SOURCE
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/time.h"
#include "runtime/program/file/algofile.h"
#include "runtime/program/file/canon.h"
#include "runtime/program/lang/library/library.h"
#include "runtime/program/file/msccl.h"
#include "runtime/program/program_names.h"

static const char *glob = "*";

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void report(const char *name, double value, const char *unit, double limit)
{
	printf("BENCH %s %.3g %s target <%g %s\n", name, value, unit, limit,
	       value < limit ? "ok" : "MISS");
}

/* Returns the median milliseconds, or a negative number on failure. */
static double median(double (*once)(const void *arg), const void *arg, int runs)
{
	double t[101];

	for (int i = 0; i < runs; i++) {
		t[i] = once(arg);
		if (t[i] < 0)
			return -1;
	}
	qsort(t, (size_t)runs, sizeof(t[0]), by_value);
	return t[runs / 2];
}

static double build_once(const void *arg)
{
	struct df_prog_req q = *(const struct df_prog_req *)arg;
	uint64_t begin = df_now_ns();

	for (int i = 0; i < 1000; i++) {
		struct df_program *p;

		q.rank = i % q.nranks;
		if (df_program_build(&q, &p))
			return -1;
		df_program_free(p);
	}
	return (double)(df_now_ns() - begin) / 1e6; /* ms for 1000 are us for one program */
}

struct lib_arg {
	const struct df_lib *lib;
	struct df_shape shape;
};

static double compile_once(const void *arg)
{
	const struct lib_arg *a = arg;
	struct df_plan *plan;
	struct df_program **p;
	struct df_expects x = {0};
	struct df_verify_out v;
	struct df_perr err;
	uint64_t begin = df_now_ns(), end;

	df_perr_clear(&err);
	if (df_library_compile(a->lib, &a->shape, &plan, &x, &err))
		return -1;
	if (df_plan_prove(plan, &x, &p, &v)) {
		df_plan_destroy(plan);
		return -1;
	}
	end = df_now_ns();
	df_programs_free(p, plan->nranks);
	df_plan_destroy(plan);
	df_expects_fini(&x);
	return (double)(end - begin) / 1e6;
}

struct text {
	char *s;
	size_t n;
};

static double read_once(const void *arg)
{
	const struct text *t = arg;
	struct df_algo_file *a;
	struct df_perr err;
	uint64_t begin = df_now_ns(), end;

	df_perr_clear(&err);
	if (df_algo_parse("bench", t->s, t->n, &a, &err))
		return -1;
	end = df_now_ns();
	df_algo_free(a);
	return (double)(end - begin) / 1e6;
}

static int bench_builds(void)
{
	static const struct {
		const char *name;
		struct df_prog_req q;
	} rows[] = {
		{"program_build_allreduce_ring_8", {.algo = DF_ALGO_RING, .nranks = 8}},
		{"program_build_allreduce_allpairs_8", {.algo = DF_ALGO_ALLPAIRS, .nranks = 8}},
		{"program_build_alltoall_64", {.kind = DF_COLL_ALLTOALL, .nranks = 64}},
	};

	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct df_prog_req q = rows[i].q;
		double us;

		if (fnmatch(glob, rows[i].name, 0))
			continue;
		q.count = 1 << 20;
		q.elem_bytes = 4;
		q.max_blocks = 1;
		us = median(build_once, &q, 11);
		if (us < 0)
			return 1;
		report(rows[i].name, us, "us", q.nranks == 8 ? 20 : 100);
	}
	return 0;
}

int main(int argc, char **argv)
{
	static const struct {
		int nodes, gpus, runs;
		double ms;
	} shapes[] = {{1, 8, 11, 50}, {8, 8, 3, 2000}};
	int bad;

	if (argc > 1)
		glob = argv[1];
	bad = bench_builds();
	for (unsigned s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++) {
		for (unsigned i = 0; i < df_library_size; i++) {
			struct lib_arg a = {&df_library[i],
					    {.nodes = shapes[s].nodes,
					     .gpus = shapes[s].gpus,
					     .nranks = shapes[s].nodes * shapes[s].gpus}};
			char name[100];
			double ms;

			snprintf(name, sizeof(name), "program_compile_verify_%s_%d",
				 df_library[i].name, a.shape.nranks);
			if (fnmatch(glob, name, 0))
				continue;
			ms = median(compile_once, &a, shapes[s].runs);
			if (ms < 0) {
				fprintf(stderr, "b_program: %s does not compile\n", name);
				bad = 1;
				continue;
			}
			report(name, ms, "ms", shapes[s].ms);
		}
	}
	if (!fnmatch(glob, "program_read_verify_xml_8", 0)) {
		struct df_shape s = {.nranks = 8,
				     .nodes = 1,
				     .gpus = 8,
				     .instances = 2,
				     .blocks = DF_BLOCKS_PEER};
		struct df_plan *plan;
		struct df_perr err;
		struct text t;
		FILE *f;
		double ms;

		df_perr_clear(&err);
		if (df_library_compile(df_library_find("allreduce-allpairs"), &s, &plan, NULL,
				       &err))
			return 1;
		f = open_memstream(&t.s, &t.n);
		if (!f || df_msccl_write(f, plan, 1, 1, &err))
			return 1;
		fclose(f);
		ms = median(read_once, &t, 11);
		if (ms < 0)
			return 1;
		report("program_read_verify_xml_8", ms, "ms", 50);
		df_plan_destroy(plan);
		free(t.s);
	}
	return bad;
}
