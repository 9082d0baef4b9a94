/*
 * Streams that wait for a word occupy a hardware queue. Does a kernel still start while k streams
 * wait? Tests a stream of the same priority, one of the highest priority, and one in a green
 * context; with 1, 8 and 32 connections.
 */
#include "tests/gpu/litmus.h"

#define HOLD_NS 500000000ull /* a kernel that has not started by then counts as blocked */

__global__ void started(uint64_t *up)
{
	dev_put(up, 1);
}

static void one(const char *connections, const char *kind, int waits)
{
	value64_fn wait64 = stream_wait64();
	struct word *w = words(2);
	std::vector<cudaStream_t> users(waits);
	cudaStream_t daemon = nullptr;
	int least, greatest, ok, blocked;
	cudaError_t error;
	uint64_t t;

	MUST(cudaDeviceGetStreamPriorityRange(&least, &greatest));
	if (!strcmp(kind, "green")) {
		if (!green_stream((CUstream *)&daemon)) {
			result("\"test\":\"queues\",\"connections\":%s,\"daemon\":\"green\",\"available\":false",
			       connections);
			return;
		}
	} else {
		MUST(cudaStreamCreateWithPriority(&daemon, cudaStreamNonBlocking,
						  !strcmp(kind, "priority") ? greatest : least));
	}
	/* The kernel is loaded before any stream waits. */
	started<<<1, 1, 0, daemon>>>(&w[0].v);
	error = cudaGetLastError();
	if (error == cudaSuccess)
		error = cudaStreamSynchronize(daemon);
	if (error != cudaSuccess) {
		result("\"test\":\"queues\",\"connections\":%s,\"daemon\":\"%s\",\"error\":\"%s\"",
		       connections, kind, cudaGetErrorName(error));
		return;
	}
	put(&w[0], 0);
	/*
	 * Creating streams, adding waits and launching may block, so another thread ends the waits
	 * then.
	 */
	t = now_ns();
	std::thread rescue([&] {
		until(&w[0], 1, 3 * HOLD_NS);
		put(&w[1], 1);
	});
	for (auto &s : users) {
		MUST(cudaStreamCreateWithPriority(&s, cudaStreamNonBlocking, least));
		wait64((CUstream)s, (CUdeviceptr)&w[1].v, 1, CU_STREAM_WAIT_VALUE_GEQ);
	}
	usleep(20000);
	blocked = now_ns() - t > 2 * HOLD_NS;
	t = now_ns();
	started<<<1, 1, 0, daemon>>>(&w[0].v);
	ok = !blocked && until(&w[0], 1, HOLD_NS) && now_ns() - t < HOLD_NS;
	t = now_ns() - t;
	rescue.join();
	MUST(cudaDeviceSynchronize());
	for (auto &s : users)
		MUST(cudaStreamDestroy(s));
	result("\"test\":\"queues\",\"connections\":%s,\"daemon\":\"%s\",\"waits\":%d,\"blocked\":%s,\"started\":%s,\"ns\":%llu",
	       connections, kind, waits, blocked ? "true" : "false", ok ? "true" : "false",
	       (unsigned long long)t);
}

int main(int argc, char **argv)
{
	static const char *connections[] = {"1", "8", "32"},
			  *kinds[] = {"same", "priority", "green"};
	static const int waits[] = {1, 7, 8, 40, 130};

	if (argc == 2) {
		litmus_start("queues", 40);
		for (auto k : kinds)
			for (auto n : waits)
				one(argv[1], k, n);
		return 0;
	}
	/* In the worst case each run takes 15 times three HOLD_NS. */
	return each_connections("queues", argv[0], connections, 3);
}
