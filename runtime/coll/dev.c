/*
 * The host's ends of a daemon's rings, and the memory of its blocks. A submission never waits: if
 * the ring is full, it goes to an overflow list. The next thread that has the device's lock moves
 * the list to the ring, in order.
 */
#include <errno.h>
#include <stdlib.h>
#include "kernels/abi.h"
#include "kernels/slot.h"
#include "runtime/blocks.h"
#include "runtime/base/err.h"
#include "runtime/base/list.h"
#include "runtime/base/lock.h"
#include "runtime/base/time.h"
#include "runtime/base/vec.h"
#include "runtime/coll/coll.h"
#include "runtime/coll/words.h"
#include "runtime/comm/comm.h"
#include "runtime/comm/stats.h"
#include "runtime/coll/dev.h"
#include "trace/record/writer.h"

#define SQ_SLOTS 1024u
#define CQ_SLOTS 4096u
#define NR_LOOKS 32 /* df_dev_ready_width() examines at most this many collectives */

int df_dev_init(struct df_dev *dev, uint32_t nr_blocks)
{
	uint32_t b;

	df_list_init(&dev->colls);
	df_list_init(&dev->holding);
	df_list_init(&dev->using);
	df_list_init(&dev->connecting);
	df_list_init(&dev->flying);
	df_list_init(&dev->lends);
	dev->exec.d.abi = DF_ABI_VERSION;
	dev->exec.d.nr_blocks = nr_blocks;
	dev->exec.d.device = (uint32_t)dev->index;
	dev->exec.blocks = df_kalloc(nr_blocks * sizeof(*dev->exec.blocks));
	dev->overflow = calloc(nr_blocks, sizeof(*dev->overflow));
	dev->exec.needs = calloc(nr_blocks, sizeof(*dev->exec.needs));
	if (!dev->exec.blocks || !dev->overflow || !dev->exec.needs)
		return -ENOMEM;
	dev->exec.d.blocks = dev->exec.blocks;
	for (b = 0; b < nr_blocks; b++) {
		struct df_kblock *blk = &dev->exec.blocks[b];

		blk->index = b;
		blk->sq.mask = SQ_SLOTS - 1;
		blk->cq.mask = CQ_SLOTS - 1;
		blk->sq.slots = df_kalloc(SQ_SLOTS * sizeof(struct df_sq_slot));
		blk->cq.slots = df_kalloc(CQ_SLOTS * sizeof(struct df_cqe));
		if (!blk->sq.slots || !blk->cq.slots)
			return -ENOMEM;
	}
	return 0;
}

static int ring_push(struct df_ring *sq, const struct df_sqe *e)
{
	/* Only this side writes the tail: a plain load is enough. */
	/*
	 * ACQUIRE pairs with the RELEASE of head in dfk_sq_taken() (kernels/hot.inl): without it, a
	 * slot could be overwritten while the block still copies it.
	 */
	if (sq->tail - __atomic_load_n(&sq->head, __ATOMIC_ACQUIRE) > sq->mask)
		return -EAGAIN;
	df_sq_put(sq, e, df_blocks->gpu);
	return 0;
}

static int overflow_push(struct df_dev *dev, struct df_overflow *o, const struct df_sqe *e)
{
	if (o->head && o->head + o->nr == o->cap) {
		memmove(o->v, o->v + o->head, o->nr * sizeof(*o->v));
		o->head = 0;
	}
	if (DF_VEC_ROOM(o->v, o->cap, o->head + o->nr + 1))
		return -ENOMEM;
	if (!o->nr)
		__atomic_store_n(&dev->nr_overflow, dev->nr_overflow + 1, __ATOMIC_RELAXED);
	o->v[o->head + o->nr++] = *e;
	return 0;
}

uint32_t df_dev_block(const struct df_coll *coll, uint32_t b)
{
	return (coll->first_block + b) % coll->dev->exec.d.nr_blocks;
}

