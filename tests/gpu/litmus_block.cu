/*
 * Where a driver blocks, and whether a running kernel sees later changes. How many entries does a
 * stream accept that waits for a word? Does loading code return while such a stream exists, and can
 * anything else be launched meanwhile? Does a running kernel see memory that is allocated, pinned
 * or mapped later? Does a kernel in a green context with multiprocessors of its own start while
 * other kernels fill the device?
 */
#include "tests/gpu/litmus.h"

#define HOLD_NS 500000000ull /* a call that has not returned by then counts as waiting */
/* a thread that has enqueued nothing for this time counts as blocked */
#define STILL_NS 200000000ull
#define ENTRIES	 4096
#define LATE	 0x1a7e000000000000ull

__global__ void small(uint64_t *up)
{
	dev_put(up, 1);
}
__global__ void lazy(uint64_t *up)
{
	dev_put(up, 2);
}
/* Reports the value at the address that it is given, once for each turn. */
__global__ void reader(uint64_t *turn, uint64_t *at, uint64_t *answer, int turns)
{
	for (int i = 1; i <= turns && dev_until(turn, i); i++) {
		uint64_t *p = (uint64_t *)dev_get(at);

		answer[1] = p ? *p : 0;
		dev_put(answer, i);
	}
}
__global__ void hog(uint64_t *up, uint64_t *leave)
{
	if (threadIdx.x == 0) {
		dev_put(up, 1);
		dev_until(leave, 1);
	}
}

static struct word *w;
static cudaStream_t user, relaunch;

/* Makes the stream `user` wait until let_go(). */
static void blocked(void)
{
	for (int i = 0; i < 8; i++)
		put(&w[i], 0);
	stream_wait64()((CUstream)user, (CUdeviceptr)&w[1].v, 1, CU_STREAM_WAIT_VALUE_GEQ);
	usleep(2000);
}

/*
 * Returns whether a launch on another stream starts. The launch may block, so it has a thread of
 * its own.
 */
static int relaunches(std::thread &launcher)
{
	launcher = std::thread([] { small<<<1, 1, 0, relaunch>>>(&w[2].v); });
	return until(&w[2], 1, HOLD_NS / 2);
}

static void fill(void)
{
	std::atomic<int> entries{0};
	value64_fn write64 = stream_write64();
	std::thread launcher;
	int seen = -1, ok;
	uint64_t t;

	blocked();
	std::thread filler([&] {
		for (; entries < ENTRIES; entries++)
			write64((CUstream)user, (CUdeviceptr)&w[3].v, 1, 0);
	});
	for (t = now_ns(); entries < ENTRIES && now_ns() - t < STILL_NS; usleep(1000))
		if (entries != seen) {
			seen = entries;
			t = now_ns();
		}
	seen = entries;
	ok = relaunches(launcher);
	put(&w[1], 1);
	filler.join();
	launcher.join();
	MUST(cudaDeviceSynchronize());
	result("\"test\":\"fill\",\"entries\":%d,\"blocks\":%s,\"relaunch\":%s", seen,
	       seen < ENTRIES ? "true" : "false", ok ? "true" : "false");
}

static void load(const char *how, std::function<void()> act)
{
	std::atomic<int> done{0};
	std::thread launcher;
	int ok, waits;
	uint64_t t;

	blocked();
	t = now_ns();
	std::thread caller([&] {
		act();
		done = 1;
	});
	usleep(2000);
	ok = relaunches(launcher);
	while (!done && now_ns() - t < HOLD_NS)
		usleep(100);
	waits = !done;
	put(&w[1], 1);
	caller.join();
	launcher.join();
	MUST(cudaDeviceSynchronize());
	result("\"test\":\"load\",\"how\":\"%s\",\"waits\":%s,\"relaunch\":%s", how,
	       waits ? "true" : "false", ok ? "true" : "false");
}

/*
 * Allocates memory by reserving addresses and mapping pages later. Returns nullptr if this driver
 * cannot.
 */
static uint64_t *mapped(void)
{
	auto granularity = driver<CUresult (*)(size_t *, const CUmemAllocationProp *,
					       CUmemAllocationGranularity_flags)>(
		"cuMemGetAllocationGranularity", 10020);
	auto create = driver<CUresult (*)(CUmemGenericAllocationHandle *, size_t,
					  const CUmemAllocationProp *, unsigned long long)>(
		"cuMemCreate", 10020);
	auto reserve = driver<CUresult (*)(CUdeviceptr *, size_t, size_t, CUdeviceptr,
					   unsigned long long)>("cuMemAddressReserve", 10020);
	auto map = driver<CUresult (*)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle,
				       unsigned long long)>("cuMemMap", 10020);
	auto access = driver<CUresult (*)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t)>(
		"cuMemSetAccess", 10020);
	CUmemAllocationProp prop = {};
	CUmemAccessDesc desc = {};
	CUmemGenericAllocationHandle h;
	CUdeviceptr at = 0;
	size_t bytes = 0;

	prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
	prop.location.type = desc.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	desc.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	if (!granularity || !create || !reserve || !map || !access ||
	    granularity(&bytes, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM) != CUDA_SUCCESS ||
	    !bytes || create(&h, bytes, &prop, 0) != CUDA_SUCCESS ||
	    reserve(&at, bytes, 0, 0, 0) != CUDA_SUCCESS ||
	    map(at, bytes, 0, h, 0) != CUDA_SUCCESS || access(at, bytes, &desc, 1) != CUDA_SUCCESS)
		return nullptr;
	return (uint64_t *)at;
}

