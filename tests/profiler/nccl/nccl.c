/*
 * NCCL as a profiler plugin sees it (nccl.h). As in NCCL, each communicator has a proxy thread,
 * which reports the events of kernels and proxies.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tests/profiler/nccl/nccl.h"

struct work {
	struct work *next;
	void *task; /* handle of its event */
	int proxies, channels, stall;
};

struct fake_comm {
	void *context;
	uint64_t hash, number;
	const char *name;
	int nranks, rank, busy, ends, mask;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	pthread_t proxy;
	struct work *first, *last;
	void *captured[2]; /* handles of the events of calls that a graph has captured */
};

static union {
	const struct df_profiler_v1 *v1;
	const struct df_profiler_v2 *v2;
	const struct df_profiler_v3 *v3;
	const struct df_profiler_v4 *v4;
	const struct df_profiler_v5 *v5;
	const void *any;
} plugin;
static int version;

static __thread struct {
	void *group;
} api;

int fake_load(const char *name, int v)
{
	char text[300];
	void *lib = dlopen(name, RTLD_NOW | RTLD_LOCAL);

	snprintf(text, sizeof(text), "libnccl-profiler-%s.so", name);
	lib = lib ? lib : dlopen(text, RTLD_NOW | RTLD_LOCAL);
	if (!lib) {
		fprintf(stderr, "%s\n", dlerror());
		return 0;
	}
	snprintf(text, sizeof(text), "ncclProfiler_v%d", v);
	plugin.any = dlsym(lib, text);
	version = v;
	return plugin.any != NULL;
}

const struct df_profiler_v5 *fake_v5(void)
{
	return plugin.v5;
}

void *fake_context(struct fake_comm *c)
{
	return c->context;
}

/* ---- the interface, in any version ----------------------------------------------------------- */

/* Reports an event. Drops kinds of events that the plugin's version does not have, as NCCL does. */
static void *start(struct fake_comm *c, const struct df_profiler_v5_event *e)
{
	void *h = NULL;

	if (version >= 5) {
		struct df_profiler_v5_event v = *e;

		plugin.v5->start(c->context, &h, &v);
		return h;
	}
	if (e->type >= DF_PROFILER_GROUP_API || (e->type == DF_PROFILER_KERNEL_CH && version < 3))
		return NULL;
#define COMMON(v)                                                                                  \
	v.type = (uint8_t)e->type;                                                                 \
	v.parent = e->parent;                                                                      \
	v.rank = e->rank;                                                                          \
	if (e->type == DF_PROFILER_COLL)                                                           \
		v.parent = e->coll.group;                                                          \
	if (e->type == DF_PROFILER_P2P)                                                            \
		v.parent = e->p2p.group;                                                           \
	if (e->type == DF_PROFILER_PROXY_OP)                                                       \
		memcpy(&v.proxy_op, &e->proxy_op, sizeof(v.proxy_op));                             \
	if (e->type == DF_PROFILER_PROXY_STEP)                                                     \
	v.proxy_step.step = e->proxy_step.step
#define OLD_COLL(v)                                                                                \
	v.coll.name = c->name;                                                                     \
	v.coll.hash = c->hash;                                                                     \
	v.coll.number = e->coll.is.number;                                                         \
	v.coll.send = e->coll.is.send;                                                             \
	v.coll.recv = e->coll.is.recv;                                                             \
	v.coll.count = e->coll.is.count;                                                           \
	v.coll.root = e->coll.is.root;                                                             \
	v.coll.channels = 16
#define OLD_P2P(v)                                                                                 \
	v.p2p.name = c->name;                                                                      \
	v.p2p.hash = c->hash;                                                                      \
	v.p2p.buffer = e->p2p.is.buffer;                                                           \
	v.p2p.count = e->p2p.is.count;                                                             \
	v.p2p.peer = e->p2p.is.peer
	if (version == 4) {
		struct df_profiler_v4_event v = {0};

		COMMON(v);
		if (e->type == DF_PROFILER_COLL)
			v.coll = e->coll.is;
		if (e->type == DF_PROFILER_P2P)
			v.p2p = e->p2p.is;
		if (e->type == DF_PROFILER_KERNEL_CH)
			v.kernel_ch.channel = e->kernel_ch.channel;
		plugin.v4->start(c->context, &h, &v);
	} else if (version > 1) {
		struct df_profiler_v3_event v = {0};

		COMMON(v);
		if (e->type == DF_PROFILER_COLL) {
			OLD_COLL(v);
			v.coll.func = e->coll.is.func;
			v.coll.type = e->coll.is.type;
		}
		if (e->type == DF_PROFILER_P2P) {
			OLD_P2P(v);
			v.p2p.func = e->p2p.is.func;
			v.p2p.type = e->p2p.is.type;
		}
		if (e->type == DF_PROFILER_KERNEL_CH)
			v.kernel_ch.channel = e->kernel_ch.channel;
		(version == 3 ? plugin.v3->start : plugin.v2->start)(c->context, &h, &v);
	} else {
		/* Numbers of functions as in NCCL 2.23; type 7 is float32. */
		static const char *const funcs[] = {"Broadcast",     "Reduce",	  "AllGather",
						    "ReduceScatter", "AllReduce", "SendRecv",
						    "Send",	     "Recv"};
		struct df_profiler_v1_event v = {0};
		const char *func = e->type == DF_PROFILER_COLL ? e->coll.is.func : e->p2p.is.func;
		uint8_t number = 0;

		COMMON(v);
		while (e->type & (DF_PROFILER_COLL | DF_PROFILER_P2P) &&
		       strcmp(func, funcs[number]))
			number++;
		if (e->type == DF_PROFILER_COLL) {
			OLD_COLL(v);
			v.coll.func = number;
			v.coll.type = 7;
		}
		if (e->type == DF_PROFILER_P2P) {
			OLD_P2P(v);
			v.p2p.func = number;
			v.p2p.type = 7;
		}
		plugin.v1->start(c->context, &h, &v);
	}
	return h;
}

