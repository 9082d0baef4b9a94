/*
 * The fixpoint executor. Deterministic for a given schedule; everything it owns dies with the call.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "trace/predict/model_run.h"
#include "runtime/base/vec.h"

static int barrier(struct run *r, int rank, const struct df_mop *op)
{
	size_t i = 0;

	for (; i < r->nr_bars; i++)
		if (r->bars[i].kind == (int)op->kind && r->bars[i].object == op->object)
			break;
	if (i == r->nr_bars) {
		if (DF_VEC_ROOM(r->bars, r->cap_bars, r->nr_bars + 1)) {
			r->failed = 1;
			return 0;
		}
		r->bars[i].kind = (int)op->kind;
		r->bars[i].object = op->object;
		r->bars[i].here = 0;
		r->nr_bars++;
	}
	r->bars[i].here |= 1ULL << rank;
	if ((r->bars[i].here & op->members) != op->members)
		return op->kind == DF_MOP_CONN && r->mode != DF_MODEL_BASE;
	if (op->kind != DF_MOP_HBAR && op->members & r->dead)
		return op->kind == DF_MOP_CONN && r->mode != DF_MODEL_BASE;
	return 1;
}

static int flag_is_set(const struct run *r, int flag)
{
	for (size_t i = 0; i < r->nr_flags; i++)
		if (r->flags[i] == flag)
			return 1;
	return 0;
}

/* Tries one host step; 1 if it is over. */
static int host_step(struct run *r, int rank, int thread)
{
	const struct df_mop *op = &r->p->threads[rank][thread].ops[r->pc[rank][thread]];
	size_t step = r->pc[rank][thread], open = 0;
	int ok = 1, *slot, ev;

	if (!r->entered[rank][thread]) {
		r->entered[rank][thread] = 1;
		df_mrun_tell(r, DF_ME_ENTER, rank, thread, step, op, -1);
	}
	for (size_t i = 0; i < r->nr_tasks; i++)
		open += r->tasks[i].rank == rank && !r->tasks[i].done;
	switch (op->kind) {
	case DF_MOP_SSYNC:
		for (size_t i = 0; i < r->nr_tasks; i++)
			if (r->tasks[i].rank == rank && r->tasks[i].stream == op->stream &&
			    !r->tasks[i].legacy)
				ok &= r->tasks[i].done;
		break;
	case DF_MOP_ESYNC:
		ev = df_mrun_event(r, rank, op->object);
		ok = ev >= 0 && r->tasks[ev].done;
		break;
	case DF_MOP_DSYNC:
	case DF_MOP_ISYNC:
		ok = !open;
		if (!ok && (r->mode == DF_MODEL_SE ||
			    (r->mode == DF_MODEL_SI && op->kind == DF_MOP_ISYNC)))
			ok = df_mrun_only_collectives(r, rank);
		break;
	case DF_MOP_HBAR:
	case DF_MOP_CONN:
	case DF_MOP_INIT:
		ok = barrier(r, rank, op);
		break;
	case DF_MOP_HWAIT:
		ok = flag_is_set(r, op->object);
		break;
	case DF_MOP_HSIGNAL:
		slot = DF_VEC_PUSH(r->flags, r->nr_flags, r->cap_flags);
		if (slot)
			*slot = op->object;
		else
			r->failed = 1;
		break;
	case DF_MOP_EXIT:
		r->dead |= 1ULL << rank;
		break;
	case DF_MOP_SPIN:
		ok = 0;
		break;
	case DF_MOP_RECORD:
	case DF_MOP_WAIT:
	case DF_MOP_LEGACY:
		df_mrun_make(r, rank, thread, step, op);
		break;
	default:
		ok = !r->p->launch_queue || open < (size_t)r->p->launch_queue;
		if (ok)
			df_mrun_make(r, rank, thread, step, op);
	}
	if (!ok)
		return 0;
	df_mrun_tell(r, DF_ME_LEAVE, rank, thread, step, op, -1);
	r->entered[rank][thread] = 0;
	r->pc[rank][thread]++;
	return 1;
}

static int may_try(const struct run *r, const struct df_model_schedule *s, int rank, int thread)
{
	const struct df_mthread *t = &r->p->threads[rank][thread];

	if (r->dead >> rank & 1 || r->pc[rank][thread] >= t->nr_ops)
		return 0;
	return !s || !s->hold || !s->hold(s->arg, rank, thread, &t->ops[r->pc[rank][thread]]);
}

