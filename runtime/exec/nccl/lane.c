/*
 * Makes and ends lanes, and manages their operations (lane.h). While an operation is unfinished,
 * one thread of the process looks for ended operations, launches those that were held (hold.h),
 * asks the real library for asynchronous errors, and starts threads that abort communicators, side
 * by side: a call of that library may block.
 *
 * Lock order: the device's, then the lane's; the list of all lanes is a leaf too.
 */
#include <errno.h>
#include <stdlib.h>
#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/futex.h"
#include "runtime/base/log.h"
#include "runtime/base/thread.h"
#include "runtime/base/time.h"
#include "runtime/blocks.h"
#include "runtime/coll/words.h"
#include "runtime/comm/comm.h"
#include "runtime/comm/process.h"
#include "runtime/devs.h"
#include "runtime/exec/nccl/agree.h"
#include "runtime/exec/nccl/lane.h"
#include "runtime/exec/nccl/put.h"
#include "runtime/exec/nccl/shared.h"
#include "runtime/order/frees.h"
#include "runtime/recorded.h"
#include "runtime/watch/debt.h"
#include "trace/record/writer.h"

#define NAP_MIN_NS  (20 * DF_NS_PER_US)
#define NAP_MAX_NS  DF_NS_PER_MS
#define NAP_HELD_NS (100 * DF_NS_PER_US) /* maximum while operations are held or ranks agree */
#define REST_NS	    (10 * DF_NS_PER_MS)	 /* without work for this time, the thread rests */
#define ERROR_NS    (100 * DF_NS_PER_MS) /* interval between requests for asynchronous errors */
#define ABORT_NS    (2 * DF_NS_PER_S)	 /* maximum time to wait for an abort */

const struct df_lane_calls *df_lane_calls;

static struct {
	struct df_mutex lock;
	struct df_list list;
	int started;
	uint32_t seq;	       /* futex word; changes when there is work */
	uint32_t sleeps;       /* enum sleep, of the thread; atomic */
	int gates;	       /* whether some operations have gates; atomic */
	int waiting;	       /* number of threads that look for ended operations; atomic */
	int turn;	       /* whether the thread has to serve all lanes; atomic */
	struct df_lane *asked; /* the asynchronous error of this lane is being read */
} lanes = {.lock = DF_MUTEX_INIT(DF_RANK_LEAF, "lanes"), .list = DF_LIST_INIT(lanes.list)};

enum sleep { AWAKE, NAPS, RESTS }; /* RESTS: until it is woken */

static const struct df_lane_calls *(*find_calls)(void);

void df_lanes_set(const struct df_lane_calls *(*find)(void))
{
	find_calls = find;
}

int df_lanes_find(void)
{
	df_lane_calls = find_calls ? find_calls() : NULL;
	return df_lane_calls ? 0 : -EOPNOTSUPP;
}

/*
 * Lets the thread see new work: `now`, or when it next looks by itself, if it does not rest. A
 * thread that is awake is not woken, because that costs the caller some microseconds.
 */
static void wake(int now)
{
	uint32_t sleeps;

	/* RELAXED: the next operation orders this store, too. */
	if (now)
		__atomic_store_n(&lanes.turn, 1, __ATOMIC_RELAXED);
	/* SEQ_CST pairs with watch(): else this could miss the sleep, and watch() the number. */
	__atomic_fetch_add(&lanes.seq, 1, __ATOMIC_SEQ_CST);
	sleeps = __atomic_load_n(&lanes.sleeps, __ATOMIC_SEQ_CST);
	/* The exchange lets one of several callers wake it. RELAXED: seq is what both read. */
	if (sleeps >= (now ? NAPS : RESTS) &&
	    __atomic_exchange_n(&lanes.sleeps, AWAKE, __ATOMIC_RELAXED))
		df_futex_wake(&lanes.seq, 1, 0);
}

static int has_ended(const struct df_lane_op *e)
{
	/* ACQUIRE pairs with the lane's write of the word: else results might not be visible. */
	return __atomic_load_n(e->word, __ATOMIC_ACQUIRE) >= e->value;
}

