/*
 * The daemon for CPU threads: a block is one thread, and its stack is the shared memory. daemon.inl
 * contains the turn itself.
 */
#include "kernels/port.h"
#include "kernels/abi.h"
#include "kernels/reduce.h"
#include "kernels/daemon.h"
#include "kernels/daemon.inl"
#include "runtime/base/futex.h"
#include "runtime/base/lock.h"

enum df_turn df_block_turn(struct df_kdaemon *d, struct df_kblock *blk)
{
	struct dfk_shared sh = {0};
	struct dfk_stage stage;

	return dfk_block_turn(d, blk, &sh, &stage);
}

void df_conn_begin(struct df_kconn *c)
{
	dfk_conn_begin(c);
}

void df_block_reset(struct df_kblock *blk)
{
	blk->first = blk->last = blk->task = blk->running = NULL;
	blk->nr_tasks = 0;
	blk->pos = 0;
	/*
	 * RELEASE pairs with the ACQUIRE of head in ring_push() (runtime/coll/dev.c), as in
	 * dfk_sq_taken().
	 */
	dfk_store_release_sys(&blk->sq.head, dfk_load_relaxed_sys(&blk->sq.tail));
}

void df_block_purge(struct df_kdaemon *d, struct df_kblock *blk)
{
	struct df_kctx *ctx, *next;

	dfk_sq_drain(d, blk, 0);
	for (ctx = blk->first; ctx; ctx = next) {
		next = ctx->next;
		if (__atomic_load_n(&ctx->coll->aborted, __ATOMIC_RELAXED)) {
			ctx->finished = ctx->announced;
			dfk_queue_remove(blk, ctx);
		}
	}
}

#define HELD_SPINS 100 /* some microseconds: longer than a turn with a small slice */

void df_block_take(struct df_kblock *blk)
{
	int i;

	for (i = 0; i < HELD_SPINS; i++) {
		if (df_trylock_try((struct df_trylock *)&blk->lock))
			return;
		df_relax();
	}
	/*
	 * ACQUIRE pairs with the RELEASE in df_block_let(), as in df_trylock_try(). The lock's
	 * value is 2 then, because other threads may sleep too (tests/model/let.pml).
	 */
	while (__atomic_exchange_n(&blk->lock, 2, __ATOMIC_ACQUIRE))
		(void)df_futex_wait(&blk->lock, 2, -1, 0);
}

void df_block_let(struct df_kblock *blk)
{
	/*
	 * RELEASE pairs with the ACQUIRE in df_block_take(): our changes are visible before the 0.
	 */
	if (__atomic_exchange_n(&blk->lock, 0, __ATOMIC_RELEASE) == 2)
		df_futex_wake(&blk->lock, 1, 0);
}
