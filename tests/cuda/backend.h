/*
 * For tests of the runtime on the GPU backend, over the test driver (tests/cuda/driver). Two ranks
 * on two devices run AllReduces and compare the results.
 */
#ifndef DF_TESTS_BACKEND_H
#define DF_TESTS_BACKEND_H

#include <pthread.h>
#include <string.h>
#include <unistd.h>
#include "runtime/device/cuda/cuda_int.h"
#include "runtime/device/cuda/cuda_daemon.h"
#include "runtime/coll/words.h"
#include "runtime/comm/process.h"
#include "runtime/dfshim.h"
#include "runtime/watch/debt.h"
#include "runtime/order/stream.h"
#include "tests/cuda/daemon_kernel.h"
#include "tests/cuda/load.h"

#define RANKS 2

static const struct fake_cuda *fake;
static int in_place, keep;

static void start(void)
{
	fake = fake_load(NULL);
	fake->kernel("dfk_daemon", daemon_kernel);
	setenv("FAKE_CUDA_DEVICES", "2", 1);
	setenv("DFSHIM_BACKEND", "cuda", 1);
	setenv("DFSHIM_TRACE", "", 1);
	ck_assert_msg(df_start() == 0, "%s", df_start_reason());
	ck_assert(!df_on_host());
	ck_assert_int_eq(df_device_count(), 2);
}

struct rank {
	pthread_t thread;
	int rank, rounds, graph;
	const uint64_t *blocked; /* another stream of the device waits for this word; may be NULL */
	unsigned char id[DF_ID_BYTES];
	float *in, *out;
	size_t count;
	int bad, ret;
};

static struct df_op all_reduce(struct df_comm *comm, const struct rank *r, CUstream s)
{
	return (struct df_op){
		.kind = DF_COLL_ALLREDUCE,
		.comm = comm,
		.send = in_place ? r->out : r->in,
		.recv = r->out,
		.count = r->count,
		.type = DF_FLOAT32,
		.redop = DF_SUM,
		.root = -1,
		.stream = s,
	};
}

/* Creates a communicator of one rank on the first device. */
static inline struct df_comm *comm_new(void)
{
	struct df_comm_config config = {.name = "test"};
	unsigned char id[1][DF_ID_BYTES];
	struct df_comm *comm;

	ck_assert_int_eq(df_id_create(id[0]), 0);
	ck_assert_int_eq(df_comm_create(0, &config, &comm), 0);
	ck_assert_int_eq(df_comm_join(comm, 1, (const void *)id, 1, 0), 0);
	return comm;
}

struct member {
	pthread_t thread;
	int rank;
	unsigned char id[1][DF_ID_BYTES];
	struct df_comm *comm;
};

static inline void *join(void *arg)
{
	struct df_comm_config config = {.name = "test"};
	struct member *m = arg;

	ck_assert_int_eq(df_comm_create(m->rank, &config, &m->comm), 0);
	ck_assert_int_eq(df_comm_join(m->comm, 1, (const void *)m->id, RANKS, m->rank), 0);
	return NULL;
}

/* Creates one communicator of RANKS ranks, one on each device; comm[i] is rank i's handle. */
static inline void comms_new(struct df_comm *comm[RANKS])
{
	struct member m[RANKS] = {{0}};
	unsigned char id[DF_ID_BYTES];
	int i;

	ck_assert_int_eq(df_id_create(id), 0);
	for (i = 0; i < RANKS; i++) {
		m[i].rank = i;
		memcpy(m[i].id[0], id, sizeof(id));
		pthread_create(&m[i].thread, NULL, join, &m[i]);
	}
	for (i = 0; i < RANKS; i++) {
		pthread_join(m[i].thread, NULL);
		comm[i] = m[i].comm;
	}
}

/*
 * Submits a rank's AllReduce on a new stream that waits until *gate is 1. The communicator has only
 * this rank. The last element of r->in is 1, the others are 0. Returns the communicator.
 */
static inline struct df_comm *behind_gate(struct rank *r, const uint64_t *gate,
					  struct df_stream_info *s)
{
	struct df_comm *comm = comm_new();
	struct df_op op;

	r->in = calloc(r->count, sizeof(float));
	r->out = calloc(r->count, sizeof(float));
	r->in[r->count - 1] = 1;
	ck_assert_int_eq(df_cuda_api.stream_new(0, s), 0);
	ck_assert_int_eq(df_cuda_api.stream_wait(s->stream, gate, 1), 0);
	op = all_reduce(comm, r, (CUstream)s->stream->handle);
	ck_assert_int_eq(df_submit(&op, 1), 0);
	return comm;
}

/* Sets *gate, waits until the stream is idle, and checks the last element of the result. */
static inline void open_gate(const struct rank *r, uint64_t *gate, struct df_stream_info *s)
{
	/* RELEASE pairs with the load of *gate by the driver's stream wait. */
	__atomic_store_n(gate, 1, __ATOMIC_RELEASE);
	df_stream_hooks.before_work(s, DF_WORK_KERNEL, NULL);
	while (!df_cuda_api.stream_idle(s->stream))
		usleep(50);
	ck_assert(r->out[r->count - 1] == 1);
}

