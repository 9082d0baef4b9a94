/*
 * Streams and events around collectives that peers start late, as a program sees them: times of
 * events, calls that must or must not wait for pending work, threads that share a communicator,
 * priorities. Two ranks in one process, so that each can set a flag for the other.
 *
 * STREAM_ONLY=NAME: one part. The parts "priority", "behind_data", "behind_work", "behind_peer" and
 * "inherited" need DFSHIM_ORDER=priority and run only if they are named. The last two also run with
 * a process for each rank, "inherited" with any number of ranks. "reset" runs only if it is named,
 * too, because the device is not usable afterwards.
 */
#include "../client.h"

#define N	1024
#define TURNS	8
#define NR_LOWS 20
/* Several slices, so that another operation can overtake it between two of them. */
#define BIG ((size_t)80000)

static int flags[16]; /* each is set by one rank for the other */

static void tell(int flag)
{
	__atomic_store_n(&flags[flag], 1, __ATOMIC_RELEASE);
}

static int told(int flag)
{
	return __atomic_load_n(&flags[flag], __ATOMIC_ACQUIRE);
}

static int await(int flag)
{
	while (!told(flag)) {
		if (client_failed())
			return -1;
		usleep(200);
	}
	return 0;
}

struct bench {
	struct client_rank *me;
	cudaStream_t s, t;
	ncclComm_t a, b;
	float *x, *y, *z, *w; /* N elements each */
};

/* Waits for both ranks, and clears all flags. */
static int begin(void)
{
	if (client_barrier_wait(&client_ranks_barrier))
		return -1;
	memset(flags, 0, sizeof(flags));
	return client_barrier_wait(&client_ranks_barrier);
}

static int put(float *to, float value)
{
	float host[N];
	int i;

	for (i = 0; i < N; i++)
		host[i] = value;
	CUDA(client_upload(to, host, sizeof(host)));
	return 0;
}

static int holds(const float *at, float value, const char *what)
{
	float host[N];
	int i;

	CUDA(cudaMemcpy(host, at, sizeof(host), cudaMemcpyDeviceToHost));
	for (i = 0; i < N; i++)
		EXPECT(host[i] == value, "%s: element %d is %g, not %g", what, i, host[i], value);
	return 0;
}

static int sum(const float *in, float *out, ncclComm_t comm, cudaStream_t s)
{
	NCCL(ncclAllReduce(in, out, N, ncclFloat, ncclSum, comm, s));
	return 0;
}

/*
 * Whether both ranks have the same device. Then they share its legacy stream, and waits for the
 * device.
 */
static int share_device(const struct bench *b)
{
	int nr = 1;

	CUDA(cudaGetDeviceCount(&nr));
	return nr < b->me->nr_ranks;
}

/*
 * Opposite orders with an event of the default kind in between: the event must not add an order
 * that a program could not see.
 */
static int opposite(struct bench *b)
{
	cudaEvent_t e[3];
	float ms;
	int i, k;

	for (i = 0; i < 3; i++)
		CUDA(cudaEventCreate(&e[i]));
	for (i = 0; i < TURNS; i++) {
		/*
		 * Also on the legacy stream, unless the ranks share it: then each rank's wait would
		 * include the other rank's work.
		 */
		cudaStream_t s = i % 2 || share_device(b) ? b->s : NULL;

		if (put(b->x, 1) || put(b->z, 2))
			return -1;
		for (k = 0; k < 2; k++) {
			CUDA(cudaEventRecord(e[k], s));
			if (k == b->me->rank ? sum(b->x, b->y, b->a, s) : sum(b->z, b->w, b->b, s))
				return -1;
		}
		CUDA(cudaEventRecord(e[2], s));
		CUDA(cudaStreamSynchronize(s));
		for (k = 0; k < 3; k++)
			CUDA(cudaEventQuery(e[k]));
		for (k = 0; k < 2; k++) {
			CUDA(cudaEventElapsedTime(&ms, e[k], e[k + 1]));
			EXPECT(ms >= 0, "turn %d: %g ms from event %d to the next", i, ms, k);
		}
		if (holds(b->y, 2, "first") || holds(b->w, 4, "second"))
			return -1;
	}
	for (i = 0; i < 3; i++)
		CUDA(cudaEventDestroy(e[i]));
	return 0;
}

