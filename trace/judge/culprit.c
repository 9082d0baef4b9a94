/*
 * Writes the sentences of verdicts with one cause: a rank that is missing, ended, silent or stuck,
 * or calls that do not agree.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "trace/judge/judge_int.h"
#include "trace/judge/say.h"
#include "trace/read/party.h"
#include "trace/record/names.h"
#include "runtime/base/err.h"

/* A thread is named if its process made a call this long after its last one. */
#define APART_NS 1000000000

/* Counts the operations that wait directly for the root, and all stuck ranks. */
static void count_waiters(struct df_check_result *r, size_t *direct, size_t *all)
{
	const struct df_node *root = &r->g.nodes[r->root];

	*direct = 0;
	for (size_t i = 0; i < r->g.nr_edges; i++) {
		const struct df_edge *e = &r->g.edges[i];
		const struct df_node *to = &r->g.nodes[e->to];

		/* Each communicator has its own node for the same process. */
		if (r->g.nodes[e->from].kind == DF_N_MATCH && to->kind == root->kind &&
		    to->mark == root->mark && to->trace == root->trace &&
		    (to->trace != DF_NONE || e->to == r->root))
			*direct += r->g.insts[r->g.nodes[e->from].ref].nr_here;
	}
	*all = r->stuck_ranks;
}

/* Returns an operation that waits for the root, or NULL. */
static const struct df_uop *a_waiter(struct df_check_result *r)
{
	for (size_t i = 0; i < r->g.nr_edges; i++) {
		const struct df_edge *e = &r->g.edges[i];

		if (e->to == r->root && r->g.nodes[e->from].kind == DF_N_MATCH)
			return &r->set->ops[r->g.insts[r->g.nodes[e->from].ref].first];
	}
	return NULL;
}

static void last_record(struct df_check_result *r, const struct df_trc_comm *e, struct df_line *b)
{
	const struct df_trc *t = &r->set->traces[e->trace];

	df_line_put(b, "%.1f s ago", df_say_ago(r->set, e->trace, t->last_ns));
}

/* Lists the functions in which the threads of the missing rank poll; "" if there are none. */
static void loops(const struct df_check_result *r, const struct df_trc_comm *e, char *buf,
		  size_t size)
{
	const struct df_trc *t = &r->set->traces[e->trace];
	uint32_t kinds = 0;
	size_t at = 0;

	for (size_t i = 0; i < t->nr_threads; i++) {
		const struct df_lthread *th = &t->threads[i];

		if (!df_entry_uses(e, th->tid))
			continue;
		kinds |= th->asks;
		for (uint32_t k = 0; th->at == DF_AT_POLLS && k < th->nr_polls; k++)
			kinds |= 1u << th->poll_kind[k];
	}
	buf[0] = 0;
	for (uint32_t k = 0; k < DF_POLLED_NR && at < size; k++)
		if (kinds >> k & 1)
			at += (size_t)snprintf(buf + at, size - at, "%s%s", at ? " and in " : "",
					       df_call_text(df_polled_call(k)));
}

/*
 * Appends " (its last call on B is #3)". If the rank has issued nothing on B, names its last call
 * on another communicator.
 */
static void last_call(const struct df_check_set *set, const struct df_trc_comm *e,
		      struct df_line *b)
{
	const struct df_trc_comm *on = e->used ? e : df_entry_last(set, e);
	const char *comm = set->gcomms[e->gcomm].label;
	char op[96];

	if (!on) {
		df_line_put(b, " (it has issued nothing)");
		return;
	}
	df_say_op(set,
		  &(struct df_uop){.gcomm = on->gcomm,
				   .l = {.kind = on->last.kind,
					 .rank = on->rank,
					 .peer = on->last.peer,
					 .index = on->last.index}},
		  op, sizeof(op));
	if (on == e)
		df_line_put(b, " (its last call on %s is %s)", comm,
			    op + strlen(comm) + (op[strlen(comm)] == ' '));
	else
		df_line_put(b, " (it has issued nothing on %s, its last call is %s)", comm, op);
}

