/*
 * The daemon as an executor (runtime/executor.h): an operation becomes an instance of its
 * collective, with all its waits, and is submitted to the daemon's blocks. Points are words that
 * streams write and wait for.
 */
#include <errno.h>
#include "kernels/abi.h"
#include "runtime/backend.h"
#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/list.h"
#include "runtime/base/lock.h"
#include "runtime/base/time.h"
#include "runtime/blocks.h"
#include "runtime/coll/coll.h"
#include "runtime/coll/connector.h"
#include "runtime/coll/words.h"
#include "runtime/comm/comm.h"
#include "runtime/comm/flights.h"
#include "runtime/comm/stats.h"
#include "runtime/coll/dev.h"
#include "runtime/daemon/engine.h"
#include "runtime/daemon/life.h"
#include "runtime/daemon/sched.h"
#include "runtime/daemon/setup.h"
#include "runtime/dfshim.h"
#include "runtime/executor.h"
#include "runtime/program/program.h"
#include "kernels/bell.h"
#include "runtime/coll/byref.h"
#include "runtime/transport/net/net.h"
#include "runtime/transport/transport.h"

#define SAMPLE 64 /* one in this many submissions is timed, for DFSHIM_STATS */

/* ---- one operation -------------------------------------------------------------------------- */

static int prepare(struct df_launch *l)
{
	struct df_coll *coll;
	int ret = df_coll_get(l->comm, l->sig, l->in_place, &coll);

	if (ret)
		return ret;
	l->coll = coll;
	/* One block executes the instances of its collective in order. */
	l->queue = coll->k.nr_blocks <= 1 ? coll : NULL;
	coll->entering++;
	if (df_unlikely(coll->parked))
		ret = df_coll_reconnect(coll);
	if (ret) {
		coll->entering--;
		return ret;
	}
	if (!df_list_empty(&coll->holding) && coll->holding.next != &l->dev->holding) {
		/* Recently used: recycle its connectors last. */
		df_list_del(&coll->holding);
		df_list_add_tail(&l->dev->holding, &coll->holding);
	}
	return 0;
}

static void drop(struct df_launch *l)
{
	l->coll->entering--;
}

static void add_wait(struct df_kinst *inst, const uint64_t *addr, uint64_t value)
{
	inst->waits[inst->nr_waits++] = (struct df_kwait){(uint64_t *)(uintptr_t)addr, value};
}

/*
 * Waits for a word that a stream of the device writes. Polls the word's copy near the device if
 * there is one.
 */
static void add_mark(struct df_kinst *inst, const uint64_t *word, uint64_t value)
{
	const uint64_t *near = df_word_near(word);

	add_wait(inst, near ? near : word, value);
}

/* Adds the waits that put the operation in its place among the stream's other work. */
static void wait_for_stream(const struct df_launch *l)
{
	if (l->latest.addr)
		add_mark(l->inst, l->latest.addr, l->latest.value);
	/*
	 * The gate's `arrived`, set for the previous replay, stays set until the last block of that
	 * replay has cleared it. Blocks check waits in order, so this replay waits first for the
	 * previous one to end: a block could otherwise see the old `arrived`, then see the previous
	 * replay end, and start too early.
	 */
	if (l->gate && l->coll->k.nr_blocks > 1)
		add_wait(l->inst, l->coll->k.done, df_coll_last(l->coll));
	if (l->ready.addr && l->replay)
		add_wait(l->inst, l->ready.addr, l->ready.value);
	else if (l->ready.addr)
		add_mark(l->inst, l->ready.addr, l->ready.value);
	if (l->replay)
		l->inst->gate = l->gate;
}

/*
 * Priority inheritance: raises everything that this instance waits for to its priority: earlier
 * instances of its collective, operations in flight, and, if its stream is still busy, the
 * operations that the stream waits for.
 */
static void lend(const struct df_launch *l)
{
	const struct df_flights *set = l->ready.addr ? l->behind : NULL;
	uint32_t i;

	df_coll_lend(l->coll, l->inst->done_value - 1, l->inst->priority);
	df_coll_lend_waits(l->coll, l->inst);
	for (i = 0; set && i < set->nr && set->v[i].at <= l->fenced; i++) {
		const struct df_kwait wait = {set->v[i].done, set->v[i].value};

		df_lend(l->dev, &wait, l->inst->priority);
	}
}

