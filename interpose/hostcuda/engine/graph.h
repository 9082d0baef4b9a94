/*
 * Graphs: capture.c builds them, graph.c keeps and edits them, graph_exec.c executes them.
 *
 * One thread at a time uses a graph (CUDA's rule); the capture lock is held while a capture adds to
 * it. An executable graph is a flat copy: child graphs are unfolded, nodes are in topological
 * order, and each belongs to a lane. The first lane is executed on the launching stream, each other
 * one on an internal stream. Executing a graph means enqueueing it, so branches overtake each other
 * as streams do.
 */
#ifndef DF_INTERPOSE_HOSTCUDA_ENGINE_GRAPH_H
#define DF_INTERPOSE_HOSTCUDA_ENGINE_GRAPH_H

#include "interpose/hostcuda/internal.h"

/* A collective of libdfshim.so, shared by all nodes that are copies of one captured call. */
struct df_hcoll {
	const struct df_capture_ops *ops;
	void *arg;
	uint32_t refs; /* atomic */
};

struct df_hobject { /* cudaUserObject_t */
	struct df_hslot slot;
	cudaHostFn_t destroy;
	void *arg;
	uint32_t refs; /* atomic */
};

struct df_hheld {
	struct df_hobject *object;
	unsigned count;
};

struct df_hgraph {
	struct df_hslot slot;
	struct df_hnodes nodes;
	struct df_hheld *held;
	size_t nr_held;
	int owned; /* owned by a child graph node, so the user cannot destroy it */
};

struct df_hnode {
	struct df_hslot slot;
	enum cudaGraphNodeType type;
	struct df_hgraph *graph;
	struct df_hnodes deps;
	struct df_hop op;
	int device;
	struct df_hcoll *coll;
	struct df_hgraph *child;
	struct df_hevent *event;
	uint64_t event_id;
	size_t order; /* for temporary use by walks over the graph */
	struct df_hnode *origin;
	uint64_t origin_id, id;
	union {
		struct cudaMemcpy3DParms copy;
		struct cudaMemsetParams fill;
		struct cudaHostNodeParams host;
		struct cudaKernelNodeParams kernel;
	} params;
};

/*
 * df_hnodes_add() adds the node unless it is in the set; df_hnodes_push() adds it at the end. Both
 * fail with -ENOMEM.
 */
int df_hnodes_add(struct df_hnodes *set, struct df_hnode *node);
int df_hnodes_push(struct df_hnodes *set, struct df_hnode *node);
void df_hnodes_fini(struct df_hnodes *set);

struct df_hgraph *df_hgraph_new(void);
void df_hgraph_delete(struct df_hgraph *g);
struct df_hgraph *df_hgraph_clone(struct df_hgraph *g);
struct df_hgraph *df_hgraph_find(cudaGraph_t graph);
struct df_hnode *df_hnode_find(cudaGraphNode_t node);
/* Makes a node of the graph; copies its dependencies. Returns NULL if memory is short. */
struct df_hnode *df_hnode_new(struct df_hgraph *g, enum cudaGraphNodeType type,
			      const struct df_hnodes *deps);
/*
 * Stores the nodes in an order in which each follows its dependencies. Fails with -EINVAL if there
 * is a cycle.
 */
int df_hgraph_order(struct df_hgraph *g, struct df_hnode ***out);
void df_hcoll_put(struct df_hcoll *coll);
int df_hhold(struct df_hheld **held, size_t *nr, struct df_hobject *object, unsigned count);
void df_hobject_put(struct df_hobject *object, unsigned count);

/* Adds a node of the application for an operation that has been checked. */
cudaError_t df_hnode_add(cudaGraphNode_t *out, cudaGraph_t graph, const cudaGraphNode_t *deps,
			 size_t nr, enum cudaGraphNodeType type, const struct df_hop *op);

int df_hexec_init(void);
/* Makes the executable's copy of the node do this operation, from the next launch on. */
cudaError_t df_hexec_node_set(cudaGraphExec_t exec, cudaGraphNode_t handle,
			      const struct df_hop *op);

/* Releases a reference to a plan, `arg`. */
void df_hplan_put(void *arg);

#endif