/* stop() and state() are in the same place in all versions. */
static void stop(void *h)
{
	if (h)
		plugin.v5->stop(h);
}

static void state(void *h, int to)
{
	if (h && (version >= 5 || to < 23))
		plugin.v5->state(h, to, NULL);
}

static void *start_proxy_op(struct fake_comm *c, void *task, int channel, int is_send)
{
	struct df_profiler_v5_event e = {
		.type = DF_PROFILER_PROXY_OP, .parent = task, .rank = c->rank};

	e.proxy_op.pid = getpid();
	e.proxy_op.channel = (uint8_t)channel;
	e.proxy_op.peer = (c->rank + (is_send ? 1 : c->nranks - 1)) % c->nranks;
	e.proxy_op.steps = STEPS;
	e.proxy_op.is_send = is_send;
	return start(c, &e);
}

static void *start_step(struct fake_comm *c, void *proxy, int step)
{
	struct df_profiler_v5_event e = {
		.type = DF_PROFILER_PROXY_STEP, .parent = proxy, .rank = c->rank};

	e.proxy_step.step = step;
	return start(c, &e);
}

/* ---- the proxy thread ------------------------------------------------------------------------ */

/* Returns whether the proxy ends. */
static int run_proxy(struct fake_comm *c, void *proxy, int is_send, int channel, int stall)
{
	for (int i = 0; i < STEPS; i++) {
		int stuck = i == 2 && channel == CHANNELS - 1;
		void *step = start_step(c, proxy, i);

		state(step, is_send ? DF_PROFILER_SEND_GPU_WAIT : DF_PROFILER_RECV_WAIT);
		while (stall == STALL_RECV_AGAIN && stuck && !is_send) {
			step = start_step(c, proxy, i);
			state(step, DF_PROFILER_RECV_WAIT);
			usleep(1000);
		}
		/* A rank that receives no data has none to send. */
		if ((stall == STALL_SEND_GPU && is_send) || (stall == STALL_RECV_NET && stuck))
			return 0;
		/* NCCL repeats this state while there is no room. */
		if (version >= 4 && is_send)
			state(step, DF_PROFILER_SEND_PEER_WAIT);
		state(step, is_send ? DF_PROFILER_SEND_WAIT : DF_PROFILER_RECV_FLUSH_WAIT);
		if (stall == STALL_SEND_NET && is_send && stuck)
			return 0;
		if (!is_send)
			state(step, DF_PROFILER_RECV_GPU_WAIT);
		stop(step);
	}
	stop(proxy);
	return 1;
}