/* An event after a collective is not complete before the collective is, and has its time. */
static int elapsed(struct bench *b)
{
	enum { BEFORE, AFTER, ON_T, AGAIN, NR };
	cudaEvent_t e[NR];
	float ms;
	int i;

	for (i = 0; i < NR; i++)
		CUDA(cudaEventCreate(&e[i]));
	for (i = 0; i < TURNS; i++) {
		if (begin())
			return -1;
		if (b->me->rank) {
			if (await(0))
				return -1;
			usleep(20000);
			tell(1);
			if (sum(b->x, b->y, b->a, b->s))
				return -1;
			CUDA(cudaStreamSynchronize(b->s));
			continue;
		}
		CUDA(cudaEventRecord(e[BEFORE], b->s));
		/*
		 * The event is recorded before the peer continues, because a stream may be late on
		 * a busy machine.
		 */
		CUDA(cudaEventSynchronize(e[BEFORE]));
		if (sum(b->x, b->y, b->a, b->s))
			return -1;
		CUDA(cudaEventRecord(e[AFTER], b->s));
		EXPECT(cudaEventQuery(e[AFTER]) == cudaErrorNotReady, "turn %d: too early", i);
		EXPECT(cudaEventElapsedTime(&ms, e[BEFORE], e[AFTER]) == cudaErrorNotReady,
		       "turn %d: a time too early", i);
		(void)cudaGetLastError();
		/* Also through an event that another stream waits for. */
		CUDA(cudaStreamWaitEvent(b->t, e[AFTER], 0));
		CUDA(cudaEventRecord(e[ON_T], b->t));
		if (i % 2)
			CUDA(cudaMemcpyAsync(b->z, b->y, sizeof(float), cudaMemcpyDeviceToDevice,
					     b->s));
		CUDA(cudaEventRecord(e[AGAIN], b->s));
		tell(0);
		switch (i % 4) {
		case 0:
			CUDA(cudaEventSynchronize(e[ON_T]));
			break;
		case 1:
			CUDA(cudaDeviceSynchronize());
			break;
		case 2:
			CUDA(cudaStreamSynchronize(b->t));
			break;
		default:
			while (cudaEventQuery(e[ON_T]) == cudaErrorNotReady)
				if (client_failed())
					return -1;
			(void)cudaGetLastError();
		}
		EXPECT(told(1), "turn %d: over before the peer began", i);
		CUDA(cudaEventElapsedTime(&ms, e[BEFORE], e[AFTER]));
		EXPECT(ms >= 19.9f, "turn %d: %g ms, but the peer arrived after 20", i, ms);
		CUDA(cudaEventElapsedTime(&ms, e[AFTER], e[ON_T]));
		EXPECT(ms >= 0, "turn %d: %g ms to the event that waited for it", i, ms);
		CUDA(cudaEventSynchronize(e[AGAIN]));
		CUDA(cudaEventElapsedTime(&ms, e[AFTER], e[AGAIN]));
		EXPECT(ms >= 0, "turn %d: %g ms to the next event of the stream", i, ms);
	}
	/* The event is recorded again without pending work: the new time counts. */
	if (!b->me->rank) {
		CUDA(cudaEventRecord(e[AFTER], b->t));
		CUDA(cudaEventSynchronize(e[AFTER]));
		CUDA(cudaEventElapsedTime(&ms, e[AGAIN], e[AFTER]));
		EXPECT(ms >= 0, "%g ms to an event that is recorded again", ms);
	}
	for (i = 0; i < NR; i++)
		CUDA(cudaEventDestroy(e[i]));
	return 0;
}

/*
 * Calls that never promised to wait return although a collective is pending. Freed memory stays in
 * place until then.
 */
