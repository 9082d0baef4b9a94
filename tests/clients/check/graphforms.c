/*
 * Graphs beyond one stream, as programs make them: branches that fork and join by events, child
 * graphs, updates of executable graphs, single nodes that are changed or disabled, and replays in
 * different orders on different ranks, mixed with ordinary calls.
 */
#include "../client.h"

#define N     700
#define TURNS 12

struct bench {
	struct client_rank *me;
	cudaStream_t s[3];
	ncclComm_t *comm;
	float *buf[6]; /* N elements each */
	int n;
};

static int put(float *to, float value)
{
	float host[N];
	int i;

	for (i = 0; i < N; i++)
		host[i] = value + (float)(i % 10);
	CUDA(client_upload(to, host, sizeof(host)));
	return 0;
}

static int holds(const float *at, float value, float scale, const char *what)
{
	float host[N];
	int i;

	CUDA(cudaMemcpy(host, at, sizeof(host), cudaMemcpyDeviceToHost));
	for (i = 0; i < N; i++)
		EXPECT(host[i] == value + scale * (float)(i % 10), "%s: element %d is %g, not %g",
		       what, i, host[i], value + scale * (float)(i % 10));
	return 0;
}

static int reduce(struct bench *b, int comm, float *in, float *out, cudaStream_t s)
{
	NCCL(ncclAllReduce(in, out, N, ncclFloat, ncclSum, b->comm[comm], s));
	return 0;
}

static int copy(float *to, const float *from, cudaStream_t s)
{
	CUDA(cudaMemcpyAsync(to, from, N * sizeof(float), cudaMemcpyDeviceToDevice, s));
	return 0;
}

static int make(cudaStream_t s, cudaGraphExec_t *exec, cudaGraph_t *keep)
{
	cudaGraph_t graph;

	CUDA(cudaStreamEndCapture(s, &graph));
	CUDA(cudaGraphInstantiate(exec, graph, 0));
	if (keep)
		*keep = graph;
	else
		CUDA(cudaGraphDestroy(graph));
	return 0;
}

static void nap(void *arg)
{
	(void)arg;
	usleep(2000);
}

/*
 * Two branches with a communicator each. Work after the join reads the results of both. There are
 * pauses before the fork and before the join, so that work that does not wait there is too early.
 */
