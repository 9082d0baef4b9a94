/*
 * Between cuda_graph.c, which captures and replays collectives, and cuda_graph_read.c, which finds them in a graph.
 * Private to them.
 */
#ifndef DF_RUNTIME_DEVICE_CUDA_CUDA_GRAPH_H
#define DF_RUNTIME_DEVICE_CUDA_CUDA_GRAPH_H

#include "runtime/device/cuda/cuda_int.h"

/* In pinned memory: the device reads and writes the gate. */
struct df_gwords {
	uint64_t gate; /* 1: the collective is done, the graph goes on */
	uint64_t pad[7];
	uint64_t arrived; /* replays whose predecessors are done */
};

struct df_gturn {
	const uint64_t *done;
	uint64_t value;
};

/* What is only noted, of one graph. */
struct df_gnote {
	const struct df_capture_ops *ops;
	void *arg;
};

struct df_gnode {
	struct df_gwords *w;   /* NULL: it only notes */
	struct df_gnode *self; /* by which it is known */
	const uint64_t *gate;  /* of w: by which its wait and its write are known */
	UT_hash_handle hh, hh_gate;
	int readable; /* the driver tells of its wait and its write what they are */
	struct df_capture_ops ops;
	void *arg;
	struct df_gnote *notes;
	size_t nr_notes;
	cuuint64_t capture;
	uint64_t serial;	/* of the capture */
	uint64_t launched;	/* replays */
	struct df_gturn *turns; /* those whose gate has not been opened */
	uint32_t first, nr, cap;
	int busy;	       /* there are such */
	int refs;	       /* executable graphs, replays, and the driver's user object */
	struct df_gnode *next; /* of the busy ones, or of those that note */
};

/* What of a graph is ours, children too: in an order in which the graph may come to it. */
struct df_gnodes {
	struct df_gnode **v;
	size_t nr;
	int bare;  /* nothing else is in it */
	int chain; /* each comes after the one before it */
};

/*
 * fn: the host function by which a node is known; its argument is the struct df_gnode. -EOPNOTSUPP: nodes of a
 * collective were changed, or taken out without the others; -errno.
 */
int df_graph_read(CUgraph graph, CUhostFn fn, struct df_gnodes *out);
/* A memory operation of a graph; -errno: none, or more than one. */
int df_graph_mem_op(CUgraphNode node, CUstreamBatchMemOpParams *out);

/* cuda_graph.c: is this a node of ours that still exists; whose gate is this? */
int df_gnode_lives(const struct df_gnode *n);
struct df_gnode *df_gnode_of_gate(CUdeviceptr word);

#endif
