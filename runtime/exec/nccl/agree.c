/*
 * One order for the operations of a communicator, whatever order its ranks issue them in
 * (DFSHIM_NCCL_ORDER=agree). A rank publishes a unit (one operation, or those of a group) when all
 * that it waits for has ended, so its launch waits for nothing on this rank. Rank 0 finds the units
 * that are ready on all ranks concerned (sequence.c) and sends each rank its next unit. Then the
 * unit's operations are the next in the lane's list, and are held and put as in an order of issue
 * (put.c, hold.c). So all lanes have one order, and every operation there can run when there is
 * room.
 *
 * Each communicator has a thread for this. In a *turn* it uses undecided operations, which are
 * freed by df_lane_end() only after it; it blocks nowhere in it.
 */
#include <errno.h>
#include <stdlib.h>
#include "runtime/base/err.h"
#include "runtime/base/futex.h"
#include "runtime/base/hash.h"
#include "runtime/base/log.h"
#include "runtime/base/thread.h"
#include "runtime/base/time.h"
#include "runtime/base/vec.h"
#include "runtime/comm/comm.h"
#include "runtime/devs.h"
#include "runtime/exec/nccl/agree.h"
#include "runtime/exec/nccl/lane.h"
#include "runtime/exec/nccl/put.h"
#include "runtime/exec/nccl/sequence.h"
#include "runtime/exec/nccl/shared.h"
#include "trace/record/names.h"

#define NAP_MIN_NS (5 * DF_NS_PER_US)
#define NAP_MAX_NS (200 * DF_NS_PER_US)
#define REST_NS	   (100 * DF_NS_PER_MS)
#define SHORT	   (64u << 10) /* bytes of a message that NCCL can send before it is received */

/* A unit of this rank that is not decided. */
struct unit {
	struct unit *next;
	struct df_lane_op **ops;
	size_t nr, published;
	uint32_t number;
};

/* Rank 0: units that may be launched, for which the rank's ring had no room. */
struct turns {
	uint32_t *v;
	size_t nr, cap;
};

struct df_lane_agree {
	struct df_lane *lane;
	struct unit *first, **last; /* in the order of issue */
	uint32_t nr_units;	    /* that there have been */
	int stop;		    /* atomic */
	int alone;		    /* there is no agreed order any more */
	int turning;		    /* the thread is in a turn; the lane's lock */
	/* The thread's: */
	struct df_lane_op *made; /* the last undecided operation that is in a unit; NULL: none is */
	int decided;		 /* there are new operations in the lane's list */
	int failed;		 /* rank 0: -errno */
	/* rank 0: */
	struct df_lanes_sequence *sequence;
	struct turns *turns; /* by slot */
};

static void ring(struct df_lane_area *a)
{
	/* RELEASE pairs with the ACQUIRE in work(): what was written before is found after it. */
	__atomic_fetch_add(&a->bell, 1, __ATOMIC_RELEASE);
	df_futex_wake(&a->bell, 1, 1);
}

static struct df_lane_area *area_of(const struct df_lane *lane)
{
	return &lane->view->areas[lane->view->slot];
}

void df_lane_agree_wake(struct df_lane *lane)
{
	ring(area_of(lane));
}

static uint64_t get(const uint64_t *counter)
{
	/* ACQUIRE pairs with put(): the entries below the counter are there, or are free. */
	return __atomic_load_n(counter, __ATOMIC_ACQUIRE);
}

static void put(uint64_t *counter, uint64_t value)
{
	/* RELEASE pairs with get(): the entries were written, or read, before. */
	__atomic_store_n(counter, value, __ATOMIC_RELEASE);
}

/* ---- this rank's units ----------------------------------------------------------------------- */

/* Operations of the first group that is not in a unit; 0: it is not complete. Lock held. */
static size_t fresh(const struct df_lane_agree *a, struct df_lane_op **first)
{
	struct df_lane_op *e = a->made ? a->made->next : a->lane->undecided;
	uint64_t group = e ? e->group : 0;
	size_t nr = 0;

	*first = e;
	for (; e && e->group == group; e = e->next, nr++)
		if (!e->closed)
			return 0;
	return nr;
}

