/*
 * `dfshim algo bench`: times the built-in algorithms on the daemon itself: a job of `dfshim run` for each
 * algorithm (NCCL_ALGO makes it the only one), one process a rank, and one with the runtime's own choice. It
 * prints a table and writes the tuner file that makes the fastest one the choice.
 *
 * Jobs of all algorithms take turns, and each figure is the least of its turns' quartiles: other load of the
 * machine disturbs one turn, not one algorithm.
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
#include "runtime/base/time.h"
#include "runtime/program/tuner.h"
#include "trace/cli/algo.h"
#include "trace/cli/cli.h"
#include "trace/cli/nccl_fn.h"

#define MAX_SIZES 64
#define NR_KINDS  (DF_COLL_ALLTOALL + 1)
#define NR_FLOAT  7 /* ncclFloat */

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

/* Bits of the collectives to measure; all of a list "AllReduce,Broadcast" or "all". */
static int parse_kinds(const char *s, uint32_t *kinds)
{
	char name[32];

	*kinds = s && !strcmp(s, "all") ? (1u << NR_KINDS) - 1 : 0;
	for (s = s ? s : "AllReduce"; !*kinds || *s == ',';) {
		size_t n = strcspn(s += *s == ',', ",");
		int k;

		snprintf(name, sizeof(name), "%.*s", (int)n, s);
		k = df_coll_kind_parse(name);
		if (k < 0 || k >= NR_KINDS)
			return df_cli_usage_error("algo",
						  "--kind: all, or a list of AllReduce, Broadcast, "
						  "Reduce, AllGather, ReduceScatter, AlltoAll");
		*kinds |= 1u << k;
		s += n;
	}
	return 0;
}

/* The request that a size of the larger buffer makes, of floats. */
static struct df_prog_req request(const struct df_algo_args *a, int kind, uint64_t bytes)
{
	struct df_prog_req q = {.kind = (enum df_coll_kind)kind,
				.nranks = a->shape.nranks,
				.nodes = a->shape.nodes,
				.root = a->shape.root,
				.count = 1,
				.elem_bytes = 4,
				.max_blocks = a->max_blocks};

	q.count = DF_MAX(bytes / df_coll_bytes(&q), 1u);
	return q;
}

/* ---- one rank of a job ------------------------------------------------------------------------------------ */

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static int call(const struct df_prog_req *q, void *in, void *out, void *comm, void *stream)
{
	switch (q->kind) {
	case DF_COLL_ALLREDUCE:
		return df_nccl.all_reduce(in, out, q->count, NR_FLOAT, 0, comm, stream);
	case DF_COLL_BROADCAST:
		return df_nccl.broadcast(in, out, q->count, NR_FLOAT, q->root, comm, stream);
	case DF_COLL_REDUCE:
		return df_nccl.reduce(in, out, q->count, NR_FLOAT, 0, q->root, comm, stream);
	case DF_COLL_ALLGATHER:
		return df_nccl.all_gather(in, out, q->count, NR_FLOAT, comm, stream);
	case DF_COLL_REDUCESCATTER:
		return df_nccl.reduce_scatter(in, out, q->count, NR_FLOAT, 0, comm, stream);
	default:
		return df_nccl.all_to_all(in, out, q->count, NR_FLOAT, comm, stream);
	}
}

