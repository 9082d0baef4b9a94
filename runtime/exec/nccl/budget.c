/* Manages the shares of a device's multiprocessors, and its reserve (budget.h). */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include "runtime/base/env.h"
#include "runtime/base/log.h"
#include "runtime/blocks.h"
#include "runtime/comm/comm.h"
#include "runtime/devs.h"
#include "runtime/exec/nccl/budget.h"
#include "runtime/exec/nccl/lane.h"

struct budget {
	/* numbers of multiprocessors: of the device, and of the reserve */
	long sms, reserve;
	long total, used; /* numbers of CTAs: of all lanes, and of lanes that have shares */
	/* maximum number of lanes that may have shares; LONG_MAX means no limit */
	long most;
	long nr_lanes, nr_shares; /* numbers of lanes: that need capacity, and that have shares */
	int nr_held;		  /* number of lanes whose next group is held */
	struct df_lane *owner;	  /* the lane that has the reserve, or NULL */
	struct df_list queue;	  /* lanes that ask for the reserve, in the order of asking */
};

static struct df_mutex lock = DF_MUTEX_INIT(DF_RANK_LEAF, "budget");
static struct budget *budgets; /* by device */

static struct budget *of(const struct df_lane *lane)
{
	return &budgets[lane->comm->dev->index];
}

int df_budget_init(int nr_devs)
{
	long least, ctas = df_env_lane_ctas(&least);
	int i;

	if (ctas > df_env()->nccl_ctas)
		df_warn_once("NCCL_MIN_CTAS, NCCL_MAX_CTAS, NCCL_MIN_NCHANNELS or NCCL_MIN_NRINGS "
			     "is %ld: NCCL may give each communicator as many CTAs, so dfshim "
			     "counts %ld and not %ld (DFSHIM_NCCL_CTAS)",
			     least, ctas, df_env()->nccl_ctas);
	budgets = calloc((size_t)nr_devs, sizeof(*budgets));
	if (!budgets)
		return -ENOMEM;
	for (i = 0; i < nr_devs; i++) {
		budgets[i].sms = df_blocks->ctas(i);
		budgets[i].reserve = DF_MIN(ctas, budgets[i].sms);
		if (df_env()->set[DF_ENV_ROW_nccl_ctas] && 2 * df_env()->nccl_ctas > budgets[i].sms)
			df_warn_once(
				"DFSHIM_NCCL_CTAS=%ld: device %d has %ld multiprocessors, so its "
				"communicators execute one at a time",
				df_env()->nccl_ctas, i, budgets[i].sms);
		budgets[i].most = df_blocks->queues ? DF_LANES_MOST : LONG_MAX;
		df_list_init(&budgets[i].queue);
	}
	return 0;
}

/*
 * Whether the lane needs capacity. The kernels of a lane of a single rank wait for no peer, but
 * where queues are limited its waits occupy a hardware queue.
 */
static int needs_room(const struct df_lane *lane)
{
	return lane->ctas > 0 || of(lane)->most != LONG_MAX;
}

/* Whether all lanes of the device can have shares at the same time. The caller holds the lock. */
static int all_fit(const struct budget *b)
{
	return b->total <= b->sms - b->reserve && b->nr_lanes <= b->most;
}

void df_budget_join(struct df_lane *lane)
{
	struct budget *b = of(lane);
	int begins, device = lane->comm->dev->index;
	char what[120];

	df_list_init(&lane->room.waiting);
	df_mutex_lock(&lock);
	begins = all_fit(b);
	b->total += lane->ctas;
	b->nr_lanes += needs_room(lane);
	begins &= !all_fit(b);
	df_mutex_unlock(&lock);
	if (!begins)
		return;
	if (b->nr_lanes > b->most)
		snprintf(what, sizeof(what),
			 "device %d has %u hardware queues, and more than %ld communicators",
			 device, df_blocks->queues, b->most);
	else
		snprintf(what, sizeof(what),
			 "device %d has %ld multiprocessors, and its communicators have more than "
			 "%ld CTAs together",
			 device, b->sms, b->sms - b->reserve);
	df_info("%s: operations may wait for room (DFSHIM_NCCL_CTAS)", what);
}

/* Gives the lane a share (sign 1) or takes it back (-1). The caller holds the lock. */
static void give_share(const struct df_lane *lane, int sign)
{
	of(lane)->used += sign * lane->ctas;
	of(lane)->nr_shares += sign;
}

/* Sets whether the lane is held. The caller holds the lock. */
static void set_held(struct df_lane *lane, int held)
{
	of(lane)->nr_held += held - lane->room.held;
	lane->room.held = held;
}

