/*
 * The runtime's side of executing blocks, whatever executes them (runtime/backend.h): the work for
 * a device besides the turns of its blocks, the start, waiting, and how an aborted collective is
 * removed from the blocks. Any thread.
 */
#include <errno.h>
#include <sched.h>
#include <string.h>
#include "kernels/abi.h"
#include "kernels/bell.h"
#include "kernels/daemon.h"
#include "runtime/backend.h"
#include "runtime/blocks.h"
#include "runtime/base/futex.h"
#include "runtime/base/lock.h"
#include "runtime/base/log.h"
#include "runtime/coll/connector.h"
#include "runtime/coll/recycle.h"
#include "runtime/coll/words.h"
#include "runtime/comm/comm.h"
#include "runtime/comm/process.h"
#include "runtime/coll/dev.h"
#include "runtime/daemon/engine.h"
#include "runtime/order/frees.h"
#include "runtime/order/waits.h"
#include "runtime/transport/transport.h"

static struct df_bell *own_bell; /* this process's; atomic */

/* Whether peers have requested connectors since the device last checked. */
static int asked(int device)
{
	const struct df_dev *dev = &df_rt.devs[device];
	/* ACQUIRE pairs with the RELEASE in df_engine_start(): the bell has been set up. */
	const struct df_bell *bell = __atomic_load_n(&own_bell, __ATOMIC_ACQUIRE);

	return bell && __atomic_load_n(&bell->asked, __ATOMIC_RELAXED) !=
			       __atomic_load_n(&dev->asked, __ATOMIC_RELAXED);
}

/* The work for a device besides the turns of its blocks, if any is needed. */
static int chores(int device)
{
	struct df_dev *dev = &df_rt.devs[device];
	uint64_t retired;

	if (!df_dev_cq_pending(dev) && !__atomic_load_n(&dev->nr_connecting, __ATOMIC_RELAXED) &&
	    !__atomic_load_n(&dev->nr_overflow, __ATOMIC_RELAXED) && !asked(device) &&
	    __atomic_load_n(&dev->told, __ATOMIC_RELAXED) ==
		    __atomic_load_n(&dev->exec.retired, __ATOMIC_RELAXED))
		return 0;
	if (!df_mutex_trylock(&dev->lock))
		return 0;
	df_dev_retire(dev);
	if (dev->nr_connecting)
		df_connector_connect(dev);
	df_recycle_look(dev);
	/* Other threads process completions too. */
	retired = __atomic_load_n(&dev->exec.retired, __ATOMIC_RELAXED) - dev->told;
	__atomic_store_n(&dev->told, dev->told + retired, __ATOMIC_RELAXED);
	df_mutex_unlock(&dev->lock);
	if (retired) {
		/*
		 * Streams of this device, and threads, may wait for an operation that has just
		 * completed.
		 */
		df_backend->kick(dev->index);
		df_bell_ring(df_tl_bell());
		df_frees_look();
	}
	return retired != 0;
}

static uint32_t ready_width(int device)
{
	struct df_dev *dev = &df_rt.devs[device];
	uint32_t width;

	if (!df_mutex_trylock(&dev->lock))
		return 0;
	width = df_dev_ready_width(dev);
	df_mutex_unlock(&dev->lock);
	return width;
}

/* Some must be there to be recycled. */
#define LEAST_BUDGET (64ull << 20)

static void frugal(void)
{
	uint64_t budget = __atomic_load_n(&df_rt.conn_budget, __ATOMIC_RELAXED);
	uint64_t now = DF_MAX(df_tl_bytes(), LEAST_BUDGET);

	/* RELAXED: no other data depends on it, and the last of two threads may win. */
	if (!budget || now < budget)
		__atomic_store_n(&df_rt.conn_budget, now, __ATOMIC_RELAXED);
}

const struct df_block_hooks df_engine_hooks = {
	.chores = chores,
	.width = ready_width,
	.crowded = df_waits_crowded,
	.frugal = frugal,
	.asked = asked,
	.failed = df_comm_device_lost,
	.words = df_words_sum,
};

static uint64_t progress_of(const struct df_dev *dev)
{
	uint64_t sum = __atomic_load_n(&dev->exec.issued, __ATOMIC_RELAXED) +
		       __atomic_load_n(&dev->exec.retired, __ATOMIC_RELAXED);
	uint32_t b;

	for (b = 0; b < dev->exec.d.nr_blocks; b++)
		sum += __atomic_load_n(&dev->exec.blocks[b].stats.slices, __ATOMIC_RELAXED);
	return sum;
}

uint64_t df_engine_progress(const struct df_dev *dev)
{
	uint64_t sum = 0;
	int i;

	if (dev)
		return progress_of(dev);
	for (i = 0; i < df_rt.nr_devs; i++)
		if (__atomic_load_n(&df_rt.devs[i].exec.used, __ATOMIC_RELAXED))
			sum += progress_of(&df_rt.devs[i]);
	return sum;
}

void df_engine_start(void)
{
	/* RELEASE pairs with the ACQUIRE in asked(). */
	__atomic_store_n(&own_bell, df_tl_bell(), __ATOMIC_RELEASE);
	if (df_blocks->start(&df_rt.execs))
		df_warn_once("cannot start the thread that looks after the daemon");
}

void df_engine_wait(struct df_dev *dev, int (*ready)(void *arg), void *arg)
{
	if (!ready(arg))
		df_blocks->wait(dev->index, ready, arg);
}

/*
 * Takes the lock when no slice is being moved without it. Bounded: the holder releases it after a
 * burst of turns, none of which waits, and after stop() no slice begins to move without it.
 */
static void block_own(struct df_kblock *blk)
{
	for (;; sched_yield()) {
		if (!df_trylock_try((struct df_trylock *)&blk->lock))
			continue;
		if (!blk->moving)
			return;
		df_block_let(blk);
	}
}

int df_engine_purge(struct df_dev *dev)
{
	uint32_t b;
	int lost;

	/* No communicator was ever ready on the device, so there is no daemon that could answer. */
	if (!__atomic_load_n(&dev->exec.used, __ATOMIC_RELAXED))
		return 0;
	lost = df_blocks->stop(dev->index);
	for (b = 0; b < dev->exec.d.nr_blocks; b++) {
		struct df_kblock *blk = &dev->exec.blocks[b];
		block_own(blk);
		if (lost)
			df_block_reset(blk);
		else
			df_block_purge(&dev->exec.d, blk);
		df_block_let(blk);
	}
	df_blocks->resume(dev->index);
	return lost > 1 ? -EBUSY : 0;
}
