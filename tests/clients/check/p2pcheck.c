/*
 * Point-to-point as NCCL programs use it: a ring, an all-to-all of different sizes by groups,
 * messages to the rank itself, zero bytes, several messages to one peer in order, and small
 * ungrouped sends that must not wait for their receives (send, then receive, on both sides).
 */
#include "../client.h"

#define MOST 65536 /* most elements of a message */

static int value(int from, int to, int nr, size_t i)
{
	return (int)(client_seed(client_seed_value, (uint64_t)from << 32 | (uint32_t)to,
				 (uint64_t)nr) +
		     i * 7);
}

struct ends {
	int *send, *recv; /* on the device: nr_ranks messages of MOST elements */
	int *host;
	cudaStream_t stream;
	ncclComm_t comm;
};

static int fill(struct client_rank *me, struct ends *e, int to, int nr, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++)
		e->host[i] = value(me->rank, to, nr, i);
	CUDA(client_upload(e->send + (size_t)to * MOST, e->host, n * sizeof(int)));
	memset(e->host, 0xee, MOST * sizeof(int));
	CUDA(client_upload(e->recv + (size_t)to * MOST, e->host, MOST * sizeof(int)));
	return 0;
}

/*
 * Checks a message of rank `from`, at element `at` of its area. With `last`, also checks the
 * element after the message.
 */
static int check(struct client_rank *me, struct ends *e, int from, int nr, size_t at, size_t n,
		 int last)
{
	size_t i;

	CUDA(cudaMemcpy(e->host, e->recv + (size_t)from * MOST, MOST * sizeof(int),
			cudaMemcpyDeviceToHost));
	for (i = 0; i < n; i++)
		EXPECT(e->host[at + i] == value(from, me->rank, nr, i),
		       "rank %d from %d, message %d, element %zu: %#x, not %#x", me->rank, from, nr,
		       i, (unsigned)e->host[at + i], (unsigned)value(from, me->rank, nr, i));
	if (last && at + n < MOST)
		EXPECT(e->host[at + n] == (int)0xeeeeeeee,
		       "rank %d from %d: written behind the message", me->rank, from);
	return 0;
}

static int ring(struct client_rank *me, struct ends *e, size_t n)
{
	int next = (me->rank + 1) % me->nr_ranks,
	    prev = (me->rank + me->nr_ranks - 1) % me->nr_ranks;

	if (fill(me, e, next, 1, n) || (prev != next && fill(me, e, prev, 1, 0)))
		return -1;
	NCCL(ncclGroupStart());
	NCCL(ncclSend(e->send + (size_t)next * MOST, n, ncclInt32, next, e->comm, e->stream));
	NCCL(ncclRecv(e->recv + (size_t)prev * MOST, n, ncclInt32, prev, e->comm, e->stream));
	NCCL(ncclGroupEnd());
	if (client_wait(e->stream, &e->comm, 1))
		return -1;
	return check(me, e, prev, 1, 0, n, 1);
}

/* Each pair of ranks, also a rank with itself, has a size of its own. Some are zero. */
static size_t pair_count(int from, int to, int round)
{
	uint64_t s = client_seed(client_seed_value + 99, (uint64_t)from << 32 | (uint32_t)to,
				 (uint64_t)round);

	return s % 5 ? s / 8 % (s % 3 ? 300 : MOST) : 0;
}

