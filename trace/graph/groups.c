/*
 * What a group puts on one communicator is one launch of NCCL's: none of its operations ends before all have taken place. So
 * an operation whose peers all run it, or are through with it, and that does not end is nothing to wonder at as long as
 * another of its launch waits.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "trace/graph/graph.h"

#define WINDOW 256 /* operations of other threads between those of a group */

struct launches {
	struct df_graph *g;
	const uint32_t *inst; /* by operation; DF_NONE */
	uint32_t *head; /* by operation: the first of its launch; DF_NONE: it is alone in it */
	uint32_t *next; /* by operation: the next of its launch */
	uint32_t *last, *all; /* by head: its last, and the node that waits for all */
	uint8_t *waits;	      /* by head: not all take place */
	uint8_t *held;	      /* by instance: it does not end because of others */
	uint32_t *work;	      /* instances to look at */
	size_t nr_work;
};

static void find(struct launches *l)
{
	const struct df_check_set *set = l->g->set;

	for (uint32_t i = 0; i < set->nr_ops; i++) {
		const struct df_uop *u = &set->ops[i], *o;
		uint32_t first;

		if (!u->l.group || u->start == DF_NONE || l->inst[i] == DF_NONE ||
		    !df_trc_nccl(&set->traces[u->trace]))
			continue;
		for (uint32_t k = i; k-- > 0 && i - k <= WINDOW;) {
			o = &set->ops[k];
			if (o->trace != u->trace)
				break;
			if (o->l.group != u->l.group || o->gcomm != u->gcomm ||
			    o->start == DF_NONE || l->inst[k] == DF_NONE)
				continue;
			first = l->head[k] == DF_NONE ? k : l->head[k];
			l->head[k] = l->head[i] = first;
			l->next[l->last[first] == DF_NONE ? first : l->last[first]] = i;
			l->last[first] = i;
			break;
		}
	}
}

/* Each ends when all have taken place. By our rules they are operations of their own. */
static void tie(struct launches *l)
{
	struct df_graph *g = l->g;
	const struct df_uop *ops = g->set->ops;

	for (uint32_t i = 0; i < g->set->nr_ops && !g->failed; i++) {
		uint32_t first = l->head[i];

		if (first == DF_NONE)
			continue;
		if (first == i)
			l->all[i] = df_graph_node(g, DF_N_JOIN, ops[i].trace, 0);
		df_graph_edge(g, l->all[first], g->insts[l->inst[i]].node, DF_E_GROUP,
			      DF_W_BASE | DF_W_NORES, ops[i].l.rec);
		df_graph_edge(g, ops[i].done, l->all[first], DF_E_GROUP, DF_W_BASE | DF_W_NORES,
			      ops[i].l.rec);
	}
}

/* It does not take place as long as this is so. */
static int waits(const struct df_graph *g, const struct df_match *in)
{
	int waits = in->nr_missing > 0;

	for (uint32_t i = in->first; i != DF_NONE && !waits; i = g->set->ops[i].next)
		waits = g->set->ops[i].l.state == DF_OP_ISSUED;
	return waits;
}

/* Each of its operations that are unfinished is in a launch that waits. */
static int is_held(const struct launches *l, const struct df_match *in)
{
	for (uint32_t i = in->first; i != DF_NONE; i = l->g->set->ops[i].next)
		if (l->head[i] == DF_NONE || !l->waits[l->head[i]])
			return 0;
	return in->first != DF_NONE;
}

/* Who waits, or is held, holds those that are in a launch with it. */
static void hold(struct launches *l)
{
	struct df_graph *g = l->g;
	const struct df_uop *ops = g->set->ops;

	for (uint32_t i = 0; i < g->nr_insts; i++)
		if (waits(g, &g->insts[i]))
			l->work[l->nr_work++] = i;
	while (l->nr_work) {
		const struct df_match *in = &g->insts[l->work[--l->nr_work]];

		for (uint32_t i = in->first; i != DF_NONE; i = ops[i].next) {
			uint32_t first = l->head[i];

			if (first == DF_NONE || l->waits[first])
				continue;
			l->waits[first] = 1;
			for (uint32_t k = first; k != DF_NONE; k = l->next[k]) {
				struct df_match *other = &g->insts[l->inst[k]];

				if (l->held[l->inst[k]] || waits(g, other) || !is_held(l, other))
					continue;
				l->held[l->inst[k]] = 1;
				g->nodes[other->node].stale = DF_M_NONE;
				l->work[l->nr_work++] = l->inst[k];
			}
		}
	}
}

int df_graph_groups(struct df_graph *g, const uint32_t *inst)
{
	struct launches l = {.g = g, .inst = inst};
	size_t n = g->set->nr_ops + 1;
	uint32_t *by_op = malloc(4 * n * sizeof(*by_op));

	l.waits = calloc(n, 1);
	l.held = calloc(g->nr_insts + 1, 1);
	l.work = malloc((g->nr_insts + 1) * sizeof(*l.work));
	if (by_op && l.waits && l.held && l.work) {
		memset(by_op, 0xff, 4 * n * sizeof(*by_op));
		l.head = by_op;
		l.next = by_op + n;
		l.last = by_op + 2 * n;
		l.all = by_op + 3 * n;
		find(&l);
		tie(&l);
		hold(&l);
	} else {
		g->failed = 1;
	}
	free(by_op);
	free(l.waits);
	free(l.held);
	free(l.work);
	return g->failed ? -ENOMEM : 0;
}
