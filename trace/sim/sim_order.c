/*
 * Decides single-queue models from the excursions alone (sim_int.h says what an excursion is).
 *
 * Strict queue per GPU. The graph has an edge from each collective to the next one in some GPU's
 * queue. The orders of issue admit a schedule exactly when this graph has no cycle. Every edge that
 * leads to a lower collective lies inside an excursion. A cycle between collectives lo and hi must
 * cross each number between them downwards, so the ranges of its excursions cover lo..hi without a
 * gap. So a cycle lies inside one cluster of overlapping ranges, and it is enough to run the queues
 * restricted to each cluster. Without excursions there is no cycle.
 *
 * Queue per GPU and group. Two members of a group block each other exactly when they issue its
 * collectives in different orders. A member without an excursion that touches the group issues the
 * group's collectives in the expected order.
 */
#define _GNU_SOURCE /* qsort_r */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "trace/sim/sim_int.h"

struct df_sim_order {
	const struct df_sim_part *part;
	struct df_sim_excursions ex;
	int *by_low; /* excursions, sorted by their lowest collective */
	int by_low_size;
	/* by collective: number of members whose queue does not have it at the front yet */
	int *missing;
	int *head, *end; /* by GPU: positions in queue[] */
	int *queue;	 /* restricted queues; GPU g's begins at list_start[g] */
	int *ready;	 /* stack of GPUs whose front must be checked */
	int *first_of;	 /* by GPU: its first excursion; entry nr_gpus is the end */
};

struct df_sim_order *df_sim_order_create(const struct df_sim_part *p)
{
	struct df_sim_order *od = calloc(1, sizeof(*od));
	size_t n = (size_t)p->nr_gpus + 1;

	if (!od)
		return NULL;
	od->part = p;
	od->missing = calloc((size_t)p->nr_colls + 1, sizeof(*od->missing));
	od->head = calloc(n, sizeof(*od->head));
	od->end = calloc(n, sizeof(*od->end));
	od->queue = calloc((size_t)p->nr_events + 1, sizeof(*od->queue));
	od->ready = calloc(n, sizeof(*od->ready));
	od->first_of = calloc(n, sizeof(*od->first_of));
	if (df_sim_excursions_init(&od->ex, p) || !od->missing || !od->head || !od->end ||
	    !od->queue || !od->ready || !od->first_of) {
		df_sim_order_destroy(od);
		return NULL;
	}
	return od;
}

void df_sim_order_destroy(struct df_sim_order *od)
{
	if (!od)
		return;
	df_sim_excursions_fini(&od->ex);
	free(od->by_low);
	free(od->missing);
	free(od->head);
	free(od->end);
	free(od->queue);
	free(od->ready);
	free(od->first_of);
	free(od);
}

/* Returns the first position in a GPU's list that holds a collective >= c. */
static int place_of(const struct df_sim_part *p, int gpu, int c)
{
	return df_sim_nr_below(p->list + p->list_start[gpu], df_sim_list_len(p, gpu), c);
}

/*
 * Stores the GPU's queue, restricted to positions a..b-1 of its list, in queue[]. Each excursion
 * must lie wholly inside or wholly outside this range.
 */
static void restricted(struct df_sim_order *od, int gpu, int a, int b)
{
	const struct df_sim_part *p = od->part;
	const int *list = p->list + p->list_start[gpu];
	int *q = od->queue + p->list_start[gpu], n = 0;

	for (int i = od->first_of[gpu]; i < od->first_of[gpu + 1] && a < b; i++) {
		const struct df_sim_excursion *e = &od->ex.v[i];

		if (e->first + e->nr <= a)
			continue;
		while (a < e->first && a < b)
			q[n++] = list[a++];
		if (a == b)
			break;
		memcpy(q + n, e->order, (size_t)e->nr * sizeof(*q));
		n += e->nr;
		a += e->nr;
	}
	while (a < b)
		q[n++] = list[a++];
	od->head[gpu] = p->list_start[gpu];
	od->end[gpu] = p->list_start[gpu] + n;
}

/* Runs the queues restricted to collectives lo..hi. Returns whether they get stuck. */
static int queues_stick(struct df_sim_order *od, int lo, int hi)
{
	const struct df_sim_part *p = od->part;
	int left = hi - lo + 1, nr_ready = 0;

	for (int c = lo; c <= hi; c++)
		od->missing[c] = df_sim_group_size(p, p->coll_group[c]);
	for (int g = 0; g < p->nr_gpus; g++) {
		restricted(od, g, place_of(p, g, lo), place_of(p, g, hi + 1));
		if (od->head[g] < od->end[g])
			od->ready[nr_ready++] = g;
	}
	/* Each GPU on the stack has a new front that has not been counted yet. */
	while (nr_ready) {
		int gpu = od->ready[--nr_ready], c = od->queue[od->head[gpu]];
		int grp = p->coll_group[c];

		if (--od->missing[c])
			continue;
		left--;
		for (int m = p->group_start[grp]; m < p->group_start[grp + 1]; m++) {
			int x = p->members[m];

			if (++od->head[x] < od->end[x])
				od->ready[nr_ready++] = x;
		}
	}
	return left > 0;
}

