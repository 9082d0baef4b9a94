/*
 * Stream capture: between begin and end, work that is put on the streams of a capture becomes nodes
 * of a graph. Other streams join by waiting for an event that was recorded in the capture. A
 * forbidden call invalidates a capture, and its end then reports that.
 *
 * One lock guards all captures. Streams and events are first checked without it, so programs that
 * capture nothing pay one load.
 */
#include "interpose/hostcuda/engine/capture.h"

#include <stdlib.h>
#include <string.h>

struct df_hcaptures df_hcaptures = {
	.lock = DF_MUTEX_INIT(DF_RANK_HOSTCUDA_TABLE, "host CUDA captures"),
	.list = DF_LIST_INIT(df_hcaptures.list)};

/* The caller holds the lock. */
struct df_hcapture *df_hcapture_by_id(uint64_t id)
{
	struct df_hcapture *c;

	df_list_each(c, &df_hcaptures.list, node)
	{
		if (c->id == id)
			return c;
	}
	return NULL;
}

int df_hcapture_any(void)
{
	/* RELAXED: a capture that begins at the same time is not ordered with this call. */
	return __atomic_load_n(&df_hcaptures.nr, __ATOMIC_RELAXED) != 0;
}

/* The caller holds the lock. */
void df_hcapture_join(struct df_hcapture *c, struct df_hstream *s)
{
	s->frontier.nr = 0;
	df_list_add_tail(&c->members, &s->members);
	/* RELAXED for the reason given in df_hstream_capturing(). */
	__atomic_store_n(&s->capture, c, __ATOMIC_RELAXED);
}

/* The caller holds the lock. */
void df_hcapture_leave(struct df_hstream *s)
{
	df_list_del(&s->members);
	s->frontier.nr = 0;
	__atomic_store_n(&s->capture, NULL, __ATOMIC_RELAXED);
}

int df_hnodes_copy(struct df_hnodes *to, const struct df_hnodes *from)
{
	size_t i;

	for (i = 0; i < from->nr; i++)
		if (df_hnodes_add(to, from->v[i]))
			return -ENOMEM;
	return 0;
}

/* Adds a node after the stream's last captured nodes. The caller holds the lock. */
cudaError_t df_hcapture_node(struct df_hstream *s, enum cudaGraphNodeType type,
			     struct df_hnode **out)
{
	struct df_hcapture *c = s->capture;
	struct df_hnode *node;

	if (c->spoiled)
		return cudaErrorStreamCaptureInvalidated;
	node = df_hnode_new(c->graph, type, &s->frontier);
	if (!node)
		return cudaErrorMemoryAllocation;
	node->device = s->device;
	s->frontier.nr = 0;
	if (df_hnodes_add(&s->frontier, node)) {
		c->spoiled = 1;
		return cudaErrorMemoryAllocation;
	}
	*out = node;
	return cudaSuccess;
}

static void params_of(struct df_hnode *node, const struct df_hop *op)
{
	if (op->kind == DF_HOP_COPY) {
		node->params.copy.srcPtr =
			(struct cudaPitchedPtr){(void *)(uintptr_t)op->copy.src, op->copy.src_pitch,
						op->copy.width, op->copy.height};
		node->params.copy.dstPtr = (struct cudaPitchedPtr){op->copy.dst, op->copy.dst_pitch,
								   op->copy.width, op->copy.height};
		node->params.copy.extent =
			(struct cudaExtent){op->copy.width, op->copy.height, op->copy.depth};
		node->params.copy.kind = cudaMemcpyDefault;
	} else if (op->kind == DF_HOP_FILL) {
		node->params.fill =
			(struct cudaMemsetParams){.dst = op->fill.dst,
						  .pitch = op->fill.pitch,
						  .value = op->fill.value,
						  .elementSize = op->fill.elem_bytes,
						  .width = op->fill.width / op->fill.elem_bytes,
						  .height = op->fill.height};
	} else if (op->kind == DF_HOP_HOST) {
		node->params.host = (struct cudaHostNodeParams){op->host.fn, op->host.arg};
	}
}