/* Nanoseconds of one operation, the lower quartile of all rounds; negative: NCCL's or CUDA's error. */
static int64_t time_one(const struct df_prog_req *q, uint64_t rounds, void *comm, void *stream)
{
	uint64_t bytes = DF_MAX(df_coll_bytes(q), 4u), ns[101], nr = DF_MIN(rounds, 101u);
	/* Equal on all ranks. */
	int inner = bytes <= 64 << 10 ? 20 : bytes <= 1 << 20 ? 5 : 1, ret;
	void *in = NULL, *out = NULL;

	ret = df_nccl.malloc(&in, bytes);
	if (!ret)
		ret = df_nccl.malloc(&out, bytes);
	if (!ret)
		ret = df_nccl.memset_async(in, 0, bytes, stream);
	/* The first ones set up connections and touch memory. */
	for (int i = 0; i < 3 && !ret; i++) {
		ret = call(q, in, out, comm, stream);
		if (!ret)
			ret = df_nccl.stream_sync(stream);
	}
	for (uint64_t r = 0; r < nr && !ret; r++) {
		uint64_t t = df_now_ns();

		for (int i = 0; i < inner && !ret; i++) {
			ret = call(q, in, out, comm, stream);
			if (!ret)
				ret = df_nccl.stream_sync(stream);
		}
		ns[r] = (df_now_ns() - t) / (uint64_t)inner;
	}
	df_nccl.free(in);
	df_nccl.free(out);
	if (ret)
		return -ret;
	qsort(ns, nr, sizeof(*ns), by_value);
	return (int64_t)ns[nr / 4];
}

/* dir: where the id is left, and rank 0's results: "KIND BYTES NS" a line. */
static int worker(const struct df_algo_args *a, const char *dir, uint32_t kinds,
		  const uint64_t *size, int nr)
{
	int rank = atoi(getenv("RANK") ?: "0"), device = atoi(getenv("LOCAL_RANK") ?: "0"), ret;
	void *comm = NULL, *stream = NULL;
	struct df_nccl_id id;
	char path[PATH_MAX];
	FILE *f = NULL;

	if (df_nccl_load("algo"))
		return 1;
	if (kinds >> DF_COLL_ALLTOALL & 1 && !df_nccl.all_to_all)
		return df_cli_input_error("algo", "ncclAlltoAll", "is not in this NCCL");
	snprintf(path, sizeof(path), "%s/id", dir);
	ret = df_nccl.set_device(device);
	if (!ret)
		ret = df_nccl_share_id(path, rank, &id);
	if (!ret)
		ret = df_nccl.init(&comm, a->shape.nranks, id, rank);
	if (!ret)
		ret = df_nccl.stream_create(&stream, 1);
	snprintf(path, sizeof(path), "%s/times", dir);
	if (!ret && !rank && !(f = fopen(path, "we")))
		ret = errno;
	for (int k = 0; k < NR_KINDS && !ret; k++) {
		for (int i = 0; i < nr && !ret; i++) {
			struct df_prog_req q = request(a, k, size[i]);
			int64_t ns;

			if (!(kinds >> k & 1))
				continue;
			ns = time_one(&q, a->rounds, comm, stream);
			ret = ns < 0 ? (int)-ns : 0;
			if (f && !ret)
				fprintf(f, "%d %llu %lld\n", k, (unsigned long long)size[i],
					(long long)ns);
		}
	}
	if (!ret)
		ret = df_nccl.destroy(comm);
	if (f)
		fclose(f);
	return ret ? df_cli_input_error("algo", "a rank of the job", "error %d of NCCL or CUDA",
					ret)
		   : 0;
}

/* ---- the jobs --------------------------------------------------------------------------------------------- */

struct table {
	uint64_t size[MAX_SIZES];
	int nr;
	uint64_t ns[DF_ALGO_NR][NR_KINDS]
		   [MAX_SIZES]; /* [0]: the runtime's own choice; 0: not measured */
};

static void environment(const struct df_algo_args *a, int algo)
{
	static const char *const none[] = {"DFSHIM_ALGO",  "DFSHIM_TUNER", "DFSHIM_TRACE",
					   "DFSHIM_STATS", "NCCL_PROTO",   "NCCL_ALGO"};
	char text[32];

	for (unsigned i = 0; i < DF_ARRAY_LEN(none); i++)
		unsetenv(none[i]);
	if (algo)
		setenv("NCCL_ALGO", df_algo_name((enum df_algo)algo), 1);
	else if (a->tuner)
		setenv("DFSHIM_TUNER", a->tuner, 1);
	if (a->shape.nodes > 1) {
		snprintf(text, sizeof(text), "%d", a->shape.gpus);
		setenv("DFSHIM_HOST_NODE_DEVICES", text, 1);
	}
	snprintf(text, sizeof(text), "%u", a->max_blocks);
	setenv("DFSHIM_BLOCKS", text, 1);
}