/* All hosts as far as they get; 1 if any moved. */
static int hosts(struct run *r, const struct df_model_schedule *s)
{
	int moved = 0;

	if (!s || !s->pick) {
		for (int k = 0; k < r->p->nr_ranks; k++)
			for (int t = 0; t < r->p->nr_threads[k]; t++)
				while (!r->failed && may_try(r, s, k, t) && host_step(r, k, t))
					moved = 1;
		return moved;
	}
	/* By a schedule: one step of one thread at a time, until nobody can. */
	for (uint64_t blocked[DF_MODEL_THREADS] = {0}; !r->failed;) {
		int list[DF_MODEL_RANKS * DF_MODEL_THREADS][2];
		size_t nr = 0, at;

		for (int k = 0; k < r->p->nr_ranks; k++) {
			for (int t = 0; t < r->p->nr_threads[k]; t++) {
				if (!may_try(r, s, k, t) || blocked[t] >> k & 1)
					continue;
				list[nr][0] = k;
				list[nr++][1] = t;
			}
		}
		if (!nr)
			return moved;
		at = s->pick(s->arg, nr) % nr;
		if (host_step(r, list[at][0], list[at][1])) {
			if (s->device)
				return 1;
			moved = 1;
			memset(blocked, 0, sizeof(blocked));
		} else {
			blocked[list[at][1]] |= 1ULL << list[at][0];
		}
	}
	return moved;
}

static void finish(struct run *r, size_t i)
{
	struct task *t = &r->tasks[i];

	t->done = 1;
	t->settled = 1;
	for (size_t k = 0; k < t->nr_deps && !r->p->as_reference; k++)
		t->settled &= r->tasks[t->deps[k]].done && r->tasks[t->deps[k]].settled;
	df_mrun_tell(r, DF_ME_DONE, t->rank, t->thread, t->step, t->op, (int)i);
}

/* 1: nothing keeps the task from starting. */
static int may_start(struct run *r, size_t i)
{
	struct task *t = &r->tasks[i];

	if (t->done || t->started || r->dead >> t->rank & 1 || !df_mrun_ready(r, t))
		return 0;
	if (t->coll && r->mode == DF_MODEL_BASE && r->p->cap &&
	    df_mrun_resident(r, t->rank) >= (size_t)r->p->cap) {
		if (!t->told)
			df_mrun_tell(r, DF_ME_NO_SLOT, t->rank, t->thread, t->step, t->op, (int)i);
		t->told = 1;
		return 0;
	}
	return t->op->kind != DF_MOP_STUCK;
}

static void start(struct run *r, size_t i)
{
	struct task *t = &r->tasks[i];
	size_t nr;

	t->started = 1;
	df_mrun_tell(r, DF_ME_START, t->rank, t->thread, t->step, t->op, (int)i);
	if (!t->coll) {
		finish(r, i);
		return;
	}
	nr = df_mrun_resident(r, t->rank);
	if (nr > r->max_resident)
		r->max_resident = nr;
}

/* All that may start; or by a schedule one, or none if something else moves. */
static int starts(struct run *r, const struct df_model_schedule *s, int others_move)
{
	size_t nr = 0, at;
	int moved = 0;

	if (!s || !s->device) {
		for (size_t i = 0; i < r->nr_tasks; i++) {
			if (!may_start(r, i))
				continue;
			start(r, i);
			moved = 1;
		}
		return moved;
	}
	for (size_t i = 0; i < r->nr_tasks; i++)
		nr += (size_t)may_start(r, i);
	if (!nr)
		return 0;
	at = s->device(s->arg, nr + (others_move != 0));
	for (size_t i = 0; i < r->nr_tasks; i++) {
		if (!may_start(r, i) || at--)
			continue;
		start(r, i);
		return 1;
	}
	return 0;
}

/* Collectives whose members all run with one signature. */
static int collectives(struct run *r)
{
	int moved = 0;

	for (size_t i = 0; i < r->nr_tasks; i++) {
		struct task *t = &r->tasks[i];
		uint64_t left;
		int ok = 1;

		if (t->op->kind != DF_MOP_COLL || t->done || !t->started)
			continue;
		left = r->p->comms[t->op->comm];
		if (left & r->dead)
			continue;
		for (size_t k = 0; k < r->nr_tasks && ok; k++) {
			const struct task *x = &r->tasks[k];

			if (x->op->kind != DF_MOP_COLL || x->op->comm != t->op->comm ||
			    x->index != t->index)
				continue;
			ok = x->started && x->op->sig == t->op->sig;
			left &= ~(1ULL << x->rank);
		}
		if (ok && !left) {
			finish(r, i);
			moved = 1;
		}
	}
	return moved;
}

/* A message: the other side's task, or NOBODY; sets its count. */
static int other_side(const struct run *r, const struct task *t, int which, uint64_t *count)
{
	const struct df_mp2p *m = &t->op->p2p[which];

	for (size_t k = 0; k < r->nr_tasks; k++) {
		const struct task *x = &r->tasks[k];

		if (x->op->kind != DF_MOP_P2P || x->rank != m->peer)
			continue;
		for (int i = 0; i < x->op->nr_p2p; i++) {
			const struct df_mp2p *o = &x->op->p2p[i];

			if (o->send != m->send && o->comm == m->comm && o->peer == t->rank &&
			    x->p2p_index[i] == t->p2p_index[which]) {
				*count = o->count;
				return (int)k;
			}
		}
	}
	return NOBODY;
}

