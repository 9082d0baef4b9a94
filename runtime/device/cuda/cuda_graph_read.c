/*
 * Which collectives a CUDA graph has, and in which order it may come to them: read from the graph itself, so
 * that clones, children and updates need no book-keeping.
 */
#if __has_include(<cuda.h>)
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/device/cuda/cuda_graph.h"

#define MAX_DEPTH 8

/* A node of a graph, as far as it matters: a collective, or a child with such. */
struct item {
	CUgraphNode node;
	CUgraphNodeType type;
	CUdeviceptr word;  /* of a memory operation; 0: more than one, or none */
	int waits, writes; /* as ours do */
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

int df_graph_mem_op(CUgraphNode node, CUstreamBatchMemOpParams *out)
{
	CUDA_BATCH_MEM_OP_NODE_PARAMS ops = {0};
	CUgraphNodeType type;

	if (df_drv.node_type(node, &type) != CUDA_SUCCESS ||
	    type != CU_GRAPH_NODE_TYPE_BATCH_MEM_OP ||
	    df_drv.node_mem_op(node, &ops) != CUDA_SUCCESS || ops.count != 1)
		return -EINVAL;
	*out = ops.paramArray[0];
	return 0;
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
static int in_order(struct item *items, size_t nr, const struct edge *edges, size_t nr_edges,
		    struct df_gnodes *e)
{
	size_t *ready = calloc(nr + 1, sizeof(*ready)), n = 0, i, k;
	int ret = ready ? 0 : -ENOMEM;

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
	return ret;
}

static int collect(CUgraph graph, CUhostFn fn, struct df_gnodes *e, int depth);

static int read_item(CUgraphNode node, CUhostFn fn, struct item *it, int depth)
{
	CUstreamBatchMemOpParams op;
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
		if (host.fn == fn && !df_gnode_lives(host.userData))
			return -EOPNOTSUPP;
		if (host.fn == fn) {
			it->ours = host.userData;
			it->serial = it->ours->serial;
		}
	} else if (!df_graph_mem_op(node, &op)) {
		/* Wait and write have address and value at one place. */
		it->word = op.waitValue.address;
		it->waits =
			op.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 && op.waitValue.value64 == 1;
		it->writes = op.operation == CU_STREAM_MEM_OP_WRITE_VALUE_64 &&
			     op.waitValue.value64 == 0;
	}
	return ret;
}

/* ---- what each collective has ------------------------------------------------------------------------------------ */

/* The nodes of a collective that are there: its host function, waits and writes of its gate, and edges between them. */
struct triple {
	CUdeviceptr gate;
	const struct df_gnode *node;
	int waits, writes, others, host_to_wait, wait_to_write;
};

static int by_gate(const void *a, const void *b)
{
	const struct triple *x = a, *y = b;

	return x->gate < y->gate ? -1 : x->gate > y->gate;
}

static struct triple *triple_of(struct triple *v, size_t nr, const struct item *it)
{
	struct triple key = {.gate = it->word};

	if (it->ours && it->ours->w)
		key.gate = (CUdeviceptr)(uintptr_t)it->ours->gate;
	return key.gate ? bsearch(&key, v, nr, sizeof(key), by_gate) : NULL;
}

/* -EOPNOTSUPP: somewhere a node is missing, is another, or is there for its own. with_edges: they are known. */
static int are_whole(struct triple *v, size_t nr, const struct item *items, size_t nr_items,
		     const struct edge *edges, size_t nr_edges, int with_edges)
{
	size_t i;

	for (i = 1; i < nr; i++)
		if (v[i].gate == v[i - 1].gate)
			return -EOPNOTSUPP;
	for (i = 0; i < nr_items; i++) {
		struct triple *t = items[i].word ? triple_of(v, nr, &items[i]) : NULL;

		if (items[i].word && !t && df_gnode_of_gate(items[i].word))
			return -EOPNOTSUPP;
		if (!t)
			continue;
		t->waits += items[i].waits;
		t->writes += items[i].writes;
		t->others += !items[i].waits && !items[i].writes;
	}
	for (i = 0; i < nr_edges; i++) {
		const struct item *from = &items[edges[i].from], *to = &items[edges[i].to];
		struct triple *t = triple_of(v, nr, to);

		if (!t || t != triple_of(v, nr, from))
			continue;
		t->host_to_wait |= from->ours && to->waits;
		t->wait_to_write |= from->waits && to->writes;
	}
	for (i = 0; i < nr; i++)
		if (v[i].node->readable &&
		    (v[i].waits != 1 || v[i].writes != 1 || v[i].others ||
		     (with_edges && (!v[i].host_to_wait || !v[i].wait_to_write))))
			return -EOPNOTSUPP;
	return 0;
}

/*
 * Nothing but collectives: host functions and memory operations of ours, each with its two, and empty nodes, which only
 * order what is there.
 */
static int is_bare(struct triple *v, size_t nr, const struct item *items, size_t nr_items)
{
	size_t i, ops = 0;
	int bare = 1;

	for (i = 0; i < nr_items && bare; i++) {
		const struct item *it = &items[i];

		if (it->type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP) {
			ops++;
			bare = triple_of(v, nr, it) != NULL;
		} else if (it->type == CU_GRAPH_NODE_TYPE_GRAPH) {
			bare = it->sub.bare;
		} else {
			bare = it->type == CU_GRAPH_NODE_TYPE_EMPTY ||
			       (it->ours && it->ours->w && it->ours->ops.issue);
		}
	}
	return bare && ops == 2 * nr;
}

/* Looks at the items of one graph; fills e. some: how many of them are ours, or have such. */
static int judge(CUgraph graph, struct item *items, size_t nr, size_t some, struct df_gnodes *e)
{
	struct triple *v = calloc(nr + 1, sizeof(*v));
	struct edge *edges = NULL;
	size_t nr_edges = 0, n = 0, i;
	int ret = v ? 0 : -ENOMEM, known = 0;

	qsort(items, nr, sizeof(*items), by_node);
	for (i = 0; i < nr; i++)
		items[i].next = SIZE_MAX;
	if (!ret && some) {
		ret = read_edges(graph, items, nr, &edges, &nr_edges);
		known = !ret;
		/* Of a single one the order is known without. */
		if (some == 1 && ret != -ENOMEM)
			ret = 0;
	}
	for (i = 0; i < nr && !ret; i++)
		if (items[i].ours && items[i].ours->w)
			v[n++] =
				(struct triple){.gate = (CUdeviceptr)(uintptr_t)items[i].ours->gate,
						.node = items[i].ours};
	if (!ret) {
		qsort(v, n, sizeof(*v), by_gate);
		ret = are_whole(v, n, items, nr, edges, nr_edges, known);
	}
	e->chain = 1;
	e->bare = !ret && is_bare(v, n, items, nr);
	for (i = 0; i < nr && !ret; i++)
		e->chain &= items[i].type != CU_GRAPH_NODE_TYPE_GRAPH || items[i].sub.chain;
	if (!ret && some > 1)
		ret = in_order(items, nr, edges, nr_edges, e);
	for (i = 0; i < nr && !ret && some == 1; i++)
		if (items[i].serial)
			ret = items[i].ours ? exec_add(e, &items[i].ours, 1)
					    : exec_add(e, items[i].sub.v, items[i].sub.nr);
	free(edges);
	free(v);
	return ret;
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
	if (!ret)
		ret = judge(graph, items, nr, some, e);
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