void df_sq_push(struct df_dev *dev, uint32_t block, const struct df_sqe *e)
{
	struct df_overflow *o = &dev->overflow[block];

	if (!o->nr && ring_push(&dev->exec.blocks[block].sq, e) == 0)
		return;
	if (overflow_push(dev, o, e)) {
		/*
		 * No memory for a list entry: wait for the ring instead. This ends, because the
		 * block drains its ring at every turn, whatever its tasks wait for.
		 */
		while (o->nr || ring_push(&dev->exec.blocks[block].sq, e)) {
			df_sq_flush(dev);
			df_blocks->pass(dev->index);
		}
	}
}

void df_sq_flush(struct df_dev *dev)
{
	uint32_t b;

	for (b = 0; b < dev->exec.d.nr_blocks && dev->nr_overflow; b++) {
		struct df_overflow *o = &dev->overflow[b];

		if (!o->nr)
			continue;
		while (o->nr && ring_push(&dev->exec.blocks[b].sq, &o->v[o->head]) == 0) {
			o->head++;
			o->nr--;
		}
		if (!o->nr) {
			o->head = 0;
			__atomic_store_n(&dev->nr_overflow, dev->nr_overflow - 1, __ATOMIC_RELAXED);
		}
	}
}

void df_sq_drop(struct df_dev *dev)
{
	uint32_t b, i, n;

	for (b = 0; b < dev->exec.d.nr_blocks; b++) {
		struct df_overflow *o = &dev->overflow[b];

		if (!o->nr)
			continue;
		for (i = n = 0; i < o->nr; i++)
			if (!o->v[o->head + i].ctx->coll->aborted)
				o->v[o->head + n++] = o->v[o->head + i];
		o->nr = n;
		if (!n)
			__atomic_store_n(&dev->nr_overflow, dev->nr_overflow - 1, __ATOMIC_RELAXED);
	}
}

void df_dev_needs(struct df_coll *coll, int more)
{
	struct df_dev *dev = coll->dev;
	uint32_t b, *n;

	/* On a CPU, threads exist for all blocks. */
	if (!df_blocks->gpu)
		return;
	for (b = 0; b < coll->prog->nr_blocks; b++) {
		n = &dev->exec.needs[df_dev_block(coll, b)];
		/* RELAXED: the launching thread reads it repeatedly. */
		if (coll->k.ctx[b].nr_inst)
			__atomic_store_n(n, *n + (uint32_t)more, __ATOMIC_RELAXED);
	}
}

/* Whether its stream has reached the instance and all operations that it waits for are done. */
static int is_ready(const struct df_kinst *inst)
{
	uint32_t i;

	for (i = 0; i < inst->nr_waits; i++)
		/* RELAXED: no other data depends on it, and the blocks check again. */
		if (__atomic_load_n(df_word_here(inst->waits[i].addr), __ATOMIC_RELAXED) <
		    inst->waits[i].value)
			return 0;
	return 1;
}

uint32_t df_dev_ready_width(const struct df_dev *dev)
{
	uint32_t b, most = 1, looks = NR_LOOKS;
	const struct df_coll *coll;

	df_list_each(coll, &dev->flying, flying)
	{
		if (!looks--)
			return 0;
		if (!is_ready(coll->unretired))
			continue;
		for (b = 0; b < coll->prog->nr_blocks; b++)
			if (coll->k.ctx[b].nr_inst)
				most = DF_MAX(most, df_dev_block(coll, b) + 1);
	}
	return most;
}

/* The first word of the completion at head, or 0 if there is none. */
static uint64_t cq_next(const struct df_ring *cq, uint32_t head)
{
	const struct df_cqe *e = (const struct df_cqe *)cq->slots + (head & cq->mask);
	/*
	 * ACQUIRE pairs with the RELEASE in dfk_cq_push() (kernels/rings.inl): the blocks' last
	 * reads of the instance happen before ours, and the other words in the slot belong to this
	 * completion.
	 */
	uint64_t coll = __atomic_load_n(&e->coll, __ATOMIC_ACQUIRE);

	return (coll & 1) == DF_LAP(cq, head) ? coll : 0;
}