/* Runs a job and takes in what rank 0 left; the exit status. */
static int job(const struct df_algo_args *a, int algo, const char *kinds, const char *sizes,
	       struct table *t)
{
	char dir[] = "/tmp/dfshim-bench-XXXXXX", self[PATH_MAX], path[PATH_MAX + 8], num[4][24];
	char *args[40];
	ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);
	int n = 0, status = -1, kind;
	unsigned long long bytes, ns;
	pid_t pid;
	FILE *f;

	if (len <= 0 || !mkdtemp(dir))
		return df_cli_input_error("algo", dir, "%s", strerror(errno));
	self[len] = 0;
#define NUM(i, v) (snprintf(num[i], sizeof(num[i]), "%llu", (unsigned long long)(v)), num[i])
#define ARG(s)	  (args[n++] = (char *)(s))
	ARG(self), ARG("run"), ARG("-n"), ARG(NUM(0, a->shape.nranks));
	snprintf(path, sizeof(path), "--host=%d", a->shape.nranks);
	ARG(path), ARG("--timeout"), ARG("60"), ARG("--"), ARG(self), ARG("algo"), ARG("bench");
	ARG("--worker"), ARG(dir), ARG("--nodes"), ARG(NUM(1, a->shape.nodes)), ARG("--gpus");
	ARG(NUM(2, a->shape.gpus)), ARG("--rounds"), ARG(NUM(3, a->rounds)), ARG("--kind");
	ARG(kinds);
	if (sizes)
		ARG("--sizes"), ARG(sizes);
	args[n] = NULL;
#undef NUM
#undef ARG
	fflush(stdout);
	pid = fork();
	if (!pid) {
		environment(a, algo);
		/* What the job says is not the result. */
		dup2(STDERR_FILENO, STDOUT_FILENO);
		execv(self, args);
		_exit(127);
	}
	if (pid > 0)
		waitpid(pid, &status, 0);
	snprintf(path, sizeof(path), "%s/times", dir);
	f = fopen(path, "re");
	while (f && !status && fscanf(f, "%d %llu %llu", &kind, &bytes, &ns) == 3) {
		for (int i = 0; i < t->nr; i++) {
			uint64_t *least = &t->ns[algo][kind][i];

			if (t->size[i] == bytes && (!*least || ns < *least))
				*least = DF_MAX(ns, 1u);
		}
	}
	if (f)
		fclose(f);
	unlink(path);
	snprintf(path, sizeof(path), "%s/id", dir);
	unlink(path);
	rmdir(dir);
	return status ? df_cli_input_error(
				"algo", "dfshim run", "the job of %d ranks ended with status %d",
				a->shape.nranks, WIFEXITED(status) ? WEXITSTATUS(status) : 128)
		      : 0;
}

/* ---- the results ------------------------------------------------------------------------------------------ */

static void print_row(const struct df_algo_args *a, const struct table *t, int kind, int i,
		      int best)
{
	if (!a->json)
		printf("%12llu", (unsigned long long)t->size[i]);
	for (int g = 1; g <= DF_ALGO_NR; g++) {
		int algo = g % DF_ALGO_NR; /* the own choice comes last */
		uint64_t ns = t->ns[algo][kind][i];

		if (a->json && ns)
			printf("{\"kind\":\"%s\",\"ranks\":%d,\"nodes\":%d,\"bytes\":%llu,\"algo\":\"%s\","
			       "\"ns\":%llu}\n",
			       df_coll_kind_name((enum df_coll_kind)kind), a->shape.nranks,
			       a->shape.nodes, (unsigned long long)t->size[i],
			       df_algo_name((enum df_algo)algo), (unsigned long long)ns);
		else if (!a->json && ns)
			printf(" %10.1f", (double)ns / 1e3);
		else if (!a->json)
			printf(" %10s", "-");
	}
	if (!a->json)
		printf("  %s\n", df_algo_name((enum df_algo)best));
}

