/*
 * Tests of the test driver with kernels that are compiled code: parameters, variables, streams and
 * graphs, attributes of launches, faults and their consequences, memory that a kernel may use,
 * damaged containers.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "runtime/base/rng.h"
#include "tests/cuda/driver/dmabuf.h"
#include "tests/lib/test.h"

#if __has_include(<cuda.h>)
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

static const char code[] =
	"//\n"
	".version 8.0\n"
	".target sm_80\n"
	".address_size 64\n"
	".visible .global .align 4 .u32 total = 5;\n"
	/* Each thread stores a + b * total into its own element of `to`. */
	".visible .entry mix(.param .u64 p_to, .param .u8 p_a, .param .u32 p_b)\n"
	".maxntid 64, 1, 1\n"
	"{\n"
	".reg .b64 %rd<6>;\n.reg .b32 %r<10>;\n"
	"ld.param.u64 %rd1, [p_to];\n"
	"ld.param.u8 %r1, [p_a];\n"
	"ld.param.u32 %r2, [p_b];\n"
	"ld.global.u32 %r3, [total];\n"
	"mad.lo.s32 %r4, %r2, %r3, %r1;\n"
	"mov.u32 %r5, %ctaid.x;\nmov.u32 %r6, %ntid.x;\nmov.u32 %r7, %tid.x;\n"
	"mad.lo.s32 %r8, %r5, %r6, %r7;\n"
	"mul.wide.u32 %rd2, %r8, 4;\nadd.s64 %rd3, %rd1, %rd2;\n"
	"st.global.u32 [%rd3], %r4;\nret;\n}\n"
	/* Both warps store to the same word. */
	".visible .entry both(.param .u64 p_to)\n{\n"
	".reg .b64 %rd<3>;\n.reg .b32 %r<2>;\n"
	"ld.param.u64 %rd1, [p_to];\nmov.u32 %r1, %tid.x;\nst.global.u32 [%rd1], %r1;\nret;\n}\n"
	/* Waits until the word is not 0. */
	".visible .entry until(.param .u64 p_word)\n{\n"
	".reg .b64 %rd<3>;\n.reg .pred %p<2>;\n"
	"ld.param.u64 %rd1, [p_word];\n"
	"L: ld.acquire.sys.u64 %rd2, [%rd1];\nsetp.eq.s64 %p1, %rd2, 0;\n@%p1 bra L;\nret;\n}\n";

static CUcontext ctx[2];
static CUmodule module;
static CUstream stream;
static CUdeviceptr memory;
static char faults[64];

#define OK(call) ck_assert_int_eq(call, CUDA_SUCCESS)

static void start(void)
{
	snprintf(faults, sizeof(faults), "/tmp/t_fake.%d", getpid());
	unlink(faults);
	setenv("FAKE_CUDA_FAULTS", faults, 1);
	setenv("FAKE_CUDA_DEVICES", "2", 1);
	OK(cuInit(0));
	OK(cuDevicePrimaryCtxRetain(&ctx[1], 1));
	OK(cuDevicePrimaryCtxRetain(&ctx[0], 0));
	OK(cuCtxSetCurrent(ctx[0]));
	OK(cuModuleLoadData(&module, code));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuMemAlloc_v2(&memory, 4096));
	OK(cuMemsetD8_v2(memory, 0, 4096));
	OK(cuCtxSynchronize());
}
static void end(void)
{
	unlink(faults);
}

static CUfunction function(const char *name)
{
	CUfunction f;

	OK(cuModuleGetFunction(&f, module, name));
	return f;
}
static int said(const char *what)
{
	char text[4096] = "";
	FILE *f = fopen(faults, "re");

	if (f) {
		text[fread(text, 1, sizeof(text) - 1, f)] = 0;
		fclose(f);
	}
	return strstr(text, what) != NULL;
}
static CUresult mix(CUdeviceptr to, uint8_t a, uint32_t b, unsigned int grid, unsigned int block)
{
	void *params[] = {&to, &a, &b};

	return cuLaunchKernel(function("mix"), grid, 1, 1, block, 1, 1, 0, stream, params, NULL);
}
static uint32_t at(unsigned int i)
{
	uint32_t v;

	OK(cuStreamSynchronize(stream));
	OK(cuMemcpyDtoH_v2(&v, memory + 4 * i, 4));
	return v;
}

