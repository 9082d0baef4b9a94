/*
 * Executable graphs. Instantiating unfolds a graph into a list of steps with lanes; launching enqueues
 * the steps: the first lane on the launching stream, the others on streams of the executable, with
 * waits where a step depends on another lane. Launches of one executable follow one another.
 *
 * A launch in progress holds a reference, so destroying or updating an executable is safe at any time.
 * Launching, updating and destroying one executable is for one thread at a time, as CUDA demands.
 */
#include "interpose/hostcuda/graph.h"

#include <stdlib.h>
#include <string.h>

struct step {
	struct df_hop op;
	struct df_hcoll *coll;
	struct df_hevent *event;
	uint64_t event_id;
	int event_wait;
	struct df_hnode *node; /* it came from, ... */
	uint64_t node_id;      /* ... if this is still its number */
	enum cudaGraphNodeType type;
	int device, disabled, has_next;
	size_t *deps, nr_deps, lane;
	df_hpoint end;	/* of the current launch */
	uint64_t ready; /* atomic: launches whose predecessors are done */
	const uint64_t *done;
	uint64_t done_value;
};

struct plan {
	struct step *steps;
	size_t nr, cap;
	struct df_hstream **lanes; /* [0] is not used: the launching stream */
	size_t nr_lanes;
	struct df_hheld *held;
	size_t nr_held;
	uint32_t refs; /* atomic: the handle's, and one for each launch in progress */
	uint64_t nr_launches;
	int bare; /* nothing but collectives in it, and nobody waits for its end */
};

struct df_hexec {
	struct df_hslot slot;
	struct plan *plan;
	df_hpoint last; /* end of the latest launch */
	unsigned long long flags;
};

int df_hexec_init(void)
{
	return df_hslab_init(&df_h.execs, "executable graphs", sizeof(struct df_hexec), 1 << 18);
}

static void plan_put(void *arg)
{
	struct plan *p = arg;
	size_t i;

	/*
	 * ACQ_REL: the last one to let go sees what launches did, and pairs with their decrements;
	 * without it memory could be freed under a launch's last look at it.
	 */
	if (__atomic_sub_fetch(&p->refs, 1, __ATOMIC_ACQ_REL))
		return;
	for (i = 0; i < p->nr; i++) {
		df_hcoll_put(p->steps[i].coll);
		free(p->steps[i].deps);
	}
	for (i = 1; p->lanes && i < p->nr_lanes; i++)
		if (p->lanes[i])
			df_hstream_delete(p->lanes[i]);
	for (i = 0; i < p->nr_held; i++)
		df_hobject_put(p->held[i].object, p->held[i].count);
	free(p->held);
	free(p->lanes);
	free(p->steps);
	free(p);
}

static struct step *step_new(struct plan *p, const struct df_hnode *node, size_t nr_deps)
{
	struct step *steps;
	size_t cap = p->cap ? p->cap * 2 : 32;

	if (p->nr == p->cap) {
		steps = realloc(p->steps, cap * sizeof(*steps));
		if (!steps)
			return NULL;
		p->steps = steps;
		p->cap = cap;
	}
	steps = &p->steps[p->nr];
	memset(steps, 0, sizeof(*steps));
	steps->op.kind = DF_HOP_MARK;
	steps->device = node->device;
	steps->deps = calloc(nr_deps ? nr_deps : 1, sizeof(*steps->deps));
	if (!steps->deps)
		return NULL;
	p->nr++;
	return steps;
}

static void step_fill(struct step *st, struct df_hnode *node)
{
	st->op = node->op;
	st->node = node;
	st->node_id = node->id;
	st->type = node->type;
	st->event = node->event;
	st->event_id = node->event_id;
	st->event_wait = node->type == cudaGraphNodeTypeWaitEvent;
	st->coll = node->coll;
	if (st->coll)
		/* RELAXED: the node keeps it alive meanwhile. */
		__atomic_fetch_add(&st->coll->refs, 1, __ATOMIC_RELAXED);
}

