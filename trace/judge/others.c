/*
 * Finds other threads that could issue an operation that the cycle lacks. In the graph a rank
 * proceeds if one of the threads that have used the communicator proceeds. If the process has other
 * threads that could issue on it, the cycle is at most likely. If one of these other threads waits
 * for a lock that another thread holds, that lock may explain the hang as well. Pure functions on a
 * result.
 */
#include <stdio.h>
#include <string.h>
#include "trace/judge/judge_int.h"
#include "trace/judge/say.h"
#include "trace/read/load_hosts.h"
#include "trace/read/party.h"
#include "trace/record/names.h"

/*
 * Whether the thread issues only on behalf of a thread that waits for it, as in PyTorch's backward
 * passes.
 */
static int serves_another(const struct df_lthread *th)
{
	return th->part_of || !strncmp(th->name, DF_AUTOGRAD_THREADS, strlen(DF_AUTOGRAD_THREADS));
}

/*
 * Whether the thread is stuck in a call, or proceeds only after a stuck thread. Then it cannot
 * issue the operation either.
 */
static int is_stuck(const struct df_check_result *r, uint32_t trace, uint32_t tid)
{
	for (size_t i = 0; i < r->g.nr_nodes; i++) {
		const struct df_node *n = &r->g.nodes[i];

		if (n->kind == DF_N_THREAD && n->trace == trace && n->thread == tid &&
		    r->g.stuck[i] && r->set->traces[trace].calls[n->ref].call != DF_CALL_OUTSIDE)
			return 1;
	}
	return 0;
}

/* Whether the graph already counts this thread among those that could issue the operation. */
static int is_expected(const struct df_check_result *r, uint32_t next, uint32_t tid)
{
	for (uint32_t k = r->g.out_first[next]; k < r->g.out_first[next + 1]; k++) {
		const struct df_node *to = &r->g.nodes[r->g.edges[r->g.out[k]].to];

		if (to->kind == DF_N_THREAD && to->thread == tid)
			return 1;
	}
	return 0;
}

/* Whether the thread waits for the end of another thread. */
static int joins(const struct df_lthread *th)
{
	return th->at == DF_AT_LOCK && th->at_lock == DF_LOCK_JOIN;
}

static int is_held(const struct df_lthread *th)
{
	return th->at == DF_AT_LOCK &&
	       (th->at_lock == DF_LOCK_HELD || th->at_lock == DF_LOCK_SCRIPT);
}

static int could_issue(const struct df_check_result *r, uint32_t next, const struct df_lthread *th)
{
	const struct df_node *n = &r->g.nodes[next];
	const struct df_trc_comm *e = &r->set->entries[n->ref];
	const struct df_trc *t = &r->set->traces[n->trace];

	/*
	 * A thread that has issued nothing and was not observed is unknown: it may be one of
	 * dfshim's.
	 */
	return (th->nr_issued || th->at) && !th->is_ours && !serves_another(th) &&
	       !df_trc_has_gone(t, th) && !joins(th) &&
	       (th->device < 0 || e->device < 0 || th->device == e->device) &&
	       !df_entry_is_foreign(r->set, e, th->tid) && !is_expected(r, next, th->tid) &&
	       !is_stuck(r, n->trace, th->tid);
}

static void add(struct df_check_result *r, uint32_t next, uint32_t thread, int held)
{
	/* Threads in a lock are named first. */
	size_t at = held ? r->nr_held++ : r->nr_others;

	r->nr_others++;
	if (at >= DF_OTHERS)
		return;
	memmove(&r->others[at + 1], &r->others[at], (DF_OTHERS - 1 - at) * sizeof(*r->others));
	r->others[at] = (struct df_other){.next = next, .thread = thread};
}

static int is_new(const struct df_check_result *r, uint32_t next)
{
	for (size_t i = 0; i < r->nr_others && i < DF_OTHERS; i++)
		if (r->others[i].next == next)
			return 0;
	return 1;
}

void df_others_find(struct df_check_result *r)
{
	for (size_t i = 0; i < r->nr_steps; i++) {
		uint32_t next = r->steps[i].to;
		const struct df_node *n = &r->g.nodes[next];
		const struct df_trc *t;

		if (n->kind != DF_N_NEXT || n->ref == DF_NONE || !is_new(r, next))
			continue;
		t = &r->set->traces[n->trace];
		for (uint32_t k = 0; k < t->nr_threads; k++)
			if (could_issue(r, next, &t->threads[k]))
				add(r, next, k, is_held(&t->threads[k]));
	}
}

const struct df_lthread *df_other_thread(const struct df_check_result *r, size_t which)
{
	const struct df_other *o = &r->others[which];

	return &r->set->traces[r->g.nodes[o->next].trace].threads[o->thread];
}

