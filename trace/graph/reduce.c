/*
 * Graph reduction, strongly connected components and shortest cycles: the algorithms on the
 * wait-for graph that do not depend on the meaning of its nodes. Pure functions on struct df_graph,
 * without recursion, so that a long chain cannot overflow the stack.
 */
#include <string.h>
#include "trace/graph/graph.h"
#include "runtime/base/vec.h"

size_t df_graph_reduce(struct df_graph *g, enum df_world world, int stale)
{
	uint32_t *left = calloc(g->nr_nodes + 1, sizeof(*left)),
		 *work = malloc((g->nr_nodes + 1) * sizeof(*work));
	size_t nr_work = 0, removed = 0;

	memset(g->stuck, 1, g->nr_nodes);
	memset(g->self, 0, g->nr_nodes);
	g->nr_stuck = g->nr_nodes;
	if (!left || !work)
		goto out;
	for (size_t i = 0; i < g->nr_edges; i++)
		if (df_edge_on(&g->edges[i], world))
			left[g->edges[i].from]++;
	for (size_t i = 0; i < g->nr_nodes; i++) {
		const struct df_node *n = &g->nodes[i];

		if ((n->idle && !stale) || n->let_go || (n->young && stale))
			left[i] = 0;
		g->self[i] = n->mark || (!left[i] && stale == 1 && n->stale && !n->young);
		if (!left[i] && !g->self[i])
			work[nr_work++] = (uint32_t)i;
	}
	while (nr_work) {
		uint32_t n = work[--nr_work];

		g->stuck[n] = 0;
		removed++;
		for (uint32_t k = g->in_first[n]; k < g->in_first[n + 1]; k++) {
			const struct df_edge *e = &g->edges[g->in[k]];
			const struct df_node *from = &g->nodes[e->from];

			if (!df_edge_on(e, world) || !left[e->from] || from->mark)
				continue;
			left[e->from] = from->or_ ? 0 : left[e->from] - 1;
			if (left[e->from])
				continue;
			/*
			 * Nothing blocks the node: if nothing makes progress for long, the node
			 * itself is the cause.
			 */
			g->self[e->from] = stale == 1 && from->stale;
			if (!g->self[e->from])
				work[nr_work++] = e->from;
		}
	}
	g->nr_stuck = g->nr_nodes - removed;
out:
	free(left);
	free(work);
	return g->nr_stuck;
}

size_t df_graph_components(const struct df_graph *g, enum df_world world, uint32_t *comp,
			   uint8_t **is_root)
{
	size_t n = g->nr_nodes, nr_comp = 0, nr_stack = 0, nr_path = 0;
	uint32_t *index = malloc((n + 1) * sizeof(*index)), *low = malloc((n + 1) * sizeof(*low));
	uint32_t *stack = malloc((n + 1) * sizeof(*stack)), *path = malloc((n + 1) * sizeof(*path));
	uint32_t *pos = malloc((n + 1) * sizeof(*pos)), next = 0;
	uint8_t *root = NULL;

	for (size_t i = 0; i < n; i++)
		comp[i] = DF_NONE;
	if (!index || !low || !stack || !path || !pos)
		goto out;
	memset(index, 0xff, (n + 1) * sizeof(*index));
	for (size_t s = 0; s < n; s++) {
		if (!g->stuck[s] || index[s] != DF_NONE)
			continue;
		path[nr_path++] = (uint32_t)s;
		pos[s] = g->out_first[s];
		index[s] = low[s] = next++;
		stack[nr_stack++] = (uint32_t)s;
		while (nr_path) {
			uint32_t v = path[nr_path - 1];

			if (pos[v] < g->out_first[v + 1] && !g->self[v]) {
				const struct df_edge *e = &g->edges[g->out[pos[v]++]];
				uint32_t w = e->to;

				if (!df_edge_on(e, world) || !g->stuck[w])
					continue;
				if (index[w] == DF_NONE) {
					index[w] = low[w] = next++;
					pos[w] = g->out_first[w];
					stack[nr_stack++] = w;
					path[nr_path++] = w;
				} else if (comp[w] == DF_NONE && index[w] < low[v]) {
					low[v] = index[w];
				}
				continue;
			}
			nr_path--;
			if (nr_path && low[v] < low[path[nr_path - 1]])
				low[path[nr_path - 1]] = low[v];
			if (low[v] != index[v])
				continue;
			for (;;) {
				uint32_t w = stack[--nr_stack];

				comp[w] = (uint32_t)nr_comp;
				if (w == v)
					break;
			}
			nr_comp++;
		}
	}
	root = malloc(nr_comp + 1);
	if (!root)
		goto out;
	memset(root, 1, nr_comp);
	for (size_t i = 0; i < g->nr_edges; i++) {
		const struct df_edge *e = &g->edges[i];

		if (df_edge_on(e, world) && g->stuck[e->from] && g->stuck[e->to] &&
		    comp[e->from] != comp[e->to] && !g->self[e->from])
			root[comp[e->from]] = 0;
	}
out:
	free(index);
	free(low);
	free(stack);
	free(path);
	free(pos);
	*is_root = root;
	return root ? nr_comp : 0;
}

