/*
 * The part of the wait-for graph that lies inside one process: streams, events, hardware queues, slots,
 * host calls. Each trace is walked once in the order of its records; for every stream two nodes are
 * carried along: `all` (everything before is done) and `other` (everything before that is not a
 * collective is done), so that the graph grows by a constant number of edges per item in every world.
 */
#include <stdio.h>
#include <string.h>
#include "trace/graph.h"
#include "trace/hash.h"
#include "trace/names.h"
#include "trace/vec.h"

struct place {
	uint32_t all, other; /* nodes; DF_NONE: nothing unfinished */
};

struct stream {
	uint64_t id;
	int32_t device;
	uint32_t flags;
	struct place at;
	uint32_t group; /* of the last operation, with where that group began */
	int joined;	/* it waited for events */
	struct place before_group;
	uint32_t fenced; /* operations for whose end the stream itself waits; DF_NONE: none */
};

struct event {
	uint64_t key;
	struct place at;
};

struct work {
	uint64_t serial;
	uint32_t node;
};

/* What went last to a communicator. */
struct last {
	uint32_t comm, done, group;
};

struct queue {
	uint64_t key;
	uint32_t done, group;
	uint64_t stream;
};

/* The state of the walk through one trace. */
struct walk {
	struct df_graph *g;
	const struct df_trc *t;
	uint32_t trace;
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

uint32_t df_graph_node(struct df_graph *g, enum df_node_kind kind, uint32_t trace, uint32_t ref)
{
	struct df_node *n =
		g->nr_nodes < DF_NONE - 1 ? DF_VEC_PUSH(g->nodes, g->nr_nodes, g->cap_nodes) : NULL;

	if (!n) {
		g->failed = 1;
		return 0;
	}
	memset(n, 0, sizeof(*n));
	n->kind = (uint8_t)kind;
	n->trace = trace;
	n->ref = ref;
	n->rank = -1;
	n->gcomm = DF_NONE;
	return (uint32_t)(g->nr_nodes - 1);
}

void df_graph_edge(struct df_graph *g, uint32_t from, uint32_t to, enum df_edge_kind kind,
		   unsigned mask, uint64_t rec)
{
	struct df_edge *e;

	if (from == DF_NONE || to == DF_NONE)
		return;
	e = DF_VEC_PUSH(g->edges, g->nr_edges, g->cap_edges);
	if (!e) {
		g->failed = 1;
		return;
	}
	*e = (struct df_edge){from, to, (uint8_t)kind, (uint8_t)mask, rec};
}

static struct stream *stream_of(struct walk *w, uint64_t id, int device)
{
	struct stream *s;

	if (w->last_stream < w->nr_streams && w->streams[w->last_stream].id == id)
		return &w->streams[w->last_stream];
	for (size_t i = 0; i < w->nr_streams; i++) {
		if (w->streams[i].id == id) {
			w->last_stream = i;
			return &w->streams[i];
		}
	}
	s = DF_VEC_PUSH(w->streams, w->nr_streams, w->cap_streams);
	if (!s) {
		w->g->failed = 1;
		return NULL;
	}
	memset(s, 0, sizeof(*s));
	s->id = id;
	s->device = device;
	s->at.all = s->at.other = s->before_group.all = s->before_group.other = s->fenced = DF_NONE;
	for (size_t i = 0; i < w->t->nr_streams; i++) {
		if (w->t->streams[i].id == id) {
			s->flags = w->t->streams[i].flags;
			s->device = w->t->streams[i].device;
		}
	}
	w->last_stream = w->nr_streams - 1;
	return s;
}

/* A join of up to two nodes; no new one if a side is empty. */
static uint32_t join(struct walk *w, uint32_t a, uint32_t b, enum df_edge_kind kind_b,
		     unsigned mask_b, uint64_t rec)
{
	uint32_t n;

	if (b == DF_NONE)
		return a;
	if (a == DF_NONE && kind_b == DF_E_PART && mask_b == DF_W_ALL)
		return b;
	n = df_graph_node(w->g, DF_N_JOIN, w->trace, 0);
	df_graph_edge(w->g, n, a, DF_E_PART, DF_W_ALL, DF_NO_REC);
	df_graph_edge(w->g, n, b, kind_b, mask_b, rec);
	return n;
}

static struct event *event_slot(struct walk *w, uint64_t key)
{
	size_t at;

