/*
 * Recycling connectors. When the connectors of this process use more than DFSHIM_CONNECTOR_MB, the
 * collectives that have been idle longest give theirs back. Connectors in use stay, and needed ones
 * are made, so the memory is bounded by the budget plus what unfinished operations use. An
 * operation counts as unfinished until both ranks have noticed its end: this one when the budget is
 * exceeded, the peer when it registers a collective or when its poller looks.
 *
 * An owner may close a connector only when the other side does not hold its gate and the connector
 * is empty. So the owner *asks*: it marks the connector as wanted and counts the request in the
 * peer's bell. The peer lets go of a wanted connector as soon as it has nothing of that collective
 * in flight, and takes the gate again before it issues the next instance. If the owner has closed
 * the connector by then, the peer looks for the successor, which the owner makes when it issues in
 * its turn. Positions continue from where they were, so both sides agree on them without a message.
 * The host cannot read positions in GPU memory, but those of an idle side follow from the number of
 * instances that it has finished: each side notes its own in the connector's header before it lets
 * go or closes. tests/model/recycle.pml models this protocol.
 *
 * Memory given back is kept by size class (arena/pool.c), so a connector of a new size
 * takes idle memory of its class.
 *
 * Everything is under the device's lock.
 */
#include "kernels/abi.h"
#include "runtime/base/list.h"
#include "runtime/base/lock.h"
#include "runtime/coll/coll.h"
#include "runtime/coll/connector.h"
#include "runtime/comm/process.h"
#include "runtime/coll/dev.h"
#include "kernels/bell.h"
#include "runtime/coll/recycle.h"
#include "runtime/transport/transport.h"

#define VISITS                                                                                     \
	256 /* collectives visited for one new connector, so that many cost no more than few */

/* Whether the collective has nothing in flight on this rank, so no block uses its connectors. */
static int idle(const struct df_coll *coll)
{
	return coll->issued == coll->retired && !coll->entering && df_list_empty(&coll->waiting) &&
	       !__atomic_load_n(&coll->k.aborted, __ATOMIC_RELAXED);
}

int df_conn_movable(const struct df_cend *end)
{
	/* Over a network, slices may still be in transit. */
	return end->conn && !(end->tl->caps & DF_TL_NETWORK);
}

static int wanted(const struct df_cend *end)
{
	/* RELAXED: the request was counted, and df_recycle_look() acquired the count. */
	return !end->owner && df_conn_movable(end) && end->k->state == DF_KCONN_CONNECTED &&
	       __atomic_load_n(&end->conn->hdr->wanted, __ATOMIC_RELAXED);
}

void df_coll_let_go(struct df_coll *coll)
{
	uint32_t i, left = 0;

	if (!idle(coll))
		return;
	coll->asked = 0;
	df_coll_note(coll);
	for (i = 0; i < coll->nr_ends; i++) {
		struct df_cend *end = &coll->ends[i];

		if (!wanted(end)) {
			left += !end->owner && df_conn_movable(end) &&
				end->k->state == DF_KCONN_CONNECTED;
			continue;
		}
		/* RELAXED: no block has a task of it; the next submission orders later accesses. */
		__atomic_store_n(&end->k->state, DF_KCONN_OPEN, __ATOMIC_RELAXED);
		end->tl->unuse(end->conn);
		coll->parked = 1;
	}
	if (!left)
		df_list_del(&coll->using);
}

void df_recycle_look(struct df_dev *dev)
{
	struct df_bell *bell = df_tl_bell();
	struct df_coll *coll, *next;
	uint32_t i;

	if (!bell || __atomic_load_n(&bell->asked, __ATOMIC_RELAXED) == dev->asked)
		return;
	/* Operations that have just ended make their collectives idle. */
	df_dev_retire(dev);
	/* ACQUIRE pairs with the RELEASE in ask(): the counted marks are visible. */
	__atomic_store_n(&dev->asked, __atomic_load_n(&bell->asked, __ATOMIC_ACQUIRE),
			 __ATOMIC_RELAXED);
	df_list_each_safe(coll, next, &dev->using, using)
	{
		for (i = 0; i < coll->nr_ends && !coll->asked; i++)
			coll->asked = wanted(&coll->ends[i]) != 0;
		if (coll->asked)
			df_coll_let_go(coll);
	}
}

