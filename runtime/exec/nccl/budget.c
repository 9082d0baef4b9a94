/* The shares of a device's multiprocessors and its reserve (budget.h). */
#include <errno.h>
#include <stdlib.h>
#include "runtime/base/env.h"
#include "runtime/base/log.h"
#include "runtime/comm/comm.h"
#include "runtime/devs.h"
#include "runtime/exec/nccl/budget.h"
#include "runtime/exec/nccl/lane.h"

struct budget {
	long sms, reserve;     /* multiprocessors; those of the reserve */
	long total, used;      /* CTAs of all lanes; of those that have shares */
	int nr_held;	       /* lanes whose next group waits for room */
	struct df_lane *owner; /* of the reserve */
	struct df_list queue;  /* lanes that ask for the reserve, in the order of asking */
};

static struct df_mutex lock = DF_MUTEX_INIT(DF_RANK_LEAF, "budget");
static struct budget *budgets; /* of each device */

static struct budget *of(const struct df_lane *lane)
{
	return &budgets[lane->comm->dev->index];
}

int df_budget_init(int nr_devs)
{
	const struct df_env *env = df_env();
	int i;

	budgets = calloc((size_t)nr_devs, sizeof(*budgets));
	if (!budgets)
		return -ENOMEM;
	for (i = 0; i < nr_devs; i++) {
		budgets[i].sms = env->host_sms == DF_AUTO ? env->host_slots * 16 : env->host_sms;
		budgets[i].reserve = DF_MIN(env->nccl_ctas, budgets[i].sms);
		df_list_init(&budgets[i].queue);
	}
	return 0;
}

void df_budget_join(struct df_lane *lane)
{
	struct budget *b = of(lane);
	int begins;

	df_list_init(&lane->room.waiting);
	df_mutex_lock(&lock);
	lane->ctas = DF_MIN(lane->ctas, b->sms);
	begins = b->total <= b->sms - b->reserve;
	b->total += lane->ctas;
	begins &= b->total > b->sms - b->reserve;
	df_mutex_unlock(&lock);
	if (begins && df_env()->nccl_order == DF_NCCL_ORDER_AGREE)
		df_warn_once("device %d has %ld multiprocessors, and its communicators have more "
			     "than %ld CTAs together: with DFSHIM_NCCL_ORDER=agree operations do "
			     "not wait for room, so the job may deadlock as by NCCL's rules. Set "
			     "DFSHIM_NCCL_CTAS to less",
			     lane->comm->dev->index, b->sms, b->sms - b->reserve);
	else if (begins)
		df_info("device %d has %ld multiprocessors, and its communicators have more than "
			"%ld CTAs together: operations may wait for room (DFSHIM_NCCL_CTAS)",
			lane->comm->dev->index, b->sms, b->sms - b->reserve);
}

/* Lock held. */
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
		b->used -= lane->ctas;
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
	df_mutex_unlock(&lock);
}

int df_budget_take(struct df_lane *lane, uint64_t group, uint64_t nr)
{
	struct df_room *r = &lane->room;
	struct budget *b = of(lane);

	/* A kernel of one rank waits for nothing. */
	if (!lane->ctas)
		return 1;
	df_mutex_lock(&lock);
	if (r->has == DF_ROOM_NONE && !r->dropped && b->used + lane->ctas <= b->sms - b->reserve) {
		r->has = DF_ROOM_SHARE;
		b->used += lane->ctas;
	}
	set_held(lane, !r->open && (r->has == DF_ROOM_NONE ||
				    (r->has == DF_ROOM_RESERVE && group > r->go)));
	/* An open lane may have no room, in which df_budget_back() counts. */
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

	if (!lane->ctas)
		return 0;
	df_mutex_lock(&lock);
	/* Without room it has been dropped. */
	if (r->has != DF_ROOM_NONE)
		r->out -= nr;
	if (!r->out && r->has == DF_ROOM_SHARE) {
		r->has = DF_ROOM_NONE;
		b->used -= lane->ctas;
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
	/* Lanes whose groups were launched, or have a share, do not keep others waiting. */
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
