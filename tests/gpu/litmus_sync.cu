/*
 * Which calls wait for a running kernel, or for a stream that waits for a word? Each call is made
 * by a thread of its own, and the main thread watches. After half a second it removes the cause of
 * a possible wait. Meanwhile another thread launches a small kernel: does the kernel start while
 * the call is in progress ("relaunch")?
 */
#include "tests/gpu/litmus.h"

__global__ void resident(uint64_t *up, uint64_t *leave)
{
	dev_put(up, 1);
	dev_until(leave, 1);
}
__global__ void small(uint64_t *up)
{
	dev_put(up, 1);
}
/* Each case launches an instance of its own for the first time: loading it may synchronise. */
template <int CASE> __global__ void lazy(uint64_t *up)
{
	dev_put(up, 2);
}
/*
 * Needs more local memory for each thread than any kernel before it. The driver allocates that at
 * the first launch.
 */
template <int CASE> __global__ void deep(uint64_t *up, int n)
{
	volatile char stack[(CASE + 1) * 8192];

	for (int i = 0; i < n; i++)
		stack[i] = (char)i;
	dev_put(up, 2 + (n ? (uint64_t)stack[n - 1] : 0));
}

#define HOLD_NS 500000000ull /* how long a call may wait before the cause of its wait is removed */

static char pageable[1 << 20], registered[1 << 20];

/*
 * The objects of memory that is mapped step by step. The steps do nothing if the driver does not
 * have these functions.
 */
static struct {
	CUmemAllocationProp prop;
	CUmemAccessDesc access;
	CUmemGenericAllocationHandle memory;
	CUdeviceptr at;
	size_t bytes;
} vm;

template <typename F, typename... A> static void vm_call(const char *name, A... args)
{
	auto f = driver<F>(name, 10020);

	if (f)
		f(args...);
}
static void vm_make(void)
{
	vm.prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
	vm.prop.location.type = vm.access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	vm.access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	vm_call<CUresult (*)(size_t *, const CUmemAllocationProp *,
			     CUmemAllocationGranularity_flags)>("cuMemGetAllocationGranularity",
								&vm.bytes, &vm.prop,
								CU_MEM_ALLOC_GRANULARITY_MINIMUM);
	vm_call<CUresult (*)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,
			     unsigned long long)>("cuMemCreate", &vm.memory, vm.bytes, &vm.prop,
						  0ull);
	vm_call<CUresult (*)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long)>(
		"cuMemAddressReserve", &vm.at, vm.bytes, (size_t)0, (CUdeviceptr)0, 0ull);
}
static void vm_map(void)
{
	vm_call<CUresult (*)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle,
			     unsigned long long)>("cuMemMap", vm.at, vm.bytes, (size_t)0, vm.memory,
						  0ull);
}
static void vm_access(void)
{
	vm_call<CUresult (*)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t)>(
		"cuMemSetAccess", vm.at, vm.bytes, &vm.access, (size_t)1);
}
static void vm_unmap(void)
{
	vm_call<CUresult (*)(CUdeviceptr, size_t)>("cuMemUnmap", vm.at, vm.bytes);
}
static void vm_release(void)
{
	vm_call<CUresult (*)(CUmemGenericAllocationHandle)>("cuMemRelease", vm.memory);
}
static void vm_free(void)
{
	vm_call<CUresult (*)(CUdeviceptr, size_t)>("cuMemAddressFree", vm.at, vm.bytes);
}