#define MAX_STARTS 256

/*
 * Returns an edge's contribution to the length of a cycle. Edges through joins and starts stay
 * inside one rank, so they count 0.
 */
static int edge_cost(const struct df_edge *e)
{
	return e->kind != DF_E_SELF && e->kind != DF_E_PART;
}

size_t df_graph_cycle(const struct df_graph *g, enum df_world world, const uint32_t *comp,
		      uint32_t which, unsigned without, uint32_t **edges)
{
	size_t n = g->nr_nodes, best = 0, size = 0, starts = 0, stride;
	uint32_t *via = malloc((n + 1) * sizeof(*via)), *dist = malloc((n + 1) * sizeof(*dist));
	uint32_t *queue[2] = {malloc((2 * n + 2) * sizeof(uint32_t)),
			      malloc((2 * n + 2) * sizeof(uint32_t))};
	uint32_t best_cost = DF_NONE, *found = NULL;

	*edges = NULL;
	if (!via || !dist || !queue[0] || !queue[1])
		goto out;
	for (size_t i = 0; i < n; i++)
		size += comp[i] == which && g->nodes[i].kind == DF_N_MATCH;
	stride = size / MAX_STARTS + 1;
	/* Every cycle between ranks contains a match, a barrier or a thread. */
	for (size_t s = 0, seen = 0; s < n; s++) {
		uint32_t depth = 0, last = DF_NONE;
		size_t nq[2] = {1, 0};
		int cur = 0;

		if (comp[s] != which)
			continue;
		if (size && (g->nodes[s].kind != DF_N_MATCH || seen++ % stride))
			continue;
		if (!size && g->nodes[s].kind != DF_N_BARRIER && g->nodes[s].kind != DF_N_THREAD &&
		    starts)
			continue;
		if (starts++ > MAX_STARTS || best_cost <= 2)
			break;
		memset(dist, 0xff, (n + 1) * sizeof(*dist));
		queue[0][0] = (uint32_t)s;
		dist[s] = 0;
		/*
		 * Breadth first with edges of length 0: there are two queues, and such an edge adds
		 * to the current one.
		 */
		while (nq[cur] && last == DF_NONE && depth < best_cost) {
			nq[!cur] = 0;
			for (size_t q = 0; q < nq[cur] && last == DF_NONE; q++) {
				uint32_t v = queue[cur][q];

				if (dist[v] < depth)
					continue;
				for (uint32_t k = g->out_first[v]; k < g->out_first[v + 1]; k++) {
					const struct df_edge *e = &g->edges[g->out[k]];
					uint32_t d = depth + (uint32_t)edge_cost(e);

					if (!df_edge_on(e, world) || comp[e->to] != which ||
					    without >> e->kind & 1)
						continue;
					if (e->to == s) {
						last = g->out[k];
						depth = d;
						break;
					}
					if (d >= dist[e->to])
						continue;
					dist[e->to] = d;
					via[e->to] = g->out[k];
					if (d == depth && nq[cur] < 2 * n)
						queue[cur][nq[cur]++] = e->to;
					else if (d > depth && nq[!cur] < 2 * n)
						queue[!cur][nq[!cur]++] = e->to;
				}
			}
			if (last != DF_NONE)
				break;
			cur = !cur;
			depth++;
		}
		if (last == DF_NONE || depth >= best_cost)
			continue;
		best_cost = depth;
		best = 1;
		for (uint32_t v = g->edges[last].from; v != s; v = g->edges[via[v]].from)
			best++;
		free(found);
		found = malloc(best * sizeof(*found));
		if (!found) {
			best = 0;
			break;
		}
		found[best - 1] = last;
		for (uint32_t v = g->edges[last].from, k = (uint32_t)best - 1; v != s;
		     v = g->edges[via[v]].from)
			found[--k] = via[v];
	}
out:
	free(via);
	free(dist);
	free(queue[0]);
	free(queue[1]);
	*edges = found;
	return best;
}