/*
 * Returns the time of the last call of the missing rank's process. If the threads that issue on the
 * communicator have been silent for longer than another one: the time of their last operation, and
 * stores one of them in *tid, the main thread if it is one; else 0.
 */
static uint64_t last_of_threads(const struct df_check_result *r, const struct df_trc_comm *e,
				uint32_t *tid)
{
	const struct df_trc *t = &r->set->traces[e->trace];
	uint64_t last = 0, others = 0;

	*tid = 0;
	for (size_t i = 0; i < t->nr_threads; i++) {
		const struct df_lthread *th = &t->threads[i];

		if (th->is_ours)
			continue;
		if (!df_entry_issues(r->set, e, th)) {
			others = DF_MAX(others, th->last_ns);
			continue;
		}
		if (*tid != t->h.pid)
			*tid = th->tid;
		last = DF_MAX(last, th->last_ns);
	}
	if (e->used && last + APART_NS < DF_MIN(others, t->last_progress_ns))
		return last;
	*tid = 0;
	return t->last_progress_ns;
}

/* Returns a thread that waits for the root in a call that all ranks make, or NULL. */
static const struct df_node *a_caller(struct df_check_result *r)
{
	const struct df_graph *g = &r->g;

	for (size_t i = 0; i < g->nr_edges; i++) {
		uint32_t bar = g->edges[i].from;

		for (size_t k = 0; g->edges[i].to == r->root &&
				   g->nodes[bar].kind == DF_N_BARRIER && k < g->nr_edges;
		     k++)
			if (g->edges[k].to == bar && g->nodes[g->edges[k].from].kind == DF_N_THREAD)
				return &g->nodes[g->edges[k].from];
	}
	return NULL;
}

int df_exit_of(const struct df_check_result *r)
{
	const struct df_node *n = &r->g.nodes[r->root];
	const struct df_trc_comm *e =
		n->gcomm != DF_NONE ? df_set_entry(r->set, n->gcomm, n->rank) : NULL;
	const struct df_dead *d =
		n->gcomm != DF_NONE ? df_set_dead(r->set, n->gcomm, n->rank) : NULL;

	/* Prefer the rank's own trace: other processes may have recorded the exit as well. */
	if (e && r->set->traces[e->trace].h.closed)
		return (int)r->set->traces[e->trace].h.closed;
	return d ? d->in_order : 0;
}

void df_line_missing(struct df_check_result *r, struct df_line *b)
{
	const struct df_node *n = &r->g.nodes[r->root];
	const struct df_uop *u = a_waiter(r);
	struct df_trc_comm *e =
		n->gcomm != DF_NONE ? df_set_entry(r->set, n->gcomm, n->rank) : NULL;
	const struct df_node *caller = u ? NULL : a_caller(r);
	char op[96] = "an operation", who[48], loop[160], script[160], how[64];
	uint64_t since;
	uint32_t tid;
	int ended;

	if (u)
		df_say_op(r->set, u, op, sizeof(op));
	df_say_member(r->set, n->gcomm, n->rank, who, sizeof(who));
	if (caller)
		df_line_put(b, "%s waits in %s for %s, ", df_line_host(r, caller, op, sizeof(op)),
			    df_call_text(r->set->traces[caller->trace].calls[caller->ref].call),
			    who);
	else
		df_line_put(b, "%s waits for %s, ", op, who);
	if (!strcmp(r->qualifier, "exited")) {
		ended = df_exit_of(r);
		df_line_put(b, "whose process %s", df_say_exit(ended, how, sizeof(how)));
		if (e) {
			df_line_put(b, ended > 1 ? ", " : " ");
			last_record(r, e, b);
		}
	} else if (!strcmp(r->qualifier, "destroyed")) {
		df_line_put(b, "which has left communicator %s", r->set->gcomms[n->gcomm].label);
	} else if (e && e->failed_rec != DF_NO_REC) {
		df_line_put(b, "whose call on %s returned an error and was not repeated",
			    r->set->gcomms[n->gcomm].label);
		snprintf(r->qualifier, sizeof(r->qualifier), "failed");
	} else if (e && df_entry_has_ended(r->set, e)) {
		df_line_put(b, "whose thread has ended without %s it",
			    caller ? "making" : "issuing");
	} else if (e) {
		loops(r, e, loop, sizeof(loop));
		df_line_put(b, "which has not issued it: ");
		since = last_of_threads(r, e, &tid);
		if (loop[0])
			df_line_put(b, "%s is in %s and has made no other NCCL or CUDA call", who,
				    loop);
		else if (tid)
			df_line_put(b, "%s has issued nothing",
				    df_say_thread(r->set, e->trace, tid, how, sizeof(how)));
		else
			df_line_put(b, "no thread of %s has called NCCL or CUDA", who);
		df_line_put(b, " for %.1f s", df_say_ago(r->set, e->trace, since));
		if (tid && !loop[0])
			df_line_put(b, ", while another thread of %s goes on", who);
		if (df_say_script(r->set, e, script, sizeof(script)))
			df_line_put(b, "; it is at %s", script);
	}
	if (e && (e->used || !strcmp(r->qualifier, "thread ended")) &&
	    strcmp(r->qualifier, "destroyed"))
		last_call(r->set, e, b);
}