static int all_to_all(struct client_rank *me, struct ends *e, int round)
{
	int p, k, *order = malloc((size_t)me->nr_ranks * sizeof(int));
	uint64_t state = client_seed(client_seed_value, (uint64_t)me->rank, (uint64_t)round);

	for (p = 0; p < me->nr_ranks; p++) {
		order[p] = p;
		if (fill(me, e, p, round, pair_count(me->rank, p, round)))
			return -1;
	}
	NCCL(ncclGroupStart());
	client_shuffle(order, me->nr_ranks, &state);
	for (k = 0; k < me->nr_ranks; k++) {
		p = order[k];
		NCCL(ncclRecv(e->recv + (size_t)p * MOST, pair_count(p, me->rank, round), ncclInt32,
			      p, e->comm, e->stream));
	}
	client_shuffle(order, me->nr_ranks, &state);
	for (k = 0; k < me->nr_ranks; k++) {
		p = order[k];
		NCCL(ncclSend(e->send + (size_t)p * MOST, pair_count(me->rank, p, round), ncclInt32,
			      p, e->comm, e->stream));
	}
	NCCL(ncclGroupEnd());
	free(order);
	if (client_wait(e->stream, &e->comm, 1))
		return -1;
	for (p = 0; p < me->nr_ranks; p++)
		if (check(me, e, p, round, 0, pair_count(p, me->rank, round), 1))
			return -1;
	return 0;
}

/* Three messages of different sizes to one peer arrive in the order of the calls. */
static int in_order(struct client_rank *me, struct ends *e, int grouped)
{
	static const size_t sizes[3] = {5, 2000, 31};
	int next = (me->rank + 1) % me->nr_ranks,
	    prev = (me->rank + me->nr_ranks - 1) % me->nr_ranks, k;
	size_t at = 0, i;

	if (fill(me, e, next, 0, 0) || fill(me, e, prev, 0, 0))
		return -1;
	for (k = 0; k < 3; k++) {
		for (i = 0; i < sizes[k]; i++)
			e->host[at + i] = value(me->rank, next, 10 * (2 - grouped) + k, i);
		at += sizes[k];
	}
	CUDA(client_upload(e->send + (size_t)next * MOST, e->host, at * sizeof(int)));
	if (grouped)
		NCCL(ncclGroupStart());
	for (k = 0, at = 0; k < 3; at += sizes[k++])
		NCCL(ncclSend(e->send + (size_t)next * MOST + at, sizes[k], ncclInt32, next,
			      e->comm, e->stream));
	for (k = 0, at = 0; k < 3; at += sizes[k++])
		NCCL(ncclRecv(e->recv + (size_t)prev * MOST + at, sizes[k], ncclInt32, prev,
			      e->comm, e->stream));
	if (grouped)
		NCCL(ncclGroupEnd());
	if (client_wait(e->stream, &e->comm, 1))
		return -1;
	for (k = 0, at = 0; k < 3; at += sizes[k++])
		if (check(me, e, prev, 10 * (2 - grouped) + k, at, sizes[k], k == 2))
			return -1;
	return 0;
}

static int run(struct client_rank *me)
{
	struct ends e = {0};
	size_t bytes = (size_t)me->nr_ranks * MOST * sizeof(int);
	int round;

	CUDA(cudaSetDevice(me->device));
	CUDA(cudaStreamCreateWithFlags(&e.stream, cudaStreamNonBlocking));
	CUDA(cudaMalloc((void **)&e.send, bytes));
	CUDA(cudaMalloc((void **)&e.recv, bytes));
	e.host = malloc(MOST * sizeof(int));
	NCCL(ncclCommInitRank(&me->comms[0], me->nr_ranks, client_ids[0], me->rank));
	e.comm = me->comms[0];
	if (ring(me, &e, 1000) || ring(me, &e, 0) || ring(me, &e, 1) || ring(me, &e, MOST))
		return -1;
	for (round = 0; round < 10; round++)
		if (all_to_all(me, &e, 30 + round))
			return -1;
	if (in_order(me, &e, 1) || (me->nr_ranks > 1 && in_order(me, &e, 0)))
		return -1;
	NCCL(ncclCommDestroy(me->comms[0]));
	me->comms[0] = NULL;
	CUDA(cudaFree(e.send));
	CUDA(cudaFree(e.recv));
	CUDA(cudaStreamDestroy(e.stream));
	free(e.host);
	return 0;
}

int main(int argc, char **argv)
{
	return client_main(argc, argv, 4, 1,
			   "Checks ncclSend and ncclRecv: rings, all-to-all, order, buffering.",
			   run);
}