static enum cudaGraphNodeType type_of(const struct df_hop *op)
{
	switch (op->kind) {
	case DF_HOP_COPY:
		return cudaGraphNodeTypeMemcpy;
	case DF_HOP_FILL:
		return cudaGraphNodeTypeMemset;
	case DF_HOP_HOST:
		return cudaGraphNodeTypeHost;
	case DF_HOP_KERNEL:
		return cudaGraphNodeTypeKernel;
	case DF_HOP_WRITE:
	case DF_HOP_WAIT:
		return op->word.how & DF_HWORD_API ? DF_HNODE_WORD : cudaGraphNodeTypeEmpty;
	default:
		return cudaGraphNodeTypeEmpty;
	}
}

/* Adds the operation as a node. Returns cudaErrorIllegalState if the stream does not capture. */
static cudaError_t add_op(struct df_hstream *s, const struct df_hop *op)
{
	struct df_hnode *node;
	cudaError_t err = cudaErrorIllegalState;

	df_mutex_lock(&df_hcaptures.lock);
	if (s->capture)
		err = df_hcapture_node(s, type_of(op), &node);
	if (!err) {
		node->op = *op;
		params_of(node, op);
	}
	df_mutex_unlock(&df_hcaptures.lock);
	return err;
}

int df_hcapture_add(struct df_hstream *s, const struct df_hop *op)
{
	cudaError_t err;

	if (df_likely(!df_hstream_capturing(s)))
		return 0;
	err = add_op(s, op);
	if (err == cudaErrorIllegalState)
		return 0;
	return err ? (err == cudaErrorMemoryAllocation ? -ENOMEM : -EINVAL) : 1;
}

cudaError_t df_hsubmit(struct df_hstream *s, const struct df_hop *op, enum df_work kind)
{
	struct df_touch touch;
	cudaError_t err;

	if (df_unlikely(df_hstream_capturing(s))) {
		err = add_op(s, op);
		if (err != cudaErrorIllegalState)
			return err;
	}
	err = df_hcapture_check_legacy(s);
	if (err)
		return err;
	df_hbefore_work(s, kind, df_hop_touch(op, &touch));
	return df_herr(df_hstream_put(s, op, NULL));
}

int df_hcapture_coll(struct df_hstream *s, const struct df_capture_ops *ops, void *arg)
{
	struct df_hcoll *coll;
	struct df_hnode *node;
	cudaError_t err = cudaErrorIllegalState;

	if (!df_hstream_capturing(s))
		return -EINVAL;
	coll = malloc(sizeof(*coll));
	if (!coll)
		return -ENOMEM;
	*coll = (struct df_hcoll){ops, arg, 1};
	df_mutex_lock(&df_hcaptures.lock);
	if (s->capture)
		err = df_hcapture_node(s, cudaGraphNodeTypeKernel, &node);
	if (!err)
		node->coll = coll;
	df_mutex_unlock(&df_hcaptures.lock);
	if (err)
		free(coll);
	return err ? (err == cudaErrorMemoryAllocation ? -ENOMEM : -EINVAL) : 0;
}

/* -- begin, end -------------------------------------------------------------------------------- */

static cudaError_t begin(cudaStream_t stream, struct df_hgraph *graph, const struct df_hnodes *deps,
			 enum cudaStreamCaptureMode mode)
{
	struct df_hstream *s;
	struct df_hcapture *c;
	cudaError_t err = df_hstream_enter(stream, &s);

