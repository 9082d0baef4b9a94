/*
 * Priority inheritance. Operations that an urgent operation waits for get its priority; otherwise
 * an operation with a priority between the two would hold up both. Under the lock of the device;
 * only with DFSHIM_ORDER=priority.
 *
 * A raised instance raises what it waits for, as far as the host knows it: completion words of
 * other collectives of the device, and earlier instances of its own collective, since these finish
 * one after the other. For other devices or processes a message is noted, and sent when the
 * device's lock is free (df_lend_tell()): to other devices of the process, which may own the word,
 * and to the ranks that a raised collective has connectors with. These do the same. This ends,
 * because the priority of an instance only increases (tests/model/lend.pml). No thread waits for
 * the messages; a rank that has not registered the collective ignores them.
 */
#include <stdlib.h>
#include "kernels/abi.h"
#include "runtime/backend.h"
#include "runtime/base/list.h"
#include "runtime/coll/coll.h"
#include "runtime/coll/connector.h"
#include "runtime/coll/words.h"
#include "runtime/comm/comm.h"
#include "runtime/comm/process.h"
#include "runtime/ctl/ctl.h"
#include "runtime/coll/dev.h"

/*
 * The message to peers: raise the first `count` instances of the collective to at least this
 * priority.
 */
struct lent {
	uint64_t key, count;
	int64_t priority;
};

/* A message that a device has yet to send. */
struct note {
	struct df_list node;
	uint64_t proc; /* process whose ranks get it; 0: the other devices of this process */
	struct lent lent;
	struct df_kwait wait; /* if proc is 0 */
};

/* Queues a message to be sent; drops it without memory. */
static void note(struct df_dev *dev, const struct note *n)
{
	struct note *copy = malloc(sizeof(*copy));

	if (!copy)
		return;
	*copy = *n;
	df_list_add_tail(&dev->lends, &copy->node);
	/* RELAXED: the thread that adds a message reads the number after it released the lock. */
	__atomic_store_n(&dev->nr_lends, dev->nr_lends + 1, __ATOMIC_RELAXED);
}

/* Returns the collective of the device whose completion word it is, or NULL. */
static struct df_coll *owner(struct df_dev *dev, const uint64_t *word)
{
	struct df_coll *coll;

	df_list_each(coll, &dev->colls, node)
	{
		if (coll->k.done == word)
			return coll;
	}
	return NULL;
}

/* Whether other devices of the process are in use. */
static int others(const struct df_dev *dev)
{
	int i;

	for (i = 0; i < df_rt.nr_devs; i++)
		if (&df_rt.devs[i] != dev &&
		    __atomic_load_n(&df_rt.devs[i].exec.used, __ATOMIC_RELAXED))
			return 1;
	return 0;
}

void df_lend(struct df_dev *dev, const struct df_kwait *w, int32_t priority)
{
	struct df_coll *coll;

	/* RELAXED: if it is done meanwhile, raising it is harmless. */
	if (__atomic_load_n(df_word_here(w->addr), __ATOMIC_RELAXED) >= w->value)
		return;
	coll = owner(dev, w->addr);
	if (coll)
		df_coll_lend(coll, w->value, priority);
	else if (others(dev))
		note(dev, &(struct note){.lent.priority = priority, .wait = *w});
}

void df_coll_lend_waits(struct df_coll *coll, const struct df_kinst *inst)
{
	uint32_t i;

	for (i = 0; i < inst->nr_waits; i++)
		df_lend(coll->dev, &inst->waits[i], inst->priority);
}

/* Notes messages to the ranks with which the collective exchanges data. */
static void note_peers(struct df_coll *coll, uint64_t count, int32_t priority)
{
	struct note n = {.lent = {coll->key, count, priority}};
	uint32_t i;

	for (i = 0; i < coll->nr_ends; i++) {
		uint64_t proc = coll->comm->members[df_conn_rank(coll, &coll->ends[i])].proc;

		if (proc == n.proc)
			continue;
		n.proc = proc;
		note(coll->dev, &n);
	}
}

/* Submits an empty entry to each block, which makes it read the priorities again. */
static void tell_blocks(struct df_coll *coll)
{
	uint32_t b;

	for (b = 0; b < coll->prog->nr_blocks; b++) {
		struct df_sqe e = {&coll->k.ctx[b], NULL};

		if (coll->k.ctx[b].nr_inst)
			df_sq_push(coll->dev, df_dev_block(coll, b), &e);
	}
}

