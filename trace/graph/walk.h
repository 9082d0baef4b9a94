/*
 * The walk through one trace that builds its part of the wait-for graph: what walk.c (streams and events),
 * walk_ops.c (operations) and walk_calls.c (host calls) share. Private to these three.
 */
#ifndef DF_TRACE_GRAPH_WALK_H
#define DF_TRACE_GRAPH_WALK_H

#include "trace/graph/graph.h"

#define NOWHERE ((struct place){DF_NONE, DF_NONE, DF_NONE})

struct place {
	uint32_t all, other; /* nodes; DF_NONE: nothing unfinished */
	uint32_t fenced;     /* operations for whose end the stream itself waits; DF_NONE: none */
};

struct stream {
	uint64_t id;
	int32_t device;
	uint32_t flags;
	struct place at;
	uint32_t group; /* of the last operation, with where that group began */
	int joined;	/* it waited for events */
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

/* What went last to a communicator, and to a queue; before: what did before the group that it is in. */
struct last {
	uint32_t comm, done, before, group;
	uint64_t stream;
	struct place at, at_before; /* of the stream, with the operation */
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
	size_t first_node; /* of this trace */
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
	uint32_t slots[64]; /* OR nodes by device */
	size_t last_stream;
};

static inline int df_walk_legacy_blocks(const struct stream *s)
{
	return (s->flags & 1) && !(s->flags & 2);
}

/* Records are found by their serial, and by the event for those who only know that. */
static inline uint64_t df_walk_serial_key(uint64_t serial)
{
	return serial << 1 | 1;
}

static inline uint64_t df_walk_event_key(uint64_t event)
{
	return (event + 1) << 1;
}

/* The stream with this id, as far as the walk has come; NULL without memory. */
struct stream *df_walk_stream(struct walk *w, uint64_t id, int device);
/* A join of up to two nodes; no new one if a side is empty. */
uint32_t df_walk_join(struct walk *w, uint32_t a, uint32_t b, enum df_edge_kind kind_b,
		      unsigned mask_b, uint64_t rec);
/* The place of an event or of one of its records; NULL without memory. */
struct event *df_walk_event(struct walk *w, uint64_t key);

/* An operation on its stream. */
void df_walk_op(struct walk *w, uint32_t ref);

/* An item that is no operation in its hardware queue: what it stands behind (after 0), and then the queue behind it. */
void df_walk_queue(struct walk *w, struct stream *s, int after, uint64_t rec);
/* Who holds slots is known when the whole trace has been walked; so is who may be the first in a hardware queue. */
void df_walk_holders(struct walk *w);
void df_walk_firsts(struct walk *w);
/* A host call in progress (index in the trace's calls). */
void df_walk_call(struct walk *w, size_t at);

#endif