	if (err)
		return err;
	if (s->legacy)
		return cudaErrorStreamCaptureUnsupported;
	if ((unsigned)mode > cudaStreamCaptureModeRelaxed)
		return cudaErrorInvalidValue;
	c = calloc(1, sizeof(*c));
	if (!c)
		return cudaErrorMemoryAllocation;
	c->id = df_hid();
	c->mode = mode;
	c->thread = &df_htls;
	c->origin = s;
	c->own_graph = !graph;
	c->graph = graph ? graph : df_hgraph_new();
	if (!c->graph) {
		free(c);
		return cudaErrorMemoryAllocation;
	}
	df_list_init(&c->members);
	df_mutex_lock(&df_hcaptures.lock);
	if (s->capture) {
		err = cudaErrorIllegalState;
	} else {
		df_hcapture_join(c, s);
		if (deps && df_hnodes_copy(&s->frontier, deps))
			c->spoiled = 1;
		df_list_add_tail(&df_hcaptures.list, &c->node);
		__atomic_fetch_add(&df_hcaptures.nr, 1, __ATOMIC_RELAXED);
	}
	df_mutex_unlock(&df_hcaptures.lock);
	if (err) {
		if (c->own_graph)
			df_hgraph_delete(c->graph);
		free(c);
	}
	return err;
}

/* Marks the nodes and all nodes on which they depend. */
static int mark(const struct df_hnodes *set)
{
	struct df_hnodes stack = {0};
	struct df_hnode *node;
	size_t i;
	int err = 0;

	for (i = 0; i < set->nr && !err; i++)
		err = df_hnodes_push(&stack, set->v[i]);
	while (stack.nr && !err) {
		node = stack.v[--stack.nr];
		if (node->order)
			continue;
		node->order = 1;
		for (i = 0; i < node->deps.nr && !err; i++)
			err = df_hnodes_push(&stack, node->deps.v[i]);
	}
	df_hnodes_fini(&stack);
	return err;
}

/*
 * Whether the origin waits for everything that the other streams captured. The caller holds the
 * lock.
 */
static int joined(struct df_hcapture *c)
{
	struct df_hstream *s;
	size_t i;

	for (i = 0; i < c->graph->nodes.nr; i++)
		c->graph->nodes.v[i]->order = 0;
	if (mark(&c->origin->frontier))
		return 0;
	df_list_each(s, &c->members, members)
	{
		for (i = 0; i < s->frontier.nr; i++)
			if (!s->frontier.v[i]->order)
				return 0;
	}
	return 1;
}

static cudaError_t end(cudaStream_t stream, cudaGraph_t *out)
{
	struct df_hstream *s;
	struct df_hcapture *c;
	cudaError_t err = df_hstream_enter(stream, &s);

	if (!err && !out)
		err = cudaErrorInvalidValue;
	if (err)
		return err;
	df_mutex_lock(&df_hcaptures.lock);
	c = s->capture;
	if (!c)
		err = cudaErrorIllegalState;
	else if (c->origin != s)
		err = cudaErrorStreamCaptureUnmatched;
	else if (c->mode != cudaStreamCaptureModeRelaxed && c->thread != &df_htls)
		err = cudaErrorStreamCaptureWrongThread;
	if (err) {
		df_mutex_unlock(&df_hcaptures.lock);
		return err;
	}
	if (c->spoiled)
		err = cudaErrorStreamCaptureInvalidated;
	else if (!joined(c))
		err = cudaErrorStreamCaptureUnjoined;
	while (!df_list_empty(&c->members))
		df_hcapture_leave(df_list_first(&c->members, struct df_hstream, members));
	df_list_del(&c->node);
	__atomic_fetch_sub(&df_hcaptures.nr, 1, __ATOMIC_RELAXED);
	df_mutex_unlock(&df_hcaptures.lock);
	*out = err ? NULL : (cudaGraph_t)c->graph;
	if (err && c->own_graph)
		df_hgraph_delete(c->graph);
	free(c);
	return err;
}

DF_H_API cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
	return df_hret(begin(stream, NULL, NULL, mode));
}