int df_dev_cq_pending(const struct df_dev *dev)
{
	uint32_t b;

	for (b = 0; b < dev->exec.d.nr_blocks; b++)
		if (cq_next(&dev->exec.blocks[b].cq,
			    __atomic_load_n(&dev->exec.blocks[b].cq.head, __ATOMIC_RELAXED)) ||
		    __atomic_load_n(&dev->exec.blocks[b].cq.lost, __ATOMIC_RELAXED))
			return 1;
	return 0;
}

/* A decoded completion. */
struct completion {
	struct df_coll *coll;
	enum df_cqe_kind kind;
	uint64_t value, k;
	uint32_t block;
};

/* Returns 1 if there is a completion at head with all its words. */
static int cqe_get(const struct df_ring *cq, uint32_t head, struct completion *out)
{
	const struct df_cqe *e = (const struct df_cqe *)cq->slots + (head & cq->mask);
	uint64_t coll = cq_next(cq, head), value;
	struct df_kcoll *k = (struct df_kcoll *)(uintptr_t)(coll & ~(uint64_t)7);

	if (!coll)
		return 0;
	/*
	 * RELAXED: the value itself shows whether it is valid, and nothing is accessed through it.
	 */
	value = __atomic_load_n(&e->value, __ATOMIC_RELAXED);
	*out = (struct completion){df_container_of(k, struct df_coll, k),
				   (enum df_cqe_kind)(coll >> 1 & 3), value >> 1, 0, 0};
	if ((value & 1) != DF_LAP(cq, head))
		return 0;
	if (out->kind == DF_CQE_DONE)
		/*
		 * RELAXED: df_coll_retire() checks again. The word must show completion before it
		 * is reported.
		 */
		return __atomic_load_n(k->done, __ATOMIC_RELAXED) >= out->value;
	if (out->kind != DF_CQE_START) {
		out->k = e->k;
		out->block = (uint32_t)e->block;
	}
	return 1;
}

static void cqe_take(struct df_dev *dev, const struct completion *c)
{
	const struct df_comm *comm = c->coll->comm;

	if (c->kind == DF_CQE_DONE)
		df_coll_retire(c->coll);
	else if (c->kind == DF_CQE_START)
		df_trace(DF_REC_OP_START, dev->index, comm->trace, comm->rank, c->value, 0, 0, 0,
			 0);
	else
		df_trace(c->kind == DF_CQE_PREEMPT ? DF_REC_OP_PREEMPT : DF_REC_OP_RESUME,
			 dev->index, comm->trace, comm->rank, c->value, c->block, c->k, 0, 0);
}

void df_dev_retire(struct df_dev *dev)
{
	uint32_t b;

	df_trace_hold_time();
	for (b = 0; b < dev->exec.d.nr_blocks; b++) {
		struct df_ring *cq = &dev->exec.blocks[b].cq;
		uint32_t head = cq->head, most = cq->mask + 1;
		struct completion c;

		while (most-- && cqe_get(cq, head, &c)) {
			uint64_t t = head % 64 ? 0 : df_now_ns();

			cqe_take(dev, &c);
			head++;
			if (t)
				df_stats_sample(DF_SAMPLE_CQE, df_now_ns() - t);
		}
		/*
		 * RELEASE pairs with the ACQUIRE of head in dfk_cq_room() (kernels/hot.inl): our
		 * reads are over before the slots are written again.
		 */
		__atomic_store_n(&cq->head, head, __ATOMIC_RELEASE);
		if (__atomic_load_n(&cq->lost, __ATOMIC_RELAXED) &&
		    __atomic_exchange_n(&cq->lost, 0, __ATOMIC_RELAXED)) {
			struct df_coll *coll;

			df_list_each(coll, &dev->colls, node) df_coll_retire(coll);
		}
	}
	df_trace_let_time();
	if (dev->nr_overflow)
		df_sq_flush(dev);
}
