/*
 * The walk through one trace that builds its part of the wait-for graph. walk.c has streams and
 * events, walk_ops.c operations, walk_calls.c host calls. Private to these three.
 */
#ifndef DF_TRACE_GRAPH_WALK_H
#define DF_TRACE_GRAPH_WALK_H

#include "runtime/base/map.h"
#include "trace/graph/graph.h"

#define NOWHERE ((struct place){DF_NONE, DF_NONE, DF_NONE})

struct place {
	/* nodes of a place on a stream; DF_NONE if nothing before the place is unfinished */
	uint32_t all, other;
	/* node for operations whose end the stream itself waits for, or DF_NONE */
	uint32_t fenced;
};

struct stream {
	uint64_t id;
	int32_t device;
	uint32_t flags;
	struct place at;
	/* group of the last operation; before_group is the place where that group began */
	uint32_t group;
	int joined; /* whether the stream waited for events after before_group */
	struct place before_group;
};

struct event {
	uint64_t key;
	struct place at;
};

struct work {
	uint64_t serial;
	uint32_t node;
};

/* The last operation of a communicator. `before` is the last operation before its group. */
struct last {
	uint32_t comm, done, before, group;
	uint64_t stream;
	struct place at, at_before; /* the stream's place at that operation */
};

struct queue {
	uint64_t key;
	uint32_t done, before, group;
	uint64_t stream, stream_before;
};

/* The state of the walk through one trace. */
struct walk {
	struct df_graph *g;
	const struct df_trc *t;
	uint32_t trace;
	size_t first_node; /* first node of this trace */
	int nccl;
	struct stream *streams;
	size_t nr_streams, cap_streams;
	struct event *events;
	size_t events_size, events_used;
	struct work *works;
	size_t nr_works, cap_works;
	struct queue *queues;
	size_t nr_queues, cap_queues;
	struct last *comms;
	size_t nr_comms, cap_comms;
	uint32_t slots[64];	  /* by device: the OR node of its slots */
	struct df_map streams_at; /* by id: position + 1 */
};

static inline int df_walk_legacy_blocks(const struct stream *s)
{
	return (s->flags & 1) && !(s->flags & 2);
}

/*
 * Returns the key of an event's record with this serial. An event that is known only by itself has
 * another key.
 */
static inline uint64_t df_walk_serial_key(uint64_t serial)
{
	return serial << 1 | 1;
}

static inline uint64_t df_walk_event_key(uint64_t event)
{
	return (event + 1) << 1;
}

/*
 * Returns the stream with this id, in its state at the walk's position. Returns NULL if memory is
 * short.
 */
struct stream *df_walk_stream(struct walk *w, uint64_t id, int device);
/* Returns a node that waits for both. Creates none if one is DF_NONE. */
uint32_t df_walk_join(struct walk *w, uint32_t a, uint32_t b, enum df_edge_kind kind_b,
		      unsigned mask_b, uint64_t rec);
/* Returns the state of an event or of one of its records. Returns NULL if memory is short. */
struct event *df_walk_event(struct walk *w, uint64_t key);

/* Adds an operation on its stream. */
void df_walk_op(struct walk *w, uint32_t ref);

/*
 * Connects an item that is not an operation to its hardware queue. If `after` is 0, the item waits
 * for the queue's last item. If it is 1, later items of the queue wait for the item.
 */
void df_walk_queue(struct walk *w, struct stream *s, int after, uint64_t rec);
/*
 * Call both after the walk. df_walk_holders() adds edges to the holders of slots. df_walk_firsts()
 * adds edges to the operations that may be the first in a hardware queue.
 */
void df_walk_holders(struct walk *w);
void df_walk_firsts(struct walk *w);
/* Adds a host call in progress (index in the trace's calls). */
void df_walk_call(struct walk *w, size_t at);

#endif
