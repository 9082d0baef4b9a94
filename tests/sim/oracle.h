/*
 * A slow reference for a round of the simulator. Sets are byte matrices, everything is recomputed
 * after every event, and a deadlock means that nothing can move any more. It shares no code with
 * the engines, only the layout of a part and the program of a round. For small parts in tests. Not
 * thread-safe.
 */
#ifndef DF_TEST_SIM_ORACLE_H
#define DF_TEST_SIM_ORACLE_H

#include <stdlib.h>
#include <string.h>

#include "trace/sim/sim_int.h"

#define OR_GPUS	 64
#define OR_COLLS 512

struct oracle {
	const struct df_sim_part *p;
	const struct df_sim_setup *s;
	unsigned char member[OR_GPUS][OR_COLLS], issued[OR_GPUS][OR_COLLS], done[OR_COLLS];
	int rest[OR_GPUS][OR_COLLS], nr_rest[OR_GPUS];	 /* not issued yet, in expected order */
	int order[OR_GPUS][OR_COLLS], nr_order[OR_GPUS]; /* issued, in order of issue */
	int turn[OR_GPUS], rare[OR_GPUS];
	unsigned char hung[OR_GPUS], accepted[OR_GPUS][OR_COLLS];
};

static int or_outstanding(const struct oracle *o, int x, int c)
{
	return o->issued[x][c] && !o->done[c];
}

static int or_nr_outstanding(const struct oracle *o, int x)
{
	int n = 0;

	for (int c = 0; c < o->p->nr_colls; c++)
		n += or_outstanding(o, x, c);
	return n;
}

/*
 * Whether x executes c: c is among the first `slots` unfinished operations in x's order of issue.
 */
static int or_executes(const struct oracle *o, int x, int c)
{
	int before = 0;

	if (!o->issued[x][c])
		return 0;
	if (o->s->method != DF_SIM_BY_SLOTS)
		return 1;
	for (int i = 0; o->order[x][i] != c; i++)
		before += !o->done[o->order[x][i]];
	return before < o->s->slots;
}

static void or_complete(struct oracle *o)
{
	int again = 1;

	while (again) {
		again = 0;
		for (int c = 0; c < o->p->nr_colls; c++) {
			int ready = !o->done[c];

			for (int x = 0; x < o->p->nr_gpus && ready; x++)
				ready = !o->member[x][c] || or_executes(o, x, c);
			again |= ready;
			o->done[c] |= (unsigned char)ready;
		}
	}
}

/* Whether the suspended GPUs block each other for ever, by reduction. */
static int or_locked(const struct oracle *o)
{
	unsigned char stuck[OR_GPUS] = {0};
	int n = o->p->nr_gpus, again = 1, any = 0;

	for (int x = 0; x < n; x++)
		stuck[x] = o->hung[x] && or_nr_outstanding(o, x);
	while (again) {
		again = 0;
		for (int x = 0; x < n; x++) {
			int held = 0;

			for (int c = 0; c < o->p->nr_colls && stuck[x]; c++)
				for (int y = 0; y < n; y++)
					held |= or_outstanding(o, x, c) && stuck[y] &&
						o->member[y][c] && !o->issued[y][c];
			if (stuck[x] && !held) {
				stuck[x] = 0;
				again = 1;
			}
		}
	}
	for (int x = 0; x < n; x++)
		any |= stuck[x];
	return any;
}

static int or_intersects(const struct oracle *o, int x)
{
	int out = 0, in = 0;

	for (int y = 0; y < o->p->nr_gpus; y++)
		for (int c = 0; c < o->p->nr_colls; c++) {
			if (y == x || !o->hung[y] || !or_nr_outstanding(o, y))
				continue;
			out |= or_outstanding(o, x, c) && o->member[y][c] && !o->issued[y][c];
			in |= or_outstanding(o, y, c) && o->member[x][c] && !o->issued[x][c];
		}
	return out && in;
}

static int or_limit_reached(const struct oracle *o)
{
	for (int g = 0; g < o->p->nr_groups; g++) {
		int all = 1;

		for (int m = o->p->group_start[g]; m < o->p->group_start[g + 1]; m++)
			all &= or_nr_outstanding(o, o->p->members[m]) >= o->s->limit;
		if (all)
			return 1;
	}
	return 0;
}

