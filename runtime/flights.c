/*
 * Sets of operations in flight: what a stream, an event or a communicator must not run ahead of. Guarded by
 * the lock of the device they belong to.
 */
#include <stdlib.h>
#include <string.h>
#include "runtime/rt.h"

void df_flights_prune(struct df_flights *s)
{
	uint32_t i, n = 0;

	for (i = 0; i < s->nr; i++)
		if (!df_flight_done(&s->v[i]))
			s->v[n++] = s->v[i];
	s->nr = n;
	s->prune_at = n * 2 + 16;
}

static int grow(struct df_flights *s)
{
	uint32_t cap = s->cap ? s->cap * 2 : 16;
	struct df_flight *v = realloc(s->v, cap * sizeof(*v));

	if (!v)
		return -ENOMEM;
	s->v = v;
	s->cap = cap;
	return 0;
}

int df_flights_add(struct df_flights *s, const struct df_flight *f)
{
	if (s->nr >= s->prune_at)
		df_flights_prune(s);
	if (s->nr == s->cap && grow(s))
		return -ENOMEM;
	s->v[s->nr++] = *f;
	return 0;
}

int df_flights_join(struct df_flights *s, const struct df_flights *from)
{
	uint32_t i, j;
	int ret;

	for (i = 0; i < from->nr; i++) {
		const struct df_flight *f = &from->v[i];

		if (df_flight_done(f))
			continue;
		for (j = 0; j < s->nr; j++)
			if (s->v[j].done == f->done && s->v[j].value == f->value)
				break;
		if (j < s->nr)
			continue;
		ret = df_flights_add(s, f);
		if (ret)
			return ret;
	}
	return 0;
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
