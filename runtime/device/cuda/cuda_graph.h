/*
 * Between cuda_graph.c, which captures and replays collectives, and cuda_graph_read.c, which finds them in a graph.
 * Private to them.
 */
#ifndef DF_RUNTIME_DEVICE_CUDA_CUDA_GRAPH_H
#define DF_RUNTIME_DEVICE_CUDA_CUDA_GRAPH_H

#include "runtime/device/cuda/cuda_int.h"

struct df_gturn {
	const uint64_t *done;
	uint64_t value;
};

/* What is only noted, of one graph. */
struct df_gnote {
	const struct df_capture_ops *ops;
	void *arg;
};

/* A gate, in pinned memory. It is never given back, so a node that names it can be told for ours. */
struct df_gslot {
	struct df_kgate *gate;
	struct df_gnode *of; /* NULL: nobody's now */
	UT_hash_handle hh;
	struct df_gslot *next; /* of those that are nobody's */
};

struct df_gnode {
	struct df_gslot *slot; /* by which its memory operations are known; NULL: it only notes */
	struct df_gnode *self; /* by which it is known */
	UT_hash_handle hh;
	struct df_capture_ops ops;
	void *arg;
	struct df_gnode *head;	 /* the first of those that were captured together */
	struct df_kgate **gates; /* theirs; the head's */
	uint32_t nr_group;
	struct df_gnote *notes;
	size_t nr_notes;
	cuuint64_t capture;
	uint64_t serial;	/* of the capture */
	uint64_t by;		/* serial of the executable graph that replayed it last */
	struct df_gturn last;	/* that replay; done NULL: there was none */
	struct df_gturn *turns; /* replays that are not done, or whose gate has not been opened */
	uint32_t first, nr, cap;
	int launching;	       /* a thread is in its replay() */
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
 * fn: the host function by which a note is known; its argument is the struct df_gnode. -EOPNOTSUPP: nodes of a
 * collective were changed, or taken out without the others; -errno.
 */
int df_graph_read(CUgraph graph, CUhostFn fn, struct df_gnodes *out);
/* A memory operation of a graph; -errno: none, or more than one. */
int df_graph_mem_op(CUgraphNode node, CUstreamBatchMemOpParams *out);

/* What a memory operation is to the collective whose gate it names. */
enum df_gpart { DF_GPART_NONE, DF_GPART_ARRIVES, DF_GPART_WAITS, DF_GPART_CLOSES, DF_GPART_OTHER };

/* cuda_graph.c: is this a node of ours that still exists; whose gate does this name? *n NULL: it was one's that is gone. */
int df_gnode_lives(const struct df_gnode *n);
enum df_gpart df_gnode_part(const CUstreamBatchMemOpParams *op, struct df_gnode **n);

#endif
