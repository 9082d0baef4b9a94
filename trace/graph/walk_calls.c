/*
 * Adds host calls in progress: what the calling thread waits for in its own process and, if all
 * members have to make the call, in other processes.
 */
#include <string.h>
#include "trace/record/trace_hash.h"
#include "trace/read/load_hosts.h"
#include "trace/record/names.h"
#include "runtime/base/vec.h"
#include "trace/graph/walk.h"

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
	/*
	 * A call that leaves a communicator also waits for the operations that still run on it
	 * here.
	 */
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
	/* The call may return before the connections exist: they can be made in the background. */
	df_graph_edge(g, node, g->bars[b].node, DF_E_BARRIER,
		      c->call == DF_CALL_CONNECT ? DF_W_BASE | DF_W_NORES : DF_W_ALL, c->rec);
}

static void call_init(struct walk *w, const struct df_lcall *c, uint32_t node)
{
	uint64_t uid = c->object;
	uint32_t nranks = (uint32_t)c->detail, b, here = 0;

	/* One call may create several ranks (a group of inits, one per device). */
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
	b = bar_get(w->g, c->call, DF_NONE, uid, 0, nranks);
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

/* Makes the node wait for the legacy stream and the streams that the legacy stream waits for. */
static void legacy_streams(struct walk *w, const struct df_lcall *c, uint32_t node,
			   enum df_edge_kind kind, unsigned mask)
{
	for (size_t i = 0; i < w->nr_streams; i++)
		if (w->streams[i].flags & 3 && (c->device < 0 || w->streams[i].device == c->device))
			df_graph_edge(w->g, node, w->streams[i].at.all, kind, mask, c->rec);
}

/* Returns the node of an open call, or DF_NONE. */
static uint32_t node_of_call(const struct walk *w, uint64_t serial)
{
	for (size_t n = w->first_node; n < w->g->nr_nodes; n++)
		if (w->g->nodes[n].kind == DF_N_THREAD &&
		    w->t->calls[w->g->nodes[n].ref].serial == serial)
			return (uint32_t)n;
	return DF_NONE;
}

/*
 * A polling thread proceeds when one of the polled objects is done. It may also stop polling,
 * unless nothing makes progress, so no proof uses this. If one of the objects is done, the thread
 * does not wait.
 */
static void walk_poll(struct walk *w, size_t at)
{
	const struct df_lcall *c = &w->t->calls[at];
	uint32_t places[DF_POLLS_MAX], nr = 0, node;

	for (; nr < DF_POLLS_MAX && at + 1 > nr; nr++) {
		const struct df_lcall *p = &w->t->calls[at - nr];
		struct stream *s = NULL;
		struct event *e = NULL;

		if (p->thread != c->thread || !df_call_is_poll(p->call))
			break;
		places[nr] = DF_NONE;
		if (p->call == DF_CALL_POLL_STREAM)
			s = df_walk_stream(w, p->object, p->device);
		else if (p->call == DF_CALL_POLL_EVENT)
			e = df_walk_event(w, df_walk_event_key(p->object));
		else
			places[nr] = node_of_call(w, p->object);
		if (s)
			places[nr] = s->at.all;
		else if (e)
			places[nr] = e->at.all;
		if (places[nr] == DF_NONE)
			return;
	}
	node = df_graph_node(w->g, DF_N_THREAD, w->trace, (uint32_t)at);
	w->g->nodes[node].thread = c->thread;
	w->g->nodes[node].idle = 1;
	w->g->nodes[node].or_ = nr > 1;
	for (uint32_t k = 0; k < nr; k++)
		df_graph_edge(w->g, node, places[k],
			      w->t->calls[at - k].call == DF_CALL_POLL_CALL ? DF_E_HOST
									    : DF_E_SYNC_STREAM,
			      DF_W_ALL, c->rec);
}

void df_walk_call(struct walk *w, size_t at)
{
	const struct df_lcall *c = &w->t->calls[at];
	struct event *e;
	struct stream *s;
	uint32_t node, b;

	/* A wait outside NCCL and CUDA can depend on any trace: outside.c adds it. */
	if (!df_trc_is_innermost(w->t, at) || c->call == DF_CALL_OUTSIDE)
		return;
	if (df_call_is_poll(c->call)) {
		if (!w->g->set->polls_are_free)
			walk_poll(w, at);
		return;
	}
	node = df_graph_node(w->g, DF_N_THREAD, w->trace, (uint32_t)at);
	w->g->nodes[node].thread = c->background ? 0 : c->thread;
	if (c->released)
		return;
	switch (c->call) {
	case DF_CALL_STREAM_SYNC:
		s = df_walk_stream(w, c->object, c->device);
		if (s && s->flags & 2)
			legacy_streams(w, c, node, DF_E_SYNC_STREAM, DF_W_ALL);
		else if (s)
			df_graph_edge(w->g, node, s->at.all, DF_E_SYNC_STREAM, DF_W_ALL, c->rec);
		return;
	case DF_CALL_EVENT_SYNC:
		e = df_walk_event(w, df_walk_event_key(c->object));
		if (e)
			df_graph_edge(w->g, node, e->at.all, DF_E_SYNC_STREAM, DF_W_ALL, c->rec);
		return;
	case DF_CALL_COMM_INIT:
	case DF_CALL_COMM_GROW:
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
	if (c->call == DF_CALL_MEMCPY) {
		legacy_streams(w, c, node, DF_E_SYNC_IMPLICIT, DF_W_BASE | DF_W_NORES | DF_W_P);
		return;
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