static void crash_waited(struct df_check_result *r, struct df_line *b)
{
	const struct df_node *n = &r->g.nodes[r->root];
	struct df_trc_comm *e =
		n->gcomm != DF_NONE ? df_set_entry(r->set, n->gcomm, n->rank) : NULL;
	const struct df_trc_member *m =
		n->gcomm != DF_NONE ? df_set_member(r->set, n->gcomm, n->rank) : NULL;
	size_t direct, all;
	char who[48];

	count_waiters(r, &direct, &all);
	df_line_put(b, "%s has died", df_say_member(r->set, n->gcomm, n->rank, who, sizeof(who)));
	if (e) {
		df_line_put(b, " (pid %u on %.64s, last record ", r->set->traces[e->trace].h.pid,
			    r->set->traces[e->trace].h.host);
		last_record(r, e, b);
		df_line_put(b, ")");
	} else if (m) {
		df_line_put(b, " (pid %u)", m->pid);
	}
	df_line_put(b, "; %zu operation%s wait%s for it, %zu rank%s %s stuck", direct,
		    DF_PLURAL(direct), direct == 1 ? "s" : "", all, DF_PLURAL(all),
		    all == 1 ? "is" : "are");
}

void df_line_crash(struct df_check_result *r, struct df_line *b)
{
	if (!strcmp(r->qualifier, "ended")) {
		const struct df_dead *d = NULL;
		char who[48] = "a process";

		for (size_t i = 0; i < r->set->nr_dead; i++)
			if (!r->set->dead[i].in_order && (!d || r->set->dead[i].signal))
				d = &r->set->dead[i];
		if (d->signal) {
			df_line_put(b, "the process of rank %d was ended by signal %d (%s), pid %u",
				    d->rank, d->signal, strsignal(d->signal), d->pid);
			return;
		}
		for (uint32_t g = 0; g < r->set->nr_gcomms; g++)
			if (r->set->gcomms[g].hash == d->comm_hash)
				df_say_member(r->set, g, d->rank, who, sizeof(who));
		df_line_put(b, "%s has died (pid %u); its communicators were ended", who, d->pid);
		return;
	}
	crash_waited(r, b);
}

#define SOME	  4	    /* maximum number of ranks that are named individually */
#define RANKS_MAX (1 << 16) /* a bound on the number of ranks, because a record may be corrupt */

/* Whether a rank called ncclCommInitRank with this id, according to the traces. */
static int has_called(const struct df_check_set *set, uint64_t id, uint32_t rank)
{
	for (size_t i = 0; i < set->nr_traces; i++) {
		const struct df_trc *t = &set->traces[i];

		for (size_t k = 0; k < t->nr_notes && !t->dropped; k++) {
			const struct df_rec *rec = &t->notes[k].rec;

			if (rec->type == DF_REC_COMM_INIT && rec->a == id &&
			    rec->rank == (int32_t)rank)
				return 1;
		}
	}
	return 0;
}

/*
 * Writes "rank 1 of 2 has not called ncclCommInitRank". Returns 0 if the records do not show which
 * ranks have not.
 */
