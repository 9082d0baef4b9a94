/*
 * Captured operations: turns a group into graph nodes when it is submitted to a capturing stream,
 * and submits its operations when the graph is replayed.
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
#include "runtime/order/waits.h"
#include "trace/record/writer.h"

/*
 * A node of a graph. A group is captured as a node for each operation; the nodes on one stream
 * follow one another. The first node that a launch reaches submits all operations of the group,
 * because they wait for one another's peers, and because NCCL may need them in one group. The other
 * nodes only wait for the end of their own operation.
 */
struct captured {
	struct cap_group *group;
	uint32_t at;
	uint32_t shown;		     /* df_prep.shown */
	const struct df_mstream *on; /* the stream that captured it; only compared */
	struct df_kwait last;	     /* the end of its last replay; addr NULL: none. dev->lock */
};

/* A replay of a group, in one launch of a graph. Only the thread that launches it uses it. */
struct cap_replay {
	struct cap_replay *next;
	const char *thread;
	uint64_t launch;	     /* serial of the launch */
	uint32_t prepared, launched; /* numbers of nodes */
	struct cap_node {
		struct df_arrival arrival;
		struct df_replayed turn;
	} node[];
};

struct cap_group {
	uint32_t nr, refs;
	int priority; /* priority of the stream that captured the operation */
	struct captured *node;
	struct df_op *op;
	/*
	 * replays that are being launched, and replays whose launch has failed; guarded by
	 * replays_lock
	 */
	struct cap_replay *replays;
};

static __thread char this_thread;
static struct df_mutex replays_lock = DF_MUTEX_INIT(DF_RANK_LEAF, "replays of captured groups");

static void cap_put(struct cap_group *g)
{
	struct cap_replay *r;
	uint32_t i;

	/*
	 * ACQ_REL pairs with itself: without it the thread that drops the last reference could free
	 * the group before another thread's last accesses.
	 */
	if (__atomic_sub_fetch(&g->refs, 1, __ATOMIC_ACQ_REL))
		return;
	for (i = 0; i < g->nr; i++)
		df_comm_put(g->op[i].comm);
	while ((r = g->replays)) {
		g->replays = r->next;
		free(r);
	}
	free(g->node);
	free(g->op);
	free(g);
}

static int issue(struct cap_group *g, uint32_t i, struct df_prep *p, uint64_t group,
		 struct cap_node *node)
{
	struct df_replay replay = {.ready = {node->arrival.ready, node->arrival.value},
				   .gate = node->arrival.gate,
				   .opens = &node->turn.opens};
	struct df_dev *dev = g->op[i].comm->dev;
	struct df_flight flight;
	int ret;

	if (replay.gate)
		replay.ready = (struct df_kwait){&replay.gate->arrived, 1};
	df_mutex_lock(&dev->lock);
	replay.previous = g->node[i].last;
	ret = df_submit_issue(&g->op[i], p, &replay, group, g->nr == 1, &flight);
	if (!ret) {
		g->node[i].last = (struct df_kwait){flight.done, flight.value};
		node->turn.done = flight.done;
		node->turn.value = flight.value;
	}
	df_mutex_unlock(&dev->lock);
	return ret;
}

/* Submits all operations of the group. Returns 0, or -errno if no operation was submitted. */
static int issue_all(struct cap_group *g, struct cap_replay *r)
{
	static const uint64_t zero;
	uint64_t group = df_trace_serial(), stream, launch;
	struct df_mstream *on = df_stream_launching(&stream, &launch);
	struct df_flight f = {0};
	struct df_prep p;
	uint32_t i, issued;
	int ret = 0;

	df_executor->reserve();
	for (i = 0; i < g->nr && !ret; i += !ret) {
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
		ret = issue(g, i, &p, group, &r->node[i]);
	}
	issued = i;
	/* The graph waits for them. */
	for (i = 0; i < issued; i++) {
		f.done = r->node[i].turn.done;
		f.value = r->node[i].turn.value;
		if (r->node[i].arrival.gate)
			df_waits_note(g->op[i].comm->dev->index, on, g->node[i].on, &f, 1);
	}
	/*
	 * The operations that were not submitted have ended with their communicators. No executor
	 * opens their gates, so open them here.
	 */
	for (; i < g->nr; i++)
		r->node[i].turn = (struct df_replayed){&zero, 0, UINT64_MAX};
	for (i = 0; ret && issued && i < g->nr; i++)
		df_comm_end(g->op[i].comm, ret, 1);
	df_executor->submitted();
	return issued ? 0 : ret;
}

/*
 * Returns this thread's replay of which a node is to be launched, or else prepared, next. Returns
 * NULL if there is none. Drops replays of this thread's earlier launches that failed. The caller
 * holds the lock.
 */
static struct cap_replay *find_replay(struct cap_group *g, int to_launch)
{
	struct cap_replay **p = &g->replays, *r;
	uint64_t stream, launch;