static int branches(struct bench *b)
{
	cudaEvent_t fork, join;
	cudaGraphExec_t exec;
	float n = (float)b->n;
	int i, k;

	CUDA(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
	CUDA(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
	CUDA(cudaStreamBeginCapture(b->s[0], cudaStreamCaptureModeThreadLocal));
	CUDA(cudaLaunchHostFunc(b->s[0], nap, NULL));
	if (copy(b->buf[1], b->buf[0], b->s[0]))
		return -1;
	CUDA(cudaEventRecord(fork, b->s[0]));
	CUDA(cudaStreamWaitEvent(b->s[1], fork, 0));
	/* Ranks capture the branches in different orders. */
	for (k = 0; k < 2; k++) {
		i = k ^ (b->me->rank & 1);
		if (reduce(b, i, b->buf[1], b->buf[2 + i], b->s[i]))
			return -1;
		if (i)
			CUDA(cudaLaunchHostFunc(b->s[i], nap, NULL));
		if (copy(b->buf[4 + i], b->buf[2 + i], b->s[i]))
			return -1;
	}
	CUDA(cudaEventRecord(join, b->s[1]));
	CUDA(cudaStreamWaitEvent(b->s[0], join, 0));
	/* After the join: an AllReduce of the first branch's result, and a copy of the second's. */
	if (reduce(b, 0, b->buf[4], b->buf[4], b->s[0]) || copy(b->buf[1], b->buf[5], b->s[0]) ||
	    make(b->s[0], &exec, NULL))
		return -1;
	for (i = 0; i < TURNS; i++) {
		float sum = n * (n - 1) / 2 + n * (float)i;

		if (put(b->buf[0], (float)(b->me->rank + i)))
			return -1;
		CUDA(cudaGraphLaunch(exec, b->s[i % 2 ? 2 : 0]));
		if (client_wait(b->s[i % 2 ? 2 : 0], b->comm, 3) ||
		    holds(b->buf[2], sum, n, "first branch") ||
		    holds(b->buf[1], sum, n, "second branch") ||
		    holds(b->buf[4], n * sum, n * n, "after the join"))
			return -1;
	}
	CUDA(cudaGraphExecDestroy(exec));
	CUDA(cudaEventDestroy(fork));
	CUDA(cudaEventDestroy(join));
	return 0;
}

/*
 * A graph that contains the same child graph twice, one after the other. The child contains a
 * group.
 */
static int children(struct bench *b)
{
	cudaGraphExec_t exec;
	cudaGraph_t child, parent;
	cudaGraphNode_t first, second;
	float n = (float)b->n, sum = n * (n - 1) / 2;
	int i;

	CUDA(cudaStreamBeginCapture(b->s[0], cudaStreamCaptureModeThreadLocal));
	NCCL(ncclGroupStart());
	if (reduce(b, 0, b->buf[0], b->buf[0], b->s[0]) ||
	    reduce(b, 1, b->buf[1], b->buf[1], b->s[0]))
		return -1;
	NCCL(ncclGroupEnd());
	if (copy(b->buf[2], b->buf[0], b->s[0]))
		return -1;
	CUDA(cudaStreamEndCapture(b->s[0], &child));
	CUDA(cudaGraphCreate(&parent, 0));
	CUDA(cudaGraphAddChildGraphNode(&first, parent, NULL, 0, child));
	CUDA(cudaGraphAddChildGraphNode(&second, parent, &first, 1, child));
	CUDA(cudaGraphInstantiate(&exec, parent, 0));
	CUDA(cudaGraphDestroy(child));
	CUDA(cudaGraphDestroy(parent));
	for (i = 0; i < TURNS; i++) {
		if (put(b->buf[0], (float)b->me->rank) || put(b->buf[1], (float)(b->me->rank + 1)))
			return -1;
		CUDA(cudaGraphLaunch(exec, b->s[0]));
		if (client_wait(b->s[0], b->comm, 3) || holds(b->buf[2], n * sum, n * n, "child") ||
		    holds(b->buf[1], n * (sum + n), n * n, "the other of the group"))
			return -1;
	}
	CUDA(cudaGraphExecDestroy(exec));
	return 0;
}

static int capture(struct bench *b, float *in, float *out, int copies, cudaGraphExec_t *exec,
		   cudaGraph_t *graph)
{
	CUDA(cudaStreamBeginCapture(b->s[0], cudaStreamCaptureModeThreadLocal));
	if (reduce(b, 0, in, out, b->s[0]))
		return -1;
	while (copies--)
		if (copy(in, out, b->s[0]))
			return -1;
	if (exec)
		return make(b->s[0], exec, graph);
	CUDA(cudaStreamEndCapture(b->s[0], graph));
	return 0;
}

/*
 * An update accepts new buffers of a collective. A graph of another shape is refused, and changes
 * nothing.
 */
static int update(struct bench *b)
{
	cudaGraphExecUpdateResultInfo info;
	cudaGraph_t graph, other;
	cudaGraphExec_t exec;
	float n = (float)b->n, sum = n * (n - 1) / 2;
	int copies;

	for (copies = 0; copies < 2; copies++) {
		if (put(b->buf[0], (float)b->me->rank) || put(b->buf[2], (float)b->me->rank) ||
		    put(b->buf[1], -1) || put(b->buf[3], -1) ||
		    capture(b, b->buf[0], b->buf[1], copies, &exec, NULL) ||
		    capture(b, b->buf[2], b->buf[3], copies, NULL, &graph) ||
		    capture(b, b->buf[4], b->buf[5], copies + 1, NULL, &other))
			return -1;
		EXPECT(cudaGraphExecUpdate(exec, other, &info) == cudaErrorGraphExecUpdateFailure &&
			       info.result == cudaGraphExecUpdateErrorTopologyChanged,
		       "another shape was taken: %d", (int)info.result);
		(void)cudaGetLastError();
		CUDA(cudaGraphExecUpdate(exec, graph, &info));
		CUDA(cudaGraphDestroy(graph));
		CUDA(cudaGraphDestroy(other));
		CUDA(cudaGraphLaunch(exec, b->s[0]));
		if (client_wait(b->s[0], b->comm, 3) ||
		    holds(b->buf[1], -1, 1, "what the graph had before") ||
		    holds(b->buf[3], sum, n, "what it was updated to"))
			return -1;
		CUDA(cudaGraphExecDestroy(exec));
	}
	return 0;
}

/* One of two collectives is disabled, on all ranks. Its parameters must not be changed. */
static int single(struct bench *b)
{
	cudaGraphNode_t nodes[4];
	struct cudaKernelNodeParams p = {.func = (void *)nodes};
	cudaGraphExec_t exec;
	cudaGraph_t graph;
	size_t nr = 4;
	float n = (float)b->n, sum = n * (n - 1) / 2;
	int on;

	CUDA(cudaStreamBeginCapture(b->s[0], cudaStreamCaptureModeThreadLocal));
	if (reduce(b, 0, b->buf[0], b->buf[1], b->s[0]) ||
	    reduce(b, 1, b->buf[0], b->buf[2], b->s[0]) || make(b->s[0], &exec, &graph))
		return -1;
	CUDA(cudaGraphGetNodes(graph, nodes, &nr));
	/*
	 * On a GPU a captured collective consists of several nodes, so no single node can be
	 * disabled.
	 */
	if (nr != 2)
		goto out;
	EXPECT(cudaGraphExecKernelNodeSetParams(exec, nodes[0], &p) != cudaSuccess,
	       "a collective was made a kernel");
	(void)cudaGetLastError();
	for (on = 0; on < 2; on++) {
		if (put(b->buf[0], (float)b->me->rank) || put(b->buf[1], -1) || put(b->buf[2], -1))
			return -1;
		CUDA(cudaGraphNodeSetEnabled(exec, nodes[1], (unsigned)on));
		CUDA(cudaGraphLaunch(exec, b->s[0]));
		if (client_wait(b->s[0], b->comm, 3) || holds(b->buf[1], sum, n, "the first") ||
		    holds(b->buf[2], on ? sum : -1, on ? n : 1, "the second"))
			return -1;
	}
out:
	CUDA(cudaGraphDestroy(graph));
	CUDA(cudaGraphExecDestroy(exec));
	return 0;
}

/*
 * Two graphs and an ordinary call, each on a stream of its own, in a different order on each rank.
 */
static int disorder(struct bench *b)
{
	uint64_t rng = client_seed(client_seed_value, (uint64_t)b->me->rank, 77);
	int order[3] = {0, 1, 2}, i, k, which;
	cudaGraphExec_t exec[2];
	float n = (float)b->n, want = 1;

	for (k = 0; k < 3; k++)
		if (put(b->buf[k], 1))
			return -1;
	for (k = 0; k < 2; k++) {
		CUDA(cudaStreamBeginCapture(b->s[k], cudaStreamCaptureModeThreadLocal));
		/* With other work around the collective it stays a graph. */
		if (copy(b->buf[3 + k], b->buf[k], b->s[k]) ||
		    reduce(b, k, b->buf[3 + k], b->buf[k], b->s[k]) ||
		    make(b->s[k], &exec[k], NULL))
			return -1;
	}
	for (i = 0; i < TURNS; i++) {
		client_shuffle(order, 3, &rng);
		for (k = 0; k < 3; k++) {
			which = order[k];
			if (which < 2)
				CUDA(cudaGraphLaunch(exec[which], b->s[which]));
			else if (reduce(b, 2, b->buf[2], b->buf[2], b->s[2]))
				return -1;
		}
		want *= n;
		if (i % 4 != 3)
			continue;
		for (k = 0; k < 3; k++)
			if (client_wait(b->s[k], b->comm, 3) ||
			    holds(b->buf[k], want, want, "in disorder"))
				return -1;
		want = 1;
		for (k = 0; k < 3; k++)
			if (put(b->buf[k], 1))
				return -1;
	}
	for (k = 0; k < 2; k++)
		CUDA(cudaGraphExecDestroy(exec[k]));
	return 0;
}

static const struct {
	const char *name;
	int (*run)(struct bench *b);
} parts[] = {{"branches", branches},
	     {"children", children},
	     {"update", update},
	     {"single", single},
	     {"disorder", disorder}};

static int run(struct client_rank *me)
{
	struct bench b = {.me = me, .comm = me->comms, .n = me->nr_ranks};
	float *all;
	size_t i;

	CUDA(cudaSetDevice(me->device));
	CUDA(cudaMalloc((void **)&all, 6 * N * sizeof(float)));
	for (i = 0; i < 6; i++)
		b.buf[i] = all + i * N;
	for (i = 0; i < 3; i++) {
		CUDA(cudaStreamCreateWithFlags(&b.s[i], cudaStreamNonBlocking));
		NCCL(ncclCommInitRank(&me->comms[i], me->nr_ranks, client_ids[i], me->rank));
	}
	for (i = 0; i < ARRAY_LEN(parts); i++) {
		if (parts[i].run(&b)) {
			fprintf(stderr, "graphforms: rank %d: %s failed\n", me->rank,
				parts[i].name);
			return -1;
		}
		client_tick();
	}
	for (i = 0; i < 3; i++) {
		NCCL(ncclCommDestroy(me->comms[i]));
		me->comms[i] = NULL;
		CUDA(cudaStreamDestroy(b.s[i]));
	}
	CUDA(cudaFree(all));
	return 0;
}

int main(int argc, char **argv)
{
	return client_main(argc, argv, 2, 1, "Checks graphs of several shapes with collectives.",
			   run);
}
