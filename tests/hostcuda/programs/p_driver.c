/*
 * The driver beside the runtime, opened by its name as programs do. Both share handles and memory.
 * Each thread has a stack of contexts. Streams wait for words in each of the four ways. Functions
 * that it lacks return an error and break nothing.
 */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include "tests/hostcuda/programs/drv.h"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

static void contexts(void)
{
	CUcontext primary, other, now;
	CUstream s;
	CUdevice dev;
	unsigned flags;
	int active, device;

	OK(DRV(cuCtxGetCurrent)(&now));
	CHECK(!now);
	SAYS(CUDA_ERROR_INVALID_CONTEXT, DRV(cuStreamCreate)(&s, 0));
	SAYS(CUDA_ERROR_INVALID_CONTEXT, DRV(cuCtxPopCurrent_v2)(&now));
	OK(DRV(cuDevicePrimaryCtxGetState)(1, &flags, &active));
	CHECK(!active);
	OK(DRV(cuDevicePrimaryCtxRetain)(&primary, 1));
	OK(DRV(cuDevicePrimaryCtxGetState)(1, &flags, &active));
	CHECK(active);
	OK(DRV(cuCtxSetCurrent)(primary));
	CU(cudaGetDevice(&device));
	CHECK(device == 1);
	OK(DRV(cuCtxCreate_v2)(&other, 0, 0));
	CU(cudaGetDevice(&device));
	CHECK(device == 0);
	/* cudaSetDevice() replaces the top of the stack. */
	CU(cudaSetDevice(2));
	OK(DRV(cuCtxGetDevice)(&dev));
	CHECK(dev == 2);
	OK(DRV(cuCtxPopCurrent_v2)(&now));
	CHECK(now && now != other);
	OK(DRV(cuCtxGetDevice)(&dev));
	CHECK(dev == 1);
	OK(DRV(cuCtxDestroy_v2)(other));
	SAYS(CUDA_ERROR_INVALID_CONTEXT, DRV(cuCtxDestroy_v2)(other));
	SAYS(CUDA_ERROR_INVALID_CONTEXT, DRV(cuCtxSetCurrent)(other));
	SAYS(CUDA_ERROR_INVALID_CONTEXT, DRV(cuCtxDestroy_v2)(primary));
	OK(DRV(cuCtxSetCurrent)(NULL));
	OK(DRV(cuCtxGetCurrent)(&now));
	CHECK(!now);
	OK(DRV(cuDevicePrimaryCtxRelease_v2)(1));
	SAYS(CUDA_ERROR_INVALID_CONTEXT, DRV(cuDevicePrimaryCtxRelease_v2)(1));
	SAYS(CUDA_ERROR_INVALID_DEVICE, DRV(cuDevicePrimaryCtxRetain)(&primary, 99));
	/* The device that the runtime uses is current for the driver, too. */
	CU(cudaSetDevice(0));
	OK(DRV(cuStreamCreate)(&s, 0));
	OK(DRV(cuStreamGetCtx)(s, &now));
	OK(DRV(cuCtxGetCurrent)(&other));
	CHECK(now == other);
	CU(cudaStreamDestroy(s));
}

