/*
 * The graphs of the stand-in driver: nodes and what is before them. A launch is one operation of its stream that runs
 * the nodes of a copy, each on a thread as soon as those before it are done.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "tests/cuda/fake/internal.h"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

CUgraph fake_graph_new(void)
{
	CUgraph g = calloc(1, sizeof(*g));

	g->refs = 1;
	return g;
}

void fake_nodes_join(CUgraphNode **to, size_t *nr, const CUgraphNode *from, size_t nr_from)
{
	size_t i, k;

	*to = realloc(*to, (*nr + nr_from + 1) * sizeof(**to));
	for (i = 0; i < nr_from; i++) {
		for (k = 0; k < *nr && (*to)[k] != from[i]; k++)
			;
		if (k == *nr)
			(*to)[(*nr)++] = from[i];
	}
}

CUgraphNode fake_graph_add(CUgraph g, const struct op *op, const CUgraphNode *before, size_t nr)
{
	CUgraphNode n = calloc(1, sizeof(*n));

	n->op = *op;
	n->op.next = NULL;
	n->op.after = NULL;
	n->op.nr_after = 0;
	n->graph = g;
	fake_nodes_join(&n->before, &n->nr_before, before, nr);
	g->nodes = realloc(g->nodes, (g->nr + 1) * sizeof(CUgraphNode));
	g->nodes[g->nr++] = n;
	return n;
}

static CUgraph copy_of(CUgraph from)
{
	CUgraph g = fake_graph_new();
	size_t i, k;

	for (i = 0; i < from->nr; i++) {
		CUgraphNode n = from->nodes[i];

		n->copy = fake_graph_add(g, &n->op, NULL, 0);
		if (n->op.own) {
			void *own = malloc(n->op.own_bytes + 1);

			memcpy(own, n->op.own, n->op.own_bytes);
			n->copy->op.own = own;
			if (n->op.from == n->op.own)
				n->copy->op.from = own;
		}
		if (n->op.graph)
			n->copy->op.graph = copy_of(n->op.graph);
	}
	/* Dependencies may have been added later than the node. */
	for (i = 0; i < from->nr; i++)
		for (k = 0; k < from->nodes[i]->nr_before; k++)
			fake_nodes_join(&g->nodes[i]->before, &g->nodes[i]->nr_before,
					&from->nodes[i]->before[k]->copy, 1);
	g->nr_objects = from->nr_objects;
	g->objects = malloc((g->nr_objects + 1) * sizeof(*g->objects));
	for (i = 0; i < g->nr_objects; i++) {
		g->objects[i] = from->objects[i];
		g->objects[i]->refs++;
	}
	return g;
}

static void free_node(CUgraphNode n)
{
	if (n->op.graph)
		fake_graph_put(n->op.graph);
	free(n->op.own);
	free(n->before);
	free(n);
}

/* Its user objects end on a thread of the driver, as those that ask for no synchronisation may. */
static void *end_object(void *arg)
{
	CUuserObject o = arg;

	o->destroy(o->arg);
	free(o);
	return NULL;
}

void fake_graph_put(CUgraph g)
{
	pthread_t t;
	size_t i;

	if (--g->refs)
		return;
	for (i = 0; i < g->nr; i++)
		free_node(g->nodes[i]);
	for (i = 0; i < g->nr_objects; i++)
		if (!--g->objects[i]->refs && !pthread_create(&t, NULL, end_object, g->objects[i]))
			pthread_detach(t);
	free(g->nodes);
	free(g->objects);
	free(g);
}

/* ---- running ----------------------------------------------------------------------------------------- */

static void *run_node(void *arg)
{
	CUgraphNode n = arg;
	CUgraph g = n->graph;
	size_t i, k;

	fake_run_op(NULL, g->ctx, &n->op);
	pthread_mutex_lock(&fake_lock);
	for (i = 0; i < g->nr; i++)
		for (k = 0; k < g->nodes[i]->nr_before; k++)
			g->nodes[i]->left -= g->nodes[i]->before[k] == n;
	g->busy--;
	pthread_cond_broadcast(&fake_moved);
	pthread_mutex_unlock(&fake_lock);
	return NULL;
}

