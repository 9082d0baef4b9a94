/*
 * Puts a lane's operations on its stream (put.h). The thread that puts them has set lane->putting,
 * and only that thread takes groups from the list.
 */
#include <errno.h>
#include <stdlib.h>
#include "runtime/base/err.h"
#include "runtime/base/log.h"
#include "runtime/base/thread.h"
#include "runtime/comm/comm.h"
#include "runtime/devs.h"
#include "runtime/exec/nccl/compare.h"
#include "runtime/exec/nccl/lane.h"
#include "runtime/exec/nccl/put.h"
#include "runtime/exec/nccl/shared.h"
#include "trace/record/writer.h"

/* ---- pairs ----------------------------------------------------------------------------------- */

/*
 * Returns the bits (enum df_pair) that must be set in a peer's entry for the operation to be
 * connected. NCCL executes AlltoAll, Gather and Scatter as messages. It drops messages of no
 * elements before it connects.
 */
static uint8_t pair_bits(const struct df_lane *lane, const struct df_op *op, int peer)
{
	int rank = lane->comm->rank;

	if (peer == rank)
		return 0;
	switch (op->kind) {
	case DF_COLL_SEND:
		return peer == op->root ? DF_PAIR_SENDS : 0;
	case DF_COLL_RECV:
		return peer == op->root ? DF_PAIR_RECEIVES : 0;
	case DF_COLL_ALLTOALL:
		return op->count ? DF_PAIR_SENDS | DF_PAIR_RECEIVES : 0;
	case DF_COLL_GATHER:
	case DF_COLL_SCATTER:
		if (!op->count || (rank != op->root && peer != op->root))
			return 0;
		return (rank == op->root) == (op->kind == DF_COLL_SCATTER) ? DF_PAIR_SENDS
									   : DF_PAIR_RECEIVES;
	default:
		return 0;
	}
}

int df_lane_connects(const struct df_lane *lane, const struct df_op *op)
{
	int peer;

	for (peer = 0; peer < lane->comm->nranks; peer++)
		if (pair_bits(lane, op, peer) & ~lane->pairs[peer])
			return 1;
	return 0;
}

/* Marks the pairs of a group as connected, after the group was put. The caller holds the lock. */
static void note_connected(struct df_lane *lane, struct df_lane_op *const *group, size_t nr)
{
	int peer;
	size_t i;

	for (i = 0; i < nr; i++)
		for (peer = 0; peer < lane->comm->nranks; peer++)
			lane->pairs[peer] |= pair_bits(lane, &group[i]->op, peer);
}

/* ---- groups ---------------------------------------------------------------------------------- */

static int is_arrival(const struct df_lane_op *e, const struct df_kwait *w)
{
	return e->gate && w->addr == &e->gate->arrived;
}

static int is_reached(const struct df_kwait *w)
{
	/*
	 * ACQUIRE pairs with the write of the point: without it the work before the point might not
	 * be visible.
	 */
	return __atomic_load_n(w->addr, __ATOMIC_ACQUIRE) >= w->value;
}

/* Whether the lane has written this replay's number to the gate's `begun`. */
static int has_begun(const struct df_lane_op *e)
{
	/* ACQUIRE pairs with the lane's write, for the reason given in is_reached(). */
	return __atomic_load_n(&e->gate->begun, __ATOMIC_ACQUIRE) >= e->replay;
}

int df_lane_is_ready(const struct df_lane_op *e)
{
	const struct df_kwait *w = e->waits, *end = w + e->nr_waits;

	/*
	 * When the operation has ended, its gate may belong to another graph. Gates are never
	 * freed: if the operation ends after this check, the answer is outdated, but memory is not.
	 * ACQUIRE pairs with the lane's write of the word: without it the operation's results might
	 * not be visible.
	 */
	if (__atomic_load_n(e->word, __ATOMIC_ACQUIRE) >= e->value)
		return 1;
	while (w < end && (is_reached(w) || (is_arrival(e, w) && has_begun(e))))
		w++;
	return w == end;
}

/*
 * Returns the next operation that runs on the lane and whose begin is not recorded, or NULL. The
 * caller holds the lock.
 */
static struct df_lane_op *next_begun(const struct df_lane *lane)
{
	struct df_lane_op *e = lane->oldest;
	uint64_t turn;

	/*
	 * ACQUIRE pairs with the lane's write of the word: without it the operation's results might
	 * not be visible.
	 */
	while (e && __atomic_load_n(e->word, __ATOMIC_ACQUIRE) >= e->value)
		e = e->next;
	turn = e ? e->turn : 0;
	while (e && e->turn == turn && (e->traced || !e->put || !df_lane_is_ready(e)))
		e = e->next;
	return e && e->turn == turn ? e : NULL;
}

void df_lane_trace_begun(struct df_lane *lane)
{
	struct df_comm *comm = lane->comm;
	struct df_lane_op *e;

	/*
	 * While this lock is held no operation is dropped, so its begin is recorded before its
	 * end.
	 */
	df_mutex_lock(&comm->dev->lock);
	do {
		df_mutex_lock(&lane->lock);
		e = next_begun(lane);
		if (e)
			e->traced = 1;
		df_mutex_unlock(&lane->lock);
		if (e)
			df_trace(DF_REC_OP_START, comm->dev->index, comm->trace, comm->rank,
				 e->serial, 0, 0, 0, 0);
	} while (e);
	df_mutex_unlock(&comm->dev->lock);
}