static int messages(struct run *r)
{
	int moved = 0;

	for (size_t i = 0; i < r->nr_tasks; i++) {
		struct task *t = &r->tasks[i];
		int ok = 1;

		if (t->op->kind != DF_MOP_P2P || t->done || !t->started || r->dead >> t->rank & 1)
			continue;
		for (int k = 0; k < t->op->nr_p2p && ok; k++) {
			uint64_t count;
			int x;

			if (t->op->p2p[k].send && r->p->buffered)
				continue;
			x = other_side(r, t, k, &count);
			ok = x >= 0 && r->tasks[x].started && count == t->op->p2p[k].count &&
			     !(r->dead >> r->tasks[x].rank & 1);
		}
		if (ok) {
			finish(r, i);
			moved = 1;
		}
	}
	return moved;
}

int df_model_run(const struct df_mprog *p, enum df_model_mode mode,
		 const struct df_model_schedule *schedule, df_model_event_fn fn, void *arg,
		 struct df_model_result *out)
{
	struct run *r = calloc(1, sizeof(*r));
	int moved, failed;

	if (!r)
		return -ENOMEM;
	r->p = p;
	r->mode = mode;
	r->fn = fn;
	r->arg = arg;
	for (int k = 0; k < DF_MODEL_RANKS; k++)
		r->legacy[k] = r->last[k] = NOBODY;
	do {
		moved = hosts(r, schedule);
		moved |= starts(r, schedule, moved);
		if (moved && schedule && schedule->device && schedule->device(schedule->arg, 2))
			continue;
		moved |= collectives(r);
		moved |= messages(r);
		if (!moved && schedule && schedule->let_go)
			moved = schedule->let_go(schedule->arg);
	} while (moved && !r->failed);
	memset(out, 0, sizeof(*out));
	out->nr_tasks = r->nr_tasks;
	out->max_resident = r->max_resident;
	memcpy(out->pc, r->pc, sizeof(out->pc));
	for (int k = 0; k < p->nr_ranks; k++)
		for (int t = 0; t < p->nr_threads[k]; t++)
			out->hung |= !(r->dead >> k & 1) && r->pc[k][t] < p->threads[k][t].nr_ops;
	for (size_t i = 0; i < r->nr_tasks; i++)
		out->nr_unfinished += !r->tasks[i].done && !(r->dead >> r->tasks[i].rank & 1);
	out->hung |= out->nr_unfinished > 0;
	for (size_t i = 0; i < r->nr_tasks; i++)
		free(r->tasks[i].deps);
	free(r->tasks);
	free(r->tails);
	free(r->events);
	free(r->seqs);
	free(r->bars);
	free(r->flags);
	failed = r->failed;
	free(r);
	return failed ? -ENOMEM : 0;
}

const char *df_model_classify(const struct df_mprog *p)
{
	static const char *const labels[] = {"OK", "P", "Si", "Se"};
	struct df_model_result res;

	for (int m = DF_MODEL_BASE; m <= DF_MODEL_SE; m++)
		if (!df_model_run(p, (enum df_model_mode)m, NULL, NULL, NULL, &res) && !res.hung)
			return labels[m];
	return "D";
}

int df_mprog_add(struct df_mprog *p, int rank, int thread, const struct df_mop *op)
{
	struct df_mthread *t;
	struct df_mop *slot;

	if (rank < 0 || rank >= DF_MODEL_RANKS || thread < 0 || thread >= DF_MODEL_THREADS)
		return -EINVAL;
	t = &p->threads[rank][thread];
	slot = DF_VEC_PUSH(t->ops, t->nr_ops, t->cap_ops);
	if (!slot)
		return -ENOMEM;
	*slot = *op;
	if (thread >= p->nr_threads[rank])
		p->nr_threads[rank] = thread + 1;
	if (rank >= p->nr_ranks)
		p->nr_ranks = rank + 1;
	return 0;
}

int df_mprog_comm(struct df_mprog *p, uint64_t members)
{
	uint64_t *fresh = realloc(p->comms, ((size_t)p->nr_comms + 1) * sizeof(*fresh));

	if (!fresh)
		return -ENOMEM;
	p->comms = fresh;
	p->comms[p->nr_comms] = members;
	return p->nr_comms++;
}

void df_mprog_fini(struct df_mprog *p)
{
	for (int k = 0; k < DF_MODEL_RANKS; k++)
		for (int t = 0; t < DF_MODEL_THREADS; t++)
			free(p->threads[k][t].ops);
	free(p->comms);
	memset(p, 0, sizeof(*p));
}
