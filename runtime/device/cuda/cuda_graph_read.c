/*
 * Finds the collectives of a CUDA graph, and an order in which the graph may execute them. They are
 * read from the graph itself, so that clones, children and updates need no book-keeping. Changes of
 * single nodes of executable graphs, which would need some, are refused where they change a
 * collective. A collective is found by memory operations of the stream, which this file also adds.
 */
#if __has_include(<cuda.h>)
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/base/log.h"
#include "runtime/device/cuda/cuda_graph.h"
#include "runtime/device/cuda/front/cuda_front.h"

#define MAX_DEPTH 8

/* A node of a graph: a part of a collective, a child graph that has some, or another node. */
struct item {
	CUgraphNode node;
	CUgraphNodeType type;
	enum df_gpart part;
	struct df_gnode *of; /* the collective whose part it is */
	/* for an arrival: its collective; for a node with notes: the notes */
	struct df_gnode *ours;
	struct df_gnodes sub;
	uint64_t serial; /* serial of the first collective in it; 0 if there is none */
	size_t before;	 /* number of predecessors that have not been visited */
	size_t next;	 /* index of its first edge */
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

/* Gets the memory operation of a node. Returns -errno if it has none, or more than one. */
static int mem_op_of(CUgraphNode node, CUstreamBatchMemOpParams *out)
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

/*
 * Reads the edges of a graph, sorted by their start. `items` must be sorted by node. Returns 0 or
 * -errno.
 */
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
 * Lists the collectives of a graph in an order in which the graph may execute them. A node is
 * listed after its predecessors. If several could be next, the one that was captured first is. So
 * ranks that captured the same collectives get the same order.
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
		/* Nodes without collectives have serial 0, so they are visited first. */
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

static int collect(CUgraph graph, struct df_gnodes *e, int depth);

static int read_item(CUgraphNode node, struct item *it, int depth)
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
		ret = collect(child, &it->sub, depth + 1);
		it->serial = it->sub.nr ? it->sub.v[0]->serial : 0;
	} else if (it->type == CU_GRAPH_NODE_TYPE_HOST) {
		if (df_drv.node_host(node, &host) != CUDA_SUCCESS)
			return -EIO;
		if (host.fn == df_gnode_noted && !df_gnode_lives(host.userData))
			return -EOPNOTSUPP;
		if (host.fn == df_gnode_noted) {
			it->ours = host.userData;
			it->serial = it->ours->serial;
		}
	} else if (!mem_op_of(node, &op)) {
		it->part = df_gnode_part(&op, &it->of);
		/* The node names the gate of a collective that has ended. */
		if (it->part && !it->of)
			return -EOPNOTSUPP;
		if (it->part == DF_GPART_ARRIVES) {
			it->ours = it->of;
			it->serial = it->ours->serial;
		}
	}
	return ret;
}

/* ---- the nodes of each collective ------------------------------------------------------------ */

/* The nodes of a collective that were found, and the edges between them. */
struct triple {
	const struct df_gnode *node;
	int arrives, waits, closes, others;
	/*
	 * Whether edges lead from its arrival to a node of its group, from a node of its group to
	 * its wait, and from its wait to its close.
	 */
	int begins, waited, closed;
};

static int by_of(const void *a, const void *b)
{
	const struct triple *x = a, *y = b;

	return (uintptr_t)x->node < (uintptr_t)y->node ? -1
						       : (uintptr_t)x->node > (uintptr_t)y->node;
}

static struct triple *triple_of(struct triple *v, size_t nr, const struct df_gnode *n)
{
	struct triple key = {.node = n};

	return n ? bsearch(&key, v, nr, sizeof(key), by_of) : NULL;
}

static void note_edge(struct triple *v, size_t nr, const struct item *from, const struct item *to)
{
	struct triple *f = triple_of(v, nr, from->of), *t = triple_of(v, nr, to->of);

	if (!f || !t || f->node->head != t->node->head)
		return;
	f->begins |= from->part == DF_GPART_ARRIVES;
	t->waited |= to->part == DF_GPART_WAITS;
	t->closed |= f == t && from->part == DF_GPART_WAITS && to->part == DF_GPART_CLOSES;
}

/* Whether all collectives that were captured together with n are in the graph. */
static int has_group(struct triple *v, size_t nr, const struct df_gnode *n)
{
	uint32_t found = 0;
	size_t i;

	for (i = 0; i < nr; i++)
		found += v[i].node->head == n->head;
	return found == n->nr_group;
}

/*
 * Returns 0, or -EOPNOTSUPP if a node is missing, changed, or detached from the others.
 * `with_edges`: the edges are known.
 */