/* Makes units of the groups that are complete. Returns 1 if there were any, -ENOMEM. */
static int collect(struct df_lane_agree *a)
{
	int any = 0;

	for (;;) {
		struct unit *u = calloc(1, sizeof(*u));
		struct df_lane_op *e;
		size_t i;

		if (!u)
			return -ENOMEM;
		df_mutex_lock(&a->lane->lock);
		u->nr = fresh(a, &e);
		u->ops = u->nr ? malloc(u->nr * sizeof(struct df_lane_op *)) : NULL;
		for (i = 0; u->ops && i < u->nr; i++, e = e->next)
			a->made = u->ops[i] = e;
		df_mutex_unlock(&a->lane->lock);
		if (!u->ops) {
			any = u->nr ? -ENOMEM : any;
			free(u);
			return any;
		}
		u->number = ++a->nr_units;
		*a->last = u;
		a->last = &u->next;
		any = 1;
	}
}

static int is_ready(const struct unit *u)
{
	size_t i;

	for (i = 0; i < u->nr && df_lane_is_ready(u->ops[i]);)
		i++;
	return i == u->nr;
}

static int is_connected(struct df_lane *lane, const struct df_op *op)
{
	int is;

	df_mutex_lock(&lane->lock);
	is = !df_lane_connects(lane, op);
	df_mutex_unlock(&lane->lock);
	return is;
}

static struct df_lane_item item_of(struct df_lane *lane, const struct unit *u, size_t i)
{
	const struct df_lane_op *e = u->ops[i];
	int rank = lane->comm->rank, peer = e->op.root;
	struct df_lane_item item = {.unit = u->number, .last = i + 1 == u->nr};
	uint64_t name[4] = {e->key, e->number, UINT64_MAX, 0};

	if (e->op.kind == DF_COLL_SEND || e->op.kind == DF_COLL_RECV) {
		int sends = e->op.kind == DF_COLL_SEND, from = sends ? rank : peer,
		    to = sends ? peer : rank;

		name[2] = (uint64_t)(uint32_t)from << 32 | (uint32_t)to;
		item.need = 2;
		item.side = !sends;
		item.message = (uint32_t)lane->view->slots[peer] + 1;
		item.is_short = sends && e->op.count <= SHORT &&
				e->op.count * df_dtype_bytes(e->op.type) <= SHORT &&
				is_connected(lane, &e->op);
	} else if (e->op.kind == DF_COLL_SENDRECV_SELF) {
		name[3] = (uint64_t)rank + 1;
		item.need = 1;
	} else {
		item.need = (uint32_t)lane->comm->nranks;
		item.side = (uint32_t)rank;
	}
	item.key = df_hash_bytes(name, sizeof(name), 0);
	return item;
}

/* Publishes operations of the unit while there is room. Returns 1 if any. */
static int publish_unit(struct df_lane_agree *a, struct unit *u)
{
	struct df_lane_area *me = area_of(a->lane);
	uint64_t at = me->published, end = get(&me->consumed) + DF_LANE_ITEMS, from = at;

	for (; u->published < u->nr && at < end; at++)
		me->items[at % DF_LANE_ITEMS] = item_of(a->lane, u, u->published++);
	put(&me->published, at);
	return at != from;
}

/* Returns 1 if any was published; *waits: some are not ready. */
static int publish(struct df_lane_agree *a, int *waits)
{
	struct unit *u;
	int any = 0;

	/* The units' operations do not mix: finish one first. */
	for (u = a->first; u; u = u->next)
		if (u->published && u->published < u->nr) {
			any = publish_unit(a, u);
			if (u->published < u->nr)
				break;
		}
	for (u = u ? NULL : a->first; u; u = u->next) {
		if (u->published)
			continue;
		if (!is_ready(u)) {
			*waits = 1;
			continue;
		}
		any |= publish_unit(a, u);
		if (u->published < u->nr)
			break;
	}
	if (any)
		ring(&a->lane->view->areas[0]);
	return any;
}

/* The unit at *p is next on the lane. */
static void enter(struct df_lane_agree *a, struct unit **p)
{
	struct unit *u = *p, *v;

	*p = u->next;
	if (!u->next)
		a->last = p;
	/* Units are made in the order of undecided operations. */
	if (a->made == u->ops[u->nr - 1]) {
		a->made = NULL;
		for (v = a->first; v; v = v->next)
			a->made = v->ops[v->nr - 1];
	}
	df_lane_decided(a->lane, u->ops, u->nr);
	a->decided = 1;
	free(u->ops);
	free(u);
}