/* operations that this thread has launched but not submitted yet */
static __thread struct df_lane_op *mine;

/* ---- issue ----------------------------------------------------------------------------------- */

/* Appends the operation to the lane's list. `begins`: it begins a group. Both locks held. */
static void enter(struct df_lane *lane, struct df_lane_op *e, int begins)
{
	e->next = NULL;
	lane->nr_groups += begins != 0;
	lane->group = e->group;
	e->turn = lane->nr_groups;
	df_hold_ident(lane, e);
	*lane->last = e;
	lane->last = &e->next;
	if (!lane->next)
		lane->next = e;
}

void df_lane_append(struct df_lane_op *e)
{
	struct df_lane *lane = e->lane;

	if (df_list_empty(&lane->busy))
		df_list_add_tail(&lane->comm->dev->lanes, &lane->busy);
	df_mutex_lock(&lane->lock);
	if (lane->agree) {
		e->next = NULL;
		*lane->last_undecided = e;
		lane->last_undecided = &e->next;
		lane->fresh = lane->fresh ? lane->fresh : e;
	} else {
		enter(lane, e, !lane->nr_groups || e->group != lane->group);
	}
	df_mutex_unlock(&lane->lock);
	e->mine = mine;
	mine = e;
}

static void free_op(struct df_lane_op *e)
{
	/* The lane may still write the word of a dropped operation, so it is not reused. */
	if (!e->dropped)
		df_word_put(e->word);
	free(e->waits);
	free(e);
}

/* Removes an operation from the list of undecided operations. The caller holds both locks. */
static void decide(struct df_lane *lane, struct df_lane_op *e, int begins)
{
	struct df_lane_op **p = &lane->undecided;

	while (*p != e)
		p = &(*p)->next;
	*p = e->next;
	if (!e->next)
		lane->last_undecided = p;
	enter(lane, e, begins);
}

void df_lane_decided(struct df_lane *lane, struct df_lane_op *const *group, size_t nr)
{
	size_t i;

	df_mutex_lock(&lane->comm->dev->lock);
	df_mutex_lock(&lane->lock);
	for (i = 0; i < nr && !lane->ended; i++)
		decide(lane, group[i], !i);
	df_mutex_unlock(&lane->lock);
	df_mutex_unlock(&lane->comm->dev->lock);
}

/* Closes this thread's operations of a lane. From then on they may be freed at any time. */
static void close_mine(struct df_lane *lane)
{
	struct df_lane_op **p = &mine, *e;

	df_mutex_lock(&lane->lock);
	while ((e = *p)) {
		if (e->lane != lane) {
			p = &e->mine;
			continue;
		}
		*p = e->mine;
		e->closed = 1;
	}
	df_mutex_unlock(&lane->lock);
}

void df_lane_use(struct df_lane *lane)
{
	df_mutex_lock(&lanes.lock);
	lane->users++;
	df_mutex_unlock(&lanes.lock);
}

int df_lane_use_listed(const struct df_lane *lane)
{
	struct df_lane *at;
	int is = 0;

	df_mutex_lock(&lanes.lock);
	df_list_each(at, &lanes.list, node) is |= at == lane && ++at->users;
	df_mutex_unlock(&lanes.lock);
	return is;
}

void df_lane_unuse(struct df_lane *lane)
{
	df_mutex_lock(&lanes.lock);
	lane->users--;
	df_mutex_unlock(&lanes.lock);
}

/* Whether the lanes' thread has something to say to rank 0 about an operation. */
static int has_news(struct df_lane *lane)
{
	return df_hold_is_watched(lane) ||
	       (df_budget_holds(lane) && df_budget_is_urgent(lane->comm->dev->index));
}

