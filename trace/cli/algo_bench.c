/*
 * `dfshim algo bench`: times every built-in algorithm of a collective over sizes, one thread per rank on shared
 * memory, and writes the tuner file that makes the fastest one the choice.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/err.h"
#include "runtime/program/exec.h"
#include "runtime/program/tuner.h"
#include "trace/cli/algo.h"
#include "trace/cli/cli.h"

#define MAX_SIZES 64

static int parse_sizes(const char *s, uint64_t *size, int *nr)
{
	*nr = 0;
	if (!s) {
		for (uint64_t b = 1024; b <= 16 << 20; b *= 4)
			size[(*nr)++] = b;
		return 0;
	}
	for (;;) {
		char *end;
		uint64_t v;

		errno = 0;
		v = strtoull(s, &end, 0);
		if (end != s && (*end == 'K' || *end == 'M'))
			v <<= *end++ == 'K' ? 10 : 20;
		if (end == s || (*end && *end != ',') || errno || v < 4 || v > 1ull << 30 ||
		    *nr == MAX_SIZES || (*nr && v <= size[*nr - 1]))
			return df_cli_usage_error(
				"algo", "--sizes: growing sizes from 4 to 1024M, not '%s'", s);
		size[(*nr)++] = v;
		if (!*end)
			return 0;
		s = end + 1;
	}
}

static int cmp(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* Median nanoseconds of one execution; 0 and a message when it fails. */
static uint64_t measure(const struct df_prog_req *req, uint64_t rounds, uint32_t slots,
			struct df_perr *err)
{
	struct df_program **p = calloc((size_t)req->nranks, sizeof(*p));
	struct df_prog_req q = *req;
	uint64_t ns[101], elems[2] = {0, 0};
	uint32_t nr = (uint32_t)(rounds < 101 ? rounds : 101), done = 0;
	float **mem = calloc(2 * (size_t)q.nranks, sizeof(*mem));
	int rc = p && mem ? 0 : -ENOMEM;

	for (q.rank = 0; !rc && q.rank < q.nranks; q.rank++)
		rc = df_program_build(&q, &p[q.rank]);
	for (int r = 0; !rc && r < q.nranks; r++) {
		for (int b = 0; b < 2; b++) {
			uint32_t c = df_coll_chunks(q.kind, q.nranks, q.root, r, 1, b);

			elems[b] = c * q.count;
			mem[b * q.nranks + r] = calloc(elems[b] + 1, sizeof(float));
			if (!mem[b * q.nranks + r])
				rc = -ENOMEM;
		}
	}
	for (uint32_t i = 0; !rc && i <= nr; i++) {
		struct df_exec x = {.progs = p,
				    .nranks = q.nranks,
				    .count = q.count,
				    .tile_elems = 32 << 10,
				    .type = DF_FLOAT32,
				    .redop = DF_SUM,
				    .slots = slots ? slots : 4,
				    .in = (void **)mem,
				    .out = (void **)(mem + q.nranks)};

		rc = df_exec_run_threads(&x, err);
		if (i)
			ns[done++] = x.ns; /* the first one warms the memory */
	}
	for (int i = 0; mem && i < 2 * q.nranks; i++)
		free(mem[i]);
	free(mem);
	df_programs_free(p, q.nranks);
	if (rc || !done)
		return 0;
	qsort(ns, done, sizeof(*ns), cmp);
	return ns[done / 2] ? ns[done / 2] : 1;
}

int df_algo_bench(const struct df_algo_args *a)
{
	int kind = df_coll_kind_parse(a->kind ? a->kind : "AllReduce"), nr, rc, last = -1;
	uint64_t size[MAX_SIZES];
	struct df_tuner *t = NULL;
	struct df_perr err;
	FILE *f;

	if (a->nr_files)
		return df_cli_usage_error("algo", "bench takes no file");
	if (kind < 0 || kind > DF_COLL_REDUCESCATTER)
		return df_cli_usage_error(
			"algo", "--kind: AllReduce, Broadcast, Reduce, AllGather or ReduceScatter");
	rc = parse_sizes(a->sizes, size, &nr);
	if (rc)
		return rc;
	if (df_tuner_create(&df_cost_host, &t))
		return 1;
	if (!a->json)
		printf("%s, %d ranks, one thread each, microseconds (model)\n%12s %18s %18s %18s  fastest\n",
		       df_coll_kind_name((enum df_coll_kind)kind), a->shape.nranks, "bytes", "ring",
		       "tree", "allpairs");
	for (int i = 0; i < nr; i++) {
		struct df_prog_req q = {.kind = (enum df_coll_kind)kind,
					.nranks = a->shape.nranks,
					.root = a->shape.root,
					.count = size[i] / 4,
					.elem_bytes = 4,
					.max_blocks = a->max_blocks};
		uint64_t best_ns = 0;
		int best = DF_ALGO_RING;

		if (kind == DF_COLL_ALLGATHER || kind == DF_COLL_REDUCESCATTER)
			q.count = DF_MAX(q.count / (uint64_t)a->shape.nranks, 1u);
		if (!a->json)
			printf("%12llu", (unsigned long long)size[i]);
		for (int g = DF_ALGO_RING; g < DF_ALGO_NR; g++) {
			uint64_t ns;

			if (!df_algo_has(&q, (enum df_algo)g)) {
				if (!a->json)
					printf(" %18s", "-");
				continue;
			}
			q.algo = (enum df_algo)g;
			df_perr_clear(&err);
			ns = measure(&q, a->rounds, a->slots, &err);
			if (!ns) {
				df_tuner_free(t);
				return df_cli_input_error("algo", df_algo_name((enum df_algo)g),
							  "%s",
							  err.text[0] ? err.text : "no memory");
			}
			if (a->json)
				printf("{\"kind\":\"%s\",\"ranks\":%d,\"bytes\":%llu,\"algo\":\"%s\",\"ns\":%llu,"
				       "\"model_ns\":%.0f}\n",
				       df_coll_kind_name(q.kind), q.nranks,
				       (unsigned long long)size[i], df_algo_name((enum df_algo)g),
				       (unsigned long long)ns,
				       df_tuner_cost(&t->cost, &q, q.algo, q.max_blocks));
			else
				printf(" %9.1f (%6.0f)", (double)ns / 1e3,
				       df_tuner_cost(&t->cost, &q, q.algo, q.max_blocks) / 1e3);
			fflush(stdout);
			if (!best_ns || ns < best_ns) {
				best_ns = ns;
				best = g;
			}
		}
		if (!a->json)
			printf("  %s\n", df_algo_name((enum df_algo)best));
		if (best != last)
			df_tuner_add(t, (struct df_tune_row){kind, a->shape.nranks, i ? size[i] : 0,
							     best, a->max_blocks});
		last = best;
	}
	if (a->out) {
		f = fopen(a->out, "we");
		rc = f ? df_tuner_write(t, f) : -errno;
		if (f && fclose(f) && !rc)
			rc = -EIO;
		if (rc)
			rc = df_cli_input_error("algo", a->out, "%s", strerror(-rc));
	}
	df_tuner_free(t);
	return rc;
}