/* Makes the lane's stream wait for the points that the operation follows. Returns 0 or -errno. */
static int put_waits(struct df_lane *lane, const struct df_lane_op *e)
{
	const struct df_kwait *w = e->waits, *end = w + e->nr_waits;
	int ret = 0;

	/*
	 * The gate's `arrived` may still be set for the previous replay. So the stream checks it,
	 * after that replay.
	 */
	for (; w < end && !ret; w++)
		if (is_arrival(e, w) || !is_reached(w))
			ret = df_backend->stream_wait(lane->stream, w->addr, w->value);
	/* This order keeps the answer of df_lane_is_ready() true from the first time on. */
	if (!ret && e->gate)
		ret = df_backend->stream_write(lane->stream, &e->gate->begun, NULL, e->replay);
	if (!ret && e->gate)
		ret = df_backend->stream_write(lane->stream, &e->gate->arrived, NULL, 0);
	return ret;
}

/*
 * Whether the lane may write the ends of the group's operations. Once df_lane_end() has decided
 * that the call does not return, the poll opens the gates, and the lane must not. The caller holds
 * no lock.
 */
static int may_end(struct df_lane *lane, struct df_lane_op *const *group, size_t nr)
{
	size_t i;
	int may;

	df_mutex_lock(&lane->lock);
	may = !lane->stuck;
	for (i = 0; i < nr && may; i++)
		group[i]->ends = 1;
	df_mutex_unlock(&lane->lock);
	return may;
}

/*
 * Makes the lane's stream write the operation's end. The gate is opened before the word is written:
 * a thread that sees the end finds the gate open. A thread that sees `opened` but finds the gate
 * closed knows that the graph has closed it. Returns 0 or -errno.
 */
static int put_end(struct df_lane *lane, const struct df_lane_op *e)
{
	int ret = 0;

	if (e->gate)
		ret = df_backend->stream_write(lane->stream, &e->gate->open, NULL, 1);
	if (e->gate && !ret)
		ret = df_backend->stream_write(lane->stream, &e->gate->opened, NULL, e->replay);
	return ret ? ret : df_backend->stream_write(lane->stream, e->word, NULL, e->value);
}

/*
 * Puts the operations of one group on the lane. Returns 0 or -errno. The caller holds no lock; may
 * block.
 */
static int put_group(struct df_lane *lane, struct df_lane_op *const *group, size_t nr)
{
	const struct df_op *few[16],
		**ops = nr > DF_ARRAY_LEN(few) ? malloc(nr * sizeof(*ops)) : few;
	size_t i;
	int ret = ops ? 0 : -ENOMEM;

	for (i = 0; i < nr && !ret; i++) {
		ops[i] = &group[i]->op;
		ret = put_waits(lane, group[i]);
	}
	if (!ret)
		ret = df_lane_calls->put(lane->real, ops, nr,
					 df_backend->stream_handle(lane->stream));
	if (!ret && may_end(lane, group, nr))
		for (i = 0; i < nr && !ret; i++)
			ret = put_end(lane, group[i]);
	if (ops != few)
		free(ops);
	return ret;
}

/*
 * Returns the number of operations of the next group, or 0 if the group is not complete or no more
 * groups are put. The caller holds the lock.
 */
static size_t next_length(const struct df_lane *lane)
{
	const struct df_lane_op *e;
	size_t nr = 0;

	if (lane->ended || lane->failed || lane->differs)
		return 0;
	for (e = lane->next; e && e->turn == lane->next->turn; e = e->next)
		if (!e->closed)
			return 0;
		else
			nr++;
	return nr;
}

/*
 * Whether the device has capacity for the next group (budget.h). The caller holds the lock, which
 * is released meanwhile.
 */
static int has_room(struct df_lane *lane, size_t nr)
{
	uint64_t turn = lane->next->turn, issue = lane->next->issue;
	int has;

	df_mutex_unlock(&lane->lock);
	has = df_budget_take(lane, turn, nr, issue);
	df_mutex_lock(&lane->lock);
	/* If the lane has ended meanwhile, df_budget_drop() takes back its capacity. */
	return has && !lane->ended && !lane->failed;
}

/*
 * Takes the next group into *group, an array that grows as needed, if the group is complete and the
 * device has capacity for it. Returns the group's length, or 0. The caller holds the lock, which is
 * released meanwhile.
 */
static size_t next_group(struct df_lane *lane, struct df_lane_op ***group, size_t *cap)
{
	struct df_lane_op *e, **v;
	size_t nr = next_length(lane), i;
	uint64_t commands = 0;

	for (i = 0, e = lane->next; i < nr; i++, e = e->next)
		commands += df_lane_commands(e);
	lane->full = nr && lane->depth && lane->depth + commands > DF_LANE_DEPTH;
	if (!nr || lane->full || !has_room(lane, nr))
		return 0;
	if (nr > *cap) {
		v = realloc(*group, nr * sizeof(*v));
		if (!v) {
			lane->failed = -ENOMEM;
			return 0;
		}
		*group = v;
		*cap = nr;
	}
	for (i = 0, e = lane->next; i < nr; i++, e = e->next)
		(*group)[i] = e;
	lane->next = e;
	lane->depth += commands;
	return nr;
}

