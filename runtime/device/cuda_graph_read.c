/*
 * Which collectives a CUDA graph has, and in which order it may come to them: read from the graph itself, so
 * that clones, children and updates need no book-keeping.
 */
#if __has_include(<cuda.h>)
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/device/cuda_graph.h"

#define MAX_DEPTH 8

/* A node of a graph, as far as it matters: a collective, or a child with such. */
struct item {
	CUgraphNode node;
	CUgraphNodeType type;
	CUdeviceptr word; /* of a memory operation; 0: more than one, or none */
	struct df_gnode *ours;
	struct df_gnodes sub;
	uint64_t serial; /* of the first collective in it; 0: none */
	size_t before;	 /* nodes that come first and have not been passed */
	size_t next;	 /* its first edge */
};

struct edge {
	size_t from, to;
};

static int exec_add(struct df_gnodes *e, struct df_gnode *const *nodes, size_t nr)
{
	struct df_gnode **v = realloc(e->v, (e->nr + nr + 1) * sizeof(struct df_gnode *));

	if (!v)
		return -ENOMEM;
	e->v = v;
	memcpy(v + e->nr, nodes, nr * sizeof(struct df_gnode *));
	e->nr += nr;
	return 0;
}

static int by_node(const void *a, const void *b)
{
	const struct item *x = a, *y = b;

	return (uintptr_t)x->node < (uintptr_t)y->node ? -1
						       : (uintptr_t)x->node > (uintptr_t)y->node;
}

static int by_from(const void *a, const void *b)
{
	const struct edge *x = a, *y = b;

	return x->from < y->from ? -1 : x->from > y->from;
}

static size_t index_of(const struct item *items, size_t nr, CUgraphNode node)
{
	struct item key = {.node = node}, *it = bsearch(&key, items, nr, sizeof(key), by_node);

	return it ? (size_t)(it - items) : nr;
}

/* The edges of a graph, by where they begin. items are sorted by their nodes. */
static int read_edges(CUgraph graph, struct item *items, size_t nr, struct edge **out,
		      size_t *out_nr)
{
	CUgraphNode *ends;
	struct edge *v;
	size_t n = 0, i;
	int ret = -EIO;

	if (df_drv_graph_edges(graph, NULL, NULL, &n))
		return -EIO;
	ends = calloc(2 * n + 1, sizeof(*ends));
	v = calloc(n + 1, sizeof(*v));
	if (!ends || !v)
		ret = -ENOMEM;
	else if (!df_drv_graph_edges(graph, ends, ends + n, &n))
		ret = 0;
	for (i = 0; i < n && !ret; i++) {
		v[i].from = index_of(items, nr, ends[i]);
		v[i].to = index_of(items, nr, ends[n + i]);
		if (v[i].from == nr || v[i].to == nr)
			ret = -EIO;
		else
			items[v[i].to].before++;
	}
	free(ends);
	if (ret) {
		free(v);
		return ret;
	}
	qsort(v, n, sizeof(*v), by_from);
	for (i = n; i-- > 0;)
		items[v[i].from].next = i;
	*out = v;
	*out_nr = n;
	return 0;
}

/*
 * The collectives of a graph in an order in which it may come to them: what comes after another in the graph is issued
 * after it, and of those that do not wait for one another the one that was captured first. Ranks that captured the same
 * have the same order.
 */
static int in_order(CUgraph graph, struct item *items, size_t nr, struct df_gnodes *e)
{
	struct edge *edges = NULL;
	size_t *ready = NULL, nr_edges = 0, n = 0, i, k;
	int ret;

	qsort(items, nr, sizeof(*items), by_node);
	for (i = 0; i < nr; i++)
		items[i].next = SIZE_MAX;
	ret = read_edges(graph, items, nr, &edges, &nr_edges);
	if (!ret)
		ready = calloc(nr + 1, sizeof(*ready));
	if (!ret && !ready)
		ret = -ENOMEM;
	for (i = 0; i < nr && !ret; i++)
		if (!items[i].before)
			ready[n++] = i;
	while (n && !ret) {
		struct item *it;

		e->chain &= n == 1;
		/* Those that are nothing to us are passed first: serial 0. */
		for (i = k = 0; i < n; i++)
			if (items[ready[i]].serial < items[ready[k]].serial)
				k = i;
		it = &items[ready[k]];
		ready[k] = ready[--n];
		if (it->ours)
			ret = exec_add(e, &it->ours, 1);
		else
			ret = exec_add(e, it->sub.v, it->sub.nr);
		for (i = it->next; i < nr_edges && edges[i].from == (size_t)(it - items); i++)
			if (!--items[edges[i].to].before)
				ready[n++] = edges[i].to;
	}
	free(ready);
	free(edges);
	return ret;
}

