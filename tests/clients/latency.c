/*
 * Times of AllReduce: the median for each size, with a process or a thread for each rank; and the
 * time of the call itself. One line for each size: bytes, latency in us, bus bandwidth in GB/s,
 * call in us. With LATENCY_CPU each rank, a process, prints a line with the processor time of its
 * process for a call. With LATENCY_SEND rank 0 sends to rank 1 instead. LATENCY_MIN, LATENCY_MAX:
 * first and last size. LATENCY_DEPTH: number of calls between two waits for the stream (1).
 */
#include "client.h"

#include <getopt.h>
#include <sys/resource.h>

static size_t min_bytes = 8, max_bytes = 64 << 20;
static int rounds = 11, depth = 1, small, sends;

static double processor(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static int call(struct client_rank *me, cudaStream_t s, float *buf, size_t count)
{
	if (!sends)
		NCCL(ncclAllReduce(buf, buf, count, ncclFloat, ncclSum, me->comms[0], s));
	else if (!me->rank)
		NCCL(ncclSend(buf, count, ncclFloat, 1, me->comms[0], s));
	else if (me->rank == 1)
		NCCL(ncclRecv(buf, count, ncclFloat, 0, me->comms[0], s));
	return 0;
}

static int measure(struct client_rank *me, cudaStream_t s, float *buf, size_t bytes)
{
	int inner = bytes <= 65536 ? 200 : bytes <= (1 << 20) ? 20 : 4, r, i, n = me->nr_ranks;
	double times[101], calls[101], t0, t1, t2, cpu = 0;
	size_t count = bytes / sizeof(float);

	for (r = -1; r < rounds; r++) {
		if (!r)
			cpu = processor();
		t0 = client_now();
		for (i = 0; i < inner; i++) {
			if (call(me, s, buf, count))
				return -1;
			if ((i + 1) % depth == 0 || i + 1 == inner)
				CUDA(cudaStreamSynchronize(s));
		}
		t0 = client_now() - t0;
		/*
		 * The calls are timed separately, because reading the clock twice for each would
		 * add to the latency.
		 */
		for (i = 0, t1 = 0; i < inner; i++) {
			t2 = client_now();
			if (call(me, s, buf, count))
				return -1;
			t1 += client_now() - t2;
			CUDA(cudaStreamSynchronize(s));
		}
		if (r >= 0) {
			times[r] = t0 / inner;
			calls[r] = t1 / inner;
		}
		client_tick();
	}
	if (getenv("LATENCY_CPU"))
		printf("cpu: %zu bytes %.3f us\n", bytes,
		       (processor() - cpu) * 1e6 / (2.0 * inner * rounds));
	qsort(times, (size_t)rounds, sizeof(*times), client_by_value);
	qsort(calls, (size_t)rounds, sizeof(*calls), client_by_value);
	if (!me->rank) {
		printf("latency: %zu bytes %.3f us %.4f GB/s call %.3f us\n", bytes,
		       times[rounds / 2] * 1e6,
		       (double)bytes / times[rounds / 2] * 1e-9 * (sends ? 1.0 : 2.0 * (n - 1) / n),
		       calls[rounds / 2] * 1e6);
		fflush(stdout);
	}
	return 0;
}

/*
 * Returns the next size: 1 MiB and more after the first; with LATENCY_SMALL also those in between.
 */
static size_t next_size(size_t bytes)
{
	if (bytes >= 1 << 20)
		return bytes * 4;
	return small && bytes < 65536 ? bytes * 8 : 1 << 20;
}

static int run(struct client_rank *me)
{
	cudaStream_t s;
	size_t bytes;
	float *buf;

	CUDA(cudaSetDevice(me->device));
	CUDA(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
	CUDA(cudaMalloc((void **)&buf, max_bytes));
	CUDA(client_clear(buf, 0, max_bytes));
	NCCL(ncclCommInitRank(&me->comms[0], me->nr_ranks, client_ids[0], me->rank));
	for (bytes = min_bytes; bytes <= max_bytes; bytes = next_size(bytes))
		if (measure(me, s, buf, bytes))
			return -1;
	if (getenv("LATENCY_AGAIN")) {
		/* Measures on a communicator that is created after the paths have been measured. */
		ncclComm_t again;

		NCCL(ncclCommSplit(me->comms[0], 0, me->rank, &again, NULL));
		NCCL(ncclCommDestroy(me->comms[0]));
		me->comms[0] = again;
		if (measure(me, s, buf, min_bytes))
			return -1;
	}
	NCCL(ncclCommDestroy(me->comms[0]));
	me->comms[0] = NULL;
	CUDA(cudaFree(buf));
	CUDA(cudaStreamDestroy(s));
	return 0;
}

int main(int argc, char **argv)
{
	if (getenv("LATENCY_MIN"))
		min_bytes = strtoull(getenv("LATENCY_MIN"), NULL, 0);
	if (getenv("LATENCY_MAX"))
		max_bytes = strtoull(getenv("LATENCY_MAX"), NULL, 0);
	small = getenv("LATENCY_SMALL") != NULL;
	sends = getenv("LATENCY_SEND") != NULL;
	if (getenv("LATENCY_ROUNDS"))
		rounds = atoi(getenv("LATENCY_ROUNDS"));
	if (getenv("LATENCY_DEPTH"))
		depth = atoi(getenv("LATENCY_DEPTH"));
	if (rounds < 1 || depth < 1 || rounds > 101 || max_bytes < min_bytes)
		return EXIT_USAGE;
	return client_main(argc, argv, 2, 1,
			   "Times AllReduce: 8 bytes (to 64 KiB with LATENCY_SMALL), then 1 MiB to "
			   "LATENCY_MAX (64 MiB).",
			   run);
}
