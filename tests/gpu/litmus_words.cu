/* Words between the host, a stream and a resident kernel: does each hop arrive, and how long does it take? */
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

int main()
{
	litmus_start("words", 55);
	value64_fn wait64 = stream_wait64(), write64 = stream_write64();
	struct word *w = words(8);
	cudaStream_t user, daemon;
	int bad = 0;

	if (!wait64 || !write64) {
		printf("the driver has no 64-bit stream memory operations\n");
		return 1;
	}
	MUST(cudaStreamCreateWithFlags(&user, cudaStreamNonBlocking));
	MUST(cudaStreamCreateWithPriority(&daemon, cudaStreamNonBlocking, -5));
	for (int how = 0; how < 3; how++) {
		static const char *names[] = {"host-kernel-host", "stream-kernel-host",
					      "host-kernel-stream-host"};
		std::vector<double> ns;
		int i;

		memset(w, 0, 8 * sizeof(*w));
		echo<<<1, 1, 0, daemon>>>(&w[0].v, &w[1].v, &w[2].v, ROUNDS);
		MUST(cudaGetLastError());
		if (!until(&w[0], 1, 2000000000ull)) {
			result("\"test\":\"words\",\"hop\":\"%s\",\"kernel\":\"did not start\"", names[how]);
			bad = 1;
			break;
		}
		for (i = 1; i <= ROUNDS; i++) {
			struct word *last = how == 2 ? &w[3] : &w[2];
			uint64_t t;

			if (how == 2) {
				wait64(user, (CUdeviceptr)&w[2].v, i, CU_STREAM_WAIT_VALUE_GEQ);
				write64(user, (CUdeviceptr)&w[3].v, i, CU_STREAM_WRITE_VALUE_DEFAULT);
			}
			t = now_ns();
			if (how == 1)
				write64(user, (CUdeviceptr)&w[1].v, i, CU_STREAM_WRITE_VALUE_DEFAULT);
			else
				put(&w[1], i);
			if (!until(last, i, 2000000000ull))
				break;
			ns.push_back((double)(now_ns() - t));
		}
		put(&w[1], ROUNDS);
		put(&w[2], ROUNDS);
		MUST(cudaDeviceSynchronize());
		bad |= i <= ROUNDS;
		result("\"test\":\"words\",\"hop\":\"%s\",\"rounds\":%d,\"median_ns\":%.0f", names[how], i - 1,
		       median(ns));
	}
	return bad;
}