static void memory(void)
{
	unsigned int type, managed = 1, fill[64], got[64];
	CUpointer_attribute what[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
				      CU_POINTER_ATTRIBUTE_IS_MANAGED,
				      CU_POINTER_ATTRIBUTE_RANGE_SIZE};
	size_t bytes = 0, i;
	void *data[] = {&type, &managed, &bytes};
	struct cudaPointerAttributes attr;
	CUdeviceptr p, base;
	CUDA_MEMCPY2D box = {.srcMemoryType = CU_MEMORYTYPE_HOST,
			     .srcHost = fill,
			     .srcPitch = 16,
			     .dstMemoryType = CU_MEMORYTYPE_DEVICE,
			     .dstPitch = 32,
			     .WidthInBytes = 16,
			     .Height = 4};

	OK(DRV(cuMemAlloc_v2)(&p, 4096));
	CU(cudaPointerGetAttributes(&attr, (void *)p));
	CHECK(attr.type == cudaMemoryTypeDevice);
	OK(DRV(cuPointerGetAttributes)(3, what, data, p + 100));
	CHECK(type == CU_MEMORYTYPE_DEVICE && !managed && bytes == 4096);
	OK(DRV(cuMemGetAddressRange_v2)(&base, &bytes, p + 100));
	CHECK(base == p && bytes == 4096);
	OK(DRV(cuMemsetD32_v2)(p, 0xabcd1234, 64));
	OK(DRV(cuMemcpyDtoH_v2)(got, p, sizeof(got)));
	for (i = 0; i < 64; i++)
		CHECK(got[i] == 0xabcd1234);
	SAYS(CUDA_ERROR_INVALID_VALUE, DRV(cuMemsetD32_v2)(p + 2, 0, 1));
	for (i = 0; i < 64; i++)
		fill[i] = (unsigned int)i;
	box.dstDevice = p;
	OK(DRV(cuMemcpy2D_v2)(&box));
	OK(DRV(cuMemcpyDtoH_v2)(got, p, sizeof(got)));
	CHECK(got[0] == 0 && got[3] == 3 && got[4] == 0xabcd1234 && got[8] == 4 && got[27] == 15);
	/* The driver frees the runtime's memory. A size of 0 is an error only in the driver. */
	CU(cudaFree((void *)p));
	CU(cudaMalloc((void **)&p, 64));
	OK(DRV(cuMemFree_v2)(p));
	SAYS(CUDA_ERROR_INVALID_VALUE, DRV(cuMemFree_v2)(p));
	CU(cudaGetLastError());
	SAYS(CUDA_ERROR_INVALID_VALUE, DRV(cuMemAlloc_v2)(&p, 0));
	SAYS(CUDA_ERROR_OUT_OF_MEMORY, DRV(cuMemAlloc_v2)(&p, (size_t)1 << 50));
}

/*
 * The stream must continue at the value `then`, and must wait at the values `before` and `not_yet`.
 */
static void word(unsigned flags, uint64_t before, uint64_t not_yet, uint64_t value, uint64_t then)
{
	uint64_t *w;
	CUstream s;

	CU(cudaMallocHost((void **)&w, 16));
	OK(DRV(cuStreamCreate)(&s, CU_STREAM_NON_BLOCKING));
	w[0] = before;
	w[1] = 0;
	if (flags & 0x100)
		OK(DRV(cuStreamWaitValue32_v2)(s, (CUdeviceptr)w, (uint32_t)value, flags & 3));
	else
		OK(DRV(cuStreamWaitValue64_v2)(s, (CUdeviceptr)w, value, flags & 3));
	OK(DRV(cuStreamWriteValue32_v2)(s, (CUdeviceptr)&w[1], 7, 0));
	__atomic_store_n(w, not_yet, __ATOMIC_RELEASE);
	usleep(2000);
	SAYS(CUDA_ERROR_NOT_READY, DRV(cuStreamQuery)(s));
	CHECK(!__atomic_load_n(&w[1], __ATOMIC_ACQUIRE));
	__atomic_store_n(w, then, __ATOMIC_RELEASE);
	OK(DRV(cuStreamSynchronize)(s));
	CHECK(w[1] == 7);
	OK(DRV(cuStreamDestroy_v2)(s));
	CU(cudaFreeHost(w));
}

