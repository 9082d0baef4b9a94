/*
 * The daemon: one turn of one block. Compiled twice, for a GPU block and for a CPU thread.
 *
 * In a turn, the block accepts new submissions and polls the task that has its turn. If the task's
 * next slice can move, the block moves it. If not, it counts a failed poll and, past the spin
 * threshold, goes to the next task. Preemption is nothing more: no resource is held and no state is
 * saved, because df_kctx.k is the state of the task.
 *
 * Thread 0 of the block decides and commits; all threads move data. They share struct dfk_shared.
 *
 *   hot.inl     copies of contexts in use, where the originals are across a bus
 *   queue.inl   the task queue, and the choice of the next task
 *   rings.inl   incoming submissions, outgoing completions
 *   words.inl   slots whose words show that they are full
 *   task.inl    a task's slice: poll, execute, commit
 *   gpu/take.inl   on a GPU, taking submissions
 *   gpu/wait.inl   on a GPU, waiting in place
 *   gpu/short.inl  on a GPU, a small program in one turn
 */

#include "kernels/words.inl"
#include "kernels/hot.inl"
#include "kernels/queue.inl"
#include "kernels/rings.inl"
#include "kernels/task.inl"

/*
 * The block changes to another collective. A preemption is counted when another collective makes
 * progress while the last one is unfinished. Failed polls of other tasks do not count.
 */
DFK void dfk_switch(struct df_kdaemon *d, struct df_kblock *blk, struct df_kctx *ctx)
{
	struct df_kctx *last = blk->running;

	if (last) {
		last = dfk_at(blk, last);
		last->preempted = 1;
		/* the host reads it at any time */
		dfk_store_relaxed_sys(&blk->stats.preemptions, blk->stats.preemptions + 1);
		blk->stats.context_saves++;
		if (d->policy.gang && !blk->gang && dfk_disagree(last, ctx))
			blk->gang = 1;
		if (d->policy.events > 1)
			dfk_cq_push(blk, DF_CQE_PREEMPT, last);
	}
	blk->stats.context_loads++;
	if (ctx->preempted) {
		ctx->preempted = 0;
		if (d->policy.events > 1)
			dfk_cq_push(blk, DF_CQE_RESUME, ctx);
	}
	blk->running = dfk_home(ctx);
}

/*
 * Thread 0: the running instance has begun. A verdict needs this for hanging operations, a trace
 * for all: without a trace, operations that do not wait are not worth the writes.
 */
DFK void dfk_tell(struct df_kblock *blk, struct df_kctx *ctx)
{
	if (!ctx->lead || ctx->told)
		return;
	ctx->told = 1;
	dfk_cq_push(blk, DF_CQE_START, ctx);
}

/* Thread 0: the task made no progress. able: it could start, and only waits for a peer. */
DFK void dfk_miss(struct df_kdaemon *d, struct df_kblock *blk, struct dfk_shared *sh,
		  struct df_kctx *ctx, int able)
{
	int own = able && dfk_is_own(d, blk, sh->peer);

	blk->stats.polls++;
	sh->turn = DF_TURN_SPIN;
	if (able)
		dfk_able(blk);
	if (!own && able && ++ctx->polls < ctx->spin)
		return;
	/* The peer is of this daemon: its submission may be there. First all tasks have a turn. */
	if (able && sh->peer && sh->peer == d->self && (!own || blk->idle))
		dfk_ask(blk);
	/* The next turn may end such a wait, so it is not worth the writes. */
	if (!own || blk->idle) {
		if (d->policy.events && ctx->k > ctx->finished * ctx->coll->loops * ctx->nr_inst)
			dfk_tell(blk, ctx);
		dfk_publish(blk);
	}
	/*
	 * The threshold is reached, or the task cannot start: the next task gets the turn. The task
	 * whose turn it was has used it.
	 */
	if (dfk_owes(d, blk) && ctx->priority < dfk_at(blk, blk->first)->priority)
		blk->owed = 0;
	ctx->loaded = 0;
	dfk_queue_advance(blk);
}

/* Thread 0: the slice will move. */
DFK void dfk_accept(struct df_kdaemon *d, struct df_kblock *blk, struct df_kctx *ctx)
{
	if (blk->running != dfk_home(ctx))
		dfk_switch(d, blk, ctx);
	if (d->policy.events > 1)
		dfk_tell(blk, ctx);
}

