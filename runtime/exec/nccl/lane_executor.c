/*
 * NCCL's own kernels as an executor (runtime/executor.h): the real library executes operations,
 * each communicator's on its lane. Points (runtime/executor.h) are words that streams write and
 * wait for.
 */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/hash.h"
#include "runtime/base/log.h"
#include "runtime/base/time.h"
#include "runtime/blocks.h"
#include "runtime/coll/words.h"
#include "runtime/comm/comm.h"
#include "runtime/comm/flights.h"
#include "runtime/comm/process.h"
#include "runtime/ctl/ctl.h"
#include "runtime/devs.h"
#include "runtime/exec/nccl/compare.h"
#include "runtime/exec/nccl/lane.h"
#include "runtime/exec/nccl/shared.h"
#include "runtime/program/build/cost.h"

/* identifies this executor, so that ranks with another one are noticed */
#define SETTINGS 0x6c616e6573ull

/*
 * A wait yields this often before it naps: a nap takes 50 us at least, and its timer costs more
 * than yielding for as long.
 */
#define WAIT_SPINS  500
#define WAIT_MAX_NS (200 * DF_NS_PER_US)
/*
 * Maximum where the machine wakes the thread when a stream moves. Only an abort or a release may be
 * seen that late. Shorter sleeps take time from the threads that move the data.
 */
#define SLEEP_MAX_NS (2 * DF_NS_PER_MS)

/* ---- the process and its communicators ------------------------------------------------------- */

/* Warns of settings of the daemon, which would otherwise be ignored silently. */
static void warn_ignored(void)
{
	static const enum df_env_row rows[] = {DF_ENV_ROW_algo, DF_ENV_ROW_tuner, DF_ENV_ROW_order,
					       DF_ENV_ROW_priority, DF_ENV_ROW_net};
	size_t i;

	for (i = 0; i < DF_ARRAY_LEN(rows); i++)
		if (df_env()->set[rows[i]])
			df_warn("%s is ignored: it is for DFSHIM_EXECUTOR=daemon",
				df_env_name(rows[i]));
}

static int setup(void)
{
	if (df_lanes_find()) {
		snprintf(df_rt.reason, sizeof(df_rt.reason), "DFSHIM_EXECUTOR=nccl: %s",
			 df_blocks->gpu ? "no libnccl.so.2 of version 2.19 or later was found"
					: "libdfnccl.so is not preloaded (dfshim run --host "
					  "--executor nccl does that), or an NCCL before 2.19 is");
		return -EOPNOTSUPP;
	}
	warn_ignored();
	df_rt.settings = SETTINGS + (uint64_t)df_env()->nccl_order;
	return df_budget_init(df_rt.nr_devs);
}

static int open_comm(struct df_comm *comm, int nranks, struct df_member *me)
{
	int device = comm->dev->index;

	(void)nranks;
	if (df_blocks->open(device, df_rt.reason, sizeof(df_rt.reason)))
		return -EOPNOTSUPP;
	me->device_id = df_blocks->device_id(device);
	if (!me->device_id)
		me->device_id = df_hash_u64(me->host, (uint64_t)device + 1);
	me->gpu = df_blocks->gpu;
	me->settings = df_rt.settings;
	me->blocks = 1;
	return 0;
}

static void terms(const struct df_comm *comm, int nranks, struct df_cal *cal, uint32_t *avoid)
{
	(void)comm;
	(void)nranks;
	(void)avoid;
	memset(cal, 0, sizeof(*cal));
}

static int meet(struct df_comm *comm, const struct df_comm *parent, const struct df_cal *rows)
{
	(void)parent;
	(void)rows;
	return df_lane_make(comm);
}

static void start(struct df_comm *comm)
{
	(void)comm;
}

/* The ends of operations are recorded, since the other processes learn from the records. */
static void linger(int living)
{
	int i;

	(void)living;
	for (i = 0; i < df_rt.nr_devs; i++) {
		df_mutex_lock(&df_rt.devs[i].lock);
		df_lane_retire(&df_rt.devs[i]);
		df_mutex_unlock(&df_rt.devs[i].lock);
	}
}

/* ---- one operation --------------------------------------------------------------------------- */

static int prepare(struct df_launch *l)
{
	struct df_lane *lane = l->comm->lane;

	if (!lane)
		return -ECANCELED;
	l->on_lane = calloc(1, sizeof(*l->on_lane));
	if (!l->on_lane)
		return -ENOMEM;
	l->on_lane->lane = lane;
	l->queue = lane->agree ? NULL : lane;
	return 0;
}

