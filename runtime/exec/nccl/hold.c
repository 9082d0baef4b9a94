/*
 * A rank's part in launching held operations on the reserve (hold.h). Rank 0's part is in
 * lead.c.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/base/err.h"
#include "runtime/base/log.h"
#include "runtime/base/time.h"
#include "runtime/comm/comm.h"
#include "runtime/comm/process.h"
#include "runtime/ctl/ctl.h"
#include "runtime/exec/nccl/budget.h"
#include "runtime/exec/nccl/nodes.h"
#include "runtime/exec/nccl/hold.h"
#include "runtime/exec/nccl/lane.h"
#include "runtime/exec/nccl/lead.h"
#include "runtime/exec/nccl/put.h"

/* A message in the queue of messages to read. */
struct letter {
	struct letter *next;
	struct df_hold_message m;
};

static struct {
	struct df_mutex lock;
	struct letter *first, **last;
} inbox = {DF_MUTEX_INIT(DF_RANK_LEAF, "messages of lanes"), NULL, &inbox.first};

/* ---- idents ---------------------------------------------------------------------------------- */

uint64_t *df_hold_count(uint64_t *counts, int nranks, const struct df_ident *id)
{
	return &counts[id->class == DF_IDENT_COLL
			       ? 0
			       : (size_t)(id->class - DF_IDENT_SEND) * (size_t)nranks + 1 +
					 (size_t)id->peer];
}

uint64_t *df_hold_new_counts(int nranks)
{
	return calloc((size_t)nranks * 2 + 1, sizeof(uint64_t));
}

/* Returns the ident that belongs to position `i` of an array of counts, with number `nr`. */
static struct df_ident ident_at(size_t i, int nranks, uint64_t nr)
{
	struct df_ident id = {.nr = nr};

	if (i) {
		id.class = i - 1 < (size_t)nranks ? DF_IDENT_SEND : DF_IDENT_RECV;
		id.peer = (int32_t)((i - 1) % (size_t)nranks);
	}
	return id;
}

int df_hold_init(struct df_lane *lane)
{
	lane->hold.counts = df_hold_new_counts(lane->comm->nranks);
	return lane->hold.counts ? 0 : -ENOMEM;
}

void df_hold_fini(struct df_lane *lane)
{
	df_lead_free(lane);
	free(lane->hold.counts);
}

void df_hold_ident(struct df_lane *lane, struct df_lane_op *e)
{
	const struct df_op *op = &e->op;
	uint64_t *nr;

	if (lane->hold.watch && !lane->hold.next)
		lane->hold.next = e;
	e->alone = op->kind == DF_COLL_SENDRECV_SELF;
	if (e->alone)
		return;
	if (op->kind == DF_COLL_SEND || op->kind == DF_COLL_RECV)
		e->ident = (struct df_ident){
			op->kind == DF_COLL_SEND ? DF_IDENT_SEND : DF_IDENT_RECV, op->root, 0};
	nr = df_hold_count(lane->hold.counts, lane->comm->nranks, &e->ident);
	e->ident.nr = (*nr)++;
}

int df_hold_may_forget(const struct df_lane *lane, const struct df_lane_op *e)
{
	return !lane->hold.watch || e->turn <= lane->hold.said;
}

/* ---- messages -------------------------------------------------------------------------------- */

int df_hold_heard(const void *data, size_t bytes)
{
	struct df_hold_head h;
	struct letter *l;

	if (bytes < sizeof(h))
		return 0;
	memcpy(&h, data, sizeof(h));
	if (bytes != sizeof(h) + h.nr * sizeof(struct df_ident))
		return 0;
	l = malloc(sizeof(*l) + bytes - sizeof(h));
	if (!l) {
		df_warn_once("no memory for a message of another rank: a held operation may hang");
		return 0;
	}
	l->next = NULL;
	memcpy(&l->m, data, bytes);
	df_mutex_lock(&inbox.lock);
	*inbox.last = l;
	inbox.last = &l->next;
	df_mutex_unlock(&inbox.lock);
	return 1;
}

static void gone(struct df_lane *lane, int rank);

void df_hold_no_memory(struct df_lane *lane)
{
	df_warn_once("no memory to launch operations that are held: their communicator ends");
	df_comm_end(lane->comm, -ENOMEM, 1);
}

static void send_idents(struct df_lane *lane, int to, struct df_hold_head m,
			const struct df_ident *idents, size_t nr)
{
	const struct df_comm *comm = lane->comm;
	size_t bytes = sizeof(m) + nr * sizeof(*idents);
	struct df_hold_message *full = malloc(bytes);
	int ret;

	if (!full) {
		df_hold_no_memory(lane);
		return;
	}
	m.comm = comm->hash;
	m.proc = df_rt.self.proc;
	m.from = comm->rank;
	m.to = to;
	m.nr = (uint32_t)nr;
	full->h = m;
	if (nr)
		memcpy(full->idents, idents, nr * sizeof(*idents));
	ret = df_ctl_send(comm->ctl, comm->members[to].proc, DF_MSG_EXECUTOR, full, bytes);
	free(full);
	/* The peer's process has ended, or its communicator has. */
	if (ret)
		gone(lane, to);
}