START_TEST(parameters)
{
	struct {
		uint64_t to;
		uint8_t a, pad[3];
		uint32_t b;
	} block = {memory, 2, {0}, 100};
	size_t bytes = sizeof(block);
	void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &block, CU_LAUNCH_PARAM_BUFFER_SIZE,
			 &bytes, CU_LAUNCH_PARAM_END};
	uint32_t seven = 7;
	CUdeviceptr total;
	CUfunction none;
	int value;

	/* The launch copies the parameters. All threads of all blocks run. */
	OK(mix(memory, 250, 1000, 3, 40));
	ck_assert_uint_eq(at(0), 5250);
	ck_assert_uint_eq(at(119), 5250);
	ck_assert_uint_eq(at(120), 0);
	OK(cuModuleGetGlobal_v2(&total, &bytes, module, "total"));
	ck_assert_uint_eq(bytes, 4);
	OK(cuMemcpyHtoD_v2(total, &seven, 4));
	OK(cuCtxSynchronize());
	bytes = sizeof(block);
	OK(cuLaunchKernel(function("mix"), 1, 1, 1, 1, 1, 1, 0, stream, NULL, extra));
	ck_assert_uint_eq(at(0), 702);
	bytes = 12;
	ck_assert_int_eq(cuLaunchKernel(function("mix"), 1, 1, 1, 1, 1, 1, 0, stream, NULL, extra),
			 CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuLaunchKernel(function("mix"), 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL),
			 CUDA_ERROR_INVALID_VALUE);
	/* Shapes that no device allows, and a shape that this kernel does not allow. */
	ck_assert_int_eq(mix(memory, 0, 0, 0, 32), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(mix(memory, 0, 0, 1, 0), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(mix(memory, 0, 0, 1, 65), CUDA_ERROR_INVALID_VALUE);
	OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function("mix")));
	ck_assert_int_eq(value, 64);
	ck_assert_int_eq(cuModuleGetFunction(&none, module, "none"), CUDA_ERROR_NOT_FOUND);
	ck_assert_int_eq(cuModuleGetGlobal_v2(&total, &bytes, module, "none"),
			 CUDA_ERROR_NOT_FOUND);
}
END_TEST

/* A captured launch keeps its parameters in each instance of its graph. */
START_TEST(captured)
{
	CUgraphExec exec[2];
	CUgraph graph;

	OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(mix(memory + 8, 1, 1, 1, 1));
	OK(cuStreamEndCapture(stream, &graph));
	OK(cuGraphInstantiateWithFlags(&exec[0], graph, 0));
	OK(cuGraphInstantiateWithFlags(&exec[1], graph, 0));
	OK(cuGraphDestroy(graph));
	for (int i = 0; i < 2; i++) {
		OK(cuMemsetD8_v2(memory, 0, 64));
		OK(cuCtxSynchronize());
		OK(cuGraphLaunch(exec[i], stream));
		ck_assert_uint_eq(at(2), 6);
		OK(cuGraphExecDestroy(exec[i]));
	}
}
END_TEST

