/*
 * The daemon for CPU threads: a block is one thread, and its stack is the shared memory. daemon.inl
 * contains the turn itself.
 */
#include "kernels/port.h"
#include "kernels/abi.h"
#include "kernels/reduce.h"
#include "kernels/daemon.h"
#include "kernels/daemon.inl"

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
	 * RELEASE pairs with the ACQUIRE of head in df_sq_push() (runtime/daemon/dev.c), as in
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
