/*
 * Shared by cuda_graph.c, which captures and replays collectives, and cuda_graph_read.c, which
 * finds them in a graph. Private to them.
 */
#ifndef DF_RUNTIME_DEVICE_CUDA_CUDA_GRAPH_H
#define DF_RUNTIME_DEVICE_CUDA_CUDA_GRAPH_H

#include "runtime/device/cuda/cuda_int.h"

/* A noted operation of a graph (mode trace). */
struct df_gnote {
	const struct df_capture_ops *ops;
	void *arg;
};

/*
 * A gate, in pinned memory. It is never freed, so a node that names it can be recognised as ours.
 */
struct df_gslot {
	struct df_kgate *gate;
	struct df_gnode *of; /* NULL if the slot is unused */
	UT_hash_handle hh;
	struct df_gslot *next; /* next unused slot */
};

struct df_gnode {
	/* the gate that its memory operations name; NULL if it has only notes */
	struct df_gslot *slot;
	struct df_gnode *self; /* hash key */
	UT_hash_handle hh;
	struct df_capture_ops ops;
	void *arg;
	struct df_gnode *head; /* the first of the nodes that were captured together */
	uint32_t nr_group;
	struct df_gnote *notes;
	size_t nr_notes;
	cuuint64_t capture;
	uint64_t serial;	 /* serial of its capture */
	uint64_t by;		 /* serial of the executable graph that replayed it last */
	struct df_replayed last; /* its last replay; `done` is NULL if there is none */
	/* replays that are not done, or whose gate has not been opened */
	struct df_replayed *turns;
	uint32_t first, nr, cap;
	int launching; /* whether a thread is in its replay() */
	int busy;      /* whether it has turns; it is in the list of busy nodes */
	/* references by executable graphs, replays, and the driver's user object */
	int refs;
	struct df_gnode *next; /* next busy node, or next node with notes */
};

/*
 * The nodes of a graph that are ours, including those of child graphs, in an order in which the
 * graph may execute them.
 */
struct df_gnodes {
	struct df_gnode **v;
	size_t nr;
	int bare;  /* whether the graph has only these nodes */
	int chain; /* whether each node follows the one before it */
};

/*
 * Finds our nodes in a graph. Returns -EOPNOTSUPP if nodes of a collective were changed, or removed
 * without the others; or another -errno.
 */
int df_graph_read(CUgraph graph, struct df_gnodes *out);

/* The role of a memory operation for the collective whose gate it names. */
enum df_gpart { DF_GPART_NONE, DF_GPART_ARRIVES, DF_GPART_WAITS, DF_GPART_CLOSES, DF_GPART_OTHER };

/*
 * cuda_graph_read.c. Puts on a stream the memory operations of collectives that start together
 * there.
 */
CUresult df_gnodes_put(CUstream s, struct df_gnode *const *v, size_t nr);
/*
 * Captures the collectives, each on its stream. `some` has space for nr nodes. Returns 0 or
 * -errno.
 */
int df_gnodes_capture(struct df_mstream *const *s, struct df_gnode *const *v, uint32_t nr,
		      struct df_gnode **some);
CUdeviceptr df_gnode_word(const uint64_t *p);

/* cuda_graph.c. The host function of the graph node that refers to notes; it does nothing. */
void CUDA_CB df_gnode_noted(void *arg);
/* Whether this process has captured collectives. */
int df_gnodes_any(void);
/* Between these two calls no node is freed. */
void df_gnodes_read(void);
void df_gnodes_read_end(void);
/* Whether this is an existing node of ours. */
int df_gnode_lives(const struct df_gnode *n);
/*
 * Returns the role of the operation, and the node whose gate it names. *n is NULL if that node has
 * ended.
 */
enum df_gpart df_gnode_part(const CUstreamBatchMemOpParams *op, struct df_gnode **n);

#endif
