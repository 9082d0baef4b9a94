/*
 * The model's streams: what is put on them, what is before what, and which of it counts in which mode. Everything
 * belongs to the run.
 */
#include <stdlib.h>
#include <string.h>
#include "trace/predict/model_run.h"
#include "runtime/base/vec.h"

void df_mrun_tell(struct run *r, enum df_model_event ev, int rank, int thread, size_t op,
		  const struct df_mop *m, int task)
{
	if (r->fn)
		r->fn(r->arg, ev, rank, thread, op, m, task);
}

static void dep(struct run *r, struct task *t, int on)
{
	int *slot;

	if (on < 0)
		return;
	slot = DF_VEC_PUSH(t->deps, t->nr_deps, t->cap_deps);
	if (slot)
		*slot = on;
	else
		r->failed = 1;
}

static int *tail_of(struct run *r, int rank, int stream)
{
	for (size_t i = 0; i < r->nr_tails; i++)
		if (r->tails[i].rank == rank && r->tails[i].stream == stream)
			return &r->tails[i].task;
	if (DF_VEC_ROOM(r->tails, r->cap_tails, r->nr_tails + 1)) {
		r->failed = 1;
		return NULL;
	}
	r->tails[r->nr_tails].rank = rank;
	r->tails[r->nr_tails].stream = stream;
	r->tails[r->nr_tails].task = NOBODY;
	return &r->tails[r->nr_tails++].task;
}

static uint64_t next_index(struct run *r, uint64_t a, uint64_t b)
{
	for (size_t i = 0; i < r->nr_seqs; i++)
		if (r->seqs[i].a == a && r->seqs[i].b == b)
			return r->seqs[i].nr++;
	if (DF_VEC_ROOM(r->seqs, r->cap_seqs, r->nr_seqs + 1)) {
		r->failed = 1;
		return 0;
	}
	r->seqs[r->nr_seqs].a = a;
	r->seqs[r->nr_seqs].b = b;
	r->seqs[r->nr_seqs++].nr = 1;
	return 0;
}

int df_mrun_event(struct run *r, int rank, int event)
{
	for (size_t i = r->nr_events; i-- > 0;)
		if (r->events[i].rank == rank && r->events[i].event == event)
			return r->events[i].task;
	return NOBODY;
}

void df_mrun_make(struct run *r, int rank, int thread, size_t step, const struct df_mop *op)
{
	int ooo = r->mode != DF_MODEL_BASE, id = (int)r->nr_tasks, *tail;
	struct task *t = DF_VEC_PUSH(r->tasks, r->nr_tasks, r->cap_tasks);

	if (!t) {
		r->failed = 1;
		return;
	}
	memset(t, 0, sizeof(*t));
	t->rank = rank;
	t->thread = thread;
	t->step = step;
	t->op = op;
	t->stream = op->stream;
	t->coll = op->kind == DF_MOP_COLL || op->kind == DF_MOP_P2P;
	if (op->kind == DF_MOP_LEGACY) {
		t->legacy = 1;
		t->stream = -1;
		for (size_t i = 0; i < r->nr_tails; i++)
			if (r->tails[i].rank == rank)
				dep(r, t, r->tails[i].task);
		dep(r, t, r->legacy[rank]);
		r->legacy[rank] = id;
		df_mrun_tell(r, DF_ME_ISSUE, rank, thread, step, op, id);
		return;
	}
	tail = tail_of(r, rank, op->stream);
	if (!tail)
		return;
	if (r->p->one_queue && !ooo)
		dep(r, t, r->last[rank]);
	dep(r, t, *tail);
	dep(r, t, r->legacy[rank]);
	*tail = id;
	r->last[rank] = id;
	switch (op->kind) {
	case DF_MOP_COLL:
		t->index = next_index(r, (uint64_t)op->comm << 8, (uint64_t)rank);
		break;
	case DF_MOP_P2P:
		for (int i = 0; i < op->nr_p2p; i++) {
			const struct df_mp2p *m = &op->p2p[i];
			int src = m->send ? rank : m->peer, dst = m->send ? m->peer : rank;

			t->p2p_index[i] =
				next_index(r, (uint64_t)m->comm << 8 | 1 | (uint64_t)m->send << 1,
					   (uint64_t)src << 32 | (uint64_t)dst);
		}
		break;
	case DF_MOP_RECORD:
		if (DF_VEC_ROOM(r->events, r->cap_events, r->nr_events + 1)) {
			r->failed = 1;
			return;
		}
		r->events[r->nr_events].rank = rank;
		r->events[r->nr_events].event = op->object;
		r->events[r->nr_events++].task = id;
		break;
	case DF_MOP_WAIT:
		dep(r, t, df_mrun_event(r, rank, op->object));
		break;
	default:
		break;
	}
	df_mrun_tell(r, DF_ME_ISSUE, rank, thread, step, op, id);
}