void df_lane_submitted(void)
{
	struct df_lane *lane;
	int news = 0, device;

	while (mine) {
		lane = mine->lane;
		device = lane->comm->dev->index;
		df_lane_use(lane);
		close_mine(lane);
		if (lane->agree)
			df_lane_agree_wake(lane);
		else
			df_lane_put_all(lane);
		news |= has_news(lane);
		df_lane_unuse(lane);
		/* Groups that were held behind this one may be launched now. */
		if (df_budget_holds_any(device))
			df_lane_put_held(device);
	}
	wake(news);
}

void df_lane_put_decided(struct df_lane *lane)
{
	df_lane_put_all(lane);
	wake(has_news(lane));
}

/* ---- ends ------------------------------------------------------------------------------------ */

/* Removes and returns the first operation if it has ended, else returns NULL. Lock held. */
static struct df_lane_op *take_ended(struct df_lane *lane)
{
	struct df_lane_op *e = lane->oldest;

	if (!e || !e->closed || !e->put || !has_ended(e) || !df_hold_may_forget(lane, e))
		return NULL;
	lane->oldest = e->next;
	if (!e->next)
		lane->last = &lane->oldest;
	lane->depth -= DF_MIN(lane->depth, df_lane_commands(e));
	return e;
}

/*
 * Drops the lane's operations that have ended. Returns their number. Sets *room if capacity became
 * free for a held lane. The caller holds dev->lock.
 */
static int retire(struct df_lane *lane, int *room)
{
	struct df_comm *comm = lane->comm;
	struct df_dev *dev = comm->dev;
	struct df_lane_op *e;
	int nr = 0, full;

	df_mutex_lock(&lane->lock);
	while ((e = take_ended(lane))) {
		df_mutex_unlock(&lane->lock);
		df_trace(DF_REC_OP_DONE, dev->index, comm->trace, comm->rank, e->serial, e->dropped,
			 0, 0, 0);
		df_trace_comm_done(comm->trace);
		*room |= df_budget_back(lane, 1);
		if (!lane->stuck)
			free_op(e);
		/* RELAXED: readers only check whether an operation is in flight. */
		__atomic_store_n(&comm->retired, comm->retired + 1, __ATOMIC_RELAXED);
		__atomic_store_n(&dev->exec.retired, dev->exec.retired + 1, __ATOMIC_RELAXED);
		nr++;
		df_mutex_lock(&lane->lock);
	}
	full = nr && lane->full && lane->depth <= DF_LANE_DEPTH / 2;
	if (!lane->oldest && !lane->undecided)
		df_list_del(&lane->busy);
	df_mutex_unlock(&lane->lock);
	if (full)
		wake(1);
	return nr;
}

static int retire_all(struct df_dev *dev, int *room)
{
	struct df_lane *lane, *tmp;
	int nr = 0;

	df_list_each_safe(lane, tmp, &dev->lanes, busy) nr += retire(lane, room);
	return nr;
}

void df_lane_retire(struct df_dev *dev)
{
	int room = 0;

	(void)retire_all(dev, &room);
	if (room)
		wake(1);
}

static int look(struct df_dev *dev)
{
	int nr, room = 0;

	if (!df_dev_busy(dev) || !df_mutex_trylock(&dev->lock))
		return 0;
	nr = retire_all(dev, &room);
	df_mutex_unlock(&dev->lock);
	/* A thread that is in a call of NCCL must not make another one. */
	if (room && !df_record_inside)
		df_lane_put_held(dev->index);
	/* Another lane may wait for the reserve. */
	if (room && (df_record_inside || df_budget_is_urgent(dev->index)))
		wake(1);
	return nr != 0;
}

int df_lane_pass(int device)
{
	int i, moved = device >= 0 ? look(&df_rt.devs[device]) : 0;

	for (i = 0; i < df_rt.nr_devs; i++)
		if (i != device)
			moved |= look(&df_rt.devs[i]);
	return moved;
}

/* ---- the thread ------------------------------------------------------------------------------ */

enum wanted { ANY, TO_ABORT, LIVING };

