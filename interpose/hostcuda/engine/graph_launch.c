/*
 * Launching an executable graph enqueues its steps: the first lane on the launching stream, the
 * others on the executable's streams, with waits where a step depends on another lane. Launches of
 * one executable follow one another; each holds a reference to the plan.
 */
#include "interpose/hostcuda/engine/graph.h"
#include "interpose/hostcuda/engine/plan.h"
#include "interpose/hostcuda/fault.h"

static int wait_for(struct df_hstream *s, df_hpoint point)
{
	struct df_hop op = {.kind = DF_HOP_POINT, .point = point};

	if (df_hpoint_done(point) || df_hpoint_stream(point) == s)
		return 0;
	return df_hstream_put(s, &op, NULL);
}

/*
 * Informs the collectives of the first `nr` steps that an announced launch will not happen, so that
 * they do not wait for it.
 */
static void lose(struct df_hplan *p, size_t nr)
{
	struct df_hstep *st;

	for (st = p->steps; st < p->steps + nr; st++) {
		if (!st->coll || st->disabled)
			continue;
		if (st->coll->ops->lost)
			st->coll->ops->lost(st->coll->arg);
		/* RELEASE pairs with the daemon's ACQUIRE, as the stream's own write does. */
		__atomic_store_n(&st->ready->value, st->before + p->nr_launches, __ATOMIC_RELEASE);
	}
}

static struct df_arrival arrival(const struct df_hplan *p, const struct df_hstep *st)
{
	return (struct df_arrival){.ready = &st->ready->value,
				   .value = st->before + p->nr_launches};
}

/* Announces the launch to the collectives of the graph. Nothing has been enqueued yet. */
static int announce(struct df_hplan *p)
{
	struct df_hstep *st;
	size_t i;
	struct df_arrival a;
	int err = 0;

	for (i = 0; i < p->nr && !err; i++) {
		st = &p->steps[i];
		if (!st->coll || st->disabled || !st->coll->ops->prepare)
			continue;
		a = arrival(p, st);
		err = st->coll->ops->prepare(st->coll->arg, &a);
	}
	if (err)
		return err;
	for (i = 0; i < p->nr && !err; i++) {
		st = &p->steps[i];
		if (!st->coll || st->disabled)
			continue;
		a = arrival(p, st);
		err = st->coll->ops->launch(st->coll->arg, &a, &st->turn);
	}
	if (err)
		lose(p, i - 1);
	return err;
}

static int put_step(struct df_hstep *st, struct df_hstream *s, uint64_t launch)
{
	struct df_hop op = st->op;
	int err;

	if (st->disabled)
		op.kind = DF_HOP_MARK, op.mark.event = NULL;
	else if (st->coll) {
		op = (struct df_hop){
			.kind = DF_HOP_WRITE,
			.word = {.addr = &st->ready->value, .value = st->before + launch}};
		err = df_hstream_put(s, &op, NULL);
		if (err)
			return err;
		op = (struct df_hop){.kind = DF_HOP_WAIT,
				     .word = {.addr = (uint64_t *)(uintptr_t)st->turn.done,
					      .value = st->turn.value}};
	} else if (st->event && df_hevent_find((cudaEvent_t)st->event) &&
		   st->event->id == st->event_id) {
		err = st->event_wait ? df_hevent_wait(s, st->event)
				     : df_hevent_record(st->event, s);
		if (err)
			return err;
	}
	return df_hstream_put(s, &op, &st->end);
}

static cudaError_t launch(struct df_hexec *x, struct df_hstream *s)
{
	struct df_hop mark = {.kind = DF_HOP_MARK}, call = {.kind = DF_HOP_CALL};
	struct df_hplan *p = x->plan;
	struct df_hstream *lane;
	df_hpoint start = 0;
	struct df_hstep *st;
	size_t i, j;
	int err;

	for (i = 1; i < p->nr_lanes; i++) {
		if (p->lanes[i])
			continue;
		if (df_hstream_new(df_hdev(s->device), s->priority, 0, 1, &p->lanes[i]))
			return cudaErrorMemoryAllocation;
	}
	p->nr_launches++;
	err = announce(p);
	if (err)
		return df_herr(err);
	/* RELAXED: the handle keeps the plan alive until the engine has the reference. */
	__atomic_fetch_add(&p->refs, 1, __ATOMIC_RELAXED);
	err = wait_for(s, x->last);
	if (!err)
		err = df_hstream_put(s, &mark, &start) ?: df_hfault_graphs();
	for (i = 0; i < p->nr && !err; i++) {
		st = &p->steps[i];
		lane = st->lane ? p->lanes[st->lane] : s;
		if (!st->nr_deps && st->lane)
			err = wait_for(lane, start);
		for (j = 0; j < st->nr_deps && !err; j++)
			err = wait_for(lane, p->steps[st->deps[j]].end);
		if (!err)
			err = put_step(st, lane, p->nr_launches);
	}
	for (i = 0; i < p->nr && !err; i++)
		if (!p->steps[i].has_next)
			err = wait_for(s, p->steps[i].end);
	call.call.fn = df_hplan_put;
	call.call.arg = p;
	if (!err)
		err = df_hstream_put(s, &call, &x->last);
	/*
	 * If memory runs out in the middle, the reference is never released, so the steps that run
	 * stay valid.
	 */
	if (err)
		lose(p, p->nr);
	return df_herr(err);
}

/*
 * A graph of collectives alone has the same effect on its stream as the calls themselves: they are
 * ordered only as their buffers require, and graphs that are launched in different orders on
 * different ranks do not block each other. Returns 1 if the graph has to be launched as usual, else
 * 0 or -errno.
 */
static int issue_bare(const struct df_hplan *p, struct df_hstream *s)
{
	struct df_stream_info info;
	size_t i;
	int ret = 1;

	if (!p->bare || p->nr_disabled)
		return 1;
	df_hstream_describe(s, &info);
	for (i = 0; i < p->nr; i++) {
		const struct df_hcoll *c = p->steps[i].coll;

		if (!c)
			continue;
		ret = c->ops->issue(c->arg, &info, p->nr_lanes == 1);
		if (ret)
			break;
	}
	return ret;
}

DF_H_API cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
	struct df_hstream *s;
	struct df_hexec *x;
	cudaError_t err = df_hstream_enter(stream, &s);
	int ret;

	if (err)
		return df_hret(err);
	x = df_hslab_find(&df_h.execs, exec);
	if (!x)
		return df_hret(cudaErrorInvalidValue);
	if (df_hstream_capturing(s))
		return df_hret(cudaErrorStreamCaptureUnsupported);
	err = df_hcapture_check_legacy(s);
	if (err)
		return df_hret(err);
	ret = issue_bare(x->plan, s);
	if (ret <= 0)
		return df_hret(df_herr(ret));
	df_hbefore_work(s, DF_WORK_GRAPH, NULL);
	err = launch(x, s);
	df_hafter_graph(s, err == cudaSuccess);
	return df_hret(err);
}

DF_H_API __typeof__(cudaGraphLaunch) cudaGraphLaunch_ptsz;
DF_H_API cudaError_t cudaGraphLaunch_ptsz(cudaGraphExec_t exec, cudaStream_t stream)
{
	return cudaGraphLaunch(exec, df_hpt(stream));
}
