/*
 * A program that treats captured collectives like other nodes. It changes them in graphs and in
 * executable graphs, removes them, and replaces child graphs that contain them. Allowed changes are
 * made, others are refused, and no result is wrong and no call hangs. Two ranks, each with a thread
 * and a device, on the test driver. With "late", NCCL is called before the driver. Exits with 0 if
 * everything is right.
 */
#define _GNU_SOURCE
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <nccl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tests/cuda/daemon_kernel.h"

#define RANKS 2
#define COUNT 1000

static ncclUniqueId id;
static pthread_barrier_t both;

static void must(int ok, const char *what, int line)
{
	if (ok)
		return;
	fprintf(stderr, "line %d: %s\n", line, what);
	exit(1);
}
#define MUST(x)	      must((x) != 0, #x, __LINE__)
#define CU(call)      must((call) == CUDA_SUCCESS, #call, __LINE__)
#define REFUSED(call) must((call) == CUDA_ERROR_NOT_SUPPORTED, #call " is not refused", __LINE__)

struct bench {
	int rank;
	ncclComm_t comm;
	CUstream s, idle;
	float *in, *out, *copy;
	int called, other; /* incremented by the program's host functions */
};

static void CUDA_CB count(void *arg)
{
	++*(int *)arg;
}

/* Captures the collective, a copy of its result, and a host function. */
static CUgraph captured(struct bench *b)
{
	CUgraph graph;

	CU(cuStreamBeginCapture_v2(b->s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	/* This stream captures nothing, so the capture of the other stream continues. */
	MUST(cuStreamEndCapture(b->idle, &graph) != CUDA_SUCCESS);
	MUST(ncclAllReduce(b->in, b->out, COUNT, ncclFloat, ncclSum, b->comm, (cudaStream_t)b->s) ==
	     ncclSuccess);
	CU(cuMemcpyAsync((CUdeviceptr)b->copy, (CUdeviceptr)b->out, COUNT * sizeof(float), b->s));
	CU(cuLaunchHostFunc(b->s, count, &b->called));
	CU(cuStreamEndCapture(b->s, &graph));
	return graph;
}

/* Nodes are in the order of capture; v[3] is the copy. */
static void nodes_of(CUgraph graph, CUgraphNode *arrive, CUgraphNode *wait, CUgraphNode *write,
		     CUgraphNode *own)
{
	CUgraphNode v[5];
	size_t nr = 5;

	CU(cuGraphGetNodes(graph, v, &nr));
	must(nr == 5, "a collective, a copy and a host function are not five nodes", (int)nr);
	*arrive = v[0];
	*wait = v[1];
	*write = v[2];
	*own = v[4];
}

/*
 * Launches the graph twice, because a gate that is left open shows in the second launch. `has`:
 * whether the graph contains a collective.
 */
static void run(struct bench *b, CUgraphExec exec, int has)
{
	int i, k;

	for (k = 1; k <= 2; k++) {
		for (i = 0; i < COUNT; i++) {
			b->in[i] = (float)((b->rank + 1) * k);
			b->out[i] = b->copy[i] = -1;
		}
		CU(cuGraphLaunch(exec, b->s));
		CU(cuStreamSynchronize(b->s));
		for (i = 0; i < COUNT; i++)
			MUST(b->copy[i] == (has ? 3 * (float)k : -1));
	}
}

/* Changes of single nodes of an executable graph. */
static void exec_nodes(struct bench *b)
{
	CUDA_HOST_NODE_PARAMS to = {count, &b->other};
	CUDA_BATCH_MEM_OP_NODE_PARAMS ops;
	CUstreamBatchMemOpParams op;
	CUgraphNodeParams any = {.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP};
	CUgraph graph = captured(b);
	CUgraphNode arrive, wait, write, own;
	CUgraphExec exec;

	nodes_of(graph, &arrive, &wait, &write, &own);
	CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
	CU(cuGraphBatchMemOpNodeGetParams(arrive, &ops));
	op = ops.paramArray[0];
	op.writeValue.value64 = 2;
	ops.paramArray = &op;
	REFUSED(cuGraphExecBatchMemOpNodeSetParams(exec, arrive, &ops));
	any.memOp = (CUDA_BATCH_MEM_OP_NODE_PARAMS_v2){ops.ctx, ops.count, ops.paramArray, 0};
	REFUSED(cuGraphExecNodeSetParams(exec, arrive, &any));
	CU(cuGraphBatchMemOpNodeGetParams(write, &ops));
	op = ops.paramArray[0];
	op.writeValue.value64 = 1;
	ops.paramArray = &op;
	REFUSED(cuGraphExecBatchMemOpNodeSetParams(exec, write, &ops));
	op.writeValue.address += 4096;
	REFUSED(cuGraphExecBatchMemOpNodeSetParams(exec, wait, &ops));
	run(b, exec, 1);
	MUST(b->called == 2 && !b->other);
	/* Changes without an effect, and changes of the program's own nodes, are allowed. */
	CU(cuGraphBatchMemOpNodeGetParams(arrive, &ops));
	CU(cuGraphExecBatchMemOpNodeSetParams(exec, arrive, &ops));
	CU(cuGraphBatchMemOpNodeGetParams(write, &ops));
	CU(cuGraphExecBatchMemOpNodeSetParams(exec, write, &ops));
	CU(cuGraphExecHostNodeSetParams(exec, own, &to));
	run(b, exec, 1);
	MUST(b->called == 2 && b->other == 2);
	CU(cuGraphExecDestroy(exec));
	CU(cuGraphDestroy(graph));
}

/* Replacement of child graphs in an executable graph. */
static void exec_children(struct bench *b)
{
	CUDA_HOST_NODE_PARAMS to = {count, &b->other};
	CUgraph ours = captured(b), again = captured(b), plain, plain2, parent;
	CUgraphNode node, node2, h;
	CUgraphExec exec;

	CU(cuGraphCreate(&plain, 0));
	CU(cuGraphCreate(&plain2, 0));
	CU(cuGraphCreate(&parent, 0));
	CU(cuGraphAddHostNode(&h, plain, NULL, 0, &to));
	CU(cuGraphAddHostNode(&h, plain2, NULL, 0, &(CUDA_HOST_NODE_PARAMS){count, &b->called}));
	CU(cuGraphAddChildGraphNode(&node, parent, NULL, 0, ours));
	CU(cuGraphAddChildGraphNode(&node2, parent, &node, 1, plain));
	CU(cuGraphInstantiateWithFlags(&exec, parent, 0));
	b->called = b->other = 0;
	REFUSED(cuGraphExecChildGraphNodeSetParams(exec, node, again));
	REFUSED(cuGraphExecChildGraphNodeSetParams(exec, node2, again));
	CU(cuGraphExecChildGraphNodeSetParams(exec, node2, plain2));
	run(b, exec, 1);
	MUST(b->called == 4 && b->other == 0);
	CU(cuGraphExecDestroy(exec));
	CU(cuGraphDestroy(parent));
	CU(cuGraphDestroy(plain));
	CU(cuGraphDestroy(plain2));
	CU(cuGraphDestroy(again));
	CU(cuGraphDestroy(ours));
}

/*
 * A graph in which a part of the collective is missing or changed is refused. A graph without any
 * part of it is accepted.
 */
static void graph_nodes(struct bench *b)
{
	CUgraphExecUpdateResultInfo info;
	CUDA_BATCH_MEM_OP_NODE_PARAMS ops;
	CUstreamBatchMemOpParams op;
	CUgraphNode arrive, wait, write, own;
	CUgraph graph, good = captured(b);
	CUgraphExec exec, kept;
	int i;

	CU(cuGraphInstantiateWithFlags(&kept, good, 0));
	for (i = 0; i < 7; i++) {
		graph = captured(b);
		nodes_of(graph, &arrive, &wait, &write, &own);
		exec = (CUgraphExec)b;
		if (i == 0 || i == 6)
			CU(cuGraphDestroyNode(arrive));
		if (i == 1 || i == 6)
			CU(cuGraphDestroyNode(wait));
		if (i == 2 || i == 6)
			CU(cuGraphDestroyNode(write));
		if (i == 3 || i == 4) {
			CU(cuGraphBatchMemOpNodeGetParams(i == 3 ? arrive : write, &ops));
			op = ops.paramArray[0];
			op.writeValue.value64 = i == 3 ? 2 : 1;
			ops.paramArray = &op;
			CU(cuGraphBatchMemOpNodeSetParams(i == 3 ? arrive : write, &ops));
		}
		if (i == 5)
			CU(cuGraphRemoveDependencies_v2(graph, &wait, &write, NULL, 1));
		if (i == 6) {
			CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
			run(b, exec, 0);
			CU(cuGraphExecDestroy(exec));
		} else {
			REFUSED(cuGraphInstantiateWithFlags(&exec, graph, 0));
			MUST(!exec);
		}
		/*
		 * The driver accepts an update with the same shape. For dfshim the result cannot be
		 * launched.
		 */
		if (i == 3) {
			run(b, kept, 1);
			MUST(cuGraphExecUpdate_v2(kept, graph, &info) ==
			     CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
			REFUSED(cuGraphLaunch(kept, b->s));
			CU(cuGraphExecUpdate_v2(kept, good, &info));
			run(b, kept, 1);
		}
		CU(cuGraphDestroy(graph));
	}
	CU(cuGraphExecDestroy(kept));
	CU(cuGraphDestroy(good));
}

/*
 * Nodes that the program makes from dfshim's nodes refer to objects that live only as long as the
 * captured graph.
 */
static void copied(struct bench *b)
{
	CUDA_BATCH_MEM_OP_NODE_PARAMS ops[3];
	CUstreamBatchMemOpParams op[3];
	CUgraphNode of[3], own, node[3];
	CUgraph copy, graph = captured(b);
	CUgraphExec exec, theirs;
	CUresult r;
	int i;

	nodes_of(graph, &of[0], &of[1], &of[2], &own);
	CU(cuGraphCreate(&copy, 0));
	for (i = 0; i < 3; i++) {
		CU(cuGraphBatchMemOpNodeGetParams(of[i], &ops[i]));
		op[i] = ops[i].paramArray[0];
		ops[i].paramArray = &op[i];
		CU(cuGraphAddBatchMemOpNode(&node[i], copy, i ? &node[i - 1] : NULL, i > 0,
					    &ops[i]));
	}
	CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
	CU(cuGraphDestroy(graph));
	/* The executable graph `exec` keeps these objects alive. */
	CU(cuGraphInstantiateWithFlags(&theirs, copy, 0));
	CU(cuGraphExecDestroy(theirs));
	run(b, exec, 1);
	CU(cuGraphExecDestroy(exec));
	/* The driver and dfshim's poller drop their references asynchronously. */
	while ((r = cuGraphInstantiateWithFlags(&theirs, copy, 0)) == CUDA_SUCCESS) {
		CU(cuGraphExecDestroy(theirs));
		usleep(1000);
	}
	MUST(r == CUDA_ERROR_NOT_SUPPORTED);
	CU(cuGraphDestroy(copy));
}

/* Replays without a pause: a graph is replayed while the poller still processes the last replay. */
static void again(struct bench *b)
{
	CUgraph graph = captured(b);
	CUgraphExec exec;
	int i;

	CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
	CU(cuGraphDestroy(graph));
	for (i = 0; i < COUNT; i++)
		b->in[i] = (float)(b->rank + 1);
	for (i = 0; i < 2000; i++) {
		CU(cuGraphLaunch(exec, b->s));
		CU(cuStreamSynchronize(b->s));
		MUST(b->copy[0] == 3 && b->copy[COUNT - 1] == 3);
	}
	CU(cuGraphExecDestroy(exec));
}

/*
 * Each rank launches a graph that contains only a collective. Returns how many graphs of both ranks
 * the driver is asked to launch.
 */
static int launched(struct bench *b)
{
	CUgraphExec exec;
	CUgraph graph;
	uint64_t before;
	int i, n;

	CU(cuStreamBeginCapture_v2(b->s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	MUST(ncclAllReduce(b->in, b->out, COUNT, ncclFloat, ncclSum, b->comm, (cudaStream_t)b->s) ==
	     ncclSuccess);
	CU(cuStreamEndCapture(b->s, &graph));
	CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
	for (i = 0; i < COUNT; i++)
		b->in[i] = (float)(b->rank + 1);
	/* The barriers separate earlier launches and other counts from this one. */
	pthread_barrier_wait(&both);
	before = fake_cuda()->calls("cuGraphLaunch");
	pthread_barrier_wait(&both);
	CU(cuGraphLaunch(exec, b->s));
	CU(cuStreamSynchronize(b->s));
	for (i = 0; i < COUNT; i++)
		MUST(b->out[i] == 3);
	pthread_barrier_wait(&both);
	n = (int)(fake_cuda()->calls("cuGraphLaunch") - before);
	CU(cuGraphExecDestroy(exec));
	CU(cuGraphDestroy(graph));
	pthread_barrier_wait(&both);
	return n;
}

/*
 * Two executable graphs of one captured graph on two streams: a gate serves one of them at a time,
 * and no launch is lost.
 */
static void two_at_a_time(struct bench *b)
{
	CUgraph graph = captured(b);
	CUgraphExec exec[2];
	int i, k;

	for (i = 0; i < 2; i++)
		CU(cuGraphInstantiateWithFlags(&exec[i], graph, 0));
	CU(cuGraphDestroy(graph));
	for (i = 0; i < COUNT; i++)
		b->in[i] = (float)(b->rank + 1);
	for (k = 0; k < 20; k++) {
		CU(cuGraphLaunch(exec[k % 2], k % 2 ? b->s : b->idle));
		if (k % 5)
			continue;
		CU(cuStreamSynchronize(b->s));
		CU(cuStreamSynchronize(b->idle));
		for (i = 0; i < COUNT; i++)
			MUST(b->copy[i] == 3);
	}
	for (i = 0; i < 2; i++) {
		CU(cuStreamSynchronize(i ? b->s : b->idle));
		CU(cuGraphExecDestroy(exec[i]));
	}
}

/*
 * One captured graph twice in a parent graph: without an order between the two, both could run at
 * the same time, which is refused.
 */
static void twice(struct bench *b)
{
	CUgraph ours = captured(b), parent;
	CUgraphNode node[2];
	CUgraphExec exec;
	int i;

	for (i = 0; i < 2; i++) {
		CU(cuGraphCreate(&parent, 0));
		CU(cuGraphAddChildGraphNode(&node[0], parent, NULL, 0, ours));
		CU(cuGraphAddChildGraphNode(&node[1], parent, node, (size_t)i, ours));
		if (i) {
			CU(cuGraphInstantiateWithFlags(&exec, parent, 0));
			run(b, exec, 1);
			CU(cuGraphExecDestroy(exec));
		} else {
			REFUSED(cuGraphInstantiateWithFlags(&exec, parent, 0));
		}
		CU(cuGraphDestroy(parent));
	}
	CU(cuGraphDestroy(ours));
}

/*
 * A group starts as a whole. Here a small and a large collective use one block and several, with
 * ten replays in flight.
 */
static void group(struct bench *b)
{
	const size_t large = 1 << 18;
	float *in = malloc(2 * large * sizeof(float)), *out = in + large;
	uint64_t calls = fake_cuda()->calls("cuLaunchHostFunc");
	CUgraphExec exec;
	CUgraph graph;
	size_t i;
	int k;

	CU(cuStreamBeginCapture_v2(b->s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	MUST(ncclGroupStart() == ncclSuccess);
	MUST(ncclAllReduce(b->in, b->out, COUNT, ncclFloat, ncclSum, b->comm, (cudaStream_t)b->s) ==
	     ncclSuccess);
	MUST(ncclAllReduce(in, out, large, ncclFloat, ncclMax, b->comm, (cudaStream_t)b->s) ==
	     ncclSuccess);
	MUST(ncclGroupEnd() == ncclSuccess);
	CU(cuMemcpyAsync((CUdeviceptr)b->copy, (CUdeviceptr)b->out, COUNT * sizeof(float), b->s));
	CU(cuStreamEndCapture(b->s, &graph));
	CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
	CU(cuGraphDestroy(graph));
	for (i = 0; i < large; i++)
		in[i] = (float)((i + (size_t)b->rank) % 2);
	for (k = 0; k < 3; k++) {
		for (i = 0; i < COUNT; i++)
			b->in[i] = (float)(b->rank + k);
		for (i = 0; i < 10; i++)
			CU(cuGraphLaunch(exec, b->s));
		CU(cuStreamSynchronize(b->s));
		for (i = 0; i < COUNT; i++)
			MUST(b->copy[i] == (float)(2 * k + 1));
		for (i = 0; i < large; i++)
			MUST(out[i] == 1);
	}
	/* A captured collective consists of memory operations only. */
	MUST(fake_cuda()->calls("cuLaunchHostFunc") == calls);
	CU(cuGraphExecDestroy(exec));
	free(in);
}

static void CUDA_CB object_gone(void *arg)
{
	__atomic_store_n((int *)arg, 1, __ATOMIC_RELEASE);
}

/*
 * A graph that contains only a collective is not launched: dfshim submits the collective to the
 * stream. If the process has user objects in graphs, the graph is launched, because objects must
 * live as long as a launch.
 */
static void bare(struct bench *b)
{
	static int gone[RANKS];
	CUuserObject object;
	CUgraph graph;

	MUST(launched(b) == 0);
	CU(cuGraphCreate(&graph, 0));
	CU(cuUserObjectCreate(&object, &gone[b->rank], object_gone, 1,
			      CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	CU(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
	pthread_barrier_wait(&both);
	MUST(launched(b) == RANKS);
	CU(cuGraphDestroy(graph));
}

static void *rank(void *arg)
{
	struct bench b = {.rank = (int)(intptr_t)arg};
	CUdeviceptr p;
	CUcontext ctx;

	CU(cuDevicePrimaryCtxRetain(&ctx, b.rank));
	CU(cuCtxSetCurrent(ctx));
	CU(cuStreamCreate(&b.s, CU_STREAM_NON_BLOCKING));
	CU(cuStreamCreate(&b.idle, CU_STREAM_NON_BLOCKING));
	CU(cuMemAlloc_v2(&p, 3 * COUNT * sizeof(float)));
	b.in = (float *)p;
	b.out = b.in + COUNT;
	b.copy = b.out + COUNT;
	MUST(ncclCommInitRank(&b.comm, RANKS, id, b.rank) == ncclSuccess);
	exec_nodes(&b);
	exec_children(&b);
	graph_nodes(&b);
	again(&b);
	copied(&b);
	two_at_a_time(&b);
	twice(&b);
	/*
	 * This barrier keeps the other rank from enqueuing host functions while group() counts
	 * them.
	 */
	pthread_barrier_wait(&both);
	group(&b);
	bare(&b);
	MUST(ncclCommDestroy(b.comm) == ncclSuccess);
	CU(cuStreamDestroy_v2(b.s));
	CU(cuStreamDestroy_v2(b.idle));
	CU(cuMemFree_v2(p));
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t t[RANKS];
	CUcontext ctx;
	CUdeviceptr p;
	intptr_t i;

	fake_cuda()->kernel("dfk_daemon", daemon_kernel);
	/*
	 * Before NCCL's first call dfshim does not know yet that its hook is in front of the
	 * driver. Calling the driver first lets it relax orders.
	 */
	if (argc < 2 || strcmp(argv[1], "late")) {
		CU(cuDevicePrimaryCtxRetain(&ctx, 0));
		CU(cuCtxSetCurrent(ctx));
		CU(cuMemAlloc_v2(&p, 64));
		CU(cuMemFree_v2(p));
	}
	pthread_barrier_init(&both, NULL, RANKS);
	MUST(ncclGetUniqueId(&id) == ncclSuccess);
	for (i = 0; i < RANKS; i++)
		pthread_create(&t[i], NULL, rank, (void *)i);
	for (i = 0; i < RANKS; i++)
		pthread_join(t[i], NULL);
	printf("as it should\n");
	return 0;
}
