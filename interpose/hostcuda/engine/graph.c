/*
 * Graphs as objects: nodes, edges, copies, user objects, and the functions of the API that query
 * them (graph.h). One thread at a time uses a graph, as CUDA demands. User objects and collectives
 * are counted with atomics, because the engine may drop the last reference.
 */
#include "interpose/hostcuda/engine/graph.h"
#include "runtime/base/vec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int df_hgraph_init(void)
{
	int err = df_hslab_init(&df_h.graphs, "graphs", sizeof(struct df_hgraph), 1 << 18);

	if (!err)
		err = df_hslab_init(&df_h.nodes, "graph nodes", sizeof(struct df_hnode), 1 << 20);
	if (!err)
		err = df_hslab_init(&df_h.objects, "user objects", sizeof(struct df_hobject),
				    1 << 20);
	return err ? err : df_hexec_init();
}

/* -- sets -------------------------------------------------------------------------------------- */

int df_hnodes_push(struct df_hnodes *set, struct df_hnode *node)
{
	if (DF_VEC_ROOM(set->v, set->cap, set->nr + 1))
		return -ENOMEM;
	set->v[set->nr++] = node;
	return 0;
}

int df_hnodes_add(struct df_hnodes *set, struct df_hnode *node)
{
	size_t i;

	for (i = 0; i < set->nr; i++)
		if (set->v[i] == node)
			return 0;
	return df_hnodes_push(set, node);
}

void df_hnodes_fini(struct df_hnodes *set)
{
	free(set->v);
	memset(set, 0, sizeof(*set));
}

static int set_del(struct df_hnodes *set, struct df_hnode *node)
{
	size_t i;

	for (i = 0; i < set->nr; i++) {
		if (set->v[i] != node)
			continue;
		memmove(&set->v[i], &set->v[i + 1], (set->nr - i - 1) * sizeof(*set->v));
		set->nr--;
		return 1;
	}
	return 0;
}

/* -- references -------------------------------------------------------------------------------- */

void df_hcoll_put(struct df_hcoll *coll)
{
	/*
	 * ACQ_REL pairs with the other decrements: the last one sees what the others did with the
	 * collective; without it destroy could use half-written state.
	 */
	if (coll && __atomic_sub_fetch(&coll->refs, 1, __ATOMIC_ACQ_REL) == 0) {
		coll->ops->destroy(coll->arg);
		free(coll);
	}
}

/* -- graphs ------------------------------------------------------------------------------------ */

struct df_hgraph *df_hgraph_find(cudaGraph_t graph)
{
	return df_hslab_find(&df_h.graphs, graph);
}

struct df_hnode *df_hnode_find(cudaGraphNode_t node)
{
	return df_hslab_find(&df_h.nodes, node);
}

struct df_hgraph *df_hgraph_new(void)
{
	struct df_hgraph *g = df_hslab_get(&df_h.graphs);

	if (!g)
		return NULL;
	memset(&g->nodes, 0, sizeof(g->nodes));
	g->held = NULL;
	g->nr_held = 0;
	g->owned = 0;
	df_hslot_publish(&g->slot);
	return g;
}

struct df_hnode *df_hnode_new(struct df_hgraph *g, enum cudaGraphNodeType type,
			      const struct df_hnodes *deps)
{
	struct df_hnode *node = df_hslab_get(&df_h.nodes);
	struct df_hslot slot;
	size_t i;

	if (!node)
		return NULL;
	slot = node->slot;
	memset(node, 0, sizeof(*node));
	node->slot.index = slot.index;
	node->type = type;
	node->graph = g;
	node->id = df_hid();
	node->device = df_htls.device;
	node->op.kind = DF_HOP_MARK;
	for (i = 0; deps && i < deps->nr; i++)
		if (df_hnodes_push(&node->deps, deps->v[i]))
			goto err;
	if (df_hnodes_push(&g->nodes, node))
		goto err;
	df_hslot_publish(&node->slot);
	return node;
err:
	df_hnodes_fini(&node->deps);
	df_hslab_put(&df_h.nodes, node);
	return NULL;
}

static void node_delete(struct df_hnode *node)
{
	if (!df_hslot_retire(&node->slot))
		return;
	df_hcoll_put(node->coll);
	if (node->child)
		df_hgraph_delete(node->child);
	df_hnodes_fini(&node->deps);
	df_hslab_put(&df_h.nodes, node);
}

