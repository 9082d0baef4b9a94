/*
 * Short texts about ranks, operations and threads, as users read them: "A#3", "r5", "thread 4711
 * 'pin'". Pure functions that write into the caller's buffer.
 */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "trace/read/party.h"
#include "trace/read/load_hosts.h"
#include "trace/record/names.h"
#include "trace/judge/result.h"
#include "trace/judge/say.h"
#include "trace/read/stacks.h"
#include "runtime/base/err.h"
#include "runtime/base/vec.h"

char *df_text(const char *fmt, ...)
{
	va_list ap;
	char *s;
	int n;

	va_start(ap, fmt);
	n = vasprintf(&s, fmt, ap);
	va_end(ap);
	return n < 0 ? NULL : s;
}

void df_note(struct df_check_result *r, const char *fmt, ...)
{
	char **slot = DF_VEC_PUSH(r->notes, r->nr_notes, r->cap_notes);
	va_list ap;

	if (!slot)
		return;
	va_start(ap, fmt);
	if (vasprintf(slot, fmt, ap) < 0)
		r->nr_notes--;
	va_end(ap);
}

const char *df_say_op(const struct df_check_set *set, const struct df_uop *u, char *buf,
		      size_t size)
{
	const char *comm = set->gcomms[u->gcomm].label;
	unsigned long long nr = (unsigned long long)u->l.index + 1;

	if (u->l.kind == DF_KIND_SEND)
		snprintf(buf, size, "%s send %d->%d #%llu", comm, u->l.rank, u->l.peer, nr);
	else if (u->l.kind == DF_KIND_RECV)
		snprintf(buf, size, "%s recv %d<-%d #%llu", comm, u->l.rank, u->l.peer, nr);
	else
		snprintf(buf, size, "%s#%llu", comm, nr);
	return buf;
}

const char *df_say_entry(const struct df_check_set *set, uint32_t entry, char *buf, size_t size)
{
	snprintf(buf, size, "r%d", set->entries[entry].world);
	return buf;
}

const char *df_say_rank(const struct df_check_set *set, const struct df_uop *u, char *buf,
			size_t size)
{
	return df_say_entry(set, u->entry, buf, size);
}

#define NOBODY (-1)

/*
 * Returns the rank that the thread `tid` (0: any thread) serves on the device (-1: any device), or
 * -1 if there is none or several.
 */
static int world_of(const struct df_check_set *set, const struct df_trc *t, int device,
		    uint32_t tid)
{
	int world = NOBODY;

	for (uint32_t i = 0; i < t->nr_entries; i++) {
		const struct df_trc_comm *e = &set->entries[t->first_entry + i];

		if (e->gcomm == DF_NONE || (device >= 0 && e->device != device) ||
		    (tid && !df_entry_uses(e, tid)))
			continue;
		if (world >= 0 && world != e->world)
			return NOBODY;
		world = e->world;
	}
	return world;
}

int df_say_world(const struct df_check_set *set, const struct df_trc *t, int device, uint32_t tid)
{
	int world = tid ? world_of(set, t, device, tid) : NOBODY;

	return world < 0 && device >= 0 ? world_of(set, t, device, 0) : world;
}

const char *df_say_host(const struct df_graph *g, uint32_t node, char *buf, size_t size)
{
	const struct df_node *n = &g->nodes[node];
	const struct df_trc *t = &g->set->traces[n->trace];
	int device = n->kind == DF_N_THREAD ? t->calls[n->ref].device
		     : n->kind == DF_N_WORK ? t->items[n->ref].device
		     : n->kind == DF_N_SLOT ? (int)n->ref
					    : -1;
	int world = df_say_world(g->set, t, device,
				 n->kind == DF_N_THREAD ? t->calls[n->ref].thread : 0);

	if (world >= 0)
		snprintf(buf, size, "r%d", world);
	else
		snprintf(buf, size, "%s", t->label);
	return buf;
}

const char *df_say_exit(int in_order, char *buf, size_t size)
{
	snprintf(buf, size, in_order > 1 ? "exited with status %d" : "exited normally",
		 in_order - 1);
	return buf;
}

int df_say_world_of(const struct df_check_set *set, uint32_t gcomm, int rank)
{
	const struct df_trc_comm *e = df_set_entry(set, gcomm, rank);
	const struct df_kin *kin;
	int largest = 0;

	if (e)
		return e->world;
	kin = df_set_kin_of(set, gcomm, rank);
	if (kin && kin->exact)
		return df_say_world_of(set, kin->gcomm, kin->parent);
	for (size_t i = 0; i < set->nr_gcomms; i++)
		if (set->gcomms[i].nranks > largest)
			largest = set->gcomms[i].nranks;
	return set->gcomms[gcomm].nranks == largest ? rank : -1;
}