static int are_whole(struct triple *v, size_t nr, const struct item *items, size_t nr_items,
		     const struct edge *edges, size_t nr_edges, int with_edges)
{
	size_t i;

	for (i = 0; i < nr_items; i++) {
		struct triple *t = triple_of(v, nr, items[i].of);

		if (items[i].of && !t)
			return -EOPNOTSUPP;
		if (!t)
			continue;
		t->arrives += items[i].part == DF_GPART_ARRIVES;
		t->waits += items[i].part == DF_GPART_WAITS;
		t->closes += items[i].part == DF_GPART_CLOSES;
		t->others += items[i].part == DF_GPART_OTHER;
	}
	for (i = 0; i < nr_edges; i++)
		note_edge(v, nr, &items[edges[i].from], &items[edges[i].to]);
	for (i = 0; i < nr; i++)
		if (v[i].arrives != 1 || v[i].waits != 1 || v[i].closes != 1 || v[i].others ||
		    (with_edges && (!v[i].begins || !v[i].waited || !v[i].closed)) ||
		    (v[i].node->nr_group > 1 && !has_group(v, nr, v[i].node)))
			return -EOPNOTSUPP;
	return 0;
}

/*
 * Whether the graph has only collectives: three memory operations of each, and empty nodes, which
 * only order them.
 */
static int is_bare(size_t nr, const struct item *items, size_t nr_items)
{
	size_t i, ops = 0;
	int bare = 1;

	for (i = 0; i < nr_items && bare; i++) {
		const struct item *it = &items[i];

		ops += it->part != DF_GPART_NONE;
		if (it->type == CU_GRAPH_NODE_TYPE_GRAPH)
			bare = it->sub.bare;
		else
			bare = it->type == CU_GRAPH_NODE_TYPE_EMPTY ||
			       (it->of && it->of->ops.issue);
	}
	return bare && ops == 3 * nr;
}

/*
 * Whether a path of edges leads from one item to another. `todo` has space for twice the number of
 * items.
 */
static int leads_to(const struct item *items, size_t nr, const struct edge *edges, size_t nr_edges,
		    size_t from, size_t to, size_t *todo)
{
	size_t *seen = todo + nr, n = 0, i;

	memset(seen, 0, nr * sizeof(*seen));
	todo[n++] = from;
	seen[from] = 1;
	while (n && !seen[to]) {
		size_t at = todo[--n];

		for (i = items[at].next; i < nr_edges && edges[i].from == at; i++)
			if (!seen[edges[i].to]++)
				todo[n++] = edges[i].to;
	}
	return seen[to] != 0;
}

/* Whether two child graphs have a collective in common. */
static int share(const struct item *a, const struct item *b)
{
	size_t i, k;

	for (i = 0; i < a->sub.nr; i++)
		for (k = 0; k < b->sub.nr; k++)
			if (a->sub.v[i]->slot && a->sub.v[i] == b->sub.v[k])
				return 1;
	return 0;
}

/*
 * Returns -EOPNOTSUPP if two child graphs share a collective and neither follows the other: both
 * could run at once, but a gate serves one replay at a time. Else returns 0 or -ENOMEM.
 */
static int are_apart(const struct item *items, size_t nr, const struct edge *edges, size_t nr_edges)
{
	size_t *todo = calloc(2 * nr + 1, sizeof(*todo)), i, k;
	int ret = todo ? 0 : -ENOMEM;

	for (i = 0; i < nr && !ret; i++)
		for (k = i + 1; k < nr && !ret && items[i].sub.nr; k++)
			if (share(&items[i], &items[k]) &&
			    !leads_to(items, nr, edges, nr_edges, i, k, todo) &&
			    !leads_to(items, nr, edges, nr_edges, k, i, todo))
				ret = -EOPNOTSUPP;
	free(todo);
	return ret;
}

/*
 * Checks the items of one graph and fills e. `some` is the number of items that are ours or contain
 * some of ours. Returns 0 or -errno.
 */
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
		/* A single item needs no edges for its order. */
		if (some == 1 && ret != -ENOMEM)
			ret = 0;
	}
	for (i = 0; i < nr && !ret; i++)
		if (items[i].ours && items[i].ours->slot)
			v[n++].node = items[i].ours;
	if (!ret) {
		qsort(v, n, sizeof(*v), by_of);
		for (i = 1; i < n; i++)
			if (v[i].node == v[i - 1].node)
				ret = -EOPNOTSUPP;
	}
	if (!ret)
		ret = are_whole(v, n, items, nr, edges, nr_edges, known);
	if (!ret && known)
		ret = are_apart(items, nr, edges, nr_edges);
	e->chain = 1;
	e->bare = !ret && is_bare(n, items, nr);
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

static int collect(CUgraph graph, struct df_gnodes *e, int depth)
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
		ret = read_item(nodes[i], &items[i], depth);
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

int df_graph_read(CUgraph graph, struct df_gnodes *out)
{
	return collect(graph, out, 0);
}

/* ---- single nodes of executable graphs ------------------------------------------------------- */

