/* Symbolic values: tables that only grow, ids that never change. One owner, no locks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/err.h"
#include "runtime/base/vec.h"
#include "runtime/program/plan.h"
#include "runtime/program/verify/sym.h"

int df_sym_init(struct df_sym *s, uint32_t nranks, uint32_t chunks)
{
	*s = (struct df_sym){
		.nranks = nranks, .chunks = chunks, .expr_mask = 1023, .set_mask = 1023};
	s->expr_map = calloc(1024, sizeof(*s->expr_map));
	s->set_map = calloc(1024, sizeof(*s->set_map));
	if (!s->expr_map || !s->set_map || DF_VEC_ROOM(s->expr, s->cap_expr, 1) ||
	    DF_VEC_ROOM(s->set, s->cap_set, 1) || DF_VEC_ROOM(s->entry, s->cap_entry, 1)) {
		df_sym_fini(s);
		return -ENOMEM;
	}
	memset(s->expr, 0, sizeof(*s->expr));
	memset(s->set, 0, sizeof(*s->set));
	s->nr_expr = s->nr_set = 1;
	return 0;
}

void df_sym_fini(struct df_sym *s)
{
	free(s->expr_map);
	free(s->set_map);
	free(s->expr);
	free(s->set);
	free(s->entry);
	memset(s, 0, sizeof(*s));
}

static uint64_t expr_hash(const struct df_sym_expr *e)
{
	return e->a ? df_hash_u64(e->a, e->b) : df_hash_u64(~0ull, e->set);
}

static int rehash(uint32_t **map, uint32_t *mask, uint32_t nr,
		  uint64_t (*hash)(struct df_sym *, uint32_t), struct df_sym *s)
{
	uint32_t m = *mask * 2 + 1, *t;

	if (nr * 2ull < *mask)
		return 0;
	t = calloc((size_t)m + 1, sizeof(*t));
	if (!t)
		return -ENOMEM;
	for (uint32_t i = 1; i < nr; i++) {
		uint32_t k = (uint32_t)hash(s, i) & m;

		while (t[k])
			k = (k + 1) & m;
		t[k] = i;
	}
	free(*map);
	*map = t;
	*mask = m;
	return 0;
}

static uint64_t hash_of_expr(struct df_sym *s, uint32_t i)
{
	return expr_hash(&s->expr[i]);
}

static uint64_t hash_of_set(struct df_sym *s, uint32_t i)
{
	return s->set[i].hash;
}

static uint32_t add_expr(struct df_sym *s, struct df_sym_expr e)
{
	uint32_t k = (uint32_t)expr_hash(&e) & s->expr_mask;

	for (; s->expr_map[k]; k = (k + 1) & s->expr_mask) {
		const struct df_sym_expr *o = &s->expr[s->expr_map[k]];

		if (o->a == e.a && o->b == e.b && (e.a || o->set == e.set))
			return s->expr_map[k];
	}
	if (DF_VEC_ROOM(s->expr, s->cap_expr, s->nr_expr + 1ull)) {
		s->err = -ENOMEM;
		return 0;
	}
	s->expr[s->nr_expr] = e;
	s->expr_map[k] = s->nr_expr++;
	if (rehash(&s->expr_map, &s->expr_mask, s->nr_expr, hash_of_expr, s))
		s->err = -ENOMEM;
	return s->nr_expr - 1;
}

/*
 * Returns the index of the set that consists of the nr entries from s->entry[s->nr_entry] on. If
 * there is no such set yet, it is added and keeps these entries.
 */