/* Events of launches, and cooperative kernels, whose blocks must all run at the same time. */
START_TEST(attributes)
{
	CUlaunchAttribute a = {.id = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT};
	CUlaunchConfig c = {.gridDimX = 1,
			    .gridDimY = 1,
			    .gridDimZ = 1,
			    .blockDimX = 32,
			    .blockDimY = 1,
			    .blockDimZ = 1,
			    .hStream = stream,
			    .attrs = &a,
			    .numAttrs = 1};
	uint64_t *word;
	void *params[] = {&word};
	CUevent started, ended;

	OK(cuMemHostAlloc((void **)&word, 8, 0));
	*word = 0;
	OK(cuEventCreate(&started, 0));
	OK(cuEventCreate(&ended, 0));
	a.value.launchCompletionEvent.event = started;
	OK(cuLaunchKernelEx(&c, function("until"), params, NULL));
	/*
	 * The launch completion event is recorded when the kernel starts, so the kernel still runs.
	 */
	OK(cuEventSynchronize(started));
	ck_assert_int_eq(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
	a.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT;
	a.value.programmaticEvent.event = ended;
	OK(cuLaunchKernelEx(&c, function("until"), params, NULL));
	ck_assert_int_eq(cuEventQuery(ended), CUDA_ERROR_NOT_READY);
	/* RELEASE pairs with the kernel's acquire. */
	__atomic_store_n(word, 1, __ATOMIC_RELEASE);
	OK(cuEventSynchronize(ended));

	/* A multiprocessor holds 2,048 threads. */
	OK(cuLaunchCooperativeKernel(function("until"), 4, 1, 1, 512, 1, 1, 0, stream, params));
	ck_assert_int_eq(
		cuLaunchCooperativeKernel(function("until"), 5, 1, 1, 512, 1, 1, 0, stream, params),
		CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
	a.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
	a.value.cooperative = 1;
	c.gridDimX = 65;
	ck_assert_int_eq(cuLaunchKernelEx(&c, function("until"), params, NULL),
			 CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
	a.id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
	a.value.priority = 3;
	ck_assert_int_eq(cuLaunchKernelEx(&c, function("until"), params, NULL),
			 CUDA_ERROR_INVALID_VALUE);
	a.value.priority = -1;
	OK(cuLaunchKernelEx(&c, function("until"), params, NULL));
	a.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
	a.value.clusterDim.x = 2;
	a.value.clusterDim.y = a.value.clusterDim.z = 1;
	ck_assert_int_eq(cuLaunchKernelEx(&c, function("until"), params, NULL),
			 CUDA_ERROR_NOT_SUPPORTED);
	/* A launch may not use more dynamic shared memory than the kernel's attribute allows. */
	ck_assert_int_eq(
		cuLaunchKernel(function("until"), 1, 1, 1, 1, 1, 1, 50 << 10, stream, params, NULL),
		CUDA_ERROR_INVALID_VALUE);
	OK(cuFuncSetAttribute(function("until"), CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
			      50 << 10));
	OK(cuLaunchKernel(function("until"), 1, 1, 1, 1, 1, 1, 50 << 10, stream, params, NULL));
	OK(cuCtxSynchronize());
	ck_assert(access(faults, F_OK) != 0);
}
END_TEST

/*
 * A kernel's forbidden access ends its context: no later work runs there, and no thread waits
 * forever.
 */
START_TEST(illegal)
{
	static uint32_t own[64];
	uint64_t *word;
	CUdeviceptr other, to = memory;
	CUstream second, third;
	CUevent event;
	CUresult r;

	OK(cuCtxPushCurrent_v2(ctx[1]));
	OK(cuMemAlloc_v2(&other, 4096));
	OK(cuCtxPopCurrent_v2(NULL));
	OK(cuMemHostAlloc((void **)&word, 8, 0));
	OK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
	OK(cuEventCreate(&event, 0));
	/* These are allowed: registered memory, and another device's memory after peer access. */
	OK(cuMemHostRegister_v2(own, sizeof(own), 0));
	OK(mix((CUdeviceptr)(uintptr_t)own, 0, 0, 1, 1));
	OK(cuCtxEnablePeerAccess(ctx[1], 0));
	if (_i != 3)
		OK(mix(other, 0, 0, 1, 1));
	OK(cuStreamSynchronize(stream));
	ck_assert(access(faults, F_OK) != 0);

	/* Unregister before a stream waits, because this call waits until the context is idle. */
	if (_i == 0)
		OK(cuMemHostUnregister(own));
	*word = 0;
	OK(cuStreamWaitValue64_v2(second, (CUdeviceptr)(uintptr_t)word, 1, 0));
	OK(cuEventRecord(event, second));
	OK(cuStreamCreate(&third, CU_STREAM_NON_BLOCKING));
	OK(cuStreamWaitEvent(third, event, 0));
	switch (_i) {
	case 0: /* memory that is no longer registered */
		to = (CUdeviceptr)(uintptr_t)own;
		break;
	case 1: /* after the end of an allocation */
		to = memory + 4096;
		break;
	case 2:
		to = memory + 2;
		break;
	default: /* device 1 has no access to device 0 */
		OK(cuCtxPushCurrent_v2(ctx[1]));
		OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
		break;
	}
	OK(mix(to, 0, 0, 1, 1));
	r = cuStreamSynchronize(stream);
	ck_assert_int_eq(r, _i == 2 ? CUDA_ERROR_MISALIGNED_ADDRESS : CUDA_ERROR_ILLEGAL_ADDRESS);
	ck_assert(said("fault: "));
	ck_assert(said(_i == 2 ? "not a multiple" : "does not know"));
	ck_assert_int_eq(mix(memory, 0, 0, 1, 1), r);
	ck_assert_int_eq(cuCtxSynchronize(), r);
	ck_assert_int_eq(cuMemAlloc_v2(&other, 16), r);
	if (_i == 3) {
		/* The other device's context still works. */
		OK(cuCtxPopCurrent_v2(NULL));
		ck_assert_int_eq(cuEventQuery(event), CUDA_ERROR_NOT_READY);
		return;
	}
	ck_assert_int_eq(cuStreamSynchronize(third), r);
	ck_assert_int_eq(cuStreamSynchronize(second), r);
	ck_assert_int_eq(cuEventSynchronize(event), r);
}
END_TEST

/* A race is reported, but the kernel completes. */
START_TEST(race)
{
	void *params[] = {&memory};

	OK(cuLaunchKernel(function("both"), 1, 1, 1, 64, 1, 1, 0, stream, params, NULL));
	OK(cuStreamSynchronize(stream));
	ck_assert(said("race: "));
	ck_assert(!said("fault: "));
}
END_TEST

/*
 * Makes a container like nvcc's with this code. The test also changes random bytes of it: the
 * driver may refuse it, but must not read beyond its end.
 */
static size_t contain(uint8_t *to, uint32_t capability)
{
	uint32_t head[4] = {0xba55ed50u, 16u << 16 | 1, 0, 0};
	uint32_t entry[16] = {0x01010001u, 64, sizeof(code), 0, 0, 64, 9u << 16, capability};

	head[2] = sizeof(entry) + sizeof(code);
	memcpy(to, head, sizeof(head));
	memcpy(to + 16, entry, sizeof(entry));
	memcpy(to + 80, code, sizeof(code));
	return 80 + sizeof(code);
}
START_TEST(containers)
{
	uint8_t *end, good[sizeof(code) + 256];
	size_t bytes, page = (size_t)sysconf(_SC_PAGESIZE);
	struct df_rng rng;
	CUfunction f;
	CUmodule m;
	int value;

	df_rng_init(&rng, df_test_seed());
	bytes = contain(good, 90);
	OK(cuModuleLoadFatBinary(&m, good));
	OK(cuModuleGetFunction(&f, m, "mix"));
	OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_BINARY_VERSION, f));
	ck_assert_int_eq(value, 90);
	/* For a device newer than the driver's: a kernel without code that can be executed. */
	contain(good, 100);
	OK(cuModuleLoadFatBinary(&m, good));
	OK(cuModuleGetFunction(&f, m, "mix"));
	OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_BINARY_VERSION, f));
	ck_assert_int_eq(value, 0);
	contain(good, 80);
	/* Puts the container at the end of a page, before a page that cannot be read. */
	end = mmap(NULL, 17 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(end, MAP_FAILED);
	end += 16 * page;
	ck_assert_int_eq(mprotect(end, page, PROT_NONE), 0);
	for (int i = 0; i < 300; i++) {
		memcpy(end - bytes, good, bytes);
		/* The size of the whole is not changed, because nothing else limits the reader. */
		for (int k = 0; k < 3; k++)
			(end - bytes)[16 + df_rng_below(&rng, 64)] = (uint8_t)df_rng_u64(&rng);
		OK(cuModuleLoadFatBinary(&m, end - bytes));
	}
}
END_TEST