static void ask(const struct df_cend *end)
{
	struct df_bell *bell = end->k->bell;

	if (!bell || __atomic_load_n(&end->conn->hdr->wanted, __ATOMIC_RELAXED))
		return;
	__atomic_store_n(&end->conn->hdr->wanted, 1, __ATOMIC_RELAXED);
	/*
	 * RELEASE pairs with the ACQUIRE in df_recycle_look(): a thread that sees the count sees
	 * the mark.
	 */
	__atomic_add_fetch(&bell->asked, 1, __ATOMIC_RELEASE);
	df_bell_ring(bell);
}

static void recycle(struct df_coll *coll)
{
	uint32_t i, left = 0;

	df_coll_note(coll);
	for (i = 0; i < coll->nr_ends; i++) {
		struct df_cend *end = &coll->ends[i];

		if (!end->owner || !df_conn_movable(end))
			continue;
		/*
		 * With low-latency protocols the block publishes head only now and then: publish
		 * the rest. RELEASE pairs with the ACQUIRE of head in dfk_task_poll()
		 * (kernels/task.inl), as the block's own store does.
		 */
		if (!end->sends && !end->conn->noted)
			__atomic_store_n(end->k->head,
					 coll->retired * coll->k.loops * end->k->per_loop,
					 __ATOMIC_RELEASE);
		if (end->tl->recycle(end->conn, &end->base) == 0) {
			/* RELAXED as in df_coll_let_go(). */
			__atomic_store_n(&end->k->state, DF_KCONN_OPEN, __ATOMIC_RELAXED);
			end->conn = NULL;
			coll->parked = 1;
			__atomic_add_fetch(&coll->dev->recycled, 1, __ATOMIC_RELAXED);
		} else {
			left++;
			ask(end);
		}
	}
	if (!left)
		df_list_del(&coll->holding);
}

static void shrink(struct df_dev *dev, const struct df_coll *but, uint64_t to)
{
	struct df_list kept;
	int visits = VISITS;

	df_dev_retire(dev);
	df_list_init(&kept);
	/* In order of use: the one that has been idle longest is first. */
	while (!df_list_empty(&dev->holding) && df_tl_bytes() > to && visits--) {
		struct df_coll *coll = df_list_first(&dev->holding, struct df_coll, holding);

		if (coll != but && idle(coll))
			recycle(coll);
		if (df_list_empty(&coll->holding))
			continue;
		/*
		 * Move it behind the others: many connectors that peers keep must not hide those
		 * that are available.
		 */
		df_list_del(&coll->holding);
		df_list_add_tail(&kept, &coll->holding);
	}
	df_list_splice_tail(&dev->holding, &kept);
}

void df_conn_make_room(const struct df_coll *coll, uint64_t bytes)
{
	/* RELAXED: no other data depends on it. */
	uint64_t budget = __atomic_load_n(&df_rt.conn_budget, __ATOMIC_RELAXED);
	uint64_t to = budget > bytes ? budget - bytes : 0;
	int i;

	if (!budget || df_tl_bytes() <= to)
		return;
	df_recycle_look(coll->dev);
	shrink(coll->dev, coll, to);
	for (i = 0; i < df_rt.nr_devs && df_tl_bytes() > to; i++) {
		struct df_dev *dev = &df_rt.devs[i];

		/* The thread that holds the lock may be waiting for ours. */
		if (dev == coll->dev || !__atomic_load_n(&dev->exec.used, __ATOMIC_RELAXED) ||
		    !df_mutex_trylock(&dev->lock))
			continue;
		shrink(dev, coll, to);
		df_mutex_unlock(&dev->lock);
	}
}