static void drop(struct df_launch *l)
{
	if (l->on_lane->word)
		df_word_put(l->on_lane->word);
	free(l->on_lane->waits);
	free(l->on_lane);
}

static void add_wait(struct df_lane_op *e, const uint64_t *addr, uint64_t value)
{
	e->waits[e->nr_waits++] = (struct df_kwait){(uint64_t *)(uintptr_t)addr, value};
}

/* Returns a key that is equal on all ranks, and for a send and its receive. */
static uint64_t key_of(const struct df_comm *comm, const struct df_sig *sig)
{
	int pair = sig->kind == DF_COLL_SEND || sig->kind == DF_COLL_RECV;
	const uint64_t name[] = {comm->hash, sig->count,
				 (uint64_t)(pair ? DF_COLL_SEND : sig->kind) << 32 | sig->type,
				 pair ? 0 : (uint64_t)sig->redop << 32 | (uint32_t)sig->root,
				 sig->id | (uint64_t)sig->no_data << 32};

	return df_hash_bytes(name, sizeof(name), 0);
}

static struct df_lane_count *count_of(struct df_lane *lane, const struct df_sig *sig)
{
	struct df_lane_count *c;

	HASH_FIND(hh, lane->counts, sig, sizeof(*sig), c);
	if (c)
		return c;
	c = calloc(1, sizeof(*c));
	if (!c)
		return NULL;
	c->sig = *sig;
	c->key = key_of(lane->comm, sig);
	c->match = df_lane_match(sig);
	HASH_ADD(hh, lane->counts, sig, sizeof(c->sig), c);
	return c;
}

void df_lane_forget_counts(struct df_lane *lane)
{
	struct df_lane_count *c, *tmp;

	HASH_ITER(hh, lane->counts, c, tmp)
	{
		HASH_DEL(lane->counts, c);
		free(c);
	}
}

static int place(struct df_launch *l)
{
	struct df_lane_op *e = l->on_lane;
	struct df_lane_count *c = count_of(e->lane, l->sig);
	uint32_t i;

	/* space for three waits besides earlier operations: latest, previous replay, ready */
	e->waits = malloc((l->nr_after + 3) * sizeof(*e->waits));
	e->word = df_word_get();
	if (!c || !e->waits || !e->word)
		return -ENOMEM;
	/*
	 * RELAXED: only this thread has the word now. A reused word continues from its present
	 * value.
	 */
	e->value = __atomic_load_n(e->word, __ATOMIC_RELAXED) + 1;
	for (i = 0; i < l->nr_after; i++)
		add_wait(e, l->after[i].wait.addr, l->after[i].wait.value);
	if (l->latest.addr)
		add_wait(e, l->latest.addr, l->latest.value);
	if (l->gate) {
		/*
		 * The gate's `arrived` was set for the previous replay and stays set until the lane
		 * has cleared it. The lane has cleared it when that replay has ended, so wait for
		 * its end.
		 */
		if (l->previous.addr)
			add_wait(e, l->previous.addr, l->previous.value);
		e->gate = l->gate;
		e->replay = l->opens = ++l->gate->issued;
		df_lane_gates();
	}
	if (l->ready.addr)
		add_wait(e, l->ready.addr, l->ready.value);
	e->op = *l->op;
	e->op.ticket = NULL;
	e->serial = l->serial;
	e->group = l->group;
	e->key = c->key;
	e->number = c->nr;
	e->match = c->match;
	l->done = e->word;
	l->value = e->value;
	l->key = c->key;
	l->number = c->nr++;
	l->program = 0;
	l->proto = 0;
	return 0;
}

static void launch(struct df_launch *l)
{
	struct df_comm *comm = l->comm;
	struct df_dev *dev = l->dev;

	comm->index++;
	/* RELAXED: readers only check whether an operation is in flight. */
	__atomic_store_n(&comm->issued, comm->issued + 1, __ATOMIC_RELAXED);
	__atomic_store_n(&dev->exec.issued, dev->exec.issued + 1, __ATOMIC_RELAXED);
	l->on_lane->issue = dev->exec.issued;
	df_lane_append(l->on_lane);
}

/* ---- around the operations of a group -------------------------------------------------------- */

