/*
 * Finds operations that never take place because the ranks of a communicator have issued different
 * ones. NCCL pairs the k-th operations of all ranks. dfshim matches by signature, so it sees two
 * instances: one that rank r has not issued, and one that rank r has issued but another rank of the
 * first instance has not.
 *
 * Ranks that issue the same operations in different orders cannot be distinguished from this while
 * each waits for the other, but dfshim executes their operations. So a pair counts only if one of
 * the two signatures was never executed on the communicator: then nothing indicates that the other
 * rank will issue it.
 */
#include "trace/graph/graph.h"

#define MAX_PAIRS (1 << 20) /* pairs that are examined in one graph */

static int by_signature(const struct df_graph *g, const struct df_match *in)
{
	const struct df_uop *u = in->first == DF_NONE ? NULL : &g->set->ops[in->first];

	return u && g->stuck[in->node] && in->nr_missing && u->start != DF_NONE && u->l.has_match &&
	       !df_trc_places(&g->set->traces[u->trace]);
}

static const struct df_uop *op_of(const struct df_graph *g, const struct df_match *in, int rank)
{
	for (uint32_t o = in->first; o != DF_NONE; o = g->set->ops[o].next)
		if (g->set->ops[o].l.rank == rank)
			return &g->set->ops[o];
	return NULL;
}

/*
 * Whether `in` lacks a rank that has issued its part of `other`, and no thread of that rank can
 * issue its part of `in`.
 */
static int lacks(const struct df_graph *g, const struct df_match *in, const struct df_match *other)
{
	for (uint32_t k = g->out_first[in->node]; k < g->out_first[in->node + 1]; k++) {
		const struct df_edge *e = &g->edges[g->out[k]];
		const struct df_node *to = &g->nodes[e->to];

		if (e->kind == DF_E_NOT_ISSUED && to->kind == DF_N_NEXT && g->stuck[e->to] &&
		    op_of(g, other, to->rank))
			return 1;
	}
	return 0;
}

/*
 * Whether both instances occupy the same position in the order of their communicator. Messages
 * between different ranks or in different directions are numbered separately.
 */
static int share_a_place(const struct df_match *a, const struct df_match *b)
{
	if (a->gcomm != b->gcomm || a == b)
		return 0;
	return !a->p2p || !b->p2p || (a->src == b->src && a->dst == b->dst);
}

static int was_executed(const struct df_graph *g, const struct df_match *in)
{
	return g->set->ops[in->first].l.inst > 0;
}

int df_graph_are_crossed(const struct df_graph *g, const struct df_match *a,
			 const struct df_match *b)
{
	return share_a_place(a, b) && by_signature(g, a) && by_signature(g, b) &&
	       !(was_executed(g, a) && was_executed(g, b)) && lacks(g, a, b) && lacks(g, b, a);
}

uint32_t df_graph_crossed(struct df_graph *g, int mark)
{
	uint32_t found = DF_NONE;
	size_t left = MAX_PAIRS;

	for (size_t i = 0; i < g->nr_insts; i++) {
		const struct df_match *a = &g->insts[i];

		for (size_t k = 0; by_signature(g, a) && k < i && left; k++, left--) {
			const struct df_match *b = &g->insts[k];

			if (!df_graph_are_crossed(g, a, b))
				continue;
			if (mark)
				g->nodes[a->node].mark = g->nodes[b->node].mark = DF_M_MISMATCH;
			found = a->gcomm;
		}
	}
	return found;
}
