/*
 * The profile: checks, sums, release times, and buckets cut into parts that fit a stage. Pure
 * functions.
 */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "trace/plan/plan_int.h"

/* Some 13 days. The sum over all buckets stays below 2^59. */
#define MAX_NS (INT64_C(1) << 50)

int df_plan_refuse(char *err, size_t size, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(err, size, fmt, ap);
	va_end(ap);
	return -EINVAL;
}

static int usable(int64_t ns)
{
	return ns >= 0 && ns <= MAX_NS;
}

int df_plan_check(const struct df_plan_profile *p, char *err, size_t size)
{
	if (p->nr_buckets < 1 || p->nr_buckets > DF_PLAN_BUCKETS)
		return df_plan_refuse(err, size, "%d buckets; allowed: 1 to %d", p->nr_buckets,
				      DF_PLAN_BUCKETS);
	if (p->nr_links < 1 || p->nr_links > DF_PLAN_LINKS)
		return df_plan_refuse(err, size, "%d links; allowed: 1 to %d", p->nr_links,
				      DF_PLAN_LINKS);
	for (int i = 0; i < p->nr_buckets; i++) {
		const struct df_plan_bucket *b = &p->buckets[i];

		if (!usable(b->forward_ns) || !usable(b->backward_ns))
			return df_plan_refuse(err, size,
					      "bucket %d: a computation takes no negative time, "
					      "nor more than 13 days",
					      i + 1);
		if (!usable(b->comm_ns) || b->comm_ns <= p->links[0].startup_ns)
			return df_plan_refuse(
				err, size,
				"bucket %d: its communication takes %.6g ms; allowed: more than "
				"the start-up of %.6g ms that is part of it",
				i + 1, (double)b->comm_ns / 1e6,
				(double)p->links[0].startup_ns / 1e6);
		if (b->params < 1 || b->params > (INT64_C(1) << 42))
			return df_plan_refuse(err, size,
					      "bucket %d: %lld parameters; allowed: 1 to 2^42",
					      i + 1, (long long)b->params);
	}
	for (int l = 0; l < p->nr_links; l++) {
		double s = p->links[l].slowdown;

		if (!usable(p->links[l].startup_ns))
			return df_plan_refuse(
				err, size, "link %d: its start-up takes no negative time", l + 1);
		if (!(s >= 1 && s <= 1e4) || (!l && s != 1))
			return df_plan_refuse(
				err, size,
				"link %d: slowdown %g; allowed: 1 for the first link, which is the "
				"fastest, 1 to 10,000 for others",
				l + 1, s);
	}
	if (p->capacity && !(p->capacity >= 1 && p->capacity <= 1000))
		return df_plan_refuse(err, size, "capacity %g; allowed: 1 to 1,000", p->capacity);
	if (df_plan_forward_ns(p) < 1000 || df_plan_backward_ns(p) < 1000)
		return df_plan_refuse(
			err, size,
			"a pass takes less than a microsecond: there is no computation to hide "
			"communication behind");
	return 0;
}

#define SUM(field)                                                                                 \
	int64_t df_plan_##field(const struct df_plan_profile *p)                                   \
	{                                                                                          \
		int64_t sum = 0;                                                                   \
                                                                                                   \
		for (int i = 0; i < p->nr_buckets; i++)                                            \
			sum += p->buckets[i].field;                                                \
		return sum;                                                                        \
	}

SUM(forward_ns)
SUM(backward_ns)
SUM(comm_ns)

void df_plan_release(const struct df_plan_profile *p, int64_t *release)
{
	int64_t t = 0;

	for (int i = p->nr_buckets - 1; i >= 0; i--)
		release[i] = t += p->buckets[i].backward_ns;
}

/*
 * The time of an n-th part of a bucket on a link: an n-th of the bytes, and the whole start-up.
 * Rounded up. Limited, because 13 days times the slowdown of a link can exceed an int64_t.
 */
static int64_t part_ns(const struct df_plan_profile *p, int bucket, int64_t n, int link)
{
	int64_t a = p->links[0].startup_ns;
	double bytes = (double)(p->buckets[bucket].comm_ns - a) / (double)n;

	return p->links[link].startup_ns +
	       (int64_t)fmin(ceil(bytes * p->links[link].slowdown - 1e-6), 0x1p62);
}

int df_plan_partition(const struct df_plan_profile *p, struct df_plan_item *items)
{
	int slowest = 0, nr = 0;
	int64_t room = df_plan_forward_ns(p);

	if (df_plan_backward_ns(p) < room)
		room = df_plan_backward_ns(p);
	for (int l = 1; l < p->nr_links; l++)
		if (p->links[l].slowdown > p->links[slowest].slowdown)
			slowest = l;
	for (int i = 0; i < p->nr_buckets; i++) {
		int n = 1;

		while (n <= DF_PLAN_BUCKETS - nr && part_ns(p, i, n, slowest) > room)
			n++;
		if (n > DF_PLAN_BUCKETS - nr)
			return -ERANGE;
		for (int k = 0; k < n; k++) {
			struct df_plan_item *it = &items[nr++];

			*it = (struct df_plan_item){.bucket = i, .part = k, .parts = n};
			for (int l = 0; l < p->nr_links; l++)
				it->ns[l] = part_ns(p, i, n, l);
		}
	}
	return nr;
}
