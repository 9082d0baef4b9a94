/*
 * Words between the CPU, a stream and a resident kernel: does each arrive, and how long does it
 * take? In the last case the kernel's word is in GPU memory, and the stream writes it before a word
 * for the CPU. `early` counts how often the CPU saw its word before the kernel's was written.
 */
#include "tests/gpu/litmus.h"

#define ROUNDS 300

/* Answers every value of `in` in `out`. */
__global__ void echo(uint64_t *up, uint64_t *in, uint64_t *out, int rounds)
{
	dev_put(up, 1);
	for (int i = 1; i <= rounds; i++) {
		if (!dev_until(in, i))
			return;
		dev_put(out, i);
	}
}

/* Writes the word in GPU memory first, as the runtime does. */
static void write_both(batch_fn batch, cudaStream_t s, uint64_t *near, uint64_t *word, int i)
{
	CUstreamBatchMemOpParams op[2] = {};

	for (int k = 0; k < 2; k++) {
		op[k].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
		op[k].writeValue.address = (CUdeviceptr)(k ? word : near);
		op[k].writeValue.value64 = (cuuint64_t)i;
		op[k].writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
	}
	batch(s, 2, op, 0);
}

int main()
{
	litmus_start("words", 55);
	value64_fn wait64 = stream_wait64(), write64 = stream_write64();
	batch_fn batch = stream_batch();
	struct word *w = words(8);
	cudaStream_t user, daemon, third;
	uint64_t *near, *copy;
	int bad = 0;

	if (!wait64 || !write64 || !batch) {
		printf("the driver has no 64-bit stream memory operations\n");
		return 1;
	}
	MUST(cudaStreamCreateWithFlags(&user, cudaStreamNonBlocking));
	MUST(cudaStreamCreateWithPriority(&daemon, cudaStreamNonBlocking, -5));
	MUST(cudaStreamCreateWithFlags(&third, cudaStreamNonBlocking));
	MUST(cudaMalloc(&near, sizeof(*near)));
	MUST(cudaMemset(near, 0, sizeof(*near)));
	MUST(cudaHostAlloc(&copy, sizeof(*copy), cudaHostAllocDefault));
	MUST(cudaDeviceSynchronize());
	for (int how = 0; how < 4; how++) {
		static const char *names[] = {"host-kernel-host", "stream-kernel-host",
					      "host-kernel-stream-host",
					      "stream-kernel-host, near"};
		std::vector<double> ns;
		int i, early = 0;

		memset(w, 0, 8 * sizeof(*w));
		echo<<<1, 1, 0, daemon>>>(&w[0].v, how == 3 ? near : &w[1].v, &w[2].v, ROUNDS);
		MUST(cudaGetLastError());
		if (!until(&w[0], 1, 2000000000ull)) {
			result("\"test\":\"words\",\"hop\":\"%s\",\"kernel\":\"did not start\"",
			       names[how]);
			bad = 1;
			break;
		}
		for (i = 1; i <= ROUNDS; i++) {
			struct word *last = how == 2 ? &w[3] : &w[2];
			uint64_t t;

			if (how == 2) {
				wait64(user, (CUdeviceptr)&w[2].v, i, CU_STREAM_WAIT_VALUE_GEQ);
				write64(user, (CUdeviceptr)&w[3].v, i,
					CU_STREAM_WRITE_VALUE_DEFAULT);
			}
			t = now_ns();
			if (how == 1)
				write64(user, (CUdeviceptr)&w[1].v, i,
					CU_STREAM_WRITE_VALUE_DEFAULT);
			else if (how == 3)
				write_both(batch, user, near, &w[4].v, i);
			else
				put(&w[1], i);
			/*
			 * Every other round checks the order. These rounds take longer and are not
			 * timed.
			 */
			if (how == 3 && i % 2 && until(&w[4], i, 2000000000ull)) {
				MUST(cudaMemcpyAsync(copy, near, sizeof(*near), cudaMemcpyDefault,
						     third));
				MUST(cudaStreamSynchronize(third));
				early += *copy < (uint64_t)i;
			}
			if (!until(last, i, 2000000000ull))
				break;
			if (how != 3 || i % 2 == 0)
				ns.push_back((double)(now_ns() - t));
		}
		put(&w[1], ROUNDS);
		if (how == 3)
			write_both(batch, user, near, &w[4].v, ROUNDS);
		put(&w[2], ROUNDS);
		MUST(cudaDeviceSynchronize());
		bad |= i <= ROUNDS || early;
		result("\"test\":\"words\",\"hop\":\"%s\",\"rounds\":%d,\"early\":%d,\"median_ns\":%.0f",
		       names[how], i - 1, early, median(ns));
	}
	return bad;
}
