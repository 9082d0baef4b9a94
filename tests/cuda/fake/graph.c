/* The graphs of the stand-in driver: the operations that were captured, one after the other. */
#define _GNU_SOURCE
#include <stdlib.h>
#include "tests/cuda/fake/internal.h"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

API CUresult cuStreamBeginCapture_v2(CUstream s, CUstreamCaptureMode mode)
{
	(void)mode;
	SEEN();
	s = fake_stream_of(s, 0);
	s->capture = calloc(1, sizeof(*s->capture));
	s->capture->tail = &s->capture->head;
	s->capture_id = fake_next_id++;
	return CUDA_SUCCESS;
}
API CUresult cuStreamEndCapture(CUstream s, CUgraph *out)
{
	SEEN();
	s = fake_stream_of(s, 0);
	*out = s->capture;
	s->capture = NULL;
	return CUDA_SUCCESS;
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
		*deps = NULL;
	if (nr)
		*nr = 0;
	return CUDA_SUCCESS;
}
API CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *nr)
{
	struct op *op;
	size_t n = 0;

	SEEN();
	for (op = graph->head; op; op = op->next, n++)
		if (nodes && n < *nr)
			nodes[n] = (CUgraphNode)op;
	*nr = n;
	return CUDA_SUCCESS;
}
API CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *type)
{
	const struct op *op = (const struct op *)node;

	SEEN();
	*type = op->kind == OP_HOST ? CU_GRAPH_NODE_TYPE_HOST : CU_GRAPH_NODE_TYPE_EMPTY;
	return CUDA_SUCCESS;
}
API CUresult cuGraphHostNodeGetParams(CUgraphNode node, CUDA_HOST_NODE_PARAMS *out)
{
	const struct op *op = (const struct op *)node;

	SEEN();
	out->fn = op->fn;
	out->userData = op->data;
	return CUDA_SUCCESS;
}
API CUresult cuGraphAddHostNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *deps, size_t nr,
				const CUDA_HOST_NODE_PARAMS *params)
{
	struct op *op = calloc(1, sizeof(*op));

	(void)deps, (void)nr;
	SEEN();
	op->kind = OP_HOST;
	op->fn = params->fn;
	op->data = params->userData;
	*graph->tail = op;
	graph->tail = &op->next;
	graph->nr++;
	*out = (CUgraphNode)op;
	return CUDA_SUCCESS;
}
API CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph graph, unsigned long long flags)
{
	struct op *op, **at;

	(void)flags;
	SEEN();
	*out = calloc(1, sizeof(**out));
	at = &(*out)->head;
	for (op = graph->head; op; op = op->next) {
		*at = malloc(sizeof(*op));
		**at = *op;
		at = &(*at)->next;
	}
	*at = NULL;
	return CUDA_SUCCESS;
}
API CUresult cuGraphLaunch(CUgraphExec exec, CUstream s)
{
	struct op *op;

	SEEN();
	for (op = exec->head; op; op = op->next)
		fake_put(fake_stream_of(s, 0), op);
	return CUDA_SUCCESS;
}
API CUresult cuUserObjectCreate(CUuserObject *out, void *ptr, CUhostFn destroy, unsigned int refs,
				unsigned int flags)
{
	void **o = calloc(2, sizeof(*o));

	(void)refs, (void)flags;
	SEEN();
	o[0] = ptr;
	o[1] = (void *)destroy;
	*out = (CUuserObject)o;
	return CUDA_SUCCESS;
}
API CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int nr,
				     unsigned int flags)
{
	void **o = (void **)object;

	(void)nr, (void)flags;
	SEEN();
	graph->destroy_arg[graph->nr_destroy] = o[0];
	graph->destroy[graph->nr_destroy++] = (CUhostFn)o[1];
	free(o);
	return CUDA_SUCCESS;
}
static void free_ops(struct op *op)
{
	for (struct op *next; op; op = next) {
		next = op->next;
		free(op);
	}
}
API CUresult cuGraphDestroy(CUgraph graph)
{
	int i;

	SEEN();
	for (i = 0; i < graph->nr_destroy; i++)
		graph->destroy[i](graph->destroy_arg[i]);
	free_ops(graph->head);
	free(graph);
	return CUDA_SUCCESS;
}
API CUresult cuGraphExecDestroy(CUgraphExec exec)
{
	SEEN();
	free_ops(exec->head);
	free(exec);
	return CUDA_SUCCESS;
}