static int pending(struct bench *b)
{
	float *p, *q, *host = aligned_alloc(4096, 1 << 16);

	if (begin() || put(b->x, 1))
		return -1;
	if (b->me->rank) {
		if (await(0) || sum(b->x, b->y, b->a, b->s))
			return -1;
	} else {
		CUDA(cudaMalloc((void **)&p, N * sizeof(float)));
		if (put(p, 5) || sum(p, b->y, b->a, b->s))
			return -1;
		CUDA(cudaHostRegister(host, 1 << 16, cudaHostRegisterDefault));
		CUDA(cudaHostUnregister(host));
		CUDA(cudaMallocHost((void **)&q, 1 << 16));
		CUDA(cudaFreeHost(q));
		CUDA(cudaFree(p)); /* the collective reads this memory */
		CUDA(cudaMalloc((void **)&q, N * sizeof(float)));
		if (put(q, 9)) /* uses the legacy stream, which b->s does not wait for */
			return -1;
		EXPECT(cudaStreamQuery(b->s) == cudaErrorNotReady, "not pending any more");
		(void)cudaGetLastError();
		tell(0);
		CUDA(cudaStreamSynchronize(b->s));
		if (holds(b->y, 6, "of freed memory"))
			return -1;
		CUDA(cudaFree(q));
	}
	free(host);
	CUDA(cudaStreamSynchronize(b->s));
	return 0;
}

/* An allocation that has room only after freed memory is unused waits for that. */
static int pressure(struct bench *b)
{
	size_t room, all;
	char *most, *again;

	if (begin() || put(b->x, 1))
		return -1;
	if (b->me->rank) {
		if (await(0))
			return -1;
		usleep(20000);
		tell(1);
		if (sum(b->x, b->y, b->a, b->s))
			return -1;
		CUDA(cudaStreamSynchronize(b->s));
		/*
		 * If both ranks have one device, the next allocation could be placed in the middle
		 * of that room.
		 */
		return await(2);
	}
	CUDA(cudaMemGetInfo(&room, &all));
	room = room / 4 * 3;
	CUDA(cudaMalloc((void **)&most, room));
	if (sum(b->x, (float *)most, b->a, b->s))
		return -1;
	CUDA(cudaFree(most));
	EXPECT(cudaStreamQuery(b->s) == cudaErrorNotReady, "cudaFree waited");
	(void)cudaGetLastError();
	tell(0);
	CUDA(cudaMalloc((void **)&again, room));
	EXPECT(told(1), "there is room for memory that is in use");
	tell(2);
	CUDA(cudaStreamSynchronize(b->s));
	CUDA(cudaFree(again));
	return 0;
}

/* Threads issue collectives of one communicator at the same time. */
#define THREADS 3

struct sharer {
	struct bench *b;
	pthread_t thread;
	cudaStream_t s;
	float *buf;
	int nr, failed;
};

static size_t amount(const struct sharer *h)
{
	return (size_t)(N * (h->nr + 1));
}

static int share(const struct sharer *h)
{
	size_t n = amount(h), k;
	float *buf = h->buf, *host = malloc(n * sizeof(float));
	cudaStream_t s = h->s;
	int i;

	CUDA(cudaSetDevice(h->b->me->device));
	for (k = 0; k < n; k++)
		host[k] = 1;
	CUDA(cudaMemcpyAsync(buf, host, n * sizeof(float), cudaMemcpyHostToDevice, s));
	/* Each AllReduce doubles the result of the one before it. */
	for (i = 0; i < 20; i++)
		NCCL(ncclAllReduce(buf, buf, n, ncclFloat, ncclSum, h->b->a, s));
	CUDA(cudaMemcpyAsync(host, buf, n * sizeof(float), cudaMemcpyDeviceToHost, s));
	CUDA(cudaStreamSynchronize(s));
	for (k = 0; k < n; k++)
		EXPECT(host[k] == (float)(1 << 20), "thread %d: %g", h->nr, host[k]);
	free(host);
	return 0;
}

static void *sharing(void *arg)
{
	struct sharer *h = arg;

	h->failed = share(h);
	return NULL;
}

