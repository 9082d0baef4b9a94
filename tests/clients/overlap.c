/*
 * Two threads of each rank with a communicator and a stream each. One exchanges messages with its
 * neighbours, and even ranks send first; the other one reduces. OVERLAP_ITERS: number of rounds.
 * OVERLAP_FENCE=1: each thread's stream waits for the other's last event, and the exchanging thread
 * waits for its own stream. OVERLAP_SWAP=1: on odd ranks the exchanging thread starts first in each
 * round, on even ranks the reducing one. That is one of the orders in which two threads may run.
 */
#include "client.h"

#define COUNT  1024
#define PAIRS  4
#define WINDOW 16 /* number of rounds between two checks of the results */

static int iters = 10000, fence, swap;

struct thread {
	struct client_rank *me;
	struct thread *other;
	int sends, (*round)(struct thread *t, int i);
	cudaStream_t s;
	cudaEvent_t done; /* recorded at the end of the last round */
	int *buf, *in;
	pthread_mutex_t lock; /* protects the fields below */
	pthread_cond_t moved;
	int issued;
	int ret;
};

static int sum(struct thread *t, int i)
{
	(void)i;
	NCCL(ncclAllReduce(t->buf, t->in, COUNT, ncclInt, ncclSum, t->me->comms[0], t->s));
	return 0;
}

static int exchange(struct thread *t, int i)
{
	int peer = t->me->rank ^ 1, k, half;

	(void)i;
	for (k = 0; k < PAIRS; k++)
		for (half = 0; half < 2; half++)
			if (half == t->me->rank % 2)
				NCCL(ncclSend(t->buf, COUNT, ncclInt, peer, t->me->comms[1], t->s));
			else
				NCCL(ncclRecv(t->in, COUNT, ncclInt, peer, t->me->comms[1], t->s));
	return 0;
}

/* Waits until the other thread has issued this round. Returns -1 if the job has failed. */
static int after_other(struct thread *t, int i)
{
	struct thread *o = t->other;
	struct timespec until;

	pthread_mutex_lock(&o->lock);
	while (o->issued < i && !client_failed()) {
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_sec++;
		pthread_cond_timedwait(&o->moved, &o->lock, &until);
	}
	pthread_mutex_unlock(&o->lock);
	return client_failed() ? -1 : 0;
}

static int look(struct thread *t)
{
	int n = t->me->nr_ranks, got[2];

	if (client_wait(t->s, t->me->comms, 2))
		return -1;
	CUDA(cudaMemcpyAsync(&got[0], t->in, sizeof(int), cudaMemcpyDeviceToHost, t->s));
	CUDA(cudaMemcpyAsync(&got[1], t->in + COUNT - 1, sizeof(int), cudaMemcpyDeviceToHost,
			     t->s));
	CUDA(cudaStreamSynchronize(t->s));
	n = t->sends ? (t->me->rank ^ 1) + 1 : n * (n + 1) / 2;
	EXPECT(got[0] == n && got[1] == n, "%s: %d %d, not %d", t->sends ? "exchange" : "sum",
	       got[0], got[1], n);
	return 0;
}

static int rounds(struct thread *t)
{
	int first = swap && t->sends == t->me->rank % 2, i;

	CUDA(cudaSetDevice(t->me->device));
	for (i = 1; i <= iters; i++) {
		if (swap && after_other(t, first ? i - 1 : i))
			return -1;
		if (fence) {
			/* Waiting for an event that was never recorded does nothing. */
			CUDA(cudaStreamWaitEvent(t->s, t->other->done, 0));
		}
		if (t->round(t, i))
			return -1;
		CUDA(cudaEventRecord(t->done, t->s));
		pthread_mutex_lock(&t->lock);
		t->issued = i;
		pthread_cond_broadcast(&t->moved);
		pthread_mutex_unlock(&t->lock);
		if (fence && t->sends && client_wait(t->s, t->me->comms, 2))
			return -1;
		if ((i % WINDOW == 0 || i == iters) && look(t))
			return -1;
		client_tick();
	}
	return 0;
}

static void *thread_main(void *arg)
{
	struct thread *t = arg;

	t->ret = rounds(t);
	return NULL;
}

static int prepare(struct thread *t)
{
	int i, *mine = malloc(COUNT * sizeof(int));

	EXPECT(mine != NULL, "memory");
	for (i = 0; i < COUNT; i++)
		mine[i] = t->me->rank + 1;
	pthread_mutex_init(&t->lock, NULL);
	pthread_cond_init(&t->moved, NULL);
	CUDA(cudaStreamCreateWithFlags(&t->s, cudaStreamNonBlocking));
	CUDA(cudaEventCreateWithFlags(&t->done, cudaEventDisableTiming));
	CUDA(cudaMalloc((void **)&t->buf, COUNT * sizeof(int)));
	CUDA(cudaMalloc((void **)&t->in, COUNT * sizeof(int)));
	CUDA(client_upload(t->buf, mine, COUNT * sizeof(int)));
	free(mine);
	return 0;
}

static int run(struct client_rank *me)
{
	struct thread t[2] = {{.me = me, .other = &t[1], .round = sum},
			      {.me = me, .other = &t[0], .round = exchange, .sends = 1}};
	pthread_t beside;
	int i;

	CUDA(cudaSetDevice(me->device));
	for (i = 0; i < 2; i++) {
		if (prepare(&t[i]))
			return -1;
		NCCL(ncclCommInitRank(&me->comms[i], me->nr_ranks, client_ids[i], me->rank));
	}
	/* Connects both communicators before the threads start. */
	if (sum(&t[0], 0) || look(&t[0]) || exchange(&t[1], 0) || look(&t[1]))
		return -1;
	EXPECT(!pthread_create(&beside, NULL, thread_main, &t[1]), "a thread");
	t[0].ret = rounds(&t[0]);
	pthread_join(beside, NULL);
	if (t[0].ret || t[1].ret)
		return -1;
	for (i = 0; i < 2; i++) {
		NCCL(ncclCommDestroy(me->comms[i]));
		me->comms[i] = NULL;
		CUDA(cudaFree(t[i].buf));
		CUDA(cudaFree(t[i].in));
		CUDA(cudaEventDestroy(t[i].done));
		CUDA(cudaStreamDestroy(t[i].s));
	}
	return 0;
}

int main(int argc, char **argv)
{
	if (getenv("OVERLAP_ITERS"))
		iters = atoi(getenv("OVERLAP_ITERS"));
	fence = getenv("OVERLAP_FENCE") != NULL;
	swap = getenv("OVERLAP_SWAP") != NULL;
	if (iters < 1)
		return EXIT_USAGE;
	return client_main(
		argc, argv, 4, 2,
		"Two threads of each rank, a communicator each: messages and AllReduces, "
		"OVERLAP_ITERS times, OVERLAP_FENCE=1 with events between, OVERLAP_SWAP=1 in an "
		"order of each rank's own.",
		run);
}