static int who_has_not_called(struct df_check_result *r, const struct df_bar *bar,
			      struct df_line *b)
{
	uint32_t absent[SOME], nr = 0;

	for (uint32_t k = 0; k < bar->expect && bar->expect <= RANKS_MAX; k++) {
		if (has_called(r->set, bar->object, k))
			continue;
		if (nr < SOME)
			absent[nr] = k;
		nr++;
	}
	if (!nr || nr > bar->expect - bar->nr_here)
		return 0;
	df_line_put(b, "rank%s ", DF_PLURAL(nr));
	for (uint32_t k = 0; k < nr && k < SOME; k++)
		df_line_put(b, "%s%u", k ? ", " : "", absent[k]);
	if (nr > SOME)
		df_line_put(b, " and %u more", nr - SOME);
	df_line_put(b,
		    " of %u %s not called %s for the communicator with unique id "
		    "%016" PRIx64 "; %u rank%s wait%s there",
		    bar->expect, nr == 1 ? "has" : "have", df_call_text(bar->call), bar->object,
		    bar->nr_here, DF_PLURAL(bar->nr_here), bar->nr_here == 1 ? "s" : "");
	return 1;
}

/* Returns the first stuck ncclCommInitRank or ncclCommGrow, or NULL. */
static const struct df_bar *stuck_init(const struct df_check_result *r)
{
	for (size_t i = 0; i < r->g.nr_bars; i++)
		if (df_call_meets(r->g.bars[i].call) && r->g.stuck[r->g.bars[i].node])
			return &r->g.bars[i];
	return NULL;
}

/*
 * Whether a thread of the process was in the ncclCommInitRank with this id at the end of the trace.
 * Stores the rank that it was to be.
 */
static int is_in_init(const struct df_trc *t, uint64_t id, int *rank)
{
	for (size_t i = 0; i < t->nr_notes; i++) {
		const struct df_rec *rec = &t->notes[i].rec;

		for (size_t k = 0; rec->type == DF_REC_COMM_INIT && rec->a == id && k < t->nr_calls;
		     k++) {
			*rank = rec->rank;
			if (t->calls[k].serial == rec->op)
				return 1;
		}
	}
	return 0;
}

/*
 * Returns the trace of a process that exited inside the stuck ncclCommInitRank, and stores its
 * rank. Returns NULL if there is none.
 */
static const struct df_trc *left_init(const struct df_check_result *r, int *rank)
{
	const struct df_bar *bar = stuck_init(r);

	/* A rank that has not called ncclCommInitRank at all is a better explanation. */
	for (uint32_t k = 0; bar && k < bar->expect && bar->expect <= RANKS_MAX; k++)
		if (!has_called(r->set, bar->object, k))
			return NULL;
	for (size_t i = 0; bar && i < r->set->nr_traces; i++) {
		const struct df_trc *t = &r->set->traces[i];

		/* A process that had noticed the hang exited because of it, so it is no cause. */
		if (t->fate == DF_EXITED && !t->dropped && !t->stall_ms &&
		    is_in_init(t, bar->object, rank))
			return t;
	}
	return NULL;
}

void df_line_init(struct df_check_result *r, struct df_line *b)
{
	const struct df_bar *bar = stuck_init(r);
	const struct df_trc *left;
	char how[32];
	int rank;

	if (!bar) {
		df_line_put(b, "not all ranks of a communicator have called ncclCommInitRank");
		return;
	}
	left = left_init(r, &rank);
	if (left)
		df_line_put(b,
			    "rank %d of %u (pid %u) %s inside %s, for the "
			    "communicator with unique id %016" PRIx64,
			    rank, bar->expect, left->h.pid,
			    df_say_exit((int)left->h.closed, how, sizeof(how)),
			    df_call_text(bar->call), bar->object);
	else if (!who_has_not_called(r, bar, b))
		df_line_put(b,
			    "communicator with unique id %016" PRIx64
			    ": only %u of %u ranks are in %s",
			    bar->object, bar->nr_here, bar->expect, df_call_text(bar->call));
}

