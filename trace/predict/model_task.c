/*
 * Implements the model's streams: the tasks on them, and which tasks must precede which in each
 * mode. All state belongs to the run.
 */
#include <stdlib.h>
#include <string.h>
#include "runtime/base/hash.h"
#include "trace/predict/model_int.h"
#include "runtime/base/vec.h"

#define RANK_BITS 10
_Static_assert(DF_MODEL_RANKS <= 1 << RANK_BITS, "a message's two ranks have a key of their own");

void df_mrun_tell(struct df_mrun *r, enum df_model_event ev, int rank, int thread, size_t op,
		  const struct df_mop *m, int task)
{
	if (r->fn)
		r->fn(r->arg, ev, rank, thread, op, m, task);
}

/* Adds a predecessor in the order of streams. */
static void dep(struct df_mrun *r, struct task *t, int on)
{
	int *slot;

	if (on < 0 || r->tasks[on].settled)
		return;
	slot = DF_VEC_PUSH(t->deps, t->nr_deps, t->cap_deps);
	if (slot)
		*slot = on;
	else
		r->failed = 1;
}

/* Adds a predecessor in the order of a communicator, in mode LANES. */
static void dep_after(struct df_mrun *r, struct task *t, int on)
{
	int *slot;

	if (on < 0 || r->tasks[on].done)
		return;
	slot = DF_VEC_PUSH(t->after, t->nr_after, t->cap_after);
	if (slot)
		*slot = on;
	else
		r->failed = 1;
}

/*
 * Adds `on` and the tasks of its group as predecessors, unless t is in that group. `on` is the last
 * task of a stream or a communicator.
 */
static void dep_group(struct df_mrun *r, struct task *t, int on,
		      void (*add)(struct df_mrun *r, struct task *t, int on))
{
	for (int own = t->with; own >= 0; own = r->tasks[own].with)
		if (own == on)
			return;
	for (; on >= 0; on = r->tasks[on].with)
		add(r, t, on);
}

/*
 * Whether the task runs together with the preceding one. The messages of a group do, even if they
 * take several steps of the program (DF_MOP_MAX_P2P). They must be on one stream or, where
 * communicators keep their order, on one communicator.
 */
static int is_of_group(const struct df_mrun *r, const struct task *t)
{
	const struct df_mop *before = t->step ? t->op - 1 : NULL;

	return before && t->op->kind == DF_MOP_P2P && before->kind == DF_MOP_P2P &&
	       before->goes_on &&
	       (before->stream == t->op->stream ||
		(r->p->in_order && before->p2p[0].comm == t->op->p2p[0].comm));
}

/* Makes a communicator's key in the map in which streams are found. */
#define KEY_COMM(comm) (1ULL << 32 | (uint64_t)(comm))

/* Returns the tail of a stream or communicator, or NULL if memory is short. */
static struct tail *tail_of(struct df_mrun *r, int rank, uint64_t key)
{
	uint64_t *number = df_map_at(&r->streams, (uint64_t)rank, key);

	if (!number || (!*number && DF_VEC_ROOM(r->tails, r->cap_tails, r->nr_tails + 1))) {
		r->failed = 1;
		return NULL;
	}
	if (!*number) {
		r->tails[r->nr_tails] = (struct tail){.rank = rank, .task = NOBODY};
		*number = ++r->nr_tails;
	}
	return &r->tails[*number - 1];
}

/*
 * Returns the number of an operation: the k-th on its communicator and rank, or the k-th message
 * between its two ranks. Operations that meet have the same number on all ranks. `ends` encodes the
 * rank, or both ranks of a message.
 */
static uint64_t next_index(struct df_mrun *r, uint64_t comm, uint64_t ends, uint64_t sig)
{
	uint64_t name = r->p->agreed ? df_mix64(sig) : 0;
	uint64_t *nr = df_map_at(&r->seqs, comm, name << 2 * RANK_BITS | ends);

	if (nr)
		return (*nr)++ + (name << 32);
	r->failed = 1;
	return 0;
}

