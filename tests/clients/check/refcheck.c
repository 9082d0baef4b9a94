/*
 * When do buffers belong to the program again? Ranks are threads of one process, which may read
 * each other's buffers. In each round they create a communicator and execute operations that take
 * some time. As soon as an operation has ended on a rank, the rank overwrites its buffers. No other
 * rank may see these bytes, and no operation may overwrite them. In every other round one rank
 * aborts its communicator in the middle instead, overwrites its buffers and frees them, and the
 * others abort theirs some time later.
 */
#include "../client.h"

#define ROUNDS 40
#define MOST   (1 << 20) /* most elements of a rank's part */

enum { SEND_RECV, ALL_REDUCE, IN_PLACE, ALL_GATHER, BROADCAST, ALL_TO_ALL, NR_KINDS };

static ncclUniqueId id;
static int aborted; /* the last round in which a rank has aborted; atomic */

static int value(int round, int rank, size_t i)
{
	return round * 131 + rank * 1009 + (int)(i * 7 % 65521);
}

static int issue(struct client_rank *me, int kind, int *in, int *out, size_t n, cudaStream_t s)
{
	int r = me->rank, nr = me->nr_ranks, k;
	ncclComm_t c = me->comms[1];

	switch (kind) {
	case SEND_RECV:
		NCCL(ncclGroupStart());
		NCCL(ncclSend(in, n, ncclInt, (r + 1) % nr, c, s));
		NCCL(ncclRecv(out, n, ncclInt, (r + nr - 1) % nr, c, s));
		NCCL(ncclGroupEnd());
		break;
	case ALL_REDUCE:
		NCCL(ncclAllReduce(in, out, n, ncclInt, ncclSum, c, s));
		break;
	case IN_PLACE:
		NCCL(ncclAllReduce(in, in, n, ncclInt, ncclSum, c, s));
		break;
	case ALL_GATHER:
		NCCL(ncclAllGather(in, out, n, ncclInt, c, s));
		break;
	case BROADCAST:
		NCCL(ncclBroadcast(in, out, n, ncclInt, nr - 1, c, s));
		break;
	default:
		NCCL(ncclGroupStart());
		for (k = 0; k < nr; k++) {
			NCCL(ncclSend(in + (size_t)k * (n / (size_t)nr), n / (size_t)nr, ncclInt, k,
				      c, s));
			NCCL(ncclRecv(out + (size_t)k * (n / (size_t)nr), n / (size_t)nr, ncclInt,
				      k, c, s));
		}
		NCCL(ncclGroupEnd());
	}
	return 0;
}

/* Returns element i of the result. */
static int expected(const struct client_rank *me, int kind, int round, size_t n, size_t i)
{
	int nr = me->nr_ranks, sum = 0, k;
	size_t part = n / (size_t)nr;

	switch (kind) {
	case SEND_RECV:
		return value(round, (me->rank + nr - 1) % nr, i);
	case ALL_GATHER:
		return value(round, (int)(i / n), i % n);
	case BROADCAST:
		return value(round, nr - 1, i);
	case ALL_TO_ALL:
		return value(round, (int)(i / part), (size_t)me->rank * part + i % part);
	default:
		for (k = 0; k < nr; k++)
			sum += value(round, k, i);
		return sum;
	}
}

/* Aborts this rank's communicator: one rank first, the others after it. */
static int abort_in_the_middle(struct client_rank *me, int round, uint64_t *random)
{
	struct timespec pause = {0, 20000};
	ncclComm_t c = me->comms[1];

	if (me->rank != round / 2 % me->nr_ranks)
		while (__atomic_load_n(&aborted, __ATOMIC_RELAXED) != round && !client_failed())
			nanosleep(&pause, NULL);
	/*
	 * Within a process the operation takes a millisecond; between nodes, where connectors are
	 * new, several.
	 */
	pause.tv_nsec = (long)(client_random(random) % (round % 4 == 1 ? 1500000 : 15000000));
	nanosleep(&pause, NULL);
	me->comms[1] = NULL;
	NCCL(ncclCommAbort(c));
	/* RELAXED: only the library's own synchronisation must order accesses here. */
	if (me->rank == round / 2 % me->nr_ranks)
		__atomic_store_n(&aborted, round, __ATOMIC_RELAXED);
	return 0;
}