#if DFK_WAYS
#include "kernels/gpu/take.inl"
#include "kernels/gpu/wait.inl"
#include "kernels/gpu/short.inl"
#else
#define dfk_await(d, blk, ctx, sh, stage) dfk_task_poll(ctx, sh, stage)
#endif

/* Thread 0: decides the work of this turn. On a GPU, the submissions have been accepted. */
DFK void dfk_decide(struct df_kdaemon *d, struct df_kblock *blk, struct dfk_shared *sh,
		    struct dfk_stage *stage)
{
	struct df_kctx *ctx;
#if DFK_WAYS
	struct dfk_hot *hot;
#endif
	int got;

	sh->move = 0;
	sh->fetch.home = NULL;
#if DFK_WAYS
	sh->brief = 0;
#endif
#if !DFK_WAYS
	dfk_sq_drain(d, blk, 1);
#endif
	if (!blk->task) {
		dfk_publish(blk);
		sh->turn = DF_TURN_EMPTY;
#if DFK_WAYS
		sh->brief = dfk_short_ahead(blk, sh);
#endif
		return;
	}
	ctx = dfk_queue_free(blk);
	if (!ctx) {
		sh->turn = DF_TURN_TAKEN;
		return;
	}
#if DFK_WAYS
	hot = dfk_way(blk, ctx);
	if (!hot) {
		dfk_fetch_begin(blk, ctx, &sh->fetch);
		sh->turn = DF_TURN_SPIN;
		return;
	}
	ctx = &hot->ctx;
	hot->used = dfk_local(blk)->turns;
#endif
	/*
	 * ACQUIRE pairs with the RELEASE of aborted in df_coll_abort() (runtime/coll/coll.c), which
	 * then waits until this block has dropped the task. On a GPU that happens before the next
	 * launch: a copy is not updated.
	 */
	if (dfk_load_acquire_sys(&ctx->coll->aborted)) {
		ctx->finished = ctx->announced;
		dfk_queue_remove(blk, dfk_home(ctx));
		sh->turn = DF_TURN_PROGRESS;
		return;
	}
	if (!ctx->loaded) {
		if (ctx->fresh)
			dfk_begin(ctx);
		ctx->loaded = 1;
		ctx->polls = 0;
		ctx->spin = d->policy.order && dfk_is_urgent(blk, ctx)
				    ? 1
				    : dfk_threshold(&d->policy, blk->pos);
	}
#if DFK_WAYS
	sh->brief = (uint32_t)dfk_short_wanted(blk, ctx, sh);
	if (sh->brief)
		return;
#endif
	got = dfk_await(d, blk, ctx, sh, stage);
#if DFK_WAYS
	/* The stage is used for the slice. */
	if (got > 0 && !dfk_local(blk)->plan_bad)
		dfk_local(blk)->planned = NULL;
#endif
	if (got > 0)
		sh->turn = DF_TURN_PROGRESS;
	else
		dfk_miss(d, blk, sh, ctx, got == 0);
}

/*
 * All threads, which synchronize before the next turn: until then thread 0 may still be in this
 * one.
 */
DFK enum df_turn dfk_block_turn(struct df_kdaemon *d, struct df_kblock *blk, struct dfk_shared *sh,
				struct dfk_stage *stage)
{
	int let, decided = 0;

#if DFK_WAYS
	if (DFK_TID < DFK_LANES && dfk_lanes_any(DFK_TID == 0 && dfk_look(blk)))
		decided = dfk_sq_look(d, blk, sh);
#endif
	if (DFK_TID == 0 && !decided)
		dfk_decide(d, blk, sh, stage);
	dfk_sync();
#if DFK_WAYS
	if (sh->fetch.home) {
		dfk_fetch(&sh->fetch);
		return DF_TURN_SPIN;
	}
	if (sh->brief)
		return dfk_short_turn(d, blk, sh, stage);
#endif
	if (sh->move && sh->takes && !dfk_sync_and(dfk_words_get(&sh->get, stage->in))) {
		/* Nothing has changed. Only thread 0 writes the data that the others have read. */
		if (DFK_TID == 0)
			dfk_miss(d, blk, sh, sh->ctx, 1);
		dfk_sync();
	} else if (sh->move) {
		if (DFK_TID == 0) {
			dfk_accept(d, blk, sh->ctx);
			dfk_pub_slice(sh->ctx, sh->inst, sh->takes, sh->recv_pos, &sh->pub);
			dfk_pub_inst(sh->now, (uint32_t)dfk_is_last(sh->ctx), &sh->pub);
		}
		let = dfk_let(d, blk, sh);
		dfk_execute(sh);
		if (let)
			dfk_retake(blk, sh->ctx);
		dfk_sync();
		if (sh->puts) {
			dfk_words_put(&sh->put, stage->out,
				      sh->ctx->send[sh->inst->send_conn].slot_bytes);
			dfk_sync();
		}
		if (DFK_TID == 0)
			dfk_commit(d, blk, sh);
	}
	return (enum df_turn)sh->turn;
}

