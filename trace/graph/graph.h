/*
 * The wait-for graph over all ranks: what each unfinished operation, call or thread waits for.
 * Private to the judge and to the tools that draw it.
 *
 * An AND node can proceed when the targets of all its edges can, an OR node when one can. Each edge
 * exists in some worlds only, given by the bits of `mask`. A world is a set of rules for what waits
 * for what. Finding the world in which the stuck nodes could proceed shows the cause of a deadlock
 * and what would resolve it.
 */
#ifndef DF_TRACE_GRAPH_GRAPH_H
#define DF_TRACE_GRAPH_GRAPH_H

#include "trace/read/set.h"

enum df_world {
	DF_W_BASE = 1,	/* the rules by which the processes really run */
	DF_W_NORES = 2, /* with unlimited slots and queues */
	DF_W_P = 4,	/* collectives leave issue order where no program can observe that */
	DF_W_SI = 8,	/* as P, and implicit synchronization does not wait for stuck collectives */
	DF_W_SE = 16,	/* as SI, and neither device synchronization nor the legacy stream does */
	DF_W_ALL = 31,
	/*
	 * Used alone, not with the other bits. One of the operations that may be the first in a
	 * hardware queue is the first. Mode trace does not see which one (trace/judge/room.c).
	 */
	DF_W_FIRST = 32
};

enum df_node_kind {
	DF_N_START,  /* an operation may run here (ref: operation) */
	DF_N_DONE,   /* an operation has finished here (ref: operation) */
	DF_N_MATCH,  /* all ranks run an operation (ref: instance) */
	DF_N_NEXT,   /* a rank issues its next operation of a communicator (ref: entry, or none) */
	DF_N_JOIN,   /* everything before this place of a stream is done (ref: stream state) */
	DF_N_WORK,   /* a kernel, copy or the like is done (ref: item) */
	DF_N_THREAD, /* a thread proceeds (ref: index in the trace's calls) */
	DF_N_SLOT,   /* a resident slot becomes free (ref: device) */
	DF_N_BARRIER /* all members have arrived (ref: barrier) */
};

enum df_edge_kind {
	DF_E_SELF,	    /* an operation is done only after its start */
	DF_E_MATCH,	    /* the operation is done only when all ranks have run it */
	DF_E_PEER,	    /* the instance needs this rank to run its operation */
	DF_E_STREAM,	    /* queued after it on a stream */
	DF_E_EVENT,	    /* waits for it through an event */
	DF_E_COMM,	    /* issue order of the communicator */
	DF_E_QUEUE,	    /* queued after it in a hardware queue that their streams share */
	DF_E_SLOT,	    /* waits for a slot */
	DF_E_HOLDS,	    /* the operation that holds the slot */
	DF_E_HAZARD,	    /* buffers overlap */
	DF_E_WORK,	    /* queued after other work, which waits for the operation */
	DF_E_LEGACY,	    /* through the legacy default stream */
	DF_E_NOT_ISSUED,    /* this rank has not issued its operation */
	DF_E_HOST,	    /* this thread could issue the operation, or end the wait */
	DF_E_SYNC_STREAM,   /* thread in cudaStreamSynchronize or cudaEventSynchronize */
	DF_E_SYNC_DEVICE,   /* thread in cudaDeviceSynchronize */
	DF_E_SYNC_IMPLICIT, /* thread in a call that waits for the device implicitly */
	DF_E_OUTSIDE,	    /* thread in a wait that is not recorded: another thread ends it */
	DF_E_BARRIER,	    /* thread in a call that all members have to make */
	DF_E_GROUP, /* launched when the group's call returns; ends with all its operations */
	DF_E_PART,  /* part of a join */
	DF_E_NR
};

/* Why a node can never proceed, or is assumed not to. */
enum df_mark {
	DF_M_NONE,
	DF_M_MISMATCH,
	DF_M_DEAD,
	DF_M_EXITED,
	DF_M_DESTROYED,
	/* The marks below count only when nothing has made progress for long. */
	DF_M_ENDED,    /* the threads that issued on the communicator have ended */
	DF_M_SILENT,   /* the rank's thread does something else */
	DF_M_NO_TRACE, /* nothing is known of the rank */
	DF_M_GPU,      /* nothing blocks the operation, but it did not start */
	DF_M_STALLED,  /* all ranks run the operation, but it does not end */
	DF_M_IN_CALL,  /* the thread is in a call whose condition is not recorded */
	DF_M_ABSENT,   /* a member did not reach a barrier */
};

struct df_node {
	uint8_t kind;  /* enum df_node_kind */
	uint8_t or_;   /* OR node: it can proceed if the target of one edge can */
	uint8_t mark;  /* enum df_mark: why the node is stuck in any case */
	uint8_t stale; /* enum df_mark: why the node is stuck if nothing makes progress */
	/*
	 * A thread without a recorded wait could let the node proceed, unless nothing makes
	 * progress.
	 */
	uint8_t idle;
	uint8_t let_go; /* the wait is released, so the next step of its thread is unknown */
	uint8_t young;	/* counts as going on although others have made no progress for long */
	uint32_t trace; /* DF_NONE: the node belongs to no trace */
	uint32_t ref;
	int32_t rank;	 /* for DF_N_NEXT: rank in the communicator */
	uint32_t gcomm;	 /* for DF_N_NEXT */
	uint32_t thread; /* for DF_N_THREAD: tid */
};

