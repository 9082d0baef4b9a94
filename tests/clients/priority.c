/*
 * Measures small AllReduces on a stream of high priority while large ones run on another
 * communicator: the delay of an urgent operation by a bulky one, and the slowdown of the bulky one.
 * Each rank is a process or a thread, which sleeps between urgent operations, as if a GPU computed.
 *
 * The latency of an operation is the time from the last rank's call to the last rank's return, by
 * one clock.
 *
 * PRIORITY_BYTES (8192; 0: no urgent ones), PRIORITY_BULK (64 MiB; 0: no bulky ones), PRIORITY_OPS
 * (200), PRIORITY_GAP_US (1000).
 */
#include "client.h"

#define WARM  4
#define DEPTH 2 /* large operations in flight, so that one is always running */

static size_t bytes = 8192, bulk_bytes = 64 << 20;
static int nr_ops = 200, gap_us = 1000;

struct bulk {
	cudaStream_t s;
	cudaEvent_t end[DEPTH];
	float *buf;
	size_t count;
	int issued, done;
	double first, last; /* when the first and the last one were seen to be finished */
};

struct times {
	double start, end;
};

static int bulk_issue(struct client_rank *me, struct bulk *b)
{
	NCCL(ncclAllReduce(b->buf, b->buf, b->count, ncclFloat, ncclMax, me->comms[1], b->s));
	CUDA(cudaEventRecord(b->end[b->issued++ % DEPTH], b->s));
	return 0;
}