/*
 * No thread allocates while a stream waits for a collective that another rank's thread has not
 * started yet. If the driver's allocation waited for the device, that would be a deadlock by CUDA's
 * rules, with every executor.
 */
static int threads(struct bench *b)
{
	struct sharer h[THREADS] = {0};
	int i, failed = 0;

	for (i = 0; i < THREADS; i++) {
		h[i].b = b;
		h[i].nr = i;
		CUDA(cudaStreamCreateWithFlags(&h[i].s, cudaStreamNonBlocking));
		CUDA(cudaMalloc((void **)&h[i].buf, amount(&h[i]) * sizeof(float)));
	}
	if (begin())
		return -1;
	for (i = 0; i < THREADS; i++)
		pthread_create(&h[i].thread, NULL, sharing, &h[i]);
	for (i = 0; i < THREADS; i++) {
		pthread_join(h[i].thread, NULL);
		failed |= h[i].failed;
	}
	if (failed || client_barrier_wait(&client_ranks_barrier))
		return -1;
	for (i = 0; i < THREADS; i++) {
		CUDA(cudaFree(h[i].buf));
		CUDA(cudaStreamDestroy(h[i].s));
	}
	return 0;
}

/*
 * On rank 0 many collectives of low priority, and finally one of high priority, wait for a
 * collective whose peer is late. Each of them has a communicator of one rank, so nothing else
 * delays it. The scheduler then decides in which order they are executed, and the trace shows it
 * (tests/smoke/t_streams.sh). The signature of the urgent one was first used on the stream of low
 * priority.
 */
