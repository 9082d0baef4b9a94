/*
 * Reads all-reduces from traces and finds the iteration in them.
 *
 * The sizes of a data-parallel job's all-reduces repeat with each iteration once its buckets are
 * final. The period of their last half is the iteration. A job that ended has completed its last
 * iteration. For other jobs the longest time without a new gradient is assumed to lie between
 * iterations: it contains the end of an iteration's communication, the optimizer, the forward pass,
 * and the backward pass of the last bucket. The part of the forward pass is not visible: a share of
 * all computation is assumed.
 *
 * The time when a gradient was ready is visible if the link was free or shared. Behind another
 * transfer it is only known to lie between the call and the start, and the call is used. The time
 * of a transfer is the time that it has the link to itself; the shortest over all ranks, because
 * the others also wait for the last rank.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "trace/plan/plan_observe.h"
#include "trace/read/load.h"
#include "runtime/base/vec.h"
#include "trace/record/names.h"

/* A transfer that starts this soon after the previous one had waited for it. */
#define QUEUED_NS 100000

struct reduce {
	uint64_t index, bytes;
	int64_t params;
	int64_t issue, start, done;
	int64_t ready, alone; /* alone: time with the link to itself */
};

/* The all-reduces of one rank on one communicator, in order. */
struct series {
	uint64_t hash, bytes;
	int rank;
	struct reduce *ops;
	size_t nr, cap;
};

struct observing {
	struct series *series;
	size_t nr, cap;
	int unended; /* traces of processes that did not end */
	char *err;
	size_t err_size;
};