static void words(void)
{
	CUstreamBatchMemOpParams ops[2] = {0};
	uint32_t *w;
	CUstream s;

	word(CU_STREAM_WAIT_VALUE_GEQ, 0, 4, 5, 6);
	word(CU_STREAM_WAIT_VALUE_EQ, 9, 6, 5, 5);
	word(CU_STREAM_WAIT_VALUE_AND, 1, 2, 12, 8);
	word(CU_STREAM_WAIT_VALUE_NOR, ~0ull, ~1ull, 1, ~2ull);
	/* The word has 32 bits: the bytes after it do not count. */
	word(0x100 | CU_STREAM_WAIT_VALUE_GEQ, 0, 0xff00000004, 5, 5);
	word(0x100 | CU_STREAM_WAIT_VALUE_EQ, 0, 0x500000000, 5, 0x700000005);
	word(0x100 | CU_STREAM_WAIT_VALUE_NOR, 0xffffffff, 0xfffffffe, 1, 0xfffffffd);
	CU(cudaMallocHost((void **)&w, 8));
	OK(DRV(cuStreamCreate)(&s, 0));
	w[0] = w[1] = 0;
	ops[0].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
	ops[0].writeValue.address = (CUdeviceptr)w;
	ops[0].writeValue.value = 3;
	ops[1].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
	ops[1].waitValue.address = (CUdeviceptr)&w[1];
	ops[1].waitValue.value = 1;
	OK(DRV(cuStreamBatchMemOp_v2)(s, 2, ops, 0));
	while (__atomic_load_n(w, __ATOMIC_ACQUIRE) != 3)
		usleep(100);
	SAYS(CUDA_ERROR_NOT_READY, DRV(cuStreamQuery)(s));
	__atomic_store_n(&w[1], 1, __ATOMIC_RELEASE);
	OK(DRV(cuStreamSynchronize)(s));
	ops[0].operation = 99;
	SAYS(CUDA_ERROR_INVALID_VALUE, DRV(cuStreamBatchMemOp_v2)(s, 1, ops, 0));
	SAYS(CUDA_ERROR_INVALID_VALUE, DRV(cuStreamWaitValue64_v2)(s, (CUdeviceptr)w + 4, 1, 0));
	SAYS(CUDA_ERROR_INVALID_HANDLE, DRV(cuStreamSynchronize)((CUstream)w));
}

/*
 * Nodes for words, captured and added explicitly: they can be read and changed, in the graph and in
 * an executable graph.
 */
