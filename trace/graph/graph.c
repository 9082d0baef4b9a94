/*
 * The wait-for graph as a whole: nodes, edges and their index. walk.c adds the content of each
 * process, match.c the content between processes.
 */
#include <string.h>
#include "trace/graph/graph.h"
#include "runtime/base/vec.h"

uint32_t df_graph_node(struct df_graph *g, enum df_node_kind kind, uint32_t trace, uint32_t ref)
{
	struct df_node *n =
		g->nr_nodes < DF_NONE - 1 ? DF_VEC_PUSH(g->nodes, g->nr_nodes, g->cap_nodes) : NULL;

	if (!n) {
		g->failed = 1;
		return 0;
	}
	memset(n, 0, sizeof(*n));
	n->kind = (uint8_t)kind;
	n->trace = trace;
	n->ref = ref;
	n->rank = -1;
	n->gcomm = DF_NONE;
	return (uint32_t)(g->nr_nodes - 1);
}

void df_graph_edge(struct df_graph *g, uint32_t from, uint32_t to, enum df_edge_kind kind,
		   unsigned mask, uint64_t rec)
{
	struct df_edge *e;

	if (from == DF_NONE || to == DF_NONE)
		return;
	e = DF_VEC_PUSH(g->edges, g->nr_edges, g->cap_edges);
	if (!e) {
		g->failed = 1;
		return;
	}
	*e = (struct df_edge){from, to, (uint8_t)kind, (uint8_t)mask, rec};
}

/* Indexes edges by source and by target, as two compressed lists. */
static int index_edges(struct df_graph *g)
{
	size_t n = g->nr_nodes, m = g->nr_edges;

	g->out_first = calloc(n + 2, sizeof(uint32_t));
	g->in_first = calloc(n + 2, sizeof(uint32_t));
	g->out = malloc((m + 1) * sizeof(uint32_t));
	g->in = malloc((m + 1) * sizeof(uint32_t));
	g->stuck = calloc(n + 1, 1);
	g->self = calloc(n + 1, 1);
	if (!g->out_first || !g->in_first || !g->out || !g->in || !g->stuck || !g->self)
		return -ENOMEM;
	for (size_t i = 0; i < m; i++) {
		g->out_first[g->edges[i].from + 1]++;
		g->in_first[g->edges[i].to + 1]++;
	}
	for (size_t i = 0; i < n; i++) {
		g->out_first[i + 1] += g->out_first[i];
		g->in_first[i + 1] += g->in_first[i];
	}
	for (size_t i = m; i-- > 0;) {
		g->out[--g->out_first[g->edges[i].from + 1]] = (uint32_t)i;
		g->in[--g->in_first[g->edges[i].to + 1]] = (uint32_t)i;
	}
	/* The loop above left the start of node i at i + 1: shift back. */
	for (size_t i = 0; i < n; i++) {
		g->out_first[i] = g->out_first[i + 1];
		g->in_first[i] = g->in_first[i + 1];
	}
	g->out_first[n] = g->in_first[n] = (uint32_t)m;
	return 0;
}

int df_graph_build(struct df_graph *g, struct df_check_set *set)
{
	int rc;

	memset(g, 0, sizeof(*g));
	g->set = set;
	rc = df_graph_local(g);
	if (!rc)
		rc = df_graph_match(g);
	if (!rc)
		rc = index_edges(g);
	if (rc)
		df_graph_fini(g);
	return rc;
}

void df_graph_fini(struct df_graph *g)
{
	free(g->nodes);
	free(g->edges);
	free(g->insts);
	free(g->bars);
	free(g->out_first);
	free(g->out);
	free(g->in_first);
	free(g->in);
	free(g->stuck);
	free(g->self);
	memset(g, 0, sizeof(*g));
}
