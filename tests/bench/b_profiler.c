/*
 * Measures the cost of NCCL's profiler plugin: the nanoseconds for all events of one collective on
 * NCCL's launching thread and its proxy thread, for one step of a proxy, and for a message of an
 * exchange of 1,024 ranks. `b_profiler [GLOB]` runs the figures whose names match.
 */
#include <dlfcn.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "interpose/profiler/nccl_profiler.h"

#define ROUNDS	 200
#define BATCH	 1000
#define CHANNELS 16
#define STEPS	 64
#define PEERS	 1024

static const struct df_profiler_v5 *p;
static void *context;

static double now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec * 1e9 + (double)ts.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void *start(int type, void *parent, struct df_profiler_v5_event *e)
{
	void *h = NULL;

	e->type = (uint64_t)type;
	e->parent = parent;
	p->start(context, &h, e);
	return h;
}

/* Reports the events that NCCL reports for a call and its launch. */
static void *launch(void)
{
	struct df_profiler_v5_event e = {0};
	void *group, *call, *plan, *op;

	e.group_api.depth = 1;
	group = start(DF_PROFILER_GROUP_API, NULL, &e);
	p->state(group, 23, NULL);
	memset(&e, 0, sizeof(e));
	e.coll_api.func = "AllReduce";
	e.coll_api.type = "ncclFloat32";
	call = start(DF_PROFILER_COLL_API, group, &e);
	p->stop(call);
	p->state(group, 24, NULL);
	memset(&e, 0, sizeof(e));
	plan = start(DF_PROFILER_GROUP, NULL, &e);
	e.coll.is.func = "AllReduce";
	e.coll.is.type = "ncclFloat32";
	e.coll.is.channels = CHANNELS;
	e.coll.group = plan;
	op = start(DF_PROFILER_COLL, call, &e);
	p->stop(op);
	p->stop(plan);
	p->stop(group);
	return op;
}

static void kernels(void *op)
{
	struct df_profiler_v5_event e = {0};
	void *h[CHANNELS];

	for (int i = 0; i < CHANNELS; i++)
		h[i] = start(DF_PROFILER_KERNEL_CH, op, &e);
	for (int i = 0; i < CHANNELS; i++) {
		p->state(h[i], 22, NULL);
		p->stop(h[i]);
	}
}

static void steps(void)
{
	struct df_profiler_v5_event e = {0};
	void *proxy, *step;

	e.proxy_op.pid = getpid();
	e.proxy_op.steps = STEPS;
	proxy = start(DF_PROFILER_PROXY_OP, NULL, &e);
	for (int i = 0; i < STEPS; i++) {
		e.proxy_step.step = i;
		step = start(DF_PROFILER_PROXY_STEP, proxy, &e);
		p->state(step, DF_PROFILER_SEND_GPU_WAIT, NULL);
		p->state(step, DF_PROFILER_SEND_PEER_WAIT, NULL);
		p->state(step, DF_PROFILER_SEND_WAIT, NULL);
		p->stop(step);
	}
	p->stop(proxy);
}

/* Reports all messages of one call: their launch, their proxies and their kernels. */
static void exchange(void)
{
	static void *ops[2 * PEERS], *proxies[2 * PEERS], *kernel[2 * PEERS];
	struct df_profiler_v5_event e = {0};
	void *group, *plan;

	e.group_api.depth = 2;
	group = start(DF_PROFILER_GROUP_API, NULL, &e);
	for (int i = 0; i < 2 * PEERS; i++) {
		memset(&e, 0, sizeof(e));
		e.p2p_api.func = i % 2 ? "Recv" : "Send";
		e.p2p_api.type = "ncclFloat32";
		ops[i] = start(DF_PROFILER_P2P_API, group, &e);
		p->stop(ops[i]);
	}
	p->state(group, 24, NULL);
	memset(&e, 0, sizeof(e));
	plan = start(DF_PROFILER_GROUP, NULL, &e);
	for (int i = 0; i < 2 * PEERS; i++) {
		e.p2p.group = plan;
		e.p2p.is.func = i % 2 ? "Recv" : "Send";
		e.p2p.is.type = "ncclFloat32";
		e.p2p.is.peer = i / 2;
		ops[i] = start(DF_PROFILER_P2P, ops[i], &e);
		p->stop(ops[i]);
	}
	p->stop(plan);
	p->stop(group);
	memset(&e, 0, sizeof(e));
	for (int i = 0; i < 2 * PEERS; i++) {
		e.proxy_op.pid = getpid();
		e.proxy_op.peer = i / 2;
		e.proxy_op.is_send = !(i % 2);
		e.proxy_op.steps = 1;
		proxies[i] = start(DF_PROFILER_PROXY_OP, ops[i], &e);
		memset(&e, 0, sizeof(e));
		kernel[i] = start(DF_PROFILER_KERNEL_CH, ops[i], &e);
	}
	for (int i = 0; i < 2 * PEERS; i++) {
		p->stop(kernel[i]);
		p->stop(proxies[i]);
	}
}

static double per[4][ROUNDS];

static void figure(const char *glob, const char *name, double *of, double unit, double target)
{
	int nr = 0;

	for (int i = 0; i < ROUNDS; i++)
		if (of[i] > 0)
			of[nr++] = of[i];
	qsort(of, (size_t)nr, sizeof(*of), by_value);
	if (!fnmatch(glob, name, 0))
		printf("BENCH %s %.0f ns target <%.0f %s\n", name, of[nr / 2] / unit, target,
		       of[nr / 2] / unit < target ? "ok" : "MISS");
}

int main(int argc, char **argv)
{
	static void *ops[BATCH];
	const char *glob = argc > 1 ? argv[1] : "*", *b = getenv("B");
	char dir[] = "/tmp/b_profiler.XXXXXX", path[4096];
	int mask;
	void *lib;

	if (!mkdtemp(dir))
		return 1;
	setenv("DFSHIM_TRACE", dir, 1);
	snprintf(path, sizeof(path), "%s/libnccl-profiler-dfshim.so", b ? b : "build");
	lib = dlopen(path, RTLD_NOW);
	p = lib ? dlsym(lib, "ncclProfiler_v5") : NULL;
	if (!p || p->init(&context, 1, &mask, "bench", 1, 1, 0, NULL) || !context) {
		fprintf(stderr, "%s: no plugin\n", path);
		return 1;
	}
	for (int r = 0; r < ROUNDS; r++) {
		double t[5];

		t[0] = now_ns();
		for (int i = 0; i < BATCH; i++)
			ops[i] = launch();
		t[1] = now_ns();
		for (int i = 0; i < BATCH; i++)
			kernels(ops[i]);
		t[2] = now_ns();
		for (int i = 0; i < BATCH / 10; i++)
			steps();
		t[3] = now_ns();
		if (r % 10 == 0)
			exchange();
		t[4] = now_ns();
		for (int i = 0; i < 3 + (r % 10 == 0); i++)
			per[i][r] = t[i + 1] - t[i];
	}
	figure(glob, "profiler_call", per[0], BATCH, 1500);
	figure(glob, "profiler_kernel_16_channels", per[1], BATCH, 3000);
	figure(glob, "profiler_proxy_step", per[2], BATCH / 10 * STEPS, 300);
	figure(glob, "profiler_message_of_1024_peers", per[3], 2 * PEERS, 5000);
	snprintf(path, sizeof(path), "rm -rf %s", dir);
	return system(path) ? 1 : 0;
}