void fake_graph_run(CUcontext ctx, CUgraph g)
{
	size_t i, todo = g->nr;
	pthread_t t;

	pthread_mutex_lock(&fake_lock);
	g->ctx = ctx;
	for (i = 0; i < g->nr; i++) {
		g->nodes[i]->left = (int)g->nodes[i]->nr_before;
		g->nodes[i]->started = 0;
	}
	g->busy = 0;
	while (todo || g->busy) {
		CUgraphNode ready = NULL;

		for (i = 0; i < g->nr && !ready; i++)
			if (!g->nodes[i]->started && !g->nodes[i]->left)
				ready = g->nodes[i];
		if (!ready) {
			pthread_cond_wait(&fake_moved, &fake_lock);
			continue;
		}
		ready->started = 1;
		g->busy++;
		todo--;
		pthread_mutex_unlock(&fake_lock);
		pthread_create(&t, NULL, run_node, ready);
		pthread_detach(t);
		pthread_mutex_lock(&fake_lock);
	}
	pthread_mutex_unlock(&fake_lock);
}

/* ---- capture ------------------------------------------------------------------------------------------- */

static CUresult begin(CUstream s, CUgraph into, const CUgraphNode *behind, size_t nr)
{
	CUresult ret = CUDA_ERROR_ILLEGAL_STATE;

	s = fake_stream_of(s, 0);
	pthread_mutex_lock(&fake_lock);
	if (!s->capture) {
		s->capture = into ? into : fake_graph_new();
		s->capture_id = fake_next_id++;
		s->nr_behind = 0;
		fake_nodes_join(&s->behind, &s->nr_behind, behind, nr);
		ret = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&fake_lock);
	return ret;
}
API CUresult cuStreamBeginCapture_v2(CUstream s, CUstreamCaptureMode mode)
{
	(void)mode;
	SEEN();
	return begin(s, NULL, NULL, 0);
}
API CUresult cuStreamBeginCaptureToGraph(CUstream s, CUgraph g, const CUgraphNode *behind,
					 const CUgraphEdgeData *data, size_t nr,
					 CUstreamCaptureMode mode)
{
	(void)data, (void)mode;
	SEEN();
	return begin(s, g, behind, nr);
}
API CUresult cuStreamEndCapture(CUstream s, CUgraph *out)
{
	SEEN();
	s = fake_stream_of(s, 0);
	pthread_mutex_lock(&fake_lock);
	*out = s->capture;
	fake_stream_leave(*out);
	pthread_mutex_unlock(&fake_lock);
	return *out ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_STATE;
}
API CUresult cuStreamGetCaptureInfo_v2(CUstream s, CUstreamCaptureStatus *status, cuuint64_t *id,
				       CUgraph *graph, const CUgraphNode **deps, size_t *nr)
{
	SEEN();
	s = fake_stream_of(s, 0);
	*status = s->capture ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
	if (id)
		*id = s->capture_id;
	if (graph)
		*graph = s->capture;
	if (deps)
		*deps = s->behind;
	if (nr)
		*nr = s->nr_behind;
	return CUDA_SUCCESS;
}

/* ---- nodes --------------------------------------------------------------------------------------------- */