static int collect(CUgraph graph, CUhostFn fn, struct df_gnodes *e, int depth);

static int read_item(CUgraphNode node, CUhostFn fn, struct item *it, int depth)
{
	CUDA_BATCH_MEM_OP_NODE_PARAMS ops = {0};
	CUDA_HOST_NODE_PARAMS host = {0};
	CUgraph child;
	int ret = 0;

	it->node = node;
	if (df_drv.node_type(node, &it->type) != CUDA_SUCCESS)
		return -EIO;
	if (it->type == CU_GRAPH_NODE_TYPE_GRAPH) {
		if (df_drv.node_child(node, &child) != CUDA_SUCCESS)
			return -EIO;
		ret = collect(child, fn, &it->sub, depth + 1);
		it->serial = it->sub.nr ? it->sub.v[0]->serial : 0;
	} else if (it->type == CU_GRAPH_NODE_TYPE_HOST) {
		if (df_drv.node_host(node, &host) != CUDA_SUCCESS)
			return -EIO;
		if (host.fn == fn) {
			it->ours = host.userData;
			it->serial = it->ours->serial;
		}
	} else if (it->type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP) {
		/* Wait and write have the address at one place. */
		if (df_drv.node_mem_op(node, &ops) == CUDA_SUCCESS && ops.count == 1)
			it->word = ops.paramArray[0].waitValue.address;
	}
	return ret;
}

static int by_word(const void *a, const void *b)
{
	const CUdeviceptr *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

/*
 * Nothing but collectives: host functions and memory operations of ours, each with its two, and empty nodes, which only
 * order what is there.
 */
static int is_bare(const struct item *items, size_t nr)
{
	CUdeviceptr *gates = calloc(nr + 1, sizeof(*gates));
	size_t i, n = 0, ops = 0;
	int bare = gates != NULL;

	for (i = 0; i < nr && bare; i++)
		if (items[i].ours && items[i].ours->w && items[i].ours->ops.issue)
			gates[n++] = (CUdeviceptr)(uintptr_t)&items[i].ours->w->gate;
	if (bare)
		qsort(gates, n, sizeof(*gates), by_word);
	for (i = 0; i < nr && bare; i++) {
		const struct item *it = &items[i];

		if (it->type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP) {
			ops++;
			bare = bsearch(&it->word, gates, n, sizeof(*gates), by_word) != NULL;
		} else if (it->type == CU_GRAPH_NODE_TYPE_GRAPH) {
			bare = it->sub.bare;
		} else {
			bare = it->type == CU_GRAPH_NODE_TYPE_EMPTY ||
			       (it->ours && it->ours->w && it->ours->ops.issue);
		}
	}
	free(gates);
	return bare && ops == 2 * n;
}

static int collect(CUgraph graph, CUhostFn fn, struct df_gnodes *e, int depth)
{
	CUgraphNode *nodes;
	struct item *items;
	size_t nr = 0, i, some = 0;
	int ret = 0;

	if (depth > MAX_DEPTH)
		return -EINVAL;
	if (df_drv.graph_nodes(graph, NULL, &nr) != CUDA_SUCCESS)
		return -EIO;
	nodes = calloc(nr + 1, sizeof(*nodes));
	items = calloc(nr + 1, sizeof(*items));
	if (!nodes || !items)
		ret = -ENOMEM;
	else if (df_drv.graph_nodes(graph, nodes, &nr) != CUDA_SUCCESS)
		ret = -EIO;
	for (i = 0; i < nr && !ret; i++) {
		ret = read_item(nodes[i], fn, &items[i], depth);
		some += items[i].serial != 0;
	}
	e->chain = 1;
	e->bare = !ret && is_bare(items, nr);
	for (i = 0; i < nr && !ret; i++)
		e->chain &= items[i].type != CU_GRAPH_NODE_TYPE_GRAPH || items[i].sub.chain;
	if (!ret && some > 1)
		ret = in_order(graph, items, nr, e);
	for (i = 0; i < nr && !ret && some == 1; i++)
		if (items[i].serial)
			ret = items[i].ours ? exec_add(e, &items[i].ours, 1)
					    : exec_add(e, items[i].sub.v, items[i].sub.nr);
	for (i = 0; items && i < nr; i++)
		free(items[i].sub.v);
	free(items);
	free(nodes);
	return ret;
}

int df_graph_read(CUgraph graph, CUhostFn fn, struct df_gnodes *out)
{
	return collect(graph, fn, out, 0);
}
#endif