static int place(struct df_launch *l)
{
	const struct df_op *op = l->op;
	struct df_coll *coll = l->coll;
	/* waits beside earlier operations: latest, ready, previous replay, scratch */
	struct df_kinst *inst = df_coll_instance(coll, l->nr_after + 4);
	uint32_t i;

	if (!inst)
		return -ENOMEM;
	l->inst = inst;
	inst->in = op->send ? op->send : op->recv;
	inst->out = op->recv ? op->recv : (void *)(uintptr_t)op->send;
	inst->shown = l->shown & 3;
	if (l->dev->exec.d.policy.order)
		/* In CUDA, a lower number is a higher priority. */
		inst->priority = op->priority - l->stream_priority +
				 df_priority_of(df_env()->priority, l->comm->config.name,
						df_coll_kind_name(op->kind));
	inst->redop_arg = op->redop_arg;
	inst->redop_ptr = op->redop_ptr;
	inst->op = l->serial;
	for (i = 0; i < l->nr_after; i++)
		inst->waits[inst->nr_waits++] = l->after[i].wait;
	wait_for_stream(l);
	if (coll->no_scratch)
		add_wait(inst, coll->scratch_word, coll->scratch_from + 1);
	df_coll_append(coll, inst);
	if (l->dev->exec.d.policy.order) {
		df_coll_lend_new(coll, inst);
		lend(l);
	}
	l->done = coll->k.done;
	l->value = l->opens = inst->done_value;
	l->key = coll->key;
	l->number = inst->seq;
	l->program = coll->name;
	l->proto = (uint8_t)coll->pick.proto;
	return 0;
}

static void give_to_blocks(struct df_coll *coll, struct df_kinst *inst)
{
	struct df_comm *comm = coll->comm;
	struct df_dev *dev = coll->dev;
	uint32_t b;

	comm->index++;
	__atomic_store_n(&comm->issued, comm->issued + 1, __ATOMIC_RELAXED);
	__atomic_store_n(&dev->exec.issued, dev->exec.issued + 1, __ATOMIC_RELAXED);
	df_dev_needs(coll, 1);
	for (b = 0; b < coll->prog->nr_blocks; b++) {
		struct df_sqe e = {&coll->k.ctx[b], inst};

		if (coll->k.ctx[b].nr_inst)
			df_sq_push(dev, df_dev_block(coll, b), &e);
	}
	if (!coll->k.nr_blocks) {
		/*
		 * This rank has nothing to do. RELEASE as in dfk_finish(): pairs with
		 * df_flight_done().
		 */
		__atomic_store_n(coll->k.done, inst->done_value, __ATOMIC_RELEASE);
		df_coll_retire(coll);
	}
}

static void launch(struct df_launch *l)
{
	uint64_t t;

	drop(l);
	if (df_likely(l->dev->exec.issued % SAMPLE)) {
		give_to_blocks(l->coll, l->inst);
		return;
	}
	t = df_now_ns();
	give_to_blocks(l->coll, l->inst);
	df_stats_sample(DF_SAMPLE_SQE, df_now_ns() - t);
}

/* ---- around the operations of a group ------------------------------------------------------- */

static void reserve(void)
{
	df_blocks->reserve();
}

static void first_turns(struct df_dev *dev, uint64_t bytes)
{
	/* RELAXED: if this thread did not write it, the thread that did checks by itself. */
	if (df_unlikely(__atomic_load_n(&dev->nr_lends, __ATOMIC_RELAXED)))
		df_lend_tell();
	if (bytes <= DF_FIRST_TURNS_BYTES)
		df_blocks->first_turns(dev->index);
}

static void submitted(void)
{
	df_blocks->submitted();
}

/* ---- streams and what they wait for --------------------------------------------------------- */

/*
 * Returns how many streams may wait for operations at a time. A quarter of the hardware queues is
 * left free: the launch of the daemon needs one, and streams that no longer wait keep theirs until
 * their work has ended.
 */
static uint32_t waiting_streams(void)
{
	return df_blocks->queues * 3u / 4;
}

static int crowd(int device)
{
	return df_blocks->stay && df_blocks->stay(device);
}

static int in_flight(struct df_dev *dev, struct df_flights *set)
{
	struct df_coll *coll;
	int ret = 0;

	df_list_each(coll, &dev->colls, node)
	{
		struct df_flight f = {0};

		if (!coll->issued)
			continue;
		f.done = coll->k.done;
		f.value = coll->base + coll->issued;
		if (!df_flight_done(&f))
			ret |= df_flights_add(set, &f);
	}
	return ret;
}

/* Its end waits for nothing that can begin earlier. */
static void condemn(struct df_comm *comm)
{
	(void)comm;
}

/* ---- progress ------------------------------------------------------------------------------- */

static int pass(int device)
{
	return df_blocks->pass(device);
}

static void wake(void)
{
	df_bell_ring(df_tl_bell());
}

const struct df_executor df_daemon_executor = {
	.setup = df_engine_setup,
	.open = df_life_open,
	.terms = df_life_terms,
	.meet = df_life_meet,
	.start = df_life_start,
	.retire = df_dev_retire,
	.condemn = condemn,
	.end = df_life_end,
	.forget = df_life_forget,
	.heard = df_lend_heard,
	.linger = df_conn_linger,
	.prepare = prepare,
	.place = place,
	.launch = launch,
	.drop = drop,
	.shown = df_refs_shown,
	.reserve = reserve,
	.first_turns = first_turns,
	.submitted = submitted,
	.mark_init = df_mark_init,
	.mark = df_word_mark,
	.waiting_streams = waiting_streams,
	.crowd = crowd,
	.in_flight = in_flight,
	.pass = pass,
	.wait = df_engine_wait,
	.progress = df_engine_progress,
	.wake = wake,
	.note_held = df_net_look_held,
};
