/*
 * Times of an all-reduce of two ranks, on two GPUs if there are two: the daemon's if libdfshim.so
 * is preloaded, else those of the given NCCL. The calls are the same, so that the times can be
 * compared. One figure for each size, and one in a graph.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <unistd.h>
#include "runtime/base/err.h"
#include "runtime/base/time.h"
#include "trace/cli/doctor/doctor.h"

#define NR_RANKS   2
#define FLOAT32	   7
#define LARGEST	   (16u << 20)
#define SMALLEST   8
#define GRAPH_OPS  10
#define FIGURE_NS  (150 * DF_NS_PER_MS)
#define ROUNDS_MAX 2000

static struct {
	void *context, *comm, *stream, *exec;
	uint64_t send, recv;
} ranks[NR_RANKS];

static int all_ended(void)
{
	int r, ret;

	for (r = 0; r < NR_RANKS; r++)
		while ((ret = df_api.stream_query(ranks[r].stream)))
			if (ret != DF_NOT_READY)
				return ret;
	return 0;
}

static int one(size_t bytes)
{
	int r, ret = df_api.group_start();

	for (r = 0; r < NR_RANKS && !ret; r++)
		ret = df_api.all_reduce(ranks[r].send, ranks[r].recv, bytes / 4, FLOAT32, 0,
					ranks[r].comm, ranks[r].stream);
	return ret ?: df_api.group_end();
}

static int replay(size_t unused)
{
	int r, ret = 0;

	(void)unused;
	for (r = 0; r < NR_RANKS && !ret; r++)
		ret = df_api.ctx_set(ranks[r].context)
			      ?: df_api.graph_launch(ranks[r].exec, ranks[r].stream);
	return ret;
}

/*
 * Measures the time of an operation: enqueues 1, 2, 4 ... calls of `ops` operations at once until
 * they take FIGURE_NS.
 */
static int figure(const char *name, int (*put)(size_t), size_t bytes, int ops)
{
	uint64_t since, took = 0;
	int ret = put(bytes) ?: all_ended(), nr = 1, i;

	for (; !ret && took < FIGURE_NS && nr <= ROUNDS_MAX; nr *= 2) {
		since = df_now_ns();
		for (i = 0; i < nr && !ret; i++)
			ret = put(bytes);
		ret = ret ?: all_ended();
		took = df_now_ns() - since;
	}
	if (ret)
		df_doctor_tell("unable\t%s: a call returned %d: %s", name, ret,
			       df_doctor_nccl_error());
	else
		df_doctor_tell("figure\t%s\t%.2f", name, (double)took / 1000 / (nr / 2) / ops);
	return ret;
}

static int capture(void)
{
	void *graph;
	int r, i, ret = 0;

	for (r = 0; r < NR_RANKS && !ret; r++)
		ret = df_api.ctx_set(ranks[r].context) ?: df_api.capture_begin(ranks[r].stream, 2);
	for (i = 0; i < GRAPH_OPS && !ret; i++)
		ret = one(SMALLEST);
	for (r = 0; r < NR_RANKS && !ret; r++)
		ret = df_api.ctx_set(ranks[r].context) ?:
			      df_api.capture_end(ranks[r].stream, &graph) ?:
				      df_api.instantiate(&ranks[r].exec, graph, 0);
	if (ret)
		df_doctor_tell("unable\tgraph: a call returned %d: %s", ret,
			       df_doctor_nccl_error());
	return ret;
}

static int prepare(void)
{
	int nr, device, r, ret = df_api.init(0) ?: df_api.device_count(&nr);
	struct df_nccl_id id;

	for (r = 0; r < NR_RANKS && !ret; r++)
		ret = df_api.device_get(&device, DF_MIN(r, nr - 1)) ?:
			      df_api.retain(&ranks[r].context, device) ?:
				      df_api.ctx_set(ranks[r].context) ?:
					      df_api.stream_create(&ranks[r].stream, 1) ?:
						      df_api.mem_alloc(&ranks[r].send, LARGEST) ?:
							      df_api.mem_alloc(&ranks[r].recv,
									       LARGEST);
	if (ret) {
		df_doctor_tell("unable\tno memory or streams: the driver returned %d", ret);
		return ret;
	}
	ret = df_api.get_id(&id) ?: df_api.group_start();
	for (r = 0; r < NR_RANKS && !ret; r++)
		ret = df_api.ctx_set(ranks[r].context)
			      ?: df_api.comm_init(&ranks[r].comm, NR_RANKS, id, r);
	ret = ret ?: df_api.group_end();
	if (ret)
		df_doctor_tell("unable\tno communicator of two ranks%s: %s",
			       nr < 2 ? " on one GPU" : "", df_doctor_nccl_error());
	return ret;
}

int df_doctor_speed(const struct df_doctor_opts *o)
{
	if (df_doctor_load(o->nccl) || prepare())
		return 1;
	if (figure("8 B", one, SMALLEST, 1) || figure("64 KiB", one, 64u << 10, 1) ||
	    figure("16 MiB", one, LARGEST, 1))
		return 1;
	if (capture() || figure("graph of 8 B", replay, 0, GRAPH_OPS))
		return 1;
	_exit(0);
}