static int set_host(CUgraphNode node, const struct df_node_set *to)
{
	CUDA_HOST_NODE_PARAMS is = {0};

	if (df_drv.node_host(node, &is) != CUDA_SUCCESS)
		return 0;
	return (is.fn == df_gnode_noted || to->fn == (const void *)df_gnode_noted) &&
	       (to->fn != (const void *)is.fn || to->arg != is.userData);
}

static int set_mem_ops(CUgraphNode node, const struct df_node_set *to)
{
	const CUstreamBatchMemOpParams *v = to->ops;
	CUstreamBatchMemOpParams is;
	struct df_gnode *n;
	int single = !mem_op_of(node, &is);
	unsigned int i;

	if (single && v && to->nr_ops == 1 && is.operation == v->operation &&
	    is.waitValue.address == v->waitValue.address &&
	    is.waitValue.value64 == v->waitValue.value64)
		return 0;
	for (i = 0; v && i < to->nr_ops; i++)
		if (df_gnode_part(&v[i], &n))
			return 1;
	return single && df_gnode_part(&is, &n);
}

static int has_ours(CUgraph graph)
{
	struct df_gnodes has = {0};
	int ret;

	df_gnodes_read();
	ret = df_graph_read(graph, &has);
	df_gnodes_read_end();
	free(has.v);
	return ret || has.nr;
}

static int set_child(CUgraphNode node, const struct df_node_set *to)
{
	CUgraph is;

	if (df_drv.node_child(node, &is) != CUDA_SUCCESS)
		return 0;
	return has_ours(is) || (to->child && has_ours(to->child));
}

int df_cuda_graph_set(CUgraphNode node, const struct df_node_set *to)
{
	CUgraphNodeType type;
	int refused = 0;

	if (!df_gnodes_any() || !node || df_drv.node_type(node, &type) != CUDA_SUCCESS)
		return 0;
	if (type == CU_GRAPH_NODE_TYPE_HOST)
		refused = set_host(node, to);
	else if (type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP)
		refused = set_mem_ops(node, to);
	else if (type == CU_GRAPH_NODE_TYPE_GRAPH)
		refused = set_child(node, to);
	if (refused)
		df_warn_once(
			"a node of a captured collective cannot be changed in an executable "
			"graph: use cuGraphExecUpdate with the whole graph, or instantiate the "
			"graph again");
	return refused;
}

/* ---- memory operations ----------------------------------------------------------------------- */

CUdeviceptr df_gnode_word(const uint64_t *p)
{
	return (CUdeviceptr)(uintptr_t)p;
}

/* Whether the driver reports the operation that was just captured correctly. */
static int is_readable(CUstream s, const struct df_gnode *n)
{
	CUstreamCaptureStatus status;
	CUstreamBatchMemOpParams op;
	const CUgraphNode *last;
	struct df_gnode *of;
	CUgraph graph;
	cuuint64_t id;
	size_t nr;

	return df_drv.stream_capture_info(s, &status, &id, &graph, &last, &nr) == CUDA_SUCCESS &&
	       nr == 1 && !mem_op_of(last[0], &op) && df_gnode_part(&op, &of) == DF_GPART_CLOSES &&
	       of == n;
}

CUresult df_gnodes_put(CUstream s, struct df_gnode *const *v, size_t nr)
{
	CUresult r = CUDA_SUCCESS;
	size_t i;

	for (i = 0; i < nr && r == CUDA_SUCCESS; i++)
		r = df_drv.stream_write64(s, df_gnode_word(&v[i]->slot->gate->arrived), 1,
					  CU_STREAM_WRITE_VALUE_DEFAULT);
	for (i = 0; i < nr && r == CUDA_SUCCESS; i++) {
		r = df_drv.stream_wait64(s, df_gnode_word(&v[i]->slot->gate->open), 1,
					 CU_STREAM_WAIT_VALUE_GEQ);
		if (r == CUDA_SUCCESS)
			r = df_drv.stream_write64(s, df_gnode_word(&v[i]->slot->gate->open), 0,
						  CU_STREAM_WRITE_VALUE_DEFAULT);
	}
	return r;
}

int df_gnodes_capture(struct df_mstream *const *s, struct df_gnode *const *v, uint32_t nr,
		      struct df_gnode **some)
{
	uint32_t i, k, n;
	CUresult r;

	for (i = 0; i < nr; i++) {
		for (k = 0; s[k] != s[i];)
			k++;
		if (k < i)
			continue;
		for (n = 0; k < nr; k++)
			if (s[k] == s[i])
				some[n++] = v[k];
		r = df_gnodes_put(s[i]->handle, some, n);
		if (r != CUDA_SUCCESS)
			return df_drv_errno(r);
		/* A graph whose collectives cannot be found would wait for ever. */
		if (!is_readable(s[i]->handle, some[n - 1]))
			return -EOPNOTSUPP;
	}
	return 0;
}
#endif