int df_mrun_event(struct df_mrun *r, int rank, int event)
{
	const uint64_t *task = df_map_find(&r->events, (uint64_t)rank, (uint64_t)event);

	return task ? (int)*task - BIAS : NOBODY;
}

struct meeting *df_mrun_meet(struct df_mrun *r, const struct task *t, int message)
{
	const struct df_mp2p *m = &t->op->p2p[message];
	int p2p = t->op->kind == DF_MOP_P2P;
	int src = p2p && m->send ? t->rank : m->peer, dst = p2p && m->send ? m->peer : t->rank;
	uint64_t a = p2p ? t->p2p_index[message] : t->index,
		 b = p2p ? 1 | (uint64_t)src << 1 | (uint64_t)dst << 16 | (uint64_t)m->comm << 32
			 : (uint64_t)t->op->comm << 32;
	uint64_t *number = df_map_at(&r->meetings, a, b);

	if (!number || (!*number && DF_VEC_ROOM(r->meets, r->cap_meets, r->nr_meets + 1))) {
		r->failed = 1;
		return NULL;
	}
	if (!*number) {
		r->meets[r->nr_meets] = (struct meeting){.a = a, .b = b};
		*number = ++r->nr_meets;
	}
	return &r->meets[*number - 1];
}

/* Makes a task follow the last operations of its communicators, on any stream. */
static void follow_comms(struct df_mrun *r, int at)
{
	struct task *t = &r->tasks[at];
	int p2p = t->op->kind == DF_MOP_P2P, nr = p2p ? t->op->nr_p2p : t->op->kind == DF_MOP_COLL;

	for (int i = 0; r->p->in_order && i < nr; i++) {
		struct tail *tail =
			tail_of(r, t->rank, KEY_COMM(p2p ? t->op->p2p[i].comm : t->op->comm));

		if (!tail)
			return;
		if (tail->task != at)
			dep_group(r, t, tail->task, r->mode == DF_MODEL_LANES ? dep_after : dep);
		tail->task = at;
	}
}

/* Appends a task to those of its rank. */
static void link_task(struct df_mrun *r, int task)
{
	struct task *t = &r->tasks[task];

	t->next = NOBODY;
	if (r->last_task[t->rank] >= 0)
		r->tasks[r->last_task[t->rank]].next = task;
	else
		r->first_task[t->rank] = task;
	r->last_task[t->rank] = task;
}

