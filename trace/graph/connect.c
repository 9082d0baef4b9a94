/*
 * NCCL makes a connection at the first message from one rank to another. The call of that operation
 * returns only when the rank at the other end has called its operation, too. NCCL executes
 * AlltoAll, Gather and Scatter as messages.
 */
#include "trace/graph/graph.h"
#include "trace/record/names.h"

static int has_message(const struct df_uop *u, int32_t rank)
{
	switch (u->l.kind) {
	case DF_KIND_SEND:
	case DF_KIND_RECV:
		return rank == u->l.peer;
	case DF_KIND_ALLTOALL:
		return rank != u->l.rank;
	case DF_KIND_GATHER:
	case DF_KIND_SCATTER:
		return rank != u->l.rank && (rank == u->l.peer || u->l.rank == u->l.peer);
	default:
		return 0;
	}
}

int df_graph_connects(const struct df_graph *g, const struct df_uop *u, const struct df_match *in,
		      int32_t rank)
{
	uint32_t i = in->first;

	if (!in->nr_missing || !has_message(u, rank))
		return 0;
	while (i != DF_NONE && g->set->ops[i].l.rank != rank)
		i = g->set->ops[i].next;
	return i == DF_NONE;
}

int df_graph_is_one_call(const struct df_uop *a, const struct df_uop *b)
{
	return a == b || (a->l.group && a->l.thread == b->l.thread && a->l.group == b->l.group);
}