	if (w->events_used * 2 >= w->events_size) {
		size_t old = w->events_size, size = old ? old * 2 : 64;
		struct event *was = w->events;

		w->events = calloc(size, sizeof(*w->events));
		if (!w->events) {
			w->events = was;
			w->g->failed = 1;
			return NULL;
		}
		w->events_size = size;
		for (size_t i = 0; i < old; i++) {
			if (!was[i].key)
				continue;
			at = (size_t)df_mix64(was[i].key) & (size - 1);
			while (w->events[at].key)
				at = (at + 1) & (size - 1);
			w->events[at] = was[i];
		}
		free(was);
	}
	at = (size_t)df_mix64(key) & (w->events_size - 1);
	while (w->events[at].key && w->events[at].key != key)
		at = (at + 1) & (w->events_size - 1);
	if (!w->events[at].key) {
		w->events[at].key = key;
		w->events[at].at.all = w->events[at].at.other = DF_NONE;
		w->events_used++;
	}
	return &w->events[at];
}

/* Records are found by their serial, and by the event for those who only know that. */
static uint64_t serial_key(uint64_t serial)
{
	return serial << 1 | 1;
}

static uint64_t event_key(uint64_t event)
{
	return (event + 1) << 1;
}

/* ---- operations --------------------------------------------------------------------------------- */

static void behind_stream(struct walk *w, struct df_uop *u, struct place before,
			  enum df_edge_kind kind)
{
	/* By NCCL's rules a stream is a queue; by ours only what is not a collective holds one back. */
	if (w->nccl) {
		df_graph_edge(w->g, u->start, before.all, kind, DF_W_BASE | DF_W_NORES, u->l.rec);
		df_graph_edge(w->g, u->start, before.other, DF_E_WORK, DF_W_P | DF_W_SI | DF_W_SE,
			      u->l.rec);
	} else {
		df_graph_edge(w->g, u->start, before.other, DF_E_WORK, DF_W_ALL, u->l.rec);
	}
}

static void behind_queue(struct walk *w, struct df_uop *u)
{
	uint64_t key = (uint64_t)(uint32_t)u->l.device << 32 | (u->l.stream % w->t->h.queues);
	struct queue *q = NULL;

	for (size_t i = 0; i < w->nr_queues; i++)
		if (w->queues[i].key == key)
			q = &w->queues[i];
	if (!q) {
		q = DF_VEC_PUSH(w->queues, w->nr_queues, w->cap_queues);
		if (!q) {
			w->g->failed = 1;
			return;
		}
		q->key = key;
	} else if (u->l.state == DF_OP_ISSUED && q->stream != u->l.stream &&
		   !(u->l.group && q->group == u->l.group)) {
		df_graph_edge(w->g, u->start, q->done, DF_E_QUEUE, DF_W_BASE, u->l.rec);
	}
	q->done = u->done;
	q->group = u->l.group;
	q->stream = u->l.stream;
}

static void behind_comm(struct walk *w, struct df_uop *u)
{
	struct last *last;

	for (size_t i = 0; i < w->nr_comms; i++) {
		if (w->comms[i].comm != u->l.comm)
			continue;
		if (u->l.state == DF_OP_ISSUED && !(u->l.group && w->comms[i].group == u->l.group))
			df_graph_edge(w->g, u->start, w->comms[i].done, DF_E_COMM,
				      DF_W_BASE | DF_W_NORES, u->l.rec);
		w->comms[i].done = u->done;
		w->comms[i].group = u->l.group;
		return;
	}
	last = DF_VEC_PUSH(w->comms, w->nr_comms, w->cap_comms);
	if (last)
		*last = (struct last){u->l.comm, u->done, u->l.group};
	else
		w->g->failed = 1;
}

#define HAZARD_WINDOW 256

struct range {
	uint64_t from, to;
};

static struct range range_of(uint64_t base, uint64_t bytes)
{
	return (struct range){base, base && base + bytes > base ? base + bytes : base};
}

static int overlap(struct range a, struct range b)
{
	return a.from < b.to && b.from < a.to;
}

/* What an operation reads and writes on its own rank. */
static void buffers(const struct df_check_set *set, const struct df_uop *u, struct range *reads,
		    struct range *writes)
{
	uint64_t n = (uint64_t)set->gcomms[u->gcomm].nranks, in = u->bytes, out = u->bytes;
	int root = u->l.peer == u->l.rank;