static const char *where(const struct df_lthread *th)
{
	static const char *const locks[] = {"waits for another thread of its process",
					    "waits for a lock", "waits for the interpreter's lock",
					    "waits for the end of a thread"};

	switch (th->at) {
	case DF_AT_RUNS:
		return "runs";
	case DF_AT_SLEEPS:
		return "sleeps";
	case DF_AT_LOCK:
		return locks[th->at_lock];
	case DF_AT_SHARED:
		return "waits for memory that processes share";
	case DF_AT_IO:
		return "waits for a file or a socket";
	case DF_AT_CHILD:
		return "waits for a process";
	default:
		return "is in no call of NCCL or CUDA";
	}
}

/* "thread 7 'loader' waits for a lock (train.py:12 step)". */
static void put_other(struct df_check_result *r, size_t which, struct df_line *b)
{
	const struct df_node *n = &r->g.nodes[r->others[which].next];
	const struct df_lthread *th = df_other_thread(r, which);
	/*
	 * A thread that waits for a lock of the program or of the interpreter is described by its
	 * innermost line of the script. For other threads this line may be inside a library, so
	 * show two of its callers, too.
	 */
	unsigned frames = is_held(th) ? 1 : 3;
	char thread[64], line[240];

	df_line_put(b, "%s %s", df_say_thread(r->set, n->trace, th->tid, thread, sizeof(thread)),
		    where(th));
	if (df_say_has_script(&r->set->traces[n->trace], th) &&
	    df_say_stack(r->set, n->trace, th->at_site, frames, line, sizeof(line)))
		df_line_put(b, " (%s)", line);
}

/* Returns the step of the cycle from an operation to the rank that has not issued it, or NULL. */
static const struct df_step *lacks(const struct df_check_result *r, uint32_t next)
{
	for (size_t i = 0; i < r->nr_steps; i++)
		if (r->steps[i].to == next && df_node_is_op(&r->g.nodes[r->steps[i].from]))
			return &r->steps[i];
	return NULL;
}

/* Returns the thread of the cycle that was expected to issue the operation, or NULL. */
static const struct df_node *expected(const struct df_check_result *r, uint32_t next)
{
	for (size_t i = 0; i < r->nr_steps; i++)
		if (r->steps[i].from == next && r->g.nodes[r->steps[i].to].kind == DF_N_THREAD)
			return &r->g.nodes[r->steps[i].to];
	return NULL;
}

static const char *missing_op(struct df_check_result *r, uint32_t next, char *buf, size_t size)
{
	const struct df_step *s = lacks(r, next);

	if (!s) {
		snprintf(buf, size, "the missing operation");
		return buf;
	}
	return df_say_op(r->set, &r->set->ops[r->g.nodes[s->from].ref], buf, size);
}

void df_line_held(struct df_check_result *r, struct df_line *b)
{
	uint32_t next = r->others[0].next;
	const struct df_node *n = &r->g.nodes[next], *t = expected(r, next);
	char who[48], op[96], thread[64];

	df_line_put(b, "%s has not issued %s, and it is not known which of its threads should: ",
		    df_say_member(r->set, n->gcomm, n->rank, who, sizeof(who)),
		    missing_op(r, next, op, sizeof(op)));
	if (t)
		df_line_put(b, "%s is in %s and may hold what the other needs, ",
			    df_say_thread(r->set, t->trace, t->thread, thread, sizeof(thread)),
			    df_call_text(r->set->traces[t->trace].calls[t->ref].call));
	put_other(r, 0, b);
	df_line_put(b, "; cycle ");
	df_line_path(r, b);
}

void df_line_others(struct df_check_result *r, struct df_line *b)
{
	const struct df_node *n = &r->g.nodes[r->others[0].next];
	char who[48], op[96];

	df_line_put(b, "; %s may also get %s from another thread: ",
		    df_say_member(r->set, n->gcomm, n->rank, who, sizeof(who)),
		    missing_op(r, r->others[0].next, op, sizeof(op)));
	put_other(r, 0, b);
	if (r->nr_others > 1)
		df_line_put(b, ", and %zu more", r->nr_others - 1);
}

/* ---- one communicator, two threads ---------------------------------------------------------- */

/* Returns another living thread through which the rank has used the communicator, or NULL. */
static const struct df_lthread *second_thread(const struct df_check_result *r,
					      const struct df_side *s)
{
	const struct df_trc_comm *e = &r->set->entries[s->entry];
	const struct df_trc *t = &r->set->traces[s->trace];

	for (size_t k = 0; k < t->nr_threads; k++) {
		const struct df_lthread *th = &t->threads[k];

		for (uint32_t i = 0; i < e->nr_issuers; i++)
			if (e->issuers[i] == th->tid && th->tid != s->op.thread &&
			    !df_trc_has_gone(t, th) && !th->is_ours && !serves_another(th))
				return th;
	}
	return NULL;
}

