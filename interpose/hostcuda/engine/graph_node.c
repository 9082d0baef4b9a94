/*
 * Graph nodes that programs add and change by hand. Parameters are checked as those of the stream
 * function that does the same, and converted to its operation (graph.h).
 */
#include "interpose/hostcuda/engine/graph.h"

#include <string.h>

static cudaError_t add(cudaGraphNode_t *out, cudaGraph_t graph, const cudaGraphNode_t *deps,
		       size_t nr, enum cudaGraphNodeType type, struct df_hnode **node)
{
	struct df_hnodes set = {0};
	struct df_hgraph *g = NULL;
	struct df_hnode *dep;
	cudaError_t err = df_henter();
	size_t i;

	if (!err)
		g = df_hgraph_find(graph);
	if (!err && (!out || !g || (nr && !deps)))
		err = cudaErrorInvalidValue;
	for (i = 0; !err && i < nr; i++) {
		dep = df_hnode_find(deps[i]);
		if (!dep || dep->graph != g)
			err = cudaErrorInvalidValue;
		else
			err = df_herr(df_hnodes_add(&set, dep));
	}
	*node = err ? NULL : df_hnode_new(g, type, &set);
	if (!err && !*node)
		err = cudaErrorMemoryAllocation;
	df_hnodes_fini(&set);
	if (!err)
		*out = (cudaGraphNode_t)*node;
	return err;
}

cudaError_t df_hnode_add(cudaGraphNode_t *out, cudaGraph_t graph, const cudaGraphNode_t *deps,
			 size_t nr, enum cudaGraphNodeType type, const struct df_hop *op)
{
	struct df_hnode *node;
	cudaError_t err = add(out, graph, deps, nr, type, &node);

	if (!err)
		node->op = *op;
	return err;
}

/* -- parameters as operations ------------------------------------------------------------------ */

static cudaError_t copy_op(const struct cudaMemcpy3DParms *p, struct df_hop *op)
{
	cudaError_t err = df_hcopy_box(p, op);
	int from, to;

	return err ? err : df_hcopy_check(op, p->kind, &from, &to);
}

static cudaError_t fill_op(const struct cudaMemsetParams *p, struct df_hop *op)
{
	if (!p || (p->elementSize != 1 && p->elementSize != 2 && p->elementSize != 4))
		return cudaErrorInvalidValue;
	*op = (struct df_hop){.kind = DF_HOP_FILL,
			      .fill = {p->dst, p->pitch, p->pitch * p->height,
				       p->width * p->elementSize, p->height, 1,
				       p->elementSize == 1 ? p->value & 0xff : p->value,
				       p->elementSize}};
	return df_hfill_check(op);
}

static cudaError_t host_op(const struct cudaHostNodeParams *p, struct df_hop *op)
{
	if (!p || !p->fn)
		return cudaErrorInvalidValue;
	*op = (struct df_hop){.kind = DF_HOP_HOST, .host = {p->fn, p->userData}};
	return cudaSuccess;
}

static cudaError_t kernel_op(const struct cudaKernelNodeParams *p, struct df_hop *op)
{
	if (!p || !p->func)
		return p ? cudaErrorInvalidDeviceFunction : cudaErrorInvalidValue;
	*op = (struct df_hop){.kind = DF_HOP_KERNEL};
	return df_h.stub ? cudaSuccess : cudaErrorNotSupported;
}

/*
 * For each kind of node: add it, read its parameters, change them in the graph, change them in an
 * executable.
 */
#define NODE(Kind, member, make, params_type)                                                      \
	DF_H_API cudaError_t cudaGraphAdd##Kind##Node(cudaGraphNode_t *out, cudaGraph_t graph,     \
						      const cudaGraphNode_t *deps, size_t nr,      \
						      const struct params_type *p)                 \
	{                                                                                          \
		struct df_hnode *node;                                                             \
		struct df_hop op;                                                                  \
		cudaError_t err = df_henter();                                                     \
                                                                                                   \
		if (!err)                                                                          \
			err = make(p, &op);                                                        \
		if (!err)                                                                          \
			err = add(out, graph, deps, nr, cudaGraphNodeType##Kind, &node);           \
		if (!err) {                                                                        \
			node->op = op;                                                             \
			node->params.member = *p;                                                  \
		}                                                                                  \
		return df_hret(err);                                                               \
	}                                                                                          \
	DF_H_API cudaError_t cudaGraph##Kind##NodeGetParams(cudaGraphNode_t handle,                \
							    struct params_type *p)                 \
	{                                                                                          \
		struct df_hnode *node = df_henter() ? NULL : df_hnode_find(handle);                \
                                                                                                   \
		if (!node || !p || node->type != cudaGraphNodeType##Kind || node->coll)            \
			return df_hret(cudaErrorInvalidValue);                                     \
		*p = node->params.member;                                                          \
		return cudaSuccess;                                                                \
	}                                                                                          \
	DF_H_API cudaError_t cudaGraph##Kind##NodeSetParams(cudaGraphNode_t handle,                \
							    const struct params_type *p)           \
	{                                                                                          \
		struct df_hnode *node = df_henter() ? NULL : df_hnode_find(handle);                \
		struct df_hop op;                                                                  \
		cudaError_t err = make(p, &op);                                                    \
                                                                                                   \
		if (!node || node->type != cudaGraphNodeType##Kind || node->coll)                  \
			err = cudaErrorInvalidValue;                                               \
		if (!err) {                                                                        \
			node->op = op;                                                             \
			node->params.member = *p;                                                  \
		}                                                                                  \
		return df_hret(err);                                                               \
	}                                                                                          \
	DF_H_API cudaError_t cudaGraphExec##Kind##NodeSetParams(                                   \
		cudaGraphExec_t exec, cudaGraphNode_t node, const struct params_type *p)           \
	{                                                                                          \
		struct df_hop op;                                                                  \
		cudaError_t err = df_henter();                                                     \
                                                                                                   \
		if (!err)                                                                          \
			err = make(p, &op);                                                        \
		return df_hret(err ? err : df_hexec_node_set(exec, node, &op));                    \
	}