void df_hgraph_delete(struct df_hgraph *g)
{
	size_t i;

	if (!df_hslot_retire(&g->slot))
		return;
	for (i = 0; i < g->nodes.nr; i++)
		node_delete(g->nodes.v[i]);
	df_hnodes_fini(&g->nodes);
	for (i = 0; i < g->nr_held; i++)
		df_hobject_put(g->held[i].object, g->held[i].count);
	free(g->held);
	df_hslab_put(&df_h.graphs, g);
}

/*
 * The copy has its nodes in the order of the originals. The field `order` of an original is its
 * index.
 */
struct df_hgraph *df_hgraph_clone(struct df_hgraph *g)
{
	struct df_hgraph *copy = df_hgraph_new();
	struct df_hnode *from, *to;
	size_t i, j;

	if (!copy)
		return NULL;
	for (i = 0; i < g->nodes.nr; i++) {
		from = g->nodes.v[i];
		from->order = i;
		to = df_hnode_new(copy, from->type, NULL);
		if (!to)
			goto err;
		to->op = from->op;
		to->device = from->device;
		to->event = from->event;
		to->event_id = from->event_id;
		to->params = from->params;
		to->origin = from;
		to->origin_id = from->id;
		to->coll = from->coll;
		if (to->coll)
			/* RELAXED: the original keeps it alive meanwhile. */
			__atomic_fetch_add(&to->coll->refs, 1, __ATOMIC_RELAXED);
		if (from->child) {
			to->child = df_hgraph_clone(from->child);
			if (!to->child)
				goto err;
			to->child->owned = 1;
		}
	}
	for (i = 0; i < g->nodes.nr; i++)
		for (j = 0; j < g->nodes.v[i]->deps.nr; j++)
			if (df_hnodes_push(&copy->nodes.v[i]->deps,
					   copy->nodes.v[g->nodes.v[i]->deps.v[j]->order]))
				goto err;
	for (i = 0; i < g->nr_held; i++) {
		if (df_hhold(&copy->held, &copy->nr_held, g->held[i].object, g->held[i].count))
			goto err;
		/* RELAXED: the original keeps it alive meanwhile. */
		__atomic_fetch_add(&g->held[i].object->refs, g->held[i].count, __ATOMIC_RELAXED);
	}
	return copy;
err:
	df_hgraph_delete(copy);
	return NULL;
}

int df_hgraph_order(struct df_hgraph *g, struct df_hnode ***out)
{
	size_t nr = g->nodes.nr, done = 0, i, j, before;
	struct df_hnode **v = calloc(nr ? nr : 1, sizeof(*v)), *node;

	if (!v)
		return -ENOMEM;
	/*
	 * `order` is the index in v plus 1, or 0 if the node is not placed yet. For a captured
	 * graph one pass is enough, because it is in order already.
	 */
	for (i = 0; i < nr; i++)
		g->nodes.v[i]->order = 0;
	do {
		before = done;
		for (i = 0; i < nr; i++) {
			node = g->nodes.v[i];
			for (j = 0; !node->order && j < node->deps.nr; j++)
				if (!node->deps.v[j]->order)
					break;
			if (node->order || j < node->deps.nr)
				continue;
			v[done++] = node;
			node->order = done;
		}
	} while (done < nr && done > before);
	if (done < nr) {
		free(v);
		return -EINVAL;
	}
	*out = v;
	return 0;
}

/* -- the API: graphs --------------------------------------------------------------------------- */

DF_H_API cudaError_t cudaGraphCreate(cudaGraph_t *out, unsigned flags)
{
	cudaError_t err = df_henter();
	struct df_hgraph *g;

	if (!err && (!out || flags))
		err = cudaErrorInvalidValue;
	if (err)
		return df_hret(err);
	g = df_hgraph_new();
	if (!g)
		return df_hret(cudaErrorMemoryAllocation);
	*out = (cudaGraph_t)g;
	return cudaSuccess;
}

static cudaError_t graph_arg(cudaGraph_t graph, struct df_hgraph **g)
{
	cudaError_t err = df_henter();

	*g = err ? NULL : df_hgraph_find(graph);
	return err ? err : *g ? cudaSuccess : cudaErrorInvalidValue;
}

static cudaError_t node_arg(cudaGraphNode_t handle, struct df_hnode **node)
{
	cudaError_t err = df_henter();

	*node = err ? NULL : df_hnode_find(handle);
	return err ? err : *node ? cudaSuccess : cudaErrorInvalidValue;
}

DF_H_API cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
	struct df_hgraph *g;
	cudaError_t err = graph_arg(graph, &g);

	if (!err && g->owned)
		err = cudaErrorInvalidValue;
	if (!err)
		df_hgraph_delete(g);
	return df_hret(err);
}

