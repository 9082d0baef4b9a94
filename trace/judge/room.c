/* What speaks for a lack of room on devices where records do not say who has some: part of the judge. */
#include <errno.h>
#include <stdlib.h>
#include "trace/judge/result.h"
#include "trace/record/names.h"

#define MAX_ROOM 64 /* stuck operations that are compared with one another */

/*
 * Two threads have put them on streams that share a hardware queue. A thread notes its call before it makes it, and an
 * operation and what shows its end are two entries of the queue: the records do not say what lies between.
 */
static int is_race(const struct df_check_set *set, const struct df_uop *x, const struct df_uop *y)
{
	uint32_t queues = set->traces[x->trace].h.queues;

	return queues && x->l.thread != y->l.thread && x->l.device == y->l.device &&
	       x->l.stream % queues == y->l.stream % queues;
}

/*
 * m has ended on some ranks, so it has run on this one, too, most likely (the verdict is no more than that): its end is
 * behind the other. A root that sends ends without the others, and they end without each other; a root that receives
 * ends after all.
 */
static int has_run(const struct df_check_set *set, const struct df_match *m,
		   const struct df_uop *on)
{
	int root_ended = 1;

	if (!df_kind_rooted(on->l.kind))
		return m->nr_done > 0;
	for (uint32_t i = m->first; i != DF_NONE; i = set->ops[i].next)
		root_ended &= set->ops[i].l.rank != set->ops[i].l.peer;
	if (on->l.kind == DF_KIND_BROADCAST || on->l.kind == DF_KIND_SCATTER)
		return m->nr_done && on->l.rank == on->l.peer;
	return m->nr_done && root_ended;
}

/* Two operations that some ranks hold in one order and others in the other, as far as the records tell: 1 found. */
static int opposite(const struct df_check_set *set, const struct df_match *a,
		    const struct df_match *b)
{
	int before = 0, after = 0, races = 0, ran = 0;

	for (uint32_t i = a->first; i != DF_NONE; i = set->ops[i].next)
		for (uint32_t k = b->first; k != DF_NONE; k = set->ops[k].next) {
			const struct df_uop *x = &set->ops[i], *y = &set->ops[k];

			if (!df_uop_same_rank(set, x, y) || !(x->l.flags & DF_OP_BY_NCCL))
				continue;
			if (is_race(set, x, y)) {
				races++;
				ran |= has_run(set, a, x) || has_run(set, b, y);
			} else if (x->l.rec < y->l.rec) {
				before++;
			} else {
				after++;
			}
		}
	return (before && after) || (races && (before + after + races > 1 || ran));
}

/*
 * NCCL does not say which of its kernels got room on the device. When all ranks have come to two operations in
 * opposite orders, on streams that are independent, and neither ends, then too few fit. 1: so it is.
 */
int df_no_room(struct df_check_result *r)
{
	const struct df_graph *g = &r->g;
	uint32_t stuck[MAX_ROOM], nr = 0;

	for (uint32_t i = 0; i < g->nr_insts && nr < MAX_ROOM; i++)
		if (g->stuck[g->insts[i].node] && !g->insts[i].nr_missing && !g->insts[i].p2p)
			stuck[nr++] = i;
	for (uint32_t i = 0; i < nr; i++)
		for (uint32_t k = 0; k < i; k++) {
			const struct df_match *a = &g->insts[stuck[k]], *b = &g->insts[stuck[i]];

			if (a->gcomm == b->gcomm || !opposite(r->set, a, b))
				continue;
			free(r->involved);
			r->involved = malloc(2 * sizeof(*r->involved));
			if (!r->involved)
				return -ENOMEM;
			r->involved[0] = a->first;
			r->involved[1] = b->first;
			r->nr_involved = 2;
			return 1;
		}
	return 0;
}
