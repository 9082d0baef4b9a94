/*
 * The unfinished operations are in `ops`, in no order; `places` finds them. An operation begins
 * with its OP_START; on lanes with its issue, because there a start is recorded late or not at all.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/base/vec.h"
#include "trace/read/compact.h"
#include "trace/read/live/follow.h"
#include "trace/read/reader.h"

struct df_follow_op {
	uint64_t serial, issued_ns, began_ns;
	uint32_t comm, kind;
};

static int issue(struct df_follow *f, const struct df_rec *r)
{
	uint32_t flags = (uint32_t)(r->a >> 24) & 0xff;
	uint64_t *place;
	struct df_follow_op *op;

	/* Its end will not be recorded. */
	if ((flags & DF_OP_BY_NCCL) && !(flags & DF_OP_END_SEEN))
		return 0;
	place = df_map_at(&f->places, r->op, r->comm);
	op = place ? DF_VEC_PUSH(f->ops, f->nr_ops, f->cap_ops) : NULL;
	if (!op)
		return -ENOMEM;
	*op = (struct df_follow_op){r->op, r->time_ns, r->time_ns, r->comm, (uint32_t)r->a & 0xff};
	*place = f->nr_ops;
	return 0;
}

/* Removes an operation: the last one moves to its position. */
static void take_out(struct df_follow *f, uint64_t *place)
{
	struct df_follow_op *op = &f->ops[*place - 1], *last = &f->ops[--f->nr_ops];
	uint64_t *moved = df_map_find(&f->places, last->serial, last->comm);

	*moved = *place;
	*place = 0;
	*op = *last;
}

static int end(struct df_follow *f, const struct df_rec *r, uint64_t *place)
{
	const struct df_follow_op op = f->ops[*place - 1];
	uint64_t *ns, *nr;

	take_out(f, place);
	/* The operation was aborted, or its end will not be seen. */
	if (r->a)
		return 0;
	ns = df_map_at(&f->took, op.comm, op.kind);
	nr = df_map_at(&f->ended, op.comm, op.kind);
	if (!ns || !nr)
		return -ENOMEM;
	*ns += r->time_ns > op.began_ns ? r->time_ns - op.began_ns : 0;
	++*nr;
	return 0;
}

static int take(struct df_follow *f, const struct df_rec *r, int on_lanes)
{
	uint64_t *place;

	if (r->type == DF_REC_OP_ISSUE)
		return issue(f, r);
	if (r->type != DF_REC_OP_START && r->type != DF_REC_OP_DONE)
		return 0;
	place = df_map_find(&f->places, r->op, r->comm);
	if (!place || !*place)
		return 0;
	if (r->type == DF_REC_OP_DONE)
		return end(f, r, place);
	if (!on_lanes)
		f->ops[*place - 1].began_ns = r->time_ns;
	return 0;
}

/* Rebuilds `places`. */
static int index_ops(struct df_follow *f)
{
	struct df_map fresh = {0};

	for (size_t i = 0; i < f->nr_ops; i++) {
		uint64_t *place = df_map_at(&fresh, f->ops[i].serial, f->ops[i].comm);

		if (!place) {
			df_map_fini(&fresh);
			return -ENOMEM;
		}
		*place = i + 1;
	}
	df_map_fini(&f->places);
	f->places = fresh;
	return 0;
}

static int newest_first(const void *a, const void *b)
{
	uint64_t x = ((const struct df_follow_op *)a)->serial,
		 y = ((const struct df_follow_op *)b)->serial;

	return x < y ? 1 : x > y ? -1 : 0;
}

static uint64_t nr_open(const struct df_trace_header *ring, uint32_t comm)
{
	const struct df_trace_comm *c =
		(const struct df_trace_comm *)((const char *)ring + ring->off_comms) + comm - 1;

	if (!comm || comm > ring->nr_comms)
		return 0;
	return atomic_load_explicit((_Atomic(uint64_t) *)(uintptr_t)&c->issued,
				    memory_order_relaxed) -
	       atomic_load_explicit((_Atomic(uint64_t) *)(uintptr_t)&c->done, memory_order_relaxed);
}

/*
 * Some ends may have been skipped. Operations of a communicator mostly end in the order of issue,
 * so this keeps the latest ones of each communicator, as many as its counters say are unfinished.
 */
static int drop_surplus(struct df_follow *f, const struct df_trace_header *ring)
{
	struct df_map nr = {0};
	size_t kept = 0;

	qsort(f->ops, f->nr_ops, sizeof(*f->ops), newest_first);
	for (size_t i = 0; i < f->nr_ops; i++) {
		uint64_t *seen = df_map_at(&nr, f->ops[i].comm, 0);

		if (seen && ++*seen <= nr_open(ring, f->ops[i].comm))
			f->ops[kept++] = f->ops[i];
	}
	f->nr_ops = kept;
	df_map_fini(&nr);
	return index_ops(f);
}

static int find_oldest(struct df_follow *f)
{
	for (size_t i = 0; i < f->oldest.cap; i++)
		f->oldest.slots[i].value = 0;
	for (size_t i = 0; i < f->nr_ops; i++) {
		uint64_t *ns = df_map_at(&f->oldest, f->ops[i].comm, 0);

		if (!ns)
			return -ENOMEM;
		if (!*ns || f->ops[i].issued_ns < *ns)
			*ns = f->ops[i].issued_ns;
	}
	return 0;
}

int df_follow_step(struct df_follow *f, const struct df_trace_header *ring)
{
	const struct df_rec *recs = (const struct df_rec *)((const char *)ring + ring->off_recs);
	uint64_t to = atomic_load_explicit((_Atomic(uint64_t) *)(uintptr_t)&ring->next,
					   memory_order_relaxed);
	int rc = 0, skipped = to - f->next > ring->nr_recs / 2;
	struct df_rec r;

	/* Leave room for records that are written during this step. */
	if (skipped)
		f->next = to - ring->nr_recs / 2;
	for (; !rc && f->next < to; f->next++) {
		if (df_compact_record(&r, &recs[f->next & (ring->nr_recs - 1)], f->next))
			rc = take(f, &r, df_header_lanes(ring));
		/* Its writer may still finish it: read it at the next step. */
		else if (to - f->next <= 64)
			break;
		else /* Its writer abandoned it. It may be the end of an operation. */
			skipped = 1;
	}
	if (!rc && skipped)
		rc = drop_surplus(f, ring);
	/* Rebuild the map when most of its keys are of operations that have ended. */
	if (!rc && f->places.nr > 1024 && f->places.nr / 4 > f->nr_ops)
		rc = index_ops(f);
	return rc ? rc : find_oldest(f);
}