/* Whether the node's ref is an operation. */
static inline int df_node_is_op(const struct df_node *n)
{
	return n->kind == DF_N_START || n->kind == DF_N_DONE;
}

struct df_edge {
	uint32_t from, to;
	uint8_t kind; /* enum df_edge_kind */
	uint8_t mask; /* enum df_world bits */
	uint64_t rec; /* evidence in the trace of `from`, or DF_NO_REC */
};

/* One collective or one message, with the unfinished operations of all its ranks. */
struct df_match {
	uint32_t gcomm;
	uint32_t first; /* first operation; df_uop.next links the others */
	uint32_t node;
	/* number of ranks that have not finished, have not issued, have finished */
	uint32_t nr_here, nr_missing, nr_done;
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

/*
 * Whether the operations belong to one trace and their streams share a hardware queue. The trace
 * header shows how streams are mapped to queues.
 */
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
	uint32_t *out_first, *out; /* edges indexed by `from` */
	uint32_t *in_first, *in;   /* edges indexed by `to` */
	uint8_t *stuck;		   /* result of the last df_graph_reduce() */
	/* nodes that are stuck in any case, not because of their targets */
	uint8_t *self;
	size_t nr_stuck;
	int failed; /* out of memory while building */
};

/* Stores the memory ranges that an operation reads and writes on its own rank. */
void df_uop_buffers(const struct df_check_set *set, const struct df_uop *u, struct df_range *reads,
		    struct df_range *writes);

int df_graph_build(struct df_graph *g, struct df_check_set *set);
void df_graph_fini(struct df_graph *g);

/* These two are used while building. df_graph_node() returns the index of the new node. */
uint32_t df_graph_node(struct df_graph *g, enum df_node_kind kind, uint32_t trace, uint32_t ref);
void df_graph_edge(struct df_graph *g, uint32_t from, uint32_t to, enum df_edge_kind kind,
		   unsigned mask, uint64_t rec);
/* Adds streams, events and host calls of every trace. The functions below connect the ranks. */
int df_graph_local(struct df_graph *g);
/* Adds threads that wait outside of all recorded calls, and the threads that they wait for. */
void df_graph_outside(struct df_graph *g);
int df_graph_match(struct df_graph *g);
/*
 * Adds the edges between operations that a group has put on one communicator. `inst` gives the
 * instance of each operation, or DF_NONE. Returns 0 or -ENOMEM.
 */
int df_graph_groups(struct df_graph *g, const uint32_t *inst);

/*
 * Sets `young` of operations and calls that began less than `aged` ns before the last record of
 * their trace, and of what only they wait for. 0: of none.
 */
void df_graph_spare(struct df_graph *g, uint64_t aged);

/*
 * Whether two stuck instances can never take place: different ranks have issued them in the same
 * place of a communicator, and each waits for the other rank. Call after df_graph_reduce().
 */
int df_graph_are_crossed(const struct df_graph *g, const struct df_match *a,
			 const struct df_match *b);
/*
 * Finds all pairs of such instances. If `mark`, gives their nodes DF_M_MISMATCH. Returns the
 * communicator of one pair, or DF_NONE.
 */
uint32_t df_graph_crossed(struct df_graph *g, int mark);

/*
 * Whether NCCL connects the operation's rank with this one during the operation's call, and this
 * rank has not issued its part.
 */
int df_graph_connects(const struct df_graph *g, const struct df_uop *u, const struct df_match *in,
		      int32_t rank);
/* Whether one call issued both operations: they are the same operation, or in one group. */
int df_graph_is_one_call(const struct df_uop *a, const struct df_uop *b);

/*
 * Removes nodes that can proceed until none can. The rest is in g->stuck. Returns the number of
 * stuck nodes. If `stale` is 0, idle threads may still act. If it is 1, nothing has made progress
 * for long: idle threads will not act, and nodes with a `stale` mark count as stuck. If it is 2,
 * idle threads will not act, but everything else may still happen. Takes time linear in nodes and
 * edges.
 */
size_t df_graph_reduce(struct df_graph *g, enum df_world world, int stale);

/*
 * Computes the component of each stuck node (DF_NONE for others). Returns the number of components.
 * A root component waits for no other.
 */
size_t df_graph_components(const struct df_graph *g, enum df_world world, uint32_t *comp,
			   uint8_t **is_root);

/*
 * Finds the shortest cycle of stuck nodes inside one component, as edge indices in order; *edges is
 * from malloc(). The cycle uses no edge whose kind is a bit of `without`. Returns its length, or 0
 * if there is none.
 */
size_t df_graph_cycle(const struct df_graph *g, enum df_world world, const uint32_t *comp,
		      uint32_t which, unsigned without, uint32_t **edges);

static inline int df_edge_on(const struct df_edge *e, enum df_world w)
{
	return (e->mask & w) != 0;
}

#endif