void df_hold_send(struct df_lane *lane, int to, struct df_hold_head m)
{
	send_idents(lane, to, m, NULL, 0);
}

void df_hold_report(struct df_lane *lane, const void *report, size_t idents)
{
	send_idents(lane, 0, (struct df_hold_head){.what = DF_HOLD_CALL}, report, idents);
}

/* ---- a rank ---------------------------------------------------------------------------------- */

static void begin_watch(struct df_lane *lane, uint32_t watch)
{
	int nranks = lane->comm->nranks;
	size_t max = (size_t)nranks * 2 + 1, i, nr = 0;
	struct df_ident *before = malloc(max * sizeof(*before));
	uint64_t *counts = df_hold_new_counts(nranks), *at;
	struct df_lane_op *e;

	if (before && counts) {
		df_mutex_lock(&lane->lock);
		memcpy(counts, lane->hold.counts, max * sizeof(*counts));
		for (e = lane->oldest; e; e = e->next) {
			at = e->alone ? NULL : df_hold_count(counts, nranks, &e->ident);
			if (at && *at > e->ident.nr)
				*at = e->ident.nr;
		}
		lane->hold.watch = lane->ended ? 0 : watch;
		lane->hold.said = lane->oldest ? lane->oldest->turn - 1 : lane->nr_groups;
		lane->hold.next = lane->oldest;
		df_mutex_unlock(&lane->lock);
		for (i = 0; i < max; i++)
			if (counts[i])
				before[nr++] = ident_at(i, nranks, counts[i]);
		send_idents(lane, 0, (struct df_hold_head){.what = DF_HOLD_BEFORE, .watch = watch},
			    before, nr);
	} else {
		df_hold_no_memory(lane);
	}
	free(before);
	free(counts);
}

static void end_watch(struct df_lane *lane)
{
	df_mutex_lock(&lane->lock);
	lane->hold.watch = 0;
	df_mutex_unlock(&lane->lock);
	lane->hold.asked = 0;
	lane->hold.since = 0;
	lane->hold.oldest = 0;
}

/*
 * Whether the data of the group that begins with e is ready. Stores the number of its operations in
 * *nr. The caller holds the lock.
 */
static int is_ready(const struct df_lane_op *e, size_t *nr)
{
	uint64_t number = e->turn;

	for (*nr = 0; e && e->turn == number; e = e->next, ++*nr)
		if (!e->closed || !df_lane_is_ready(e))
			return 0;
	return 1;
}

/* Announces the lane's next group if it is ready. Returns whether it was. */
static int announce(struct df_lane *lane)
{
	struct df_hold_head m = {.what = DF_HOLD_GROUP};
	struct df_ident *idents = NULL;
	struct df_lane_op *e;
	size_t nr = 0, i = 0;
	int ready;

	df_mutex_lock(&lane->lock);
	e = lane->hold.watch ? lane->hold.next : NULL;
	ready = e && is_ready(e, &nr);
	if (ready)
		idents = malloc((nr + 1) * sizeof(*idents));
	if (idents) {
		m.watch = lane->hold.watch;
		m.group = lane->hold.said = e->turn;
		m.launched = !lane->next || e->turn < lane->next->turn;
		for (; nr; nr--, e = e->next)
			if (!e->alone)
				idents[i++] = e->ident;
		lane->hold.next = e;
	}
	df_mutex_unlock(&lane->lock);
	if (idents)
		send_idents(lane, 0, m, idents, i);
	free(idents);
	return m.group != 0;
}

