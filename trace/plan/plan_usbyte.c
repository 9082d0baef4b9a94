/*
 * US-Byte: unequal blocks, and an order that need not follow the layers.
 *
 * A bucket consists of sub-blocks; a block of k of them takes start-up plus k times b. During the
 * backward pass, while the link is free before the next release, the ready bucket with the highest
 * priority sends all of its rest if that ends by then, else as many sub-blocks as reach the
 * release. After the backward pass, the rest of each bucket is sent as one block, input side first,
 * which is then the best order. Priorities begin with the order of layers. A local search raises
 * each bucket's priority in turn where that shortens the iteration.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/vec.h"
#include "trace/plan/plan_outcome.h"

/*
 * Limit of the local search. With 30 buckets it needs some 400 runs; with hundreds it stops here.
 */
#define RUNS_MAX 4000

struct usbyte {
	const struct df_plan_profile *p;
	int64_t release[DF_PLAN_BUCKETS], done[DF_PLAN_BUCKETS];
	int64_t nr_sub[DF_PLAN_BUCKETS], left[DF_PLAN_BUCKETS];
	int order[DF_PLAN_BUCKETS]; /* buckets, highest priority first */
	struct df_plan_sent *sent;
	size_t nr_sent, cap;
};

/*
 * Sends k sub-blocks as one block. The time of its bytes is a difference of rounded sums, so that
 * of all blocks of a bucket adds up exactly. The products stay below 2^50 x 4,097.
 */
static int block(struct usbyte *u, int i, int64_t k, int64_t *t)
{
	int64_t a = u->p->links[0].startup_ns, bytes = u->p->buckets[i].comm_ns - a;
	int64_t from = u->nr_sub[i] - u->left[i], begin = *t;

	*t += a + bytes * (from + k) / u->nr_sub[i] - bytes * from / u->nr_sub[i];
	u->left[i] -= k;
	if (!u->left[i])
		u->done[i] = *t;
	if (DF_VEC_ROOM(u->sent, u->cap, u->nr_sent + 1))
		return -ENOMEM;
	u->sent[u->nr_sent++] = (struct df_plan_sent){i, begin, *t};
	return 0;
}

/* The number of sub-blocks of bucket i to send when the next release is this far away. */
static int64_t fitting(const struct usbyte *u, int i, int64_t gap)
{
	int64_t a = u->p->links[0].startup_ns, k;
	double b = (double)(u->p->buckets[i].comm_ns - a) / (double)u->nr_sub[i];

	if ((double)(gap - a) >= b * (double)u->left[i])
		return u->left[i];
	if (gap <= a)
		return 1;
	k = (int64_t)((double)(gap - a) / b);
	k += b * (double)k < (double)(gap - a);
	return k < 1 ? 1 : k > u->left[i] ? u->left[i] : k;
}

/* The end of the iteration with the current priorities, or -ENOMEM. */
static int64_t run(struct usbyte *u)
{
	int n = u->p->nr_buckets, rc = 0;
	int64_t t = u->release[n - 1];

	u->nr_sent = 0;
	memset(u->left, 0, sizeof(u->left));
	for (int l = n - 1; l >= 0; l--) {
		while (t < u->release[l] && !rc) {
			int i = 0;

			while (i < n && !u->left[u->order[i]])
				i++;
			if (i == n)
				t = u->release[l];
			else
				rc = block(u, u->order[i],
					   fitting(u, u->order[i], u->release[l] - t), &t);
		}
		u->left[l] = u->nr_sub[l];
	}
	for (int l = 0; l < n && !rc; l++)
		if (u->left[l])
			rc = block(u, l, u->left[l], &t);
	return rc ? rc : df_plan_forward_end(u->p, u->done);
}

/* Moves the bucket at one place of the order to another. */
static void move(int *order, int from, int to)
{
	int what = order[from];

	for (; from > to; from--)
		order[from] = order[from - 1];
	for (; from < to; from++)
		order[from] = order[from + 1];
	order[to] = what;
}

static int64_t search(struct usbyte *u, int64_t sub)
{
	int n = u->p->nr_buckets, runs = 0;
	int64_t best;

	for (int i = 0; i < n; i++) {
		u->order[i] = i;
		u->nr_sub[i] = (u->p->buckets[i].params + sub - 1) / sub;
	}
	best = run(u);
	for (int l = n - 1; l > 0 && best >= 0; l--) {
		int at = 0;

		while (u->order[at] != l)
			at++;
		for (int to = 0; to < at && runs < RUNS_MAX; to++, runs++) {
			int64_t v;

			move(u->order, at, to);
			v = run(u);
			if (v < 0)
				return v;
			if (v < best) {
				best = v;
				break;
			}
			move(u->order, to, at);
		}
	}
	return best;
}

int df_plan_usbyte(const struct df_plan_profile *p, struct df_plan_outcome *out)
{
	static const int64_t subs[] = {500000, 250000, 1000000, 2000000, 6500000};
	struct usbyte u = {.p = p};
	int order[DF_PLAN_BUCKETS];
	int64_t best = INT64_MAX, params = 0, chosen = 0, v = 0;
	int rc;

	df_plan_release(p, u.release);
	for (int i = 0; i < p->nr_buckets; i++)
		params += p->buckets[i].params;
	for (int i = 0; i < 5 && v >= 0; i++) {
		int64_t sub = subs[i] > params / 4096 ? subs[i] : params / 4096;

		v = search(&u, sub);
		if (v >= 0 && v < best) {
			best = v;
			chosen = sub;
			memcpy(order, u.order, sizeof(order));
		}
	}
	if (v >= 0) {
		for (int i = 0; i < p->nr_buckets; i++)
			u.nr_sub[i] = (p->buckets[i].params + chosen - 1) / chosen;
		memcpy(u.order, order, sizeof(order));
		v = run(&u);
	}
	rc = v < 0 ? (int)v : df_plan_synchronous(p, "US-Byte", u.done, u.sent, u.nr_sent, out);
	free(u.sent);
	return rc;
}
