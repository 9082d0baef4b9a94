/*
 * Recycling connectors: when those of this process take more than DFSHIM_CONNECTOR_MB, the collectives that have
 * been idle for longest give theirs back. What is in use stays, and what is needed is made: so the bound is the budget and what
 * operations use that have not ended on both ranks (one that has ended here is looked at when the budget is passed, one on the
 * peer's side when it next registers a collective, or its poller looks, if that is earlier).
 *
 * An owner may close a connector only when the other side does not hold its gate and has nothing in it. So the
 * owner *asks*: it marks the connector as wanted and counts the request in the peer's bell. The peer lets go of
 * what is wanted as soon as it has nothing of that collective in flight, and takes the gate again before it
 * issues the next; if the owner has closed it by then, it looks for the successor, which the owner makes when
 * it issues in its turn. Positions go on where they stood, so both sides agree about them without a word. Of GPU memory
 * the host sees no positions, but an idle side's follows from the instances that it has finished: each side notes its own in
 * the connector's header before it lets go, or closes. tests/model/recycle.pml is this protocol.
 *
 * What is given back is kept by size (runtime/transport/pool.c), so a size that is new takes the memory of one of its
 * class that is idle.
 *
 * Everything under the device's lock.
 */
#include "kernels/abi.h"
#include "runtime/base/list.h"
#include "runtime/base/lock.h"
#include "runtime/coll/coll.h"
#include "runtime/coll/connector.h"
#include "runtime/comm/process.h"
#include "runtime/daemon/dev.h"
#include "runtime/transport/bell.h"
#include "runtime/transport/transport.h"

#define VISITS                                                                                     \
	256 /* collectives looked at for one new connector, so that many cost no more than few */

/* Nothing of it is in flight on this rank, and no block looks at its connectors. */
static int idle(const struct df_coll *coll)
{
	return coll->issued == coll->retired && !coll->entering && df_list_empty(&coll->waiting) &&
	       !__atomic_load_n(&coll->k.aborted, __ATOMIC_RELAXED);
}

int df_conn_movable(const struct df_cend *end)
{
	/* Over a network slices may still be under way. */
	return end->conn && !(end->tl->caps & DF_TL_NETWORK);
}

static int wanted(const struct df_cend *end)
{
	/* Relaxed: the request has been counted, and df_recycle_look() acquired the count. */
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
		/* Relaxed: no block has a task of it; the next submission orders what follows. */
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
	/* What has just ended is idle. */
	df_dev_retire(dev);
	/* ACQUIRE pairs with the RELEASE in ask(): the marks that were counted are seen. */
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
	/* RELEASE pairs with the ACQUIRE in df_recycle_look(): who sees the count sees the mark. */
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
		 * Its block has told of what it took only now and then. RELEASE pairs with the ACQUIRE of head
		 * in dfk_task_poll() (kernels/task.inl), as the block's own.
		 */
		if (!end->sends && !end->conn->noted)
			__atomic_store_n(end->k->head,
					 coll->retired * coll->k.loops * end->k->per_loop,
					 __ATOMIC_RELEASE);
		if (end->tl->recycle(end->conn, &end->base) == 0) {
			/* Relaxed as in df_coll_let_go(). */
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
	/* In order of use: the one idle for longest comes first. */
	while (!df_list_empty(&dev->holding) && df_tl_bytes() > to && visits--) {
		struct df_coll *coll = df_list_first(&dev->holding, struct df_coll, holding);

		if (coll != but && idle(coll))
			recycle(coll);
		if (df_list_empty(&coll->holding))
			continue;
		/* Behind the others: many that peers do not give must not keep us from those that can be had. */
		df_list_del(&coll->holding);
		df_list_add_tail(&kept, &coll->holding);
	}
	df_list_splice_tail(&dev->holding, &kept);
}

void df_conn_make_room(const struct df_coll *coll, uint64_t bytes)
{
	uint64_t budget = df_rt.conn_budget, to = budget > bytes ? budget - bytes : 0;
	int i;

	if (!budget || df_tl_bytes() <= to)
		return;
	df_recycle_look(coll->dev);
	shrink(coll->dev, coll, to);
	for (i = 0; i < df_rt.nr_devs && df_tl_bytes() > to; i++) {
		struct df_dev *dev = &df_rt.devs[i];

		/* Whoever holds it now may be waiting for ours. */
		if (dev == coll->dev || !__atomic_load_n(&dev->exec.used, __ATOMIC_RELAXED) ||
		    !df_mutex_trylock(&dev->lock))
			continue;
		shrink(dev, coll, to);
		df_mutex_unlock(&dev->lock);
	}
}