/* Reports to rank 0 which of the lane's groups have ended, if that has changed. */
static void report_oldest(struct df_lane *lane)
{
	const struct df_lane_op *e;
	uint64_t oldest;
	uint32_t watch;

	df_mutex_lock(&lane->lock);
	watch = lane->hold.watch;
	/*
	 * ACQUIRE pairs with the lane's write of the word: without it the operation's results might
	 * not be visible.
	 */
	for (e = lane->oldest; e && __atomic_load_n(e->word, __ATOMIC_ACQUIRE) >= e->value;)
		e = e->next;
	oldest = e ? e->turn : lane->nr_groups + 1;
	df_mutex_unlock(&lane->lock);
	if (!watch || oldest == lane->hold.oldest)
		return;
	lane->hold.oldest = oldest;
	df_hold_send(
		lane, 0,
		(struct df_hold_head){.what = DF_HOLD_OLDEST, .watch = watch, .group = oldest});
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* Whether the message's idents exist in the communicator. */
static int are_valid(const struct df_hold_message *m, int nranks)
{
	uint32_t i;

	for (i = 0; i < m->h.nr && m->h.what != DF_HOLD_CALL; i++)
		if (m->idents[i].class > DF_IDENT_RECV || m->idents[i].peer < 0 ||
		    m->idents[i].peer >= nranks)
			return 0;
	return m->h.from >= 0 && m->h.from < nranks;
}

/* Notes that a rank has no unfinished operation and answers no message. */
static void gone(struct df_lane *lane, int rank)
{
	if (rank) {
		df_lead_gone(lane, rank);
	} else {
		df_budget_open(lane);
		end_watch(lane);
	}
}

static void read_one(struct df_lane *lane, const struct df_hold_message *m)
{
	switch (m->h.what) {
	case DF_HOLD_ASK_WATCH:
		if (!lane->comm->rank)
			df_lead_watch(lane);
		break;
	case DF_HOLD_WATCH:
		begin_watch(lane, m->h.watch);
		break;
	case DF_HOLD_BEFORE:
	case DF_HOLD_GROUP:
	case DF_HOLD_OLDEST:
	case DF_HOLD_GIVEN:
		df_lead_read(lane, m);
		break;
	case DF_HOLD_GIVE:
		lane->hold.give = m->h.watch;
		df_budget_ask(lane, m->h.group);
		break;
	case DF_HOLD_GO:
		df_budget_go(lane, m->h.group);
		break;
	case DF_HOLD_END_WATCH:
		end_watch(lane);
		break;
	case DF_HOLD_GONE:
		gone(lane, m->h.from);
		break;
	case DF_HOLD_CALL:
		df_lane_nodes_read(lane, m);
		break;
	default:
		break;
	}
}

/* Answers that the lane to which a message is addressed has been freed. */
static void answer_gone(const struct df_hold_head *h)
{
	struct df_hold_head m = {
		.what = DF_HOLD_GONE, .comm = h->comm, .from = h->to, .to = h->from};

	m.proc = df_rt.self.proc;
	if (h->what == DF_HOLD_ASK_WATCH || h->what == DF_HOLD_WATCH || h->what == DF_HOLD_GIVE)
		(void)df_ctl_send(NULL, h->proc, DF_MSG_EXECUTOR, &m, sizeof(m));
}

void df_hold_read(struct df_lane *(*find)(uint64_t hash, int rank),
		  void (*put)(struct df_lane *lane))
{
	struct letter *l, *next;
	struct df_lane *lane;

	df_mutex_lock(&inbox.lock);
	l = inbox.first;
	inbox.first = NULL;
	inbox.last = &inbox.first;
	df_mutex_unlock(&inbox.lock);
	for (; l; l = next) {
		next = l->next;
		lane = find(l->m.h.comm, l->m.h.to);
		if (lane) {
			if (are_valid(&l->m, lane->comm->nranks))
				read_one(lane, &l->m);
			put(lane);
		} else {
			answer_gone(&l->m.h);
		}
		free(l);
	}
}

/* Looks for processes that have exited, because these answer no message. */
static void look_for_exits(struct df_lane *lane)
{
	const struct df_member *members = lane->comm->members;
	uint64_t now = df_now_ns();
	int i;

	if ((!lane->hold.asked && !lane->hold.lead) || now - lane->hold.looked < DF_HOLD_WATCH_NS)
		return;
	lane->hold.looked = now;
	if (lane->comm->rank && df_ctl_is_dead(members[0].proc))
		gone(lane, 0);
	for (i = 1; i < lane->comm->nranks; i++)
		if (df_lead_waits_for(lane, i) && df_ctl_is_dead(members[i].proc))
			gone(lane, i);
}

/* Whether the lane's next group is held for lack of capacity although its data is ready. */
static int needs_room(struct df_lane *lane)
{
	size_t nr;
	int needs;

	if (!df_budget_holds(lane))
		return 0;
	df_mutex_lock(&lane->lock);
	needs = lane->next && is_ready(lane->next, &nr);
	df_mutex_unlock(&lane->lock);
	return needs;
}

int df_hold_is_watched(struct df_lane *lane)
{
	int is;

	df_mutex_lock(&lane->lock);
	is = lane->hold.watch != 0;
	df_mutex_unlock(&lane->lock);
	return is;
}

/* Whether the lane's next group has been held for so long that this rank asks for the reserves. */
static int is_stuck(struct df_lane *lane)
{
	uint64_t now = needs_room(lane) ? df_now_ns() : 0;

	if (!now || !lane->hold.since)
		lane->hold.since = now;
	return now && df_budget_is_stuck(lane, lane->hold.since, now);
}

int df_hold_turn(struct df_lane *lane)
{
	/* Most lanes hold nothing, and the thread calls this for all of them. */
	if (!lane->hold.asked && !lane->hold.since && !df_budget_holds(lane) &&
	    !df_hold_is_watched(lane) && !df_lead_watches(lane))
		return 0;
	if (!lane->hold.asked && is_stuck(lane)) {
		lane->hold.asked = 1;
		df_hold_send(lane, 0, (struct df_hold_head){.what = DF_HOLD_ASK_WATCH});
	}
	while (announce(lane))
		;
	report_oldest(lane);
	if (df_budget_answer(lane))
		df_hold_send(
			lane, 0,
			(struct df_hold_head){.what = DF_HOLD_GIVEN, .watch = lane->hold.give});
	look_for_exits(lane);
	return df_lead_turn(lane) || lane->hold.asked || df_hold_is_watched(lane);
}