#if DFK_WAYS
/*
 * If a block only waits for a peer's next slice, it stays longer by this factor, because the slice
 * may arrive at any moment.
 */
#define DFK_PATIENCE 10
/*
 * If a block has no task, it stays shorter by this divisor, because it takes a multiprocessor from
 * the program's next work. It does stay a little: a program that waits for each operation submits
 * the next one within microseconds.
 */
#define DFK_HASTE 20

/* Thread 0: publishes to the other blocks whether this one has recently had work. */
DFK void dfk_stays(struct dfk_local *l, uint32_t stays)
{
	if (l->stays == stays)
		return;
	l->stays = stays;
	/* RELAXED, as are its reads: it carries no data. */
	dfk_store_relaxed_sys(&l->home->stays, stays);
}

/*
 * Whether some block still stays. While it is the same block as before, this reads across the bus
 * once.
 */
DFK int dfk_one_stays(struct dfk_local *l)
{
	uint32_t i;

	if (dfk_load_relaxed_sys(&l->d.blocks[l->asks].stays))
		return 1;
	for (i = 0; i < l->d.nr_blocks; i++) {
		if (dfk_load_relaxed_sys(&l->d.blocks[i].stays)) {
			l->asks = i;
			return 1;
		}
	}
	return 0;
}

/*
 * Thread 0, after each turn: whether the block leaves. It leaves when df_kdaemon.quit is set, or
 * when no block has made progress for df_policy.quit_ns, or for a part of that if no block has
 * work. In many calls the driver waits for the kernel (device synchronization, loading, a kernel
 * that needs the whole device), so a daemon without work must not stay. The host launches it again
 * when there is work.
 *
 * The blocks leave together. The host cannot launch a single block, so work for a block that has
 * left alone would wait until the last block leaves, and other work may keep that busy for as long
 * as the job runs. A block for which the device had no room does not keep the others from leaving.
 * It starts when they have left, and leaves only after its own time, or it would never execute
 * anything (tests/model/leave.pml).
 *
 * h: of the calling thread; zero at first. A block that makes progress uses the host's words one
 * turn after it has begun to read them, so it does not wait for the bus.
 */
DFK int dfk_leaves(struct dfk_local *l, enum df_turn turn, struct dfk_heed *h)
{
	uint64_t now;

	if (turn == DF_TURN_PROGRESS) {
		l->still = 0;
		l->able = 0;
		dfk_stays(l, 1);
	}
	l->moves = turn == DF_TURN_PROGRESS;
	if (!h->begun) {
		if (l->looks % DFK_LOOK_EVERY) {
			l->looks++;
			return 0;
		}
		*h = dfk_heed_begin(&l->blk);
		h->begun = 1;
		if (l->moves)
			return 0;
	}
	h->begun = 0;
	l->looks++;
	if (dfk_sq_more(&l->blk, h->tail))
		l->eager = 1;
	if (h->quit)
		return 1;
	if (l->moves && !h->leave && l->came)
		return 0;
	now = dfk_now_ns();
	if (!l->came)
		l->came = now;
	if (h->leave && now - l->came >= l->d.policy.quit_ns)
		return 1;
	if (l->moves)
		return 0;
	if (!l->still)
		l->still = now;
	if (now - l->still < (turn == DF_TURN_EMPTY
				      ? l->d.policy.quit_ns / DFK_HASTE
				      : l->d.policy.quit_ns * (l->able ? DFK_PATIENCE : 1)))
		return 0;
	dfk_stays(l, 0);
	if (dfk_one_stays(l))
		return 0;
	dfk_store_relaxed_sys(&l->d_home->leave, 1u);
	l->blk.stats.quits++;
	return 1;
}
#endif