/* Returns the next wanted lane after `after`, or NULL. Takes a use of it, drops that of `after`. */
static struct df_lane *next_lane(enum wanted wanted, struct df_lane *after)
{
	int abort = wanted == TO_ABORT ? DF_LANE_TO_ABORT : DF_LANE_LIVES;
	struct df_lane *lane = NULL;
	struct df_list *at;

	df_mutex_lock(&lanes.lock);
	/* A lane that is not in the list any more is followed by itself. */
	at = after ? after->node.next : lanes.list.next;
	for (; at != &lanes.list && (!after || at != &after->node); at = at->next) {
		lane = df_list_entry(at, struct df_lane, node);
		if (wanted == ANY || (lane->real && lane->abort == abort))
			break;
		lane = NULL;
	}
	if (lane)
		lane->users++;
	if (lane && wanted == TO_ABORT)
		lane->abort = DF_LANE_ABORTING;
	if (after)
		after->users--;
	df_mutex_unlock(&lanes.lock);
	return lane;
}

static struct df_lane *find_lane(uint64_t hash, int rank)
{
	struct df_lane *lane, *found = NULL;

	df_mutex_lock(&lanes.lock);
	df_list_each(lane, &lanes.list,
		     node) if (lane->comm->hash == hash && lane->comm->rank == rank) found = lane;
	if (found)
		found->users++;
	df_mutex_unlock(&lanes.lock);
	return found;
}

void df_lane_heard(const void *data, size_t bytes)
{
	if (df_hold_heard(data, bytes))
		wake(1);
}

/*
 * Launches operations that were held, as far as the devices have capacity, and lets the ranks agree
 * on the rest. Returns the maximum time that the thread may nap.
 */
static uint64_t serve_holds(void)
{
	static int again; /* whether the ranks of a communicator agree */
	struct df_lane *lane = NULL;
	int i, held = 0;

	df_hold_read(find_lane, df_lane_unuse);
	for (i = 0; i < df_rt.nr_devs; i++) {
		df_lane_put_held(i);
		held |= df_budget_holds_any(i);
	}
	/* RELAXED: watch() has read the number that wake() changes after this store. */
	if (!__atomic_exchange_n(&lanes.turn, 0, __ATOMIC_RELAXED) && !held && !again)
		return NAP_MAX_NS;
	again = 0;
	while ((lane = next_lane(ANY, lane))) {
		if (df_lane_is_full(lane)) {
			df_backend->set_device(lane->comm->dev->index);
			df_lane_put_all(lane);
		}
		again |= df_hold_turn(lane);
	}
	return held || again ? NAP_HELD_NS : NAP_MAX_NS;
}

static __thread int is_watcher; /* whether the calling thread is the lanes' thread */

/* Waits until no other thread is in a call on the real communicator of a lane that has ended. */
static void wait_for_calls(void *arg)
{
	struct df_lane *lane = arg;
	int in = 1;

	while (in) {
		df_mutex_lock(&lane->lock);
		in = lane->putting;
		df_mutex_unlock(&lane->lock);
		df_mutex_lock(&lanes.lock);
		in |= lanes.asked == lane;
		df_mutex_unlock(&lanes.lock);
		if (in)
			df_sleep_ns(NAP_MIN_NS);
	}
}

static void *abort_one(void *arg)
{
	struct df_lane *lane = arg;

	df_backend->set_device(lane->comm->dev->index);
	df_lane_calls->abort(lane->real, wait_for_calls, lane);
	df_backend->kick(lane->comm->dev->index);
	df_mutex_lock(&lanes.lock);
	lane->abort = DF_LANE_ABORTED;
	lane->users--; /* the lane may be freed from here on */
	df_mutex_unlock(&lanes.lock);
	return NULL;
}

/* Each abort has a thread, because a call that does not return delays its abort. */
static void abort_lanes(void)
{
	struct df_lane *lane;

	while ((lane = next_lane(TO_ABORT, NULL)))
		if (df_thread_start("dfshim-abort", 0, abort_one, lane))
			(void)abort_one(lane);
}