void df_mrun_make(struct df_mrun *r, int rank, int thread, size_t step, const struct df_mop *op)
{
	int ooo = r->mode != DF_MODEL_BASE, at = (int)r->nr_tasks;
	struct task *t = DF_VEC_PUSH(r->tasks, r->nr_tasks, r->cap_tasks);
	struct tail *tail;
	uint64_t *event;

	if (!t) {
		r->failed = 1;
		return;
	}
	memset(t, 0, sizeof(*t));
	t->id = (int)r->nr_issued++;
	t->rank = rank;
	t->thread = thread;
	t->step = step;
	t->op = op;
	t->stream = op->stream;
	t->coll = op->kind == DF_MOP_COLL || op->kind == DF_MOP_P2P;
	t->with = NOBODY;
	link_task(r, at);
	df_ranks_add(&r->starts_due, rank);
	r->nr_open[rank]++;
	r->nr_open_ops[rank] += t->coll;
	if (op->kind == DF_MOP_LEGACY) {
		t->legacy = 1;
		t->stream = -1;
		for (size_t i = 0; i < r->nr_tails; i++)
			if (r->tails[i].rank == rank)
				dep_group(r, t, r->tails[i].task, dep);
		dep(r, t, r->legacy[rank]);
		r->legacy[rank] = at;
		df_mrun_tell(r, DF_ME_ISSUE, rank, thread, step, op, t->id);
		return;
	}
	tail = tail_of(r, rank, (uint64_t)op->stream);
	if (!tail)
		return;
	if (is_of_group(r, t)) {
		t->joins = 1;
		t->with = r->last[rank];
		for (size_t i = 0; t->with >= 0 && i < r->tasks[t->with].nr_deps; i++)
			dep(r, t, r->tasks[t->with].deps[i]);
		for (size_t i = 0; t->with >= 0 && i < r->tasks[t->with].nr_after; i++)
			dep_after(r, t, r->tasks[t->with].after[i]);
	} else if (r->p->one_queue && !ooo) {
		dep_group(r, t, r->last[rank], dep);
	}
	dep_group(r, t, tail->task, dep);
	dep(r, t, r->legacy[rank]);
	tail->task = at;
	tail->nr_open++;
	follow_comms(r, at);
	r->last[rank] = at;
	switch (op->kind) {
	case DF_MOP_COLL:
		t->index = next_index(r, (uint64_t)op->comm << 8, (uint64_t)rank, op->sig);
		break;
	case DF_MOP_P2P:
		t->p2p_index = calloc((size_t)op->nr_p2p + 1, sizeof(*t->p2p_index));
		if (!t->p2p_index) {
			r->failed = 1;
			return;
		}
		for (int i = 0; i < op->nr_p2p; i++) {
			const struct df_mp2p *m = &op->p2p[i];
			int src = m->send ? rank : m->peer, dst = m->send ? m->peer : rank;

			t->p2p_index[i] =
				next_index(r, (uint64_t)m->comm << 8 | 1 | (uint64_t)m->send << 1,
					   (uint64_t)src << RANK_BITS | (uint64_t)dst, m->count);
		}
		break;
	case DF_MOP_RECORD:
		event = df_map_at(&r->events, (uint64_t)rank, (uint64_t)op->object);
		if (!event) {
			r->failed = 1;
			return;
		}
		*event = (uint64_t)(at + BIAS);
		break;
	case DF_MOP_WAIT:
		dep(r, t, df_mrun_event(r, rank, op->object));
		break;
	default:
		break;
	}
	df_mrun_tell(r, DF_ME_ISSUE, rank, thread, step, op, t->id);
}

/* ---- finished tasks -------------------------------------------------------------------------- */

/*
 * Returns the last task of the group up to this one that is not settled. Negative if there is
 * none.
 */
static int unfinished_of(const struct df_mrun *r, int task)
{
	while (task >= 0 && r->tasks[task].settled)
		task = r->tasks[task].with;
	return task;
}

/* Returns a task's index after finished tasks were forgotten. */
static int moved_to(const int *map, int task)
{
	return task >= 0 ? map[task] : task;
}

static size_t keep(const int *map, int *tasks, size_t nr)
{
	size_t kept = 0;

	for (size_t i = 0; i < nr; i++)
		if (map[tasks[i]] >= 0)
			tasks[kept++] = map[tasks[i]];
	return kept;
}

static int all_settled(const struct df_mrun *r, const struct task *t)
{
	size_t i = 0;

	while (i < t->nr_deps && r->tasks[t->deps[i]].settled)
		i++;
	return i == t->nr_deps;
}

static void forget_meetings(struct df_mrun *r)
{
	size_t kept = 0;

	memset(r->meetings.slots, 0, r->meetings.cap * sizeof(*r->meetings.slots));
	r->meetings.nr = 0;
	for (size_t i = 0; i < r->nr_meets; i++) {
		if (r->meets[i].over == (r->meets[i].b & 1 ? 3 : 1))
			continue;
		r->meets[kept] = r->meets[i];
		/* Cannot fail: the map held more before. */
		*df_map_at(&r->meetings, r->meets[kept].a, r->meets[kept].b) = kept + 1;
		kept++;
	}
	r->nr_meets = kept;
}