/* Enters those whose turn it is. Returns 1 if there were any. */
static int enter_turns(struct df_lane_agree *a)
{
	struct df_lane_area *me = area_of(a->lane);
	uint64_t at = me->taken, end = get(&me->gone);
	uint64_t from = at;

	for (; at != end; at++) {
		uint32_t number = me->go[at % DF_LANE_GOES];
		struct unit **p = &a->first;

		while (*p && (*p)->number != number)
			p = &(*p)->next;
		put(&me->taken, at + 1);
		if (*p)
			enter(a, p);
	}
	return at != from;
}

/* ---- rank 0 ---------------------------------------------------------------------------------- */

static void go(void *arg, uint32_t slot, uint32_t number)
{
	struct df_lane_agree *a = arg;
	struct turns *t = &a->turns[slot];
	uint32_t *at = DF_VEC_PUSH(t->v, t->nr, t->cap);

	if (at)
		*at = number;
	else
		a->failed = -ENOMEM;
}

/* Takes what ranks have published. Returns 1 if there was any. */
static int consume(struct df_lane_agree *a)
{
	struct df_lane_view *v = a->lane->view;
	int any = 0, ret;
	uint32_t i;

	for (i = 0; i < v->nr; i++) {
		struct df_lane_area *of = &v->areas[i];
		uint64_t at = of->consumed, end = get(&of->published);

		any |= at != end;
		for (; at != end && !a->failed; at++) {
			struct df_lane_item it = of->items[at % DF_LANE_ITEMS];
			struct df_lanes_message m = {it.message - 1, it.is_short != 0};

			ret = df_lanes_sequence_add(a->sequence, i, it.unit, it.key, it.need,
						    it.side, it.message ? &m : NULL, it.last != 0);
			if (ret)
				a->failed = ret;
		}
		if (at != of->consumed)
			put(&of->consumed, at);
	}
	return any;
}

/* Sends the ranks their turns. */
static void tell(struct df_lane_agree *a)
{
	struct df_lane_view *v = a->lane->view;
	uint32_t i;

	for (i = 0; i < v->nr; i++) {
		struct df_lane_area *of = &v->areas[i];
		struct turns *t = &a->turns[i];
		uint64_t at = of->gone, end = get(&of->taken) + DF_LANE_GOES;
		size_t k = 0, j;

		while (k < t->nr && at < end)
			of->go[at++ % DF_LANE_GOES] = t->v[k++];
		if (!k)
			continue;
		for (j = k; j < t->nr; j++)
			t->v[j - k] = t->v[j];
		t->nr -= k;
		put(&of->gone, at);
		if (i != v->slot)
			ring(of);
	}
}

/* No rank waits for an agreed order from here on. */
static void close_order(struct df_lane_agree *a)
{
	struct df_lane_view *v = a->lane->view;
	uint32_t i;

	/* RELEASE pairs with the ACQUIRE in is_closed(): the last turns were announced before. */
	__atomic_store_n(&v->s->closed, 1, __ATOMIC_RELEASE);
	for (i = 0; i < v->nr; i++)
		ring(&v->areas[i]);
}

static int decide(struct df_lane_agree *a)
{
	int any = consume(a);

	tell(a);
	if (a->failed) {
		df_warn_once("communicator %016llx: no order can be agreed on (%s): its "
			     "operations are launched in the order of issue",
			     (unsigned long long)a->lane->comm->hash,
			     a->failed == -ENOMEM ? "no memory" : "ranks contradict one another");
		close_order(a);
	}
	return any;
}

/* ---- the thread ------------------------------------------------------------------------------ */

static int is_closed(const struct df_lane *lane)
{
	/* ACQUIRE pairs with close_order(). */
	return __atomic_load_n(&lane->view->s->closed, __ATOMIC_ACQUIRE) != 0;
}

/*
 * Begins a turn, unless the lane has ended. df_lane_end() waits for the turn before it frees
 * operations that are undecided.
 */