void df_line_gpu(struct df_check_result *r, struct df_line *b)
{
	const struct df_node *n = &r->g.nodes[r->root];
	const struct df_uop *u = &r->set->ops[n->ref];
	const struct df_trc *t = &r->set->traces[u->trace];
	const struct df_litem *work = t->before.type == DF_ITEM_WORK ? &t->before : NULL;
	char op[96], rank[48];

	for (size_t i = 0; i < t->nr_items; i++)
		if (t->items[i].type == DF_ITEM_WORK && t->items[i].rec < u->l.rec &&
		    (!work || t->items[i].stream == u->l.stream))
			work = &t->items[i];
	df_line_put(b,
		    "%s on %s was issued %.1f s ago and has not started, although nothing in the "
		    "program makes it wait",
		    df_say_op(r->set, u, op, sizeof(op)),
		    df_say_rank(r->set, u, rank, sizeof(rank)),
		    df_say_ago(r->set, u->trace, u->l.issue_ns));
	if (df_line_launches(r, u, b))
		return;
	if (work)
		df_line_put(b,
			    "; a %s that was issued before it on stream %" PRIu64 " may never end",
			    df_work_name((uint32_t)work->b & 0xff), work->stream);
	else
		df_line_put(b, "; something that is not recorded occupies device %d", u->l.device);
}

int df_behind_message(const struct df_check_result *r)
{
	const struct df_node *n = &r->g.nodes[r->root];
	const struct df_uop *ops = r->set->ops, *u = &ops[n->ref];

	if (n->kind != DF_N_START || !df_kind_is_p2p(u->l.kind) ||
	    r->set->traces[u->trace].h.executor != DF_BY_AGREED_LANES)
		return 0;
	for (size_t i = 0; i < r->g.nr_insts; i++) {
		const struct df_uop *sent = NULL, *received = NULL;

		for (uint32_t k = r->g.insts[i].first; k != DF_NONE; k = ops[k].next)
			*(ops[k].l.kind == DF_KIND_SEND ? &sent : &received) = &ops[k];
		if (sent != u && received != u)
			continue;
		/* It is in the buffer itself, or has not been sent. */
		return received &&
		       (sent ? sent->l.index > received->l.index : r->g.insts[i].nr_done > 0);
	}
	return 0;
}

void df_line_behind(struct df_check_result *r, struct df_line *b)
{
	char op[96];

	df_line_put(
		b,
		"%s cannot start: an earlier message to the same rank was sent and is not received "
		"yet, and NCCL gives receives their messages in the order of the sends",
		df_say_op(r->set, &r->set->ops[r->g.nodes[r->root].ref], op, sizeof(op)));
}

void df_line_stall(struct df_check_result *r, struct df_line *b)
{
	const struct df_match *in = &r->g.insts[r->g.nodes[r->root].ref];
	const struct df_uop *u = &r->set->ops[in->first];
	char op[96];

	df_line_put(b, "%s runs on all of its %u ranks, but has made no progress for %.1f s",
		    df_say_op(r->set, u, op, sizeof(op)), in->nr_here + in->nr_done,
		    r->aged ? df_say_ago(r->set, u->trace, u->l.issue_ns)
			    : (double)r->quiet_ns / 1e9);
}

/* Names the process that does not answer. */
static void silent(struct df_check_result *r, const struct df_node *n,
		   const struct df_check_silent *s, struct df_line *b)
{
	const struct df_uop *u = a_waiter(r);
	char who[48], op[96] = "an operation";
	size_t hidden = 0;

	if (u)
		df_say_op(r->set, u, op, sizeof(op));
	df_line_put(
		b,
		"%s waits for %s, whose process (pid %u on %.63s) lives and does not answer: it is "
		"stopped by a signal or a debugger, or its machine stands still",
		op, df_say_member(r->set, n->gcomm, n->rank, who, sizeof(who)), s->pid, s->host);
	for (size_t i = 0; i < r->set->nr_silent; i++)
		hidden += !r->set->silent[i].certain && r->set->silent[i].comm == s->comm;
	if (hidden)
		df_line_put(b, "; %zu other rank%s may only be cut off by it", hidden,
			    DF_PLURAL(hidden));
}