static void check(struct rank *r, int round)
{
	size_t i;

	for (i = 0; i < r->count; i++)
		if (r->out[i] !=
		    (float)((RANKS * (RANKS + 1) / 2) * (round + 1)) + (float)(i % 7) * RANKS)
			r->bad++;
}

static void fill(struct rank *r, int round)
{
	size_t i;

	for (i = 0; i < r->count; i++)
		(in_place ? r->out : r->in)[i] =
			(float)((r->rank + 1) * (round + 1)) + (float)(i % 7);
}

static void *run(void *arg)
{
	struct rank *r = arg;
	struct df_comm_config config = {.name = "test"};
	const unsigned char(*ids)[DF_ID_BYTES] = (const void *)r->id;
	struct df_stream_info info;
	struct df_comm *comm;
	CUgraph graph = NULL;
	CUgraphExec exec = NULL;
	struct df_op op;
	int i;

	r->ret = df_device_set(r->rank);
	if (!r->ret)
		r->ret = df_comm_create(r->rank, &config, &comm);
	if (!r->ret)
		r->ret = df_comm_join(comm, 1, ids, RANKS, r->rank);
	if (!r->ret)
		r->ret = df_cuda_api.stream_new(r->rank, &info);
	if (!r->ret && r->blocked) {
		struct df_stream_info waits;

		r->ret = df_cuda_api.stream_new(r->rank, &waits);
		if (!r->ret)
			r->ret = df_cuda_api.stream_wait(waits.stream, r->blocked, 1);
	}
	if (r->ret)
		return NULL;
	op = all_reduce(comm, r, (CUstream)info.stream->handle);
	if (r->graph) {
		CUresult (*begin)(CUstream, CUstreamCaptureMode);
		CUresult (*end)(CUstream, CUgraph *);
		CUresult (*make)(CUgraphExec *, CUgraph, unsigned long long);

		*(void **)&begin = dlsym(RTLD_DEFAULT, "cuStreamBeginCapture_v2");
		*(void **)&end = dlsym(RTLD_DEFAULT, "cuStreamEndCapture");
		*(void **)&make = dlsym(RTLD_DEFAULT, "cuGraphInstantiateWithFlags");
		begin(info.stream->handle, CU_STREAM_CAPTURE_MODE_GLOBAL);
		r->ret = df_submit(&op, 1);
		end(info.stream->handle, &graph);
		make(&exec, graph, 0);
		df_cuda_graph_made(exec, graph);
	}
	for (i = 0; i < r->rounds && !r->ret; i++) {
		CUresult (*launch)(CUgraphExec, CUstream);

		fill(r, i);
		if (r->graph) {
			*(void **)&launch = dlsym(RTLD_DEFAULT, "cuGraphLaunch");
			r->ret = df_cuda_graph_launch(exec, info.stream);
			launch(exec, info.stream->handle);
		} else {
			r->ret = df_submit(&op, 1);
			/* Like the hook before work: makes the stream wait for the collective. */
			df_stream_hooks.before_work(&info, DF_WORK_KERNEL, NULL);
		}
		while (!df_cuda_api.stream_idle(info.stream))
			usleep(50);
		check(r, i);
		/* Pause long enough that the daemon kernel sometimes quits. */
		if (i % 5 == 4)
			usleep(20000);
	}
	/* Destroying the communicator makes the daemon kernel leave the device. */
	if (!keep)
		df_comm_destroy(comm);
	return NULL;
}

static inline void *host_memory(int device, size_t bytes)
{
	(void)device;
	return malloc(bytes);
}

static const uint64_t *job_blocked;
/* Allocates the buffers of the device's rank. If this is NULL, host_memory() does. */
static void *(*job_memory)(int device, size_t bytes);

static inline void job(size_t count, int rounds, int graph)
{
	struct rank r[RANKS];
	unsigned char id[DF_ID_BYTES];
	int i;

	ck_assert_int_eq(df_id_create(id), 0);
	for (i = 0; i < RANKS; i++) {
		r[i] = (struct rank){.rank = i, .rounds = rounds, .count = count, .graph = graph};
		r[i].blocked = job_blocked;
		memcpy(r[i].id, id, sizeof(id));
		r[i].in = (job_memory ? job_memory : host_memory)(i, count * sizeof(float));
		r[i].out = (job_memory ? job_memory : host_memory)(i, count * sizeof(float));
		pthread_create(&r[i].thread, NULL, run, &r[i]);
	}
	for (i = 0; i < RANKS; i++) {
		pthread_join(r[i].thread, NULL);
		ck_assert_int_eq(r[i].ret, 0);
		ck_assert_int_eq(r[i].bad, 0);
		/* Buffers from another job_memory() are not freed before the process ends. */
		if (!job_memory || job_memory == host_memory) {
			free(r[i].in);
			free(r[i].out);
		}
	}
}

#endif