/* Returns the asynchronous error of a lane that no thread aborts, or 0. */
static int error_of(struct df_lane *lane)
{
	int lives, err;

	df_mutex_lock(&lanes.lock);
	lives = lane->abort == DF_LANE_LIVES;
	lanes.asked = lives ? lane : NULL;
	df_mutex_unlock(&lanes.lock);
	err = lives ? df_lane_calls->error(lane->real) : 0;
	df_mutex_lock(&lanes.lock);
	lanes.asked = NULL;
	df_mutex_unlock(&lanes.lock);
	return err;
}

/* Called from time to time: requests asynchronous errors, and compares calls with other nodes. */
static void look_around(void)
{
	struct df_lane *lane = NULL;
	int err;

	while ((lane = next_lane(LIVING, lane))) {
		df_lane_trace_begun(lane);
		err = df_comm_pending(lane->comm) ? error_of(lane) : 0;
		if (err)
			df_comm_end(lane->comm, err, 2);
		df_lane_nodes_turn(lane, df_now_ns());
	}
}

void df_lane_waits(int more)
{
	/* RELAXED: the count only says how soon the lanes' thread looks again. */
	__atomic_fetch_add(&lanes.waiting, more, __ATOMIC_RELAXED);
}

void df_lane_gates(void)
{
	/* RELAXED: the thread reads the flag again whenever operations have ended. */
	__atomic_store_n(&lanes.gates, 1, __ATOMIC_RELAXED);
}

/*
 * Lets the machine forget replays that are over, and open the gates that no lane opens. Returns 1
 * if the thread must look again although no operation is unfinished.
 */
static int look_at_gates(void)
{
	int i, held = 0;

	for (i = 0; i < df_rt.nr_devs && __atomic_load_n(&lanes.gates, __ATOMIC_RELAXED); i++)
		held |= df_backend->kick(i);
	return held;
}

/* Whether operations are unfinished. Stores in *ended how many operations have ended. */
static int busy(uint64_t *ended)
{
	int i, is = 0;

	*ended = 0;
	for (i = 0; i < df_rt.nr_devs; i++) {
		is |= df_dev_busy(&df_rt.devs[i]);
		*ended += __atomic_load_n(&df_rt.devs[i].exec.retired, __ATOMIC_RELAXED);
	}
	return is;
}

static void *watch(void *arg)
{
	uint64_t nap = NAP_MIN_NS, most, asked = df_now_ns(), told = 0, used = asked, ended;
	int rests, held = 0;

	(void)arg;
	is_watcher = 1;
	for (;;) {
		/* ACQUIRE pairs with wake(): without it the thread could miss the new work. */
		uint32_t seq = __atomic_load_n(&lanes.seq, __ATOMIC_ACQUIRE);

		abort_lanes();
		most = serve_holds();
		nap = df_lane_pass(-1) ? NAP_MIN_NS : DF_MIN(nap * 2, most);
		/* Threads that wait see the ends sooner, and this one would take their core. */
		if (__atomic_load_n(&lanes.waiting, __ATOMIC_RELAXED))
			nap = most;
		if (df_now_ns() - asked > ERROR_NS) {
			look_around();
			asked = df_now_ns();
		}
		if (busy(&ended) || ended != told)
			used = df_now_ns();
		/* Other threads retire operations, too, and may hold locks then. */
		if (ended != told)
			df_frees_look();
		if (ended != told || held)
			held = look_at_gates();
		told = ended;
		rests = !held && df_now_ns() - used > REST_NS;
		/* SEQ_CST pairs with wake(), which says why. */
		__atomic_store_n(&lanes.sleeps, rests ? RESTS : NAPS, __ATOMIC_SEQ_CST);
		df_futex_wait(&lanes.seq, seq, rests ? -1 : (int64_t)nap, 0);
		__atomic_store_n(&lanes.sleeps, AWAKE, __ATOMIC_RELAXED);
	}
	return NULL;
}

