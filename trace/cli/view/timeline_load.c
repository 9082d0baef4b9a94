/*
 * Turns traces into bars: aligns clocks, puts overlapping bars into lanes, draws unfinished ones to
 * the end.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "trace/cli/view/timeline.h"
#include "trace/read/set.h"
#include "trace/record/names.h"
#include "runtime/base/err.h"
#include "runtime/base/vec.h"

#define MAX_LANES 16

static const char *keep_text(struct df_timeline *t, const char *buf)
{
	char **slot;

	for (size_t i = 0; i < t->nr_names; i++)
		if (!strcmp(t->names[i], buf))
			return t->names[i];
	slot = DF_VEC_PUSH(t->names, t->nr_names, t->cap_names);
	if (!slot)
		return "";
	*slot = strdup(buf);
	return *slot ? *slot : "";
}

static const char *keep_name(struct df_timeline *t, const struct df_trace_comm *c)
{
	char buf[40];

	if (c && c->name[0])
		snprintf(buf, sizeof(buf), "%.31s", c->name);
	else
		snprintf(buf, sizeof(buf), "0x%llx", c ? (unsigned long long)c->hash : 0);
	return keep_text(t, buf);
}

static struct df_bar_item *add_op(struct df_timeline *t, const struct df_lop *op,
				  const struct df_load *l, const struct df_reader *r,
				  uint32_t trace, int64_t skew)
{
	const struct df_trace_comm *c = df_reader_comm(r, op->comm);
	struct df_bar_item *b = DF_VEC_PUSH(t->bars, t->nr_bars, t->cap_bars);
	char program[80];

	if (!b)
		return NULL;
	memset(b, 0, sizeof(*b));
	b->begin_ns = (op->state && op->start_ns ? op->start_ns : op->issue_ns) + (uint64_t)skew;
	/* A process that hung has not exited normally. */
	b->unseen = op->state < DF_OP_FINISHED && df_lop_blind(op) && l->h.closed;
	b->open = op->state < DF_OP_FINISHED && !b->unseen;
	b->end_ns = b->open ? UINT64_MAX : b->unseen ? b->begin_ns : op->done_ns + (uint64_t)skew;
	b->started = op->state != DF_OP_ISSUED;
	b->rank = (int32_t)t->nr_procs - 1;
	b->track = op->stream;
	b->kind = op->kind;
	b->type = op->type;
	b->redop = op->redop;
	b->count = op->count;
	b->index = op->index;
	b->serial = op->serial;
	b->rec = op->rec;
	b->peer = op->peer;
	b->trace = trace;
	b->comm = keep_name(t, c);
	b->program = "";
	if (op->program)
		b->program = keep_text(t, df_reader_program(r, (uint64_t)op->program << 40, program,
							    sizeof(program)));
	b->stack = df_stacks_get(&t->stacks, trace, l->notes, l->nr_notes, r, op->site);
	b->comm_hash = c ? c->hash : 0;
	b->comm_rank = c ? c->rank : -1;
	b->nranks = c ? c->nranks : 0;
	return b;
}

static int add_ops(struct df_timeline *t, const struct df_load *l, const struct df_reader *r,
		   uint32_t trace, int64_t skew, size_t max)
{
	size_t first = l->nr_ops > max ? l->nr_ops - max : 0;

	t->left_out += first;
	for (size_t i = first; i < l->nr_ops; i++)
		if (!add_op(t, &l->ops[i], l, r, trace, skew))
			return -ENOMEM;
	for (size_t i = 0; i < l->nr_notes; i++) {
		struct df_bar_item *b;
		struct df_lop op;

		if (!df_load_intent(l, &l->notes[i], &op))
			continue;
		b = add_op(t, &op, l, r, trace, skew);
		if (!b)
			return -ENOMEM;
		b->intent = 1;
	}
	return 0;
}

static int add_calls(struct df_timeline *t, const struct df_load *l, uint32_t trace, int64_t skew,
		     size_t max)
{
	size_t first = l->nr_calls > max ? l->nr_calls - max : 0;

	t->left_out += first;
	for (size_t i = first; i < l->nr_calls; i++) {
		const struct df_lcall *c = &l->calls[i];
		struct df_bar_item *b;

		/* This is the end of a polling loop, whose begin is not recorded. */
		if (df_call_is_poll(c->call))
			continue;
		b = DF_VEC_PUSH(t->bars, t->nr_bars, t->cap_bars);
		if (!b)
			return -ENOMEM;
		memset(b, 0, sizeof(*b));
		b->begin_ns = c->enter_ns + (uint64_t)skew;
		b->open = c->open;
		b->end_ns = c->open ? UINT64_MAX : c->exit_ns + (uint64_t)skew;
		b->started = 1;
		b->is_call = 1;
		b->call = c->call;
		b->rank = (int32_t)t->nr_procs - 1;
		b->track = c->thread;
		b->trace = trace;
		b->serial = c->serial;
		b->rec = c->rec;
		b->comm = "";
	}
	return 0;
}