static int priority(struct bench *b)
{
	ncclComm_t one[2] = {NULL, NULL};
	cudaStream_t low, high;
	cudaEvent_t e;
	float *data;
	int i;

	for (i = 0; i < 2; i++)
		NCCL(ncclCommSplit(b->me->comms[i], b->me->rank, 0, &one[i], NULL));
	if (begin())
		return -1;
	if (b->me->rank) {
		if (await(0) || sum(b->x, b->y, b->a, b->s))
			return -1;
		CUDA(cudaStreamSynchronize(b->s));
		goto out;
	}
	CUDA(cudaStreamCreateWithPriority(&low, cudaStreamNonBlocking, 0));
	CUDA(cudaStreamCreateWithPriority(&high, cudaStreamNonBlocking, -5));
	CUDA(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
	CUDA(cudaMalloc((void **)&data, (NR_LOWS + 2) * BIG * sizeof(float)));
	NCCL(ncclAllReduce(data, data + BIG, BIG - 1, ncclFloat, ncclSum, one[1], low));
	CUDA(cudaStreamSynchronize(low));
	/* All the others read the result of this one. */
	if (sum(b->x, data, b->a, low))
		return -1;
	CUDA(cudaEventRecord(e, low));
	for (i = 0; i < NR_LOWS; i++)
		NCCL(ncclAllReduce(data, data + (size_t)(i + 1) * BIG, BIG - 2 - (size_t)i,
				   ncclFloat, ncclSum, one[0], low));
	CUDA(cudaStreamWaitEvent(high, e, 0));
	NCCL(ncclAllReduce(data, data + (size_t)(NR_LOWS + 1) * BIG, BIG - 1, ncclFloat, ncclSum,
			   one[1], high));
	tell(0);
	CUDA(cudaDeviceSynchronize());
	CUDA(cudaFree(data));
	CUDA(cudaEventDestroy(e));
	CUDA(cudaStreamDestroy(low));
	CUDA(cudaStreamDestroy(high));
out:
	for (i = 0; i < 2; i++)
		NCCL(ncclCommDestroy(one[i]));
	return 0;
}

/*
 * An urgent operation follows one of low priority, and NR_LOWS operations of medium priority were
 * submitted before both. The urgent one reads the result of that one; or, with `work`, a fill on
 * its stream follows that one.
 */
static int behind(struct bench *b, int work)
{
	cudaStream_t low, mid, high;
	cudaEvent_t e, after;
	ncclComm_t one[2];
	float *data, *mine;
	int i;

	for (i = 0; i < 2; i++)
		NCCL(ncclCommSplit(b->a, b->me->rank, 0, &one[i], NULL));
	if (begin())
		return -1;
	if (b->me->rank) {
		if (await(0) || sum(b->x, b->y, b->a, b->s))
			return -1;
		CUDA(cudaStreamSynchronize(b->s));
		goto out;
	}
	CUDA(cudaStreamCreateWithPriority(&low, cudaStreamNonBlocking, 0));
	CUDA(cudaStreamCreateWithPriority(&mid, cudaStreamNonBlocking, -2));
	CUDA(cudaStreamCreateWithPriority(&high, cudaStreamNonBlocking, -5));
	CUDA(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
	CUDA(cudaEventCreateWithFlags(&after, cudaEventDisableTiming));
	CUDA(cudaMalloc((void **)&data, (NR_LOWS + 4) * BIG * sizeof(float)));
	mine = data + (NR_LOWS + 1) * BIG;
	/* The first use of these signatures connects them. */
	NCCL(ncclAllReduce(data, mine, BIG, ncclFloat, ncclSum, one[1], low));
	NCCL(ncclAllReduce(mine + BIG, mine + 2 * BIG, BIG - 1, ncclFloat, ncclSum, one[1], low));
	CUDA(cudaStreamSynchronize(low));
	/* All following operations read the result of this one. */
	if (sum(b->x, data, b->a, low))
		return -1;
	CUDA(cudaEventRecord(e, low));
	CUDA(cudaStreamWaitEvent(mid, e, 0));
	for (i = 0; i < NR_LOWS; i++)
		NCCL(ncclAllReduce(data, data + (size_t)(i + 1) * BIG, BIG - 2 - (size_t)i,
				   ncclFloat, ncclSum, one[0], mid));
	NCCL(ncclAllReduce(data, mine, BIG, ncclFloat, ncclSum, one[1], low));
	CUDA(cudaEventRecord(after, low));
	CUDA(cudaStreamWaitEvent(high, after, 0));
	if (work)
		CUDA(cudaMemsetAsync(mine + BIG, 0, BIG * sizeof(float), high));
	NCCL(ncclAllReduce(work ? mine + BIG : mine, mine + 2 * BIG, BIG - 1, ncclFloat, ncclSum,
			   one[1], high));
	tell(0);
	CUDA(cudaDeviceSynchronize());
	CUDA(cudaFree(data));
	CUDA(cudaEventDestroy(e));
	CUDA(cudaEventDestroy(after));
	CUDA(cudaStreamDestroy(low));
	CUDA(cudaStreamDestroy(mid));
	CUDA(cudaStreamDestroy(high));
out:
	for (i = 0; i < 2; i++)
		NCCL(ncclCommDestroy(one[i]));
	return 0;
}

static int behind_data(struct bench *b)
{
	return behind(b, 0);
}

static int behind_work(struct bench *b)
{
	return behind(b, 1);
}

/*
 * On rank 1 an urgent operation follows one of low priority. On rank 0, the other end of the
 * latter, NR_LOWS operations of medium priority were submitted before it. All of rank 0's wait for
 * one that rank 1 starts late: then the scheduler decides the order.
 */
static int behind_peer(struct bench *b)
{
	cudaStream_t low, mid, high;
	cudaEvent_t e, after;
	ncclComm_t one, both;
	float *data, *mine;
	int i;

	NCCL(ncclCommSplit(b->a, b->me->rank, 0, &one, NULL));
	NCCL(ncclCommSplit(b->a, 0, b->me->rank, &both, NULL));
	CUDA(cudaStreamCreateWithPriority(&low, cudaStreamNonBlocking, 0));
	CUDA(cudaStreamCreateWithPriority(&mid, cudaStreamNonBlocking, -2));
	CUDA(cudaStreamCreateWithPriority(&high, cudaStreamNonBlocking, -5));
	CUDA(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
	CUDA(cudaEventCreateWithFlags(&after, cudaEventDisableTiming));
	CUDA(cudaMalloc((void **)&data, (NR_LOWS + 3) * BIG * sizeof(float)));
	mine = data + (NR_LOWS + 1) * BIG;
	/* The first use of this signature connects it. */
	NCCL(ncclAllReduce(data, mine, BIG, ncclFloat, ncclSum, b->a, low));
	CUDA(cudaStreamSynchronize(low));
	if (!b->me->rank) {
		if (sum(b->x, data, b->b, low))
			return -1;
		CUDA(cudaEventRecord(e, low));
		CUDA(cudaStreamWaitEvent(mid, e, 0));
		for (i = 0; i < NR_LOWS; i++)
			NCCL(ncclAllReduce(data, data + (size_t)(i + 1) * BIG, BIG - 2 - (size_t)i,
					   ncclFloat, ncclSum, one, mid));
	}
	NCCL(ncclAllReduce(data, mine, BIG, ncclFloat, ncclSum, b->a, low));
	if (b->me->rank) {
		CUDA(cudaEventRecord(after, low));
		CUDA(cudaStreamWaitEvent(high, after, 0));
		NCCL(ncclAllReduce(mine, mine + BIG, BIG - 1, ncclFloat, ncclSum, one, high));
	}
	/* Returns when the other rank has reached this place. */
	if (sum(b->z, b->w, both, b->s))
		return -1;
	if (b->me->rank) {
		CUDA(cudaStreamSynchronize(b->s));
		/* Meanwhile rank 0 is informed about the priority. */
		usleep(300000);
		if (sum(b->x, b->y, b->b, mid))
			return -1;
	}
	CUDA(cudaDeviceSynchronize());
	CUDA(cudaFree(data));
	CUDA(cudaEventDestroy(e));
	CUDA(cudaEventDestroy(after));
	CUDA(cudaStreamDestroy(low));
	CUDA(cudaStreamDestroy(mid));
	CUDA(cudaStreamDestroy(high));
	NCCL(ncclCommDestroy(one));
	NCCL(ncclCommDestroy(both));
	return 0;
}

#define LENDING_OPS   120
#define LENDING_DEPTH 8

/*
 * Random operations on streams of three priorities. Each reads the result of an earlier one, often
 * on another stream. Inherited priorities pass from rank to rank while other operations are
 * submitted. A rank pauses from time to time, so it receives priorities for operations that it has
 * not submitted yet.
 */
static int inherited(struct bench *b)
{
	static const int priorities[] = {0, -2, -5};
	const int nr = LENDING_OPS;
	uint64_t same = client_seed(client_seed_value, 1, 0);
	uint64_t own = client_seed(client_seed_value, 2, (uint64_t)b->me->rank);
	cudaStream_t streams[3];
	cudaEvent_t e[LENDING_OPS];
	float *data, value[LENDING_OPS + 1] = {1};
	int depth[LENDING_OPS + 1] = {0}, last[3] = {0}, i;

	for (i = 0; i < 3; i++)
		CUDA(cudaStreamCreateWithPriority(&streams[i], cudaStreamNonBlocking,
						  priorities[i]));
	CUDA(cudaMalloc((void **)&data, ((size_t)nr + 1) * N * sizeof(float)));
	CUDA(client_clear(data, 0, ((size_t)nr + 1) * N * sizeof(float)));
	if (put(data, 1))
		return -1;
	for (i = 0; i < nr; i++) {
		int on = (int)(client_random(&same) % 3), from = last[on];
		ncclComm_t comm = client_random(&same) % 2 ? b->a : b->b;

		if (i && client_random(&same) % 2)
			from = 1 + (int)(client_random(&same) % (uint64_t)i);
		if (depth[from] == LENDING_DEPTH)
			from = 0;
		CUDA(cudaEventCreateWithFlags(&e[i], cudaEventDisableTiming));
		if (from)
			CUDA(cudaStreamWaitEvent(streams[on], e[from - 1], 0));
		if (client_random(&own) % 8 == 0)
			usleep((unsigned)(client_random(&own) % 500));
		/* Its input was written on the same stream, or the stream waits for it. */
		if (sum(data + (size_t)from * N, data + (size_t)(i + 1) * N, comm, streams[on]))
			return -1;
		CUDA(cudaEventRecord(e[i], streams[on]));
		value[i + 1] = value[from] * (float)b->me->nr_ranks;
		depth[i + 1] = depth[from] + 1;
		last[on] = i + 1;
	}
	CUDA(cudaDeviceSynchronize());
	for (i = 0; i < nr; i++) {
		if (holds(data + (size_t)(i + 1) * N, value[i + 1], "a chain's sum"))
			return -1;
		CUDA(cudaEventDestroy(e[i]));
	}
	for (i = 0; i < 3; i++)
		CUDA(cudaStreamDestroy(streams[i]));
	CUDA(cudaFree(data));
	return 0;
}

/* cudaDeviceReset() waits for pending work. */
static int reset(struct bench *b)
{
	if (begin() || put(b->x, 1))
		return -1;
	if (b->me->rank) {
		if (await(0))
			return -1;
		usleep(20000);
		tell(1);
		if (sum(b->x, b->y, b->a, b->s))
			return -1;
		CUDA(cudaStreamSynchronize(b->s));
		return holds(b->y, 2, "of a device that was reset");
	}
	if (sum(b->x, b->y, b->a, b->s))
		return -1;
	tell(0);
	CUDA(cudaDeviceReset());
	EXPECT(told(1), "it did not wait");
	EXPECT(cudaStreamQuery(b->s) != cudaSuccess, "the stream is still there");
	(void)cudaGetLastError();
	return 0;
}

static const struct part {
	const char *name;
	int (*run)(struct bench *b);
	int named; /* runs only if it is named */
} parts[] = {
	{"opposite", opposite, 0},
	{"elapsed", elapsed, 0},
	{"pending", pending, 0},
	{"pressure", pressure, 0},
	{"threads", threads, 0},
	{"priority", priority, 1},
	{"behind_data", behind_data, 1},
	{"behind_work", behind_work, 1},
	{"behind_peer", behind_peer, 1},
	{"inherited", inherited, 1},
	{"reset", reset, 1},
};

/*
 * Communicators of devices that were reset. They cannot be destroyed; this keeps them reachable for
 * leak checkers.
 */
ncclComm_t left_behind[16][2];

static int run(struct client_rank *me)
{
	const char *only = getenv("STREAM_ONLY");
	struct bench b = {.me = me};
	float *all;
	size_t i;

	CUDA(cudaSetDevice(me->device));
	CUDA(cudaStreamCreateWithFlags(&b.s, cudaStreamNonBlocking));
	CUDA(cudaStreamCreateWithFlags(&b.t, cudaStreamNonBlocking));
	CUDA(cudaMalloc((void **)&all, 4 * N * sizeof(float)));
	b.x = all;
	b.y = all + N;
	b.z = all + 2 * N;
	b.w = all + 3 * N;
	for (i = 0; i < 2; i++)
		NCCL(ncclCommInitRank(&me->comms[i], me->nr_ranks, client_ids[i], me->rank));
	b.a = me->comms[0];
	b.b = me->comms[1];
	for (i = 0; i < ARRAY_LEN(parts); i++) {
		if (only ? strcmp(only, parts[i].name) : parts[i].named)
			continue;
		if (parts[i].run(&b)) {
			/* The other rank may now wait for this one forever. */
			fprintf(stderr, "streamcheck: rank %d: %s failed: %s\n", me->rank,
				parts[i].name, client_text);
			return -1;
		}
		client_tick();
	}
	if (only && !strcmp(only, "reset")) {
		for (i = 0; i < 2; i++)
			left_behind[me->rank % 16][i] = me->comms[i];
		return 0;
	}
	for (i = 0; i < 2; i++) {
		NCCL(ncclCommDestroy(me->comms[i]));
		me->comms[i] = NULL;
	}
	CUDA(cudaFree(all));
	CUDA(cudaStreamDestroy(b.s));
	CUDA(cudaStreamDestroy(b.t));
	return 0;
}

int main(int argc, char **argv)
{
	return client_main(argc, argv, 2, 2, "Checks streams and events around late collectives.",
			   run);
}