int main()
{
	struct word *w;
	cudaStream_t user, daemon, relaunch, other;
	value64_fn wait64;
	void *dev, *host, *tofree, *pool;
	cudaGraph_t graph;
	cudaStream_t idle;

	litmus_start("sync", 100);
	wait64 = stream_wait64();
	w = words(8);
	MUST(cudaStreamCreateWithFlags(&user, cudaStreamNonBlocking));
	MUST(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
	MUST(cudaStreamCreateWithPriority(&daemon, cudaStreamNonBlocking, -5));
	MUST(cudaStreamCreateWithPriority(&relaunch, cudaStreamNonBlocking, -4));
	MUST(cudaMalloc(&dev, 1 << 20));
	small<<<1, 1, 0, relaunch>>>(&w[0].v);
	resident<<<1, 1, 0, daemon>>>(&w[0].v, &w[0].v);
	MUST(cudaDeviceSynchronize());

	struct call {
		const char *name;
		std::function<void()> before, act;
	};
	int blocked;
	std::vector<call> calls = {
		{"cudaMalloc", [] {}, [&] { cudaMalloc(&tofree, 1 << 20); }},
		{"cudaFree", [&] { MUST(cudaMalloc(&tofree, 1 << 20)); },
		 [&] { cudaFree(tofree); }},
		{"cudaMalloc 1 GiB", [] {}, [&] { cudaMalloc(&tofree, 1ull << 30); }},
		{"cudaHostAlloc", [] {}, [&] { cudaHostAlloc(&host, 1 << 20, 0); }},
		{"cudaFreeHost", [&] { MUST(cudaHostAlloc(&host, 1 << 20, 0)); },
		 [&] { cudaFreeHost(host); }},
		{"cudaHostRegister", [] {},
		 [] { cudaHostRegister(registered, sizeof(registered), 0); }},
		{"cudaHostUnregister", [] {}, [] { cudaHostUnregister(registered); }},
		{"cuMemCreate and cuMemAddressReserve", [] {}, vm_make},
		{"cuMemMap", [] {}, vm_map},
		{"cuMemSetAccess", [] {}, vm_access},
		{"cuMemUnmap", [] {}, vm_unmap},
		{"cuMemRelease", [] {}, vm_release},
		{"cuMemAddressFree", [] {}, vm_free},
		{"cudaMallocAsync", [] {}, [&] { cudaMallocAsync(&pool, 1 << 20, other); }},
		{"cudaFreeAsync", [] {}, [&] { cudaFreeAsync(pool, other); }},
		{"cudaStreamCreate", [] {},
		 [&] { cudaStreamCreateWithFlags(&idle, cudaStreamNonBlocking); }},
		{"cudaStreamDestroy idle", [] {}, [&] { cudaStreamDestroy(idle); }},
		{"cudaEventCreate+Destroy", [] {},
		 [] {
			 cudaEvent_t e;
			 cudaEventCreate(&e);
			 cudaEventDestroy(e);
		 }},
		{"cudaMemcpy pageable", [] {},
		 [&] { cudaMemcpy(dev, pageable, 4096, cudaMemcpyHostToDevice); }},
		{"cudaMemcpyAsync pageable other stream", [] {},
		 [&] { cudaMemcpyAsync(dev, pageable, 1 << 20, cudaMemcpyHostToDevice, other); }},
		{"cudaMemset legacy", [] {}, [&] { cudaMemset(dev, 0, 4096); }},
		{"cudaMemGetInfo", [] {},
		 [] {
			 size_t a, b;
			 cudaMemGetInfo(&a, &b);
		 }},
		{"cudaStreamQuery other", [] {}, [&] { cudaStreamQuery(other); }},
		{"first launch of a kernel", [] {},
		 [&] {
			 if (blocked)
				 lazy<1><<<1, 1, 0, other>>>(&w[4].v);
			 else
				 lazy<0><<<1, 1, 0, other>>>(&w[4].v);
		 }},
		{"first launch of a kernel with a deep stack", [] {},
		 [&] {
			 if (blocked)
				 deep<1><<<1, 1, 0, other>>>(&w[4].v, 100);
			 else
				 deep<0><<<1, 1, 0, other>>>(&w[4].v, 100);
		 }},
		{"cudaGraphInstantiate",
		 [&] {
			 MUST(cudaStreamBeginCapture(other, cudaStreamCaptureModeRelaxed));
			 small<<<1, 1, 0, other>>>(&w[5].v);
			 MUST(cudaStreamEndCapture(other, &graph));
		 },
		 [&] {
			 cudaGraphExec_t exec;
			 cudaGraphInstantiate(&exec, graph, 0);
		 }},
	};
	for (blocked = 0; blocked < 2; blocked++)
		for (auto &c : calls) {
			std::atomic<int> done{0};
			uint64_t t, took;
			int relaunched, waits;

			c.before();
			MUST(cudaDeviceSynchronize());
			for (int i = 0; i < 4; i++)
				put(&w[i], 0);
			if (blocked)
				wait64((CUstream)user, (CUdeviceptr)&w[1].v, 1,
				       CU_STREAM_WAIT_VALUE_GEQ);
			else
				resident<<<1, 1, 0, daemon>>>(&w[0].v, &w[1].v);
			if (!blocked && !until(&w[0], 1, 2000000000ull)) {
				printf("the resident kernel does not start\n");
				return 1;
			}
			usleep(2000);
			t = now_ns();
			/* This gives the thread a context, which functions of the driver need. */
			std::thread caller([&] {
				cudaSetDevice(0);
				c.act();
				done = 1;
			});
			usleep(2000);
			/* The launch may block, so it has a thread of its own. */
			std::thread launcher([&] { small<<<1, 1, 0, relaunch>>>(&w[2].v); });
			relaunched = until(&w[2], 1, HOLD_NS / 2);
			while (!done && now_ns() - t < HOLD_NS)
				usleep(100);
			waits = !done;
			put(&w[1], 1);
			caller.join();
			took = now_ns() - t;
			launcher.join();
			cudaDeviceSynchronize();
			cudaGetLastError();
			result("\"test\":\"sync\",\"call\":\"%s\",\"beside\":\"%s\",\"waits\":%s,\"relaunch\":%s,\"ns\":%llu",
			       c.name, blocked ? "blocked stream" : "running kernel",
			       waits ? "true" : "false", relaunched ? "true" : "false",
			       (unsigned long long)took);
		}
	return 0;
}
