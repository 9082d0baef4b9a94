/*
 * The wait-for graph over all ranks: what each unfinished thing waits for. Private to the judge and to
 * the tools that draw it.
 *
 * An AND node can proceed when all its edges' targets can, an OR node when one can. An edge exists in
 * some worlds and not in others: the worlds are the bits of `mask`, and asking which world would let
 * the residue go on tells what a deadlock is made of and what would dissolve it.
 */
#ifndef DF_TRACE_GRAPH_GRAPH_H
#define DF_TRACE_GRAPH_GRAPH_H

#include "trace/read/set.h"

enum df_world {
	DF_W_BASE = 1,	/* the rules by which the processes really run */
	DF_W_NORES = 2, /* with unlimited slots and queues */
	DF_W_P = 4,	/* collectives leave issue order where nobody can see it */
	DF_W_SI = 8,	/* also: implicit synchronisation does not wait for stuck collectives */
	DF_W_SE = 16,	/* also: device synchronisation and the legacy stream do not */
	DF_W_ALL = 31,
	/*
	 * None of these worlds: what would hold if one of the operations that may be the first in a hardware queue were the
	 * first. Mode trace does not see which of them is (trace/judge/room.c).
	 */
	DF_W_FIRST = 32
};

enum df_node_kind {
	DF_N_START,  /* an operation may run here (ref: operation) */
	DF_N_DONE,   /* it has finished here (ref: operation) */
	DF_N_MATCH,  /* all ranks run it (ref: instance) */
	DF_N_NEXT,   /* a rank issues its next operation of a communicator (ref: entry, or none) */
	DF_N_JOIN,   /* all before this place of a stream is done (ref: stream state) */
	DF_N_WORK,   /* a kernel, copy ... is done (ref: item) */
	DF_N_THREAD, /* a host thread goes on (ref: index in the trace's calls) */
	DF_N_SLOT,   /* a resident slot becomes free (ref: device) */
	DF_N_BARRIER /* all have come (ref: barrier) */
};

enum df_edge_kind {
	DF_E_SELF,	    /* done only after start */
	DF_E_MATCH,	    /* all ranks have to run it */
	DF_E_PEER,	    /* this rank has to run it */
	DF_E_STREAM,	    /* queued behind it on a stream */
	DF_E_EVENT,	    /* through an event */
	DF_E_COMM,	    /* issue order of the communicator */
	DF_E_QUEUE,	    /* streams that share a hardware queue */
	DF_E_SLOT,	    /* waits for a slot */
	DF_E_HOLDS,	    /* held by it */
	DF_E_HAZARD,	    /* buffers overlap */
	DF_E_WORK,	    /* other work in between */
	DF_E_LEGACY,	    /* through the legacy default stream */
	DF_E_NOT_ISSUED,    /* this rank has not issued it */
	DF_E_HOST,	    /* only this thread could */
	DF_E_SYNC_STREAM,   /* thread in cudaStreamSynchronize, cudaEventSynchronize */
	DF_E_SYNC_DEVICE,   /* in cudaDeviceSynchronize */
	DF_E_SYNC_IMPLICIT, /* in a call that waits for the device without promising it */
	DF_E_OUTSIDE,	    /* thread in a wait that is not recorded: somebody else ends it */
	DF_E_BARRIER,	    /* thread in a call that all members have to make */
	DF_E_GROUP,	    /* ends with all that its group has put on the communicator */
	DF_E_PART,	    /* part of a join */
	DF_E_NR
};

/* Why a node can never proceed, or is not believed to. */
enum df_mark {
	DF_M_NONE,
	DF_M_MISMATCH,
	DF_M_DEAD,
	DF_M_EXITED,
	DF_M_DESTROYED,
	DF_M_FAILED,
	/* only when nothing has moved for long: */
	DF_M_ENDED,    /* the threads that issued for it have ended */
	DF_M_SILENT,   /* its host does something else */
	DF_M_NO_TRACE, /* nothing known of the rank */
	DF_M_GPU,      /* nothing is in its way, yet it did not start */
	DF_M_STALLED,  /* all run it, yet it does not end */
	DF_M_IN_CALL,  /* in a call whose condition is not recorded */
	DF_M_ABSENT,   /* a member did not come to a barrier */
};

struct df_node {
	uint8_t kind;	/* enum df_node_kind */
	uint8_t or_;	/* 1: one of its edges is enough */
	uint8_t mark;	/* enum df_mark: stuck by itself */
	uint8_t stale;	/* enum df_mark: stuck by itself if nothing moves */
	uint8_t idle;	/* threads without a recorded wait could do it, unless nothing moves */
	uint8_t let_go; /* its wait is released: what its thread does next is not known */
	uint32_t trace; /* DF_NONE: none */
	uint32_t ref;
	int32_t rank;	 /* NEXT: rank in the communicator */
	uint32_t gcomm;	 /* NEXT */
	uint32_t thread; /* THREAD: tid */
};