static uint32_t add_set(struct df_sym *s, uint32_t nr)
{
	const uint64_t *e = s->entry + s->nr_entry;
	struct df_sym_set set = {.first = s->nr_entry, .nr = nr, .low = UINT32_MAX, .complete = 1};
	uint32_t k;

	for (uint32_t i = 0; i < nr; i++) {
		uint32_t part = (uint32_t)e[i] % s->chunks;

		set.hash = df_hash_u64(set.hash, e[i]);
		if (part < set.low)
			set.low = part;
		if (i && e[i] == e[i - 1])
			set.dup = 1;
		if (e[i] >> 32 != i || (uint32_t)e[i] != (uint32_t)e[0])
			set.complete = 0;
	}
	if (nr != s->nranks)
		set.complete = 0;
	for (k = (uint32_t)set.hash & s->set_mask; s->set_map[k]; k = (k + 1) & s->set_mask) {
		const struct df_sym_set *o = &s->set[s->set_map[k]];

		if (o->hash == set.hash && o->nr == nr &&
		    !memcmp(s->entry + o->first, e, nr * sizeof(*e)))
			return s->set_map[k];
	}
	if (DF_VEC_ROOM(s->set, s->cap_set, s->nr_set + 1ull)) {
		s->err = -ENOMEM;
		return 0;
	}
	s->set[s->nr_set] = set;
	s->nr_entry += nr;
	s->set_map[k] = s->nr_set++;
	if (rehash(&s->set_map, &s->set_mask, s->nr_set, hash_of_set, s))
		s->err = -ENOMEM;
	return s->nr_set - 1;
}

uint32_t df_sym_leaf(struct df_sym *s, uint32_t rank, uint32_t chunk)
{
	struct df_sym_expr e = {0};

	if (DF_VEC_ROOM(s->entry, s->cap_entry, s->nr_entry + 1ull)) {
		s->err = -ENOMEM;
		return 0;
	}
	s->entry[s->nr_entry] = (uint64_t)rank << 32 | chunk;
	e.set = add_set(s, 1);
	return s->err ? 0 : add_expr(s, e);
}

uint32_t df_sym_join(struct df_sym *s, uint32_t a, uint32_t b)
{
	struct df_sym_expr e = {a < b ? a : b, a < b ? b : a, 0};
	uint32_t k = (uint32_t)expr_hash(&e) & s->expr_mask, nr, i = 0, j = 0, n = 0;
	const struct df_sym_set *x, *y;
	const uint64_t *ex, *ey;
	uint64_t *out;

	if (!a || !b)
		return 0;
	for (; s->expr_map[k]; k = (k + 1) & s->expr_mask) {
		const struct df_sym_expr *o = &s->expr[s->expr_map[k]];

		if (o->a == e.a && o->b == e.b)
			return s->expr_map[k];
	}
	x = &s->set[s->expr[a].set];
	y = &s->set[s->expr[b].set];
	nr = x->nr + y->nr;
	/* An erroneous program may double the size of a value in every step. */
	if (nr > 1u << 20 || DF_VEC_ROOM(s->entry, s->cap_entry, s->nr_entry + (uint64_t)nr)) {
		s->err = -ENOMEM;
		return 0;
	}
	out = s->entry + s->nr_entry;
	ex = s->entry + x->first;
	ey = s->entry + y->first;
	while (i < x->nr && j < y->nr)
		out[n++] = ex[i] <= ey[j] ? ex[i++] : ey[j++];
	while (i < x->nr)
		out[n++] = ex[i++];
	while (j < y->nr)
		out[n++] = ey[j++];
	e.set = add_set(s, nr);
	return s->err ? 0 : add_expr(s, e);
}

static int cmp64(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

uint32_t df_sym_want(struct df_sym *s, uint64_t *entries, uint32_t nr)
{
	if (DF_VEC_ROOM(s->entry, s->cap_entry, s->nr_entry + (uint64_t)nr)) {
		s->err = -ENOMEM;
		return 0;
	}
	qsort(entries, nr, sizeof(*entries), cmp64);
	memcpy(s->entry + s->nr_entry, entries, nr * sizeof(*entries));
	return add_set(s, nr);
}

const char *df_sym_str(const struct df_sym *s, uint32_t set, char *buf, size_t size)
{
	const struct df_sym_set *x = &s->set[set];
	size_t n = 0;

	snprintf(buf, size, "nothing");
	for (uint32_t i = 0; set && i < x->nr && n < size; i++) {
		uint64_t e = s->entry[x->first + i];

		if (n + 40 > size) {
			snprintf(buf + n, size - n, " + %u more", x->nr - i);
			break;
		}
		n += (size_t)snprintf(buf + n, size - n, "%s%u:%u", i ? " + " : "",
				      (uint32_t)(e >> 32), (uint32_t)e);
	}
	return buf;
}
