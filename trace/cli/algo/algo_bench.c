/*
 * `dfshim algo bench`: times the built-in algorithms on the daemon itself, in jobs of `dfshim run`
 * with one process for each rank. Prints a table and writes the tuner file that selects the fastest
 * one.
 *
 * In a job all candidates take turns, operation by operation. The median of the ratios of
 * neighbouring measurements is compared, so that other load of the machine affects all of them
 * alike. The runtime's own choice is measured twice; the difference of the two is the noise, and is
 * printed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/err.h"
#include "runtime/program/build/tuner.h"
#include "runtime/program/program_names.h"
#include "trace/cli/algo/algo_bench.h"
#include "trace/cli/common/cli.h"
#include "trace/cli/run/jobdir.h"
#include "trace/say/json.h"

/*
 * The choice of the next smaller size is kept if it is at most this much slower than the fastest.
 */
#define MAX_CHOSEN 1.03

/* ---- arguments --------------------------------------------------------------------------- */

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
		    *nr == DF_BENCH_SIZES || (*nr && v <= size[*nr - 1]))
			return df_cli_usage_error(
				"algo", "--sizes: growing sizes from 4 to 1024M, not '%s'", s);
		size[(*nr)++] = v;
		if (!*end)
			return 0;
		s = end + 1;
	}
}

/*
 * Stores the bits of the collectives to measure: those of a list "AllReduce,Broadcast", or "all".
 * Returns 0 or -EINVAL.
 */
static int parse_kinds(const char *s, uint32_t *kinds)
{
	char name[32];

	*kinds = s && !strcmp(s, "all") ? (1u << DF_BENCH_KINDS) - 1 : 0;
	for (s = s ? s : "AllReduce"; !*kinds || *s == ',';) {
		size_t n = strcspn(s += *s == ',', ",");
		int k;

		snprintf(name, sizeof(name), "%.*s", (int)n, s);
		k = df_coll_kind_parse(name);
		if (k < 0 || k >= DF_BENCH_KINDS)
			return df_cli_usage_error("algo",
						  "--kind: all, or a list of AllReduce, Broadcast, "
						  "Reduce, AllGather, ReduceScatter, AlltoAll");
		*kinds |= 1u << k;
		s += n;
	}
	return 0;
}

/*
 * Refuses layouts that cannot be emulated: nodes must be equal, and only the last may be smaller.
 */
static int emulated(const struct df_layout *l)
{
	for (int v = 1; l && v < l->nodes; v++) {
		int size = df_layout_size(l, v), like = df_layout_size(l, 0);

		if (size > like || (size < like && v < l->nodes - 1))
			return df_cli_usage_error(
				"algo",
				"--layout: bench needs nodes of one size; the last may be smaller");
	}
	return 0;
}

/*
 * Fills b->kinds and b->size from the command line. Returns 2 after a message if the usage is
 * wrong.
 */
static int parse_bench(struct df_bench *b)
{
	int rc = emulated(b->args->layout);

	if (!rc)
		rc = parse_kinds(b->args->kind, &b->kinds);
	return rc ? rc : parse_sizes(b->args->sizes, b->size, &b->nr_sizes);
}

static struct df_prog_req request(const struct df_bench *b, int kind, uint64_t bytes)
{
	const struct df_algo_args *a = b->args;
	struct df_prog_req q = {.kind = (enum df_coll_kind)kind,
				.nranks = a->shape.nranks,
				.nodes = a->shape.nodes,
				.layout = a->layout,
				.root = a->shape.root,
				.count = 1,
				.elem_bytes = 4,
				.max_blocks = a->max_blocks};

	q.count = DF_MAX(bytes / df_coll_bytes(&q), 1u);
	return q;
}

struct df_prog_req df_bench_request(const struct df_bench *b, int kind, int size, int c, int nr,
				    uint64_t turn)
{
	struct df_prog_req q = request(b, kind, b->size[size]);
	/* Counts differ a little between candidates, by whole vectors if they are large enough. */
	uint64_t step = q.count / 256;

	step = DF_MAX(step >= 16 ? step & ~15ull : step, 1u);
	q.count += step * (((uint64_t)c + turn) % (uint64_t)nr);
	return q;
}

int df_bench_cands(const struct df_bench *b, int kind, struct df_bench_cand *cand)
{
	struct df_prog_req q = request(b, kind, 4);
	uint32_t most = b->args->max_blocks;
	int nr = 0;

	for (int g = DF_ALGO_RING; g < DF_ALGO_NR; g++)
		for (uint32_t blocks = 1; blocks <= most && df_algo_has(&q, (enum df_algo)g);
		     blocks *= 2)
			cand[nr++] = (struct df_bench_cand){(enum df_algo)g, blocks, 0};
	cand[nr++] = (struct df_bench_cand){DF_ALGO_AUTO, most, 0};
	cand[nr++] = (struct df_bench_cand){DF_ALGO_AUTO, most, 1};
	return nr;
}