/* Unfolds the graph; its roots depend on step `entry` (SIZE_MAX: none). */
static int unfold(struct plan *p, struct df_hgraph *g, size_t entry)
{
	struct df_hnode **v, *node;
	struct step *st;
	size_t *last, i, j, first;
	int err = df_hgraph_order(g, &v);

	if (err)
		return err;
	/* last[place of a node]: the step that ends it. */
	last = calloc(g->nodes.nr ? g->nodes.nr : 1, sizeof(*last));
	err = last ? 0 : -ENOMEM;
	for (i = 0; !err && i < g->nodes.nr; i++) {
		node = v[i];
		st = step_new(p, node, node->deps.nr + 1);
		if (!st) {
			err = -ENOMEM;
			break;
		}
		for (j = 0; j < node->deps.nr; j++)
			st->deps[st->nr_deps++] = last[node->deps.v[j]->order - 1];
		if (!node->deps.nr && entry != SIZE_MAX)
			st->deps[st->nr_deps++] = entry;
		last[i] = p->nr - 1;
		if (!node->child) {
			step_fill(st, node);
			continue;
		}
		/* A child graph: an empty step, its steps, and one that waits for all of them. */
		first = p->nr - 1;
		err = unfold(p, node->child, first);
		if (err)
			break;
		st = step_new(p, node, p->nr - first);
		if (!st) {
			err = -ENOMEM;
			break;
		}
		for (j = first; j < p->nr - 1; j++)
			st->deps[st->nr_deps++] = j;
		last[i] = p->nr - 1;
	}
	free(last);
	free(v);
	return err;
}

/* A step continues the lane of the first dependency that nothing continues yet. */
static void make_lanes(struct plan *p)
{
	struct step *st, *dep;
	size_t i, j;

	for (i = 0; i < p->nr; i++) {
		st = &p->steps[i];
		for (j = 0; j < st->nr_deps; j++) {
			dep = &p->steps[st->deps[j]];
			if (!dep->has_next)
				break;
		}
		if (j < st->nr_deps) {
			dep->has_next = 1;
			st->lane = dep->lane;
		} else {
			st->lane = p->nr_lanes++;
		}
	}
}

/* Empty nodes only order what is there. */
static int is_bare(const struct plan *p)
{
	size_t i, nr = 0;

	for (i = 0; i < p->nr; i++) {
		const struct step *st = &p->steps[i];

		nr += st->coll != NULL;
		if (st->coll ? !st->coll->ops->issue
			     : st->op.kind != DF_HOP_MARK || st->event || st->disabled)
			return 0;
	}
	return nr && !p->nr_held;
}

static int plan_make(struct df_hgraph *g, struct plan **out)
{
	struct plan *p = calloc(1, sizeof(*p));
	size_t i;
	int err;

	if (!p)
		return -ENOMEM;
	p->refs = 1;
	err = unfold(p, g, SIZE_MAX);
	if (err)
		goto err_put;
	make_lanes(p);
	p->lanes = calloc(p->nr_lanes ? p->nr_lanes : 1, sizeof(*p->lanes));
	err = p->lanes ? 0 : -ENOMEM;
	for (i = 0; !err && i < g->nr_held; i++) {
		if (!g->held[i].count)
			continue;
		err = df_hhold(&p->held, &p->nr_held, g->held[i].object, 1);
		if (!err)
			/* RELAXED: the graph keeps it alive meanwhile. */
			__atomic_fetch_add(&g->held[i].object->refs, 1, __ATOMIC_RELAXED);
	}
	if (err)
		goto err_put;
	p->bare = is_bare(p);
	*out = p;
	return 0;
err_put:
	plan_put(p);
	return err;
}

/* -- launching ------------------------------------------------------------------------------------- */

static int wait_for(struct df_hstream *s, df_hpoint point)
{
	struct df_hop op = {.kind = DF_HOP_POINT, .point = point};

	if (df_hpoint_done(point) || df_hpoint_stream(point) == s)
		return 0;
	return df_hstream_put(s, &op, NULL);
}

/* Tells the collectives of the graph that they are launched. Nothing is enqueued yet. */
static int announce(struct plan *p)
{
	struct step *st;
	size_t i;
	int err = 0;

	for (i = 0; i < p->nr && !err; i++) {
		st = &p->steps[i];
		if (st->coll && !st->disabled)
			err = st->coll->ops->launch(st->coll->arg, &st->ready, p->nr_launches,
						    &st->done, &st->done_value);
	}
	if (!err)
		return 0;
	/* Those that were told already must not wait for a launch that does not come. */
	for (i--; i-- > 0;) {
		st = &p->steps[i];
		if (st->coll && !st->disabled)
			/* RELEASE pairs with the daemon's ACQUIRE, as the stream's own write in run_one(). */
			__atomic_store_n(&st->ready, p->nr_launches, __ATOMIC_RELEASE);
	}
	return err;
}