/* Sleeps for a while. Replaces each large operation that has finished by another one. */
static int between(struct client_rank *me, struct bulk *b)
{
	struct timespec pause = {gap_us / 1000000, gap_us % 1000000 * 1000};
	cudaError_t err;

	nanosleep(&pause, NULL);
	client_tick();
	while (b->count) {
		err = cudaEventQuery(b->end[b->done % DEPTH]);
		if (err == cudaErrorNotReady)
			break;
		CUDA(err);
		b->last = client_now();
		if (b->done++ == WARM)
			b->first = b->last;
		if (bulk_issue(me, b))
			return -1;
	}
	return 0;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* On rank 0: reports the times of all ranks and operations. */
static int report(const struct client_rank *me, const struct times *all, const struct bulk *b)
{
	double *took = calloc((size_t)nr_ops, sizeof(*took)), took_bulk = 0;
	int i, r;

	if (!took)
		return -1;
	for (i = 0; i < nr_ops; i++) {
		double start = 0, end = 0;

		for (r = 0; r < me->nr_ranks; r++) {
			const struct times *t = &all[r * nr_ops + i];

			start = t->start > start ? t->start : start;
			end = t->end > end ? t->end : end;
		}
		took[i] = (end - start) * 1e6;
	}
	qsort(took, (size_t)nr_ops, sizeof(*took), by_value);
	if (b->done - WARM > 1)
		took_bulk = (b->last - b->first) / (b->done - WARM - 1) * 1e3;
	printf("priority: urgent %.2f us (90 %%: %.2f) bulk %.3f ms (%d)\n", took[nr_ops / 2],
	       took[nr_ops * 9 / 10], took_bulk, b->done - WARM);
	fflush(stdout);
	free(took);
	return 0;
}

/* Lets all ranks issue the same number of large operations, and checks their results. */
static int bulk_end(struct client_rank *me, struct bulk *b, cudaStream_t s, float *out)
{
	float most = (float)b->issued, got[2];

	CUDA(client_upload(out, &most, sizeof(most)));
	NCCL(ncclAllReduce(out, out, 1, ncclFloat, ncclMax, me->comms[0], s));
	CUDA(cudaMemcpyAsync(&most, out, sizeof(most), cudaMemcpyDeviceToHost, s));
	if (client_wait(s, me->comms, 1))
		return -1;
	while (b->issued < (int)most)
		if (bulk_issue(me, b))
			return -1;
	if (client_wait(b->s, me->comms, 2))
		return -1;
	CUDA(cudaMemcpy(&got[0], b->buf, sizeof(float), cudaMemcpyDeviceToHost));
	CUDA(cudaMemcpy(&got[1], b->buf + b->count - 1, sizeof(float), cudaMemcpyDeviceToHost));
	EXPECT(got[0] == (float)me->nr_ranks && got[1] == (float)me->nr_ranks, "bulk: %g %g",
	       got[0], got[1]);
	return 0;
}

static int run(struct client_rank *me)
{
	int least, greatest, i, n = me->nr_ranks;
	struct bulk b = {.count = bulk_bytes / sizeof(float)};
	float value = (float)(me->rank + 1), got, *small;
	struct times *mine = calloc((size_t)nr_ops, sizeof(*mine)), *all;
	cudaStream_t s;

	CUDA(cudaSetDevice(me->device));
	CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
	CUDA(cudaStreamCreateWithPriority(&s, cudaStreamNonBlocking, greatest));
	CUDA(cudaStreamCreateWithPriority(&b.s, cudaStreamNonBlocking, least));
	CUDA(cudaMalloc((void **)&small, bytes + 2 * sizeof(float)));
	CUDA(cudaMalloc((void **)&all, (size_t)n * (size_t)nr_ops * sizeof(*all)));
	NCCL(ncclCommInitRank(&me->comms[0], n, client_ids[0], me->rank));
	NCCL(ncclCommInitRank(&me->comms[1], n, client_ids[1], me->rank));
	if (bulk_bytes) {
		CUDA(cudaMalloc((void **)&b.buf, bulk_bytes));
		CUDA(client_clear(b.buf, 0, bulk_bytes));
		CUDA(client_upload(b.buf, &value, sizeof(value)));
		CUDA(client_upload(b.buf + b.count - 1, &value, sizeof(value)));
		for (i = 0; i < DEPTH; i++)
			CUDA(cudaEventCreateWithFlags(&b.end[i], cudaEventDisableTiming));
		/* The first operations touch new memory. */
		for (i = 0; i < WARM + DEPTH; i++)
			if (bulk_issue(me, &b) || (i < WARM && client_wait(b.s, me->comms, 2)))
				return -1;
		b.done = WARM;
	}
	for (i = -8; i < nr_ops; i++) {
		struct times t;

		if (between(me, &b))
			return -1;
		if (!bytes)
			continue;
		CUDA(client_upload(small, &value, sizeof(value)));
		t.start = client_now();
		NCCL(ncclAllReduce(small, small, bytes / sizeof(float), ncclFloat, ncclSum,
				   me->comms[0], s));
		CUDA(cudaStreamSynchronize(s));
		t.end = client_now();
		CUDA(cudaMemcpy(&got, small, sizeof(got), cudaMemcpyDeviceToHost));
		EXPECT(got == (float)(n * (n + 1) / 2), "urgent: %g", got);
		if (i >= 0)
			mine[i] = t;
	}
	if (bulk_bytes && bulk_end(me, &b, s, small))
		return -1;
	CUDA(client_upload(all + me->rank * nr_ops, mine, (size_t)nr_ops * sizeof(*mine)));
	NCCL(ncclAllGather(all + me->rank * nr_ops, all, (size_t)nr_ops * sizeof(*mine), ncclChar,
			   me->comms[0], s));
	if (client_wait(s, me->comms, 1))
		return -1;
	if (!me->rank) {
		struct times *host = calloc((size_t)n * (size_t)nr_ops, sizeof(*host));

		CUDA(cudaMemcpy(host, all, (size_t)n * (size_t)nr_ops * sizeof(*host),
				cudaMemcpyDeviceToHost));
		if (!host || report(me, host, &b))
			return -1;
		free(host);
	}
	for (i = 0; i < 2; i++) {
		NCCL(ncclCommDestroy(me->comms[i]));
		me->comms[i] = NULL;
	}
	free(mine);
	CUDA(cudaFree(all));
	CUDA(cudaFree(small));
	CUDA(cudaFree(b.buf));
	return 0;
}

int main(int argc, char **argv)
{
	if (getenv("PRIORITY_BYTES"))
		bytes = strtoull(getenv("PRIORITY_BYTES"), NULL, 0);
	if (getenv("PRIORITY_BULK"))
		bulk_bytes = strtoull(getenv("PRIORITY_BULK"), NULL, 0);
	if (getenv("PRIORITY_OPS"))
		nr_ops = atoi(getenv("PRIORITY_OPS"));
	if (getenv("PRIORITY_GAP_US"))
		gap_us = atoi(getenv("PRIORITY_GAP_US"));
	if (nr_ops < 1 || gap_us < 0 || bytes % sizeof(float) || bulk_bytes % sizeof(float))
		return EXIT_USAGE;
	return client_main(
		argc, argv, 2, 1,
		"Times small AllReduces of high priority beside large ones: PRIORITY_OPS of "
		"PRIORITY_BYTES, one each PRIORITY_GAP_US, beside PRIORITY_BULK.",
		run);
}