static int fail(struct observing *w, int rc, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static int fail(struct observing *w, int rc, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(w->err, w->err_size, fmt, ap);
	va_end(ap);
	return rc;
}

static struct series *series_of(struct observing *w, size_t from, uint64_t hash, int rank)
{
	struct series *s;

	for (size_t i = from; i < w->nr; i++)
		if (w->series[i].hash == hash && w->series[i].rank == rank)
			return &w->series[i];
	s = DF_VEC_PUSH(w->series, w->nr, w->cap);
	if (s)
		*s = (struct series){.hash = hash, .rank = rank};
	return s;
}

static int by_index(const void *a, const void *b)
{
	const struct reduce *x = a, *y = b;

	return (x->index > y->index) - (x->index < y->index);
}

/* Collects all-reduces whose end was recorded, by communicator and rank. */
static int collect(struct observing *w, const struct df_load *l, const struct df_reader *r)
{
	size_t from = w->nr;

	for (size_t i = 0; i < l->nr_ops; i++) {
		const struct df_lop *op = &l->ops[i];
		const struct df_trace_comm *c = df_reader_comm(r, op->comm);
		struct reduce *slot;
		struct series *s;

		if (op->kind != DF_KIND_ALLREDUCE || op->state != DF_OP_FINISHED || !op->count ||
		    op->count > 1ull << 42 || !c || !op->done_ns || df_lop_blind(op))
			continue;
		s = series_of(w, from, c->hash, op->rank);
		slot = s ? DF_VEC_PUSH(s->ops, s->nr, s->cap) : NULL;
		if (!slot)
			return -ENOMEM;
		*slot = (struct reduce){
			.index = op->index,
			.bytes = op->count * df_dtype_bytes(op->type),
			.params = (int64_t)op->count,
			.issue = (int64_t)op->issue_ns,
			.start = (int64_t)(op->start_ns ? op->start_ns : op->issue_ns),
			.done = (int64_t)op->done_ns};
		s->bytes += slot->bytes;
	}
	for (size_t i = from; i < w->nr; i++)
		qsort(w->series[i].ops, w->series[i].nr, sizeof(struct reduce), by_index);
	return 0;
}

static int read_all(struct observing *w, char **paths, size_t nr)
{
	struct df_load l;
	int rc = 0;

	df_load_init(&l);
	for (size_t i = 0; i < nr && !rc; i++) {
		const char *base = strrchr(paths[i], '/'), *why = NULL;
		struct df_reader r;

		base = base ? base + 1 : paths[i];
		rc = df_reader_open(&r, paths[i], &why);
		if (rc) {
			rc = fail(w, rc, "%s: %s", base, why ? why : strerror(-rc));
			break;
		}
		rc = df_load_trace(&l, &r);
		if (!rc)
			rc = collect(w, &l, &r);
		w->unended += !r.h.closed;
		df_reader_close(&r);
		if (rc)
			fail(w, rc, "%s: %s", base, strerror(-rc));
	}
	df_load_fini(&l);
	return rc;
}

/* Keeps only the communicator that reduces most bytes, with its longest series first. */
static int keep_one(struct observing *w)
{
	uint64_t best = 0, hash = 0;
	size_t kept = 0;

	for (size_t i = 0; i < w->nr; i++) {
		uint64_t sum = 0;

		for (size_t j = 0; j < w->nr; j++)
			if (w->series[j].hash == w->series[i].hash)
				sum += w->series[j].bytes;
		if (sum > best) {
			best = sum;
			hash = w->series[i].hash;
		}
	}
	if (!best)
		return fail(
			w, -EINVAL,
			"the trace holds no all-reduce whose end was recorded; record the job with "
			"`dfshim run --trace DIR`");
	for (size_t i = 0; i < w->nr; i++) {
		struct series s = w->series[i];

		if (s.hash == hash) {
			w->series[i] = w->series[kept];
			w->series[kept] = s;
			if (s.nr > w->series[0].nr) {
				w->series[kept] = w->series[0];
				w->series[0] = s;
			}
			kept++;
		}
	}
	while (w->nr > kept)
		free(w->series[--w->nr].ops);
	return 0;
}

/* Computes when each gradient was ready, and how long it had the link to itself. */
static void times(struct series *s)
{
	int64_t busy = 0, ready = 0;

	for (size_t i = 0; i < s->nr; i++) {
		struct reduce *op = &s->ops[i];
		int64_t begin = op->start > busy ? op->start : busy;

		op->ready = op->start;
		if (i && op->start >= busy && op->start - busy < QUEUED_NS)
			op->ready = op->issue;
		if (op->ready < ready)
			op->ready = ready;
		ready = op->ready;
		op->alone = op->done > begin ? op->done - begin : 1;
		if (op->done > busy)
			busy = op->done;
	}
}

/* The rank that waits least for the others is the last one: its computation counts. */
static void last_rank_first(struct observing *w)
{
	size_t longest = w->series[0].nr;
	int64_t least = INT64_MAX;

	for (size_t i = 0; i < w->nr; i++) {
		struct series s = w->series[i];
		int64_t sum = 0;

		for (size_t k = s.nr / 2; k < s.nr; k++)
			sum += s.ops[k].alone;
		/* A trace that ends early would seem to wait less. */
		if (2 * s.nr < longest)
			continue;
		sum /= (int64_t)(s.nr - s.nr / 2);
		if (sum < least) {
			least = sum;
			w->series[i] = w->series[0];
			w->series[0] = s;
		}
	}
}

/* -- the period ------------------------------------------------------------------------------- */

/* The number of all-reduces at the end that repeat those p before. */
static size_t repeats(const struct series *s, size_t p)
{
	size_t n = 0;

	while (n + p < s->nr && s->ops[s->nr - 1 - n].bytes == s->ops[s->nr - 1 - n - p].bytes)
		n++;
	return n;
}

static int64_t gap(const struct series *s, size_t i)
{
	return s->ops[i].ready - s->ops[i - 1].ready;
}

/*
 * Returns the distance between gaps of at least this length; 0 if less than four fifths of the
 * distances are equal.
 */
static size_t apart(const struct series *s, int64_t bound)
{
	size_t last = 0, best = 0, nr = 0;
	size_t far[64] = {0}; /* gaps, by their distance from the previous one */

	for (size_t i = s->nr / 2; i < s->nr; i++) {
		if (gap(s, i) < bound)
			continue;
		if (last) {
			nr++;
			far[i - last < 64 ? i - last : 0]++;
		}
		last = i;
	}
	for (size_t d = 1; d < 64; d++)
		if (far[d] > far[best])
			best = d;
	return best && far[best] >= 2 && far[best] * 5 >= nr * 4 ? best : 0;
}

/*
 * Finds the period of equal buckets, whose sizes do not show where an iteration ends. The longest
 * gaps are assumed to lie between iterations if they are equally far apart. Returns 1 if not.
 */
static size_t by_gaps(const struct series *s)
{
	int64_t top[3] = {0};

	for (size_t i = s->nr / 2; i < s->nr; i++)
		for (int k = 0; k < 3; k++)
			if (gap(s, i) > top[k]) {
				memmove(&top[k + 1], &top[k], (size_t)(2 - k) * sizeof(*top));
				top[k] = gap(s, i);
				break;
			}
	for (int tenths = 9; tenths >= 5; tenths--) {
		size_t d = apart(s, top[2] * tenths / 10);

		if (d > 1)
			return d;
	}
	return 1;
}

/* Returns the shortest period at the end, or 0. */
static size_t shortest_period(const struct series *s, size_t given)
{
	for (size_t p = given ? given : 1; 3 * p <= s->nr && p <= 2 * DF_PLAN_BUCKETS; p++) {
		size_t n = repeats(s, p);

		if (n >= 2 * p && (given || n >= s->nr / 2))
			return p;
		if (given)
			return 0;
	}
	return 0;
}

/* Limit of the all-reduces that a job executes after its last iteration. */
#define AFTER_MAX 16

static int period(struct observing *w, const struct df_plan_hints *hints, size_t *out)
{
	struct series *s = &w->series[0];
	size_t given = (size_t)hints->nr_buckets, nr = s->nr;

	for (size_t after = 0; after <= AFTER_MAX && after < nr / 4 + 1; after++) {
		s->nr = nr - after;
		*out = shortest_period(s, given);
		if (*out == 1 && !given)
			*out = by_gaps(s);
		if (*out)
			return 0;
	}
	if (given)
		return fail(w, -EINVAL,
			    "the all-reduces do not repeat after %zu: an iteration has another "
			    "number of buckets, or fewer than three iterations were recorded",
			    given);
	return fail(w, -EINVAL,
		    "no period in %zu all-reduces: their sizes do not repeat, or fewer than three "
		    "iterations were recorded; --buckets N says how many an iteration has",
		    nr);
}

/* -- medians ---------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
	const int64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static int64_t median(int64_t *v, size_t n)
{
	qsort(v, n, sizeof(*v), by_value);
	return v[n / 2];
}

/* The shortest time, over all ranks, that this transfer had the link to itself. */
static int64_t shortest(const struct observing *w, const struct reduce *op)
{
	int64_t ns = op->alone;

	for (size_t i = 1; i < w->nr; i++) {
		const struct reduce *o =
			bsearch(op, w->series[i].ops, w->series[i].nr, sizeof(*op), by_index);

		if (o && o->bytes == op->bytes && o->alone < ns)
			ns = o->alone;
	}
	return ns;
}

/*
 * Where iterations begin: where the last one ends, if the job ended; else before the longest median
 * gap. The all-reduces repeat from `first` on.
 */
static size_t begins(const struct observing *w, size_t first, size_t p, int64_t *v)
{
	const struct series *s = &w->series[0];
	int64_t longest = -1;
	size_t at = first;

	if (!w->unended)
		return first + (s->nr - first) % p;
	for (size_t f = first; f < first + p; f++) {
		size_t n = 0;
		int64_t g;

		for (size_t i = f; i < s->nr; i += p)
			if (i)
				v[n++] = gap(s, i);
		g = n ? median(v, n) : 0;
		if (g > longest) {
			longest = g;
			at = f;
		}
	}
	return at;
}

/* A bucket, in the order of communication: output side first. */
struct seen {
	int64_t params, comm,
		since; /* since the previous gradient, or the end of the previous iteration */
	uint64_t bytes;
};

/*
 * Measures iterations of p all-reduces each, from index `at` on. At least one iteration precedes
 * it, because each time is measured from an earlier operation.
 */
static void measure(const struct observing *w, size_t at, size_t p, size_t nr_iterations,
		    struct seen *seen, int64_t *v, struct df_plan_observed *o)
{
	const struct series *s = &w->series[0];

	for (size_t b = 0; b < p; b++) {
		for (size_t k = 0; k < nr_iterations; k++) {
			size_t i = at + k * p + b;
			int64_t before = s->ops[i - 1].ready;

			if (!b) {
				before = 0;
				for (size_t j = i - p; j < i; j++)
					if (s->ops[j].done > before)
						before = s->ops[j].done;
			}
			v[k] = s->ops[i].ready > before ? s->ops[i].ready - before : 0;
		}
		seen[b].since = median(v, nr_iterations);
		for (size_t k = 0; k < nr_iterations; k++)
			v[k] = shortest(w, &s->ops[at + k * p + b]);
		seen[b].comm = median(v, nr_iterations);
		seen[b].params = s->ops[at + b].params;
		seen[b].bytes = s->ops[at + b].bytes;
	}
	for (size_t k = 0; k < nr_iterations; k++)
		v[k] = s->ops[at + k * p].ready - s->ops[at + (k - 1) * p].ready;
	o->iteration_ns = (double)median(v, nr_iterations);
}

/*
 * Losses and flags are reduced too: less than a thousandth of the bytes is not a bucket. Returns
 * the number of buckets left.
 */
static size_t without_small(struct seen *seen, size_t p, struct df_plan_observed *o)
{
	uint64_t all = 0;
	size_t n = 0;

	for (size_t b = 0; b < p; b++)
		all += seen[b].bytes;
	for (size_t b = 0; b < p; b++) {
		if (seen[b].bytes < all / 1000) {
			/* Its computation counts for the next gradient, if there is one. */
			if (b + 1 < p)
				seen[b + 1].since += seen[b].since;
			o->nr_small++;
			continue;
		}
		seen[n++] = seen[b];
	}
	return n;
}

static void fill(struct df_plan_profile *p, const struct seen *seen, size_t n, double share)
{
	int64_t backward = 0, forward, all = 0;

	for (size_t b = 0; b < n; b++)
		all += seen[b].since;
	forward = (int64_t)((double)all * share);
	if (forward > seen[0].since)
		forward = seen[0].since;
	backward = all - forward;
	p->nr_buckets = (int)n;
	for (size_t b = 0; b < n; b++) {
		struct df_plan_bucket *to = &p->buckets[n - 1 - b];

		to->backward_ns = seen[b].since - (b ? 0 : forward);
		to->forward_ns = backward ? (int64_t)((double)forward * (double)to->backward_ns /
						      (double)backward)
					  : 0;
		to->comm_ns = seen[b].comm;
		to->params = seen[b].params;
	}
	if (!p->nr_links) {
		p->nr_links = 1;
		p->links[0] = (struct df_plan_link){.name = "link", .slowdown = 1};
	}
}

static int profile(struct observing *w, struct df_plan_profile *p, struct df_plan_observed *o,
		   const struct df_plan_hints *hints)
{
	const struct series *s = &w->series[0];
	size_t at, per = 0, n, nr_iterations;
	struct seen *seen;
	int64_t *v;
	int rc;

	for (size_t i = 0; i < w->nr; i++)
		times(&w->series[i]);
	last_rank_first(w);
	rc = period(w, hints, &per);
	if (rc)
		return rc;
	v = malloc(s->nr * sizeof(*v));
	seen = calloc(per, sizeof(*seen));
	if (!v || !seen) {
		rc = fail(w, -ENOMEM, "out of memory");
		goto done;
	}
	at = begins(w, s->nr - repeats(s, per) - per, per, v);
	at += per;
	nr_iterations = at < s->nr ? (s->nr - at) / per : 0;
	if (!nr_iterations) {
		rc = fail(w, -EINVAL, "fewer than two whole iterations were recorded");
		goto done;
	}
	o->nr_ranks = (int)w->nr;
	o->nr_iterations = (int)nr_iterations;
	measure(w, at, per, nr_iterations, seen, v, o);
	n = without_small(seen, per, o);
	if (n > DF_PLAN_BUCKETS)
		rc = fail(w, -EINVAL, "%zu buckets; allowed: 1 to %d", n, DF_PLAN_BUCKETS);
	else
		fill(p, seen, n, hints->forward_share ? hints->forward_share : 1 / 3.0);
done:
	free(seen);
	free(v);
	return rc;
}

int df_plan_observe(struct df_plan_profile *p, struct df_plan_observed *o, char **paths, size_t nr,
		    const struct df_plan_hints *hints, char *err, size_t size)
{
	struct observing w = {.err = err, .err_size = size};
	int rc = read_all(&w, paths, nr);

	memset(o, 0, sizeof(*o));
	if (!rc)
		rc = keep_one(&w);
	if (!rc)
		rc = profile(&w, p, o, hints);
	for (size_t i = 0; i < w.nr; i++)
		free(w.series[i].ops);
	free(w.series);
	return rc;
}