/* Its ref is an operation. */
static inline int df_node_is_op(const struct df_node *n)
{
	return n->kind == DF_N_START || n->kind == DF_N_DONE;
}

struct df_edge {
	uint32_t from, to;
	uint8_t kind; /* enum df_edge_kind */
	uint8_t mask; /* enum df_world bits */
	uint64_t rec; /* evidence in from's trace; DF_NO_REC */
};

/* One collective or one message, over all its ranks' unfinished operations. */
struct df_match {
	uint32_t gcomm;
	uint32_t first; /* operation; chained by df_uop.next */
	uint32_t node;
	uint32_t nr_here, nr_missing, nr_done; /* ranks: unfinished, not issued, finished */
	int p2p;
	int32_t src, dst;
	uint64_t index;
};

/* A call that several ranks have to make together. */
struct df_bar {
	uint32_t call, gcomm, node;
	uint64_t key, object, order;
	uint32_t expect, nr_here;
};

/* Operations of one trace whose streams share a hardware queue, where the trace says how streams do. */
static inline int df_uop_same_queue(const struct df_check_set *set, const struct df_uop *a,
				    const struct df_uop *b)
{
	uint32_t queues = set->traces[a->trace].h.queues;

	return queues && a->trace == b->trace && a->l.device == b->l.device &&
	       a->l.stream % queues == b->l.stream % queues;
}

struct df_graph {
	struct df_check_set *set;
	struct df_node *nodes;
	size_t nr_nodes, cap_nodes;
	struct df_edge *edges;
	size_t nr_edges, cap_edges;
	struct df_match *insts;
	size_t nr_insts, cap_insts;
	struct df_bar *bars;
	size_t nr_bars, cap_bars;
	uint32_t *out_first, *out; /* edges by from */
	uint32_t *in_first, *in;   /* edges by to */
	uint8_t *stuck;		   /* of the last df_graph_reduce() */
	uint8_t *self;		   /* stuck by themselves, not by what they wait for */
	size_t nr_stuck;
	int failed; /* out of memory while building */
};

struct df_range {
	uint64_t from, to;
};

static inline int df_range_overlap(struct df_range a, struct df_range b)
{
	return a.from < b.to && b.from < a.to;
}

/* What an operation reads and writes on its own rank. */
void df_uop_buffers(const struct df_check_set *set, const struct df_uop *u, struct df_range *reads,
		    struct df_range *writes);

int df_graph_build(struct df_graph *g, struct df_check_set *set);
void df_graph_fini(struct df_graph *g);

/* Used while building. */
uint32_t df_graph_node(struct df_graph *g, enum df_node_kind kind, uint32_t trace, uint32_t ref);
void df_graph_edge(struct df_graph *g, uint32_t from, uint32_t to, enum df_edge_kind kind,
		   unsigned mask, uint64_t rec);
/* Streams, events and host calls of every trace; then what ties the ranks together. */
int df_graph_local(struct df_graph *g);
/* Host threads that wait outside all calls that are recorded: for which of the others. */
void df_graph_outside(struct df_graph *g);
int df_graph_match(struct df_graph *g);
/* Of operations that a group has put on one communicator; inst: by operation, its instance or DF_NONE. 0 or -ENOMEM. */
int df_graph_groups(struct df_graph *g, const uint32_t *inst);

/*
 * Two instances, both stuck, that never take place: ranks have put them in one place of a communicator, and each rank
 * waits for the other's. After df_graph_reduce().
 */
int df_graph_are_crossed(const struct df_graph *g, const struct df_match *a,
			 const struct df_match *b);
/* All such pairs; mark: their nodes get DF_M_MISMATCH. The communicator of one of them, or DF_NONE. */
uint32_t df_graph_crossed(struct df_graph *g, int mark);

/*
 * Removes what can proceed until nothing more can. The residue is in g->stuck; returns its size.
 * `stale`: 0 what is idle may still come; 1 nothing has moved for long: it will not, and what only seems
 * stuck is; 2 idle hosts will not come, all else may. Linear in nodes and edges.
 */
size_t df_graph_reduce(struct df_graph *g, enum df_world world, int stale);

/* Component of each stuck node (DF_NONE for others); returns how many. Root components wait for none. */
size_t df_graph_components(const struct df_graph *g, enum df_world world, uint32_t *comp,
			   uint8_t **is_root);

/*
 * The shortest cycle of stuck nodes inside one component, as edge indices in order; *edges is malloc'ed. `without`: bits
 * of edge kinds that it does not use. Returns its length, 0 if there is none.
 */
size_t df_graph_cycle(const struct df_graph *g, enum df_world world, const uint32_t *comp,
		      uint32_t which, unsigned without, uint32_t **edges);

static inline int df_edge_on(const struct df_edge *e, enum df_world w)
{
	return (e->mask & w) != 0;
}

#endif