static int find_excursions(struct df_sim_order *od, const struct df_sim_program *prog)
{
	int rc = df_sim_excursions_find(&od->ex, od->part, prog), i = 0;

	if (rc)
		return rc;
	for (int g = 0; g <= od->part->nr_gpus; g++) {
		while (i < od->ex.nr && od->ex.v[i].gpu < g)
			i++;
		od->first_of[g] = i;
	}
	return 0;
}

static int lowest(const struct df_sim_order *od, int i)
{
	const struct df_sim_excursion *e = &od->ex.v[i];

	return od->part->list[od->part->list_start[e->gpu] + e->first];
}

static int highest(const struct df_sim_order *od, int i)
{
	const struct df_sim_excursion *e = &od->ex.v[i];

	return od->part->list[od->part->list_start[e->gpu] + e->first + e->nr - 1];
}

static int by_lowest(const void *a, const void *b, void *arg)
{
	int x = lowest(arg, *(const int *)a), y = lowest(arg, *(const int *)b);

	return (x > y) - (x < y);
}

int df_sim_order_fifo(struct df_sim_order *od, const struct df_sim_program *prog)
{
	int rc, n;

	if (!prog->nr_disorder)
		return 0;
	rc = find_excursions(od, prog);
	if (rc)
		return rc;
	n = od->ex.nr;
	if (n > od->by_low_size) {
		int *v = realloc(od->by_low, (size_t)n * sizeof(*v));

		if (!v)
			return -ENOMEM;
		od->by_low = v;
		od->by_low_size = n;
	}
	for (int i = 0; i < n; i++)
		od->by_low[i] = i;
	qsort_r(od->by_low, (size_t)n, sizeof(*od->by_low), by_lowest, od);
	for (int i = 0; i < n;) {
		int lo = lowest(od, od->by_low[i]), hi = highest(od, od->by_low[i]);

		while (++i < n && lowest(od, od->by_low[i]) <= hi)
			if (highest(od, od->by_low[i]) > hi)
				hi = highest(od, od->by_low[i]);
		if (queues_stick(od, lo, hi))
			return 1;
	}
	return 0;
}

/* Whether the GPU issues the collectives of a group in another order than expected. */
static int order_changed(const struct df_sim_order *od, int gpu, int grp)
{
	for (int i = od->first_of[gpu]; i < od->first_of[gpu + 1]; i++) {
		const struct df_sim_excursion *e = &od->ex.v[i];
		int last = -1;

		for (int k = 0; k < e->nr; k++) {
			if (od->part->coll_group[e->order[k]] != grp)
				continue;
			if (e->order[k] < last)
				return 1;
			last = e->order[k];
		}
	}
	return 0;
}

/* Stores the GPU's order of a group's collectives in out[]; returns their number. */
static int group_order(struct df_sim_order *od, int gpu, int grp, int *out)
{
	const struct df_sim_part *p = od->part;
	int n = 0;

	restricted(od, gpu, 0, df_sim_list_len(p, gpu));
	for (int i = od->head[gpu]; i < od->end[gpu]; i++)
		if (p->coll_group[od->queue[i]] == grp)
			out[n++] = od->queue[i];
	return n;
}

int df_sim_order_groups(struct df_sim_order *od, const struct df_sim_program *prog)
{
	const struct df_sim_part *p = od->part;
	int rc;

	if (!prog->nr_disorder)
		return 0;
	rc = find_excursions(od, prog);
	if (rc)
		return rc;
	for (int grp = 0; grp < p->nr_groups; grp++) {
		int size = df_sim_group_size(p, grp), nr_changed = 0;
		const int *member = p->members + p->group_start[grp];

		for (int i = 0; i < size; i++)
			nr_changed += order_changed(od, member[i], grp);
		if (!nr_changed)
			continue;
		if (nr_changed < size)
			return 1;
		/*
		 * The members' orders all differ from the expected one, but they may be equal to
		 * one another. missing[] is a buffer here.
		 */
		for (int i = 1; i < size; i++) {
			int n = group_order(od, member[0], grp, od->missing);
			const int *q = od->queue + p->list_start[member[i]];
			int k = 0;

			restricted(od, member[i], 0, df_sim_list_len(p, member[i]));
			for (int j = 0; j < df_sim_list_len(p, member[i]); j++)
				if (p->coll_group[q[j]] == grp && q[j] != od->missing[k++])
					return 1;
			if (k != n)
				return 1;
		}
	}
	return 0;
}