static void word_nodes(void)
{
	CUstreamBatchMemOpParams one = {0};
	CUDA_BATCH_MEM_OP_NODE_PARAMS p = {.count = 1, .paramArray = &one}, got;
	CUDA_MEMSET_NODE_PARAMS fill;
	CUgraphNode nodes[3], added;
	CUgraphNodeType type;
	CUgraphExec exec;
	uint64_t *w;
	size_t nr = 3;
	CUgraph g;
	CUstream s;

	CU(cudaMallocHost((void **)&w, 32));
	memset(w, 0, 32);
	OK(DRV(cuStreamCreate)(&s, CU_STREAM_NON_BLOCKING));
	OK(DRV(cuStreamBeginCapture_v2)(s, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(DRV(cuMemsetD32Async)((CUdeviceptr)&w[3], 0x01020304, 2, s));
	OK(DRV(cuStreamWaitValue32_v2)(s, (CUdeviceptr)&w[0], 5, CU_STREAM_WAIT_VALUE_EQ));
	OK(DRV(cuStreamWriteValue64_v2)(s, (CUdeviceptr)&w[1], 7, 0));
	OK(DRV(cuStreamEndCapture)(s, &g));
	OK(DRV(cuGraphGetNodes)(g, nodes, &nr));
	CHECK(nr == 3);
	OK(DRV(cuGraphMemsetNodeGetParams)(nodes[0], &fill));
	CHECK(fill.elementSize == 4 && fill.width == 2 && fill.value == 0x01020304);
	OK(DRV(cuGraphNodeGetType)(nodes[1], &type));
	CHECK(type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP);
	OK(DRV(cuGraphBatchMemOpNodeGetParams)(nodes[1], &got));
	CHECK(got.count == 1 && got.paramArray[0].operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 &&
	      got.paramArray[0].waitValue.address == (CUdeviceptr)&w[0] &&
	      got.paramArray[0].waitValue.value == 5 &&
	      got.paramArray[0].waitValue.flags == CU_STREAM_WAIT_VALUE_EQ);
	SAYS(CUDA_ERROR_INVALID_VALUE, DRV(cuGraphBatchMemOpNodeGetParams)(nodes[0], &got));
	one.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
	one.writeValue.address = (CUdeviceptr)&w[2];
	one.writeValue.value64 = 8;
	OK(DRV(cuGraphAddBatchMemOpNode)(&added, g, &nodes[2], 1, &p));
	one.writeValue.value64 = 9;
	OK(DRV(cuGraphBatchMemOpNodeSetParams)(added, &p));
	OK(DRV(cuGraphInstantiateWithFlags)(&exec, g, 0));
	one.writeValue.value64 = 10;
	OK(DRV(cuGraphExecBatchMemOpNodeSetParams)(exec, added, &p));
	OK(DRV(cuGraphBatchMemOpNodeGetParams)(added, &got));
	CHECK(got.paramArray[0].writeValue.value64 == 9);
	OK(DRV(cuGraphLaunch)(exec, s));
	usleep(2000);
	SAYS(CUDA_ERROR_NOT_READY, DRV(cuStreamQuery)(s));
	CHECK(!__atomic_load_n(&w[1], __ATOMIC_ACQUIRE));
	__atomic_store_n((uint32_t *)w, 5, __ATOMIC_RELEASE);
	OK(DRV(cuStreamSynchronize)(s));
	CHECK(w[1] == 7 && w[2] == 10 && w[3] == 0x0102030401020304);
	p.count = 2;
	SAYS(CUDA_ERROR_NOT_SUPPORTED, DRV(cuGraphAddBatchMemOpNode)(&added, g, NULL, 0, &p));
	p.count = 1;
	one.writeValue.address++;
	SAYS(CUDA_ERROR_INVALID_VALUE, DRV(cuGraphAddBatchMemOpNode)(&added, g, NULL, 0, &p));
	OK(DRV(cuGraphExecDestroy)(exec));
	OK(DRV(cuGraphDestroy)(g));
	OK(DRV(cuStreamDestroy_v2)(s));
	CU(cudaFreeHost(w));
}

static void graphs(void)
{
	CUstreamCaptureStatus status;
	CUgraphNode node;
	CUgraphNodeType type;
	CUgraphExec exec;
	CUgraph g;
	CUstream s;
	CUevent e;
	CUdeviceptr p;
	unsigned int v = 0, from = 42;
	size_t nr = 1;

	OK(DRV(cuStreamCreate)(&s, CU_STREAM_NON_BLOCKING));
	OK(DRV(cuEventCreate)(&e, CU_EVENT_DISABLE_TIMING));
	OK(DRV(cuMemAlloc_v2)(&p, 64));
	OK(DRV(cuStreamBeginCapture_v2)(s, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(DRV(cuMemcpyHtoDAsync_v2)(p, &from, 4, s));
	OK(DRV(cuStreamIsCapturing)(s, &status));
	CHECK(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
	OK(DRV(cuStreamEndCapture)(s, &g));
	OK(DRV(cuGraphGetNodes)(g, &node, &nr));
	CHECK(nr == 1);
	OK(DRV(cuGraphNodeGetType)(node, &type));
	CHECK(type == CU_GRAPH_NODE_TYPE_MEMCPY);
	OK(DRV(cuGraphInstantiateWithFlags)(&exec, g, 0));
	from = 43;
	OK(DRV(cuGraphLaunch)(exec, s));
	OK(DRV(cuEventRecord)(e, s));
	OK(DRV(cuEventSynchronize)(e));
	OK(DRV(cuMemcpyDtoH_v2)(&v, p, 4));
	CHECK(v == 43);
	CU(cudaGraphExecDestroy((cudaGraphExec_t)exec));
	CU(cudaGraphDestroy(g));
	OK(DRV(cuStreamDestroy_v2)(s));
}

/* Further attributes of a launch: a completion event, a priority, all blocks at the same time. */
static void asked_for(CUlaunchConfig *c, CUfunction f, CUresult want)
{
	CUlaunchAttribute a = {.id = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT};
	uint64_t word = 0;
	CUevent event;
	int nr;

	c->attrs = &a;
	c->numAttrs = 1;
	OK(DRV(cuStreamCreate)(&c->hStream, CU_STREAM_NON_BLOCKING));
	OK(DRV(cuEventCreate)(&event, 0));
	OK(DRV(cuStreamWaitValue64_v2)(c->hStream, (CUdeviceptr)(uintptr_t)&word, 1, 0));
	a.value.launchCompletionEvent.event = event;
	SAYS(want, DRV(cuLaunchKernelEx)(c, f, NULL, NULL));
	SAYS(CUDA_ERROR_NOT_READY, DRV(cuEventQuery)(event));
	__atomic_store_n(&word, 1, __ATOMIC_RELEASE);
	OK(DRV(cuEventSynchronize)(event));
	OK(DRV(cuEventDestroy_v2)(event));
	OK(DRV(cuStreamDestroy_v2)(c->hStream));
	c->hStream = NULL;
	a.id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
	a.value.priority = 3;
	SAYS(CUDA_ERROR_INVALID_VALUE, DRV(cuLaunchKernelEx)(c, f, NULL, NULL));
	a.value.priority = 0;
	SAYS(want, DRV(cuLaunchKernelEx)(c, f, NULL, NULL));
	OK(DRV(cuDeviceGetAttribute)(&nr, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
	SAYS(want,
	     DRV(cuLaunchCooperativeKernel)(f, (unsigned)nr * 4, 1, 1, 512, 1, 1, 0, NULL, NULL));
	SAYS(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
	     DRV(cuLaunchCooperativeKernel)(f, (unsigned)nr * 4 + 1, 1, 1, 512, 1, 1, 0, NULL,
					    NULL));
	c->attrs = NULL;
	SAYS(CUDA_ERROR_INVALID_VALUE, DRV(cuLaunchKernelEx)(c, f, NULL, NULL));
	c->numAttrs = 0;
}

static void kernels(void)
{
	CUresult want = getenv("DFSHIM_HOST_STUB") ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
	CUlaunchConfig c = {.gridDimX = 3,
			    .gridDimY = 1,
			    .gridDimZ = 1,
			    .blockDimX = 64,
			    .blockDimY = 1,
			    .blockDimZ = 1};
	static const char image[] = "no code";
	cudaLibrary_t library;
	cudaKernel_t kernel;
	const char *name;
	CUfunction f, same;
	CUdeviceptr at;
	CUmodule m;
	int nr;

	OK(DRV(cuModuleLoadData)(&m, image));
	OK(DRV(cuModuleGetFunction)(&f, m, "work"));
	OK(DRV(cuModuleGetFunction)(&same, m, "work"));
	CHECK(f == same);
	OK(DRV(cuFuncGetName)(&name, f));
	CHECK(strcmp(name, "work") == 0);
	OK(DRV(cuOccupancyMaxActiveBlocksPerMultiprocessor)(&nr, f, 512, 0));
	CHECK(nr == 4);
	SAYS(want, DRV(cuLaunchKernel)(f, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
	SAYS(want, DRV(cuLaunchKernelEx)(&c, f, NULL, NULL));
	c.blockDimX = 1025;
	SAYS(CUDA_ERROR_INVALID_VALUE, DRV(cuLaunchKernelEx)(&c, f, NULL, NULL));
	c.blockDimX = 64;
	asked_for(&c, f, want);
	SAYS(CUDA_ERROR_INVALID_VALUE,
	     DRV(cuLaunchKernel)(f, 1, 65536, 1, 32, 1, 1, 0, NULL, NULL, NULL));
	SAYS(CUDA_ERROR_INVALID_VALUE,
	     DRV(cuLaunchKernel)(f, 1, 1, 1, 1, 1, 65, 0, NULL, NULL, NULL));
	/* The code is not parsed, so it has no variables. */
	SAYS(CUDA_ERROR_NOT_FOUND, DRV(cuModuleGetGlobal_v2)(&at, NULL, m, "variable"));
	SAYS(CUDA_ERROR_INVALID_VALUE, DRV(cuModuleGetGlobal_v2)(NULL, NULL, m, "variable"));
	SAYS(CUDA_ERROR_INVALID_HANDLE,
	     DRV(cuModuleGetGlobal_v2)(&at, NULL, (CUmodule)f, "variable"));
	SAYS(CUDA_ERROR_INVALID_VALUE,
	     DRV(cuLaunchKernel)(f, 1, 1, 1, 32, 1, 1, 50 << 10, NULL, NULL, NULL));
	OK(DRV(cuFuncSetAttribute)(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 50 << 10));
	SAYS(want, DRV(cuLaunchKernel)(f, 1, 1, 1, 32, 1, 1, 50 << 10, NULL, NULL, NULL));
	SAYS(CUDA_ERROR_INVALID_HANDLE,
	     DRV(cuLaunchKernel)((CUfunction)m, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
	OK(DRV(cuModuleUnload)(m));
	SAYS(CUDA_ERROR_INVALID_HANDLE, DRV(cuModuleUnload)(m));
	SAYS(CUDA_ERROR_INVALID_HANDLE,
	     DRV(cuLaunchKernel)(f, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
	SAYS(CUDA_ERROR_FILE_NOT_FOUND, DRV(cuModuleLoad)(&m, "/nothing/there"));
	CU(cudaLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0));
	CU(cudaLibraryGetKernel(&kernel, library, "work"));
	GIVES((cudaError_t)want,
	      cudaLaunchKernel((void *)kernel, (dim3){1, 1, 1}, (dim3){1, 1, 1}, NULL, 0, NULL));
	CU(cudaLibraryUnload(library));
	CU(cudaDeviceSynchronize());
}

static void names(void)
{
	CUdriverProcAddressQueryResult status;
	const char *text;
	void *fn = NULL;
	Dl_info at;

	OK(DRV(cuGetProcAddress_v2)("cuMemAlloc", &fn, 12000, 0, &status));
	CHECK(fn == dlsym(driver, "cuMemAlloc_v2") && status == CU_GET_PROC_ADDRESS_SUCCESS);
	OK(DRV(cuGetProcAddress_v2)("cuStreamSynchronize", &fn, 12000,
				    CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, NULL));
	CHECK(fn == dlsym(driver, "cuStreamSynchronize_ptsz"));
	OK(DRV(cuGetProcAddress_v2)("cuGraphInstantiate", &fn, 12000, 0, NULL));
	CHECK(fn == dlsym(driver, "cuGraphInstantiateWithFlags"));
	SAYS(CUDA_ERROR_NOT_FOUND, DRV(cuGetProcAddress_v2)("cuNothing", &fn, 12000, 0, &status));
	CHECK(!fn && status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
	SAYS(CUDA_ERROR_NOT_FOUND, DRV(cuGetProcAddress_v2)("cuCtxGetId", &fn, 11080, 0, &status));
	/*
	 * Prints the library of the function for tests/cuda/t_hook.sh: it must not be the hook's,
	 * whichever way the function is looked up.
	 */
	CHECK(dladdr(dlsym(driver, "cuMemAlloc_v2"), &at));
	printf("cuMemAlloc_v2 %s\n", strrchr(at.dli_fname, '/') + 1);
	CU(cudaGetDriverEntryPointByVersion("cuMemAlloc", &fn, 12000, 0, NULL));
	CHECK(fn == dlsym(driver, "cuMemAlloc_v2"));
	OK(DRV(cuGetErrorName)(CUDA_ERROR_NOT_READY, &text));
	CHECK(strcmp(text, "CUDA_ERROR_NOT_READY") == 0);
	SAYS(CUDA_ERROR_INVALID_VALUE, DRV(cuGetErrorName)((CUresult)77777, &text));
	/* Refused; t_driver.sh checks that there is only one warning. */
	SAYS(CUDA_ERROR_NOT_SUPPORTED, DRV(cuTexObjectDestroy)(0));
	SAYS(CUDA_ERROR_NOT_SUPPORTED, DRV(cuTexObjectDestroy)(0));
}

int main(void)
{
	int nr;

	driver_open();
	OK(DRV(cuInit)(0));
	OK(DRV(cuDeviceGetCount)(&nr));
	CHECK(nr >= 3);
	contexts();
	memory();
	words();
	graphs();
	word_nodes();
	kernels();
	names();
	return 0;
}