static void late(void)
{
	struct kind {
		const char *name;
		std::function<uint64_t *()> get;
	};
	std::vector<kind> kinds = {
		{"device",
		 [] {
			 void *p = nullptr;
			 cudaMalloc(&p, 4096);
			 return (uint64_t *)p;
		 }},
		{"pinned",
		 [] {
			 void *p = nullptr;
			 cudaHostAlloc(&p, 4096, cudaHostAllocPortable | cudaHostAllocMapped);
			 return (uint64_t *)p;
		 }},
		{"mapped", mapped},
	};
	cudaStream_t copies, stays;
	int n = 0;

	MUST(cudaStreamCreateWithFlags(&copies, cudaStreamNonBlocking));
	MUST(cudaStreamCreateWithPriority(&stays, cudaStreamNonBlocking, -5));
	for (auto &k : kinds) {
		std::atomic<int> done{0};
		uint64_t *p = nullptr, value = LATE + (uint64_t)++n, t;
		int waits, seen;

		for (int i = 0; i < 8; i++)
			put(&w[i], 0);
		reader<<<1, 1, 0, stays>>>(&w[3].v, &w[4].v, &w[5].v, 2);
		/* The first turn shows that the kernel runs. */
		put(&w[3], 1);
		if (!until(&w[5], 1, 2000000000ull)) {
			result("\"test\":\"late\",\"memory\":\"%s\",\"error\":\"the kernel does not start\"",
			       k.name);
			continue;
		}
		t = now_ns();
		std::thread caller([&] {
			p = k.get();
			if (p && (cudaMemcpyAsync(p, &value, sizeof(value), cudaMemcpyDefault,
						  copies) != cudaSuccess ||
				  cudaStreamSynchronize(copies) != cudaSuccess))
				p = nullptr;
			done = 1;
		});
		while (!done && now_ns() - t < HOLD_NS)
			usleep(100);
		waits = !done;
		if (!waits)
			put(&w[4], (uint64_t)p);
		put(&w[3], 2);
		caller.join();
		MUST(cudaDeviceSynchronize());
		seen = !waits && p && w[5].pad[0] == value;
		result("\"test\":\"late\",\"memory\":\"%s\",\"available\":%s,\"waits\":%s,\"seen\":%s",
		       k.name, p ? "true" : "false", waits ? "true" : "false",
		       seen ? "true" : "false");
	}
}

/*
 * Reports whether a kernel of another stream starts while kernels fill the device: on a stream of
 * high priority, or in a green context with multiprocessors of its own.
 */
static void split(const char *kind)
{
	cudaStream_t daemon = nullptr, full;
	cudaDeviceProp p;
	int ok;

	MUST(cudaGetDeviceProperties(&p, 0));
	if (!strcmp(kind, "green") ? !green_stream((CUstream *)&daemon)
				   : cudaStreamCreateWithPriority(&daemon, cudaStreamNonBlocking,
								  -5) != cudaSuccess) {
		result("\"test\":\"split\",\"daemon\":\"%s\",\"available\":false", kind);
		return;
	}
	for (int i = 0; i < 8; i++)
		put(&w[i], 0);
	MUST(cudaStreamCreateWithFlags(&full, cudaStreamNonBlocking));
	small<<<1, 1, 0, daemon>>>(&w[2].v);
	MUST(cudaStreamSynchronize(daemon));
	put(&w[2], 0);
	hog<<<p.multiProcessorCount * 4, 1024, 0, full>>>(&w[0].v, &w[1].v);
	until(&w[0], 1, HOLD_NS);
	usleep(20000);
	small<<<1, 1, 0, daemon>>>(&w[2].v);
	ok = until(&w[2], 1, HOLD_NS);
	put(&w[1], 1);
	MUST(cudaDeviceSynchronize());
	result("\"test\":\"split\",\"daemon\":\"%s\",\"available\":true,\"started\":%s", kind,
	       ok ? "true" : "false");
}

int main()
{
	static const char code[] =
		".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry one()\n{\nret;\n}\n";
	auto module_load = driver<CUresult (*)(CUmodule *, const void *)>("cuModuleLoadData", 2000);
	CUmodule module;

	litmus_start("block", 60);
	w = words(8);
	MUST(cudaStreamCreateWithFlags(&user, cudaStreamNonBlocking));
	MUST(cudaStreamCreateWithPriority(&relaunch, cudaStreamNonBlocking, -4));
	small<<<1, 1, 0, relaunch>>>(&w[2].v);
	hog<<<1, 1, 0, relaunch>>>(&w[2].v, &w[2].v);
	MUST(cudaDeviceSynchronize());
	fill();
	load("module", [&] { module_load(&module, code); });
	load("kernel", [&] { lazy<<<1, 1, 0, user>>>(&w[4].v); });
	late();
	split("priority");
	split("green");
	return 0;
}