static void run(struct fake_comm *c, const struct work *w)
{
	void *proxies[2][CHANNELS], *kernel[CHANNELS];
	int ends = w->stall == NO_STALL;

	for (int ch = 0; ch < w->channels; ch++)
		for (int s = 0; s < 2 && w->proxies; s++)
			proxies[s][ch] = start_proxy_op(c, w->task, ch, s);
	for (int ch = 0; ch < w->channels; ch++) {
		struct df_profiler_v5_event e = {.type = DF_PROFILER_KERNEL_CH, .parent = w->task};

		e.kernel_ch.channel = (uint8_t)ch;
		kernel[ch] = start(c, &e);
	}
	for (int ch = 0; ch < w->channels; ch++)
		for (int s = 0; s < 2 && w->proxies; s++)
			run_proxy(c, proxies[s][ch], s, ch, w->stall);
	for (int ch = 0; ch < w->channels && ends; ch++) {
		state(kernel[ch], 22);
		stop(kernel[ch]);
	}
}

static void *proxy_thread(void *arg)
{
	struct fake_comm *c = arg;
	struct work *w;

	pthread_setname_np(pthread_self(), "NCCL Progress");
	pthread_mutex_lock(&c->lock);
	while (!c->ends || c->first) {
		w = c->first;
		if (!w) {
			pthread_cond_wait(&c->changed, &c->lock);
			continue;
		}
		c->first = w->next;
		c->busy++;
		pthread_mutex_unlock(&c->lock);
		run(c, w);
		free(w);
		pthread_mutex_lock(&c->lock);
		c->busy--;
		pthread_cond_broadcast(&c->changed);
	}
	pthread_mutex_unlock(&c->lock);
	return NULL;
}

static void upload(struct fake_comm *c, void *task, int channels, int proxies, int stall)
{
	struct work *w = calloc(1, sizeof(*w));

	w->task = task;
	w->channels = channels;
	w->proxies = proxies;
	w->stall = stall;
	pthread_mutex_lock(&c->lock);
	if (c->first)
		c->last->next = w;
	else
		c->first = w;
	c->last = w;
	pthread_cond_broadcast(&c->changed);
	pthread_mutex_unlock(&c->lock);
}

void fake_sync(struct fake_comm *c)
{
	pthread_mutex_lock(&c->lock);
	while (c->first || c->busy)
		pthread_cond_wait(&c->changed, &c->lock);
	pthread_mutex_unlock(&c->lock);
}

/* ---- communicators --------------------------------------------------------------------------- */

struct fake_comm *fake_comm(uint64_t hash, const char *name, int nranks, int rank)
{
	struct fake_comm *c = calloc(1, sizeof(*c));

	c->hash = hash;
	c->name = name;
	c->nranks = nranks;
	c->rank = rank;
	pthread_mutex_init(&c->lock, NULL);
	pthread_cond_init(&c->changed, NULL);
	if (version < 4)
		plugin.v1->init(&c->context, &c->mask);
	else if (version == 4)
		plugin.v4->init(&c->context, &c->mask, name, hash, nranks, nranks, rank, NULL);
	else
		plugin.v5->init(&c->context, hash, &c->mask, name, nranks, nranks, rank, NULL);
	pthread_create(&c->proxy, NULL, proxy_thread, c);
	return c;
}

void fake_abort(struct fake_comm *c)
{
	plugin.v5->finalize(c->context);
	c->context = NULL;
}

