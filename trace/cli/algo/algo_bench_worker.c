/*
 * One rank of a job of `dfshim algo bench` (algo_bench.h). One thread; calls NCCL and CUDA by name.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime/base/err.h"
#include "runtime/base/time.h"
#include "trace/cli/algo/algo_bench.h"
#include "trace/cli/common/cli.h"
#include "trace/cli/run/nccl_fn.h"

#define NR_FLOAT 7 /* ncclFloat */

struct rank {
	const struct df_bench *b;
	void *comm, *stream, *in, *out, *word;
	FILE *times;
};

static int call(const struct rank *r, const struct df_prog_req *q)
{
	void *in = r->in, *out = r->out, *comm = r->comm, *stream = r->stream;

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

/* Runs `nr` operations, each after the one before is done. Returns NCCL's or CUDA's error. */
static int calls(const struct rank *r, const struct df_prog_req *q, int nr)
{
	int ret = 0;

	for (int i = 0; i < nr && !ret; i++) {
		ret = call(r, q);
		if (!ret)
			ret = df_nccl.stream_sync(r->stream);
	}
	return ret;
}

/*
 * Waits until all ranks have finished. A collective with a root may finish on some ranks before it
 * does on the others, so the clock is not stopped before.
 */
static int meet(const struct rank *r, int kind)
{
	int ret = 0;

	if (kind == DF_COLL_BROADCAST || kind == DF_COLL_REDUCE) {
		ret = df_nccl.all_reduce(r->word, r->word, 1, NR_FLOAT, 0, r->comm, r->stream);
		ret = ret ? ret : df_nccl.stream_sync(r->stream);
	}
	return ret;
}

static int one_size(struct rank *r, int kind, int size)
{
	const struct df_algo_args *a = r->b->args;
	struct df_bench_cand cand[DF_BENCH_CANDS];
	struct df_prog_req q[DF_BENCH_CANDS];
	int nr = df_bench_cands(r->b, kind, cand), ret, inner;
	uint64_t most = 0;

	for (int c = 0; c < nr; c++) {
		q[c] = df_bench_request(r->b, kind, size, c, nr, a->seed);
		most = DF_MAX(most, df_coll_bytes(&q[c]));
	}
	/* Must be equal on all ranks. */
	inner = most <= 64 << 10 ? 20 : most <= 1 << 20 ? 5 : 1;
	ret = df_nccl.malloc(&r->in, most);
	if (!ret)
		ret = df_nccl.malloc(&r->out, most);
	if (!ret)
		ret = df_nccl.memset_async(r->in, 0, most, r->stream);
	/* The first calls set up connections and touch memory. */
	for (int c = 0; c < nr && !ret; c++)
		ret = calls(r, &q[c], 3);
	for (uint64_t k = 0; k < a->rounds && !ret; k++) {
		for (int i = 0; i < nr && !ret; i++) {
			/*
			 * Alternate the direction, and start with another candidate each time, so
			 * that no candidate always follows the same one.
			 */
			int c = (int)((k / 2 + (uint64_t)(k & 1 ? nr - i : i)) % (uint64_t)nr);
			uint64_t t;

			/*
			 * An uncounted call first: the previous candidate's data in caches, and
			 * ranks still in it, do not count.
			 */
			ret = calls(r, &q[c], 1);
			ret = ret ? ret : meet(r, kind);
			t = df_now_ns();
			ret = ret ? ret : calls(r, &q[c], inner);
			ret = ret ? ret : meet(r, kind);
			fprintf(r->times, "%d %d %d %llu %llu\n", kind, size, c,
				(unsigned long long)k,
				(unsigned long long)((df_now_ns() - t) / (uint64_t)inner));
		}
	}
	df_nccl.free(r->in);
	df_nccl.free(r->out);
	return ret;
}

int df_bench_worker(const struct df_bench *b, const char *dir)
{
	int rank = atoi(getenv("RANK") ?: "0"), device = atoi(getenv("LOCAL_RANK") ?: "0"), ret;
	struct rank r = {.b = b};
	struct df_nccl_id id;
	char path[PATH_MAX];

	if (df_nccl_load("algo"))
		return 1;
	if (b->kinds >> DF_COLL_ALLTOALL & 1 && !df_nccl.all_to_all)
		return df_cli_input_error("algo", "ncclAlltoAll", "this NCCL does not have it");
	snprintf(path, sizeof(path), "%s/times.%d", dir, rank);
	r.times = fopen(path, "we");
	if (!r.times)
		return df_cli_input_error("algo", path, "cannot be written (error %d)", errno);
	snprintf(path, sizeof(path), "%s/id", dir);
	ret = df_nccl.set_device(device);
	if (!ret)
		ret = df_nccl_share_id(path, rank, &id);
	if (!ret)
		ret = df_nccl.init(&r.comm, b->args->shape.nranks, id, rank);
	if (!ret)
		ret = df_nccl.stream_create(&r.stream, 1);
	if (!ret)
		ret = df_nccl.malloc(&r.word, sizeof(float));
	if (!ret)
		ret = df_nccl.memset_async(r.word, 0, sizeof(float), r.stream);
	for (int k = 0; k < DF_BENCH_KINDS; k++)
		for (int i = 0; i < b->nr_sizes && b->kinds >> k & 1 && !ret; i++)
			ret = one_size(&r, k, i);
	df_nccl.free(r.word);
	if (!ret)
		ret = df_nccl.destroy(r.comm);
	if (fclose(r.times) && !ret)
		ret = errno;
	return ret ? df_cli_input_error("algo", "a rank of the job", "error %d of NCCL or CUDA",
					ret)
		   : 0;
}