/* ---- the jobs ---------------------------------------------------------------------------- */

struct bench {
	struct df_bench b;
	const struct df_tuner *tuner; /* --tuner: measure the choice of this tuner */
	uint64_t nr_samples;	      /* number of samples of a candidate, in all turns */
	double *ns;		      /* times by kind, size, candidate, turn and round */
	char dir[PATH_MAX];
};

static double *samples(struct bench *t, int kind, int size, int c)
{
	int k = __builtin_popcount(t->b.kinds & ((1u << kind) - 1));

	return t->ns +
	       (((size_t)k * (size_t)t->b.nr_sizes + (size_t)size) * DF_BENCH_CANDS + (size_t)c) *
		       t->nr_samples;
}

/* Writes a row for each candidate of each size: the program of its calls. */
static int write_rows(struct bench *t, uint64_t turn, const char *path)
{
	struct df_bench_cand cand[DF_BENCH_CANDS];
	struct df_tuner *rows = NULL;
	FILE *f = fopen(path, "we");
	int rc = f ? df_tuner_create(t->tuner ? &t->tuner->cost : &df_cost_host, &rows) : -errno;

	if (!rc)
		rows->has_cost = t->tuner && t->tuner->has_cost;
	for (int k = 0; k < DF_BENCH_KINDS; k++) {
		int nr = t->b.kinds >> k & 1 ? df_bench_cands(&t->b, k, cand) : 0;

		for (int i = 0; i < t->b.nr_sizes; i++) {
			for (int c = 0; c < nr && !rc; c++) {
				struct df_prog_req q = df_bench_request(&t->b, k, i, c, nr, turn);
				struct df_tune_row row = {k,
							  q.nranks,
							  DF_MAX(q.nodes, 1),
							  df_coll_bytes(&q),
							  (int)cand[c].algo,
							  cand[c].blocks};

				if (cand[c].algo == DF_ALGO_AUTO && t->tuner)
					row.algo = (int)df_tuner_choose(t->tuner, NULL, &q,
									&row.blocks, NULL);
				rc = df_tuner_add(rows, row);
			}
		}
	}
	if (!rc)
		rc = df_tuner_write(rows, f);
	if (f && fclose(f) && !rc)
		rc = -EIO;
	df_tuner_free(rows);
	return rc;
}

static void environment(void *arg)
{
	static const char *const none[] = {"DFSHIM_ALGO", "DFSHIM_TRACE", "DFSHIM_STATS",
					   "NCCL_PROTO", "NCCL_ALGO"};
	const struct bench *t = arg;
	const struct df_algo_args *a = t->b.args;
	char text[PATH_MAX + 8];

	for (unsigned i = 0; i < DF_ARRAY_LEN(none); i++)
		unsetenv(none[i]);
	snprintf(text, sizeof(text), "%s/rows", t->dir);
	setenv("DFSHIM_TUNER", text, 1);
	if (a->shape.nodes > 1) {
		snprintf(text, sizeof(text), "%d", a->shape.gpus);
		setenv("DFSHIM_HOST_NODE_DEVICES", text, 1);
	}
	snprintf(text, sizeof(text), "%u", a->max_blocks);
	setenv("DFSHIM_BLOCKS", text, 1);
}

/* Adds the measurements of rank `rank`. The mean of all ranks is used. */
static void read_times(struct bench *t, uint64_t turn, int rank)
{
	unsigned long long round, ns;
	char path[PATH_MAX + 32];
	int kind, size, c;
	FILE *f;

	snprintf(path, sizeof(path), "%s/times.%d", t->dir, rank);
	f = fopen(path, "re");
	while (f && fscanf(f, "%d %d %d %llu %llu", &kind, &size, &c, &round, &ns) == 5) {
		uint64_t at = turn * t->b.args->rounds + round;

		samples(t, kind, size, c)[at] += (double)ns / t->b.args->shape.nranks;
	}
	if (f)
		fclose(f);
}

/* Runs a job and reads the files of its ranks. Returns the exit status. */
static int job(struct bench *t, uint64_t turn)
{
	const struct df_algo_args *a = t->b.args;
	char self[PATH_MAX], path[PATH_MAX + 8], num[6][24];
	char *args[40];
	ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);
	struct df_jobdir dir;
	int n = 0, status;

	if (len <= 0)
		return df_cli_input_error("algo", "/proc/self/exe", "%s", strerror(errno));
	self[len] = 0;
	if (df_jobdir_create(&dir, "bench"))
		return 1;
	snprintf(t->dir, sizeof(t->dir), "%s", dir.path);
	snprintf(path, sizeof(path), "%s/rows", dir.path);
	status = write_rows(t, turn, path);
	if (status) {
		df_jobdir_remove(&dir);
		return df_cli_input_error("algo", path, "%s", strerror(-status));
	}