void df_coll_lend(struct df_coll *coll, uint64_t value, int32_t priority)
{
	struct df_kinst *inst;
	uint64_t raised = 0;

	for (inst = coll->unretired; inst && inst->done_value <= value; inst = inst->next) {
		if (inst->priority >= priority)
			continue;
		/* RELAXED: it carries no data; only dfk_queue_weigh() reads it. */
		__atomic_store_n(&inst->priority, priority, __ATOMIC_RELAXED);
		raised = inst->seq + 1;
		/*
		 * The recursion ends: each instance is raised once, and waits only for earlier
		 * submissions.
		 */
		df_coll_lend_waits(coll, inst);
	}
	if (!raised)
		return;
	tell_blocks(coll);
	note_peers(coll, raised, priority);
}

void df_coll_lend_new(struct df_coll *coll, struct df_kinst *inst)
{
	if (inst->seq < coll->lent.count && inst->priority < coll->lent.priority)
		inst->priority = coll->lent.priority;
}

/*
 * A peer has raised instances that are not issued here yet: they will get its priority, and the
 * other peers are informed now. If there are several counts and priorities, the highest are kept:
 * an instance may get a higher priority than those waiting for it, never a lower one.
 */
static void promise(struct df_coll *coll, uint64_t count, int32_t priority)
{
	if (count <= coll->issued)
		return;
	if (coll->lent.count <= coll->issued) {
		coll->lent.count = 0;
		coll->lent.priority = priority;
	}
	if (count <= coll->lent.count && priority <= coll->lent.priority)
		return;
	coll->lent.count = DF_MAX(count, coll->lent.count);
	coll->lent.priority = DF_MAX(priority, coll->lent.priority);
	note_peers(coll, coll->lent.count, coll->lent.priority);
}

/* A peer has raised its instances of a collective: raises ours. */
static void hear(const struct lent *l)
{
	int32_t priority = (int32_t)l->priority;
	int i;

	for (i = 0; i < df_rt.nr_devs; i++) {
		struct df_dev *dev = &df_rt.devs[i];
		struct df_coll *coll;

		if (!__atomic_load_n(&dev->exec.used, __ATOMIC_RELAXED))
			continue;
		df_mutex_lock(&dev->lock);
		df_list_each(coll, &dev->colls, node)
		{
			if (coll->key != l->key)
				continue;
			df_coll_lend(coll, coll->base + l->count, priority);
			promise(coll, l->count, priority);
		}
		df_mutex_unlock(&dev->lock);
	}
}

static void deliver(const struct df_dev *from, const struct note *n)
{
	int i;

	if (n->proc == df_rt.self.proc) {
		hear(&n->lent);
	} else if (n->proc) {
		df_ctl_send(NULL, n->proc, DF_MSG_EXECUTOR, &n->lent, sizeof(n->lent));
	} else {
		for (i = 0; i < df_rt.nr_devs; i++) {
			struct df_dev *dev = &df_rt.devs[i];

			if (dev == from || !__atomic_load_n(&dev->exec.used, __ATOMIC_RELAXED))
				continue;
			df_mutex_lock(&dev->lock);
			if (owner(dev, n->wait.addr))
				df_lend(dev, &n->wait, (int32_t)n->lent.priority);
			df_mutex_unlock(&dev->lock);
		}
	}
}

static struct note *next_note(struct df_dev *dev)
{
	struct note *n;

	df_mutex_lock(&dev->lock);
	n = df_list_first(&dev->lends, struct note, node);
	if (n) {
		df_list_del(&n->node);
		__atomic_store_n(&dev->nr_lends, dev->nr_lends - 1, __ATOMIC_RELAXED);
	}
	df_mutex_unlock(&dev->lock);
	return n;
}

void df_lend_tell(void)
{
	int i, told;

	/* Delivering to another device may make it note further messages. */
	do {
		told = 0;
		for (i = 0; i < df_rt.nr_devs; i++) {
			struct df_dev *dev = &df_rt.devs[i];
			struct note *n;

			while (__atomic_load_n(&dev->nr_lends, __ATOMIC_RELAXED) &&
			       (n = next_note(dev))) {
				deliver(dev, n);
				free(n);
				told = 1;
			}
		}
	} while (told);
}

void df_lend_heard(const void *data, size_t bytes)
{
	if (bytes != sizeof(struct lent))
		return;
	hear(data);
	df_lend_tell();
}