const char *df_say_member(const struct df_check_set *set, uint32_t gcomm, int rank, char *buf,
			  size_t size)
{
	const struct df_trc_comm *e = gcomm == DF_NONE ? NULL : df_set_entry(set, gcomm, rank);
	int world;

	if (e)
		return df_say_entry(set, (uint32_t)(e - set->entries), buf, size);
	if (gcomm == DF_NONE) {
		snprintf(buf, size, "another process");
		return buf;
	}
	world = df_say_world_of(set, gcomm, rank);
	if (world >= 0)
		snprintf(buf, size, "r%d", world);
	else
		snprintf(buf, size, "rank %d of %s", rank, set->gcomms[gcomm].label);
	return buf;
}

const char *df_say_thread(const struct df_check_set *set, uint32_t trace, uint32_t tid, char *buf,
			  size_t size)
{
	const struct df_lthread *th = df_trc_thread(&set->traces[trace], tid);

	if (!tid) {
		snprintf(buf, size, "a background thread");
		return buf;
	}
	if (th && th->name[0])
		snprintf(buf, size, "thread %u '%.15s'", tid, th->name);
	else
		snprintf(buf, size, "thread %u", tid);
	return buf;
}

double df_say_ago(const struct df_check_set *set, uint32_t trace, uint64_t time_ns)
{
	uint64_t t = time_ns + (uint64_t)set->traces[trace].skew_ns;

	return t < set->now_ns ? (double)(set->now_ns - t) / 1e9 : 0;
}

const char *df_say_sig(const struct df_lop *op, char *buf, size_t size)
{
	int n = snprintf(buf, size, "%s(%llu x %s", df_kind_name(op->kind),
			 (unsigned long long)op->count, df_dtype_name(op->type));

	if (df_kind_reduces(op->kind) && n > 0 && (size_t)n < size)
		n += snprintf(buf + n, size - (size_t)n, ", %s", df_redop_name(op->redop));
	if (df_kind_rooted(op->kind) && n > 0 && (size_t)n < size)
		n += snprintf(buf + n, size - (size_t)n, ", root %d", op->peer);
	if (n > 0 && (size_t)n < size)
		snprintf(buf + n, size - (size_t)n, ")");
	return buf;
}

const char *df_say_frames(struct df_check_set *set, uint32_t trace, uint32_t site)
{
	const char *text = df_stacks_find(&set->stacks, trace, site);
	const struct df_trc *t;
	struct df_reader r;

	if (!site || text)
		return site ? text : "";
	t = &set->traces[trace];
	if (df_set_open(t, &r))
		return "";
	text = df_stacks_get(&set->stacks, trace, t->notes, t->nr_notes, &r, site);
	df_reader_close(&r);
	return text;
}

int df_say_frame(const struct df_check_set *set, uint32_t trace, uint32_t site, uint64_t nr,
		 char *buf, size_t size)
{
	const struct df_trc *t = &set->traces[trace];
	struct df_reader r;
	int found;

	if (!site || df_set_open(t, &r))
		return 0;
	found = df_stack_frame(t->notes, t->nr_notes, &r, site, nr, buf, size);
	df_reader_close(&r);
	return found;
}

int df_say_string(const struct df_check_set *set, uint32_t trace, uint64_t hash, char *buf,
		  size_t size)
{
	const char *text;
	struct df_reader r;
	uint32_t bytes;

	if (df_set_open(&set->traces[trace], &r))
		return 0;
	text = df_reader_string(&r, hash, &bytes);
	snprintf(buf, size, "%.*s", text ? (int)DF_MIN(bytes, 255u) : 0, text ? text : "");
	df_reader_close(&r);
	return text != NULL;
}

uint32_t df_say_site_of(const struct df_check_set *set, uint32_t trace, uint64_t rec)
{
	struct df_reader r;
	struct df_rec found = {.site = 0};

	if (trace == DF_NONE || rec == DF_NO_REC || df_set_open(&set->traces[trace], &r))
		return 0;
	if (df_reader_get(&r, rec, &found))
		found.site = 0;
	df_reader_close(&r);
	return found.site;
}

/* Returns the end of the frame. */
static const char *frame_end(const char *frame)
{
	const char *end = strstr(frame, DF_STACK_SEP);

	return end ? end : frame + strlen(frame);
}

static const char *next_frame(const char *frame)
{
	const char *end = frame_end(frame);

	return *end ? end + strlen(DF_STACK_SEP) : end;
}

const char *df_say_site(struct df_check_set *set, uint32_t trace, uint32_t site, unsigned skip,
			char *buf, size_t size)
{
	const char *at = df_say_frames(set, trace, site);

	while (skip--)
		at = next_frame(at);
	snprintf(buf, size, "%.*s", (int)(frame_end(at) - at), at);
	if (site && !buf[0])
		snprintf(buf, size, "site %08x", site);
	return buf;
}