#define NUM(i, v) (snprintf(num[i], sizeof(num[i]), "%llu", (unsigned long long)(v)), num[i])
#define ARG(s)	  (args[n++] = (char *)(s))
	ARG(self), ARG("run"), ARG("-n"), ARG(NUM(0, a->shape.nranks));
	snprintf(path, sizeof(path), "--host=%d", a->shape.nranks);
	ARG(path), ARG("--timeout"), ARG("60"), ARG("--"), ARG(self), ARG("algo"), ARG("bench");
	ARG("--worker"), ARG(dir.path), ARG("--rounds"), ARG(NUM(1, a->rounds)), ARG("--seed");
	ARG(NUM(2, turn)); /* the worker reads the turn from --seed */
	if (a->layout)
		ARG("--layout"), ARG(a->layout_text);
	else
		ARG("--nodes"), ARG(NUM(3, a->shape.nodes)), ARG("--gpus"),
			ARG(NUM(4, a->shape.gpus));
	if (a->kind)
		ARG("--kind"), ARG(a->kind);
	if (a->sizes)
		ARG("--sizes"), ARG(a->sizes);
	ARG("--max-blocks"), ARG(NUM(5, a->max_blocks));
	args[n] = NULL;
#undef NUM
#undef ARG
	status = df_jobdir_run(&dir, args, environment, t);
	for (int r = 0; r < a->shape.nranks && !status; r++)
		read_times(t, turn, r);
	df_jobdir_remove(&dir);
	return status ? df_cli_input_error(
				"algo", "dfshim run", "the job of %d ranks ended with status %d",
				a->shape.nranks,
				status > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : 128)
		      : 0;
}

/* ---- the results ------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Returns the median of x[i] / of[i], or of x if `of` is NULL. */
static double median(const double *x, const double *of, uint64_t nr)
{
	double *v = malloc(nr * sizeof(*v)), m;

	if (!v)
		return 0;
	for (uint64_t i = 0; i < nr; i++)
		v[i] = of ? x[i] / of[i] : x[i];
	qsort(v, nr, sizeof(*v), by_value);
	m = nr & 1 ? v[nr / 2] : (v[nr / 2 - 1] + v[nr / 2]) / 2;
	free(v);
	return m;
}

static const char *cand_name(const struct df_bench_cand *c, uint32_t most, char *buf, size_t size)
{
	if (most > 1 && c->algo != DF_ALGO_AUTO)
		snprintf(buf, size, "%s/%u", df_algo_name(c->algo), c->blocks);
	else
		snprintf(buf, size, "%s", df_algo_name(c->algo));
	return buf;
}

/*
 * Returns the fastest candidate. The first choice has the best median. It is replaced by any
 * candidate that beats it in most neighbouring measurements. The runtime's own choice is excluded.
 */
static int fastest(struct bench *t, int kind, int size, int nr)
{
	uint64_t n = t->nr_samples;
	int best = 0;

	for (int c = 1; c < nr; c++)
		if (median(samples(t, kind, size, c), NULL, n) <
		    median(samples(t, kind, size, best), NULL, n))
			best = c;
	for (int c = 0; c < nr; c++)
		if (median(samples(t, kind, size, c), samples(t, kind, size, best), n) < 1)
			best = c;
	return best;
}

static void print_row(struct bench *t, int kind, int size, const struct df_bench_cand *cand, int nr,
		      int best)
{
	const struct df_algo_args *a = t->b.args;
	const double *own = samples(t, kind, size, nr - 2), *of = samples(t, kind, size, best);
	double ratio = median(own, of, t->nr_samples), noise;
	char name[32];

	noise = median(samples(t, kind, size, nr - 1), own, t->nr_samples) - 1;
	noise = noise < 0 ? -noise : noise;
	if (!a->json)
		printf("%12llu", (unsigned long long)t->b.size[size]);
	for (int c = 0; c < nr - 1; c++) {
		const double *x = samples(t, kind, size, c);
		double us = median(x, NULL, t->nr_samples) / 1e3;

		if (a->json)
			df_json_line(json_pack("{s:s, s:i, s:i, s:o, s:s, s:i, s:o, s:o, s:o}",
					       "kind", df_coll_kind_name((enum df_coll_kind)kind),
					       "ranks", a->shape.nranks, "nodes", a->shape.nodes,
					       "bytes", df_json_u64(t->b.size[size]), "algo",
					       df_algo_name(cand[c].algo), "blocks",
					       (int)cand[c].blocks, "ns",
					       df_json_u64((uint64_t)(us * 1e3 + 0.5)), "ratio",
					       json_real(median(x, of, t->nr_samples)), "noise",
					       json_real(noise)),
				     stdout);
		else
			printf(" %10.1f", us);
	}
	if (!a->json)
		printf(" %9.3f %6.1f %%  %s\n", ratio, noise * 100,
		       cand_name(&cand[best], a->max_blocks, name, sizeof(name)));
}

