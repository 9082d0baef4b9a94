/* Manages the shares of a device's multiprocessors, and its reserve (budget.h). */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include "runtime/base/env.h"
#include "runtime/base/log.h"
#include "runtime/base/time.h"
#include "runtime/blocks.h"
#include "runtime/comm/comm.h"
#include "runtime/devs.h"
#include "runtime/exec/nccl/budget.h"
#include "runtime/exec/nccl/lane.h"

/*
 * A device that has held a group for STILL_NS without ending an operation probably needs the
 * reserves, so it asks for them at once, for a limited time. The time grows if the device stands
 * still again soon. It is limited, because while the device has the reserves, nothing shows whether
 * it still needs them. HELD_NS is the longest time that a group waits for its turn while others
 * end.
 */
#define STILL_NS      (4 * DF_NS_PER_MS)
#define HELD_NS	      (20 * DF_NS_PER_MS)
#define URGENT_MIN_NS (20 * DF_NS_PER_MS)
#define URGENT_MAX_NS (320 * DF_NS_PER_MS)
#define URGENT_AGAIN  4

struct budget {
	/* numbers of multiprocessors: of the device, and of the reserve */
	long sms, reserve;
	long total, used; /* numbers of CTAs: of all lanes, and of lanes that have shares */
	/* maximum number of lanes that may have shares; LONG_MAX means no limit */
	long most;
	long nr_lanes, nr_shares; /* numbers of lanes: that need capacity, and that have shares */
	uint64_t nr_made;	  /* number of lanes that were ever made */
	int nr_held;		  /* number of held lanes; also read without the lock */
	struct df_list held;	  /* lanes whose next group is held, in the order of issue */
	struct df_lane *owner;	  /* the lane that has the reserve, or NULL */
	struct df_list queue;	  /* lanes that ask for the reserve, in the order of asking */
	/* number of operations that had ended at the last look, and when that number changed */
	uint64_t ended, still;
	uint64_t until, urgent; /* end and duration of the time in which lanes ask at once */
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
		df_list_init(&budgets[i].held);
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
	df_list_init(&lane->room.held);
	df_mutex_lock(&lock);
	lane->room.made = ++b->nr_made;
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

/* Counts a lane more (1) or fewer (-1) that is held. The caller holds the lock. */
static void count_held(struct budget *b, int more)
{
	/* RELAXED: a thread that reads the count without the lock looks again later. */
	__atomic_store_n(&b->nr_held, b->nr_held + more, __ATOMIC_RELAXED);
}

static void let(struct df_lane *lane)
{
	if (df_list_empty(&lane->room.held))
		return;
	df_list_del(&lane->room.held);
	count_held(of(lane), -1);
}

/* Notes that the lane's next group is held. The caller holds the lock. */
static void hold(struct df_lane *lane, uint64_t group, uint64_t issue)
{
	struct df_room *r = &lane->room;
	struct budget *b = of(lane);
	struct df_list *at;

	let(lane);
	r->next = group;
	r->issue = issue;
	for (at = b->held.prev; at != &b->held; at = at->prev)
		if (df_list_entry(at, struct df_room, held)->issue < issue)
			break;
	df_list_add(at, &r->held);
	count_held(b, 1);
}

/* Whether lanes of the device ask for the reserves at once. The caller holds the lock. */
static int is_urgent(const struct budget *b)
{
	return b->until && df_now_ns() < b->until;
}

/*
 * Whether the group has to wait for one that was issued before it and is held. A lane that has the
 * reserve waits for no share. The caller holds the lock.
 */
static int is_behind(const struct budget *b, const struct df_room *r, uint64_t issue)
{
	const struct df_room *at;

	if (is_urgent(b))
		return 0;
	df_list_each(at, &b->held, held)
	{
		if (at->issue >= issue)
			break;
		if (at != r && at->has != DF_ROOM_RESERVE)
			return 1;
	}
	return 0;
}

/*
 * Whether the lane's next group may be launched. If it was asked for, it does not wait for earlier
 * groups of other lanes: the ranks that ask may already have the reserves of other devices. The
 * caller holds the lock.
 */
static int may_launch(struct df_lane *lane, uint64_t group, uint64_t issue)
{
	const struct df_room *r = &lane->room;
	const struct budget *b = of(lane);

	if (r->dropped)
		return 0;
	if (r->open)
		return 1;
	if (r->has == DF_ROOM_RESERVE)
		return group <= r->go;
	if (r->has == DF_ROOM_SHARE && group <= r->asked)
		return 1;
	if (r->has == DF_ROOM_NONE &&
	    (b->nr_shares >= b->most || b->used + lane->ctas > b->sms - b->reserve))
		return 0;
	return !is_behind(b, r, issue);
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
	let(lane);
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

int df_budget_take(struct df_lane *lane, uint64_t group, uint64_t nr, uint64_t issue)
{
	struct df_room *r = &lane->room;
	int may;

	if (!needs_room(lane))
		return 1;
	df_mutex_lock(&lock);
	may = may_launch(lane, group, issue);
	if (may) {
		let(lane);
		if (r->has == DF_ROOM_NONE && !r->open) {
			r->has = DF_ROOM_SHARE;
			give_share(lane, 1);
		}
		/*
		 * An open lane may have no capacity; df_budget_back() then does not count its
		 * operations.
		 */
		if (r->has != DF_ROOM_NONE) {
			r->out += nr;
			r->last = group;
		}
	} else if (!r->dropped) {
		hold(lane, group, issue);
	}
	df_mutex_unlock(&lock);
	return may;
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
	holds = !df_list_empty(&lane->room.held);
	df_mutex_unlock(&lock);
	return holds;
}

int df_budget_is_urgent(int device)
{
	int is;

	df_mutex_lock(&lock);
	is = is_urgent(&budgets[device]);
	df_mutex_unlock(&lock);
	return is;
}

int df_budget_holds_any(int device)
{
	/* RELAXED: for the reason given in count_held(). */
	return __atomic_load_n(&budgets[device].nr_held, __ATOMIC_RELAXED) != 0;
}

struct df_lane *df_budget_next(int device)
{
	struct budget *b = &budgets[device];
	struct df_lane *lane, *found = NULL;
	int any;

	if (!df_budget_holds_any(device))
		return NULL;
	df_mutex_lock(&lock);
	any = is_urgent(b);
	df_list_each(lane, &b->held, room.held)
	{
		if ((found && lane->room.made > found->room.made) ||
		    !may_launch(lane, lane->room.next, lane->room.issue))
			continue;
		found = lane;
		if (!any)
			break;
	}
	df_mutex_unlock(&lock);
	return found;
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

int df_budget_is_stuck(struct df_lane *lane, uint64_t since, uint64_t now)
{
	struct budget *b = of(lane);
	/* RELAXED: the number is only compared with that of the last call. */
	uint64_t ended = __atomic_load_n(&lane->comm->dev->exec.retired, __ATOMIC_RELAXED);
	int is;

	df_mutex_lock(&lock);
	if (b->ended != ended)
		b->still = now;
	b->ended = ended;
	is = now < b->until || now - since > HELD_NS;
	if (!is && now - DF_MAX(b->still, since) > STILL_NS) {
		b->urgent = now - b->until < URGENT_AGAIN * b->urgent
				    ? DF_MIN(2 * b->urgent, URGENT_MAX_NS)
				    : URGENT_MIN_NS;
		b->until = now + b->urgent;
		is = 1;
	}
	df_mutex_unlock(&lock);
	return is;
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
