/* What speaks for a lack of room on devices where records do not say who has some: part of the judge. */
#include <errno.h>
#include <stdlib.h>
#include "trace/judge/result.h"

#define MAX_ROOM 64 /* stuck operations that are compared with one another */

/* Two operations that some ranks hold in one order and others in the other, as the records go: 1 found. */
static int opposite(const struct df_check_set *set, const struct df_match *a,
		    const struct df_match *b)
{
	int before = 0, after = 0;

	for (uint32_t i = a->first; i != DF_NONE; i = set->ops[i].next)
		for (uint32_t k = b->first; k != DF_NONE; k = set->ops[k].next) {
			const struct df_uop *x = &set->ops[i], *y = &set->ops[k];

			if (!df_uop_same_rank(set, x, y) || !(x->l.flags & DF_OP_BY_NCCL))
				continue;
			before += x->l.rec < y->l.rec;
			after += x->l.rec > y->l.rec;
		}
	return before && after;
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