/* Prints the table of a collective and gives the tuner its rows. */
static int results(struct bench *t, int kind, struct df_tuner *out)
{
	const struct df_algo_args *a = t->b.args;
	struct df_bench_cand cand[DF_BENCH_CANDS];
	int last = -1, rc = 0, nr = df_bench_cands(&t->b, kind, cand);
	char name[32];

	if (!a->json) {
		printf("%s, %d ranks on %d node%s, microseconds\n%12s",
		       df_coll_kind_name((enum df_coll_kind)kind), a->shape.nranks, a->shape.nodes,
		       a->shape.nodes > 1 ? "s" : "", "bytes");
		for (int c = 0; c < nr - 1; c++)
			printf(" %10s", cand_name(&cand[c], a->max_blocks, name, sizeof(name)));
		puts("  auto/best    noise  fastest");
	}
	for (int i = 0; i < t->b.nr_sizes && !rc; i++) {
		int best = fastest(t, kind, i, nr - 2);

		print_row(t, kind, i, cand, nr, best);
		/* Keep the last choice if it cannot be distinguished from the best. */
		if (last >= 0 && median(samples(t, kind, i, last), samples(t, kind, i, best),
					t->nr_samples) <= MAX_CHOSEN)
			best = last;
		if (best != last)
			rc = df_tuner_add(
				out, (struct df_tune_row){kind, a->shape.nranks, a->shape.nodes,
							  i ? t->b.size[i] : 0,
							  (int)cand[best].algo, cand[best].blocks});
		last = best;
	}
	return rc;
}

static int write_tuner(const struct df_tuner *tuner, const char *path)
{
	FILE *f = fopen(path, "we");
	int rc = f ? df_tuner_write(tuner, f) : -errno;

	if (f && fclose(f) && !rc)
		rc = -EIO;
	return rc ? df_cli_input_error("algo", path, "%s", strerror(-rc)) : 0;
}

static int read_tuner(const char *path, struct df_tuner **out)
{
	struct df_perr err;
	size_t size = 0;
	char *text, why[512];
	int rc;

	df_perr_clear(&err);
	snprintf(err.file, sizeof(err.file), "%s", path);
	text = df_algo_slurp(path, &size, &err);
	rc = text ? df_tuner_parse(text, size, out, &err) : -EIO;
	free(text);
	return rc ? df_cli_input_error("algo", "--tuner", "%s", df_perr_str(&err, why, sizeof(why)))
		  : 0;
}

int df_algo_bench(const struct df_algo_args *a)
{
	struct df_tuner *out = NULL, *in = NULL;
	struct bench *t;
	int rc;

	if (a->nr_files)
		return df_cli_usage_error("algo", "bench takes no file");
	if (a->shape.nranks < 2)
		return df_cli_usage_error("algo", "bench needs two ranks");
	t = calloc(1, sizeof(*t));
	if (!t)
		return df_cli_input_error("algo", "bench", "out of memory");
	t->b.args = a;
	rc = parse_bench(&t->b);
	if (!rc && a->worker)
		rc = df_bench_worker(&t->b, a->worker);
	if (rc || a->worker)
		goto out;
	t->nr_samples = (uint64_t)a->turns * a->rounds;
	t->ns = calloc((size_t)__builtin_popcount(t->b.kinds) * (size_t)t->b.nr_sizes *
			       DF_BENCH_CANDS,
		       t->nr_samples * sizeof(*t->ns));
	if (!t->ns || df_tuner_create(&df_cost_host, &out))
		rc = df_cli_input_error("algo", "bench", "out of memory");
	if (!rc && a->tuner)
		rc = read_tuner(a->tuner, &in);
	t->tuner = in;
	for (int turn = 0; turn < a->turns && !rc; turn++) {
		df_cli_progress("algo bench", (uint64_t)turn, (uint64_t)a->turns);
		rc = job(t, (uint64_t)turn);
	}
	df_cli_progress("algo bench", 1, 1);
	for (int k = 0; k < DF_BENCH_KINDS && !rc; k++)
		if (t->b.kinds >> k & 1)
			rc = results(t, k, out);
	if (!rc && a->out)
		rc = write_tuner(out, a->out);
out:
	df_tuner_free(out);
	df_tuner_free(in);
	free(t->ns);
	free(t);
	return rc;
}
