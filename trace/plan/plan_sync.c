/*
 * PyTorch's DistributedDataParallel and ByteScheduler: every gradient is applied before the forward
 * pass that needs it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/err.h"
#include "runtime/base/vec.h"
#include "trace/plan/plan_outcome.h"

/*
 * Sends buckets in the order in which they are ready, one after the other; the optimizer waits for
 * all.
 */
int df_plan_ddp(const struct df_plan_profile *p, struct df_plan_outcome *out)
{
	struct df_plan_sent sent[DF_PLAN_BUCKETS];
	int64_t release[DF_PLAN_BUCKETS], done[DF_PLAN_BUCKETS], t = 0;
	int nr = 0;

	df_plan_release(p, release);
	for (int i = p->nr_buckets - 1; i >= 0; i--) {
		int64_t begin = t > release[i] ? t : release[i];

		t = begin + p->buckets[i].comm_ns;
		sent[nr++] = (struct df_plan_sent){i, begin, t};
	}
	for (int i = 0; i < nr; i++)
		done[i] = t;
	return df_plan_synchronous(p, "DDP", done, sent, (size_t)nr, out);
}

/* -- ByteScheduler ---------------------------------------------------------------------------- */

/* The blocks of a bucket, all of one size. */
struct blocks {
	int nr, waiting, unsent;     /* waiting: not passed to the link yet; unsent: not complete */
	int64_t params, ns, rest_ns; /* of a block; rest_ns: time of the last one */
};

struct bytescheduler {
	const struct df_plan_profile *p;
	int64_t release[DF_PLAN_BUCKETS], done[DF_PLAN_BUCKETS];
	struct blocks blocks[DF_PLAN_BUCKETS];
	struct df_plan_sent *sent; /* in the order of passing; also the link's queue */
	size_t nr_sent, nr_complete, cap;
};

/* Returns the ready block with the highest priority (closest to the input), or -1. */
static int ready(const struct bytescheduler *b, int64_t now)
{
	for (int i = 0; i < b->p->nr_buckets; i++)
		if (b->blocks[i].waiting && b->release[i] <= now)
			return i;
	return -1;
}

/*
 * Priority decides which block is passed to the link next; the link sends blocks in that order. A
 * block is passed while there is credit, and takes its size of the credit until it is complete.
 */
static int bytescheduler(struct bytescheduler *b, int64_t block, int64_t all_credit)
{
	const struct df_plan_profile *p = b->p;
	int64_t startup = p->links[0].startup_ns, now = 0, credit = all_credit;
	size_t want = 0;

	b->nr_sent = b->nr_complete = 0;
	for (int i = 0; i < p->nr_buckets; i++) {
		struct blocks *k = &b->blocks[i];

		k->nr = k->waiting = k->unsent = (int)((p->buckets[i].params + block - 1) / block);
		k->params = (p->buckets[i].params + k->nr - 1) / k->nr;
		k->ns = startup + (p->buckets[i].comm_ns - startup) / k->nr;
		k->rest_ns = p->buckets[i].comm_ns + (k->nr - 1) * (startup - k->ns);
		want += (size_t)k->nr;
	}
	if (DF_VEC_ROOM(b->sent, b->cap, want))
		return -ENOMEM;
	while (b->nr_complete < want) {
		int64_t next = INT64_MAX;
		int i;

		while (credit > 0 && (i = ready(b, now)) >= 0) {
			struct blocks *k = &b->blocks[i];
			int64_t end = b->nr_sent ? b->sent[b->nr_sent - 1].end_ns : 0;

			if (end < now)
				end = now;
			b->sent[b->nr_sent++] = (struct df_plan_sent){
				i, end, end + (k->waiting == 1 ? k->rest_ns : k->ns)};
			k->waiting--;
			credit -= k->params;
		}
		/* The next event: a block is complete, or a bucket is released. */
		if (b->nr_complete < b->nr_sent)
			next = b->sent[b->nr_complete].end_ns;
		for (i = 0; i < p->nr_buckets; i++)
			if (b->release[i] > now && b->release[i] < next)
				next = b->release[i];
		now = next;
		while (b->nr_complete < b->nr_sent && b->sent[b->nr_complete].end_ns <= now) {
			i = b->sent[b->nr_complete++].bucket;
			credit += b->blocks[i].params;
			if (!--b->blocks[i].unsent)
				b->done[i] = now;
		}
	}
	return 0;
}

/* Limit of the blocks of all buckets. More would make the replay slow, and gain nothing. */
#define BLOCKS_MAX 20000

int df_plan_bytescheduler(const struct df_plan_profile *p, struct df_plan_outcome *out)
{
	/* ByteScheduler's default credit, four of its default blocks; and one block at a time. */
	static const int64_t sizes[] = {1000000, 500000, 2000000, 6500000, 25000000};
	static const int64_t credits[] = {4000000, 1};
	struct bytescheduler b = {.p = p};
	int64_t params = 0, best = INT64_MAX, block = 0, credit = 0, least;
	int rc = 0, nr_sizes = p->partition ? 1 : (int)DF_ARRAY_LEN(sizes);

	df_plan_release(p, b.release);
	for (int i = 0; i < p->nr_buckets; i++)
		params += p->buckets[i].params;
	least = params / BLOCKS_MAX + 1;
	for (int i = 0; i < 2 * nr_sizes && !rc; i++) {
		int64_t size = p->partition ? p->partition : sizes[i / 2];

		size = size > least ? size : least;
		rc = bytescheduler(&b, size, credits[i % 2]);
		if (!rc && df_plan_forward_end(p, b.done) < best) {
			best = df_plan_forward_end(p, b.done);
			block = size;
			credit = credits[i % 2];
		}
	}
	if (!rc)
		rc = bytescheduler(&b, block, credit);
	if (!rc)
		rc = df_plan_synchronous(p, "ByteScheduler", b.done, b.sent, b.nr_sent, out);
	free(b.sent);
	return rc;
}

int df_plan_whole(const struct df_plan_profile *p, int *order, double *iteration_ns)
{
	struct bytescheduler b = {.p = p};
	int64_t params = 0;
	int rc;

	df_plan_release(p, b.release);
	for (int i = 0; i < p->nr_buckets; i++)
		params += p->buckets[i].params;
	rc = bytescheduler(&b, params, 1);
	for (int i = 0; i < p->nr_buckets && !rc; i++)
		order[i] = b.sent[i].bucket;
	if (!rc)
		*iteration_ns = (double)df_plan_forward_end(p, b.done);
	free(b.sent);
	return rc;
}