static uint32_t shown(const struct df_comm *comm, const void *in, const void *out, uint64_t bytes)
{
	(void)comm;
	(void)in;
	(void)out;
	(void)bytes;
	return 0;
}

static void reserve(void)
{
	df_blocks->reserve();
}

static void first_turns(struct df_dev *dev, uint64_t bytes)
{
	(void)dev;
	(void)bytes;
}

/* ---- points ---------------------------------------------------------------------------------- */

static uint32_t waiting_streams(void)
{
	return df_blocks->queues ? df_blocks->queues - DF_LANE_QUEUES : 0;
}

/* Each operation is a launch. */
static int crowd(int device)
{
	(void)device;
	return 0;
}

static int add_op(const struct df_lane_op *e, struct df_flights *set)
{
	struct df_flight f = {.queue = e->lane->agree ? NULL : e->lane,
			      .done = e->word,
			      .value = e->value,
			      .op = e->serial};

	return df_flight_done(&f) ? 0 : df_flights_add(set, &f);
}

static int add_flights(struct df_lane *lane, struct df_flights *set)
{
	struct df_lane_op *e;
	int ret = 0;

	df_mutex_lock(&lane->lock);
	/* If operations end in their order of issue, waiting for the last one is enough. */
	for (e = lane->oldest; e && !ret; e = e->next)
		if (lane->agree || !e->next)
			ret = add_op(e, set);
	for (e = lane->undecided; e && !ret; e = e->next)
		ret = add_op(e, set);
	df_mutex_unlock(&lane->lock);
	return ret;
}

static int in_flight(struct df_dev *dev, struct df_flights *set)
{
	struct df_lane *lane;
	int ret = 0;

	df_list_each(lane, &dev->lanes, busy) if (!ret) ret = add_flights(lane, set);
	return ret;
}

/* ---- progress -------------------------------------------------------------------------------- */

/* Waits on a machine whose streams move without help. */
static void poll(struct df_dev *dev, int (*ready)(void *arg), void *arg)
{
	uint64_t nap = 0;
	unsigned spins = 0;

	while (!ready(arg)) {
		if (df_lane_pass(dev->index)) {
			spins = 0;
			nap = 0;
		} else if (++spins < WAIT_SPINS) {
			sched_yield();
		} else {
			nap = DF_MIN(nap + DF_NS_PER_US, WAIT_MAX_NS);
			df_sleep_ns(nap);
		}
	}
}

static void wait(struct df_dev *dev, int (*ready)(void *arg), void *arg)
{
	df_lane_waits(1);
	if (df_backend->wait)
		df_backend->wait(dev->index, ready, arg, SLEEP_MAX_NS);
	else
		poll(dev, ready, arg);
	df_lane_waits(-1);
}

static uint64_t progress_of(const struct df_dev *dev)
{
	return __atomic_load_n(&dev->exec.issued, __ATOMIC_RELAXED) +
	       __atomic_load_n(&dev->exec.retired, __ATOMIC_RELAXED);
}

static uint64_t progress(const struct df_dev *dev)
{
	uint64_t sum = 0;
	int i;

	if (dev)
		return progress_of(dev);
	for (i = 0; i < df_rt.nr_devs; i++)
		sum += progress_of(&df_rt.devs[i]);
	return sum;
}

/* Does nothing: threads in wait() sleep for a short time only. */
static void wake(void) {}

static void note_held(uint64_t now_ns, uint64_t pause_ns)
{
	(void)now_ns;
	(void)pause_ns;
}

const struct df_executor df_lane_executor = {
	.setup = setup,
	.open = open_comm,
	.terms = terms,
	.meet = meet,
	.start = start,
	.retire = df_lane_retire,
	.condemn = df_lane_condemn,
	.end = df_lane_end,
	.forget = df_lane_free,
	.heard = df_lane_heard,
	.linger = linger,
	.prepare = prepare,
	.place = place,
	.launch = launch,
	.drop = drop,
	.shown = shown,
	.reserve = reserve,
	.first_turns = first_turns,
	.submitted = df_lane_submitted,
	.mark_init = df_mark_init,
	.mark = df_word_mark,
	.waiting_streams = waiting_streams,
	.crowd = crowd,
	.in_flight = in_flight,
	.pass = df_lane_pass,
	.wait = wait,
	.progress = progress,
	.wake = wake,
	.note_held = note_held,
};