/* Prints the table of a collective and gives the tuner its rows. */
static int results(const struct df_algo_args *a, const struct table *t, int kind,
		   struct df_tuner *out)
{
	int last = -1, rc = 0;

	if (!a->json) {
		printf("%s, %d ranks on %d node%s, microseconds\n%12s",
		       df_coll_kind_name((enum df_coll_kind)kind), a->shape.nranks, a->shape.nodes,
		       a->shape.nodes > 1 ? "s" : "", "bytes");
		for (int g = 1; g <= DF_ALGO_NR; g++)
			printf(" %10s", df_algo_name((enum df_algo)(g % DF_ALGO_NR)));
		puts("  fastest");
	}
	for (int i = 0; i < t->nr && !rc; i++) {
		int best = 0;

		for (int g = DF_ALGO_RING; g < DF_ALGO_NR; g++)
			if (t->ns[g][kind][i] &&
			    (!best || t->ns[g][kind][i] < t->ns[best][kind][i]))
				best = g;
		print_row(a, t, kind, i, best);
		if (best && best != last)
			rc = df_tuner_add(
				out, (struct df_tune_row){kind, a->shape.nranks, a->shape.nodes,
							  i ? t->size[i] : 0, best, a->max_blocks});
		last = best;
	}
	return rc;
}

int df_algo_bench(const struct df_algo_args *a)
{
	const char *kind = a->kind ? a->kind : "AllReduce";
	struct df_tuner *out = NULL;
	struct table *t;
	uint32_t kinds;
	int rc;

	if (a->nr_files)
		return df_cli_usage_error("algo", "bench takes no file");
	if (a->shape.nranks < 2)
		return df_cli_usage_error("algo", "bench needs two ranks");
	t = calloc(1, sizeof(*t));
	if (!t)
		return df_cli_input_error("algo", "bench", "no memory");
	rc = parse_kinds(kind, &kinds);
	if (!rc)
		rc = parse_sizes(a->sizes, t->size, &t->nr);
	if (!rc && a->worker)
		rc = worker(a, a->worker, kinds, t->size, t->nr);
	if (rc || a->worker)
		goto out;
	for (int turn = 0; turn < a->turns && !rc; turn++) {
		for (int i = 0; i < DF_ALGO_NR && !rc; i++) {
			/* Back and forth, so that none always follows the same one. */
			int g = turn & 1 ? DF_ALGO_NR - 1 - i : i;
			char list[256] = "";

			for (int k = 0; k < NR_KINDS; k++) {
				struct df_prog_req q = request(a, k, 4);

				if (kinds >> k & 1 && (!g || df_algo_has(&q, (enum df_algo)g)))
					snprintf(list + strlen(list), sizeof(list) - strlen(list),
						 "%s%s", *list ? "," : "",
						 df_coll_kind_name(q.kind));
			}
			df_cli_progress("algo bench", (uint64_t)(turn * DF_ALGO_NR + i),
					(uint64_t)(a->turns * DF_ALGO_NR));
			if (*list)
				rc = job(a, g, list, a->sizes, t);
		}
	}
	df_cli_progress("algo bench", 1, 1);
	if (!rc && df_tuner_create(&df_cost_host, &out))
		rc = df_cli_input_error("algo", "bench", "no memory");
	for (int k = 0; k < NR_KINDS && !rc; k++)
		if (kinds >> k & 1)
			rc = results(a, t, k, out);
	if (!rc && a->out) {
		FILE *f = fopen(a->out, "we");

		rc = f ? df_tuner_write(out, f) : -errno;
		if (f && fclose(f) && !rc)
			rc = -EIO;
		if (rc)
			rc = df_cli_input_error("algo", a->out, "%s", strerror(-rc));
	}
out:
	df_tuner_free(out);
	free(t);
	return rc;
}