API CUresult cuGraphCreate(CUgraph *out, unsigned int flags)
{
	(void)flags;
	SEEN();
	*out = fake_graph_new();
	return CUDA_SUCCESS;
}
API CUresult cuGraphClone(CUgraph *out, CUgraph from)
{
	SEEN();
	pthread_mutex_lock(&fake_lock);
	*out = copy_of(from);
	pthread_mutex_unlock(&fake_lock);
	return CUDA_SUCCESS;
}
API CUresult cuGraphGetNodes(CUgraph g, CUgraphNode *nodes, size_t *nr)
{
	size_t i;

	SEEN();
	for (i = 0; nodes && i < g->nr && i < *nr; i++)
		nodes[i] = g->nodes[i];
	*nr = g->nr;
	return CUDA_SUCCESS;
}
API CUresult cuGraphGetEdges_v2(CUgraph g, CUgraphNode *from, CUgraphNode *to,
				CUgraphEdgeData *data, size_t *nr)
{
	size_t i, k, n = 0;

	SEEN();
	for (i = 0; i < g->nr; i++)
		for (k = 0; k < g->nodes[i]->nr_before; k++, n++)
			if (from && n < *nr) {
				from[n] = g->nodes[i]->before[k];
				to[n] = g->nodes[i];
				memset(&data[n], 0, sizeof(*data));
			}
	*nr = n;
	return CUDA_SUCCESS;
}
API CUresult cuGraphNodeGetType(CUgraphNode n, CUgraphNodeType *type)
{
	SEEN();
	switch (n->op.kind) {
	case OP_HOST:
		*type = CU_GRAPH_NODE_TYPE_HOST;
		break;
	case OP_WRITE:
	case OP_WAIT:
		*type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
		break;
	case OP_KERNEL:
		*type = CU_GRAPH_NODE_TYPE_KERNEL;
		break;
	case OP_COPY:
		*type = CU_GRAPH_NODE_TYPE_MEMCPY;
		break;
	case OP_FILL:
		*type = CU_GRAPH_NODE_TYPE_MEMSET;
		break;
	case OP_GRAPH:
		*type = CU_GRAPH_NODE_TYPE_GRAPH;
		break;
	default:
		*type = CU_GRAPH_NODE_TYPE_EMPTY;
	}
	return CUDA_SUCCESS;
}
API CUresult cuGraphHostNodeGetParams(CUgraphNode n, CUDA_HOST_NODE_PARAMS *out)
{
	SEEN();
	if (n->op.kind != OP_HOST)
		return CUDA_ERROR_INVALID_VALUE;
	out->fn = n->op.fn;
	out->userData = n->op.data;
	return CUDA_SUCCESS;
}
API CUresult cuGraphHostNodeSetParams(CUgraphNode n, const CUDA_HOST_NODE_PARAMS *p)
{
	SEEN();
	if (n->op.kind != OP_HOST)
		return CUDA_ERROR_INVALID_VALUE;
	n->op.fn = p->fn;
	n->op.data = p->userData;
	return CUDA_SUCCESS;
}
API CUresult cuGraphAddBatchMemOpNode(CUgraphNode *out, CUgraph g, const CUgraphNode *before,
				      size_t nr, const CUDA_BATCH_MEM_OP_NODE_PARAMS *p)
{
	const CUstreamBatchMemOpParams *op = p->paramArray;
	int waits = op->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;

	SEEN();
	if (p->count != 1 || (!waits && op->operation != CU_STREAM_MEM_OP_WRITE_VALUE_64))
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&fake_lock);
	*out = fake_graph_add(g,
			      &(struct op){.kind = waits ? OP_WAIT : OP_WRITE,
					   .addr = (uint64_t *)op->waitValue.address,
					   .value = op->waitValue.value64},
			      before, nr);
	pthread_mutex_unlock(&fake_lock);
	return CUDA_SUCCESS;
}
API CUresult cuGraphBatchMemOpNodeGetParams(CUgraphNode n, CUDA_BATCH_MEM_OP_NODE_PARAMS *out)
{
	static __thread CUstreamBatchMemOpParams op;

	SEEN();
	if (n->op.kind != OP_WRITE && n->op.kind != OP_WAIT)
		return CUDA_ERROR_INVALID_VALUE;
	memset(&op, 0, sizeof(op));
	op.operation = n->op.kind == OP_WAIT ? CU_STREAM_MEM_OP_WAIT_VALUE_64
					     : CU_STREAM_MEM_OP_WRITE_VALUE_64;
	op.waitValue.address = (CUdeviceptr)n->op.addr;
	op.waitValue.value64 = n->op.value;
	memset(out, 0, sizeof(*out));
	out->count = 1;
	out->paramArray = &op;
	return CUDA_SUCCESS;
}
API CUresult cuGraphBatchMemOpNodeSetParams(CUgraphNode n, const CUDA_BATCH_MEM_OP_NODE_PARAMS *p)
{
	SEEN();
	if ((n->op.kind != OP_WRITE && n->op.kind != OP_WAIT) || p->count != 1)
		return CUDA_ERROR_INVALID_VALUE;
	n->op.kind =
		p->paramArray[0].operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 ? OP_WAIT : OP_WRITE;
	n->op.addr = (uint64_t *)p->paramArray[0].waitValue.address;
	n->op.value = p->paramArray[0].waitValue.value64;
	return CUDA_SUCCESS;
}
API CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode n, CUgraph *out)
{
	SEEN();
	*out = n->op.graph;
	return n->op.kind == OP_GRAPH ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
static CUresult add(CUgraphNode *out, CUgraph g, const struct op *op, const CUgraphNode *before,
		    size_t nr)
{
	pthread_mutex_lock(&fake_lock);
	*out = fake_graph_add(g, op, before, nr);
	if (op->graph)
		(*out)->op.graph = copy_of(op->graph);
	pthread_mutex_unlock(&fake_lock);
	return CUDA_SUCCESS;
}
API CUresult cuGraphAddHostNode(CUgraphNode *out, CUgraph g, const CUgraphNode *before, size_t nr,
				const CUDA_HOST_NODE_PARAMS *p)
{
	SEEN();
	return add(out, g, &(struct op){.kind = OP_HOST, .fn = p->fn, .data = p->userData}, before,
		   nr);
}
API CUresult cuGraphAddEmptyNode(CUgraphNode *out, CUgraph g, const CUgraphNode *before, size_t nr)
{
	SEEN();
	return add(out, g, &(struct op){.kind = OP_EMPTY}, before, nr);
}
API CUresult cuGraphAddChildGraphNode(CUgraphNode *out, CUgraph g, const CUgraphNode *before,
				      size_t nr, CUgraph child)
{
	SEEN();
	return add(out, g, &(struct op){.kind = OP_GRAPH, .graph = child}, before, nr);
}
API CUresult cuGraphDestroyNode(CUgraphNode n)
{
	CUgraph g = n->graph;
	size_t i, k;

	SEEN();
	pthread_mutex_lock(&fake_lock);
	for (i = 0; i < g->nr; i++)
		for (k = 0; k < g->nodes[i]->nr_before; k++)
			if (g->nodes[i]->before[k] == n)
				g->nodes[i]->before[k--] =
					g->nodes[i]->before[--g->nodes[i]->nr_before];
	for (i = 0; g->nodes[i] != n; i++)
		;
	memmove(&g->nodes[i], &g->nodes[i + 1], (--g->nr - i) * sizeof(CUgraphNode));
	free_node(n);
	pthread_mutex_unlock(&fake_lock);
	return CUDA_SUCCESS;
}
API CUresult cuGraphRemoveDependencies_v2(CUgraph g, const CUgraphNode *from, const CUgraphNode *to,
					  const CUgraphEdgeData *data, size_t nr)
{
	size_t i, k;

	(void)g, (void)data;
	SEEN();
	pthread_mutex_lock(&fake_lock);
	for (i = 0; i < nr; i++)
		for (k = 0; k < to[i]->nr_before; k++)
			if (to[i]->before[k] == from[i])
				to[i]->before[k--] = to[i]->before[--to[i]->nr_before];
	pthread_mutex_unlock(&fake_lock);
	return CUDA_SUCCESS;
}
API CUresult cuGraphDestroy(CUgraph g)
{
	SEEN();
	pthread_mutex_lock(&fake_lock);
	fake_graph_put(g);
	pthread_mutex_unlock(&fake_lock);
	return CUDA_SUCCESS;
}

/* ---- executable graphs ---------------------------------------------------------------------------------- */

static CUresult instantiate(CUgraphExec *out, CUgraph g)
{
	pthread_mutex_lock(&fake_lock);
	*out = calloc(1, sizeof(**out));
	(*out)->graph = copy_of(g);
	pthread_mutex_unlock(&fake_lock);
	return CUDA_SUCCESS;
}
API CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph g, unsigned long long flags)
{
	(void)flags;
	SEEN();
	return instantiate(out, g);
}
API CUresult cuGraphInstantiateWithParams(CUgraphExec *out, CUgraph g,
					  CUDA_GRAPH_INSTANTIATE_PARAMS *p)
{
	SEEN();
	p->result_out = CUDA_GRAPH_INSTANTIATE_SUCCESS;
	return instantiate(out, g);
}
API CUresult cuGraphLaunch(CUgraphExec exec, CUstream s)
{
	struct op op = {.kind = OP_GRAPH, .graph = exec->graph};

	SEEN();
	pthread_mutex_lock(&fake_lock);
	exec->graph->refs++;
	pthread_mutex_unlock(&fake_lock);
	fake_put(fake_stream_of(s, 0), &op);
	return CUDA_SUCCESS;
}
static int same_shape(CUgraph a, CUgraph b)
{
	size_t i;

	for (i = 0; i < a->nr && i < b->nr; i++)
		if (a->nodes[i]->op.kind != b->nodes[i]->op.kind ||
		    a->nodes[i]->nr_before != b->nodes[i]->nr_before ||
		    (a->nodes[i]->op.graph &&
		     !same_shape(a->nodes[i]->op.graph, b->nodes[i]->op.graph)))
			return 0;
	return a->nr == b->nr;
}
static void replace(CUgraph *at, CUgraph with)
{
	CUgraph old = *at;

	*at = copy_of(with);
	fake_graph_put(old);
}
API CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph g, CUgraphExecUpdateResultInfo *info)
{
	int ok;

	SEEN();
	pthread_mutex_lock(&fake_lock);
	ok = same_shape(exec->graph, g);
	if (ok)
		replace(&exec->graph, g);
	pthread_mutex_unlock(&fake_lock);
	memset(info, 0, sizeof(*info));
	info->result =
		ok ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
	return ok ? CUDA_SUCCESS : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
}
/* An executable graph's node is named by that of the graph it was made of, which has as many, in the same order. */
static CUgraphNode exec_node(CUgraphExec exec, CUgraphNode n)
{
	size_t i;

	for (i = 0; i < n->graph->nr && n->graph->nodes[i] != n; i++)
		;
	return i < n->graph->nr && n->graph->nr == exec->graph->nr ? exec->graph->nodes[i] : NULL;
}
API CUresult cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode n,
					  const CUDA_HOST_NODE_PARAMS *p)
{
	SEEN();
	n = exec_node(exec, n);
	return n ? cuGraphHostNodeSetParams(n, p) : CUDA_ERROR_INVALID_VALUE;
}
API CUresult cuGraphExecBatchMemOpNodeSetParams(CUgraphExec exec, CUgraphNode n,
						const CUDA_BATCH_MEM_OP_NODE_PARAMS *p)
{
	SEEN();
	n = exec_node(exec, n);
	return n ? cuGraphBatchMemOpNodeSetParams(n, p) : CUDA_ERROR_INVALID_VALUE;
}
API CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode n, CUgraph child)
{
	int ok;

	SEEN();
	n = exec_node(exec, n);
	if (!n || n->op.kind != OP_GRAPH)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&fake_lock);
	ok = same_shape(n->op.graph, child);
	if (ok)
		replace(&n->op.graph, child);
	pthread_mutex_unlock(&fake_lock);
	return ok ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
API CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode n, CUgraphNodeParams *p)
{
	CUDA_HOST_NODE_PARAMS host = {p->host.fn, p->host.userData};

	SEEN();
	return p->type == CU_GRAPH_NODE_TYPE_HOST ? cuGraphExecHostNodeSetParams(exec, n, &host)
						  : CUDA_ERROR_NOT_SUPPORTED;
}
/* Left out: what nobody here does. */
API CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode n,
					       const CUDA_KERNEL_NODE_PARAMS *p)
{
	(void)exec, (void)p;
	SEEN();
	return n->op.kind == OP_KERNEL ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
}
API CUresult cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode n, unsigned int on)
{
	(void)exec, (void)on;
	SEEN();
	return n->op.kind == OP_KERNEL || n->op.kind == OP_COPY || n->op.kind == OP_FILL
		       ? CUDA_ERROR_NOT_SUPPORTED
		       : CUDA_ERROR_INVALID_VALUE;
}
API CUresult cuGraphExecDestroy(CUgraphExec exec)
{
	SEEN();
	pthread_mutex_lock(&fake_lock);
	fake_graph_put(exec->graph);
	pthread_mutex_unlock(&fake_lock);
	free(exec);
	return CUDA_SUCCESS;
}

/* ---- user objects ---------------------------------------------------------------------------------------- */

API CUresult cuUserObjectCreate(CUuserObject *out, void *arg, CUhostFn destroy, unsigned int refs,
				unsigned int flags)
{
	(void)flags;
	SEEN();
	*out = calloc(1, sizeof(**out));
	**out = (struct CUuserObject_st){.refs = (int)refs, .destroy = destroy, .arg = arg};
	return CUDA_SUCCESS;
}
API CUresult cuGraphRetainUserObject(CUgraph g, CUuserObject o, unsigned int nr, unsigned int flags)
{
	SEEN();
	pthread_mutex_lock(&fake_lock);
	g->objects = realloc(g->objects, (g->nr_objects + 1) * sizeof(*g->objects));
	g->objects[g->nr_objects++] = o;
	if (!(flags & CU_GRAPH_USER_OBJECT_MOVE))
		o->refs += (int)nr;
	pthread_mutex_unlock(&fake_lock);
	return CUDA_SUCCESS;
}