/* The paper's single-queue test, from the multiset of accepted and incomplete submissions. */
static int or_group_state(struct oracle *o, int x, int c)
{
	int g = o->p->coll_group[c], other = 0, all = 1;

	for (int k = 0; k < o->p->nr_colls; k++)
		if (o->p->coll_group[k] == g && o->accepted[x][k])
			return 0;
	o->accepted[x][c] = 1;
	for (int m = o->p->group_start[g]; m < o->p->group_start[g + 1]; m++) {
		int y = o->p->members[m], has = 0;

		for (int k = 0; k < o->p->nr_colls; k++)
			if (o->p->coll_group[k] == g && o->accepted[y][k]) {
				has = 1;
				other |= k != c;
			}
		all &= has;
	}
	for (int y = 0; y < o->p->nr_gpus && all && !other; y++)
		for (int k = 0; k < o->p->nr_colls; k++)
			if (o->p->coll_group[k] == g)
				o->accepted[y][k] = 0;
	return other;
}

/*
 * Whether members of some group issued its collectives in different orders, as far as both have
 * issued them.
 */
static int or_orders_differ(const struct oracle *o)
{
	for (int g = 0; g < o->p->nr_groups; g++)
		for (int m = o->p->group_start[g]; m < o->p->group_start[g + 1]; m++) {
			int x = o->p->members[o->p->group_start[g]], y = o->p->members[m], i = 0,
			    j = 0;

			for (;; i++, j++) {
				while (i < o->nr_order[x] && o->p->coll_group[o->order[x][i]] != g)
					i++;
				while (j < o->nr_order[y] && o->p->coll_group[o->order[y][j]] != g)
					j++;
				if (i == o->nr_order[x] || j == o->nr_order[y])
					break;
				if (o->order[x][i] != o->order[y][j])
					return 1;
			}
		}
	return 0;
}

/* Executes one turn of x. Returns 1 if it leads to a deadlock. */
static int or_turn(struct oracle *o, const struct df_sim_program *prog, int x, int64_t *releases)
{
	int skip = 0, c;

	if (o->rare[x] < prog->start[x + 1] && prog->rare[o->rare[x]].turn == o->turn[x])
		skip = prog->rare[o->rare[x]++].skip;
	else
		skip = -2;
	o->turn[x]++;
	if (skip == DF_SIM_SYNC_CALM || skip == DF_SIM_SYNC_DANGER) {
		if (!or_nr_outstanding(o, x))
			return 0;
		o->hung[x] = 1;
		if (o->s->method == DF_SIM_BY_INTERSECTION)
			return or_intersects(o, x);
		if (o->s->method == DF_SIM_BY_CYCLE && o->s->release && or_locked(o)) {
			o->hung[x] = 0;
			++*releases;
		}
		return 0;
	}
	skip = skip == -2 ? 0 : skip;
	c = o->rest[x][skip];
	memmove(o->rest[x] + skip, o->rest[x] + skip + 1,
		(size_t)(--o->nr_rest[x] - skip) * sizeof(int));
	o->issued[x][c] = 1;
	o->order[x][o->nr_order[x]++] = c;
	switch (o->s->method) {
	case DF_SIM_BY_GROUP_STATE:
		return or_group_state(o, x, c);
	case DF_SIM_BY_GROUP_ORDER:
		return or_orders_differ(o);
	default:
		or_complete(o);
		return o->s->method == DF_SIM_BY_INTERSECTION && o->s->limit > 0 &&
		       or_limit_reached(o);
	}
}

static int oracle_round(const struct df_sim_part *p, const struct df_sim_setup *s,
			const struct df_sim_program *prog, int64_t *releases)
{
	struct oracle *o = calloc(1, sizeof(*o));
	int dead = 0, moved = 1;

	if (!o || p->nr_gpus > OR_GPUS || p->nr_colls > OR_COLLS)
		abort();
	o->p = p;
	o->s = s;
	*releases = 0;
	for (int x = 0; x < p->nr_gpus; x++) {
		o->rare[x] = prog->start[x];
		o->nr_rest[x] = df_sim_list_len(p, x);
		for (int i = 0; i < o->nr_rest[x]; i++) {
			o->rest[x][i] = p->list[p->list_start[x] + i];
			o->member[x][o->rest[x][i]] = 1;
		}
	}
	while (moved && !dead) {
		moved = 0;
		for (int x = 0; x < p->nr_gpus && !dead; x++) {
			if (o->hung[x] && or_nr_outstanding(o, x))
				continue;
			o->hung[x] = 0;
			if (!o->nr_rest[x])
				continue;
			moved = 1;
			dead = or_turn(o, prog, x, releases);
		}
	}
	/* Operations that are not issued or not completed now never will be. */
	for (int x = 0; x < p->nr_gpus; x++)
		dead |= o->nr_rest[x] > 0;
	if (s->method != DF_SIM_BY_GROUP_STATE && s->method != DF_SIM_BY_GROUP_ORDER)
		for (int c = 0; c < p->nr_colls; c++)
			dead |= !o->done[c];
	free(o);
	return dead;
}

#endif