void df_budget_drop(struct df_lane *lane)
{
	struct budget *b = of(lane);

	df_mutex_lock(&lock);
	if (lane->room.has == DF_ROOM_SHARE)
		give_share(lane, -1);
	if (b->owner == lane)
		b->owner = NULL;
	lane->room.has = DF_ROOM_NONE;
	set_held(lane, 0);
	lane->room.out = 0;
	lane->room.asked = 0;
	lane->room.dropped = 1;
	df_list_del(&lane->room.waiting);
	df_mutex_unlock(&lock);
}

void df_budget_leave(struct df_lane *lane)
{
	df_mutex_lock(&lock);
	of(lane)->total -= lane->ctas;
	of(lane)->nr_lanes -= needs_room(lane);
	df_mutex_unlock(&lock);
}

int df_budget_take(struct df_lane *lane, uint64_t group, uint64_t nr)
{
	struct df_room *r = &lane->room;
	struct budget *b = of(lane);

	if (!needs_room(lane))
		return 1;
	df_mutex_lock(&lock);
	if (r->has == DF_ROOM_NONE && !r->dropped && b->nr_shares < b->most &&
	    b->used + lane->ctas <= b->sms - b->reserve) {
		r->has = DF_ROOM_SHARE;
		give_share(lane, 1);
	}
	set_held(lane, !r->open && (r->has == DF_ROOM_NONE ||
				    (r->has == DF_ROOM_RESERVE && group > r->go)));
	/*
	 * An open lane may have no capacity; df_budget_back() then does not count its
	 * operations.
	 */
	if (!r->held && r->has != DF_ROOM_NONE) {
		r->out += nr;
		r->last = group;
	}
	nr = !r->held;
	df_mutex_unlock(&lock);
	return (int)nr;
}

int df_budget_back(struct df_lane *lane, uint64_t nr)
{
	struct df_room *r = &lane->room;
	struct budget *b = of(lane);
	int room = 0;

	if (!needs_room(lane))
		return 0;
	df_mutex_lock(&lock);
	/* A lane without capacity has been dropped. */
	if (r->has != DF_ROOM_NONE)
		r->out -= nr;
	if (!r->out && r->has == DF_ROOM_SHARE) {
		r->has = DF_ROOM_NONE;
		give_share(lane, -1);
		room = b->nr_held > 0;
	} else if (!r->out && r->has == DF_ROOM_RESERVE && r->last >= r->upto) {
		r->has = DF_ROOM_NONE;
		b->owner = NULL;
		room = b->nr_held > 0;
	}
	df_mutex_unlock(&lock);
	return room;
}

int df_budget_holds(struct df_lane *lane)
{
	int holds;

	df_mutex_lock(&lock);
	holds = lane->room.held;
	df_mutex_unlock(&lock);
	return holds;
}

void df_budget_ask(struct df_lane *lane, uint64_t upto)
{
	struct df_room *r = &lane->room;

	df_mutex_lock(&lock);
	if (upto && !r->dropped) {
		if (df_list_empty(&r->waiting))
			df_list_add_tail(&of(lane)->queue, &r->waiting);
		r->asked = upto;
	}
	df_mutex_unlock(&lock);
}

int df_budget_answer(struct df_lane *lane)
{
	struct df_room *r = &lane->room, *first;
	struct budget *b = of(lane);
	int answered = 0;

	df_mutex_lock(&lock);
	/* Lanes whose groups were launched, or which have a share, do not make others wait. */
	first = df_list_first(&b->queue, struct df_room, waiting);
	while (first && first != r && (first->has != DF_ROOM_NONE || first->last >= first->asked))
		first = first->waiting.next == &b->queue
				? NULL
				: df_list_entry(first->waiting.next, struct df_room, waiting);
	if (r->asked && r->last >= r->asked) {
		answered = 1;
	} else if (r->asked && first == r && r->has == DF_ROOM_NONE && !b->owner) {
		b->owner = lane;
		r->has = DF_ROOM_RESERVE;
		r->upto = r->asked;
		answered = 1;
	}
	if (answered) {
		r->asked = 0;
		df_list_del(&r->waiting);
	}
	df_mutex_unlock(&lock);
	return answered;
}

void df_budget_open(struct df_lane *lane)
{
	struct df_room *r = &lane->room;

	df_mutex_lock(&lock);
	r->open = 1;
	r->asked = 0;
	df_list_del(&r->waiting);
	if (r->has == DF_ROOM_RESERVE && r->out) {
		r->upto = r->last;
	} else if (r->has == DF_ROOM_RESERVE) {
		r->has = DF_ROOM_NONE;
		of(lane)->owner = NULL;
	}
	df_mutex_unlock(&lock);
}

void df_budget_go(struct df_lane *lane, uint64_t upto)
{
	df_mutex_lock(&lock);
	if (lane->room.has == DF_ROOM_RESERVE)
		lane->room.go = upto;
	df_mutex_unlock(&lock);
}
