/*
 * NCCL puts the operations that a group has on one communicator into one launch, and none of them
 * ends before all have taken place. So an operation may not end although all its peers run it or
 * have finished it. This is normal while another operation of its launch waits.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "trace/graph/graph.h"

/* number of operations searched; operations of other threads lie between those of a launch */
#define WINDOW 256

struct launches {
	struct df_graph *g;
	const uint32_t *inst; /* by operation: its instance, or DF_NONE */
	/* by operation: the first operation of its launch; DF_NONE if it is alone */
	uint32_t *head;
	uint32_t *next; /* by operation: the next operation of its launch */
	/* by first operation: the last operation, and the node that waits for all */
	uint32_t *last, *all;
	/* by first operation: whether the launch waits for some of its operations */
	uint8_t *waits;
	/* by first operation: whether the launch may wait for connections */
	uint8_t *connects;
	uint8_t *held;	/* by instance: whether launches that wait prevent its end */
	uint32_t *work; /* instances to examine */
	size_t nr_work;
};

static void find(struct launches *l)
{
	const struct df_check_set *set = l->g->set;

	for (uint32_t i = 0; i < set->nr_ops; i++) {
		const struct df_uop *u = &set->ops[i], *o;
		uint32_t first;

		if (!u->l.group || u->start == DF_NONE || l->inst[i] == DF_NONE ||
		    (!df_trc_nccl(&set->traces[u->trace]) &&
		     set->traces[u->trace].h.executor != DF_BY_LANES))
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

/*
 * Makes each operation's end depend on all operations of its launch. By the daemon's rules the
 * operations are independent, so these edges exist only by NCCL's rules.
 */
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

/* Whether both operations wait for their launch, on lanes. */
static int is_unlaunched(const struct df_check_set *set, const struct df_uop *a,
			 const struct df_uop *b)
{
	return df_header_lanes(&set->traces[a->trace].h) && a->l.state == DF_OP_ISSUED &&
	       b->l.state == DF_OP_ISSUED;
}

/*
 * On lanes a launch with messages may have to wait until their other ends have called NCCL: the
 * ranks may not be connected yet. No thread of the program waits for that. It is no proof, because
 * they may also be connected, and the launch may wait for something that ends.
 */
static void tie_connections(struct launches *l)
{
	struct df_graph *g = l->g;
	const struct df_uop *ops = g->set->ops;

	if (g->set->proof)
		return;
	for (size_t k = 0, nr = g->nr_edges; k < nr && !g->failed; k++) {
		const struct df_edge *e = &g->edges[k];
		uint32_t to = e->to, i;

		if (e->kind != DF_E_NOT_ISSUED || g->nodes[e->from].kind != DF_N_MATCH)
			continue;
		i = g->insts[g->nodes[e->from].ref].p2p ? g->insts[g->nodes[e->from].ref].first
							: DF_NONE;
		for (; i != DF_NONE; i = ops[i].next) {
			uint32_t first = l->head[i];

			if (first == DF_NONE || !is_unlaunched(g->set, &ops[i], &ops[first]))
				continue;
			df_graph_edge(g, ops[first].start, to, DF_E_NOT_ISSUED,
				      DF_W_BASE | DF_W_NORES, ops[i].l.rec);
			g->nodes[ops[first].start].stale = DF_M_NONE;
			l->connects[first] = 1;
		}
	}
	for (uint32_t i = 0; i < g->set->nr_ops && !g->failed; i++) {
		uint32_t first = l->head[i];

		if (first == DF_NONE || first == i || !l->connects[first] ||
		    !is_unlaunched(g->set, &ops[i], &ops[first]))
			continue;
		df_graph_edge(g, ops[i].start, ops[first].start, DF_E_GROUP, DF_W_BASE | DF_W_NORES,
			      ops[i].l.rec);
		g->nodes[ops[i].start].stale = DF_M_NONE;
	}
}

/* Whether the instance cannot take place yet. */
static int waits(const struct df_graph *g, const struct df_match *in)
{
	int waits = in->nr_missing > 0;

	for (uint32_t i = in->first; i != DF_NONE && !waits; i = g->set->ops[i].next)
		waits = g->set->ops[i].l.state == DF_OP_ISSUED;
	return waits;
}

/* Whether each unfinished operation of the instance is in a launch that waits. */
static int is_held(const struct launches *l, const struct df_match *in)
{
	for (uint32_t i = in->first; i != DF_NONE; i = l->g->set->ops[i].next)
		if (l->head[i] == DF_NONE || !l->waits[l->head[i]])
			return 0;
	return in->first != DF_NONE;
}

/*
 * Marks what cannot end. An instance that waits or is held also holds the operations in its
 * launches.
 */
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
	l.connects = calloc(n, 1);
	l.held = calloc(g->nr_insts + 1, 1);
	l.work = malloc((g->nr_insts + 1) * sizeof(*l.work));
	if (by_op && l.waits && l.connects && l.held && l.work) {
		memset(by_op, 0xff, 4 * n * sizeof(*by_op));
		l.head = by_op;
		l.next = by_op + n;
		l.last = by_op + 2 * n;
		l.all = by_op + 3 * n;
		find(&l);
		tie(&l);
		tie_connections(&l);
		hold(&l);
	} else {
		g->failed = 1;
	}
	free(by_op);
	free(l.waits);
	free(l.connects);
	free(l.held);
	free(l.work);
	return g->failed ? -ENOMEM : 0;
}