DF_H_API cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t stream, cudaGraph_t graph,
						   const cudaGraphNode_t *deps,
						   const cudaGraphEdgeData *edges, size_t nr,
						   enum cudaStreamCaptureMode mode)
{
	struct df_hnodes set = {0};
	struct df_hgraph *g;
	cudaError_t err = df_henter();
	size_t i;

	(void)edges;
	g = err ? NULL : df_hgraph_find(graph);
	if (!err && (!g || (nr && !deps)))
		err = cudaErrorInvalidValue;
	for (i = 0; !err && i < nr; i++) {
		struct df_hnode *node = df_hnode_find(deps[i]);

		if (!node || node->graph != g)
			err = cudaErrorInvalidValue;
		else if (df_hnodes_add(&set, node))
			err = cudaErrorMemoryAllocation;
	}
	if (!err)
		err = begin(stream, g, &set, mode);
	df_hnodes_fini(&set);
	return df_hret(err);
}

DF_H_API cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
	return df_hret(end(stream, graph));
}

DF_H_API cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
	int old = df_htls.capture_mode;

	if (!mode || (unsigned)*mode > cudaStreamCaptureModeRelaxed)
		return df_hret(cudaErrorInvalidValue);
	df_htls.capture_mode = *mode;
	*mode = (enum cudaStreamCaptureMode)old;
	return cudaSuccess;
}

DF_H_API cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream,
					      enum cudaStreamCaptureStatus *status,
					      unsigned long long *id, cudaGraph_t *graph,
					      const cudaGraphNode_t **deps,
					      const cudaGraphEdgeData **edges, size_t *nr)
{
	struct df_hstream *s;
	cudaError_t err = df_hstream_enter(stream, &s);

	if (!err && !status)
		err = cudaErrorInvalidValue;
	if (!err && s->legacy)
		err = df_hcapture_legacy(s, 0);
	if (err)
		return df_hret(err);
	df_mutex_lock(&df_hcaptures.lock);
	*status = !s->capture		? cudaStreamCaptureStatusNone
		  : s->capture->spoiled ? cudaStreamCaptureStatusInvalidated
					: cudaStreamCaptureStatusActive;
	if (*status == cudaStreamCaptureStatusActive) {
		if (id)
			*id = s->capture->id;
		if (graph)
			*graph = (cudaGraph_t)s->capture->graph;
		if (deps)
			*deps = (const cudaGraphNode_t *)s->frontier.v;
		if (nr)
			*nr = s->frontier.nr;
		if (edges)
			*edges = NULL;
	}
	df_mutex_unlock(&df_hcaptures.lock);
	return cudaSuccess;
}

DF_H_API cudaError_t cudaStreamIsCapturing(cudaStream_t stream,
					   enum cudaStreamCaptureStatus *status)
{
	return cudaStreamGetCaptureInfo(stream, status, NULL, NULL, NULL, NULL, NULL);
}

DF_H_API cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t stream, cudaGraphNode_t *deps,
							 const cudaGraphEdgeData *edges, size_t nr,
							 unsigned flags)
{
	struct df_hstream *s;
	cudaError_t err = df_hstream_enter(stream, &s);
	size_t i;

	(void)edges;
	if (!err && ((nr && !deps) || flags > cudaStreamSetCaptureDependencies))
		err = cudaErrorInvalidValue;
	for (i = 0; !err && i < nr; i++)
		if (!df_hnode_find(deps[i]))
			err = cudaErrorInvalidValue;
	if (err)
		return df_hret(err);
	df_mutex_lock(&df_hcaptures.lock);
	if (!s->capture)
		err = cudaErrorIllegalState;
	else if (flags == cudaStreamSetCaptureDependencies)
		s->frontier.nr = 0;
	for (i = 0; !err && i < nr; i++)
		if (df_hnodes_add(&s->frontier, df_hnode_find(deps[i])))
			err = cudaErrorMemoryAllocation;
	df_mutex_unlock(&df_hcaptures.lock);
	return df_hret(err);
}