static int is_token(const struct task *t)
{
	return t->op->kind == DF_MOP_RECORD || t->op->kind == DF_MOP_WAIT;
}

static int hazard(const struct task *a, const struct task *b)
{
	uint64_t ra = a->op->kind == DF_MOP_COLL ? a->op->reads : 0,
		 wa = a->op->kind == DF_MOP_COLL ? a->op->writes : 0;
	uint64_t rb = b->op->kind == DF_MOP_COLL ? b->op->reads : 0,
		 wb = b->op->kind == DF_MOP_COLL ? b->op->writes : 0;

	return (wa & rb) || (ra & wb) || (wa & wb);
}

/*
 * All unfinished things before t, through everything; tokens themselves do not count. What has finished out of
 * order is passed through too: what it stood behind is before t all the same. (model.py stops there.)
 */
static size_t blockers(struct run *r, struct task *t, int *out)
{
	size_t nr = 0, at = 0, nr_stack = 0;
	int *stack = malloc((r->nr_tasks + 1) * sizeof(*stack));

	if (!stack) {
		r->failed = 1;
		return 0;
	}
	r->stamp++;
	for (size_t i = 0; i < t->nr_deps; i++) {
		struct task *d = &r->tasks[t->deps[i]];

		if ((!d->done || !d->settled) && d->stamp != r->stamp) {
			d->stamp = r->stamp;
			stack[nr_stack++] = t->deps[i];
		}
	}
	for (; at < nr_stack; at++) {
		struct task *d = &r->tasks[stack[at]];

		if (!d->done && !is_token(d))
			out[nr++] = stack[at];
		for (size_t i = 0; i < d->nr_deps; i++) {
			struct task *x = &r->tasks[d->deps[i]];

			if ((!x->done || !x->settled) && x->stamp != r->stamp) {
				x->stamp = r->stamp;
				stack[nr_stack++] = d->deps[i];
			}
		}
	}
	free(stack);
	return nr;
}

int df_mrun_ready(struct run *r, struct task *t)
{
	int *bl, ok = 1;
	size_t nr, i;

	for (i = 0; i < t->nr_deps && r->tasks[t->deps[i]].done && r->tasks[t->deps[i]].settled;
	     i++)
		;
	if (i == t->nr_deps)
		return 1;
	if (r->mode == DF_MODEL_BASE)
		return 0;
	bl = malloc((r->nr_tasks + 1) * sizeof(*bl));
	if (!bl) {
		r->failed = 1;
		return 0;
	}
	nr = blockers(r, t, bl);
	if (nr && !t->coll && !(r->mode == DF_MODEL_SE && t->legacy))
		ok = 0;
	if (t->coll && r->mode == DF_MODEL_SE) {
		size_t kept = 0;
		int all = 1;

		for (i = 0; i < nr; i++)
			all &= r->tasks[bl[i]].coll || r->tasks[bl[i]].legacy;
		for (i = 0; i < nr && all; i++)
			if (!r->tasks[bl[i]].legacy)
				bl[kept++] = bl[i];
		if (all)
			nr = kept;
	}
	for (i = 0; i < nr; i++)
		ok &= r->tasks[bl[i]].coll && (!t->coll || !hazard(&r->tasks[bl[i]], t));
	free(bl);
	return ok;
}

size_t df_mrun_resident(const struct run *r, int rank)
{
	size_t nr = 0;

	for (size_t i = 0; i < r->nr_tasks; i++)
		nr += r->tasks[i].rank == rank && r->tasks[i].coll && r->tasks[i].started &&
		      !r->tasks[i].done;
	return nr;
}

int df_mrun_only_collectives(struct run *r, int rank)
{
	int *bl = malloc((r->nr_tasks + 1) * sizeof(*bl)), ok = 1;

	for (size_t i = 0; bl && i < r->nr_tasks && ok; i++) {
		struct task *t = &r->tasks[i];
		size_t nr;
		int behind = 0;

		if (t->rank != rank || t->done || t->coll)
			continue;
		nr = blockers(r, t, bl);
		for (size_t k = 0; k < nr; k++)
			behind |= r->tasks[bl[k]].coll;
		ok = behind;
	}
	if (!bl)
		r->failed = 1;
	free(bl);
	return ok;
}
