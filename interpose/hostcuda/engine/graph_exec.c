/*
 * Executable graphs: instantiating unfolds a graph into a list of steps with lanes. graph_launch.c
 * launches them.
 *
 * A launch in progress holds a reference, so an executable may be destroyed or updated at any time.
 * One thread at a time launches, updates and destroys an executable, as CUDA demands.
 */
#include "interpose/hostcuda/engine/graph.h"
#include "interpose/hostcuda/engine/plan.h"
#include "runtime/base/vec.h"

#include <stdlib.h>
#include <string.h>

int df_hexec_init(void)
{
	return df_hslab_init(&df_h.execs, "executable graphs", sizeof(struct df_hexec), 1 << 18);
}

static struct df_mutex unused_lock = DF_MUTEX_INIT(DF_RANK_LEAF, "arrivals of graphs");
static struct df_hready *unused;

static struct df_hready *ready_get(void)
{
	struct df_hready *r;

	df_mutex_lock(&unused_lock);
	r = unused;
	if (r)
		unused = r->next;
	df_mutex_unlock(&unused_lock);
	return r ? r : calloc(1, sizeof(*r));
}

static void ready_put(struct df_hready *r)
{
	if (!r)
		return;
	df_mutex_lock(&unused_lock);
	r->next = unused;
	unused = r;
	df_mutex_unlock(&unused_lock);
}

