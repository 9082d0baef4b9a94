/*
 * Captured operations: what a group becomes when it is submitted to a capturing stream, and what a
 * replay submits.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/abi.h"
#include "runtime/backend.h"
#include "runtime/executor.h"
#include "runtime/base/env.h"
#include "runtime/base/lock.h"
#include "runtime/base/log.h"
#include "runtime/comm/comm.h"
#include "runtime/comm/flights.h"
#include "runtime/comm/process.h"
#include "runtime/devs.h"
#include "runtime/dfshim.h"
#include "runtime/order/stream.h"
#include "runtime/order/submit.h"
#include "trace/record/writer.h"

/*
 * A node of a graph. A group captured on one stream becomes a node for each operation, one after
 * the other, in the stream's order. The replay of the first node submits all operations of the
 * group, because they wait for one another's peers; each later node only waits for the end of its
 * own.
 */
struct captured {
	struct cap_group *group;
	uint32_t at;
	uint32_t shown;	      /* df_prep.shown */
	struct df_kwait last; /* the end of its last replay; addr NULL: none. dev->lock */
};

struct cap_group {
	uint32_t nr, refs;
	int priority; /* of the stream that captured it */
	struct captured *node;
	struct df_op *op;
};

/*
 * The replay inside this thread's cudaGraphLaunch. Its nodes are launched in the order of their
 * capture.
 */
static __thread struct {
	const struct cap_group *group;
	struct df_flight *flight;
} replaying;

static void cap_put(struct cap_group *g)
{
	uint32_t i;

	/*
	 * ACQ_REL pairs with itself: without it the thread that drops the last reference could free
	 * the group before another thread's last accesses.
	 */
	if (__atomic_sub_fetch(&g->refs, 1, __ATOMIC_ACQ_REL))
		return;
	for (i = 0; i < g->nr; i++)
		df_comm_put(g->op[i].comm);
	free(g->node);
	free(g->op);
	free(g);
}

static int replay_issue(struct cap_group *g, const struct df_arrival *a, struct df_flight *flight)
{
	struct df_replay replay = {.ready = {a->ready, a->value}};
	uint64_t group = df_trace_serial(), stream, launch;
	struct df_prep p;
	uint32_t i, issued = 0;
	int ret = 0;

	df_executor->reserve();
	df_stream_launching(&stream, &launch);
	for (i = 0; i < g->nr && !ret; i++) {
		struct df_dev *dev = g->op[i].comm->dev;

		ret = df_comm_error(g->op[i].comm);
		if (ret)
			break;
		memset(&p, 0, sizeof(p));
		p.si.id = stream;
		p.si.priority = g->priority;
		p.launch = launch;
		p.shown = g->node[i].shown;
		df_submit_sig(&g->op[i], &p.sig);
		p.in_place = g->op[i].send == g->op[i].recv;
		df_mutex_lock(&dev->lock);
		if (a->gates) {
			replay.gate = a->gates[i];
			replay.ready = (struct df_kwait){&replay.gate->arrived, 1};
		}
		replay.previous = g->node[i].last;
		ret = df_submit_issue(&g->op[i], &p, &replay, group, g->nr == 1, &flight[i]);
		if (!ret) {
			issued++;
			g->node[i].last = (struct df_kwait){flight[i].done, flight[i].value};
		}
		df_mutex_unlock(&dev->lock);
	}
	if (ret && issued)
		for (i = 0; i < g->nr; i++)
			df_comm_end(g->op[i].comm, ret, 1);
	df_executor->submitted();
	return ret;
}

static int replay_launch(void *arg, const struct df_arrival *a, const uint64_t **done,
			 uint64_t *done_value)
{
	const struct captured *c = arg;
	struct cap_group *g = c->group;
	int ret = 0;

	if (c->at == 0) {
		free(replaying.flight);
		replaying.group = g;
		replaying.flight = calloc(g->nr, sizeof(*replaying.flight));
		ret = replaying.flight ? replay_issue(g, a, replaying.flight) : -ENOMEM;
	} else if (replaying.group != g) {
		/* Its first node failed, or was removed from the graph. */
		df_warn_once(
			"a graph launches only a part of the collectives that were captured in "
			"one group: the launch fails");
		ret = -EINVAL;
	}
	if (!ret) {
		*done = replaying.flight[c->at].done;
		*done_value = replaying.flight[c->at].value;
	}
	if (ret || c->at + 1 == g->nr) {
		free(replaying.flight);
		replaying.flight = NULL;
		replaying.group = NULL;
	}
	return ret;
}

static void replay_destroy(void *arg)
{
	struct captured *c = arg;

	cap_put(c->group);
}

static int replay_plain(void *arg, const struct df_stream_info *si, int chain);

static const struct df_capture_ops capture_ops = {replay_launch, replay_destroy, replay_plain};

int df_submit_capture(const struct df_op *ops, struct df_prep *p, size_t at, size_t nr_ops)
{
	struct cap_group *g = calloc(1, sizeof(*g));
	void **args;
	uint32_t n = 0;
	size_t i;
	int ret;

	if (!g)
		return -ENOMEM;
	g->refs = 1;
	g->priority = p[at].si.priority;
	g->node = calloc(nr_ops - at, sizeof(*g->node));
	g->op = calloc(nr_ops - at, sizeof(*g->op));
	args = calloc(nr_ops - at, sizeof(*args));
	if (!g->node || !g->op || !args) {
		free(args);
		cap_put(g);
		return -ENOMEM;
	}
	for (i = at; i < nr_ops; i++) {
		if (p[i].captured || p[i].si.stream != p[at].si.stream)
			continue;
		p[i].captured = 1;
		g->node[n].group = g;
		g->node[n].at = n;
		g->node[n].shown = p[i].shown;
		args[n] = &g->node[n];
		df_comm_get(ops[i].comm);
		g->op[n] = ops[i];
		g->op[n++].ticket = NULL; /* a ticket belongs to one instance */
	}
	g->nr = n;
	__atomic_add_fetch(&g->refs, n, __ATOMIC_RELAXED);
	ret = df_backend->capture_nodes(p[at].si.stream, &capture_ops, args, n);
	free(args);
	cap_put(g);
	return ret;
}

/* Submits a captured group as if it were called now, instead of launching its graph. */
static int replay_plain(void *arg, const struct df_stream_info *si, int chain)
{
	const struct captured *c = arg;
	const struct cap_group *g = c->group;
	struct df_prep few[DF_PREP_FEW], *p;
	uint32_t i;
	int ret = 0;

	if (df_rt.strict && !chain)
		return 1;
	if (c->at)
		return 0; /* submitted with the first node of its group */
	p = df_prep_alloc(few, g->nr);
	if (!p)
		return -ENOMEM;
	for (i = 0; i < g->nr && !ret; i++)
		ret = df_submit_prepare(&g->op[i], &p[i], si);
	ret = df_submit_all(g->op, p, ret ? 0 : g->nr, ret);
	if (p != few)
		free(p);
	return ret;
}
