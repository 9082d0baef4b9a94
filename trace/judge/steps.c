/*
 * Turns the edges of a cycle into sentences. A step leads from one operation, thread or resource to
 * the next; joins and matches between them are skipped. Its sentence says what waits for what and
 * why, and names the record that proves it.
 */
#include <stdio.h>
#include <string.h>
#include "trace/record/names.h"
#include "trace/judge/result.h"
#include "trace/judge/say.h"
#include "trace/judge/judge_int.h"
#include "runtime/base/vec.h"

#define BIT(k) (1u << (k))

static int is_actor(const struct df_graph *g, uint32_t node)
{
	return g->nodes[node].kind != DF_N_JOIN && g->nodes[node].kind != DF_N_MATCH;
}

static const char *stream_text(const struct df_uop *u, char *buf, size_t size)
{
	snprintf(buf, size, "stream %llu", (unsigned long long)u->l.stream);
	return buf;
}

/* Writes "thread 7 'main' of r1 has been in cudaDeviceSynchronize for 31.0 s". */
static void say_thread_state(struct df_check_result *r, uint32_t node, char *buf, size_t size)
{
	const struct df_node *n = &r->g.nodes[node];
	const struct df_lcall *c = &r->set->traces[n->trace].calls[n->ref];
	char thread[64], rank[48], site[160];

	df_say_site(r->set, n->trace, c->site, 0, site, sizeof(site));
	snprintf(buf, size, "%s of %s has been in %s%s%s for %.1f s",
		 df_say_thread(r->set, n->trace, n->thread, thread, sizeof(thread)),
		 df_say_host(&r->g, node, rank, sizeof(rank)), df_call_text(c->call),
		 site[0] ? " at " : "", site, df_say_ago(r->set, n->trace, c->enter_ns));
}

static const char *without_article(const char *name)
{
	return strncmp(name, "a ", 2) ? name : name + 2;
}

static char *sentence(struct df_check_result *r, const struct df_step *s)
{
	struct df_check_set *set = r->set;
	const struct df_node *from = &r->g.nodes[s->from], *to = &r->g.nodes[s->to];
	char a[96], b[96], ra[48], rb[48], st[32], st2[32], buf[512];
	const struct df_uop *ua = NULL, *ub = NULL;

	if (df_node_is_op(from))
		ua = &set->ops[from->ref];
	if (df_node_is_op(to))
		ub = &set->ops[to->ref];
	if (ua) {
		df_say_op(set, ua, a, sizeof(a));
		df_say_rank(set, ua, ra, sizeof(ra));
		stream_text(ua, st, sizeof(st));
	}
	if (ub) {
		df_say_op(set, ub, b, sizeof(b));
		df_say_rank(set, ub, rb, sizeof(rb));
		stream_text(ub, st2, sizeof(st2));
	}
	if (from->kind == DF_N_DONE && to->kind == DF_N_START && s->kinds & BIT(DF_E_GROUP))
		return df_text("%s on %s ends with its group, which needs %s to run %s", a, ra, rb,
			       b);
	if (from->kind == DF_N_DONE && to->kind == DF_N_NEXT && s->kinds & BIT(DF_E_GROUP))
		return df_text("%s on %s ends with its group, of which %s has not issued its part",
			       a, ra, df_say_member(set, to->gcomm, to->rank, rb, sizeof(rb)));
	if (from->kind == DF_N_DONE && to->kind == DF_N_START)
		return df_text("%s on %s needs %s to run %s", a, ra, rb, b);
	if (from->kind == DF_N_DONE && to->kind == DF_N_NEXT)
		return df_text("%s on %s needs %s, which has not issued it", a, ra,
			       df_say_member(set, to->gcomm, to->rank, rb, sizeof(rb)));
	if (from->kind == DF_N_START && to->kind == DF_N_START)
		return df_text("%s on %s starts with what %s sends", a, ra, rb);
	if (from->kind == DF_N_START && ub) {
		if (s->kinds & BIT(DF_E_HAZARD))
			return df_text("%s on %s must run after %s: their buffers overlap", a, ra,
				       b);
		if (s->kinds & BIT(DF_E_QUEUE))
			return df_text("%s on %s (%s) is behind %s (%s): the streams share a "
				       "hardware queue",
				       a, ra, st, b, st2);
		if (s->kinds & BIT(DF_E_LEGACY))
			return df_text(
				"%s on %s is behind %s: the legacy default stream serialises them",
				a, ra, b);
		if (s->kinds & BIT(DF_E_EVENT))
			return df_text("%s on %s (%s) waits through an event for %s (%s)", a, ra,
				       st, b, st2);
		if (s->kinds & BIT(DF_E_STREAM))
			return df_text("%s on %s is queued behind %s (%s)", a, ra, b, st);
		return df_text("%s on %s was issued after %s on the same communicator", a, ra, b);
	}
	if (from->kind == DF_N_START && to->kind == DF_N_WORK)
		return df_text("%s on %s is queued behind a %s (%s)", a, ra,
			       df_work_name((uint32_t)set->traces[to->trace].items[to->ref].b), st);
	if (from->kind == DF_N_START && to->kind == DF_N_SLOT)
		return df_text("%s on %s has no slot: all are in use", a, ra);
	if (from->kind == DF_N_SLOT && ub)
		return df_text("%s holds a slot of %s: it runs, but cannot finish", b, rb);
	if (from->kind == DF_N_WORK) {
		if (ub)
			return df_text(
				"that %s waits for %s on %s%s",
				df_work_name((uint32_t)set->traces[from->trace].items[from->ref].b),
				b, rb,
				s->kinds & BIT(DF_E_LEGACY)  ? " (legacy default stream)"
				: s->kinds & BIT(DF_E_EVENT) ? " through an event"
							     : "");
		return df_text("that %s waits for %s",
			       df_work_name((uint32_t)set->traces[from->trace].items[from->ref].b),
			       df_say_node(&r->g, s->to, buf, sizeof(buf)));
	}
	if (to->kind == DF_N_THREAD) {
		say_thread_state(r, s->to, buf, sizeof(buf));
		return df_text("%s%s",
			       s->kinds & BIT(DF_E_OUTSIDE)
				       ? "only another thread can end that wait; "
				       : "",
			       buf);
	}
	if (from->kind == DF_N_THREAD && ub)
		return df_text("that %s waits for %s on %s%s",
			       without_article(df_call_text(
				       set->traces[from->trace].calls[from->ref].call)),
			       b, rb,
			       s->kinds & BIT(DF_E_SYNC_IMPLICIT) ? " (implicitly)"
			       : s->kinds & BIT(DF_E_SYNC_DEVICE)
				       ? " (and for everything else on the device)"
				       : "");
	if (from->kind == DF_N_THREAD && to->kind == DF_N_BARRIER &&
	    r->g.bars[to->ref].call == DF_CALL_HOST_WAIT)
		return df_text("it waits for a signal");
	if (from->kind == DF_N_BARRIER && to->kind == DF_N_NEXT && to->gcomm == DF_NONE)
		return df_text(r->g.bars[from->ref].call == DF_CALL_HOST_WAIT
				       ? "another thread must send that signal"
				       : "another thread has not made that call");
	if (from->kind == DF_N_THREAD && to->kind == DF_N_NEXT)
		return df_text("that call connects with %s, which has not issued its part",
			       df_say_member(set, to->gcomm, to->rank, rb, sizeof(rb)));
	if (from->kind == DF_N_THREAD && to->kind == DF_N_BARRIER)
		return df_text("that call waits for %s",
			       df_say_node(&r->g, s->to, buf, sizeof(buf)));
	if (from->kind == DF_N_BARRIER && to->kind == DF_N_NEXT)
		return df_text("%s has not made that call",
			       df_say_member(set, to->gcomm, to->rank, rb, sizeof(rb)));
	df_say_node(&r->g, s->from, buf, sizeof(buf) / 2);
	df_say_node(&r->g, s->to, buf + sizeof(buf) / 2, sizeof(buf) / 2);
	return df_text("%s waits for %s", buf, buf + sizeof(buf) / 2);
}