void df_line_hosts(struct df_check_result *r, struct df_line *b)
{
	const struct df_check_silent *s;
	const struct df_node *n;
	char thread[64], h[48];

	if (r->nr_held) {
		df_line_held(r, b);
		return;
	}
	if (r->is_cycle) {
		const struct df_node *t = df_line_thread(r, 0), *t2 = df_line_thread(r, 1);

		if (t)
			df_line_put(b, "%s is in %s", df_line_host(r, t, h, sizeof(h)),
				    df_call_text(r->set->traces[t->trace].calls[t->ref].call));
		if (t2)
			df_line_put(b, " and %s is in %s; each waits for the other",
				    df_line_host(r, t2, h, sizeof(h)),
				    df_call_text(r->set->traces[t2->trace].calls[t2->ref].call));
		df_line_put(b, ": cycle ");
		df_line_path(r, b);
		return;
	}
	n = &r->g.nodes[r->root];
	s = n->gcomm == DF_NONE ? NULL : df_set_silent(r->set, n->gcomm, n->rank);
	if (s && s->certain) {
		silent(r, n, s, b);
	} else if (n->kind == DF_N_THREAD) {
		const struct df_lcall *c = &r->set->traces[n->trace].calls[n->ref];

		df_line_put(b,
			    "%s of %s has been in %s for %.1f s and waits for something that is "
			    "not recorded",
			    df_say_thread(r->set, n->trace, n->thread, thread, sizeof(thread)),
			    r->set->traces[n->trace].label, df_call_text(c->call),
			    df_say_ago(r->set, n->trace, c->enter_ns));
	} else {
		df_line_put(b, "threads wait in a barrier that not all of them have reached");
	}
}

void df_line_unknown(struct df_check_result *r, struct df_line *b)
{
	const struct df_node *n = r->root == DF_NONE ? NULL : &r->g.nodes[r->root];
	char who[48], op[96];
	const struct df_uop *u = n ? a_waiter(r) : NULL;
	const struct df_trc_comm *e = n && n->kind == DF_N_NEXT && n->gcomm != DF_NONE
					      ? df_set_entry(r->set, n->gcomm, n->rank)
					      : NULL;

	if (e && e->lost_open && u)
		df_line_put(b,
			    "%s waits for %s, and the trace does not show whether %s has issued "
			    "it: the records of %" PRIu64
			    " of its unfinished operations were overwritten (a larger "
			    "DFSHIM_TRACE_MB keeps them)",
			    df_say_op(r->set, u, op, sizeof(op)),
			    df_say_member(r->set, n->gcomm, n->rank, who, sizeof(who)), who,
			    e->lost_open);
	else if (n && n->kind == DF_N_NEXT && u)
		df_line_put(b, "%s waits for %s, which has no trace",
			    df_say_op(r->set, u, op, sizeof(op)),
			    df_say_member(r->set, n->gcomm, n->rank, who, sizeof(who)));
	else
		df_line_put(b, "operations are unfinished, and the records do not show what they "
			       "wait for");
}

/*
 * Makes a recorded death the verdict where no operation waits for the dead rank: all operations
 * with it may have been ended, or it may have died before it had a communicator. A signal that its
 * parent saw also explains why other ranks wait for the communicator.
 */
void df_judge_deaths(struct df_check_result *r)
{
	int unexplained =
		r->verdict == DF_V_SLOW || r->verdict == DF_V_INIT || r->verdict == DF_V_UNKNOWN;

	for (size_t i = 0; i < r->set->nr_dead; i++) {
		const struct df_dead *d = &r->set->dead[i];

		if (d->in_order ||
		    !(r->verdict == DF_V_OK || r->killed || (unexplained && d->signal)))
			continue;
		r->verdict = DF_V_CRASH;
		r->killed = 0;
		r->confidence = DF_C_PROVED;
		snprintf(r->qualifier, sizeof(r->qualifier), "ended");
	}
}

/* A process that exited inside ncclCommInitRank explains why its communicator was not created. */
void df_judge_init(struct df_check_result *r)
{
	int rank;

	if (!left_init(r, &rank))
		return;
	r->confidence = DF_C_PROVED;
	snprintf(r->qualifier, sizeof(r->qualifier), "exited");
}