void df_mrun_forget(struct df_mrun *r)
{
	int *map = malloc((r->nr_tasks + 1) * sizeof(*map));
	size_t kept = 0, nr_done = 0;

	if (!map) {
		r->failed = 1;
		return;
	}
	for (size_t i = 0; i < r->nr_tasks; i++)
		r->tasks[i].settled |= r->tasks[i].done && all_settled(r, &r->tasks[i]);
	for (size_t i = 0; i < r->nr_tasks; i++)
		r->tasks[i].with = unfinished_of(r, r->tasks[i].with);
	for (size_t i = 0; i < r->nr_tails; i++)
		r->tails[i].task = unfinished_of(r, r->tails[i].task);
	for (int k = 0; k < r->p->nr_ranks; k++)
		r->last[k] = unfinished_of(r, r->last[k]);
	for (int k = 0; k < r->p->nr_ranks; k++)
		r->first_task[k] = r->last_task[k] = NOBODY;
	for (size_t i = 0; i < r->nr_tasks; i++) {
		struct task *t = &r->tasks[i];

		if (t->settled) {
			map[i] = FINISHED;
			free(t->deps);
			free(t->after);
			free(t->p2p_index);
			continue;
		}
		/* A task depends only on tasks that were issued before it. */
		t->nr_deps = keep(map, t->deps, t->nr_deps);
		t->nr_after = keep(map, t->after, t->nr_after);
		nr_done += t->done;
		t->with = moved_to(map, t->with);
		map[i] = (int)kept;
		r->tasks[kept] = *t;
		link_task(r, (int)kept++);
	}
	for (size_t i = 0; i < r->nr_tails; i++)
		r->tails[i].task = moved_to(map, r->tails[i].task);
	for (size_t i = 0; i < r->events.cap; i++)
		if (r->events.slots[i].used)
			r->events.slots[i].value =
				(uint64_t)(moved_to(map, (int)r->events.slots[i].value - BIAS) +
					   BIAS);
	for (int k = 0; k < r->p->nr_ranks; k++) {
		r->legacy[k] = moved_to(map, r->legacy[k]);
		r->last[k] = moved_to(map, r->last[k]);
	}
	r->nr_tasks = kept;
	r->nr_done = nr_done;
	free(map);
	if (r->meetings.cap)
		forget_meetings(r);
}

static int is_token(const struct task *t)
{
	return t->op->kind == DF_MOP_RECORD || t->op->kind == DF_MOP_WAIT;
}

/* Whether the operation writes this memory. If `reads`, also whether it reads it. */
static int touches(const struct df_mop *op, struct df_range memory, int reads)
{
	if (op->kind == DF_MOP_COLL)
		return df_range_overlap(op->out, memory) ||
		       (reads && df_range_overlap(op->in, memory));
	for (int i = 0; op->kind == DF_MOP_P2P && i < op->nr_p2p; i++)
		if ((reads || !op->p2p[i].send) && df_range_overlap(op->p2p[i].buffer, memory))
			return 1;
	return 0;
}

static int hazard(const struct task *a, const struct task *b)
{
	const struct df_mop *x = a->op, *y = b->op;

	if (y->kind == DF_MOP_COLL && (touches(x, y->out, 1) || touches(x, y->in, 0)))
		return 1;
	for (int i = 0; y->kind == DF_MOP_P2P && i < y->nr_p2p; i++)
		if (touches(x, y->p2p[i].buffer, !y->p2p[i].send))
			return 1;
	return x->kind == DF_MOP_COLL && y->kind == DF_MOP_COLL &&
	       (x->writes & (y->reads | y->writes) || x->reads & y->writes);
}

/*
 * Lists all unfinished tasks that precede t, directly or indirectly, except records and waits of
 * events. Continues through tasks that finished out of order, because their unfinished predecessors
 * still precede t. (model.py stops there.)
 */
static size_t blockers(struct df_mrun *r, struct task *t, int *out)
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

int df_mrun_ready(struct df_mrun *r, struct task *t)
{
	int *bl, ok = 1;
	size_t nr, i;

	for (i = 0; i < t->nr_after; i++)
		if (!r->tasks[t->after[i]].done)
			return 0;
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

int df_mrun_only_collectives(struct df_mrun *r, int rank)
{
	int *bl = malloc((r->nr_tasks + 1) * sizeof(*bl)), ok = 1;

	for (size_t i = 0; bl && i < r->nr_tasks && ok; i++) {
		struct task *t = &r->tasks[i];
		size_t nr;
		int behind = 0;

		if (t->rank != rank || t->done || t->coll)
			continue;
		if (r->mode == DF_MODEL_LANES) {
			ok = is_token(t);
			continue;
		}
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