/* Checks that the bytes that the rank has written are unchanged some time later. */
static int is_left_alone(struct client_rank *me, int round, const int *buf, int *host, size_t n,
			 int byte)
{
	size_t i;

	CUDA(cudaMemcpy(host, buf, n * sizeof(int), cudaMemcpyDeviceToHost));
	for (i = 0; i < n; i++)
		EXPECT(host[i] == byte * 0x01010101,
		       "round %d, rank %d: element %zu of its buffer is %#x after the operation",
		       round, me->rank, i, (unsigned)host[i]);
	return 0;
}

static int one_round(struct client_rank *me, int round, uint64_t *random, uint64_t *same)
{
	int kind = (int)(client_random(same) % NR_KINDS), ends = round % 2, *in, *out, *host, *res;
	size_t n = 1 + client_random(same) % MOST, got, i;
	cudaStream_t s;

	got = kind == ALL_GATHER   ? n * (size_t)me->nr_ranks
	      : kind == ALL_TO_ALL ? n / (size_t)me->nr_ranks * (size_t)me->nr_ranks
				   : n;
	if (!me->rank)
		NCCL(ncclGetUniqueId(&id));
	if (client_barrier_wait(&client_ranks_barrier))
		return -1;
	NCCL(ncclCommInitRank(&me->comms[1], me->nr_ranks, id, me->rank));
	CUDA(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
	CUDA(cudaMalloc((void **)&in, n * sizeof(int)));
	CUDA(cudaMalloc((void **)&out, (got + 1) * sizeof(int)));
	host = malloc((n > got ? n : got) * sizeof(int));
	for (i = 0; i < n; i++)
		host[i] = value(round, me->rank, i);
	CUDA(client_upload(in, host, n * sizeof(int)));
	if (issue(me, kind, in, out, n, s))
		return -1;
	res = kind == IN_PLACE ? in : out;
	if (ends) {
		if (abort_in_the_middle(me, round, random))
			return -1;
	} else {
		if (client_wait(s, &me->comms[1], 1))
			return -1;
		CUDA(cudaMemcpy(host, res, got * sizeof(int), cudaMemcpyDeviceToHost));
	}
	CUDA(client_clear(in, 0x5a, n * sizeof(int)));
	CUDA(client_clear(out, 0x6b, got * sizeof(int)));
	for (i = 0; i < got && !ends; i++)
		EXPECT(host[i] == expected(me, kind, round, n, i),
		       "round %d, kind %d, %zu elements, rank %d, element %zu: %d, not %d", round,
		       kind, n, me->rank, i, host[i], expected(me, kind, round, n, i));
	nanosleep(&(struct timespec){0, 2000000}, NULL);
	if (is_left_alone(me, round, in, host, n, 0x5a) ||
	    is_left_alone(me, round, out, host, got, 0x6b))
		return -1;
	CUDA(cudaFree(in));
	CUDA(cudaFree(out));
	free(host);
	CUDA(cudaStreamDestroy(s));
	if (me->comms[1])
		NCCL(ncclCommDestroy(me->comms[1]));
	me->comms[1] = NULL;
	client_tick();
	return client_barrier_wait(&client_ranks_barrier);
}

static int run(struct client_rank *me)
{
	uint64_t random = client_seed(client_seed_value, 1, (uint64_t)me->rank),
		 same = client_seed(client_seed_value, 2, 0);
	int round;

	CUDA(cudaSetDevice(me->device));
	for (round = 0; round < ROUNDS; round++)
		if (one_round(me, round, &random, &same))
			return -1;
	return 0;
}

int main(int argc, char **argv)
{
	return client_main(
		argc, argv, 2, 2,
		"Ranks, all of one process, write to their buffers as soon as an operation has "
		"ended, or has been aborted.",
		run);
}