NODE(Memcpy, copy, copy_op, cudaMemcpy3DParms)
NODE(Memset, fill, fill_op, cudaMemsetParams)
NODE(Host, host, host_op, cudaHostNodeParams)
NODE(Kernel, kernel, kernel_op, cudaKernelNodeParams)

static struct cudaMemcpy3DParms flat(void *dst, const void *src, size_t n, enum cudaMemcpyKind kind)
{
	struct cudaMemcpy3DParms p = {0};

	p.srcPtr = (struct cudaPitchedPtr){(void *)(uintptr_t)src, n, n, 1};
	p.dstPtr = (struct cudaPitchedPtr){dst, n, n, 1};
	p.extent = (struct cudaExtent){n, 1, 1};
	p.kind = kind;
	return p;
}

DF_H_API cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t *out, cudaGraph_t graph,
					      const cudaGraphNode_t *deps, size_t nr, void *dst,
					      const void *src, size_t n, enum cudaMemcpyKind kind)
{
	struct cudaMemcpy3DParms p = flat(dst, src, n, kind);

	return cudaGraphAddMemcpyNode(out, graph, deps, nr, &p);
}

DF_H_API cudaError_t cudaGraphMemcpyNodeSetParams1D(cudaGraphNode_t node, void *dst,
						    const void *src, size_t n,
						    enum cudaMemcpyKind kind)
{
	struct cudaMemcpy3DParms p = flat(dst, src, n, kind);

	return cudaGraphMemcpyNodeSetParams(node, &p);
}

DF_H_API cudaError_t cudaGraphExecMemcpyNodeSetParams1D(cudaGraphExec_t exec, cudaGraphNode_t node,
							void *dst, const void *src, size_t n,
							enum cudaMemcpyKind kind)
{
	struct cudaMemcpy3DParms p = flat(dst, src, n, kind);

	return cudaGraphExecMemcpyNodeSetParams(exec, node, &p);
}

/* -- nodes without parameters ------------------------------------------------------------------ */

DF_H_API cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t *out, cudaGraph_t graph,
					   const cudaGraphNode_t *deps, size_t nr)
{
	struct df_hnode *node;

	return df_hret(add(out, graph, deps, nr, cudaGraphNodeTypeEmpty, &node));
}

DF_H_API cudaError_t cudaGraphAddChildGraphNode(cudaGraphNode_t *out, cudaGraph_t graph,
						const cudaGraphNode_t *deps, size_t nr,
						cudaGraph_t child)
{
	struct df_hgraph *g = df_henter() ? NULL : df_hgraph_find(child), *copy;
	struct df_hnode *node;
	cudaError_t err;

	if (!g || child == graph)
		return df_hret(cudaErrorInvalidValue);
	copy = df_hgraph_clone(g);
	if (!copy)
		return df_hret(cudaErrorMemoryAllocation);
	err = add(out, graph, deps, nr, cudaGraphNodeTypeGraph, &node);
	if (err) {
		df_hgraph_delete(copy);
		return df_hret(err);
	}
	copy->owned = 1;
	node->child = copy;
	return cudaSuccess;
}

DF_H_API cudaError_t cudaGraphChildGraphNodeGetGraph(cudaGraphNode_t handle, cudaGraph_t *out)
{
	struct df_hnode *node = df_henter() ? NULL : df_hnode_find(handle);

	if (!node || !node->child || !out)
		return df_hret(cudaErrorInvalidValue);
	*out = (cudaGraph_t)node->child;
	return cudaSuccess;
}

