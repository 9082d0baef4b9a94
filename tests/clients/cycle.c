/*
 * Uses many collectives again and again: AllReduces with different counts, and rings of messages,
 * each with its own shape. So the library's state for each of them is needed, idle, and needed
 * again. Checks every value. Has the common options of clients. CYCLE_COLLS: number of counts (40).
 * CYCLE_ROUNDS: number of rounds (4), every other one in reverse order.
 */
#include "client.h"

static int nr_colls = 40, nr_rounds = 4;

static size_t count_of(int i)
{
	return 1000 + (size_t)i * 977;
}

static int one(struct client_rank *me, cudaStream_t s, int32_t *in, int32_t *out, int32_t *host,
	       int i, int round)
{
	size_t n = count_of(i), at;
	int p2p = i % 4 == 3, nr = me->nr_ranks, r, want = 0;
	int from = (me->rank + nr - 1) % nr, to = (me->rank + 1) % nr;

	for (at = 0; at < n; at++)
		host[at] = (int32_t)at + 1000 * me->rank + i + round;
	CUDA(cudaMemcpyAsync(in, host, n * sizeof(*in), cudaMemcpyHostToDevice, s));
	if (p2p) {
		NCCL(ncclGroupStart());
		NCCL(ncclSend(in, n, ncclInt32, to, me->comms[0], s));
		NCCL(ncclRecv(out, n, ncclInt32, from, me->comms[0], s));
		NCCL(ncclGroupEnd());
	} else {
		NCCL(ncclAllReduce(in, out, n, ncclInt32, ncclSum, me->comms[0], s));
	}
	CUDA(cudaMemcpyAsync(host, out, n * sizeof(*in), cudaMemcpyDeviceToHost, s));
	CUDA(cudaStreamSynchronize(s));
	for (at = 0; at < n; at++) {
		if (p2p) {
			want = (int32_t)at + 1000 * from + i + round;
		} else {
			for (want = 0, r = 0; r < nr; r++)
				want += (int32_t)at + 1000 * r + i + round;
		}
		if (host[at] == want)
			continue;
		client_fail(EXIT_WRONG, "rank %d, round %d, %s of %zu: element %zu is %d, not %d",
			    me->rank, round, p2p ? "message" : "sum", n, at, host[at], want);
		return -1;
	}
	client_tick();
	return 0;
}

static int run(struct client_rank *me)
{
	size_t max = count_of(nr_colls);
	int32_t *in, *out, *host = malloc(max * sizeof(*host));
	cudaStream_t s;
	int i, round;

	CUDA(cudaSetDevice(me->device));
	CUDA(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
	CUDA(cudaMalloc((void **)&in, max * sizeof(*in)));
	CUDA(cudaMalloc((void **)&out, max * sizeof(*out)));
	NCCL(ncclCommInitRank(&me->comms[0], me->nr_ranks, client_ids[0], me->rank));
	for (round = 0; round < nr_rounds; round++)
		for (i = 0; i < nr_colls; i++)
			/* In reverse order the state that was recycled last is needed first. */
			if (one(me, s, in, out, host, round % 2 ? nr_colls - 1 - i : i, round))
				return -1;
	NCCL(ncclCommDestroy(me->comms[0]));
	me->comms[0] = NULL;
	CUDA(cudaFree(in));
	CUDA(cudaFree(out));
	CUDA(cudaStreamDestroy(s));
	free(host);
	return 0;
}

int main(int argc, char **argv)
{
	if (getenv("CYCLE_COLLS"))
		nr_colls = atoi(getenv("CYCLE_COLLS"));
	if (getenv("CYCLE_ROUNDS"))
		nr_rounds = atoi(getenv("CYCLE_ROUNDS"));
	if (nr_colls < 1 || nr_colls > 10000 || nr_rounds < 1)
		return EXIT_USAGE;
	return client_main(argc, argv, 2, 1,
			   "Uses many collectives again and again, and checks each.", run);
}
