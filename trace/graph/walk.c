/*
 * Builds the part of the wait-for graph inside one process: streams, events, other work. The walk
 * visits the records of each trace once, in order. For every stream it keeps two nodes: `all`
 * (everything before is done) and `other` (everything before that is not a collective is done). So
 * each item adds a constant number of edges under all rules.
 */
#include <stdio.h>
#include <string.h>
#include "trace/record/trace_hash.h"
#include "runtime/base/vec.h"
#include "trace/graph/walk.h"

enum {
#define DF_WORKKIND(id, name) WORK_##id,
#include "trace/record/kinds.def"
	WORK_NR
};

struct stream *df_walk_stream(struct walk *w, uint64_t id, int device)
{
	uint64_t *at = df_map_at(&w->streams_at, id, 0);
	struct stream *s;

	if (at && *at)
		return &w->streams[*at - 1];
	s = at ? DF_VEC_PUSH(w->streams, w->nr_streams, w->cap_streams) : NULL;
	if (!s) {
		w->g->failed = 1;
		return NULL;
	}
	*at = w->nr_streams;
	memset(s, 0, sizeof(*s));
	s->id = id;
	s->device = device;
	s->at = s->before_group = NOWHERE;
	return s;
}

uint32_t df_walk_join(struct walk *w, uint32_t a, uint32_t b, enum df_edge_kind kind_b,
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

struct event *df_walk_event(struct walk *w, uint64_t key)
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
		w->events[at].at = NOWHERE;
		w->events_used++;
	}
	return &w->events[at];
}

/* ---- what is on streams besides operations -------------------------------------------------- */

static void work_item(struct walk *w, const struct df_litem *it, uint32_t ref)
{
	struct stream *s = df_walk_stream(w, it->stream, it->device);
	struct work *k;
	uint32_t n;
	int graph;

	if (!s)
		return;
	s->group = 0;
	df_walk_queue(w, s, 0, it->rec);
	if (s->flags & 2) {
		int any = s->at.all != DF_NONE, exact = !w->nccl && it->b & DF_WORK_EXACT;
		uint32_t behind =
			/* The stream's last item, whether this one waits for it or not. */
			s->at.all;

		for (size_t i = 0; i < w->nr_streams; i++)
			any |= w->streams[i].device == s->device &&
			       df_walk_legacy_blocks(&w->streams[i]) &&
			       w->streams[i].at.all != DF_NONE;
		if (!any)
			return;
		n = df_graph_node(w->g, DF_N_WORK, w->trace, ref);
		df_graph_edge(w->g, n, exact ? s->at.other : s->at.all, DF_E_STREAM, DF_W_ALL,
			      it->rec);
		if (exact)
			df_graph_edge(w->g, n, s->at.fenced, DF_E_STREAM, DF_W_ALL, it->rec);
		for (size_t i = 0; i < w->nr_streams; i++) {
			struct stream *b = &w->streams[i];

			if (b->device != s->device || !df_walk_legacy_blocks(b))
				continue;
			df_graph_edge(w->g, n, exact ? b->at.other : b->at.all, DF_E_LEGACY,
				      DF_W_ALL & ~DF_W_SE, it->rec);
			if (exact) {
				df_graph_edge(w->g, n, b->at.fenced, DF_E_LEGACY,
					      DF_W_BASE | DF_W_NORES, it->rec);
				behind = df_walk_join(w, behind, b->at.all, DF_E_LEGACY,
						      DF_W_ALL & ~DF_W_SE, it->rec);
			}
			b->at.all = df_walk_join(w, b->at.all, n, DF_E_LEGACY, DF_W_ALL & ~DF_W_SE,
						 it->rec);
			b->at.other = df_walk_join(w, b->at.other, n, DF_E_LEGACY,
						   DF_W_ALL & ~DF_W_SE, it->rec);
		}
		if (exact) {
			s->at.all = df_walk_join(w, behind, n, DF_E_PART, DF_W_ALL, it->rec);
			s->at.other = n;
			goto listed;
		}
	} else {
		if (s->at.all == DF_NONE)
			return;
		n = df_graph_node(w->g, DF_N_WORK, w->trace, ref);
		/* A graph launch that contains only collectives counts as these collectives. */
		graph = w->nccl && it->b == WORK_GRAPH;
		df_graph_edge(w->g, n, s->at.all, DF_E_STREAM,
			      graph ? DF_W_BASE | DF_W_NORES : DF_W_ALL, it->rec);
		if (graph)
			df_graph_edge(w->g, n, s->at.other, DF_E_WORK, DF_W_P | DF_W_SI | DF_W_SE,
				      it->rec);
	}
	s->at.all = s->at.other = n;
	df_walk_queue(w, s, 1, it->rec);
listed:
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
	struct stream *s = df_walk_stream(w, it->stream, it->device);
	struct event *e;

	if (!s)
		return;
	s->group = 0;
	df_walk_queue(w, s, 0, it->rec);
	df_walk_queue(w, s, 1, it->rec);
	if (it->b) {
		e = df_walk_event(w, df_walk_serial_key(it->b));
		if (e)
			e->at = s->at;
	}
	e = df_walk_event(w, df_walk_event_key(it->a));
	if (e)
		e->at = s->at;
}

