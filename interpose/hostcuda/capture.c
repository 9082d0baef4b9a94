/*
 * Stream capture: between begin and end, what is put on the streams of a capture becomes nodes of a
 * graph. Other streams join by waiting for an event that was recorded in the capture. A capture may be
 * spoiled by a forbidden call; it then stays so until its end, which reports it.
 *
 * One lock guards all captures; streams and events are looked at without it first, so programs that
 * capture nothing pay one load.
 */
#include "interpose/hostcuda/graph.h"

#include <stdlib.h>
#include <string.h>

struct df_hcapture {
	struct df_list node; /* of captures */
	uint64_t id;
	enum cudaStreamCaptureMode mode;
	struct df_htls *thread; /* that began it */
	struct df_hgraph *graph;
	struct df_hstream *origin;
	struct df_list members; /* streams */
	int own_graph;		/* made by the capture, not given to it */
	int spoiled;
};

static struct df_mutex lock = DF_MUTEX_INIT(DF_RANK_HOSTCUDA_TABLE, "host CUDA captures");
static struct df_list captures = DF_LIST_INIT(captures);
static unsigned nr_captures; /* atomic: length of the list */

/* Lock held. */
static struct df_hcapture *capture_by_id(uint64_t id)
{
	struct df_hcapture *c;

	df_list_each(c, &captures, node)
	{
		if (c->id == id)
			return c;
	}
	return NULL;
}

static int any_capture(void)
{
	/* RELAXED: a capture that begins at the same time is not ordered with this call. */
	return __atomic_load_n(&nr_captures, __ATOMIC_RELAXED) != 0;
}

/* Lock held. */
static void join(struct df_hcapture *c, struct df_hstream *s)
{
	s->frontier.nr = 0;
	df_list_add_tail(&c->members, &s->members);
	/* RELAXED: see df_hstream_capturing(). */
	__atomic_store_n(&s->capture, c, __ATOMIC_RELAXED);
}

/* Lock held. */
static void leave(struct df_hstream *s)
{
	df_list_del(&s->members);
	s->frontier.nr = 0;
	__atomic_store_n(&s->capture, NULL, __ATOMIC_RELAXED);
}

/* Lock held. Adds a node behind what the stream has captured so far. */
static cudaError_t add(struct df_hstream *s, enum cudaGraphNodeType type, struct df_hnode **out)
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
		node->params.fill = (struct cudaMemsetParams){.dst = op->fill.dst,
							      .pitch = op->fill.pitch,
							      .value = op->fill.value,
							      .elementSize = 1,
							      .width = op->fill.width,
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
	default:
		return cudaGraphNodeTypeEmpty;
	}
}

/* cudaErrorIllegalState: the stream does not capture. */
static cudaError_t add_op(struct df_hstream *s, const struct df_hop *op)
{
	struct df_hnode *node;
	cudaError_t err = cudaErrorIllegalState;

	df_mutex_lock(&lock);
	if (s->capture)
		err = add(s, type_of(op), &node);
	if (!err) {
		node->op = *op;
		params_of(node, op);
	}
	df_mutex_unlock(&lock);
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
	struct df_touch t;
	cudaError_t err;

	if (df_unlikely(df_hstream_capturing(s))) {
		err = add_op(s, op);
		if (err != cudaErrorIllegalState)
			return err;
	}
	err = df_hcapture_check_legacy(s);
	if (err)
		return err;
	df_hbefore_work(s, kind, df_hop_touch(op, &t));
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
	df_mutex_lock(&lock);
	if (s->capture)
		err = add(s, cudaGraphNodeTypeKernel, &node);
	if (!err)
		node->coll = coll;
	df_mutex_unlock(&lock);
	if (err)
		free(coll);
	return err ? (err == cudaErrorMemoryAllocation ? -ENOMEM : -EINVAL) : 0;
}

/* -- what is forbidden meanwhile ------------------------------------------------------------------ */

cudaError_t df_hunsafe(void)
{
	struct df_hcapture *c;
	int hit = 0;

	if (df_likely(!any_capture()) || df_htls.capture_mode == cudaStreamCaptureModeRelaxed)
		return cudaSuccess;
	df_mutex_lock(&lock);
	df_list_each(c, &captures, node)
	{
		if (c->mode == cudaStreamCaptureModeRelaxed)
			continue;
		if (c->thread != &df_htls && (c->mode != cudaStreamCaptureModeGlobal ||
					      df_htls.capture_mode != cudaStreamCaptureModeGlobal))
			continue;
		c->spoiled = 1;
		hit = 1;
	}
	df_mutex_unlock(&lock);
	return hit ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}