static int attribute(CUdevice_attribute what)
{
	int v = -1;

	OK(cuDeviceGetAttribute(&v, what, 0));
	return v;
}

/*
 * A device's memory as a file that names it. The libibverbs of tests/net/fake takes this file for a
 * dma-buf.
 */
START_TEST(rdma)
{
	const size_t page = 4096, bytes = 2u << 20;
	CUmemRangeHandleType type = CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD;
	struct fake_dmabuf b;
	CUdeviceptr p;
	char *map;
	int fd;

	OK(cuMemAlloc_v2(&p, bytes));
	ck_assert_uint_eq(p % page, 0);
	ck_assert_int_eq(attribute(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED), 0);
	ck_assert_int_eq(attribute(CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED), 0);
	ck_assert_int_eq(cuMemGetHandleForAddressRange(&fd, p, bytes, type, 0),
			 CUDA_ERROR_NOT_SUPPORTED);
	setenv("FAKE_CUDA_GDR", "plain", 1);
	ck_assert_int_eq(attribute(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED), 1);
	ck_assert_int_eq(attribute(CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED), 0);
	setenv("FAKE_CUDA_GDR", "ordered", 1);
	ck_assert_int_eq(attribute(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING),
			 CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER);
	setenv("FAKE_CUDA_GDR", "dmabuf", 1);
	ck_assert_int_eq(attribute(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING), 0);
	ck_assert_int_eq(attribute(CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED), 1);
	ck_assert_int_eq(cuMemGetHandleForAddressRange(&fd, p + 8, page, type, 0),
			 CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuMemGetHandleForAddressRange(&fd, p, page + 8, type, 0),
			 CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuMemGetHandleForAddressRange(&fd, p + page, bytes, type, 0),
			 CUDA_ERROR_INVALID_VALUE);
	OK(cuMemGetHandleForAddressRange(&fd, p + page, page, type, 0));
	ck_assert_int_eq(pread(fd, &b, sizeof(b), 0), sizeof(b));
	ck_assert_uint_eq(b.magic, FAKE_DMABUF_MAGIC);
	ck_assert_uint_eq(b.bytes, page);
	map = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, (int)b.fd, (off_t)b.offset);
	ck_assert_ptr_ne(map, MAP_FAILED);
	OK(cuMemsetD8_v2(p, 3, bytes));
	OK(cuMemsetD8_v2(p + page, 7, page));
	OK(cuCtxSynchronize());
	ck_assert_int_eq(map[0], 7);
	ck_assert_int_eq(map[page - 1], 7);
	close(fd);
	unsetenv("FAKE_CUDA_GDR");
}
END_TEST
#endif

int main(void)
{
#if __has_include(<cuda.h>)
	return DF_TESTS("fake", {.before = start, .after = end}, {parameters}, {captured},
			{attributes}, {illegal, 4}, {race}, {containers}, {rdma});
#else
	printf("skipped: built without CUDA headers\n");
	return 77;
#endif
}