	switch (u->l.kind) {
	case DF_KIND_ALLGATHER:
		out *= n;
		break;
	case DF_KIND_REDUCESCATTER:
		in *= n;
		break;
	case DF_KIND_ALLTOALL:
		in *= n;
		out *= n;
		break;
	case DF_KIND_GATHER:
		out = root ? out * n : 0;
		break;
	case DF_KIND_SCATTER:
		in = root ? in * n : 0;
		break;
	case DF_KIND_BROADCAST:
		in = root ? in : 0;
		break;
	case DF_KIND_REDUCE:
		out = root ? out : 0;
		break;
	case DF_KIND_SEND:
		out = 0;
		break;
	case DF_KIND_RECV:
		in = 0;
		break;
	default:
		break;
	}
	*reads = range_of(u->l.send, in);
	*writes = range_of(u->l.recv, out);
}

/* What keeps two operations in order even where issue order does not. */
static void hazards(struct walk *w, struct df_uop *u, const struct stream *s)
{
	struct df_check_set *set = w->g->set;
	struct df_uop *first = &set->ops[w->t->first_op], *o = u;
	struct range r, wr, ro, wo;

	buffers(set, u, &r, &wr);
	if (r.from == r.to && wr.from == wr.to)
		return;
	for (int i = 0; i < HAZARD_WINDOW && o-- > first; i++) {
		if (o->done == DF_NONE || (o->l.stream != u->l.stream && !s->joined) ||
		    (u->l.group && o->l.group == u->l.group))
			continue;
		buffers(set, o, &ro, &wo);
		if (overlap(r, wo) || overlap(wr, ro) || overlap(wr, wo))
			df_graph_edge(w->g, u->start, o->done, DF_E_HAZARD,
				      w->nccl ? DF_W_P | DF_W_SI | DF_W_SE : DF_W_ALL, u->l.rec);
	}
}

static int legacy_blocks(const struct stream *s)
{
	return (s->flags & 1) && !(s->flags & 2);
}

static void op_item(struct walk *w, uint32_t ref)
{
	struct df_uop *u = &w->g->set->ops[ref];
	struct stream *s = stream_of(w, u->l.stream, u->l.device);
	unsigned dev = (unsigned)u->l.device & 63;
	struct place before;

	if (!s)
		return;
	u->start = df_graph_node(w->g, DF_N_START, w->trace, ref);
	u->done = df_graph_node(w->g, DF_N_DONE, w->trace, ref);
	df_graph_edge(w->g, u->done, u->start, DF_E_SELF, DF_W_ALL, u->l.rec);
	before = s->at;
	if (u->l.group && s->group == u->l.group)
		before = s->before_group;
	else
		s->before_group = s->at;
	s->group = u->l.group;
	if (u->l.state == DF_OP_ISSUED) {
		behind_stream(w, u, before, DF_E_STREAM);
		/* A stream that waits for an operation holds back the next one: strict order. */
		df_graph_edge(w->g, u->start, s->fenced, DF_E_STREAM, DF_W_BASE | DF_W_NORES,
			      u->l.rec);
		hazards(w, u, s);
		if (s->flags & 2) {
			for (size_t i = 0; i < w->nr_streams; i++)
				if (w->streams[i].device == s->device &&
				    legacy_blocks(&w->streams[i]))
					df_graph_edge(w->g, u->start, w->streams[i].at.all,
						      DF_E_LEGACY, DF_W_ALL & ~DF_W_SE, u->l.rec);
		}
		if (w->nccl && u->l.slot == 1) {
			if (w->slots[dev] == DF_NONE) {
				w->slots[dev] = df_graph_node(w->g, DF_N_SLOT, w->trace, dev);
				w->g->nodes[w->slots[dev]].or_ = 1;
			}
			df_graph_edge(w->g, u->start, w->slots[dev], DF_E_SLOT, DF_W_BASE,
				      u->l.rec_slot);
		}
		if (w->t->h.mode != 1)
			w->g->nodes[u->start].stale = DF_M_GPU;
	}
	if (w->nccl) {
		behind_comm(w, u);
		if (w->t->h.queues)
			behind_queue(w, u);
	}
	s->at.all = join(w, u->done, s->at.all, DF_E_PART, DF_W_ALL, DF_NO_REC);
}

/* Who holds slots is known when the whole trace has been walked. */
static void slot_holders(struct walk *w)
{
	for (size_t i = 0; i < w->t->nr_uops; i++) {
		const struct df_uop *u = &w->g->set->ops[w->t->first_op + i];
		unsigned dev = (unsigned)u->l.device & 63;

		if (u->done != DF_NONE && w->slots[dev] != DF_NONE &&
		    (u->l.slot == 2 || u->l.state == DF_OP_STARTED))
			df_graph_edge(w->g, w->slots[dev], u->done, DF_E_HOLDS, DF_W_BASE,
				      u->l.rec_start);
	}
}

/* ---- other things on streams ---------------------------------------------------------------------- */

static void work_item(struct walk *w, const struct df_litem *it, uint32_t ref)
{
	struct stream *s = stream_of(w, it->stream, it->device);
	struct work *k;
	uint32_t n;

	if (!s)
		return;
	s->group = 0;
	if (s->flags & 2) {
		int any = s->at.all != DF_NONE;

		for (size_t i = 0; i < w->nr_streams; i++)
			any |= w->streams[i].device == s->device && legacy_blocks(&w->streams[i]) &&
			       w->streams[i].at.all != DF_NONE;
		if (!any)
			return;
		n = df_graph_node(w->g, DF_N_WORK, w->trace, ref);
		df_graph_edge(w->g, n, s->at.all, DF_E_STREAM, DF_W_ALL, it->rec);
		for (size_t i = 0; i < w->nr_streams; i++) {
			struct stream *b = &w->streams[i];

			if (b->device != s->device || !legacy_blocks(b))
				continue;
			df_graph_edge(w->g, n, b->at.all, DF_E_LEGACY, DF_W_ALL & ~DF_W_SE,
				      it->rec);
			b->at.all =
				join(w, b->at.all, n, DF_E_LEGACY, DF_W_ALL & ~DF_W_SE, it->rec);
			b->at.other =
				join(w, b->at.other, n, DF_E_LEGACY, DF_W_ALL & ~DF_W_SE, it->rec);
		}
	} else {
		if (s->at.all == DF_NONE)
			return;
		n = df_graph_node(w->g, DF_N_WORK, w->trace, ref);
		df_graph_edge(w->g, n, s->at.all, DF_E_STREAM, DF_W_ALL, it->rec);
	}
	s->at.all = s->at.other = n;
	if (!it->a)
		return;
	k = DF_VEC_PUSH(w->works, w->nr_works, w->cap_works);
	if (!k) {
		w->g->failed = 1;
		return;
	}
	*k = (struct work){it->a, n};
}

static void record_item(struct walk *w, const struct df_litem *it)
{
	struct stream *s = stream_of(w, it->stream, it->device);
	struct event *e;

	if (!s)
		return;
	s->group = 0;
	if (it->b) {
		e = event_slot(w, serial_key(it->b));
		if (e)
			e->at = s->at;
	}
	e = event_slot(w, event_key(it->a));
	if (e)
		e->at = s->at;
}

static void wait_item(struct walk *w, const struct df_litem *it)
{
	struct stream *s = stream_of(w, it->stream, it->device);
	struct event *e = event_slot(w, it->b ? serial_key(it->b) : event_key(it->a));

	if (!s || !e)
		return;
	s->group = 0;
	s->joined = 1;
	s->at.all = join(w, s->at.all, e->at.all, DF_E_EVENT, DF_W_ALL, it->rec);
	s->at.other = join(w, s->at.other, e->at.other, DF_E_EVENT, DF_W_ALL, it->rec);
}

static void fence_item(struct walk *w, const struct df_litem *it)
{
	struct stream *s = stream_of(w, it->stream, it->device);
	const struct df_uop *u;

	if (!s || w->nccl)
		return;
	u = df_trc_op(w->g->set, w->t, it->a);
	if (!u || u->done == DF_NONE)
		return;
	if (u->l.stream != s->id)
		s->at.all = join(w, s->at.all, u->done, DF_E_EVENT, DF_W_ALL, it->rec);
	s->fenced = join(w, s->fenced, u->done, DF_E_PART, DF_W_ALL, it->rec);
}

/* ---- host calls ------------------------------------------------------------------------------------ */

static uint32_t bar_get(struct df_graph *g, uint32_t call, uint32_t gcomm, uint64_t object,
			uint64_t order, uint32_t expect)
{
	uint64_t key = df_mix64(object ^ df_mix64(order ^ (uint64_t)call << 48)) ^
		       (gcomm == DF_NONE ? 0 : gcomm);
	struct df_bar *b;

	for (size_t i = g->nr_bars; i-- > 0;)
		if (g->bars[i].key == key && g->bars[i].call == call)
			return (uint32_t)i;
	b = DF_VEC_PUSH(g->bars, g->nr_bars, g->cap_bars);
	if (!b) {
		g->failed = 1;
		return DF_NONE;
	}
	*b = (struct df_bar){.call = call,
			     .gcomm = gcomm,
			     .key = key,
			     .object = object,
			     .order = order,
			     .expect = expect};
	b->node = df_graph_node(g, DF_N_BARRIER, DF_NONE, (uint32_t)g->nr_bars - 1);
	return (uint32_t)g->nr_bars - 1;
}

static uint32_t gcomm_by_hash(const struct df_check_set *set, uint64_t hash)
{
	for (size_t i = 0; i < set->nr_gcomms; i++)
		if (set->gcomms[i].hash == hash)
			return (uint32_t)i;
	return DF_NONE;
}

static void call_on_comm(struct walk *w, const struct df_lcall *c, uint32_t node)
{
	struct df_graph *g = w->g;
	uint32_t gcomm = DF_NONE, b;

	if (c->comm && c->comm <= w->t->nr_entries)
		gcomm = g->set->entries[w->t->first_entry + c->comm - 1].gcomm;
	if (gcomm == DF_NONE)
		gcomm = gcomm_by_hash(g->set, c->object);
	if (gcomm == DF_NONE) {
		g->nodes[node].stale = DF_M_IN_CALL;
		return;
	}
	/* Leaving a communicator also waits for what is still running on it here. */
	if (c->call == DF_CALL_COMM_DESTROY || c->call == DF_CALL_COMM_FINALIZE) {
		for (size_t i = 0; i < w->t->nr_uops; i++) {
			const struct df_uop *u = &g->set->ops[w->t->first_op + i];

			if (u->gcomm == gcomm && u->done != DF_NONE && u->l.rec < c->rec)
				df_graph_edge(g, node, u->done, DF_E_SYNC_STREAM, DF_W_ALL, c->rec);
		}
	}
	b = bar_get(g, c->call, gcomm, g->set->gcomms[gcomm].hash, 0,
		    (uint32_t)g->set->gcomms[gcomm].nranks);
	if (b == DF_NONE)
		return;
	g->bars[b].nr_here++;
	/* Connections need no host: they can be made in the background. */
	df_graph_edge(g, node, g->bars[b].node, DF_E_BARRIER,
		      c->call == DF_CALL_CONNECT ? DF_W_BASE | DF_W_NORES : DF_W_ALL, c->rec);
}

static void call_init(struct walk *w, const struct df_lcall *c, uint32_t node)
{
	uint64_t uid = c->object;
	uint32_t nranks = (uint32_t)c->detail, b, here = 0;

	/* One call may make several ranks (a group of inits, one device each). */
	for (size_t i = 0; i < w->t->nr_notes; i++) {
		const struct df_rec *r = &w->t->notes[i].rec;

		if (r->type == DF_REC_COMM_INIT && r->op == c->serial) {
			uid = r->a;
			nranks = (uint32_t)r->b;
			here++;
		}
	}
	if (!uid || !nranks) {
		w->g->nodes[node].stale = DF_M_IN_CALL;
		return;
	}
	b = bar_get(w->g, DF_CALL_COMM_INIT, DF_NONE, uid, 0, nranks);
	if (b == DF_NONE)
		return;
	w->g->bars[b].nr_here += here ? here : 1;
	df_graph_edge(w->g, node, w->g->bars[b].node, DF_E_BARRIER, DF_W_ALL, c->rec);
}

static void whole_device(struct walk *w, const struct df_lcall *c, uint32_t node,
			 enum df_edge_kind kind, unsigned mask)
{
	for (size_t i = 0; i < w->nr_streams; i++)
		if (c->device < 0 || w->streams[i].device == c->device || w->streams[i].device < 0)
			df_graph_edge(w->g, node, w->streams[i].at.all, kind, mask, c->rec);
}

static void open_call(struct walk *w, size_t at)
{
	const struct df_lcall *c = &w->t->calls[at];
	uint32_t node = df_graph_node(w->g, DF_N_THREAD, w->trace, (uint32_t)at), b;
	struct event *e;
	struct stream *s;

	w->g->nodes[node].thread = c->thread;
	if (c->released)
		return;
	switch (c->call) {
	case DF_CALL_STREAM_SYNC:
		s = stream_of(w, c->object, c->device);
		if (s && s->flags & 2)
			whole_device(w, c, node, DF_E_SYNC_STREAM, DF_W_ALL);
		else if (s)
			df_graph_edge(w->g, node, s->at.all, DF_E_SYNC_STREAM, DF_W_ALL, c->rec);
		return;
	case DF_CALL_EVENT_SYNC:
		e = event_slot(w, event_key(c->object));
		if (e)
			df_graph_edge(w->g, node, e->at.all, DF_E_SYNC_STREAM, DF_W_ALL, c->rec);
		return;
	case DF_CALL_COMM_INIT:
		call_init(w, c, node);
		return;
	case DF_CALL_COMM_SPLIT:
	case DF_CALL_COMM_SHRINK:
	case DF_CALL_COMM_FINALIZE:
	case DF_CALL_COMM_DESTROY:
	case DF_CALL_CONNECT:
	case DF_CALL_WINDOW_REGISTER:
		call_on_comm(w, c, node);
		return;
	case DF_CALL_HOST_BARRIER:
		b = bar_get(w->g, c->call, DF_NONE, c->object, 0, (uint32_t)c->detail);
		if (b == DF_NONE)
			return;
		w->g->bars[b].nr_here++;
		df_graph_edge(w->g, node, w->g->bars[b].node, DF_E_BARRIER, DF_W_ALL, c->rec);
		return;
	case DF_CALL_HOST_WAIT:
		b = bar_get(w->g, c->call, DF_NONE, c->object, 0, 2);
		if (b == DF_NONE)
			return;
		w->g->bars[b].nr_here = 1;
		df_graph_edge(w->g, node, w->g->bars[b].node, DF_E_BARRIER, DF_W_ALL, c->rec);
		return;
	default:
		break;
	}
	switch (df_call_class(c->call)) {
	case DF_CLASS_DEVICE:
		whole_device(w, c, node, DF_E_SYNC_DEVICE,
			     DF_W_BASE | DF_W_NORES | DF_W_P | DF_W_SI);
		return;
	case DF_CLASS_IMPLICIT:
		whole_device(w, c, node, DF_E_SYNC_IMPLICIT, DF_W_BASE | DF_W_NORES | DF_W_P);
		return;
	default:
		w->g->nodes[node].stale = DF_M_IN_CALL;
	}
}

/* A thread is in the innermost of its open calls. */
static int is_innermost(const struct df_trc *t, size_t at)
{
	for (size_t i = at + 1; i < t->nr_calls; i++)
		if (t->calls[i].thread == t->calls[at].thread)
			return 0;
	return 1;
}

/* ---- one trace ------------------------------------------------------------------------------------- */

static void dependencies(struct walk *w)
{
	for (size_t i = 0; i < w->t->nr_notes; i++) {
		const struct df_lnote *n = &w->t->notes[i];
		struct df_uop *u, *dep;

		if (n->rec.type != DF_REC_OP_DEP && n->rec.type != DF_REC_OP_BEHIND)
			continue;
		u = df_trc_op(w->g->set, w->t, n->rec.op);
		/* Only the serial of an operation is of use here; b says that a is something else. */
		dep = n->rec.type == DF_REC_OP_DEP && !n->rec.b
			      ? df_trc_op(w->g->set, w->t, n->rec.a)
			      : NULL;
		if (!u || u->start == DF_NONE || u->l.state != DF_OP_ISSUED)
			continue;
		if (dep && dep->done != DF_NONE) {
			df_graph_edge(w->g, u->start, dep->done, DF_E_HAZARD, DF_W_ALL, n->index);
			continue;
		}
		for (size_t k = 0; n->rec.type == DF_REC_OP_BEHIND && k < w->nr_works; k++)
			if (w->works[k].serial == n->rec.a)
				df_graph_edge(w->g, u->start, w->works[k].node, DF_E_WORK, DF_W_ALL,
					      n->index);
	}
}

static void walk_trace(struct df_graph *g, uint32_t trace)
{
	struct df_trc *t = &g->set->traces[trace];
	struct walk w = {.g = g, .t = t, .trace = trace, .nccl = df_trc_nccl(t)};
	size_t call = 0;

	memset(w.slots, 0xff, sizeof(w.slots));
	/* The legacy stream reaches streams that carried nothing yet. */
	for (size_t i = 0; i < t->nr_streams; i++)
		stream_of(&w, t->streams[i].id, t->streams[i].device);
	for (size_t i = 0; i <= t->nr_items && !g->failed; i++) {
		const struct df_litem *it = &t->items[i];
		uint64_t rec = i < t->nr_items ? it->rec : DF_NO_REC;

		for (; call < t->nr_calls && t->calls[call].rec < rec; call++)
			if (is_innermost(t, call))
				open_call(&w, call);
		if (i == t->nr_items)
			break;
		switch (it->type) {
		case DF_ITEM_OP:
			op_item(&w, (uint32_t)it->a);
			break;
		case DF_ITEM_WORK:
			work_item(&w, it, (uint32_t)i);
			break;
		case DF_ITEM_RECORD:
			record_item(&w, it);
			break;
		case DF_ITEM_WAIT:
			wait_item(&w, it);
			break;
		case DF_ITEM_FENCE:
			fence_item(&w, it);
			break;
		default:
			break;
		}
	}
	slot_holders(&w);
	dependencies(&w);
	free(w.streams);
	free(w.events);
	free(w.works);
	free(w.queues);
	free(w.comms);
}

int df_graph_local(struct df_graph *g)
{
	for (uint32_t i = 0; i < g->set->nr_traces && !g->failed; i++)
		if (!g->set->traces[i].dropped && g->set->traces[i].fate == DF_ALIVE)
			walk_trace(g, i);
	return g->failed ? -ENOMEM : 0;
}

/* Edges by source and by target, as two compressed lists. */
static int index_edges(struct df_graph *g)
{
	size_t n = g->nr_nodes, m = g->nr_edges;

	g->out_first = calloc(n + 2, sizeof(uint32_t));
	g->in_first = calloc(n + 2, sizeof(uint32_t));
	g->out = malloc((m + 1) * sizeof(uint32_t));
	g->in = malloc((m + 1) * sizeof(uint32_t));
	g->stuck = calloc(n + 1, 1);
	g->self = calloc(n + 1, 1);
	if (!g->out_first || !g->in_first || !g->out || !g->in || !g->stuck || !g->self)
		return -ENOMEM;
	for (size_t i = 0; i < m; i++) {
		g->out_first[g->edges[i].from + 1]++;
		g->in_first[g->edges[i].to + 1]++;
	}
	for (size_t i = 0; i < n; i++) {
		g->out_first[i + 1] += g->out_first[i];
		g->in_first[i + 1] += g->in_first[i];
	}
	for (size_t i = m; i-- > 0;) {
		g->out[--g->out_first[g->edges[i].from + 1]] = (uint32_t)i;
		g->in[--g->in_first[g->edges[i].to + 1]] = (uint32_t)i;
	}
	/* The loop above moved each start one place down: shift back. */
	for (size_t i = 0; i < n; i++) {
		g->out_first[i] = g->out_first[i + 1];
		g->in_first[i] = g->in_first[i + 1];
	}
	g->out_first[n] = g->in_first[n] = (uint32_t)m;
	return 0;
}

int df_graph_build(struct df_graph *g, struct df_check_set *set)
{
	int rc;

	memset(g, 0, sizeof(*g));
	g->set = set;
	rc = df_graph_local(g);
	if (!rc)
		rc = df_graph_match(g);
	if (!rc)
		rc = index_edges(g);
	if (rc)
		df_graph_fini(g);
	return rc;
}

void df_graph_fini(struct df_graph *g)
{
	free(g->nodes);
	free(g->edges);
	free(g->insts);
	free(g->bars);
	free(g->out_first);
	free(g->out);
	free(g->in_first);
	free(g->in);
	free(g->stuck);
	free(g->self);
	memset(g, 0, sizeof(*g));
}