static int by_time(const void *pa, const void *pb)
{
	const struct df_bar_item *a = pa, *b = pb;

	if (a->rank != b->rank)
		return a->rank < b->rank ? -1 : 1;
	if (a->is_call != b->is_call)
		return a->is_call - b->is_call;
	return DF_CMP(a->track, b->track) ?: DF_CMP(a->begin_ns, b->begin_ns);
}

static void lanes(struct df_timeline *t)
{
	uint64_t busy[MAX_LANES];

	if (t->nr_bars)
		qsort(t->bars, t->nr_bars, sizeof(*t->bars), by_time);
	for (size_t i = 0; i < t->nr_bars; i++) {
		struct df_bar_item *b = &t->bars[i];

		if (!i || b->rank != b[-1].rank || b->track != b[-1].track ||
		    b->is_call != b[-1].is_call)
			memset(busy, 0, sizeof(busy));
		while (b->lane < MAX_LANES - 1 && busy[b->lane] > b->begin_ns)
			b->lane++;
		busy[b->lane] = b->end_ns;
	}
}

/*
 * Names communicators as the verdict does: one without a name of its own is "A" and so on, not its
 * hash.
 */
static void name_comms(struct df_timeline *t, const struct df_check_set *set)
{
	const char **labels = calloc(set->nr_gcomms + 1, sizeof(*labels));

	for (size_t i = 0; labels && i < set->nr_gcomms; i++)
		labels[i] = keep_text(t, set->gcomms[i].label);
	for (size_t k = 0; labels && k < t->nr_bars; k++)
		for (size_t i = 0; t->bars[k].comm_hash && i < set->nr_gcomms; i++)
			if (set->gcomms[i].hash == t->bars[k].comm_hash) {
				t->bars[k].comm = labels[i];
				break;
			}
	free(labels);
}

/*
 * Adds a trace. Machines boot at different times, so all times are converted to the clock of the
 * first trace's machine.
 */
static int add_trace(struct df_timeline *t, const struct df_check_set *set, uint32_t trace,
		     struct df_load *l, size_t max)
{
	const struct df_trace_header *clock = &set->traces[0].h;
	struct df_reader r;
	int64_t skew = 0;
	int rc = df_reader_open(&r, set->traces[trace].path, NULL);

	if (rc)
		return rc;
	rc = df_load_trace(l, &r);
	if (r.h.boot_hash != clock->boot_hash)
		skew = (int64_t)(l->h.real_ns - l->h.mono_ns - (clock->real_ns - clock->mono_ns));
	if (!rc && DF_VEC_ROOM(t->procs, t->cap_procs, t->nr_procs + 1))
		rc = -ENOMEM;
	if (!rc) {
		snprintf(t->procs[t->nr_procs].name, sizeof(t->procs[0].name), "rank %d %.40s:%u",
			 r.h.rank, r.h.host, r.h.pid);
		t->procs[t->nr_procs].rank = r.h.rank;
		t->procs[t->nr_procs++].pid = r.h.pid;
		rc = add_ops(t, l, &r, trace, skew, max);
	}
	if (!rc)
		rc = add_calls(t, l, trace, skew, max);
	if (l->nr_recs) {
		t->first_ns = DF_MIN(t->first_ns, l->first_ns + (uint64_t)skew);
		t->end_ns = DF_MAX(t->end_ns, l->last_ns + (uint64_t)skew);
	}
	df_reader_close(&r);
	return rc;
}

int df_timeline_load(struct df_timeline *t, const struct df_check_set *set, const uint32_t *traces,
		     size_t nr, size_t max)
{
	struct df_load l;
	int rc = 0;

	memset(t, 0, sizeof(*t));
	t->first_ns = UINT64_MAX;
	df_load_init(&l);
	for (size_t i = 0; i < nr && !rc; i++)
		rc = add_trace(t, set, traces ? traces[i] : (uint32_t)i, &l, max / nr + 1);
	df_load_fini(&l);
	if (rc) {
		df_timeline_fini(t);
		return rc;
	}
	name_comms(t, set);
	for (size_t i = 0; i < t->nr_bars; i++) {
		struct df_bar_item *b = &t->bars[i];

		b->begin_ns = b->begin_ns > t->first_ns ? b->begin_ns - t->first_ns : 0;
		b->end_ns = b->open		      ? t->end_ns - t->first_ns
			    : b->end_ns > t->first_ns ? b->end_ns - t->first_ns
						      : 0;
		if (b->end_ns < b->begin_ns)
			b->end_ns = b->begin_ns;
	}
	lanes(t);
	return 0;
}

void df_timeline_fini(struct df_timeline *t)
{
	df_stacks_fini(&t->stacks);
	for (size_t i = 0; i < t->nr_names; i++)
		free(t->names[i]);
	free(t->names);
	free(t->bars);
	free(t->procs);
	memset(t, 0, sizeof(*t));
}
