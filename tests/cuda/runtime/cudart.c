/*
 * The part of the CUDA runtime that the clients in tests/clients and tests/deadlock use. It calls
 * only public functions of the driver. The real libcudart cannot be used: it needs private tables
 * that no test driver can have. Like the real one, it finds the driver by dlopen, dlsym and
 * cuGetProcAddress for each function, so that dfshim's hook is in the path. Its constructor
 * registers the daemon's code as a kernel with the test driver.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/cuda/daemon_kernel.h"
#include "tests/cuda/runtime/cudart.h"

static void *lib;
static CUresult (*get_proc)(const char *, void **, int, cuuint64_t,
			    CUdriverProcAddressQueryResult *);
static __thread cudaError_t last;

__attribute__((constructor)) static void loaded(void)
{
	const struct fake_cuda *(*get)(void);

	lib = dlopen("libcuda.so.1", RTLD_NOW);
	if (!lib)
		return;
	*(void **)&get = dlsym(lib, "fake_cuda");
	if (get)
		get()->kernel("dfk_daemon", daemon_kernel);
	*(void **)&get_proc = dlsym(lib, "cuGetProcAddress_v2");
}

void *rt_find(const char *name)
{
	CUdriverProcAddressQueryResult status;
	void *fn = NULL;

	if (!get_proc || get_proc(name, &fn, 13000, 0, &status) != CUDA_SUCCESS || !fn) {
		fprintf(stderr, "cudart of the tests: the driver has no %s\n", name);
		_Exit(99);
	}
	return fn;
}
cudaError_t rt_said(CUresult r)
{
	if (r != CUDA_SUCCESS)
		last = (cudaError_t)r;
	return (cudaError_t)r;
}

static __thread int device;

int rt_device(void)
{
	return device;
}

static cudaError_t use(int dev)
{
	CUcontext ctx;
	CUresult r;

	r = CU(cuInit)(0);
	if (r == CUDA_SUCCESS)
		r = CU(cuDevicePrimaryCtxRetain)(&ctx, dev);
	if (r == CUDA_SUCCESS)
		r = CU(cuCtxSetCurrent)(ctx);
	return rt_said(r);
}
void rt_ready(void)
{
	CUcontext ctx = NULL;

	if (CU(cuCtxGetCurrent)(&ctx) != CUDA_SUCCESS || !ctx)
		use(0);
}
API cudaError_t cudaGetDeviceCount(int *nr)
{
	CUresult r = CU(cuInit)(0);

	return rt_said(r == CUDA_SUCCESS ? CU(cuDeviceGetCount)(nr) : r);
}
API cudaError_t cudaSetDevice(int dev)
{
	int nr = 0;

	if (cudaGetDeviceCount(&nr) || dev < 0 || dev >= nr)
		return rt_said(CUDA_ERROR_INVALID_DEVICE);
	device = dev;
	return use(dev);
}
API cudaError_t cudaGetDevice(int *dev)
{
	*dev = device;
	return cudaSuccess;
}
API cudaError_t cudaDeviceSynchronize(void)
{
	CUcontext ctx = NULL;

	rt_ready();
	CU(cuCtxGetCurrent)(&ctx);
	/* cuGetProcAddress gives the later form for this name; that form takes a context. */
	return rt_said(NAMED(cuCtxSynchronize_v2, "cuCtxSynchronize")(ctx));
}
API cudaError_t cudaDeviceReset(void)
{
	return CALL(cuDevicePrimaryCtxReset, device);
}
API const char *cudaGetErrorString(cudaError_t e)
{
	static __thread char text[32];

	snprintf(text, sizeof(text), "error %d", (int)e);
	return text;
}
API const char *cudaGetErrorName(cudaError_t e)
{
	return cudaGetErrorString(e);
}
cudaError_t rt_peek(void)
{
	return last;
}
API cudaError_t cudaPeekAtLastError(void)
{
	return last;
}
API cudaError_t cudaGetLastError(void)
{
	cudaError_t e = last;

	last = cudaSuccess;
	return e;
}

/* ---- memory ---------------------------------------------------------------------------------- */

API cudaError_t cudaMalloc(void **out, size_t bytes)
{
	return CALL(cuMemAlloc, (CUdeviceptr *)out, bytes);
}
API cudaError_t cudaMallocManaged(void **out, size_t bytes, unsigned int flags)
{
	return CALL(cuMemAllocManaged, (CUdeviceptr *)out, bytes, flags);
}
API cudaError_t cudaFree(void *p)
{
	if (!p) {
		rt_ready();
		return cudaSuccess;
	}
	return CALL(cuMemFree, PTR(p));
}
API cudaError_t cudaMallocAsync(void **out, size_t bytes, cudaStream_t s)
{
	return CALL(cuMemAllocAsync, (CUdeviceptr *)out, bytes, s);
}
API cudaError_t cudaFreeAsync(void *p, cudaStream_t s)
{
	return CALL(cuMemFreeAsync, PTR(p), s);
}
API cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned int flags)
{
	return CALL(cuMemHostAlloc, out, bytes, flags);
}
API cudaError_t cudaMallocHost(void **out, size_t bytes)
{
	return CALL(cuMemHostAlloc, out, bytes, 0);
}
API cudaError_t cudaFreeHost(void *p)
{
	return CALL(cuMemFreeHost, p);
}
API cudaError_t cudaHostRegister(void *p, size_t bytes, unsigned int flags)
{
	return CALL(cuMemHostRegister, p, bytes, flags);
}
API cudaError_t cudaHostUnregister(void *p)
{
	return CALL(cuMemHostUnregister, p);
}
API cudaError_t cudaMemGetInfo(size_t *room, size_t *all)
{
	return CALL(cuMemGetInfo, room, all);
}
API cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
	switch (kind) {
	case cudaMemcpyHostToDevice:
		return CALL(cuMemcpyHtoD, PTR(to), from, bytes);
	case cudaMemcpyDeviceToHost:
		return CALL(cuMemcpyDtoH, to, PTR(from), bytes);
	case cudaMemcpyDeviceToDevice:
		return CALL(cuMemcpyDtoD, PTR(to), PTR(from), bytes);
	default:
		return CALL(cuMemcpy, PTR(to), PTR(from), bytes);
	}
}
API cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
				cudaStream_t s)
{
	switch (kind) {
	case cudaMemcpyHostToDevice:
		return CALL(cuMemcpyHtoDAsync, PTR(to), from, bytes, s);
	case cudaMemcpyDeviceToHost:
		return CALL(cuMemcpyDtoHAsync, to, PTR(from), bytes, s);
	case cudaMemcpyDeviceToDevice:
		return CALL(cuMemcpyDtoDAsync, PTR(to), PTR(from), bytes, s);
	default:
		return CALL(cuMemcpyAsync, PTR(to), PTR(from), bytes, s);
	}
}
API cudaError_t cudaMemset(void *to, int v, size_t bytes)
{
	return CALL(cuMemsetD8, PTR(to), (unsigned char)v, bytes);
}
API cudaError_t cudaMemsetAsync(void *to, int v, size_t bytes, cudaStream_t s)
{
	return CALL(cuMemsetD8Async, PTR(to), (unsigned char)v, bytes, s);
}

