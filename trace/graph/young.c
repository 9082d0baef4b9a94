/*
 * Operations and calls that began a short time ago. In a job of which only a part is stuck, those
 * of the other threads may end at any moment, so nothing is concluded from them.
 */
#include "trace/graph/graph.h"
#include "trace/record/names.h"

/* In the trace's own time: the clocks of machines may differ. */
static int is_young(const struct df_check_set *set, uint32_t trace, uint64_t began, uint64_t aged)
{
	return began + aged > set->traces[trace].last_ns;
}

/* A query, or a place where a thread was seen, is recorded when it is looked at. */
static int is_young_call(const struct df_check_set *set, const struct df_node *n, uint64_t aged)
{
	const struct df_lcall *c = &set->traces[n->trace].calls[n->ref];

	return !df_call_is_seen(c->call) && is_young(set, n->trace, c->enter_ns, aged);
}

static int is_young_match(const struct df_check_set *set, const struct df_match *in, uint64_t aged)
{
	for (uint32_t i = in->first; i != DF_NONE; i = set->ops[i].next)
		if (!is_young(set, set->ops[i].trace, set->ops[i].l.issue_ns, aged))
			return 0;
	return 1;
}

void df_graph_spare(struct df_graph *g, uint64_t aged)
{
	const struct df_check_set *set = g->set;

	for (size_t i = 0; i < g->nr_nodes; i++) {
		struct df_node *n = &g->nodes[i];

		n->young = aged && !n->mark;
		if (!n->young)
			continue;
		if (df_node_is_op(n))
			n->young = is_young(set, n->trace, set->ops[n->ref].l.issue_ns, aged);
		else if (n->kind == DF_N_MATCH)
			n->young = is_young_match(set, &g->insts[n->ref], aged);
		else if (n->kind == DF_N_THREAD)
			n->young = is_young_call(set, n, aged);
	}
	/* The others are as old as the oldest that waits for them. */
	for (int again = aged != 0; again;) {
		again = 0;
		for (size_t i = 0; i < g->nr_edges; i++) {
			const struct df_node *from = &g->nodes[g->edges[i].from];
			struct df_node *to = &g->nodes[g->edges[i].to];

			if (from->young || !to->young || df_node_is_op(to) ||
			    to->kind == DF_N_MATCH || to->kind == DF_N_THREAD)
				continue;
			to->young = 0;
			again = 1;
		}
	}
}
