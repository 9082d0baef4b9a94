/*
 * Graphs: captures with fork and join, replays, random edges with checks, nodes added explicitly,
 * the collectives of libdfshim.so as nodes, user objects, and calls that a capture forbids.
 */
#include "tests/hostcuda/programs/cu.h"

static void set(void *arg)
{
	++*(int *)arg;
}

/*
 * Two branches that can finish only if both run at the same time, then a join; replayed several
 * times.
 */
static struct gate left, right;

static void go_left(void *arg)
{
	(void)arg;
	gate_open(&left);
	gate_wait(&right);
}

static void go_right(void *arg)
{
	(void)arg;
	gate_open(&right);
	gate_wait(&left);
}

static void fork_join(void)
{
	cudaStream_t a, b;
	cudaEvent_t fork, join;
	cudaGraph_t graph;
	cudaGraphExec_t exec;
	enum cudaStreamCaptureStatus status;
	unsigned char *d, h[64];
	unsigned long long id = 0;
	size_t nr = 0;
	int done = 0, i;

	CU(cudaStreamCreate(&a));
	CU(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
	CU(cudaEventCreate(&fork));
	CU(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
	CU(cudaMalloc((void **)&d, 64));
	CU(cudaMemset(d, 0, 64));
	CU(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal));
	CU(cudaMemsetAsync(d, 7, 64, a));
	CU(cudaEventRecord(fork, a));
	CU(cudaStreamWaitEvent(b, fork, 0));
	CU(cudaStreamIsCapturing(b, &status));
	CHECK(status == cudaStreamCaptureStatusActive);
	CU(cudaLaunchHostFunc(a, go_left, NULL));
	CU(cudaLaunchHostFunc(b, go_right, NULL));
	CU(cudaMemsetAsync(d + 32, 9, 32, b));
	CU(cudaEventRecord(join, b));
	CU(cudaStreamWaitEvent(a, join, 0));
	CU(cudaLaunchHostFunc(a, set, &done));
	CU(cudaStreamGetCaptureInfo(a, &status, &id, NULL, NULL, NULL, NULL));
	CHECK(status == cudaStreamCaptureStatusActive && id);
	CU(cudaStreamEndCapture(a, &graph));
	CU(cudaStreamIsCapturing(b, &status));
	CHECK(status == cudaStreamCaptureStatusNone);
	CU(cudaMemcpy(h, d, 64, cudaMemcpyDeviceToHost));
	CHECK(h[0] == 0 && !done);
	CU(cudaGraphGetNodes(graph, NULL, &nr));
	CHECK(nr == 5);
	CU(cudaGraphGetEdges(graph, NULL, NULL, NULL, &nr));
	CHECK(nr == 5);
	CU(cudaGraphInstantiate(&exec, graph, 0));
	CU(cudaGraphDestroy(graph));
	for (i = 1; i <= 5; i++) {
		memset(&left, 0, sizeof(left));
		memset(&right, 0, sizeof(right));
		CU(cudaMemsetAsync(d, 1, 64, a));
		CU(cudaGraphLaunch(exec, i % 2 ? a : b));
		CU(cudaStreamSynchronize(i % 2 ? a : b));
		CU(cudaMemcpy(h, d, 64, cudaMemcpyDeviceToHost));
		CHECK(done == i && h[31] == 7 && h[32] == 9 && h[63] == 9);
	}
	CU(cudaGraphExecDestroy(exec));
	GIVES(cudaErrorInvalidValue, cudaGraphLaunch(exec, a));
	CU(cudaFree(d));
	CU(cudaEventDestroy(fork));
	CU(cudaEventDestroy(join));
	CU(cudaStreamDestroy(a));
	CU(cudaStreamDestroy(b));
}

/* Random graphs: each node checks that its dependencies have run in this replay. */
enum { MAX_NODES = 60 };
static uint32_t stamp[MAX_NODES];
static struct visit {
	uint32_t *mine;
	int nr, deps[MAX_NODES];
	uint32_t round;
} visits[MAX_NODES];
static int wrong;

static void visit(void *arg)
{
	struct visit *v = arg;
	int i;

	v->round++;
	for (i = 0; i < v->nr; i++)
		if (stamp[v->deps[i]] != v->round)
			__atomic_store_n(&wrong, 1, __ATOMIC_RELAXED);
	*v->mine = v->round;
}

static void random_graphs(uint64_t *rng)
{
	cudaGraphNode_t nodes[MAX_NODES], deps[MAX_NODES];
	cudaGraphExec_t exec;
	cudaGraph_t graph, use;
	cudaStream_t s[2];
	int n, i, j, round, trial;
	size_t nr;

	CU(cudaStreamCreate(&s[0]));
	CU(cudaStreamCreateWithFlags(&s[1], cudaStreamNonBlocking));
	for (trial = 0; trial < 15; trial++) {
		CU(cudaGraphCreate(&graph, 0));
		memset(visits, 0, sizeof(visits));
		memset(stamp, 0, sizeof(stamp));
		n = 1 + (int)(next(rng) % MAX_NODES);
		for (i = 0; i < n; i++) {
			struct cudaHostNodeParams p = {visit, &visits[i]};

			visits[i].mine = &stamp[i];
			for (j = 0, nr = 0; j < i; j++) {
				if (next(rng) % 8)
					continue;
				visits[i].deps[visits[i].nr++] = j;
				deps[nr++] = nodes[j];
			}
			CU(cudaGraphAddHostNode(&nodes[i], graph, deps, nr, &p));
		}
		use = graph;
		if (trial % 3 == 1) {
			CU(cudaGraphClone(&use, graph));
			CU(cudaGraphDestroy(graph));
		} else if (trial % 3 == 2) { /* as a child between two empty nodes */
			cudaGraphNode_t first, child;

			CU(cudaGraphCreate(&use, 0));
			CU(cudaGraphAddEmptyNode(&first, use, NULL, 0));
			CU(cudaGraphAddChildGraphNode(&child, use, &first, 1, graph));
			CU(cudaGraphAddEmptyNode(&first, use, &child, 1));
			CU(cudaGraphDestroy(graph));
		}
		CU(cudaGraphInstantiate(&exec, use, 0));
		for (round = 1; round <= 4; round++)
			CU(cudaGraphLaunch(exec, s[next(rng) % 2]));
		CU(cudaGraphExecDestroy(exec)); /* launches in progress continue */
		CU(cudaGraphDestroy(use));
		CU(cudaDeviceSynchronize());
		for (i = 0; i < n; i++)
			CHECK(stamp[i] == 4);
		CHECK(!__atomic_load_n(&wrong, __ATOMIC_RELAXED));
	}
	CU(cudaStreamDestroy(s[0]));
	CU(cudaStreamDestroy(s[1]));
}

/* A child of an executable graph can get another graph's nodes if that graph has the same shape. */
static void other_child(void)
{
	static const char *const bytes = "\3\5\7\11";
	cudaGraph_t graph[4], parent;
	cudaGraphNode_t child, n, m;
	cudaGraphExec_t exec;
	unsigned char *p, got[4];
	int i;

	CU(cudaMalloc((void **)&p, 4));
	CU(cudaMemset(p, 0, 4));
	for (i = 0; i < 4; i++) {
		struct cudaMemsetParams set = {.dst = p + i,
					       .value = (unsigned char)bytes[i],
					       .elementSize = 1,
					       .width = 1,
					       .height = 1};

		CU(cudaGraphCreate(&graph[i], 0));
		CU(cudaGraphAddMemsetNode(&n, graph[i], NULL, 0, &set));
		if (i == 3)
			CU(cudaGraphAddEmptyNode(&m, graph[i], &n, 1));
	}
	CU(cudaGraphCreate(&parent, 0));
	CU(cudaGraphAddChildGraphNode(&child, parent, NULL, 0, graph[0]));
	CU(cudaGraphInstantiate(&exec, parent, 0));
	CU(cudaGraphExecChildGraphNodeSetParams(exec, child, graph[1]));
	GIVES(cudaErrorInvalidValue, cudaGraphExecChildGraphNodeSetParams(exec, child, graph[3]));
	GIVES(cudaErrorInvalidValue, cudaGraphExecChildGraphNodeSetParams(exec, n, graph[2]));
	GIVES(cudaErrorInvalidValue, cudaGraphExecChildGraphNodeSetParams(exec, child, NULL));
	CU(cudaGraphLaunch(exec, NULL));
	CU(cudaMemcpy(got, p, 4, cudaMemcpyDeviceToHost));
	CHECK(!got[0] && got[1] == (unsigned char)bytes[1] && !got[2] && !got[3]);
	CU(cudaGraphExecDestroy(exec));
	CU(cudaGraphDestroy(parent));
	for (i = 0; i < 4; i++)
		CU(cudaGraphDestroy(graph[i]));
	CU(cudaFree(p));
}

/* A collective, as libdfshim.so captures it. */
struct coll {
	const uint64_t *ready;
	uint64_t value, done, launches, destroyed;
	int fail;
};

static int coll_launch(void *arg, const struct df_arrival *a, struct df_replayed *turn)
{
	struct coll *c = arg;

	if (c->fail)
		return -ENOMEM;
	c->ready = a->ready;
	c->value = a->value;
	c->launches++;
	*turn = (struct df_replayed){.done = &c->done, .value = c->launches};
	return 0;
}

static void coll_destroy(void *arg)
{
	((struct coll *)arg)->destroyed++;
}

static const struct df_capture_ops coll_ops = {.launch = coll_launch, .destroy = coll_destroy};

static void capture_one(cudaStream_t s, struct coll *c, cudaGraphExec_t *exec)
{
	const struct df_backend *api = hostcuda();
	struct df_stream_info info;
	void *const arg = c;
	cudaGraph_t graph;

	CU(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
	CHECK(!api->stream_info(s, &info));
	CHECK(!api->capture_nodes(&info.stream, &coll_ops, &arg, 1));
	CU(cudaStreamEndCapture(s, &graph));
	CU(cudaGraphInstantiate(exec, graph, 0));
	CU(cudaGraphDestroy(graph));
}

static void collectives(void)
{
	const struct df_backend *api = hostcuda();
	struct df_stream_info info;
	struct gate g = {0};
	struct coll c = {0}, d = {0}, e = {0}, ended;
	void *const both[] = {&c, &d}, *const early = &e;
	cudaGraph_t graph, clone;
	cudaGraphExec_t exec;
	cudaStream_t s;
	int i, after = 0;

	CU(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
	CHECK(!api->stream_info(s, &info) && !info.capturing);
	CHECK(api->capture_nodes(&info.stream, &coll_ops, &early, 1) == -EINVAL &&
	      e.destroyed == 1);
	CU(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
	CHECK(!api->stream_info(s, &info) && info.capturing);
	CU(cudaLaunchHostFunc(s, gate_wait, &g));
	CHECK(!api->capture_nodes((struct df_mstream *[]){info.stream, info.stream}, &coll_ops,
				  both, 2));
	CU(cudaLaunchHostFunc(s, set, &after));
	CU(cudaStreamEndCapture(s, &graph));
	CU(cudaGraphClone(&clone, graph));
	CU(cudaGraphInstantiate(&exec, graph, 0));
	CU(cudaGraphDestroy(graph));
	for (i = 1; i <= 3; i++) {
		memset(&g, 0, sizeof(g));
		CU(cudaGraphLaunch(exec, s));
		CHECK(c.launches == (uint64_t)i && d.launches == (uint64_t)i);
		gate_await_arrival(&g);
		CHECK(__atomic_load_n(c.ready, __ATOMIC_ACQUIRE) < c.value);
		gate_open(&g);
		while (__atomic_load_n(c.ready, __ATOMIC_ACQUIRE) < c.value)
			usleep(50);
		CHECK(__atomic_load_n(d.ready, __ATOMIC_ACQUIRE) < d.value);
		GIVES(cudaErrorNotReady, cudaStreamQuery(s));
		__atomic_store_n(&c.done, (uint64_t)i, __ATOMIC_RELEASE);
		api->kick(0);
		while (__atomic_load_n(d.ready, __ATOMIC_ACQUIRE) < d.value)
			usleep(50);
		CHECK(after == i - 1);
		__atomic_store_n(&d.done, (uint64_t)i, __ATOMIC_RELEASE);
		CU(cudaStreamSynchronize(s));
		CHECK(after == i);
	}
	d.fail = 1;
	GIVES(cudaErrorMemoryAllocation, cudaGraphLaunch(exec, s));
	/* The arrival that was already reported is released again. */
	CHECK(c.launches == 4 && __atomic_load_n(c.ready, __ATOMIC_ACQUIRE) == c.value);
	CU(cudaGraphExecDestroy(exec));
	CHECK(!c.destroyed && !d.destroyed);
	CU(cudaGraphDestroy(clone));
	CHECK(c.destroyed == 1 && d.destroyed == 1);
	/* An arrival can be read after the end of its graph, also when a new graph uses it. */
	CHECK(__atomic_load_n(c.ready, __ATOMIC_ACQUIRE) == c.value);
	ended = c;
	memset(&c, 0, sizeof(c));
	capture_one(s, &c, &exec);
	CHECK(__atomic_load_n(ended.ready, __ATOMIC_ACQUIRE) >= ended.value);
	CU(cudaGraphLaunch(exec, s));
	CHECK(__atomic_load_n(ended.ready, __ATOMIC_ACQUIRE) >= ended.value);
	while (__atomic_load_n(c.ready, __ATOMIC_ACQUIRE) < c.value)
		usleep(50);
	__atomic_store_n(&c.done, 1, __ATOMIC_RELEASE);
	api->kick(0);
	CU(cudaStreamSynchronize(s));
	CU(cudaGraphExecDestroy(exec));
	CHECK(__atomic_load_n(c.ready, __ATOMIC_ACQUIRE) >= c.value);
	CU(cudaStreamDestroy(s));
	(void)cudaGetLastError();
}

static void count(void *arg)
{
	__atomic_fetch_add((int *)arg, 1, __ATOMIC_ACQ_REL);
}

static void user_objects(void)
{
	struct gate g = {0};
	cudaUserObject_t object;
	cudaGraphExec_t exec;
	cudaGraph_t graph;
	cudaGraphNode_t node;
	cudaStream_t s;
	struct cudaHostNodeParams p = {gate_wait, &g};
	int destroyed = 0;

	CU(cudaStreamCreate(&s));
	CU(cudaGraphCreate(&graph, 0));
	CU(cudaGraphAddHostNode(&node, graph, NULL, 0, &p));
	CU(cudaUserObjectCreate(&object, &destroyed, count, 1, cudaUserObjectNoDestructorSync));
	CU(cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove));
	CU(cudaGraphInstantiate(&exec, graph, 0));
	CU(cudaGraphDestroy(graph));
	CU(cudaGraphLaunch(exec, s));
	CU(cudaGraphExecDestroy(exec));
	gate_await_arrival(&g);
	CHECK(!__atomic_load_n(&destroyed, __ATOMIC_ACQUIRE));
	gate_open(&g);
	CU(cudaStreamSynchronize(s));
	CHECK(__atomic_load_n(&destroyed, __ATOMIC_ACQUIRE) == 1);
	GIVES(cudaErrorInvalidValue, cudaUserObjectRelease(object, 1));
	CU(cudaStreamDestroy(s));
	(void)cudaGetLastError();
}

static void change(void)
{
	unsigned char *d, h[4];
	struct cudaMemsetParams p = {0};
	cudaGraphExecUpdateResultInfo info;
	cudaGraphExec_t exec;
	cudaGraph_t graph;
	cudaGraphNode_t node, circle[2];

	CU(cudaMalloc((void **)&d, 64));
	p.dst = d;
	p.elementSize = 4;
	p.value = 0x01020304;
	p.width = 16;
	p.height = 1;
	CU(cudaGraphCreate(&graph, 0));
	CU(cudaGraphAddMemsetNode(&node, graph, NULL, 0, &p));
	CU(cudaGraphInstantiate(&exec, graph, 0));
	CU(cudaGraphLaunch(exec, NULL));
	CU(cudaMemcpy(h, d + 60, 4, cudaMemcpyDeviceToHost));
	CHECK(h[0] == 4 && h[3] == 1);
	p.value = 9;
	CU(cudaGraphExecMemsetNodeSetParams(exec, node, &p));
	CU(cudaGraphLaunch(exec, NULL));
	CU(cudaMemcpy(h, d, 4, cudaMemcpyDeviceToHost));
	CHECK(h[0] == 9 && h[1] == 0);
	p.value = 8;
	CU(cudaGraphMemsetNodeSetParams(node, &p));
	CU(cudaGraphExecUpdate(exec, graph, &info));
	CHECK(info.result == cudaGraphExecUpdateSuccess);
	CU(cudaGraphLaunch(exec, NULL));
	CU(cudaMemcpy(h, d, 4, cudaMemcpyDeviceToHost));
	CHECK(h[0] == 8);
	CU(cudaGraphNodeSetEnabled(exec, node, 0));
	CU(cudaMemset(d, 0, 64));
	CU(cudaGraphLaunch(exec, NULL));
	CU(cudaMemcpy(h, d, 4, cudaMemcpyDeviceToHost));
	CHECK(h[0] == 0);
	CU(cudaGraphAddEmptyNode(&circle[0], graph, &node, 1));
	GIVES(cudaErrorGraphExecUpdateFailure, cudaGraphExecUpdate(exec, graph, &info));
	CHECK(info.result == cudaGraphExecUpdateErrorTopologyChanged);
	CU(cudaGraphExecDestroy(exec));
	CU(cudaGraphAddEmptyNode(&circle[1], graph, &circle[0], 1));
	CU(cudaGraphAddDependencies(graph, &circle[1], &circle[0], NULL, 1));
	GIVES(cudaErrorInvalidValue, cudaGraphInstantiate(&exec, graph, 0));
	CU(cudaGraphRemoveDependencies(graph, &circle[1], &circle[0], NULL, 1));
	CU(cudaGraphDestroyNode(circle[0]));
	CU(cudaGraphInstantiate(&exec, graph, 0));
	CU(cudaGraphExecDestroy(exec));
	CU(cudaGraphDestroy(graph));
	GIVES(cudaErrorInvalidValue, cudaGraphDestroy(graph));
	CU(cudaFree(d));
	(void)cudaGetLastError();
}

static void *malloc_relaxed(void *arg)
{
	enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;

	CU(cudaThreadExchangeStreamCaptureMode(&mode));
	CHECK(mode == cudaStreamCaptureModeGlobal);
	CU(cudaMalloc(arg, 100));
	return NULL;
}

static void *malloc_global(void *arg)
{
	GIVES(cudaErrorStreamCaptureUnsupported, cudaMalloc(arg, 100));
	return NULL;
}

static void forbidden(void)
{
	cudaStream_t a, b, blocking;
	cudaEvent_t e, outside;
	cudaGraph_t graph = (cudaGraph_t)8;
	enum cudaStreamCaptureStatus status;
	pthread_t t;
	void *p;

	CU(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
	CU(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
	CU(cudaStreamCreate(&blocking));
	CU(cudaEventCreate(&e));
	CU(cudaEventCreate(&outside));
	CU(cudaEventRecord(outside, b));

	GIVES(cudaErrorStreamCaptureUnsupported,
	      cudaStreamBeginCapture(NULL, cudaStreamCaptureModeGlobal));
	GIVES(cudaErrorIllegalState, cudaStreamEndCapture(a, &graph));
	/* the forked stream is not joined */
	CU(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal));
	CU(cudaEventRecord(e, a));
	CU(cudaStreamWaitEvent(b, e, 0));
	CU(cudaLaunchHostFunc(b, set, &graph));
	GIVES(cudaErrorIllegalState, cudaStreamBeginCapture(b, cudaStreamCaptureModeGlobal));
	GIVES(cudaErrorStreamCaptureUnmatched, cudaStreamEndCapture(b, &graph));
	GIVES(cudaErrorStreamCaptureUnjoined, cudaStreamEndCapture(a, &graph));
	CHECK(!graph);
	GIVES(cudaErrorCapturedEvent, cudaEventQuery(e));
	CU(cudaEventRecord(e, a));
	CU(cudaEventSynchronize(e));
	/* the program waits for the captured stream */
	CU(cudaStreamBeginCapture(a, cudaStreamCaptureModeRelaxed));
	GIVES(cudaErrorStreamCaptureUnsupported, cudaStreamSynchronize(a));
	CU(cudaStreamIsCapturing(a, &status));
	CHECK(status == cudaStreamCaptureStatusInvalidated);
	GIVES(cudaErrorStreamCaptureInvalidated, cudaLaunchHostFunc(a, set, &graph));
	GIVES(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(a, &graph));
	/* a wait for work outside the capture */
	CU(cudaStreamBeginCapture(a, cudaStreamCaptureModeRelaxed));
	GIVES(cudaErrorStreamCaptureIsolation, cudaStreamWaitEvent(a, outside, 0));
	GIVES(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(a, &graph));
	/* the legacy stream */
	CU(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeRelaxed));
	GIVES(cudaErrorStreamCaptureImplicit, cudaStreamIsCapturing(NULL, &status));
	CU(cudaStreamIsCapturing(blocking, &status));
	CHECK(status == cudaStreamCaptureStatusActive);
	GIVES(cudaErrorStreamCaptureImplicit, cudaLaunchHostFunc(NULL, set, &graph));
	GIVES(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(blocking, &graph));
	/*
	 * unsafe calls: by this thread, by another one in relaxed mode, by another one in global
	 * mode
	 */
	CU(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal));
	GIVES(cudaErrorStreamCaptureUnsupported, cudaMalloc(&p, 10));
	GIVES(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(a, &graph));
	CU(cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal));
	CHECK(!pthread_create(&t, NULL, malloc_relaxed, &p));
	pthread_join(t, NULL);
	CU(cudaStreamEndCapture(a, &graph));
	CU(cudaGraphDestroy(graph));
	CU(cudaFree(p));
	CU(cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal));
	CHECK(!pthread_create(&t, NULL, malloc_global, &p));
	pthread_join(t, NULL);
	GIVES(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(a, &graph));
	/* two captures are merged */
	CU(cudaStreamBeginCapture(a, cudaStreamCaptureModeRelaxed));
	CU(cudaStreamBeginCapture(b, cudaStreamCaptureModeRelaxed));
	CU(cudaEventRecord(e, a));
	GIVES(cudaErrorStreamCaptureMerge, cudaStreamWaitEvent(b, e, 0));
	GIVES(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(a, &graph));
	GIVES(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(b, &graph));
	/* a stream is destroyed during its capture */
	CU(cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal));
	CU(cudaLaunchHostFunc(a, set, &graph));
	CU(cudaStreamDestroy(a));
	CU(cudaMalloc(&p, 10));
	CU(cudaFree(p));
	CU(cudaStreamDestroy(b));
	CU(cudaStreamDestroy(blocking));
	CU(cudaEventDestroy(e));
	CU(cudaEventDestroy(outside));
	(void)cudaGetLastError();
}

int main(void)
{
	uint64_t rng = seed();

	fork_join();
	random_graphs(&rng);
	other_child();
	collectives();
	user_objects();
	change();
	forbidden();
	return 0;
}
