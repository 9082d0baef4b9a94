/*
 * The model's executor: runs a program to its fixpoint. Deterministic for a given schedule; frees
 * all its data at the end. A step of one rank makes few other steps possible. Only these are tried,
 * so that the time of a run grows with its steps, not with steps times ranks.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "trace/predict/model_int.h"
#include "runtime/base/vec.h"

static int barrier(struct df_mrun *r, int rank, const struct df_mop *op)
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
		memset(&r->bars[i].here, 0, sizeof(r->bars[i].here));
		r->nr_bars++;
	}
	if (!df_ranks_has(&r->bars[i].here, rank)) {
		df_ranks_add(&r->bars[i].here, rank);
		if (df_ranks_cover(&r->bars[i].here, &op->members))
			df_ranks_join(&r->threads_due, &op->members);
	}
	if (!df_ranks_cover(&r->bars[i].here, &op->members))
		return op->kind == DF_MOP_CONN && r->mode != DF_MODEL_BASE;
	if (op->kind != DF_MOP_HBAR && df_ranks_meet(&op->members, &r->dead))
		return op->kind == DF_MOP_CONN && r->mode != DF_MODEL_BASE;
	return 1;
}

/* Returns the flag, or NULL if memory is short. */
static int *flag_at(struct df_mrun *r, int flag)
{
	size_t was = r->nr_flags;

	if ((size_t)flag >= was) {
		if (DF_VEC_ROOM(r->flags, r->cap_flags, (size_t)flag + 1)) {
			r->failed = 1;
			return NULL;
		}
		r->nr_flags = (size_t)flag + 1;
		memset(r->flags + was, 0, (r->nr_flags - was) * sizeof(*r->flags));
	}
	return &r->flags[flag];
}

/* Whether the flag is set. If not, notes that the rank waits for it. */
static int wait_flag(struct df_mrun *r, int flag, int rank)
{
	int *at = flag_at(r, flag);

	if (!at || *at == SET)
		return at != NULL;
	*at = !*at || *at == rank + 1 ? rank + 1 : ALL;
	return 0;
}

static void set_flag(struct df_mrun *r, int flag)
{
	int *at = flag_at(r, flag);

	if (!at)
		return;
	if (*at > 0)
		df_ranks_add(&r->threads_due, *at - 1);
	for (int k = 0; *at == ALL && k < r->p->nr_ranks; k++)
		df_ranks_add(&r->threads_due, k);
	*at = SET;
}

/* Returns the number of unfinished tasks of a stream. */
static size_t open_on(const struct df_mrun *r, int rank, int stream)
{
	const uint64_t *number = df_map_find(&r->streams, (uint64_t)rank, (uint64_t)stream);

	return number ? r->tails[*number - 1].nr_open : 0;
}