static int put_step(struct step *st, struct df_hstream *s, uint64_t launch)
{
	struct df_hop op = st->op;
	int err;

	if (st->disabled)
		op.kind = DF_HOP_MARK, op.mark.event = NULL;
	else if (st->coll) {
		op = (struct df_hop){.kind = DF_HOP_WRITE, .word = {&st->ready, launch}};
		err = df_hstream_put(s, &op, NULL);
		if (err)
			return err;
		op = (struct df_hop){.kind = DF_HOP_WAIT,
				     .word = {(uint64_t *)(uintptr_t)st->done, st->done_value}};
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
	struct plan *p = x->plan;
	struct df_hstream *lane;
	df_hpoint start = 0;
	struct step *st;
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
		err = df_hstream_put(s, &mark, &start);
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
	call.call.fn = plan_put;
	call.call.arg = p;
	if (!err)
		err = df_hstream_put(s, &call, &x->last);
	/* Without memory in the middle the reference is never given back: what runs stays valid. */
	return df_herr(err);
}

/*
 * A graph of collectives alone is on its stream what the same calls would be: they have the order that their
 * buffers ask for, and graphs launched in different orders on different ranks do not hold each other up.
 * 1: not so, launch as usual; else 0 or -errno.
 */
static int issue_bare(const struct plan *p, struct df_hstream *s)
{
	struct df_stream_info info;
	size_t i;
	int ret = 1;

	if (!p->bare)
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
	return df_hret(launch(x, s));
}

DF_H_API __typeof__(cudaGraphLaunch) cudaGraphLaunch_ptsz;
DF_H_API cudaError_t cudaGraphLaunch_ptsz(cudaGraphExec_t exec, cudaStream_t stream)
{
	return cudaGraphLaunch(exec, df_hpt(stream));
}

/* -- life ------------------------------------------------------------------------------------------- */

static cudaError_t instantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags)
{
	cudaError_t err = df_henter();
	struct df_hgraph *g;
	struct df_hexec *x;
	int ret;

	g = err ? NULL : df_hgraph_find(graph);
	if (!err && (!out || !g || (flags & ~15ull)))
		err = cudaErrorInvalidValue;
	if (!err && (flags & cudaGraphInstantiateFlagDeviceLaunch))
		err = cudaErrorNotSupported;
	if (err)
		return err;
	x = df_hslab_get(&df_h.execs);
	if (!x)
		return cudaErrorMemoryAllocation;
	ret = plan_make(g, &x->plan);
	if (ret) {
		df_hslab_put(&df_h.execs, x);
		return df_herr(ret);
	}
	x->last = 0;
	x->flags = flags;
	df_hslot_publish(&x->slot);
	*out = (cudaGraphExec_t)x;
	return cudaSuccess;
}

DF_H_API cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph,
					  unsigned long long flags)
{
	return df_hret(instantiate(exec, graph, flags));
}

DF_H_API cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec, cudaGraph_t graph,
						   unsigned long long flags)
{
	return df_hret(instantiate(exec, graph, flags));
}

DF_H_API cudaError_t cudaGraphInstantiateWithParams(cudaGraphExec_t *exec, cudaGraph_t graph,
						    cudaGraphInstantiateParams *params)
{
	cudaError_t err;

	if (!params)
		return df_hret(cudaErrorInvalidValue);
	err = instantiate(exec, graph, params->flags);
	params->errNode_out = NULL;
	params->result_out = err ? cudaGraphInstantiateError : cudaGraphInstantiateSuccess;
	return df_hret(err);
}

DF_H_API __typeof__(cudaGraphInstantiateWithParams) cudaGraphInstantiateWithParams_ptsz;
DF_H_API cudaError_t cudaGraphInstantiateWithParams_ptsz(cudaGraphExec_t *exec, cudaGraph_t graph,
							 cudaGraphInstantiateParams *params)
{
	return cudaGraphInstantiateWithParams(exec, graph, params);
}

static cudaError_t exec_arg(cudaGraphExec_t exec, struct df_hexec **x)
{
	cudaError_t err = df_henter();

	*x = err ? NULL : df_hslab_find(&df_h.execs, exec);
	return err ? err : *x ? cudaSuccess : cudaErrorInvalidValue;
}

DF_H_API cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
	struct df_hexec *x;
	cudaError_t err = exec_arg(exec, &x);

	if (!err && !df_hslot_retire(&x->slot))
		err = cudaErrorInvalidValue;
	if (err)
		return df_hret(err);
	plan_put(x->plan);
	df_hslab_put(&df_h.execs, x);
	return cudaSuccess;
}