/* spoil: the call would have disturbed them, not only asked. */
static cudaError_t check_legacy(struct df_hstream *s, int spoil)
{
	struct df_hcapture *c;
	struct df_hstream *t;
	int hit = 0;

	if (df_likely(!s->legacy || !any_capture()))
		return cudaSuccess;
	df_mutex_lock(&lock);
	df_list_each(c, &captures, node)
	{
		df_list_each(t, &c->members, members)
		{
			if (!t->blocking || t->device != s->device)
				continue;
			hit = 1;
			c->spoiled |= spoil;
		}
	}
	df_mutex_unlock(&lock);
	return hit ? cudaErrorStreamCaptureImplicit : cudaSuccess;
}

cudaError_t df_hcapture_check_legacy(struct df_hstream *s)
{
	return check_legacy(s, 1);
}

cudaError_t df_hcapture_check_sync(struct df_hstream *s)
{
	cudaError_t err = cudaSuccess;

	if (df_likely(!df_hstream_capturing(s)))
		return df_hcapture_check_legacy(s);
	df_mutex_lock(&lock);
	if (s->capture) {
		s->capture->spoiled = 1;
		err = cudaErrorStreamCaptureUnsupported;
	}
	df_mutex_unlock(&lock);
	return err;
}

void df_hcapture_stream_gone(struct df_hstream *s)
{
	struct df_hcapture *c;

	if (df_hstream_capturing(s)) {
		df_mutex_lock(&lock);
		c = s->capture;
		if (c) {
			c->spoiled = 1;
			leave(s);
			if (c->origin == s) {
				/* Nobody can end it any more. */
				while (!df_list_empty(&c->members))
					leave(df_list_first(&c->members, struct df_hstream,
							    members));
				df_list_del(&c->node);
				__atomic_fetch_sub(&nr_captures, 1, __ATOMIC_RELAXED);
			} else {
				c = NULL;
			}
		}
		df_mutex_unlock(&lock);
		if (c && c->own_graph)
			df_hgraph_delete(c->graph);
		free(c);
	}
	df_hnodes_fini(&s->frontier);
}

/* -- events --------------------------------------------------------------------------------------- */

static int copy_set(struct df_hnodes *to, const struct df_hnodes *from)
{
	size_t i;

	for (i = 0; i < from->nr; i++)
		if (df_hnodes_add(to, from->v[i]))
			return -ENOMEM;
	return 0;
}

/* Lock held. An event as a node of its own, for events that streams outside see. */
static cudaError_t add_event(struct df_hstream *s, struct df_hevent *e, enum cudaGraphNodeType type)
{
	struct df_hnode *node;
	cudaError_t err = add(s, type, &node);

	if (!err) {
		node->event = e;
		node->event_id = e->id;
	}
	return err;
}

cudaError_t df_hcapture_record(struct df_hevent *e, struct df_hstream *s, int external)
{
	cudaError_t err = cudaSuccess;

	df_mutex_lock(&lock);
	if (!s->capture) {
		err = cudaErrorStreamCaptureInvalidated;
	} else if (external) {
		err = add_event(s, e, cudaGraphNodeTypeEventRecord);
	} else if (s->capture->spoiled) {
		err = cudaErrorStreamCaptureInvalidated;
	} else {
		e->frontier.nr = 0;
		/* RELAXED: see record(). */
		__atomic_store_n(&e->capture_id, s->capture->id, __ATOMIC_RELAXED);
		if (copy_set(&e->frontier, &s->frontier))
			err = cudaErrorMemoryAllocation;
	}
	df_mutex_unlock(&lock);
	return err;
}

