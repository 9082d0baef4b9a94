/*
 * Agrees on one order for the operations of a communicator, whatever order its ranks issue them in
 * (DFSHIM_NCCL_ORDER=agree). A rank publishes an operation when everything for which it waits has
 * ended, so its launch waits for nothing on this rank. Rank 0 finds the operations that are ready
 * on all ranks concerned (sequence.c) and sends each rank its next ones. These are then the next in
 * the lane's list, as one group, and are held and put as in an order of issue (put.c, hold.c). So
 * all lanes have one order, and every operation on them can run when the device has capacity.
 *
 * Each communicator has a thread for this. In a *turn* the thread uses undecided operations.
 * df_lane_end() frees these only after the turn, and the thread does not block within a turn. A
 * thread is woken by its rank's *bell*, a futex word in the shared memory.
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
#define PAUSE_NS   (200 * DF_NS_PER_US) /* interval of pauses (df_lanes_sequence_pause()) */
#define SHORT	   (64u << 10) /* bytes of a message that NCCL can send before it is received */

/* An operation of a unit. */
struct part {
	struct df_lane_op *op; /* NULL if it is decided */
	uint32_t number;       /* for a send: its number among those to this peer */
	uint8_t is_published;
};

/* Operations of this rank that were issued together, some of which are not decided. */
struct unit {
	struct unit *next;
	uint32_t number;
	uint32_t nr, left; /* number of operations, and number of those that are not decided */
	struct part parts[];
};

/* Operations that are the next in the lane's list, as one group. */
struct group {
	struct df_lane_op **v;
	size_t nr, cap;
};

/* On rank 0: operations that may be launched but did not fit into the rank's ring. */
struct turns {
	struct df_lane_turn *v;
	size_t nr, cap;
};

struct df_lane_agree {
	struct df_lane *lane;
	struct unit *first, **last; /* in the order of issue */
	uint32_t nr_units;	    /* number of units that were made */
	uint32_t *sends;	    /* number of sends so far, by slot */
	int stop;		    /* atomic */
	int alone;		    /* whether there is no agreed order any more */
	/* whether the thread is in a turn; guarded by the lane's lock */
	int turning;
	/* Only the thread uses these: */
	struct group group; /* the group of which rank 0 has sent a part */
	int decided;	    /* whether there are new operations in the lane's list */
	int failed;	    /* on rank 0: -errno of a failure */
	/* On rank 0: */
	struct df_lanes_sequence *sequence;
	uint64_t paused;     /* when the sequence was last paused */
	struct turns *turns; /* by slot */
};

static void ring(struct df_lane_area *a)
{
	/*
	 * RELEASE pairs with the ACQUIRE in work(): without it the woken thread could miss entries
	 * that were written before.
	 */
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
	/*
	 * ACQUIRE pairs with put(): without it the entries before the counter could be read before
	 * they are written, or overwritten before they are read.
	 */
	return __atomic_load_n(counter, __ATOMIC_ACQUIRE);
}

static void put(uint64_t *counter, uint64_t value)
{
	/* RELEASE pairs with get(), which says why. */
	__atomic_store_n(counter, value, __ATOMIC_RELEASE);
}

/* ---- this rank's units ----------------------------------------------------------------------- */

/*
 * Returns the number of operations of the first group that is not in a unit, or 0 if that group is
 * not complete. The caller holds the lock.
 */
static uint32_t fresh(const struct df_lane *lane)
{
	const struct df_lane_op *e = lane->fresh;
	uint64_t group = e ? e->group : 0;
	uint32_t nr = 0;

	for (; e && e->group == group; e = e->next, nr++)
		if (!e->closed)
			return 0;
	return nr;
}

/*
 * Returns the next unit, or NULL if there is none or memory is short (then *ret is -ENOMEM). The
 * caller holds the lock.
 */
static struct unit *next_unit(struct df_lane_agree *a, int *ret)
{
	struct df_lane *lane = a->lane;
	uint32_t nr = fresh(lane), i;
	struct unit *u = nr ? calloc(1, sizeof(*u) + nr * sizeof(u->parts[0])) : NULL;

	if (nr && !u)
		*ret = -ENOMEM;
	for (i = 0; u && i < nr; i++, lane->fresh = lane->fresh->next) {
		u->parts[i].op = lane->fresh;
		if (lane->fresh->op.kind == DF_COLL_SEND)
			u->parts[i].number = a->sends[lane->view->slots[lane->fresh->op.root]]++;
	}
	if (u)
		u->nr = u->left = nr;
	return u;
}

/*
 * Makes units of the groups that are complete. Returns 1 if there were any, 0 if not, or
 * -ENOMEM.
 */