static int any_connects(const struct df_lane *lane, struct df_lane_op *const *group, size_t nr)
{
	size_t i;

	for (i = 0; i < nr && !df_lane_connects(lane, &group[i]->op);)
		i++;
	return i < nr;
}

/* ---- putting --------------------------------------------------------------------------------- */

/* Groups that a thread puts, one after the other. */
struct putting {
	struct df_lane *lane;
	struct df_lane_op **group; /* operations of the next group */
	size_t nr, cap;
};

static int continue_on_thread(const struct putting *p);

/*
 * Puts the next group and those after it. If not `may_block`, stops at the first group for which
 * NCCL may block and starts a thread that puts the rest.
 */
static void put_groups(struct putting *p, int may_block)
{
	struct df_lane *lane = p->lane;
	int ret, failed, differs, connects;
	size_t i;

	df_mutex_lock(&lane->lock);
	while (p->nr || (p->nr = next_group(lane, &p->group, &p->cap))) {
		if (lane->ended)
			break;
		connects = any_connects(lane, p->group, p->nr);
		if (connects && !may_block) {
			df_mutex_unlock(&lane->lock);
			ret = continue_on_thread(p);
			if (!ret)
				return;
			df_mutex_lock(&lane->lock);
			lane->failed = ret;
			break;
		}
		df_mutex_unlock(&lane->lock);
		/*
		 * In an agreed order, calls at the same place are equal, so they need no
		 * comparison.
		 */
		differs = lane->view && !lane->agree && df_lane_differs(lane, p->group, p->nr);
		ret = differs ? 0 : put_group(lane, p->group, p->nr);
		df_mutex_lock(&lane->lock);
		lane->differs = differs;
		/* If the lane is stuck, the group's memory is kept, but nothing waits for it. */
		if (differs || lane->stuck)
			break;
		for (i = 0; i < p->nr; i++)
			p->group[i]->put = 1;
		if (ret)
			lane->failed = ret;
		else
			note_connected(lane, p->group, p->nr);
		p->nr = 0;
	}
	lane->putting = 0;
	failed = lane->ended ? 0 : lane->failed;
	df_mutex_unlock(&lane->lock);
	free(p->group);
	/*
	 * An operation that could not be put never ends, neither on this rank nor on the others, so
	 * end the communicator.
	 */
	if (failed)
		df_comm_end(lane->comm, failed, 1);
}

static void *put_blocking(void *arg)
{
	struct putting *p = arg;

	/*
	 * NCCL restores the calling thread's device, which would create a context on another
	 * device.
	 */
	df_backend->set_device(p->lane->comm->dev->index);
	put_groups(p, 1);
	df_lane_unuse(p->lane);
	free(p);
	return NULL;
}

/* Starts a thread that puts the groups. Returns 0 or -errno. */
static int continue_on_thread(const struct putting *p)
{
	struct putting *own = malloc(sizeof(*own));
	int ret;

	if (!own)
		return -ENOMEM;
	*own = *p;
	df_lane_use(p->lane);
	ret = df_thread_start("dfshim-connect", 0, put_blocking, own);
	if (ret) {
		df_warn_once("no thread can be started that connects two ranks");
		df_lane_unuse(p->lane);
		free(own);
	}
	return ret;
}

void df_lane_put_all(struct df_lane *lane)
{
	int puts, device = lane->comm->dev->index;

	do {
		struct putting p = {.lane = lane};

		df_mutex_lock(&lane->lock);
		/*
		 * After a lane has ended no thread may begin to put, because df_lane_end() checks
		 * whether one does.
		 */
		puts = !lane->putting && !lane->ended;
		lane->putting |= puts;
		df_mutex_unlock(&lane->lock);
		if (puts)
			put_groups(&p, 0);
		/* A thread that found capacity meanwhile could not put the next group. */
	} while (puts && df_budget_next(device) == lane);
}

int df_lane_is_full(struct df_lane *lane)
{
	int full;

	df_mutex_lock(&lane->lock);
	full = lane->full;
	df_mutex_unlock(&lane->lock);
	return full;
}

void df_lane_put_held(int device)
{
	struct df_lane *lane, *last = NULL;
	int current;

	/* Making a device current creates its context, which only the program's threads may do. */
	if (!df_budget_holds_any(device))
		return;
	current = df_backend->get_device();
	if (current != device)
		df_backend->set_device(device);
	/* If it is the same lane again, another thread puts its groups or it has ended. */
	while ((lane = df_budget_next(device)) && lane != last && df_lane_use_listed(lane)) {
		last = lane;
		df_lane_put_all(lane);
		df_lane_unuse(lane);
	}
	if (current != device)
		df_backend->set_device(current);
}