static int start_thread(void)
{
	int ret = 0;

	df_mutex_lock(&lanes.lock);
	if (!lanes.started) {
		ret = df_thread_start("dfshim-lanes", 0, watch, NULL);
		lanes.started = !ret;
	}
	df_mutex_unlock(&lanes.lock);
	return ret;
}

/* ---- life ------------------------------------------------------------------------------------ */

int df_lane_make(struct df_comm *comm)
{
	struct df_lane *lane = calloc(1, sizeof(*lane));
	int device = comm->dev->index, ret = start_thread(), err;
	long least, most = DF_MIN(df_env_lane_ctas(&least), df_blocks->ctas(device));
	struct df_stream_info info = {0};
	void *real = NULL;

	if (!lane)
		return -ENOMEM;
	lane->comm = comm;
	lane->last = &lane->oldest;
	lane->last_undecided = &lane->undecided;
	if (comm->nranks > 1)
		lane->ctas = comm->config.max_blocks > 0
				     ? DF_MIN(DF_MAX(comm->config.max_blocks, least), most)
				     : most;
	df_list_init(&lane->node);
	df_list_init(&lane->busy);
	df_mutex_init(&lane->lock, DF_RANK_LEAF, "lane");
	lane->pairs = calloc((size_t)comm->nranks, sizeof(*lane->pairs));
	err = lane->pairs ? df_hold_init(lane) : -ENOMEM;
	if (!ret)
		ret = err;
	df_budget_join(lane);
	/* From here on other ranks, which may be ready earlier, find it for messages. */
	df_mutex_lock(&lanes.lock);
	if (!err)
		df_list_add_tail(&lanes.list, &lane->node);
	df_mutex_unlock(&lanes.lock);
	if (!ret)
		ret = df_backend->stream_new(device, &info);
	lane->stream = info.stream;
	/* Called even if something has failed here, because the other ranks wait for this one. */
	err = df_lane_calls->make(comm, ret ? NULL : comm->config.real, (int)most, &real);
	if (!ret)
		ret = err;
	/* Collective over the communicator, so called even if something has failed. */
	err = df_lane_share(lane);
	if (!ret)
		ret = err;
	/* The lanes' thread may use lane->real from here on. */
	df_mutex_lock(&lanes.lock);
	lane->real = real;
	df_mutex_unlock(&lanes.lock);
	if (!ret && df_env()->nccl_order == DF_NCCL_ORDER_AGREE)
		ret = df_lane_agree_start(lane);
	df_mutex_lock(&comm->dev->lock);
	comm->lane = lane;
	df_mutex_unlock(&comm->dev->lock);
	return ret;
}

/* Waits, for a bounded time, until only the caller uses the lane. Returns whether this is so. */
static int is_left(struct df_lane *lane)
{
	uint64_t since = df_now_ns();
	uint32_t users;

	for (;;) {
		df_mutex_lock(&lanes.lock);
		users = lane->users;
		df_mutex_unlock(&lanes.lock);
		if (!users || df_now_ns() - since > ABORT_NS)
			return !users;
		df_sleep_ns(NAP_MIN_NS);
	}
}

void df_lane_free(struct df_comm *comm)
{
	struct df_lane *lane = comm->lane;
	int abort, room;

	if (!lane)
		return;
	df_mutex_lock(&comm->dev->lock);
	(void)retire(lane, &room);
	df_list_del(&lane->busy);
	comm->lane = NULL;
	df_mutex_lock(&lanes.lock);
	df_list_del(&lane->node);
	abort = lane->abort;
	df_mutex_unlock(&lanes.lock);
	df_mutex_unlock(&comm->dev->lock);
	wake(1); /* the thread may have been about to continue from this lane to the next one */
	df_lane_agree_stop(lane);
	df_budget_drop(lane);
	df_budget_leave(lane);
	if (!is_left(lane) || lane->oldest || lane->stuck) {
		df_warn_once(
			"a call of NCCL for a communicator that has ended does not return: its "
			"memory stays");
		df_comm_get(comm); /* a call may still read it */
		return;
	}
	if (lane->real && abort == DF_LANE_LIVES)
		df_lane_calls->destroy(lane->real);
	else if (lane->real && abort == DF_LANE_TO_ABORT)
		df_lane_calls->abort(lane->real, NULL, NULL); /* no thread has aborted it */
	if (lane->stream)
		df_backend->stream_delete(lane->stream);
	df_lane_forget_counts(lane);
	df_lane_agree_free(lane);
	df_lane_unshare(lane);
	df_hold_fini(lane);
	free(lane->pairs);
	free(lane->nodes.reports);
	df_mutex_fini(&lane->lock);
	free(lane);
}