static int collect(struct df_lane_agree *a)
{
	int any = 0, ret = 0;

	for (;;) {
		struct unit *u;

		df_mutex_lock(&a->lane->lock);
		u = next_unit(a, &ret);
		df_mutex_unlock(&a->lane->lock);
		if (!u)
			return ret ? ret : any;
		u->number = ++a->nr_units;
		*a->last = u;
		a->last = &u->next;
		any = 1;
	}
}

static int is_connected(struct df_lane *lane, const struct df_op *op)
{
	int is;

	df_mutex_lock(&lane->lock);
	is = !df_lane_connects(lane, op);
	df_mutex_unlock(&lane->lock);
	return is;
}

static struct df_lanes_item item_of(struct df_lane *lane, const struct unit *u, uint32_t i)
{
	const struct df_lane_op *e = u->parts[i].op;
	int rank = lane->comm->rank, peer = e->op.root;
	struct df_lanes_item item = {.unit = u->number, .op = i, .nr = u->nr};
	uint64_t name[4] = {e->key, e->number, UINT64_MAX, 0};

	if (e->op.kind == DF_COLL_SEND || e->op.kind == DF_COLL_RECV) {
		int sends = e->op.kind == DF_COLL_SEND, from = sends ? rank : peer,
		    to = sends ? peer : rank;

		name[2] = (uint64_t)(uint32_t)from << 32 | (uint32_t)to;
		item.need = 2;
		item.side = !sends;
		item.message = (uint32_t)lane->view->slots[peer] + 1;
		item.number = u->parts[i].number;
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

/*
 * Publishes operations that are ready. Returns 1 if it published any. Sets *waits if it must be
 * called again although no bell rings.
 */
static int publish(struct df_lane_agree *a, int *waits)
{
	struct df_lane_area *me = area_of(a->lane);
	uint64_t at = me->published, end = get(&me->consumed) + DF_LANE_ITEMS, from = at;
	struct unit *u;
	uint32_t i;

	for (u = a->first; u && at < end; u = u->next)
		for (i = 0; i < u->nr && at < end; i++) {
			struct part *p = &u->parts[i];

			if (p->is_published)
				continue;
			if (!df_lane_is_ready(p->op)) {
				*waits = 1;
				continue;
			}
			me->items[at++ % DF_LANE_ITEMS] = item_of(a->lane, u, i);
			p->is_published = 1;
		}
	*waits |= at == end;
	if (at == from)
		return 0;
	put(&me->published, at);
	ring(&a->lane->view->areas[0]);
	return 1;
}

/*
 * Takes an operation that is decided from its unit, and frees the unit with its last operation.
 * Returns the operation, or NULL.
 */
static struct df_lane_op *take_part(struct df_lane_agree *a, struct unit **at, uint32_t i)
{
	struct unit *u = *at;
	struct df_lane_op *e = i < u->nr ? u->parts[i].op : NULL;

	if (!e)
		return NULL;
	u->parts[i].op = NULL;
	if (--u->left)
		return e;
	*at = u->next;
	if (!u->next)
		a->last = at;
	free(u);
	return e;
}

static int add_to_group(struct group *g, struct df_lane_op *e)
{
	struct df_lane_op **at = DF_VEC_PUSH(g->v, g->nr, g->cap);

	if (!at)
		return -ENOMEM;
	*at = e;
	return 0;
}

static void enter_group(struct df_lane_agree *a)
{
	if (a->group.nr)
		df_lane_decided(a->lane, a->group.v, a->group.nr);
	a->decided |= a->group.nr != 0;
	a->group.nr = 0;
}

/* Enters the operations whose turn it is. Returns 1 if there were any, 0 if not, or -ENOMEM. */
static int enter_turns(struct df_lane_agree *a)
{
	struct df_lane_area *me = area_of(a->lane);
	uint64_t at = me->taken, end = get(&me->gone);
	uint64_t from = at;

	for (; at != end; at++) {
		struct df_lane_turn t = me->go[at % DF_LANE_GOES];
		struct unit **u = &a->first;
		struct df_lane_op *e;

		while (*u && (*u)->number != t.unit)
			u = &(*u)->next;
		put(&me->taken, at + 1);
		e = *u ? take_part(a, u, t.op) : NULL;
		if (e && add_to_group(&a->group, e))
			return -ENOMEM;
		if (t.last)
			enter_group(a);
	}
	return at != from;
}

/*
 * Enters the remaining operations in the order of issue, because no order is agreed any more.
 * Returns 0 or -ENOMEM.
 */
static int enter_rest(struct df_lane_agree *a)
{
	uint32_t i, nr;

	/* Rank 0 may have left in the middle of a group. */
	enter_group(a);
	while (a->first) {
		for (i = 0, nr = a->first->nr; i < nr; i++) {
			int is_last = a->first->left == 1;
			struct df_lane_op *e = take_part(a, &a->first, i);

			if (e && add_to_group(&a->group, e))
				return -ENOMEM;
			if (e && is_last)
				break;
		}
		enter_group(a);
	}
	return 0;
}

/* ---- rank 0 ---------------------------------------------------------------------------------- */

static void go(void *arg, uint32_t slot, uint32_t unit, uint32_t op, int last)
{
	struct df_lane_agree *a = arg;
	struct turns *t = &a->turns[slot];
	struct df_lane_turn *at = DF_VEC_PUSH(t->v, t->nr, t->cap);

	if (at)
		*at = (struct df_lane_turn){unit, op, last != 0};
	else
		a->failed = -ENOMEM;
}

/* Takes the operations that ranks have published. Returns 1 if there were any. */
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
			struct df_lanes_item it = of->items[at % DF_LANE_ITEMS];

			ret = df_lanes_sequence_add(a->sequence, i, &it);
			if (ret)
				a->failed = ret;
		}
		if (at != of->consumed)
			put(&of->consumed, at);
	}
	return any;
}

