/*
 * A plain CUDA and NCCL program that measures its own kernels: one bound by arithmetic, one by
 * memory; medians. With BESIDE_NCCL=idle it first creates a communicator, uses it once and keeps
 * it, so that under the preload an idle dfshim runs beside the kernels. With BESIDE_NCCL=busy two
 * ranks on the same GPU, which NCCL itself refuses, make small AllReduces meanwhile. Prints
 * "beside: NAME MICROSECONDS".
 *
 * beside [BYTES [ROUNDS [TIMES]]]: size of the memory, length of the arithmetic, number of runs of
 * each.
 */
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>
#include <cuda_runtime.h>
#include <nccl.h>

#define MUST(call)                                                                                 \
	do {                                                                                       \
		int e_ = (int)(call);                                                              \
		if (e_) {                                                                          \
			fprintf(stderr, "%s:%d %s: error %d\n", __FILE__, __LINE__, #call, e_);    \
			exit(3);                                                                   \
		}                                                                                  \
	} while (0)

__global__ void arithmetic(float *out, int rounds)
{
	float x = threadIdx.x, y = 1.0001f;

	for (int i = 0; i < rounds; i++)
		x = x * y + 0.5f;
	out[blockIdx.x * blockDim.x + threadIdx.x] = x;
}

__global__ void copy(float4 *to, const float4 *from, size_t n)
{
	for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
	     i += (size_t)gridDim.x * blockDim.x)
		to[i] = from[i];
}

static std::atomic<int> stop;
static std::atomic<long> reduced;

/* A rank that makes small AllReduces only. The AllReduced word is 0 when a rank wants to stop. */
static void busy(ncclUniqueId id, int rank)
{
	int on = 1, *word;
	ncclComm_t comm;
	cudaStream_t s;

	MUST(cudaSetDevice(0));
	MUST(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
	MUST(cudaMallocHost(&word, sizeof(*word)));
	MUST(ncclCommInitRank(&comm, 2, id, rank));
	while (on) {
		*word = !stop;
		MUST(ncclAllReduce(word, word, 1, ncclInt, ncclMin, comm, s));
		MUST(cudaStreamSynchronize(s));
		on = *word;
		reduced++;
	}
	MUST(ncclCommDestroy(comm));
}

int main(int argc, char **argv)
{
	size_t bytes = argc > 1 ? strtoull(argv[1], NULL, 0) : 1ull << 30;
	int rounds = argc > 2 ? atoi(argv[2]) : 200000, runs = argc > 3 ? atoi(argv[3]) : 40;
	cudaEvent_t from, to;
	std::thread ranks[2];
	const char *nccl = getenv("BESIDE_NCCL");
	int is_busy = nccl && !strcmp(nccl, "busy");
	cudaStream_t s;
	float *a, *b;
	int sms;

	MUST(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
	MUST(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
	MUST(cudaMalloc(&a, bytes));
	MUST(cudaMalloc(&b, bytes));
	MUST(cudaMemset(a, 1, bytes));
	MUST(cudaEventCreate(&from));
	MUST(cudaEventCreate(&to));
	if (is_busy) {
		ncclUniqueId id;

		MUST(ncclGetUniqueId(&id));
		for (int i = 0; i < 2; i++)
			ranks[i] = std::thread(busy, id, i);
		while (reduced < 100)
			std::this_thread::yield();
	} else if (nccl) {
		ncclUniqueId id;
		ncclComm_t comm;

		MUST(ncclGetUniqueId(&id));
		MUST(ncclCommInitRank(&comm, 1, id, 0));
		MUST(ncclAllReduce(a, b, 1024, ncclFloat, ncclSum, comm, s));
		MUST(cudaStreamSynchronize(s));
	}
	for (int which = 0; which < 2; which++) {
		std::vector<float> times;

		for (int i = 0; i < runs + 3; i++) {
			float ms;

			MUST(cudaEventRecord(from, s));
			if (which)
				copy<<<sms * 8, 256, 0, s>>>((float4 *)b, (const float4 *)a,
							     bytes / 16);
			else
				arithmetic<<<sms * 8, 256, 0, s>>>(b, rounds);
			MUST(cudaEventRecord(to, s));
			MUST(cudaStreamSynchronize(s));
			MUST(cudaEventElapsedTime(&ms, from, to));
			if (i >= 3)
				times.push_back(ms);
		}
		std::sort(times.begin(), times.end());
		printf("beside: %s %.2f\n", which ? "memory" : "arithmetic",
		       times[times.size() / 2] * 1000);
	}
	stop = 1;
	for (int i = 0; is_busy && i < 2; i++)
		ranks[i].join();
	return 0;
}