static int begin_turn(struct df_lane_agree *a)
{
	int over;

	df_mutex_lock(&a->lane->lock);
	/* ACQUIRE pairs with df_lane_agree_stop(): no operation is added after it. */
	over = a->lane->ended || __atomic_load_n(&a->stop, __ATOMIC_ACQUIRE);
	a->turning = !over;
	df_mutex_unlock(&a->lane->lock);
	return !over;
}

static void end_turn(struct df_lane_agree *a)
{
	df_mutex_lock(&a->lane->lock);
	a->turning = 0;
	df_mutex_unlock(&a->lane->lock);
}

void df_lane_agree_end(struct df_lane *lane)
{
	int in = lane->agree != NULL;

	while (in) {
		df_mutex_lock(&lane->lock);
		in = lane->agree->turning;
		df_mutex_unlock(&lane->lock);
		if (in)
			df_sleep_ns(NAP_MIN_NS);
	}
}

static void *work(void *arg)
{
	struct df_lane_agree *a = arg;
	struct df_lane *lane = a->lane;
	struct df_lane_area *me = area_of(lane);
	uint64_t nap = NAP_MIN_NS;

	df_backend->set_device(lane->comm->dev->index);
	while (begin_turn(a)) {
		/* ACQUIRE pairs with ring(). */
		uint32_t bell = __atomic_load_n(&me->bell, __ATOMIC_ACQUIRE);
		int waits = 0, moved;

		a->alone |= is_closed(lane);
		moved = collect(a);
		if (moved >= 0)
			moved |= enter_turns(a);
		while (a->alone && a->first && moved >= 0)
			enter(a, &a->first);
		if (!a->alone && moved >= 0) {
			moved |= publish(a, &waits);
			if (a->sequence)
				moved |= decide(a);
		}
		end_turn(a);
		if (moved < 0) {
			df_comm_end(lane->comm, moved, 1);
			break;
		}
		if (a->decided)
			df_lane_put_decided(lane);
		a->decided = 0;
		nap = moved ? NAP_MIN_NS : DF_MIN(nap * 2, NAP_MAX_NS);
		if (!moved)
			(void)df_futex_wait(&me->bell, bell, (int64_t)(waits ? nap : REST_NS), 1);
	}
	if (a->sequence)
		close_order(a);
	df_lane_unuse(lane);
	return NULL;
}

int df_lane_agree_start(struct df_lane *lane)
{
	struct df_lane_view *v = lane->view;
	struct df_lane_agree *a;
	int ret;

	if (!v || (int)v->nr != lane->comm->nranks) {
		if (lane->comm->nranks > 1)
			df_warn_once(
				"DFSHIM_NCCL_ORDER=agree: the ranks of communicator %016llx are not "
				"all on one node, so its operations keep their order of issue",
				(unsigned long long)lane->comm->hash);
		return 0;
	}
	a = calloc(1, sizeof(*a));
	if (!a)
		return -ENOMEM;
	a->lane = lane;
	a->last = &a->first;
	lane->agree = a;
	if (!lane->comm->rank) {
		a->sequence = df_lanes_sequence_new(v->nr, go, a);
		a->turns = calloc(v->nr, sizeof(*a->turns));
		if (!a->sequence || !a->turns)
			return -ENOMEM;
	}
	df_lane_use(lane);
	ret = df_thread_start("dfshim-order", 0, work, a);
	if (ret)
		df_lane_unuse(lane);
	return ret;
}

void df_lane_agree_stop(struct df_lane *lane)
{
	if (!lane->agree)
		return;
	/* RELEASE pairs with begin_turn(). */
	__atomic_store_n(&lane->agree->stop, 1, __ATOMIC_RELEASE);
	ring(area_of(lane));
}

void df_lane_agree_free(struct df_lane *lane)
{
	struct df_lane_agree *a = lane->agree;
	struct unit *u;
	uint32_t i;

	if (!a)
		return;
	while ((u = a->first)) {
		a->first = u->next;
		free(u->ops);
		free(u);
	}
	for (i = 0; a->turns && i < lane->view->nr; i++)
		free(a->turns[i].v);
	free(a->turns);
	df_lanes_sequence_free(a->sequence);
	free(a);
	lane->agree = NULL;
}