int df_hcapture_wait(struct df_hstream *s, struct df_hevent *e, int external)
{
	struct df_hcapture *c, *mine;
	int ret = 1;

	df_mutex_lock(&lock);
	mine = s->capture;
	c = e->capture_id ? capture_by_id(e->capture_id) : NULL;
	if (mine && mine->spoiled) {
		ret = -(int)cudaErrorStreamCaptureInvalidated;
	} else if (mine && external) {
		ret = -(int)add_event(s, e, cudaGraphNodeTypeWaitEvent);
		ret = ret ? ret : 1;
	} else if (e->capture_id && !c) {
		ret = -(int)cudaErrorCapturedEvent;
	} else if (!c && !mine) {
		ret = 0;
	} else if (!c) {
		/* RELAXED: an event that was never recorded is finished. */
		if (__atomic_load_n(&e->point, __ATOMIC_RELAXED)) {
			mine->spoiled = 1;
			ret = -(int)cudaErrorStreamCaptureIsolation;
		}
	} else if (mine && mine != c) {
		mine->spoiled = c->spoiled = 1;
		ret = -(int)cudaErrorStreamCaptureMerge;
	} else if (s->legacy) {
		c->spoiled = 1;
		ret = -(int)cudaErrorStreamCaptureImplicit;
	} else {
		if (!mine)
			join(c, s);
		if (copy_set(&s->frontier, &e->frontier))
			ret = -(int)cudaErrorMemoryAllocation;
	}
	df_mutex_unlock(&lock);
	return ret;
}

cudaError_t df_hcapture_event_check(struct df_hevent *e)
{
	struct df_hcapture *c;

	/* RELAXED: as in record(). */
	if (df_likely(!__atomic_load_n(&e->capture_id, __ATOMIC_RELAXED)))
		return cudaSuccess;
	df_mutex_lock(&lock);
	c = capture_by_id(e->capture_id);
	if (c)
		c->spoiled = 1;
	df_mutex_unlock(&lock);
	return cudaErrorCapturedEvent;
}

void df_hcapture_event_gone(struct df_hevent *e)
{
	/* RELAXED: the caller is the only one who still uses the event. */
	if (df_likely(!__atomic_load_n(&e->capture_id, __ATOMIC_RELAXED)))
		return;
	df_mutex_lock(&lock);
	__atomic_store_n(&e->capture_id, 0, __ATOMIC_RELAXED);
	df_hnodes_fini(&e->frontier);
	df_mutex_unlock(&lock);
}

/* -- begin, end ----------------------------------------------------------------------------------- */

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
	df_mutex_lock(&lock);
	if (s->capture) {
		err = cudaErrorIllegalState;
	} else {
		join(c, s);
		if (deps && copy_set(&s->frontier, deps))
			c->spoiled = 1;
		df_list_add_tail(&captures, &c->node);
		__atomic_fetch_add(&nr_captures, 1, __ATOMIC_RELAXED);
	}
	df_mutex_unlock(&lock);
	if (err) {
		if (c->own_graph)
			df_hgraph_delete(c->graph);
		free(c);
	}
	return err;
}

/* Marks the nodes and all they depend on. */
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

/* Lock held. Does the origin wait for everything that the other streams captured? */
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
	df_mutex_lock(&lock);
	c = s->capture;
	if (!c)
		err = cudaErrorIllegalState;
	else if (c->origin != s)
		err = cudaErrorStreamCaptureUnmatched;
	else if (c->mode != cudaStreamCaptureModeRelaxed && c->thread != &df_htls)
		err = cudaErrorStreamCaptureWrongThread;
	if (err) {
		df_mutex_unlock(&lock);
		return err;
	}
	if (c->spoiled)
		err = cudaErrorStreamCaptureInvalidated;
	else if (!joined(c))
		err = cudaErrorStreamCaptureUnjoined;
	while (!df_list_empty(&c->members))
		leave(df_list_first(&c->members, struct df_hstream, members));
	df_list_del(&c->node);
	__atomic_fetch_sub(&nr_captures, 1, __ATOMIC_RELAXED);
	df_mutex_unlock(&lock);
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
		err = check_legacy(s, 0);
	if (err)
		return df_hret(err);
	df_mutex_lock(&lock);
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
	df_mutex_unlock(&lock);
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
	df_mutex_lock(&lock);
	if (!s->capture)
		err = cudaErrorIllegalState;
	else if (flags == cudaStreamSetCaptureDependencies)
		s->frontier.nr = 0;
	for (i = 0; !err && i < nr; i++)
		if (df_hnodes_add(&s->frontier, df_hnode_find(deps[i])))
			err = cudaErrorMemoryAllocation;
	df_mutex_unlock(&lock);
	return df_hret(err);
}