DF_H_API cudaError_t cudaGraphExecGetFlags(cudaGraphExec_t exec, unsigned long long *flags)
{
	struct df_hexec *x;
	cudaError_t err = exec_arg(exec, &x);

	if (!err && !flags)
		err = cudaErrorInvalidValue;
	if (!err)
		*flags = x->flags;
	return df_hret(err);
}

/* There is nothing to load: only the arguments are checked. */
DF_H_API cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream)
{
	struct df_hstream *s;
	struct df_hexec *x;
	cudaError_t err = exec_arg(exec, &x);

	return df_hret(err ? err : df_hstream_enter(stream, &s));
}

DF_H_API __typeof__(cudaGraphUpload) cudaGraphUpload_ptsz;
DF_H_API cudaError_t cudaGraphUpload_ptsz(cudaGraphExec_t exec, cudaStream_t stream)
{
	return cudaGraphUpload(exec, df_hpt(stream));
}

DF_H_API cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph,
					 cudaGraphExecUpdateResultInfo *info)
{
	struct df_hgraph *g = NULL;
	struct df_hexec *x;
	struct plan *p;
	cudaError_t err = exec_arg(exec, &x);
	size_t i, j;
	int same;

	if (!err)
		g = df_hgraph_find(graph);
	if (!err && !g)
		err = cudaErrorInvalidValue;
	if (!err)
		err = df_herr(plan_make(g, &p));
	if (err)
		return df_hret(err);
	if (info)
		*info = (cudaGraphExecUpdateResultInfo){.result = cudaGraphExecUpdateSuccess};
	same = p->nr == x->plan->nr;
	for (i = 0; same && i < p->nr; i++) {
		same = p->steps[i].type == x->plan->steps[i].type &&
		       p->steps[i].nr_deps == x->plan->steps[i].nr_deps;
		for (j = 0; same && j < p->steps[i].nr_deps; j++)
			same = p->steps[i].deps[j] == x->plan->steps[i].deps[j];
		if (same)
			p->steps[i].disabled = x->plan->steps[i].disabled;
	}
	if (!same) {
		plan_put(p);
		if (info)
			info->result = cudaGraphExecUpdateErrorTopologyChanged;
		return df_hret(cudaErrorGraphExecUpdateFailure);
	}
	/* Launches in progress keep the old plan. */
	plan_put(x->plan);
	x->plan = p;
	return cudaSuccess;
}

/* -- single nodes ----------------------------------------------------------------------------------- */

static struct step *step_of(struct df_hexec *x, struct df_hnode *node)
{
	size_t i;

	for (i = 0; node && i < x->plan->nr; i++)
		if (x->plan->steps[i].node == node && x->plan->steps[i].node_id == node->id)
			return &x->plan->steps[i];
	return NULL;
}

cudaError_t df_hexec_node_set(cudaGraphExec_t exec, cudaGraphNode_t handle, const struct df_hop *op)
{
	struct df_hexec *x;
	struct step *st;
	cudaError_t err = exec_arg(exec, &x);

	if (err)
		return err;
	st = step_of(x, df_hnode_find(handle));
	if (!st || st->coll || st->op.kind != op->kind)
		return cudaErrorInvalidValue;
	st->op = *op;
	return cudaSuccess;
}

DF_H_API cudaError_t cudaGraphNodeSetEnabled(cudaGraphExec_t exec, cudaGraphNode_t node,
					     unsigned enabled)
{
	struct df_hexec *x;
	struct step *st = NULL;
	cudaError_t err = exec_arg(exec, &x);

	if (!err)
		st = step_of(x, df_hnode_find(node));
	if (!err &&
	    (!st || (st->type != cudaGraphNodeTypeKernel && st->type != cudaGraphNodeTypeMemset &&
		     st->type != cudaGraphNodeTypeMemcpy)))
		err = cudaErrorInvalidValue;
	if (!err)
		st->disabled = !enabled;
	return df_hret(err);
}

DF_H_API cudaError_t cudaGraphNodeGetEnabled(cudaGraphExec_t exec, cudaGraphNode_t node,
					     unsigned *enabled)
{
	struct df_hexec *x;
	struct step *st = NULL;
	cudaError_t err = exec_arg(exec, &x);

	if (!err)
		st = step_of(x, df_hnode_find(node));
	if (!err && (!st || !enabled))
		err = cudaErrorInvalidValue;
	if (!err)
		*enabled = !st->disabled;
	return df_hret(err);
}