/* Tries the next step of a thread. Returns 1 if the thread has completed the step. */
static int step_thread(struct df_mrun *r, int rank, int thread)
{
	const struct df_mop *op = &r->p->threads[rank][thread].ops[r->pc[rank][thread]];
	size_t step = r->pc[rank][thread], open = r->nr_open[rank];
	int ok = 1, ev;

	if (!r->entered[rank][thread]) {
		r->entered[rank][thread] = 1;
		df_mrun_tell(r, DF_ME_ENTER, rank, thread, step, op, -1);
	}
	switch (op->kind) {
	case DF_MOP_SSYNC:
		ok = !open_on(r, rank, op->stream);
		break;
	case DF_MOP_ESYNC:
		ev = df_mrun_event(r, rank, op->object);
		ok = ev == FINISHED || (ev >= 0 && r->tasks[ev].done);
		break;
	case DF_MOP_DSYNC:
	case DF_MOP_ISYNC:
		ok = !open;
		if (!ok && (r->mode >= DF_MODEL_SE ||
			    (r->mode == DF_MODEL_SI && op->kind == DF_MOP_ISYNC)))
			ok = df_mrun_only_collectives(r, rank);
		break;
	case DF_MOP_HBAR:
	case DF_MOP_CONN:
	case DF_MOP_INIT:
		ok = barrier(r, rank, op);
		break;
	case DF_MOP_HWAIT:
		ok = wait_flag(r, op->object, rank);
		break;
	case DF_MOP_HSIGNAL:
		set_flag(r, op->object);
		break;
	case DF_MOP_EXIT:
		df_ranks_add(&r->dead, rank);
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
	/* The schedule may have held other threads of the rank, so try them again. */
	df_ranks_add(&r->threads_due, rank);
	return 1;
}

static int may_try(const struct df_mrun *r, const struct df_model_schedule *s, int rank, int thread)
{
	const struct df_mthread *t = &r->p->threads[rank][thread];

	if (df_ranks_has(&r->dead, rank) || r->pc[rank][thread] >= t->nr_ops)
		return 0;
	return !s || !s->hold || !s->hold(s->arg, rank, thread, &t->ops[r->pc[rank][thread]]);
}

/* Lists the threads that may be able to proceed since they were last tried. */
static size_t list_due(struct df_mrun *r, size_t nr)
{
	for (int k = -1; (k = df_ranks_from(&r->threads_due, k + 1)) >= 0;) {
		df_ranks_remove(&r->threads_due, k);
		for (int t = 0; t < r->p->nr_threads[k]; t++) {
			if (r->listed[k][t])
				continue;
			r->listed[k][t] = 1;
			r->choice[nr][0] = k;
			r->choice[nr++][1] = t;
		}
	}
	return nr;
}

/*
 * Lets the schedule choose the thread of each step, until none can proceed. Returns 1 if a thread
 * proceeded.
 */
static int run_threads_in_order(struct df_mrun *r, const struct df_model_schedule *s)
{
	size_t nr = 0;
	int moved = 0;

	while (!r->failed && !(moved && s->device)) {
		size_t at;
		int k, t;

		nr = list_due(r, nr);
		if (!nr)
			break;
		at = s->pick(s->arg, nr) % nr;
		k = r->choice[at][0];
		t = r->choice[at][1];
		if (may_try(r, s, k, t) && step_thread(r, k, t)) {
			moved = 1;
			continue;
		}
		r->listed[k][t] = 0;
		memcpy(r->choice[at], r->choice[--nr], sizeof(*r->choice));
	}
	for (size_t i = 0; i < nr; i++) {
		df_ranks_add(&r->threads_due, r->choice[i][0]);
		r->listed[r->choice[i][0]][r->choice[i][1]] = 0;
	}
	return moved;
}

/* Lets all threads proceed as far as they can. Returns 1 if a thread proceeded. */
static int run_threads(struct df_mrun *r, const struct df_model_schedule *s)
{
	int moved = 0;

	if (!s || !s->pick) {
		for (int k = -1; (k = df_ranks_from(&r->threads_due, k + 1)) >= 0;) {
			df_ranks_remove(&r->threads_due, k);
			for (int t = 0; t < r->p->nr_threads[k]; t++)
				while (!r->failed && may_try(r, s, k, t) && step_thread(r, k, t))
					moved = 1;
		}
		return moved;
	}
	return run_threads_in_order(r, s);
}

static void finish(struct df_mrun *r, size_t i)
{
	struct task *t = &r->tasks[i];

	t->done = 1;
	t->settled = 1;
	for (size_t k = 0; k < t->nr_deps && !r->p->as_reference; k++)
		t->settled &= r->tasks[t->deps[k]].done && r->tasks[t->deps[k]].settled;
	r->nr_done++;
	r->nr_open[t->rank]--;
	r->nr_open_ops[t->rank] -= t->coll;
	r->nr_resident[t->rank] -= t->coll && !t->joins;
	if (!t->legacy)
		r->tails[*df_map_find(&r->streams, (uint64_t)t->rank, (uint64_t)t->stream) - 1]
			.nr_open--;
	df_ranks_add(&r->threads_due, t->rank);
	df_ranks_add(&r->starts_due, t->rank);
	df_mrun_tell(r, DF_ME_DONE, t->rank, t->thread, t->step, t->op, t->id);
}

/* Whether nothing keeps the task from starting. */
static int may_start(struct df_mrun *r, size_t i)
{
	struct task *t = &r->tasks[i];

	if (t->done || t->started || df_ranks_has(&r->dead, t->rank) || !df_mrun_ready(r, t))
		return 0;
	if (t->coll && !t->joins && r->mode == DF_MODEL_BASE && r->p->cap &&
	    r->nr_resident[t->rank] >= (size_t)r->p->cap) {
		if (!t->told)
			df_mrun_tell(r, DF_ME_NO_SLOT, t->rank, t->thread, t->step, t->op, t->id);
		t->told = 1;
		return 0;
	}
	return t->op->kind != DF_MOP_STUCK;
}

/* Marks a task's part of a collective, or of each of its messages, as started. */
static void meet(struct df_mrun *r, const struct task *t)
{
	struct meeting *m;

	if (t->op->kind == DF_MOP_COLL) {
		m = df_mrun_meet(r, t, 0);
		if (!m)
			return;
		m->differs |= m->any && m->sig != t->op->sig;
		m->any = 1;
		df_ranks_add(&m->here, t->rank);
		m->sig = t->op->sig;
		if (df_ranks_cover(&m->here, &r->p->comms[t->op->comm]))
			df_ranks_join(&r->colls_due, &r->p->comms[t->op->comm]);
		return;
	}
	if (r->p->buffered || !t->op->nr_p2p)
		df_ranks_add(&r->messages_due, t->rank);
	for (int i = 0; i < t->op->nr_p2p; i++) {
		int send = t->op->p2p[i].send;

		m = df_mrun_meet(r, t, i);
		if (!m)
			return;
		m->sides |= (uint8_t)(1u << send);
		m->count[send] = t->op->p2p[i].count;
		if (m->sides != 3)
			continue;
		df_ranks_add(&r->messages_due, t->rank);
		df_ranks_add(&r->messages_due, t->op->p2p[i].peer);
	}
}

static void start(struct df_mrun *r, size_t i)
{
	struct task *t = &r->tasks[i];

	t->started = 1;
	df_mrun_tell(r, DF_ME_START, t->rank, t->thread, t->step, t->op, t->id);
	if (!t->coll) {
		finish(r, i);
		return;
	}
	meet(r, t);
	r->nr_resident[t->rank] += !t->joins;
	if (r->nr_resident[t->rank] > r->max_resident)
		r->max_resident = r->nr_resident[t->rank];
}

/*
 * Starts all tasks that may start. If the schedule chooses tasks, starts the chosen one; the
 * schedule may choose none if a thread has proceeded (`others_move`). Returns 1 if a task was
 * started.
 */
static int starts(struct df_mrun *r, const struct df_model_schedule *s, int others_move)
{
	size_t nr = 0, at;
	int moved = 0;

	if (!s || !s->device) {
		struct df_ranks due = r->starts_due;
		int only = df_ranks_from(&due, 0);

		if (only < 0)
			return 0;
		memset(&r->starts_due, 0, sizeof(r->starts_due));
		if (df_ranks_count(&due) > 1)
			only = NOBODY;
		for (int i = only < 0 ? 0 : r->first_task[only]; i >= 0 && (size_t)i < r->nr_tasks;
		     i = only < 0 ? i + 1 : r->tasks[i].next) {
			if (!df_ranks_has(&due, r->tasks[i].rank) || !may_start(r, (size_t)i))
				continue;
			start(r, (size_t)i);
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

/* Finishes collectives that all members have started with the same signature. */
static int collectives(struct df_mrun *r)
{
	struct df_ranks due = r->colls_due;
	int moved = 0;

	if (df_ranks_from(&due, 0) < 0)
		return 0;
	memset(&r->colls_due, 0, sizeof(r->colls_due));
	for (size_t i = 0; i < r->nr_tasks; i++) {
		struct task *t = &r->tasks[i];
		const struct df_ranks *members;
		struct meeting *m;

		if (!df_ranks_has(&due, t->rank) || t->done || !t->started ||
		    t->op->kind != DF_MOP_COLL)
			continue;
		members = &r->p->comms[t->op->comm];
		m = df_mrun_meet(r, t, 0);
		if (!m || m->differs || df_ranks_meet(members, &r->dead) ||
		    !df_ranks_cover(&m->here, members))
			continue;
		m->over = 1;
		finish(r, i);
		moved = 1;
	}
	return moved;
}

static int messages(struct df_mrun *r)
{
	struct df_ranks due = r->messages_due;
	int moved = 0;

	if (df_ranks_from(&due, 0) < 0)
		return 0;
	memset(&r->messages_due, 0, sizeof(r->messages_due));

	for (size_t i = 0; i < r->nr_tasks; i++) {
		struct task *t = &r->tasks[i];
		int ok = 1;

		if (!df_ranks_has(&due, t->rank) || t->done || !t->started ||
		    t->op->kind != DF_MOP_P2P || df_ranks_has(&r->dead, t->rank))
			continue;
		for (int k = 0; k < t->op->nr_p2p && ok; k++) {
			struct meeting *m;

			if (t->op->p2p[k].send && r->p->buffered)
				continue;
			m = df_mrun_meet(r, t, k);
			ok = m && m->sides == 3 && m->count[0] == m->count[1] &&
			     !df_ranks_has(&r->dead, t->op->p2p[k].peer);
		}
		for (int k = 0; k < t->op->nr_p2p && ok; k++) {
			struct meeting *m = df_mrun_meet(r, t, k);

			if (m)
				m->over |= (uint8_t)(1u << t->op->p2p[k].send);
		}
		if (ok) {
			finish(r, i);
			moved = 1;
		}
	}
	return moved;
}

/* Returns 0, or -1 if memory is short. */
static int alloc_threads(struct df_mrun *r)
{
	size_t nr = (size_t)r->p->nr_ranks + 1, threads = 1;

	for (int k = 0; k < r->p->nr_ranks; k++)
		threads += (size_t)r->p->nr_threads[k];
	r->pc = calloc(nr, sizeof(*r->pc));
	r->entered = calloc(nr, sizeof(*r->entered));
	r->listed = calloc(nr, sizeof(*r->listed));
	r->choice = calloc(threads, sizeof(*r->choice));
	return r->pc && r->entered && r->listed && r->choice ? 0 : -1;
}

struct df_mrun *df_mrun_create(const struct df_mprog *p, enum df_model_mode mode)
{
	struct df_mrun *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->p = p;
	r->mode = mode;
	if (alloc_threads(r)) {
		df_mrun_destroy(r);
		return NULL;
	}
	for (int k = 0; k < DF_MODEL_RANKS; k++)
		r->legacy[k] = r->last[k] = r->first_task[k] = r->last_task[k] = NOBODY;
	return r;
}

void df_mrun_destroy(struct df_mrun *r)
{
	if (!r)
		return;
	for (size_t i = 0; i < r->nr_tasks; i++) {
		free(r->tasks[i].deps);
		free(r->tasks[i].after);
		free(r->tasks[i].p2p_index);
	}
	free(r->tasks);
	free(r->tails);
	free(r->meets);
	df_map_fini(&r->streams);
	df_map_fini(&r->events);
	df_map_fini(&r->seqs);
	df_map_fini(&r->meetings);
	free(r->bars);
	free(r->flags);
	free(r->pc);
	free(r->entered);
	free(r->listed);
	free(r->choice);
	free(r);
}

/* Copies an array. Returns 0, or -1 if memory is short. The copy of an empty array is NULL. */
static int copy_array(void *to, const void *from, size_t nr, size_t size)
{
	void *fresh = nr ? malloc(nr * size) : NULL;

	*(void **)to = fresh;
	if (!nr)
		return 0;
	if (!fresh)
		return -1;
	memcpy(fresh, from, nr * size);
	return 0;
}

struct df_mrun *df_mrun_copy(const struct df_mrun *from)
{
	struct df_mrun *r = malloc(sizeof(*r));
	int bad = 0;

	if (!r)
		return NULL;
	*r = *from;
	bad |= copy_array(&r->tasks, from->tasks, from->nr_tasks, sizeof(*r->tasks));
	bad |= copy_array(&r->tails, from->tails, from->nr_tails, sizeof(*r->tails));
	bad |= copy_array(&r->meets, from->meets, from->nr_meets, sizeof(*r->meets));
	bad |= copy_array(&r->bars, from->bars, from->nr_bars, sizeof(*r->bars));
	bad |= copy_array(&r->flags, from->flags, from->nr_flags, sizeof(*r->flags));
	bad |= alloc_threads(r);
	if (!bad) {
		memcpy(r->pc, from->pc, (size_t)r->p->nr_ranks * sizeof(*r->pc));
		memcpy(r->entered, from->entered, (size_t)r->p->nr_ranks * sizeof(*r->entered));
	}
	bad |= df_map_copy(&r->streams, &from->streams);
	bad |= df_map_copy(&r->events, &from->events);
	bad |= df_map_copy(&r->seqs, &from->seqs);
	bad |= df_map_copy(&r->meetings, &from->meetings);
	r->nr_tasks = r->tasks ? r->nr_tasks : 0;
	r->cap_tasks = r->nr_tasks;
	r->cap_tails = r->nr_tails;
	r->cap_meets = r->nr_meets;
	r->cap_bars = r->nr_bars;
	r->cap_flags = r->nr_flags;
	for (size_t i = 0; i < r->nr_tasks; i++) {
		const struct task *t = &from->tasks[i];

		bad |= copy_array(&r->tasks[i].deps, t->deps, t->nr_deps, sizeof(*t->deps));
		r->tasks[i].cap_deps = t->nr_deps;
		bad |= copy_array(&r->tasks[i].after, t->after, t->nr_after, sizeof(*t->after));
		r->tasks[i].cap_after = t->nr_after;
		bad |= copy_array(&r->tasks[i].p2p_index, t->p2p_index,
				  t->p2p_index ? (size_t)t->op->nr_p2p + 1 : 0,
				  sizeof(*t->p2p_index));
	}
	if (bad) {
		df_mrun_destroy(r);
		return NULL;
	}
	return r;
}

size_t df_mrun_open_ops(const struct df_mrun *r, int rank)
{
	return r->nr_open_ops[rank];
}

int df_mrun_issued(const struct df_mrun *r)
{
	return (int)r->nr_issued;
}

int df_mrun_is_open(const struct df_mrun *r, int before)
{
	for (size_t i = 0; i < r->nr_tasks && r->tasks[i].id < before; i++)
		if (!r->tasks[i].done && !df_ranks_has(&r->dead, r->tasks[i].rank))
			return 1;
	return 0;
}

void df_mrun_each(const struct df_mrun *r, df_mrun_task_fn fn, void *arg)
{
	for (size_t i = 0; i < r->nr_tasks; i++) {
		const struct task *t = &r->tasks[i];
		const uint64_t *number;

		if (t->done || !t->coll)
			continue;
		number = t->op->kind == DF_MOP_COLL
				 ? df_map_find(&r->meetings, t->index, (uint64_t)t->op->comm << 32)
				 : NULL;
		fn(arg, t->rank, t->thread, t->step, t->started,
		   number ? &r->meets[*number - 1].here : NULL);
	}
}

int df_mrun_go(struct df_mrun *r, const struct df_model_schedule *schedule, df_model_event_fn fn,
	       void *arg, struct df_model_result *out)
{
	const struct df_mprog *p = r->p;
	int moved;

	r->fn = fn;
	r->arg = arg;
	for (int k = 0; k < p->nr_ranks; k++)
		df_ranks_add(&r->threads_due, k);
	do {
		moved = run_threads(r, schedule);
		moved |= starts(r, schedule, moved);
		if (moved && schedule && schedule->device && schedule->device(schedule->arg, 2))
			continue;
		moved |= collectives(r);
		moved |= messages(r);
		if ((r->mode == DF_MODEL_BASE || r->mode == DF_MODEL_LANES) && r->nr_done > 64 &&
		    2 * r->nr_done > r->nr_tasks)
			df_mrun_forget(r);
		if (moved || !schedule || !schedule->let_go)
			continue;
		moved = schedule->let_go(schedule->arg);
		if (moved)
			df_ranks_add(&r->threads_due, moved - 1);
	} while (moved && !r->failed);
	out->hung = 0;
	out->nr_unfinished = 0;
	out->nr_tasks = r->nr_issued;
	out->max_resident = r->max_resident;
	memcpy(out->pc, r->pc, (size_t)p->nr_ranks * sizeof(*r->pc));
	for (int k = 0; k < p->nr_ranks; k++)
		for (int t = 0; t < p->nr_threads[k]; t++)
			out->hung |=
				!df_ranks_has(&r->dead, k) && r->pc[k][t] < p->threads[k][t].nr_ops;
	for (int k = 0; k < p->nr_ranks; k++)
		if (!df_ranks_has(&r->dead, k))
			out->nr_unfinished += r->nr_open[k];
	out->hung |= out->nr_unfinished > 0;
	return r->failed ? -ENOMEM : 0;
}

int df_model_run(const struct df_mprog *p, enum df_model_mode mode,
		 const struct df_model_schedule *schedule, df_model_event_fn fn, void *arg,
		 struct df_model_result *out)
{
	struct df_mrun *r = df_mrun_create(p, mode);
	int rc = r ? df_mrun_go(r, schedule, fn, arg, out) : -ENOMEM;

	df_mrun_destroy(r);
	return rc;
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

int df_mprog_comm(struct df_mprog *p, const struct df_ranks *members)
{
	struct df_ranks *fresh = realloc(p->comms, ((size_t)p->nr_comms + 1) * sizeof(*fresh));

	if (!fresh)
		return -ENOMEM;
	p->comms = fresh;
	p->comms[p->nr_comms] = *members;
	return p->nr_comms++;
}

void df_mprog_fini(struct df_mprog *p)
{
	for (int k = 0; k < p->nr_ranks; k++)
		for (int t = 0; t < p->nr_threads[k]; t++)
			free(p->threads[k][t].ops);
	free(p->comms);
	memset(p, 0, sizeof(*p));
}
