/*
 * Shared by the litmus programs. Without a GPU they exit with 77. All spins are bounded, on the CPU
 * and on the GPU. Results are JSON lines in $RESULTS/litmus.jsonl and on stdout. A program states
 * facts about the machine. It fails only if something does not hold that the design needs and has
 * no alternative for.
 */
#ifndef DF_TESTS_GPU_LITMUS_H
#define DF_TESTS_GPU_LITMUS_H

#include <algorithm>
#include <atomic>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <cuda.h>
#include <cuda/atomic>
#include <cuda_runtime.h>
#include <functional>
#include <pthread.h>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#define LIMIT_NS 5000000000ull /* longest spin of a kernel */

static inline uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static inline void must_(cudaError_t e, const char *what, int line)
{
	if (e == cudaSuccess)
		return;
	printf("line %d: %s: %s\n", line, what, cudaGetErrorName(e));
	exit(1);
}
#define MUST(call) must_(call, #call, __LINE__)

/* Returns a driver function by name and version, found as dfshim's backend does, or nullptr. */
template <typename F> static inline F driver(const char *name, unsigned version)
{
	cudaDriverEntryPointQueryResult found;
	void *fn = nullptr;

	if (cudaGetDriverEntryPointByVersion(name, &fn, version, cudaEnableDefault, &found) !=
	    cudaSuccess)
		return nullptr;
	return (F)fn;
}
typedef CUresult (*value64_fn)(CUstream, CUdeviceptr, cuuint64_t, unsigned int);

static inline value64_fn stream_wait64(void)
{
	return driver<value64_fn>("cuStreamWaitValue64", 11070);
}
static inline value64_fn stream_write64(void)
{
	return driver<value64_fn>("cuStreamWriteValue64", 11070);
}
typedef CUresult (*batch_fn)(CUstream, unsigned int, CUstreamBatchMemOpParams *, unsigned int);
static inline batch_fn stream_batch(void)
{
	return driver<batch_fn>("cuStreamBatchMemOp", 11070);
}

/*
 * Creates a stream of a green context that has at least eight multiprocessors of its own. Returns 0
 * if this driver cannot.
 */
static inline int green_stream(CUstream *out)
{
	auto get = driver<CUresult (*)(CUdevice, CUdevResource *, CUdevResourceType)>(
		"cuDeviceGetDevResource", 12040);
	auto split = driver<CUresult (*)(CUdevResource *, unsigned int *, const CUdevResource *,
					 CUdevResource *, unsigned int, unsigned int)>(
		"cuDevSmResourceSplitByCount", 12040);
	auto desc = driver<CUresult (*)(CUdevResourceDesc *, CUdevResource *, unsigned int)>(
		"cuDevResourceGenerateDesc", 12040);
	auto create = driver<CUresult (*)(CUgreenCtx *, CUdevResourceDesc, CUdevice, unsigned int)>(
		"cuGreenCtxCreate", 12040);
	auto stream = driver<CUresult (*)(CUstream *, CUgreenCtx, unsigned int, int)>(
		"cuGreenCtxStreamCreate", 12050);
	CUdevResource all, part, rest;
	CUdevResourceDesc d;
	CUgreenCtx ctx;
	unsigned int nr = 1;

	if (!get || !split || !desc || !create || !stream)
		return 0;
	return get(0, &all, CU_DEV_RESOURCE_TYPE_SM) == CUDA_SUCCESS &&
	       split(&part, &nr, &all, &rest, 0, 8) == CUDA_SUCCESS &&
	       desc(&d, &part, 1) == CUDA_SUCCESS &&
	       create(&ctx, d, 0, CU_GREEN_CTX_DEFAULT_STREAM) == CUDA_SUCCESS &&
	       stream(out, ctx, CU_STREAM_NON_BLOCKING, 0) == CUDA_SUCCESS;
}

static inline void result(const char *format, ...);

/*
 * Exits with 77 without a GPU. Reports the machine. Ends the process after this number of seconds
 * in any case.
 */