void df_say_compare(struct df_say_lines *l, struct df_check_set *set, uint32_t trace, uint32_t site)
{
	const char *text = df_say_frames(set, trace, site), *a = l->first, *b = text;
	struct df_stack_line line;
	unsigned same = 0;

	if (!l->first)
		l->first = text;
	if (!l->first[0] || !strcmp(l->first, text))
		return;
	while (df_stack_line(a, &line) && df_stack_line(b, &line)) {
		if (frame_end(a) - a != frame_end(b) - b ||
		    strncmp(a, b, (size_t)(frame_end(a) - a)) != 0) {
			l->shared = l->differ++ ? DF_MIN(l->shared, same) : same;
			return;
		}
		same++;
		a = next_frame(a);
		b = next_frame(b);
	}
	l->shared = 0;
	l->differ++;
}

unsigned df_say_stack(struct df_check_set *set, uint32_t trace, uint32_t site, unsigned max,
		      char *buf, size_t size)
{
	const char *text = df_say_frames(set, trace, site), *end = text, *at = text;
	struct df_stack_line line;
	int script = df_stack_line(text, &line);
	unsigned nr = 0;

	/*
	 * If the innermost frame is a line of a script, show only the script's lines, and not the
	 * frames of the interpreter that called it.
	 */
	for (; nr < max && *at && (!script || df_stack_line(at, &line)); nr++) {
		end = frame_end(at);
		at = next_frame(at);
	}
	snprintf(buf, size, "%.*s", (int)(end - text), text);
	return nr;
}

int df_say_has_script(const struct df_trc *trc, const struct df_lthread *t)
{
	return t->at_site && t->at_rec > t->last_rec && !trc->dropped;
}

uint32_t df_say_script_site(const struct df_check_set *set, const struct df_trc_comm *e)
{
	const struct df_trc *trc = &set->traces[e->trace];
	const struct df_lthread *found = NULL;
	int best = 0;

	for (size_t i = 0; i < trc->nr_threads; i++) {
		const struct df_lthread *t = &trc->threads[i];
		int issues = df_entry_issues(set, e, t), is_main = t->tid == trc->h.pid;

		if (!df_say_has_script(trc, t) || 2 * issues + is_main <= best)
			continue;
		best = 2 * issues + is_main;
		found = t;
	}
	return found ? found->at_site : 0;
}

int df_say_script(struct df_check_set *set, const struct df_trc_comm *e, char *buf, size_t size)
{
	uint32_t site = df_say_script_site(set, e);

	return site && df_say_stack(set, e->trace, site, 1, buf, size) > 0;
}

const char *df_say_node(const struct df_graph *g, uint32_t node, char *buf, size_t size)
{
	const struct df_node *n = &g->nodes[node];
	const struct df_check_set *set = g->set;
	char op[96], rank[48], thread[64];

	switch (n->kind) {
	case DF_N_START:
	case DF_N_DONE:
		snprintf(buf, size, "%s of %s", df_say_op(set, &set->ops[n->ref], op, sizeof(op)),
			 df_say_rank(set, &set->ops[n->ref], rank, sizeof(rank)));
		break;
	case DF_N_MATCH:
		snprintf(buf, size, "%s on all ranks",
			 df_say_op(set, &set->ops[g->insts[n->ref].first], op, sizeof(op)));
		break;
	case DF_N_NEXT:
		snprintf(buf, size, "next call of %s%s%s",
			 df_say_member(set, n->gcomm, n->rank, rank, sizeof(rank)),
			 n->gcomm == DF_NONE ? "" : " on ",
			 n->gcomm == DF_NONE ? "" : set->gcomms[n->gcomm].label);
		break;
	case DF_N_WORK:
		snprintf(buf, size, "%s on stream %llu of %s",
			 df_work_name((uint32_t)set->traces[n->trace].items[n->ref].b),
			 (unsigned long long)set->traces[n->trace].items[n->ref].stream,
			 df_say_host(g, node, rank, sizeof(rank)));
		break;
	case DF_N_THREAD:
		snprintf(buf, size, "%s: %s in %s", df_say_host(g, node, rank, sizeof(rank)),
			 df_say_thread(set, n->trace, n->thread, thread, sizeof(thread)),
			 df_call_text(set->traces[n->trace].calls[n->ref].call));
		break;
	case DF_N_SLOT:
		snprintf(buf, size, "a free slot of device %u of %s", n->ref,
			 df_say_host(g, node, rank, sizeof(rank)));
		break;
	case DF_N_BARRIER:
		snprintf(buf, size, "all participants of %s%s%s",
			 df_call_text(g->bars[n->ref].call),
			 g->bars[n->ref].gcomm == DF_NONE ? "" : " on ",
			 g->bars[n->ref].gcomm == DF_NONE
				 ? ""
				 : set->gcomms[g->bars[n->ref].gcomm].label);
		break;
	default:
		snprintf(buf, size, "earlier work of %s", set->traces[n->trace].label);
	}
	return buf;
}
