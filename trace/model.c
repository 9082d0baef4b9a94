/*
 * The fixpoint executor. Deterministic for a given schedule; everything it owns dies with the call.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "trace/model.h"
#include "trace/vec.h"

#define NOBODY (-1)

struct task {
	int rank, thread, stream;
	size_t step;
	const struct df_mop *op;
	uint64_t index; /* COLL: in its communicator */
	uint64_t p2p_index[DF_MOP_MAX_P2P];
	int *deps;
	size_t nr_deps, cap_deps;
	uint8_t started, done, coll, legacy, told;
	uint8_t settled; /* and so is everything before it */
	uint32_t stamp;
};

struct run {
	const struct df_mprog *p;
	enum df_model_mode mode;
	df_model_event_fn fn;
	void *arg;
	struct task *tasks;
	size_t nr_tasks, cap_tasks;
	struct {
		int rank, stream, task;
	} * tails;
	size_t nr_tails, cap_tails;
	struct {
		int rank, event, task;
	} * events;
	size_t nr_events, cap_events;
	struct {
		uint64_t a, b;
		uint64_t nr;
	} * seqs;
	size_t nr_seqs, cap_seqs;
	struct {
		int kind, object;
		uint64_t here;
	} * bars;
	size_t nr_bars, cap_bars;
	int *flags;
	size_t nr_flags, cap_flags;
	int legacy[DF_MODEL_RANKS], last[DF_MODEL_RANKS];
	uint64_t dead;
	size_t pc[DF_MODEL_RANKS][DF_MODEL_THREADS];
	uint8_t entered[DF_MODEL_RANKS][DF_MODEL_THREADS];
	uint32_t stamp;
	size_t max_resident;
	int failed;
};

static void tell(struct run *r, enum df_model_event ev, int rank, int thread, size_t op,
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
	if (df_vec_grow((void **)&r->tails, r->nr_tails, &r->cap_tails, sizeof(*r->tails))) {
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
	if (df_vec_grow((void **)&r->seqs, r->nr_seqs, &r->cap_seqs, sizeof(*r->seqs))) {
		r->failed = 1;
		return 0;
	}
	r->seqs[r->nr_seqs].a = a;
	r->seqs[r->nr_seqs].b = b;
	r->seqs[r->nr_seqs++].nr = 1;
	return 0;
}

static int event_task(struct run *r, int rank, int event)
{
	for (size_t i = r->nr_events; i-- > 0;)
		if (r->events[i].rank == rank && r->events[i].event == event)
			return r->events[i].task;
	return NOBODY;
}

/* Puts a thing on its stream. */
static void make(struct run *r, int rank, int thread, size_t step, const struct df_mop *op)
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
		tell(r, DF_ME_ISSUE, rank, thread, step, op, id);
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
		if (df_vec_grow((void **)&r->events, r->nr_events, &r->cap_events,
				sizeof(*r->events))) {
			r->failed = 1;
			return;
		}
		r->events[r->nr_events].rank = rank;
		r->events[r->nr_events].event = op->object;
		r->events[r->nr_events++].task = id;
		break;
	case DF_MOP_WAIT:
		dep(r, t, event_task(r, rank, op->object));
		break;
	default:
		break;
	}
	tell(r, DF_ME_ISSUE, rank, thread, step, op, id);
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

static int ready(struct run *r, struct task *t)
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

static size_t resident(const struct run *r, int rank)
{
	size_t nr = 0;

	for (size_t i = 0; i < r->nr_tasks; i++)
		nr += r->tasks[i].rank == rank && r->tasks[i].coll && r->tasks[i].started &&
		      !r->tasks[i].done;
	return nr;
}

/* Only collectives, or what is queued behind them, are unfinished on this rank. */
static int only_collectives(struct run *r, int rank)
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

static int barrier(struct run *r, int rank, const struct df_mop *op)
{
	size_t i = 0;

	for (; i < r->nr_bars; i++)
		if (r->bars[i].kind == (int)op->kind && r->bars[i].object == op->object)
			break;
	if (i == r->nr_bars) {
		if (df_vec_grow((void **)&r->bars, r->nr_bars, &r->cap_bars, sizeof(*r->bars))) {
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
		tell(r, DF_ME_ENTER, rank, thread, step, op, -1);
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
		ev = event_task(r, rank, op->object);
		ok = ev >= 0 && r->tasks[ev].done;
		break;
	case DF_MOP_DSYNC:
	case DF_MOP_ISYNC:
		ok = !open;
		if (!ok && (r->mode == DF_MODEL_SE ||
			    (r->mode == DF_MODEL_SI && op->kind == DF_MOP_ISYNC)))
			ok = only_collectives(r, rank);
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
		make(r, rank, thread, step, op);
		break;
	default:
		ok = !r->p->launch_queue || open < (size_t)r->p->launch_queue;
		if (ok)
			make(r, rank, thread, step, op);
	}
	if (!ok)
		return 0;
	tell(r, DF_ME_LEAVE, rank, thread, step, op, -1);
	r->entered[rank][thread] = 0;
	r->pc[rank][thread]++;
	return 1;
}

static int may_try(const struct run *r, int rank, int thread)
{
	return !(r->dead >> rank & 1) && r->pc[rank][thread] < r->p->threads[rank][thread].nr_ops;
}

/* All hosts as far as they get; 1 if any moved. */
static int hosts(struct run *r, const struct df_model_schedule *s)
{
	int moved = 0;

	if (!s) {
		for (int k = 0; k < r->p->nr_ranks; k++)
			for (int t = 0; t < r->p->nr_threads[k]; t++)
				while (!r->failed && may_try(r, k, t) && host_step(r, k, t))
					moved = 1;
		return moved;
	}
	/* By a schedule: one step of one thread at a time, until nobody can. */
	for (uint64_t blocked[DF_MODEL_THREADS] = {0}; !r->failed;) {
		int list[DF_MODEL_RANKS * DF_MODEL_THREADS][2];
		size_t nr = 0, at;

		for (int k = 0; k < r->p->nr_ranks; k++) {
			for (int t = 0; t < r->p->nr_threads[k]; t++) {
				if (!may_try(r, k, t) || blocked[t] >> k & 1)
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
	tell(r, DF_ME_DONE, t->rank, t->thread, t->step, t->op, (int)i);
}

/* 1: nothing keeps the task from starting. */
static int may_start(struct run *r, size_t i)
{
	struct task *t = &r->tasks[i];

	if (t->done || t->started || r->dead >> t->rank & 1 || !ready(r, t))
		return 0;
	if (t->coll && r->mode == DF_MODEL_BASE && r->p->cap &&
	    resident(r, t->rank) >= (size_t)r->p->cap) {
		if (!t->told)
			tell(r, DF_ME_NO_SLOT, t->rank, t->thread, t->step, t->op, (int)i);
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
	tell(r, DF_ME_START, t->rank, t->thread, t->step, t->op, (int)i);
	if (!t->coll) {
		finish(r, i);
		return;
	}
	nr = resident(r, t->rank);
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