	df_stream_launching(&stream, &launch);
	while ((r = *p)) {
		if (r->thread == &this_thread && r->launch != launch) {
			*p = r->next;
			free(r);
			continue;
		}
		/*
		 * A graph may contain the same child several times: these are replayed one after
		 * the other.
		 */
		if (r->thread == &this_thread && (to_launch || r->prepared < g->nr))
			return r;
		p = &r->next;
	}
	if (to_launch)
		return NULL;
	r = calloc(1, sizeof(*r) + g->nr * sizeof(r->node[0]));
	if (r) {
		r->thread = &this_thread;
		r->launch = launch;
		*p = r;
	}
	return r;
}

static void drop_replay(struct cap_group *g, struct cap_replay *r)
{
	struct cap_replay **p;

	df_mutex_lock(&replays_lock);
	for (p = &g->replays; *p != r;)
		p = &(*p)->next;
	*p = r->next;
	df_mutex_unlock(&replays_lock);
	free(r);
}

static int replay_prepare(void *arg, const struct df_arrival *a)
{
	const struct captured *c = arg;
	struct cap_group *g = c->group;
	struct cap_replay *r;
	int ret = df_comm_error(g->op[c->at].comm);

	if (ret)
		return ret;
	df_mutex_lock(&replays_lock);
	r = find_replay(g, 0);
	df_mutex_unlock(&replays_lock);
	if (!r)
		return -ENOMEM;
	r->prepared++;
	r->node[c->at].arrival = *a;
	return 0;
}

static int replay_launch(void *arg, const struct df_arrival *a, struct df_replayed *turn)
{
	const struct captured *c = arg;
	struct cap_group *g = c->group;
	struct cap_replay *r;
	int ret = 0;

	(void)a;
	df_mutex_lock(&replays_lock);
	r = find_replay(g, 1);
	df_mutex_unlock(&replays_lock);
	if (!r || r->prepared < g->nr) {
		df_warn_once(
			"a graph launches only a part of the collectives that were captured in "
			"one group: the launch fails");
		return -EINVAL;
	}
	if (!r->launched++)
		ret = issue_all(g, r);
	*turn = r->node[c->at].turn;
	if (ret || r->launched == g->nr)
		drop_replay(g, r);
	return ret;
}

static void replay_lost(void *arg)
{
	const struct captured *c = arg;

	df_comm_end(c->group->op[c->at].comm, -EIO, 1);
}

static void replay_destroy(void *arg)
{
	struct captured *c = arg;

	cap_put(c->group);
}

static int replay_plain(void *arg, const struct df_stream_info *si, int chain);

static const struct df_capture_ops capture_ops = {replay_prepare, replay_launch, replay_lost,
						  replay_destroy, replay_plain};

/*
 * Finds the operations that are captured together with ops[at]. Operations on one stream follow one
 * another, and the real NCCL may have to execute those on one communicator as one group. Sets is[i]
 * for each of them.
 */
static void find_group(const struct df_op *ops, const struct df_prep *p, size_t at, size_t nr_ops,
		       uint8_t *is)
{
	size_t i, j;
	int more = 1;

	memset(is, 0, nr_ops);
	is[at] = 1;
	while (more)
		for (more = 0, i = at; i < nr_ops; i++)
			for (j = at; j < nr_ops && is[i]; j++)
				if (!is[j] && p[j].si.capturing && !p[j].captured &&
				    (p[j].si.stream == p[i].si.stream ||
				     ops[j].comm == ops[i].comm))
					more = is[j] = 1;
}

int df_submit_capture(const struct df_op *ops, struct df_prep *p, size_t at, size_t nr_ops)
{
	struct cap_group *g = calloc(1, sizeof(*g));
	size_t i, room = nr_ops - at;
	struct df_mstream **streams;
	uint8_t *is = NULL;
	uint32_t n = 0;
	void **args;
	int ret = -ENOMEM;

	if (!g)
		return -ENOMEM;
	g->refs = 1;
	g->priority = p[at].si.priority;
	g->node = calloc(room, sizeof(*g->node));
	g->op = calloc(room, sizeof(*g->op));
	args = calloc(room, sizeof(*args));
	streams = calloc(room, sizeof(*streams));
	is = malloc(nr_ops);
	if (!g->node || !g->op || !args || !streams || !is)
		goto out;
	find_group(ops, p, at, nr_ops, is);
	for (i = at; i < nr_ops; i++) {
		if (!is[i])
			continue;
		p[i].captured = 1;
		g->node[n].group = g;
		g->node[n].at = n;
		g->node[n].shown = p[i].shown;
		args[n] = &g->node[n];
		g->node[n].on = streams[n] = p[i].si.stream;
		df_comm_get(ops[i].comm);
		g->op[n] = ops[i];
		g->op[n++].ticket = NULL; /* a ticket belongs to one instance */
	}
	g->nr = n;
	__atomic_add_fetch(&g->refs, n, __ATOMIC_RELAXED);
	ret = df_backend->capture_nodes(streams, &capture_ops, args, n);
out:
	free(is);
	free(streams);
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