/* Ends the putting on the lane, and asks the thread to abort the real library's communicator. */
static void ask_abort(struct df_lane *lane)
{
	df_mutex_lock(&lane->lock);
	lane->ended = 1;
	df_mutex_unlock(&lane->lock);
	df_mutex_lock(&lanes.lock);
	if (lane->abort == DF_LANE_LIVES) {
		lane->abort = DF_LANE_TO_ABORT;
		lane->abort_ns = df_now_ns();
	}
	df_mutex_unlock(&lanes.lock);
	wake(1);
}

/*
 * Waits, for a bounded time, until the real library's communicator is aborted. The bound holds for
 * several communicators, too, because they are aborted at the same time. If the abort ends in time,
 * no thread puts operations on the lane afterwards.
 */
static void wait_for_abort(struct df_lane *lane)
{
	uint64_t since;
	int state;

	for (;;) {
		df_mutex_lock(&lanes.lock);
		state = lane->abort;
		since = lane->abort_ns;
		df_mutex_unlock(&lanes.lock);
		if (state == DF_LANE_ABORTED || df_now_ns() - since > ABORT_NS)
			return;
		if (is_watcher)
			abort_lanes();
		df_sleep_ns(NAP_MIN_NS);
	}
}

void df_lane_condemn(struct df_comm *comm)
{
	if (comm->lane && comm->lane->real)
		ask_abort(comm->lane);
}

void df_lane_end(struct df_comm *comm)
{
	struct df_dev *dev = comm->dev;
	struct df_lane *lane;
	struct df_lane_op *e;
	int room;

	df_mutex_lock(&dev->lock);
	lane = comm->lane;
	if (lane)
		df_lane_use(lane);
	df_mutex_unlock(&dev->lock);
	if (!lane)
		return;
	if (!lane->real) {
		df_lane_unuse(lane);
		return;
	}
	ask_abort(lane);
	df_budget_drop(lane);
	wait_for_abort(lane);
	df_lane_agree_end(lane);
	df_mutex_lock(&dev->lock);
	df_mutex_lock(&lane->lock);
	while (lane->undecided)
		decide(lane, lane->undecided, 1);
	/* If a thread still puts, its call has not returned in spite of the abort. */
	lane->stuck = lane->putting;
	lane->next = NULL;
	lane->hold.watch = 0;
	for (e = lane->oldest; e; e = e->next)
		e->put = 1;
	df_mutex_unlock(&lane->lock);
	for (e = lane->oldest; e; e = e->next) {
		if (has_ended(e))
			continue;
		e->dropped = 1;
		df_debt_end(e->word);
		/*
		 * NCCL's kernels return, so the lane opens the gates of the operations that are on
		 * it, each when its graph has arrived. RELAXED: the RELEASE below orders this store
		 * for the poll, which opens the other gates.
		 */
		if (e->gate && e->ends)
			__atomic_store_n(&e->gate->lane, e->replay, __ATOMIC_RELAXED);
		/*
		 * RELEASE pairs with df_flight_done() and the streams' waits, which continue with
		 * undefined data: else they could miss these stores. The lane may write it later.
		 */
		__atomic_store_n(e->word, e->value, __ATOMIC_RELEASE);
	}
	(void)retire(lane, &room);
	df_mutex_unlock(&dev->lock);
	wake(1);
	df_backend->kick(dev->index);
	df_lane_unuse(lane);
}