/* Sends each rank the numbers of its units, in the agreed order. */
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

/* Ends the agreed order: the ranks then launch in their own order of issue. */
static void close_order(struct df_lane_agree *a)
{
	struct df_lane_view *v = a->lane->view;
	uint32_t i;

	/*
	 * RELEASE pairs with the ACQUIRE in is_closed(): without it a rank could miss the last
	 * turns.
	 */
	__atomic_store_n(&v->s->closed, 1, __ATOMIC_RELEASE);
	for (i = 0; i < v->nr; i++)
		ring(&v->areas[i]);
}

/*
 * Pauses the sequence after PAUSE_NS. Operations that are still missing then may wait for the end
 * of those that have arrived.
 */
static void pause_sequence(struct df_lane_agree *a)
{
	uint64_t now = df_now_ns();

	if (a->failed || !df_lanes_sequence_waits(a->sequence) || now - a->paused < PAUSE_NS)
		return;
	a->paused = now;
	a->failed = df_lanes_sequence_pause(a->sequence);
}

static int decide(struct df_lane_agree *a)
{
	int any = consume(a);

	pause_sequence(a);
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
	/* ACQUIRE pairs with the RELEASE in close_order(), which says why. */
	return __atomic_load_n(&lane->view->s->closed, __ATOMIC_ACQUIRE) != 0;
}

/*
 * Begins a turn unless the lane has ended. Returns whether it began. df_lane_end() waits for the
 * end of the turn before it frees undecided operations.
 */
static int begin_turn(struct df_lane_agree *a)
{
	int over;

	df_mutex_lock(&a->lane->lock);
	/*
	 * ACQUIRE pairs with the RELEASE in df_lane_agree_stop(), after which no operation is
	 * added.
	 */
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

/*
 * Returns how long the thread may sleep if no bell rings. `waits`: some operations are not
 * ready.
 */
static int64_t sleep_ns(const struct df_lane_agree *a, int waits, uint64_t nap)
{
	uint64_t most = waits ? nap : REST_NS;

	if (a->sequence && df_lanes_sequence_waits(a->sequence))
		most = DF_MIN(most, PAUSE_NS);
	return (int64_t)most;
}

static void *work(void *arg)
{
	struct df_lane_agree *a = arg;
	struct df_lane *lane = a->lane;
	struct df_lane_area *me = area_of(lane);
	uint64_t nap = NAP_MIN_NS;

	df_backend->set_device(lane->comm->dev->index);
	while (begin_turn(a)) {
		/* ACQUIRE pairs with the RELEASE in ring(), which says why. */
		uint32_t bell = __atomic_load_n(&me->bell, __ATOMIC_ACQUIRE);
		int waits = 0, moved, entered;

		a->alone |= is_closed(lane);
		moved = collect(a);
		entered = moved < 0 ? 0 : enter_turns(a);
		if (entered >= 0 && moved >= 0 && a->alone)
			entered |= enter_rest(a);
		moved = entered < 0 ? -ENOMEM : moved | entered;
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
			(void)df_futex_wait(&me->bell, bell, sleep_ns(a, waits, nap), 1);
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
				"DFSHIM_NCCL_ORDER=agree: the ranks of communicator %016llx are "
				"not all on one node, so its operations keep their order of issue",
				(unsigned long long)lane->comm->hash);
		return 0;
	}
	a = calloc(1, sizeof(*a));
	if (!a)
		return -ENOMEM;
	a->lane = lane;
	a->last = &a->first;
	lane->agree = a;
	a->sends = calloc(v->nr, sizeof(*a->sends));
	if (!a->sends)
		return -ENOMEM;
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
	/*
	 * RELEASE pairs with the ACQUIRE in begin_turn(): without it the thread could miss the last
	 * operations.
	 */
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
		free(u);
	}
	for (i = 0; a->turns && i < lane->view->nr; i++)
		free(a->turns[i].v);
	free(a->turns);
	free(a->group.v);
	free(a->sends);
	df_lanes_sequence_free(a->sequence);
	free(a);
	lane->agree = NULL;
}
