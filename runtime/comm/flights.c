/*
 * Sets of operations in flight: the operations that a stream, an event or a communicator must not
 * overtake.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/backend.h"
#include "runtime/base/vec.h"
#include "runtime/comm/flights.h"
#include "runtime/executor.h"

void df_flights_prune(struct df_flights *s)
{
	uint32_t i, n = 0;

	for (i = 0; i < s->nr; i++)
		if (!df_flight_done(&s->v[i]))
			s->v[n++] = s->v[i];
	s->nr = n;
	s->prune_at = n * 2 + 16;
}

int df_flights_add(struct df_flights *s, const struct df_flight *f)
{
	if (s->nr >= s->prune_at)
		df_flights_prune(s);
	if (DF_VEC_ROOM(s->v, s->cap, s->nr + 1))
		return -ENOMEM;
	s->v[s->nr] = *f;
	s->v[s->nr++].at = ++s->added;
	return 0;
}

#define FEW 64 /* up to this many comparisons, searching the array is cheaper than a hash table */

/*
 * Hash table over a set, with open addressing. An entry is an index in the set plus 1; 0 is empty.
 */
struct index {
	uint32_t *v, mask;
};

static uint32_t hash(const struct df_flight *f)
{
	uint64_t h =
		((uintptr_t)f->done ^ f->value * 0x9e3779b97f4a7c15ull) * 0xd1342543de82ef95ull;

	return (uint32_t)(h >> 32);
}

static int same(const struct df_flight *a, const struct df_flight *b)
{
	return a->done == b->done && a->value == b->value;
}

static void index_put(struct index *x, const struct df_flights *s, uint32_t i)
{
	uint32_t at = hash(&s->v[i]) & x->mask;

	while (x->v[at])
		at = (at + 1) & x->mask;
	x->v[at] = i + 1;
}

static int index_has(const struct index *x, const struct df_flights *s, const struct df_flight *f)
{
	uint32_t at;

	for (at = hash(f) & x->mask; x->v[at]; at = (at + 1) & x->mask)
		if (same(&s->v[x->v[at] - 1], f))
			return 1;
	return 0;
}

static int has(const struct df_flights *s, const struct df_flight *f)
{
	uint32_t i;

	for (i = 0; i < s->nr; i++)
		if (same(&s->v[i], f))
			return 1;
	return 0;
}

int df_flights_join_part(struct df_flights *s, const struct df_flights *from, uint64_t after,
			 uint64_t upto)
{
	struct index x = {NULL, 0};
	uint32_t i;
	int ret = 0;

	/*
	 * If both sets are large, comparing all pairs would take longer than the operations
	 * themselves.
	 */
	if (s->nr > FEW / 4 && from->nr > FEW / s->nr) {
		df_flights_prune(s);
		x.mask = 15;
		while (x.mask < 2 * (s->nr + from->nr))
			x.mask = x.mask * 2 + 1;
		x.v = calloc((size_t)x.mask + 1, sizeof(*x.v));
		if (!x.v)
			return -ENOMEM;
		for (i = 0; i < s->nr; i++)
			index_put(&x, s, i);
		/* Places in the table hold only while nothing is pruned. */
		s->prune_at = s->nr + from->nr + 1;
	}
	for (i = 0; i < from->nr && !ret; i++) {
		const struct df_flight *f = &from->v[i];

		if (f->at <= after || f->at > upto || df_flight_done(f) ||
		    (x.v ? index_has(&x, s, f) : has(s, f)))
			continue;
		ret = df_flights_add(s, f);
		if (!ret && x.v)
			index_put(&x, s, s->nr - 1);
	}
	free(x.v);
	return ret;
}

int df_flights_join(struct df_flights *s, const struct df_flights *from)
{
	return df_flights_join_part(s, from, 0, UINT64_MAX);
}

int df_flights_done(const struct df_flights *s)
{
	uint32_t i;

	for (i = 0; i < s->nr; i++)
		if (!df_flight_done(&s->v[i]))
			return 0;
	return 1;
}

void df_flights_free(struct df_flights *s)
{
	free(s->v);
	memset(s, 0, sizeof(*s));
}

static int touch(uintptr_t a, uintptr_t a_end, uintptr_t b, uintptr_t b_end)
{
	return a < b_end && b < a_end;
}

int df_touch_concerns(const struct df_touch *t, const struct df_flight *f)
{
	return touch(t->in, t->in_end, f->out, f->out_end) ||
	       touch(t->out, t->out_end, f->in, f->in_end) ||
	       touch(t->out, t->out_end, f->out, f->out_end);
}

uint32_t df_flights_conflicts(const struct df_flights *s, uint64_t upto, const struct df_flight *f,
			      struct df_before *out, uint32_t max)
{
	const struct df_touch t = {f->in, f->in_end, f->out, f->out_end};
	uint32_t i, n = 0;

	for (i = 0; i < s->nr && s->v[i].at <= upto; i++) {
		const struct df_flight *e = &s->v[i];

		/*
		 * Operations of one queue end in their order anyway. Operations of
		 * one group are not ordered among themselves, whatever they touch.
		 */
		if (e->group == f->group || (e->queue && e->queue == f->queue) ||
		    !df_touch_concerns(&t, e) || df_flight_done(e))
			continue;
		if (n < max) {
			out[n].wait.addr = e->done;
			out[n].wait.value = e->value;
			out[n].op = e->op;
		}
		n++;
	}
	return n;
}