/* ---- streams, events ------------------------------------------------------------------------- */

API cudaError_t cudaStreamCreate(cudaStream_t *s)
{
	return CALL(cuStreamCreate, s, CU_STREAM_DEFAULT);
}
API cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned int flags)
{
	return CALL(cuStreamCreate, s, flags);
}
API cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned int flags, int priority)
{
	return CALL(cuStreamCreateWithPriority, s, flags, priority);
}
API cudaError_t cudaStreamDestroy(cudaStream_t s)
{
	return CALL(cuStreamDestroy, s);
}
API cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
	return CALL(cuStreamSynchronize, s);
}
API cudaError_t cudaStreamQuery(cudaStream_t s)
{
	return CALL(cuStreamQuery, s);
}
API cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned int flags)
{
	return CALL(cuStreamWaitEvent, s, e, flags);
}
API cudaError_t cudaStreamAddCallback(cudaStream_t s, cudaStreamCallback_t fn, void *arg,
				      unsigned int flags)
{
	return CALL(cuStreamAddCallback, s, (CUstreamCallback)(void (*)(void))fn, arg, flags);
}
API cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t fn, void *arg)
{
	return CALL(cuLaunchHostFunc, s, fn, arg);
}
API cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned int flags)
{
	return CALL(cuEventCreate, e, flags);
}
API cudaError_t cudaEventCreate(cudaEvent_t *e)
{
	return CALL(cuEventCreate, e, CU_EVENT_DEFAULT);
}
API cudaError_t cudaEventDestroy(cudaEvent_t e)
{
	return CALL(cuEventDestroy, e);
}
API cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
	return CALL(cuEventRecord, e, s);
}
API cudaError_t cudaEventQuery(cudaEvent_t e)
{
	return CALL(cuEventQuery, e);
}
API cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
	return CALL(cuEventSynchronize, e);
}
API cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t a, cudaEvent_t b)
{
	return CALL(cuEventElapsedTime, ms, a, b);
}

/* ---- graphs ---------------------------------------------------------------------------------- */

API cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode mode)
{
	return CALL(cuStreamBeginCapture, s, (CUstreamCaptureMode)mode);
}
API cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *g)
{
	return CALL(cuStreamEndCapture, s, g);
}
API cudaError_t cudaGraphCreate(cudaGraph_t *g, unsigned int flags)
{
	return CALL(cuGraphCreate, g, flags);
}
API cudaError_t cudaGraphDestroy(cudaGraph_t g)
{
	return CALL(cuGraphDestroy, g);
}
API cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t g, unsigned long long flags)
{
	return CALL(cuGraphInstantiateWithFlags, exec, g, flags);
}
API cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t s)
{
	return CALL(cuGraphLaunch, exec, s);
}
API cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
	return CALL(cuGraphExecDestroy, exec);
}
API cudaError_t cudaGraphGetNodes(cudaGraph_t g, cudaGraphNode_t *nodes, size_t *nr)
{
	return CALL(cuGraphGetNodes, g, nodes, nr);
}
API cudaError_t cudaGraphAddChildGraphNode(cudaGraphNode_t *n, cudaGraph_t g,
					   const cudaGraphNode_t *before, size_t nr,
					   cudaGraph_t child)
{
	return CALL(cuGraphAddChildGraphNode, n, g, before, nr, child);
}
API cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t g,
				    cudaGraphExecUpdateResultInfo *info)
{
	CUgraphExecUpdateResultInfo i;
	cudaError_t e = CALL(cuGraphExecUpdate, exec, g, &i);

	memset(info, 0, sizeof(*info));
	info->result = (enum cudaGraphExecUpdateResult)i.result;
	return e;
}
/* A captured collective of dfshim is no kernel node: the driver or dfshim must refuse this call. */
API cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t n,
						 const struct cudaKernelNodeParams *p)
{
	CUDA_KERNEL_NODE_PARAMS k = {.func = (CUfunction)p->func};

	return CALL(cuGraphExecKernelNodeSetParams, exec, n, &k);
}
API cudaError_t cudaGraphNodeSetEnabled(cudaGraphExec_t exec, cudaGraphNode_t n, unsigned int on)
{
	return CALL(cuGraphNodeSetEnabled, exec, n, on);
}