/* Whether the thread issued its operations on behalf of another thread. */
static int was_served(const struct df_check_result *r, uint32_t trace, uint32_t tid)
{
	const struct df_lthread *th = df_trc_thread(&r->set->traces[trace], tid);

	return th && serves_another(th);
}

/* Returns the thread's last unfinished operation on the side's communicator, or NULL. */
static const struct df_uop *op_of(const struct df_check_result *r, const struct df_side *s,
				  uint32_t tid)
{
	const struct df_trc *t = &r->set->traces[s->trace];
	const struct df_uop *u = NULL;

	for (size_t i = 0; i < t->nr_uops; i++)
		if (r->set->ops[t->first_op + i].entry == s->entry &&
		    r->set->ops[t->first_op + i].l.thread == tid)
			u = &r->set->ops[t->first_op + i];
	return u;
}

/* Two threads through which one rank uses one communicator, and an operation of each. */
struct users {
	uint32_t entry;
	uint32_t tid[2];
	const struct df_lop *op[2]; /* op[1] may be NULL */
};

/*
 * Finds two threads through which a rank of the sides uses one communicator. Prefers a rank of
 * which both threads have unfinished operations.
 */
static int users_among_sides(const struct df_check_result *r, struct users *u)
{
	int found = 0;

	for (size_t i = 0; i < r->nr_sides; i++) {
		const struct df_side *s = &r->sides[i];
		const struct df_lthread *th;
		const struct df_uop *other;

		if (s->entry == DF_NONE || was_served(r, s->trace, s->op.thread))
			continue;
		th = second_thread(r, s);
		other = th ? op_of(r, s, th->tid) : NULL;
		if (!th || (found && !other))
			continue;
		*u = (struct users){.entry = s->entry,
				    .tid = {s->op.thread, th->tid},
				    .op = {&s->op, other ? &other->l : NULL}};
		found = 1;
	}
	return found;
}

static int lives(const struct df_check_result *r, uint32_t trace, uint32_t tid)
{
	const struct df_trc *t = &r->set->traces[trace];
	const struct df_lthread *th = df_trc_thread(t, tid);

	return th && !df_trc_has_gone(t, th) && !th->is_ours;
}

/* Finds two threads that issued two operations of the cycle on one rank. */
static int users_in_cycle(const struct df_check_result *r, struct users *u)
{
	for (size_t i = 0; r->is_cycle && i < r->nr_involved; i++)
		for (size_t k = 0; k < i; k++) {
			const struct df_uop *a = &r->set->ops[r->involved[k]],
					    *b = &r->set->ops[r->involved[i]];
			uint32_t trace = r->set->entries[a->entry].trace;

			if (a->entry != b->entry || a->l.thread == b->l.thread ||
			    !lives(r, trace, a->l.thread) || !lives(r, trace, b->l.thread) ||
			    was_served(r, trace, a->l.thread) || was_served(r, trace, b->l.thread))
				continue;
			*u = (struct users){.entry = a->entry,
					    .tid = {a->l.thread, b->l.thread},
					    .op = {&a->l, &b->l}};
			return 1;
		}
	return 0;
}

static void put_user(struct df_check_result *r, const struct users *u, int which, struct df_line *b)
{
	uint32_t trace = r->set->entries[u->entry].trace, tid = u->tid[which];
	const struct df_trc *t = &r->set->traces[trace];
	const struct df_lthread *th = df_trc_thread(t, tid);
	char thread[64], sig[96], lines[240];

	df_line_put(b, "%s", df_say_thread(r->set, trace, tid, thread, sizeof(thread)));
	if (u->op[which])
		df_line_put(b, " issued %s", df_say_sig(u->op[which], sig, sizeof(sig)));
	if (th && df_say_has_script(t, th) &&
	    df_say_stack(r->set, trace, th->at_site, 3, lines, sizeof(lines)))
		df_line_put(b, " %sis at %s", u->op[which] ? "and " : "", lines);
}

int df_line_two_threads(struct df_check_result *r, struct df_line *b)
{
	struct users u;
	char rank[48];

	if (!users_among_sides(r, &u) && !users_in_cycle(r, &u))
		return 0;
	df_line_put(b, "; two threads of %s use communicator %s: ",
		    df_say_entry(r->set, u.entry, rank, sizeof(rank)),
		    r->set->gcomms[r->set->entries[u.entry].gcomm].label);
	put_user(r, &u, 0, b);
	df_line_put(b, ", ");
	put_user(r, &u, 1, b);
	return 1;
}