static cudaError_t add_event(cudaGraphNode_t *out, cudaGraph_t graph, const cudaGraphNode_t *deps,
			     size_t nr, cudaEvent_t event, enum cudaGraphNodeType type)
{
	struct df_hevent *e = df_henter() ? NULL : df_hevent_find(event);
	struct df_hnode *node;
	cudaError_t err;

	if (!e)
		return cudaErrorInvalidValue;
	err = add(out, graph, deps, nr, type, &node);
	if (!err) {
		node->event = e;
		node->event_id = e->id;
	}
	return err;
}

DF_H_API cudaError_t cudaGraphAddEventRecordNode(cudaGraphNode_t *out, cudaGraph_t graph,
						 const cudaGraphNode_t *deps, size_t nr,
						 cudaEvent_t event)
{
	return df_hret(add_event(out, graph, deps, nr, event, cudaGraphNodeTypeEventRecord));
}

DF_H_API cudaError_t cudaGraphAddEventWaitNode(cudaGraphNode_t *out, cudaGraph_t graph,
					       const cudaGraphNode_t *deps, size_t nr,
					       cudaEvent_t event)
{
	return df_hret(add_event(out, graph, deps, nr, event, cudaGraphNodeTypeWaitEvent));
}

static cudaError_t get_event(cudaGraphNode_t handle, cudaEvent_t *out, enum cudaGraphNodeType type)
{
	struct df_hnode *node = df_henter() ? NULL : df_hnode_find(handle);

	if (!node || !out || node->type != type)
		return cudaErrorInvalidValue;
	*out = (cudaEvent_t)node->event;
	return cudaSuccess;
}

static cudaError_t set_event(cudaGraphNode_t handle, cudaEvent_t event, enum cudaGraphNodeType type)
{
	struct df_hnode *node = df_henter() ? NULL : df_hnode_find(handle);
	struct df_hevent *e = node ? df_hevent_find(event) : NULL;

	if (!e || node->type != type)
		return cudaErrorInvalidValue;
	node->event = e;
	node->event_id = e->id;
	return cudaSuccess;
}

DF_H_API cudaError_t cudaGraphEventRecordNodeGetEvent(cudaGraphNode_t node, cudaEvent_t *event)
{
	return df_hret(get_event(node, event, cudaGraphNodeTypeEventRecord));
}

DF_H_API cudaError_t cudaGraphEventWaitNodeGetEvent(cudaGraphNode_t node, cudaEvent_t *event)
{
	return df_hret(get_event(node, event, cudaGraphNodeTypeWaitEvent));
}

DF_H_API cudaError_t cudaGraphEventRecordNodeSetEvent(cudaGraphNode_t node, cudaEvent_t event)
{
	return df_hret(set_event(node, event, cudaGraphNodeTypeEventRecord));
}

DF_H_API cudaError_t cudaGraphEventWaitNodeSetEvent(cudaGraphNode_t node, cudaEvent_t event)
{
	return df_hret(set_event(node, event, cudaGraphNodeTypeWaitEvent));
}

/* -- the form for all kinds -------------------------------------------------------------------- */

DF_H_API cudaError_t cudaGraphAddNode(cudaGraphNode_t *out, cudaGraph_t graph,
				      const cudaGraphNode_t *deps, const cudaGraphEdgeData *edges,
				      size_t nr, struct cudaGraphNodeParams *p)
{
	struct cudaHostNodeParams host;
	struct cudaMemsetParams fill;

	(void)edges;
	if (!p)
		return df_hret(cudaErrorInvalidValue);
	switch (p->type) {
	case cudaGraphNodeTypeMemcpy:
		return cudaGraphAddMemcpyNode(out, graph, deps, nr, &p->memcpy.copyParams);
	case cudaGraphNodeTypeMemset:
		fill = (struct cudaMemsetParams){.dst = p->memset.dst,
						 .pitch = p->memset.pitch,
						 .value = p->memset.value,
						 .elementSize = p->memset.elementSize,
						 .width = p->memset.width,
						 .height = p->memset.height};
		return cudaGraphAddMemsetNode(out, graph, deps, nr, &fill);
	case cudaGraphNodeTypeHost:
		host = (struct cudaHostNodeParams){p->host.fn, p->host.userData};
		return cudaGraphAddHostNode(out, graph, deps, nr, &host);
	case cudaGraphNodeTypeGraph:
		return cudaGraphAddChildGraphNode(out, graph, deps, nr, p->graph.graph);
	case cudaGraphNodeTypeEmpty:
		return cudaGraphAddEmptyNode(out, graph, deps, nr);
	case cudaGraphNodeTypeEventRecord:
		return cudaGraphAddEventRecordNode(out, graph, deps, nr, p->eventRecord.event);
	case cudaGraphNodeTypeWaitEvent:
		return cudaGraphAddEventWaitNode(out, graph, deps, nr, p->eventWait.event);
	default:
		return df_hret(cudaErrorNotSupported);
	}
}