void fake_destroy(struct fake_comm *c)
{
	pthread_mutex_lock(&c->lock);
	c->ends = 1;
	pthread_cond_broadcast(&c->changed);
	pthread_mutex_unlock(&c->lock);
	pthread_join(c->proxy, NULL);
	plugin.v5->finalize(c->context);
	free(c);
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* `depth` is ncclGroupDepth when the first operation is appended; 1 without a group. */
static void group_api_start(struct fake_comm *c, int depth, int captured)
{
	struct df_profiler_v5_event e = {.type = DF_PROFILER_GROUP_API};

	if (!c->mask || api.group)
		return;
	e.group_api.depth = depth;
	e.group_api.captured = captured;
	api.group = start(c, &e);
	state(api.group, 23);
}

static void *coll_api(struct fake_comm *c, const char *func, size_t count, int root, int captured)
{
	struct df_profiler_v5_event e = {.type = DF_PROFILER_COLL_API, .parent = api.group};
	void *h;

	if (!c->mask)
		return NULL;
	e.coll_api.func = func;
	e.coll_api.count = count;
	e.coll_api.type = "ncclFloat32";
	e.coll_api.root = root;
	e.coll_api.stream = (void *)0x10;
	e.coll_api.captured = captured;
	h = start(c, &e);
	stop(h);
	return h;
}

static void *p2p_api(struct fake_comm *c, const char *func, size_t count, int captured)
{
	struct df_profiler_v5_event e = {.type = DF_PROFILER_P2P_API, .parent = api.group};
	void *h;

	if (!c->mask)
		return NULL;
	e.p2p_api.func = func;
	e.p2p_api.count = count;
	e.p2p_api.type = "ncclFloat32";
	e.p2p_api.stream = (void *)0x10;
	e.p2p_api.captured = captured;
	h = start(c, &e);
	stop(h);
	return h;
}

static void *plan_start(struct fake_comm *c)
{
	struct df_profiler_v5_event e = {.type = DF_PROFILER_GROUP};

	return c->mask ? start(c, &e) : NULL;
}

static void *coll(struct fake_comm *c, void *plan, void *parent, const char *func, size_t count,
		  int root)
{
	struct df_profiler_v5_event e = {
		.type = DF_PROFILER_COLL, .parent = parent, .rank = c->rank};
	int bytes = !strcmp(func, "AllGather") || !strcmp(func, "Broadcast");

	/* Up to version 2.27 NCCL reports tasks only as children of a plan's event. */
	if (!c->mask || !plan)
		return NULL;
	e.coll.group = plan;
	e.coll.is.number = c->number++;
	e.coll.is.func = func;
	e.coll.is.count = bytes ? count * 4 : count;
	e.coll.is.type = bytes ? "ncclInt8" : "ncclFloat32";
	e.coll.is.root = root;
	e.coll.is.channels = CHANNELS;
	e.coll.is.algo = "RING";
	e.coll.is.proto = "SIMPLE";
	return start(c, &e);
}

static void *p2p(struct fake_comm *c, void *plan, void *parent, const char *func, size_t count,
		 int peer)
{
	struct df_profiler_v5_event e = {
		.type = DF_PROFILER_P2P, .parent = parent, .rank = c->rank};

	if (!c->mask || !plan)
		return NULL;
	e.p2p.group = plan;
	e.p2p.is.func = func;
	e.p2p.is.count = count;
	e.p2p.is.type = "ncclFloat32";
	e.p2p.is.peer = peer;
	/* A short message uses one of these channels. */
	e.p2p.is.channels = 4;
	return start(c, &e);
}

static void group_api_end(void)
{
	stop(api.group);
	api.group = NULL;
}

void fake_coll(struct fake_comm *c, const char *func, size_t count, int root, int proxies,
	       enum stall stall, int captured)
{
	void *parent, *plan, *task;

	group_api_start(c, 1, captured);
	parent = coll_api(c, func, count, root, captured);
	state(api.group, 24);
	if (captured)
		c->captured[0] = parent;
	while (stall == STALL_CONNECT)
		pause();
	if (stall == STALL_LATE)
		group_api_end();
	if (!captured && stall != NO_KERNEL) {
		plan = plan_start(c);
		task = coll(c, plan, parent, func, count, root);
		if (task)
			upload(c, task, CHANNELS, proxies,
			       stall == STALL_LATE ? STALL_KERNEL : stall);
		stop(task);
		stop(plan);
	}
	group_api_end();
}

static void *callback(void *arg)
{
	void **v = arg;
	struct fake_comm *c = v[0];
	void *plan = plan_start(c), *task = coll(c, plan, c->captured[0], v[1], *(size_t *)v[2], 0);

	if (task)
		upload(c, task, CHANNELS, 0, NO_STALL);
	stop(task);
	stop(plan);
	return NULL;
}

/* A host function of the graph reports the graph's operations, on a thread of CUDA. */
void fake_replay(struct fake_comm *c, const char *func, size_t count)
{
	void *args[] = {c, (void *)(uintptr_t)func, &count};
	pthread_t t;

	pthread_create(&t, NULL, callback, args);
	pthread_join(t, NULL);
}

void fake_two(struct fake_comm *a, struct fake_comm *b)
{
	struct fake_comm *comms[] = {a, b};
	void *parents[2];

	for (int i = 0; i < 2; i++) {
		group_api_start(comms[i], 2, 0);
		parents[i] = coll_api(comms[i], "AllReduce", 64, 0, 0);
	}
	state(api.group, 24);
	for (int i = 0; i < 2; i++) {
		void *plan = plan_start(comms[i]);
		void *task = coll(comms[i], plan, parents[i], "AllReduce", 64, 0);

		if (task)
			upload(comms[i], task, CHANNELS, 0, NO_STALL);
		stop(task);
		stop(plan);
	}
	group_api_end();
}

static void launch_exchange(struct fake_comm *c, void *const parents[2], int to, int from,
			    size_t count)
{
	void *plan = plan_start(c), *tasks[2];

	tasks[0] = p2p(c, plan, parents[0], "Send", count, to);
	tasks[1] = p2p(c, plan, parents[1], "Recv", count, from);
	for (int i = 0; i < 2; i++)
		if (tasks[i])
			upload(c, tasks[i], 1, 0, NO_STALL);
	for (int i = 0; i < 2; i++)
		stop(tasks[i]);
	stop(plan);
}

void fake_exchange(struct fake_comm *c, int to, int from, size_t count, int captured)
{
	void *parents[2];

	group_api_start(c, 2, captured);
	parents[0] = p2p_api(c, "Send", count, captured);
	parents[1] = p2p_api(c, "Recv", count, captured);
	state(api.group, 24);
	if (captured)
		memcpy(c->captured, parents, sizeof(parents));
	else
		launch_exchange(c, parents, to, from, count);
	group_api_end();
}

void fake_replay_exchange(struct fake_comm *c, int to, int from, size_t count)
{
	launch_exchange(c, c->captured, to, from, count);
}

void fake_alltoall(struct fake_comm *c, size_t count)
{
	void **tasks = calloc(4 * (size_t)c->nranks, sizeof(*tasks));
	void **parents = tasks + 2 * c->nranks, *plan;

	group_api_start(c, 1, 0);
	for (int i = 0; i < 2 * c->nranks; i++)
		parents[i] = p2p_api(c, i % 2 ? "Recv" : "Send", count, 0);
	state(api.group, 24);
	plan = plan_start(c);
	for (int i = 0; i < 2 * c->nranks; i++)
		tasks[i] = p2p(c, plan, parents[i], i % 2 ? "Recv" : "Send", count, i / 2);
	for (int i = 0; i < 2 * c->nranks; i++) {
		/* The kernel of a message to the rank itself is reported for the receive. */
		if (tasks[i] && (i % 2 || i / 2 != c->rank))
			upload(c, tasks[i], 1, 0, NO_STALL);
		stop(tasks[i]);
	}
	stop(plan);
	group_api_end();
	free(tasks);
}