DF_H_API cudaError_t cudaGraphClone(cudaGraph_t *out, cudaGraph_t graph)
{
	struct df_hgraph *g, *copy;
	cudaError_t err = graph_arg(graph, &g);

	if (!err && !out)
		err = cudaErrorInvalidValue;
	if (err)
		return df_hret(err);
	copy = df_hgraph_clone(g);
	if (!copy)
		return df_hret(cudaErrorMemoryAllocation);
	*out = (cudaGraph_t)copy;
	return cudaSuccess;
}

DF_H_API cudaError_t cudaGraphNodeFindInClone(cudaGraphNode_t *out, cudaGraphNode_t original,
					      cudaGraph_t clone)
{
	struct df_hgraph *g;
	struct df_hnode *node;
	cudaError_t err = graph_arg(clone, &g);
	size_t i;

	if (!err)
		err = node_arg(original, &node);
	if (!err && !out)
		err = cudaErrorInvalidValue;
	if (err)
		return df_hret(err);
	for (i = 0; i < g->nodes.nr; i++) {
		if (g->nodes.v[i]->origin == node && g->nodes.v[i]->origin_id == node->id) {
			*out = (cudaGraphNode_t)g->nodes.v[i];
			return cudaSuccess;
		}
	}
	return df_hret(cudaErrorInvalidValue);
}

/* CUDA's form of returning lists: a NULL array asks for the number, a longer array is padded. */
struct list_out {
	cudaGraphNode_t *a, *b;
	size_t room, nr;
};

static void put(struct list_out *out, struct df_hnode *a, struct df_hnode *b)
{
	if (out->nr < out->room) {
		if (out->a)
			out->a[out->nr] = (cudaGraphNode_t)a;
		if (out->b)
			out->b[out->nr] = (cudaGraphNode_t)b;
	}
	out->nr++;
}

static void finish(struct list_out *out, size_t *nr, cudaGraphEdgeData *edges)
{
	size_t i;

	if (!out->a && !out->b) {
		*nr = out->nr;
		return;
	}
	for (i = out->nr; i < out->room; i++) {
		if (out->a)
			out->a[i] = NULL;
		if (out->b)
			out->b[i] = NULL;
	}
	*nr = DF_MIN(out->nr, out->room);
	if (edges)
		memset(edges, 0, *nr * sizeof(*edges));
}

/* Begins a query that returns a list. `err` is the error of the queried object. */
static cudaError_t list_begin(struct list_out *out, cudaError_t err, const size_t *nr)
{
	if (!err && !nr)
		err = cudaErrorInvalidValue;
	if (err)
		return df_hret(err);
	out->room = out->a || out->b ? *nr : 0;
	return cudaSuccess;
}

/* Lists the nodes of a graph, or only its roots. */
static cudaError_t list_nodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *nr, int roots)
{
	struct list_out out = {.a = nodes};
	struct df_hgraph *g;
	cudaError_t err = list_begin(&out, graph_arg(graph, &g), nr);
	size_t i;

	if (err)
		return err;
	for (i = 0; i < g->nodes.nr; i++)
		if (!roots || !g->nodes.v[i]->deps.nr)
			put(&out, g->nodes.v[i], NULL);
	finish(&out, nr, NULL);
	return cudaSuccess;
}

DF_H_API cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *nr)
{
	return list_nodes(graph, nodes, nr, 0);
}

DF_H_API cudaError_t cudaGraphGetRootNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *nr)
{
	return list_nodes(graph, nodes, nr, 1);
}

DF_H_API cudaError_t cudaGraphGetEdges(cudaGraph_t graph, cudaGraphNode_t *from,
				       cudaGraphNode_t *to, cudaGraphEdgeData *edges, size_t *nr)
{
	struct list_out out = {.a = from, .b = to};
	struct df_hgraph *g;
	cudaError_t err = list_begin(&out, graph_arg(graph, &g), nr);
	size_t i, j;

	if (err)
		return err;
	for (i = 0; i < g->nodes.nr; i++)
		for (j = 0; j < g->nodes.v[i]->deps.nr; j++)
			put(&out, g->nodes.v[i]->deps.v[j], g->nodes.v[i]);
	finish(&out, nr, edges);
	return cudaSuccess;
}

