/*
 * An NCCL program that finds the CUDA driver by cuGetProcAddress. Each rank is a thread with a
 * device of its own. Collectives follow work on streams, events, copies and graphs, in different
 * orders on the ranks. The test driver's daemon kernel is the daemon's code on CPU threads. Exits
 * with 0 if all results are right.
 */
#define _GNU_SOURCE
#include <cuda.h>
#include <dlfcn.h>
#include <nccl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tests/cuda/daemon_kernel.h"

#define RANKS 2
#define COUNT 5000

static const struct fake_cuda *fake;
static CUresult (*get_proc)(const char *, void **, int, cuuint64_t,
			    CUdriverProcAddressQueryResult *);

static void *need(const char *name)
{
	CUdriverProcAddressQueryResult status;
	void *fn = NULL;

	if (get_proc(name, &fn, 12000, 0, &status) != CUDA_SUCCESS) {
		fprintf(stderr, "no %s\n", name);
		exit(1);
	}
	return fn;
}

static void must(int ok, const char *what, int line)
{
	if (ok)
		return;
	fprintf(stderr, "line %d: %s\n", line, what);
	exit(1);
}
#define CU(name, ...)                                                                              \
	must(((CUresult(*)(__VA_TYPES_##name))need(#name))(__VA_ARGS__) == CUDA_SUCCESS, #name,    \
	     __LINE__)
#define __VA_TYPES_cuDevicePrimaryCtxRetain CUcontext *, CUdevice
#define __VA_TYPES_cuCtxSetCurrent	    CUcontext
#define __VA_TYPES_cuLaunchHostFunc	    CUstream, CUhostFn, void *
#define __VA_TYPES_cuStreamCreate	    CUstream *, unsigned int
#define __VA_TYPES_cuStreamDestroy	    CUstream
#define __VA_TYPES_cuEventCreate	    CUevent *, unsigned int
#define __VA_TYPES_cuEventRecord	    CUevent, CUstream
#define __VA_TYPES_cuEventSynchronize	    CUevent
#define __VA_TYPES_cuEventDestroy	    CUevent
#define __VA_TYPES_cuEventElapsedTime	    float *, CUevent, CUevent
#define __VA_TYPES_cuStreamWaitEvent	    CUstream, CUevent, unsigned int
#define __VA_TYPES_cuStreamSynchronize	    CUstream
#define __VA_TYPES_cuCtxSynchronize	    void
#define __VA_TYPES_cuMemAlloc		    CUdeviceptr *, size_t
#define __VA_TYPES_cuMemFree		    CUdeviceptr
#define __VA_TYPES_cuMemcpyAsync	    CUdeviceptr, CUdeviceptr, size_t, CUstream
#define __VA_TYPES_cuStreamBeginCapture	    CUstream, CUstreamCaptureMode
#define __VA_TYPES_cuStreamEndCapture	    CUstream, CUgraph *
#define __VA_TYPES_cuGraphInstantiate	    CUgraphExec *, CUgraph, unsigned long long
#define __VA_TYPES_cuGraphLaunch	    CUgraphExec, CUstream
#define __VA_TYPES_cuGraphExecDestroy	    CUgraphExec
#define __VA_TYPES_cuModuleLoadData	    CUmodule *, const void *
#define __VA_TYPES_cuModuleGetFunction	    CUfunction *, CUmodule, const char *
#define __VA_TYPES_cuLaunchKernel                                                                  \
	CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,          \
		CUstream, void **, void **
#define __VA_TYPES_cuLaunchCooperativeKernel                                                       \
	CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,          \
		CUstream, void **
#define NCCL(call) must((call) == ncclSuccess, #call, __LINE__)

static ncclUniqueId id[2];

static void fill(float *p, float v)
{
	for (int i = 0; i < COUNT; i++)
		p[i] = v;
}
static void expect(const float *p, float v, int line)
{
	for (int i = 0; i < COUNT; i++)
		if (p[i] != v) {
			fprintf(stderr, "line %d: element %d is %g, not %g\n", line, i,
				(double)p[i], (double)v);
			exit(1);
		}
}

/* The struct of NCCL 2.32, up to the event. */
struct coll_config {
	size_t size;
	unsigned magic, version;
	void *ext;
	int ctas[4];
	const char *algorithms;
	int force, policy;
	uint64_t tag;
	CUevent event;
};

static void hold(void *flag)
{
	while (!__atomic_load_n((int *)flag, __ATOMIC_ACQUIRE))
		usleep(100);
}

/* The event of a launch is recorded after the work that is on the stream. */
static void launch_event(ncclComm_t comm, CUstream s, CUevent e, CUdeviceptr in, CUdeviceptr out)
{
	struct coll_config c = {sizeof(c), 0xcafebeef, 23203, NULL, {0}, NULL, 1, 1, 0, e};
	ncclResult_t (*reduce)(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t,
			       ncclComm_t, CUstream, const struct coll_config *);
	int flag = 0;

	*(void **)&reduce = dlsym(RTLD_DEFAULT, "ncclAllReduceConfig");
	must(reduce != NULL, "no ncclAllReduceConfig", __LINE__);
	fill((float *)in, 2);
	CU(cuLaunchHostFunc, s, hold, &flag);
	NCCL(reduce((void *)in, (void *)out, COUNT, ncclFloat, ncclSum, comm, s, &c));
	must(((CUresult(*)(CUevent))need("cuEventQuery"))(e) == CUDA_ERROR_NOT_READY,
	     "the event of the launch was not recorded", __LINE__);
	__atomic_store_n(&flag, 1, __ATOMIC_RELEASE);
	CU(cuEventSynchronize, e);
	CU(cuStreamSynchronize, s);
	expect((float *)out, 4, __LINE__);
}

/*
 * Loading a kernel waits for everything on the device: the daemon, and a stream that waits for a
 * collective.
 */
static void launch_first(ncclComm_t comm, CUstream s, CUdeviceptr in, CUdeviceptr out)
{
	CUmodule module;
	CUfunction fn;

	CU(cuModuleLoadData, &module, "a kernel of the program");
	CU(cuModuleGetFunction, &fn, module, "application");
	fill((float *)in, 5);
	NCCL(ncclAllReduce((void *)in, (void *)out, COUNT, ncclFloat, ncclSum, comm, s));
	CU(cuLaunchKernel, fn, 1, 1, 1, 32, 1, 1, 0, s, NULL, NULL);
	CU(cuLaunchCooperativeKernel, fn, 2, 1, 1, 1024, 1, 1, 0, s, NULL);
	CU(cuStreamSynchronize, s);
	expect((float *)out, 10, __LINE__);
}

static void *run(void *arg)
{
	int rank = (int)(intptr_t)arg, i;
	CUcontext ctx;
	CUstream a, b;
	CUevent e, timed[3];
	float ms;
	CUdeviceptr in, out, out2, spare;
	CUgraph graph;
	CUgraphExec exec;
	ncclComm_t comm[2];
	float *host = malloc(COUNT * sizeof(float));

	CU(cuDevicePrimaryCtxRetain, &ctx, rank);
	CU(cuCtxSetCurrent, ctx);
	CU(cuStreamCreate, &a, CU_STREAM_NON_BLOCKING);
	CU(cuStreamCreate, &b, CU_STREAM_NON_BLOCKING);
	CU(cuEventCreate, &e, CU_EVENT_DISABLE_TIMING);
	for (i = 0; i < 3; i++)
		CU(cuEventCreate, &timed[i], CU_EVENT_DEFAULT);
	CU(cuMemAlloc, &spare, 128);
	CU(cuMemAlloc, &in, COUNT * sizeof(float));
	CU(cuMemAlloc, &out, COUNT * sizeof(float));
	CU(cuMemAlloc, &out2, COUNT * sizeof(float));
	for (i = 0; i < 2; i++)
		NCCL(ncclCommInitRank(&comm[i], RANKS, id[i], rank));
	for (i = 0; i < 10; i++) {
		int first = (rank + i) % 2;

		fill((float *)in, (float)(rank + i));
		/*
		 * The two communicators are used in opposite orders on one stream: this can hang
		 * with NCCL's rules.
		 */
		CU(cuEventRecord, timed[0], a);
		NCCL(ncclAllReduce((void *)in, first ? (void *)out2 : (void *)out, COUNT, ncclFloat,
				   ncclSum, comm[first], a));
		/*
		 * An event with timing or a copy on the default stream between them must not order
		 * them.
		 */
		CU(cuEventRecord, timed[1], a);
		CU(cuMemcpyAsync, spare, spare + 64, 64, NULL);
		NCCL(ncclAllReduce((void *)in, first ? (void *)out : (void *)out2, COUNT, ncclFloat,
				   ncclSum, comm[!first], a));
		CU(cuEventRecord, timed[2], a);
		/* Work on another stream that waits for the event sees the results. */
		CU(cuEventRecord, e, a);
		CU(cuStreamWaitEvent, b, e, 0);
		CU(cuMemcpyAsync, (CUdeviceptr)host, out, COUNT * sizeof(float), b);
		CU(cuStreamSynchronize, b);
		CU(cuEventSynchronize, timed[2]);
		CU(cuEventElapsedTime, &ms, timed[0], timed[1]);
		must(ms >= 0, "the second event is not before the first", __LINE__);
		CU(cuEventElapsedTime, &ms, timed[1], timed[2]);
		must(ms >= 0, "the third event is not before the second", __LINE__);
		expect(host, (float)(2 * i + 1), __LINE__);
		CU(cuEventSynchronize, e);
		expect((float *)out2, (float)(2 * i + 1), __LINE__);
	}
	launch_event(comm[0], a, e, in, out);
	launch_first(comm[0], a, in, out);
	/* A device-wide wait includes collectives. */
	fill((float *)in, 3);
	NCCL(ncclAllReduce((void *)in, (void *)out, COUNT, ncclFloat, ncclSum, comm[0], a));
	((CUresult(*)(void))need("cuCtxSynchronize"))();
	expect((float *)out, 6, __LINE__);
	/*
	 * Captured through the driver, as in any program. Thread-local mode: the other rank's
	 * thread may call a synchronising function meanwhile.
	 */
	CU(cuStreamBeginCapture, a, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	NCCL(ncclAllReduce((void *)in, (void *)out, COUNT, ncclFloat, ncclSum, comm[0], a));
	CU(cuMemcpyAsync, (CUdeviceptr)host, out, COUNT * sizeof(float), a);
	CU(cuStreamEndCapture, a, &graph);
	CU(cuGraphInstantiate, &exec, graph, 0);
	for (i = 0; i < 5; i++) {
		fill((float *)in, (float)(i + 10));
		CU(cuGraphLaunch, exec, a);
		CU(cuGraphLaunch, exec, a);
		CU(cuStreamSynchronize, a);
		expect(host, (float)(2 * i + 20), __LINE__);
	}
	CU(cuGraphExecDestroy, exec);
	CU(cuMemFree, out2);
	CU(cuMemFree, spare);
	for (i = 0; i < 2; i++)
		NCCL(ncclCommDestroy(comm[i]));
	CU(cuEventDestroy, e);
	for (i = 0; i < 3; i++)
		CU(cuEventDestroy, timed[i]);
	CU(cuStreamDestroy, a);
	CU(cuStreamDestroy, b);
	return NULL;
}

/*
 * Registered before the driver's exit handler, so it runs after the driver's end. It keeps the
 * process alive while others may need it.
 */
static void linger(void)
{
	usleep(500000);
}

int main(void)
{
	const struct fake_cuda *(*get)(void);
	/*
	 * A program may create the unique id before it calls CUDA, as examples with MPI do on rank
	 * 0.
	 */
	int first = getenv("NCCL_FIRST") != NULL;
	pthread_t t[RANKS];
	intptr_t i;
	void *lib;

	atexit(linger);
	if (first) {
		NCCL(ncclGetUniqueId(&id[0]));
		NCCL(ncclGetUniqueId(&id[1]));
	}
	lib = dlopen("libcuda.so.1", RTLD_NOW);
	if (!lib) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	*(void **)&get_proc = dlsym(lib, "cuGetProcAddress_v2");
	*(void **)&get = dlsym(lib, "fake_cuda");
	fake = get();
	fake->kernel("dfk_daemon", daemon_kernel);
	if (!first) {
		NCCL(ncclGetUniqueId(&id[0]));
		NCCL(ncclGetUniqueId(&id[1]));
	}
	for (i = 0; i < RANKS; i++)
		pthread_create(&t[i], NULL, run, (void *)i);
	for (i = 0; i < RANKS; i++)
		pthread_join(t[i], NULL);
	printf("kernels %d waits %d writes %d records %d\n", (int)fake->calls("cuLaunchKernel"),
	       (int)fake->calls("cuStreamWaitValue64_v2"),
	       (int)fake->calls("cuStreamBatchMemOp_v2"), (int)fake->calls("cuEventRecord"));
	return 0;
}