void df_hplan_put(void *arg)
{
	struct df_hplan *p = arg;
	size_t i;

	/*
	 * ACQ_REL pairs with the other decrements: the last one sees what launches did; without it
	 * memory could be freed while a launch still reads it.
	 */
	if (__atomic_sub_fetch(&p->refs, 1, __ATOMIC_ACQ_REL))
		return;
	for (i = 0; i < p->nr; i++) {
		df_hcoll_put(p->steps[i].coll);
		ready_put(p->steps[i].ready);
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

static struct df_hstep *step_new(struct df_hplan *p, const struct df_hnode *node, size_t nr_deps)
{
	struct df_hstep *steps;

	if (DF_VEC_ROOM(p->steps, p->cap, p->nr + 1))
		return NULL;
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

static int step_fill(struct df_hstep *st, struct df_hnode *node)
{
	st->op = node->op;
	st->node = node;
	st->node_id = node->id;
	st->type = node->type;
	st->event = node->event;
	st->event_id = node->event_id;
	st->event_wait = node->type == cudaGraphNodeTypeWaitEvent;
	if (!node->coll)
		return 0;
	st->ready = ready_get();
	if (!st->ready)
		return -ENOMEM;
	/* RELAXED: the word's previous step has ended, so only this thread writes it now. */
	st->before = __atomic_load_n(&st->ready->value, __ATOMIC_RELAXED);
	st->coll = node->coll;
	/* RELAXED: the node has a reference, so the collective is not freed here. */
	__atomic_fetch_add(&st->coll->refs, 1, __ATOMIC_RELAXED);
	return 0;
}

/* Unfolds the graph. Its roots depend on step `entry`; SIZE_MAX means no step. */
static int unfold(struct df_hplan *p, struct df_hgraph *g, size_t entry)
{
	struct df_hnode **v, *node;
	struct df_hstep *st;
	size_t *last, i, j, first;
	int err = df_hgraph_order(g, &v);

	if (err)
		return err;
	/* By node, in the order of the graph: the step that ends the node. */
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
			err = step_fill(st, node);
			if (err)
				break;
			continue;
		}
		/*
		 * A child graph: an empty step, its steps, and a step that waits for all of them.
		 */
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

/* A step continues the lane of its first dependency that no other step continues. */
static void make_lanes(struct df_hplan *p)
{
	struct df_hstep *st, *dep;
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

/* Whether the graph has only collectives; empty nodes only order them. */
static int is_bare(const struct df_hplan *p)
{
	size_t i, nr = 0;

	for (i = 0; i < p->nr; i++) {
		const struct df_hstep *st = &p->steps[i];

		nr += st->coll != NULL;
		if (st->coll ? !st->coll->ops->issue : st->op.kind != DF_HOP_MARK || st->event)
			return 0;
	}
	return nr && !p->nr_held;
}

static int plan_make(struct df_hgraph *g, struct df_hplan **out)
{
	struct df_hplan *p = calloc(1, sizeof(*p));
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
	df_hplan_put(p);
	return err;
}

/* -- life -------------------------------------------------------------------------------------- */

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
	df_hplan_put(x->plan);
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

/* Nothing has to be loaded: only the arguments are checked. */
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

static int alike(const struct df_hplan *a, const struct df_hplan *b)
{
	size_t i, j;
	int same = a->nr == b->nr;

	for (i = 0; same && i < a->nr; i++) {
		same = a->steps[i].type == b->steps[i].type &&
		       a->steps[i].nr_deps == b->steps[i].nr_deps;
		for (j = 0; same && j < a->steps[i].nr_deps; j++)
			same = a->steps[i].deps[j] == b->steps[i].deps[j];
	}
	return same;
}

DF_H_API cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph,
					 cudaGraphExecUpdateResultInfo *info)
{
	struct df_hgraph *g = NULL;
	struct df_hexec *x;
	struct df_hplan *p;
	cudaError_t err = exec_arg(exec, &x);
	size_t i;

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
	if (!alike(p, x->plan)) {
		df_hplan_put(p);
		if (info)
			info->result = cudaGraphExecUpdateErrorTopologyChanged;
		return df_hret(cudaErrorGraphExecUpdateFailure);
	}
	for (i = 0; i < p->nr; i++) {
		p->steps[i].disabled = x->plan->steps[i].disabled;
		p->nr_disabled += p->steps[i].disabled != 0;
	}
	/* Launches in progress keep the old plan. */
	df_hplan_put(x->plan);
	x->plan = p;
	return cudaSuccess;
}

/* -- single nodes ------------------------------------------------------------------------------ */

static struct df_hstep *step_of(struct df_hexec *x, struct df_hnode *node)
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
	struct df_hstep *st;
	cudaError_t err = exec_arg(exec, &x);

	if (err)
		return err;
	st = step_of(x, df_hnode_find(handle));
	if (st && st->coll)
		df_warn_once(
			"host CUDA: a captured collective's parameters cannot be changed; capture "
			"it again and update the executable graph");
	if (!st || st->coll || st->op.kind != op->kind)
		return cudaErrorInvalidValue;
	st->op = *op;
	return cudaSuccess;
}

/*
 * was and is: plans of the node's graph, as it was when the node became part of x, and as it is to
 * become.
 */
static cudaError_t replace(struct df_hexec *x, const struct df_hplan *was,
			   const struct df_hplan *is)
{
	struct df_hstep *st;
	size_t i;

	if (!alike(was, is))
		return cudaErrorInvalidValue;
	for (i = 0; i < was->nr; i++) {
		st = step_of(x, was->steps[i].node);
		if (!st || st->coll || is->steps[i].coll)
			return cudaErrorInvalidValue;
	}
	for (i = 0; i < was->nr; i++) {
		st = step_of(x, was->steps[i].node);
		st->op = is->steps[i].op;
		st->event = is->steps[i].event;
		st->event_id = is->steps[i].event_id;
	}
	return cudaSuccess;
}

DF_H_API cudaError_t cudaGraphExecChildGraphNodeSetParams(cudaGraphExec_t exec,
							  cudaGraphNode_t node, cudaGraph_t graph)
{
	struct df_hplan *was, *is;
	struct df_hgraph *g = NULL;
	struct df_hnode *n = NULL;
	struct df_hexec *x;
	cudaError_t err = exec_arg(exec, &x);

	if (!err) {
		n = df_hnode_find(node);
		g = df_hgraph_find(graph);
	}
	if (!err && (!n || n->type != cudaGraphNodeTypeGraph || !g))
		err = cudaErrorInvalidValue;
	if (!err)
		err = df_herr(plan_make(n->child, &was));
	if (err)
		return df_hret(err);
	err = df_herr(plan_make(g, &is));
	if (!err) {
		err = replace(x, was, is);
		df_hplan_put(is);
	}
	df_hplan_put(was);
	return df_hret(err);
}

DF_H_API cudaError_t cudaGraphNodeSetEnabled(cudaGraphExec_t exec, cudaGraphNode_t node,
					     unsigned enabled)
{
	struct df_hexec *x;
	struct df_hstep *st = NULL;
	cudaError_t err = exec_arg(exec, &x);

	if (!err)
		st = step_of(x, df_hnode_find(node));
	if (!err &&
	    (!st || (st->type != cudaGraphNodeTypeKernel && st->type != cudaGraphNodeTypeMemset &&
		     st->type != cudaGraphNodeTypeMemcpy)))
		err = cudaErrorInvalidValue;
	if (!err) {
		x->plan->nr_disabled -= st->disabled != 0;
		st->disabled = !enabled;
		x->plan->nr_disabled += st->disabled != 0;
	}
	return df_hret(err);
}

DF_H_API cudaError_t cudaGraphNodeGetEnabled(cudaGraphExec_t exec, cudaGraphNode_t node,
					     unsigned *enabled)
{
	struct df_hexec *x;
	struct df_hstep *st = NULL;
	cudaError_t err = exec_arg(exec, &x);

	if (!err)
		st = step_of(x, df_hnode_find(node));
	if (!err && (!st || !enabled))
		err = cudaErrorInvalidValue;
	if (!err)
		*enabled = !st->disabled;
	return df_hret(err);
}