DF_H_API cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t handle, cudaGraphNode_t *deps,
						  cudaGraphEdgeData *edges, size_t *nr)
{
	struct list_out out = {.a = deps};
	struct df_hnode *node;
	cudaError_t err = list_begin(&out, node_arg(handle, &node), nr);
	size_t i;

	if (err)
		return err;
	for (i = 0; i < node->deps.nr; i++)
		put(&out, node->deps.v[i], NULL);
	finish(&out, nr, edges);
	return cudaSuccess;
}

DF_H_API cudaError_t cudaGraphNodeGetDependentNodes(cudaGraphNode_t handle, cudaGraphNode_t *nodes,
						    cudaGraphEdgeData *edges, size_t *nr)
{
	struct list_out out = {.a = nodes};
	struct df_hnode *node, *other;
	cudaError_t err = list_begin(&out, node_arg(handle, &node), nr);
	size_t i, j;

	if (err)
		return err;
	for (i = 0; i < node->graph->nodes.nr; i++) {
		other = node->graph->nodes.v[i];
		for (j = 0; j < other->deps.nr; j++)
			if (other->deps.v[j] == node)
				put(&out, other, NULL);
	}
	finish(&out, nr, edges);
	return cudaSuccess;
}

DF_H_API cudaError_t cudaGraphNodeGetType(cudaGraphNode_t handle, enum cudaGraphNodeType *type)
{
	struct df_hnode *node;
	cudaError_t err = node_arg(handle, &node);

	if (!err && !type)
		err = cudaErrorInvalidValue;
	if (!err)
		*type = node->type;
	return df_hret(err);
}

static cudaError_t edit(cudaGraph_t graph, const cudaGraphNode_t *from, const cudaGraphNode_t *to,
			size_t nr, int remove)
{
	struct df_hgraph *g;
	struct df_hnode *a, *b;
	cudaError_t err = graph_arg(graph, &g);
	size_t i;

	if (!err && nr && (!from || !to))
		err = cudaErrorInvalidValue;
	for (i = 0; !err && i < nr; i++) {
		a = df_hnode_find(from[i]);
		b = df_hnode_find(to[i]);
		if (!a || !b || a == b || a->graph != g || b->graph != g)
			err = cudaErrorInvalidValue;
		else if (remove)
			err = set_del(&b->deps, a) ? cudaSuccess : cudaErrorInvalidValue;
		else
			err = df_herr(df_hnodes_add(&b->deps, a));
	}
	return err;
}

DF_H_API cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t *from,
					      const cudaGraphNode_t *to,
					      const cudaGraphEdgeData *edges, size_t nr)
{
	(void)edges;
	return df_hret(edit(graph, from, to, nr, 0));
}

DF_H_API cudaError_t cudaGraphRemoveDependencies(cudaGraph_t graph, const cudaGraphNode_t *from,
						 const cudaGraphNode_t *to,
						 const cudaGraphEdgeData *edges, size_t nr)
{
	(void)edges;
	return df_hret(edit(graph, from, to, nr, 1));
}

DF_H_API cudaError_t cudaGraphDestroyNode(cudaGraphNode_t handle)
{
	struct df_hnode *node;
	cudaError_t err = node_arg(handle, &node);
	size_t i;

	if (err)
		return df_hret(err);
	for (i = 0; i < node->graph->nodes.nr; i++)
		set_del(&node->graph->nodes.v[i]->deps, node);
	set_del(&node->graph->nodes, node);
	node_delete(node);
	return cudaSuccess;
}

DF_H_API cudaError_t cudaGraphDebugDotPrint(cudaGraph_t graph, const char *path, unsigned flags)
{
	struct df_hgraph *g;
	cudaError_t err = graph_arg(graph, &g);
	size_t i, j;
	FILE *f;

	(void)flags;
	if (!err && !path)
		err = cudaErrorInvalidValue;
	if (err)
		return df_hret(err);
	f = fopen(path, "we");
	if (!f)
		return df_hret(cudaErrorOperatingSystem);
	fprintf(f, "digraph dfhost {\n");
	for (i = 0; i < g->nodes.nr; i++) {
		g->nodes.v[i]->order = i;
		fprintf(f, "\tn%zu [label=\"%zu: type %d%s\"];\n", i, i, (int)g->nodes.v[i]->type,
			g->nodes.v[i]->coll ? ", collective" : "");
	}
	for (i = 0; i < g->nodes.nr; i++)
		for (j = 0; j < g->nodes.v[i]->deps.nr; j++)
			fprintf(f, "\tn%zu -> n%zu;\n", g->nodes.v[i]->deps.v[j]->order, i);
	fprintf(f, "}\n");
	return df_hret(fclose(f) ? cudaErrorOperatingSystem : cudaSuccess);
}
