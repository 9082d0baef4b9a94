/*
 * A resident kernel reads the same buffer again and again. After it has acquired a word, does it
 * see the data that a copy, a kernel or the CPU wrote before that word? Counts stale elements; a
 * single one is a failure.
 */
#include "tests/gpu/litmus.h"

#define ELEMS  4096
#define ROUNDS 400

__global__ void reader(uint64_t *up, uint64_t *ready, uint64_t *done, uint32_t *buf,
		       uint64_t *stale)
{
	__shared__ int ok;

	if (threadIdx.x == 0)
		dev_put(up, 1);
	for (uint32_t i = 1; i <= ROUNDS; i++) {
		if (threadIdx.x == 0)
			ok = dev_until(ready, i);
		__syncthreads();
		if (!ok)
			return;
		for (int k = threadIdx.x; k < ELEMS; k += blockDim.x)
			if (buf[k] != i)
				atomicAdd((unsigned long long *)stale, 1ull);
		__syncthreads();
		if (threadIdx.x == 0)
			dev_put(done, i);
	}
}

__global__ void writer(uint32_t *buf, uint32_t v)
{
	buf[blockIdx.x * blockDim.x + threadIdx.x] = v;
}

int main()
{
	value64_fn write64;
	int bad = 0;

	litmus_start("fresh", 55);
	write64 = stream_write64();
	for (int how = 0; how < 3; how++) {
		static const char *names[] = {"copy", "kernel", "host"};
		struct word *w = words(4);
		uint32_t *buf, *from;
		uint64_t *stale, nr = 0;
		cudaStream_t user, daemon;
		uint32_t i;

		MUST(cudaStreamCreateWithFlags(&user, cudaStreamNonBlocking));
		MUST(cudaStreamCreateWithPriority(&daemon, cudaStreamNonBlocking, -5));
		MUST(cudaHostAlloc(&from, ELEMS * 4, cudaHostAllocMapped));
		MUST(cudaMalloc(&stale, 8));
		MUST(cudaMemset(stale, 0, 8));
		if (how == 2)
			buf = from;
		else
			MUST(cudaMalloc(&buf, ELEMS * 4));
		writer<<<ELEMS / 256, 256, 0, user>>>(buf, 0);
		MUST(cudaDeviceSynchronize());
		reader<<<1, 256, 0, daemon>>>(&w[0].v, &w[1].v, &w[2].v, buf, stale);
		MUST(cudaGetLastError());
		for (i = 1; i <= ROUNDS; i++) {
			for (int k = 0; k < ELEMS && how != 1; k++)
				from[k] = i;
			if (how == 0)
				MUST(cudaMemcpyAsync(buf, from, ELEMS * 4, cudaMemcpyHostToDevice,
						     user));
			if (how == 1)
				writer<<<ELEMS / 256, 256, 0, user>>>(buf, i);
			if (how == 2)
				put(&w[1], i);
			else
				write64((CUstream)user, (CUdeviceptr)&w[1].v, i,
					CU_STREAM_WRITE_VALUE_DEFAULT);
			if (!until(&w[2], i, 3000000000ull))
				break;
		}
		put(&w[1], ROUNDS);
		MUST(cudaDeviceSynchronize());
		MUST(cudaMemcpy(&nr, stale, 8, cudaMemcpyDeviceToHost));
		bad |= nr != 0 || i <= ROUNDS;
		result("\"test\":\"fresh\",\"written_by\":\"%s\",\"rounds\":%u,\"stale\":%llu",
		       names[how], i - 1, (unsigned long long)nr);
	}
	return bad;
}