static int involve(struct df_check_result *r, uint32_t op, size_t *cap)
{
	uint32_t *slot;

	for (size_t i = 0; i < r->nr_involved; i++)
		if (r->involved[i] == op)
			return 0;
	slot = DF_VEC_PUSH(r->involved, r->nr_involved, *cap);
	if (!slot)
		return -ENOMEM;
	*slot = op;
	return 0;
}

int df_explain_steps(struct df_check_result *r, const uint32_t *edges, size_t nr, int closed)
{
	const struct df_graph *g = &r->g;
	size_t begin = 0, cap = 0, cap_steps = 0;
	struct df_step *s = NULL;
	int lowest = INT32_MAX;
	uint32_t first = DF_NONE;

	/*
	 * Begin where an operation of the lowest rank waits for a peer, because that is easiest to
	 * read.
	 */
	for (size_t i = 0; closed && i < nr; i++) {
		const struct df_node *n = &g->nodes[g->edges[edges[i]].from];
		const struct df_uop *u;

		if (n->kind != DF_N_DONE || g->edges[edges[i]].kind != DF_E_MATCH)
			continue;
		u = &r->set->ops[n->ref];
		if (r->set->entries[u->entry].world < lowest) {
			lowest = r->set->entries[u->entry].world;
			begin = i;
		}
	}
	for (size_t i = 0; closed && lowest == INT32_MAX && i < nr; i++) {
		const struct df_node *n = &g->nodes[g->edges[edges[i]].to];

		/* The cycle consists of threads only: begin with the thread of the first trace. */
		if (n->kind == DF_N_THREAD && (first == DF_NONE || n->trace < first)) {
			first = n->trace;
			begin = i;
		}
	}
	while (closed && nr && !is_actor(g, g->edges[edges[begin]].from) && begin + 1 < nr)
		begin++;
	for (size_t i = 0; i < nr; i++) {
		const struct df_edge *e = &g->edges[edges[(begin + i) % nr]];
		const struct df_node *from = &g->nodes[e->from], *to = &g->nodes[e->to];

		if (df_node_is_op(from))
			if (involve(r, from->ref, &cap))
				return -ENOMEM;
		if (!s) {
			s = DF_VEC_PUSH(r->steps, r->nr_steps, cap_steps);
			if (!s)
				return -ENOMEM;
			memset(s, 0, sizeof(*s));
			s->from = e->from;
			s->trace = DF_NONE;
			s->rec = DF_NO_REC;
		}
		s->kinds |= BIT(e->kind);
		if (s->rec == DF_NO_REC && e->rec != DF_NO_REC) {
			s->rec = e->rec;
			s->trace = from->trace != DF_NONE ? from->trace : to->trace;
		}
		if (!is_actor(g, e->to))
			continue;
		s->to = e->to;
		if (s->kinds == BIT(DF_E_SELF)) {
			/* "Done" follows "started", so this is no step. */
			r->nr_steps--;
		}
		s = NULL;
	}
	if (s)
		r->nr_steps--;
	for (size_t i = 0; i < r->nr_steps; i++) {
		r->steps[i].text = sentence(r, &r->steps[i]);
		if (!r->steps[i].text)
			return -ENOMEM;
	}
	return 0;
}
