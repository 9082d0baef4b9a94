/*
 * Words that streams write and wait for, and the nodes that captures make of them; the runtime has
 * neither. A node is one word: a batch of several cannot be a node. Any thread.
 */
#include "interpose/hostcuda/driver/driver.h"
#include "interpose/hostcuda/engine/graph.h"

#include <string.h>

static cudaError_t op_of(enum df_hop_kind kind, CUdeviceptr p, uint64_t value, unsigned int flags,
			 unsigned int bytes, struct df_hop *op)
{
	if (!p || p % bytes)
		return cudaErrorInvalidValue;
	*op = (struct df_hop){.kind = kind, .word = {PTR(p), value, DF_HWORD_API}};
	if (bytes == 4)
		op->word.how |= DF_HWORD_32;
	if (kind == DF_HOP_WAIT)
		op->word.how |= flags & DF_HWORD_TEST;
	return cudaSuccess;
}

cudaError_t df_hword(cudaStream_t stream, enum df_hop_kind kind, CUdeviceptr p, uint64_t value,
		     unsigned int flags, unsigned int bytes)
{
	struct df_hstream *s;
	struct df_hop op;
	cudaError_t err = df_hstream_enter(stream, &s);

	if (!err)
		err = op_of(kind, p, value, flags, bytes, &op);
	return err ? err : df_hsubmit(s, &op, DF_WORK_MEMOP);
}

/* Converts parameters to an operation. If op->kind is DF_HOP_MARK, the word needs no operation. */
static cudaError_t from_params(const CUstreamBatchMemOpParams *p, struct df_hop *op)
{
	switch (p->operation) {
	case CU_STREAM_MEM_OP_WAIT_VALUE_32:
		return op_of(DF_HOP_WAIT, p->waitValue.address, p->waitValue.value,
			     p->waitValue.flags, 4, op);
	case CU_STREAM_MEM_OP_WAIT_VALUE_64:
		return op_of(DF_HOP_WAIT, p->waitValue.address, p->waitValue.value64,
			     p->waitValue.flags, 8, op);
	case CU_STREAM_MEM_OP_WRITE_VALUE_32:
		return op_of(DF_HOP_WRITE, p->writeValue.address, p->writeValue.value, 0, 4, op);
	case CU_STREAM_MEM_OP_WRITE_VALUE_64:
		return op_of(DF_HOP_WRITE, p->writeValue.address, p->writeValue.value64, 0, 8, op);
	case CU_STREAM_MEM_OP_BARRIER:
	case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
		op->kind = DF_HOP_MARK;
		return cudaSuccess;
	default:
		return cudaErrorInvalidValue;
	}
}

cudaError_t df_hwords(cudaStream_t stream, unsigned int nr, const CUstreamBatchMemOpParams *ops,
		      unsigned int flags)
{
	struct df_hstream *s;
	struct df_hop op;
	cudaError_t err = df_hstream_enter(stream, &s);
	unsigned int i;

	if (!err && nr && (!ops || flags))
		err = cudaErrorInvalidValue;
	for (i = 0; !err && i < nr; i++) {
		err = from_params(&ops[i], &op);
		if (!err && op.kind != DF_HOP_MARK)
			err = df_hsubmit(s, &op, DF_WORK_MEMOP);
	}
	return err;
}

/* -- nodes ------------------------------------------------------------------------------------- */

static cudaError_t node_op(const CUDA_BATCH_MEM_OP_NODE_PARAMS *p, struct df_hop *op)
{
	cudaError_t err = p && p->paramArray ? cudaSuccess : cudaErrorInvalidValue;

	if (!err && p->count != 1)
		err = cudaErrorNotSupported;
	if (!err)
		err = from_params(p->paramArray, op);
	return err ? err : op->kind == DF_HOP_MARK ? cudaErrorNotSupported : cudaSuccess;
}

DF_H_API CUresult cuGraphAddBatchMemOpNode(CUgraphNode *out, CUgraph g, const CUgraphNode *deps,
					   size_t nr, const CUDA_BATCH_MEM_OP_NODE_PARAMS *p)
{
	struct df_hop op;
	cudaError_t err = node_op(p, &op);

	if (!err)
		err = df_hnode_add(out, g, deps, nr, DF_HNODE_WORD, &op);
	return DF_H_CU(err);
}

static struct df_hnode *node_of(CUgraphNode n)
{
	struct df_hnode *node = df_henter() ? NULL : df_hnode_find(n);

	return node && node->type == DF_HNODE_WORD ? node : NULL;
}

/*
 * In CUDA the array of operations belongs to the node. Here it is valid until the calling thread's
 * next query.
 */
DF_H_API CUresult cuGraphBatchMemOpNodeGetParams(CUgraphNode n, CUDA_BATCH_MEM_OP_NODE_PARAMS *p)
{
	static __thread CUstreamBatchMemOpParams one;
	const struct df_hnode *node = node_of(n);
	int wide, waits;

	if (!node || !p)
		return CUDA_ERROR_INVALID_VALUE;
	wide = !(node->op.word.how & DF_HWORD_32);
	waits = node->op.kind == DF_HOP_WAIT;
	memset(&one, 0, sizeof(one));
	one.operation =
		waits  ? wide ? CU_STREAM_MEM_OP_WAIT_VALUE_64 : CU_STREAM_MEM_OP_WAIT_VALUE_32
		: wide ? CU_STREAM_MEM_OP_WRITE_VALUE_64
		       : CU_STREAM_MEM_OP_WRITE_VALUE_32;
	/* Waits and writes have the same members. */
	one.waitValue.address = (CUdeviceptr)(uintptr_t)node->op.word.addr;
	one.waitValue.value64 = node->op.word.value;
	one.waitValue.flags = waits ? node->op.word.how & DF_HWORD_TEST : 0;
	memset(p, 0, sizeof(*p));
	p->ctx = df_hctx_now();
	p->count = 1;
	p->paramArray = &one;
	return CUDA_SUCCESS;
}

DF_H_API CUresult cuGraphBatchMemOpNodeSetParams(CUgraphNode n,
						 const CUDA_BATCH_MEM_OP_NODE_PARAMS *p)
{
	struct df_hnode *node = node_of(n);
	struct df_hop op;
	cudaError_t err = node ? node_op(p, &op) : cudaErrorInvalidValue;

	if (!err)
		node->op = op;
	return DF_H_CU(err);
}

DF_H_API CUresult cuGraphExecBatchMemOpNodeSetParams(CUgraphExec x, CUgraphNode n,
						     const CUDA_BATCH_MEM_OP_NODE_PARAMS *p)
{
	struct df_hop op;
	cudaError_t err = node_of(n) ? node_op(p, &op) : cudaErrorInvalidValue;

	if (!err)
		err = df_hexec_node_set((cudaGraphExec_t)x, n, &op);
	return DF_H_CU(err);
}