static inline void litmus_start(const char *name, unsigned seconds)
{
	int nr = 0, driver = 0, runtime = 0;
	cudaDeviceProp p;

	if (cudaGetDeviceCount(&nr) != cudaSuccess || nr < 1) {
		printf("skipped: no GPU\n");
		exit(77);
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	alarm(seconds);
	MUST(cudaSetDevice(0));
	MUST(cudaFree(0));
	MUST(cudaGetDeviceProperties(&p, 0));
	MUST(cudaDriverGetVersion(&driver));
	MUST(cudaRuntimeGetVersion(&runtime));
	result("\"test\":\"machine\",\"program\":\"%s\",\"gpu\":\"%s\",\"capability\":\"%d.%d\","
	       "\"multiprocessors\":%d,\"driver\":%d,\"runtime\":%d,\"seconds\":%u",
	       name, p.name, p.major, p.minor, p.multiProcessorCount, driver, runtime, seconds);
}

static inline void result(const char *format, ...)
{
	const char *dir = getenv("RESULTS");
	char line[1024];
	va_list ap;
	FILE *f;

	va_start(ap, format);
	vsnprintf(line, sizeof(line), format, ap);
	va_end(ap);
	printf("{%s}\n", line);
	if (!dir)
		return;
	f = fopen((std::string(dir) + "/litmus.jsonl").c_str(), "a");
	if (!f)
		return;
	fprintf(f, "{%s}\n", line);
	fclose(f);
}

/* A pinned word that CPU and GPU see, alone on its cache line. */
struct word {
	uint64_t v;
	uint64_t pad[15];
};

static inline struct word *words(size_t nr)
{
	void *p;

	MUST(cudaHostAlloc(&p, nr * sizeof(struct word),
			   cudaHostAllocPortable | cudaHostAllocMapped));
	memset(p, 0, nr * sizeof(struct word));
	return (struct word *)p;
}
static inline uint64_t get(const struct word *w)
{
	return __atomic_load_n(&w->v, __ATOMIC_ACQUIRE);
}
static inline void put(struct word *w, uint64_t v)
{
	__atomic_store_n(&w->v, v, __ATOMIC_RELEASE);
}

/* Waits until the word is at least v. Returns whether that happened in time. */
static inline int until(const struct word *w, uint64_t v, uint64_t limit_ns)
{
	uint64_t end = now_ns() + limit_ns;

	while (get(w) < v)
		if (now_ns() > end)
			return 0;
	return 1;
}

static __device__ inline uint64_t dev_now(void)
{
	uint64_t t;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
	return t;
}
static __device__ inline uint64_t dev_get(uint64_t *p)
{
	return cuda::atomic_ref<uint64_t, cuda::thread_scope_system>(*p).load(
		cuda::memory_order_acquire);
}
static __device__ inline void dev_put(uint64_t *p, uint64_t v)
{
	cuda::atomic_ref<uint64_t, cuda::thread_scope_system>(*p).store(v,
									cuda::memory_order_release);
}
static __device__ inline int dev_until(uint64_t *p, uint64_t v)
{
	uint64_t end = dev_now() + LIMIT_NS;

	while (dev_get(p) < v)
		if (dev_now() > end)
			return 0;
	return 1;
}

/*
 * Runs the program again with each number of connections as its argument. The number is fixed when
 * a context is created, so each run is a process of its own, and this process creates no context.
 * Returns the exit status for main().
 */
static inline int each_connections(const char *test, const char *program,
				   const char *const *connections, int nr)
{
	int i, rc, bad = 0;
	char cmd[512];

	for (i = 0; i < nr; i++) {
		snprintf(cmd, sizeof(cmd), "CUDA_DEVICE_MAX_CONNECTIONS=%s timeout -k 2 45 '%s' %s",
			 connections[i], program, connections[i]);
		rc = system(cmd);
		if (rc == 77 << 8)
			return 77;
		if (rc)
			result("\"test\":\"%s\",\"connections\":%s,\"status\":%d", test,
			       connections[i], rc);
		bad |= rc != 0;
	}
	return bad;
}

static inline double median(std::vector<double> v)
{
	std::sort(v.begin(), v.end());
	return v.empty() ? -1 : v[v.size() / 2];
}

#endif
