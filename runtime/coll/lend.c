/*
 * Priorities are lent: what an urgent operation waits for is as urgent as it is, or whatever lies between the two in
 * priority would hold up both. Under the lock of the device; only with DFSHIM_ORDER=priority.
 *
 * Lent is along what the host knows an instance to wait for: completion words of other collectives of the device,
 * and the earlier instances of its own, since a collective's instances end in order. A peer's daemon lends by itself, when
 * the same operation is submitted there.
 */
#include "kernels/abi.h"
#include "runtime/backend.h"
#include "runtime/base/list.h"
#include "runtime/coll/coll.h"
#include "runtime/daemon/dev.h"

/* Whose completion word it is; NULL: no collective's of the device. */
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

void df_lend(struct df_dev *dev, const struct df_kwait *w, int32_t priority)
{
	struct df_coll *coll;

	/* Relaxed: what is done meanwhile is lent to in vain. */
	if (__atomic_load_n(w->addr, __ATOMIC_RELAXED) >= w->value)
		return;
	coll = owner(dev, w->addr);
	if (coll)
		df_coll_lend(coll, w->value, priority);
}

void df_coll_lend_waits(struct df_coll *coll, const struct df_kinst *inst)
{
	uint32_t i;

	for (i = 0; i < inst->nr_waits; i++)
		df_lend(coll->dev, &inst->waits[i], inst->priority);
}

/* The blocks look at the priorities again. */
static void tell_blocks(struct df_coll *coll)
{
	uint32_t b;

	for (b = 0; b < coll->prog->nr_blocks; b++) {
		struct df_sqe e = {&coll->k.ctx[b], NULL};

		if (coll->k.ctx[b].nr_inst)
			df_sq_push(coll->dev, b % coll->dev->exec.d.nr_blocks, &e);
	}
}

void df_coll_lend(struct df_coll *coll, uint64_t value, int32_t priority)
{
	struct df_kinst *inst;
	int raised = 0;

	for (inst = coll->unretired; inst && inst->done_value <= value; inst = inst->next) {
		if (inst->priority >= priority)
			continue;
		/* Relaxed: it carries no data; pairs with nothing but the look of dfk_queue_weigh(). */
		__atomic_store_n(&inst->priority, priority, __ATOMIC_RELAXED);
		raised = 1;
		/* Ends: each instance is raised once, and waits only for what was submitted before it. */
		df_coll_lend_waits(coll, inst);
	}
	if (raised)
		tell_blocks(coll);
}