static void wait_item(struct walk *w, const struct df_litem *it)
{
	struct stream *s = df_walk_stream(w, it->stream, it->device);
	struct event *e =
		df_walk_event(w, it->b ? df_walk_serial_key(it->b) : df_walk_event_key(it->a));

	if (!s || !e)
		return;
	s->group = 0;
	s->joined = 1;
	df_walk_queue(w, s, 0, it->rec);
	s->at.all = df_walk_join(w, s->at.all, e->at.all, DF_E_EVENT, DF_W_ALL, it->rec);
	s->at.other = df_walk_join(w, s->at.other, e->at.other, DF_E_EVENT, DF_W_ALL, it->rec);
	s->at.fenced = df_walk_join(w, s->at.fenced, e->at.fenced, DF_E_EVENT, DF_W_ALL, it->rec);
	df_walk_queue(w, s, 1, it->rec);
}

static void fence_item(struct walk *w, const struct df_litem *it)
{
	struct stream *s = df_walk_stream(w, it->stream, it->device);
	const struct df_uop *u;

	if (!s || w->nccl)
		return;
	u = df_trc_op(w->g->set, w->t, it->a);
	if (!u || u->done == DF_NONE)
		return;
	if (u->l.stream != s->id)
		s->at.all = df_walk_join(w, s->at.all, u->done, DF_E_EVENT, DF_W_ALL, it->rec);
	if (!it->b)
		s->at.fenced = df_walk_join(w, s->at.fenced, u->done, DF_E_PART, DF_W_ALL, it->rec);
}

/* ---- one trace ------------------------------------------------------------------------------ */

static void dependencies(struct walk *w)
{
	for (size_t i = 0; i < w->t->nr_notes; i++) {
		const struct df_lnote *n = &w->t->notes[i];
		struct df_uop *u, *dep;

		if (n->rec.type != DF_REC_OP_DEP && n->rec.type != DF_REC_OP_BEHIND)
			continue;
		u = df_trc_op(w->g->set, w->t, n->rec.op);
		/* The field `a` names an operation only if b is 0. */
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
	struct walk w = {
		.g = g, .t = t, .trace = trace, .nccl = df_trc_nccl(t), .first_node = g->nr_nodes};
	size_t call = 0;

	memset(w.slots, 0xff, sizeof(w.slots));
	/*
	 * Make all streams first, because the legacy stream also orders those that have no item
	 * yet.
	 */
	for (size_t i = 0; i < t->nr_streams; i++) {
		struct stream *s = df_walk_stream(&w, t->streams[i].id, t->streams[i].device);

		if (s)
			s->flags = t->streams[i].flags;
	}
	for (size_t i = 0; i <= t->nr_items && !g->failed; i++) {
		const struct df_litem *it = &t->items[i];
		uint64_t rec = i < t->nr_items ? it->rec : DF_NO_REC;

		for (; call < t->nr_calls && t->calls[call].rec < rec; call++)
			df_walk_call(&w, call);
		if (i == t->nr_items)
			break;
		switch (it->type) {
		case DF_ITEM_OP:
			df_walk_op(&w, (uint32_t)it->a);
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
	df_walk_holders(&w);
	df_walk_firsts(&w);
	dependencies(&w);
	free(w.streams);
	df_map_fini(&w.streams_at);
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
