/*
 * The daemon: what one block does in one turn. Compiled twice, for a GPU block and for a CPU thread.
 *
 * A turn is: take in new submissions; look at the task whose turn it is; if its next slice can move, move
 * it, else count a failed poll and, past the spin threshold, go to the next task (that is the whole of
 * preemption: nothing is held and nothing needs saving, because df_kctx.k says where the task stands).
 *
 * Thread 0 of the block decides and commits; all threads move data. What they agree on lies in
 * struct dfk_shared.
 *
 *   hot.inl     copies of what is in use, where that lies across a bus
 *   queue.inl   the task queue, and whose turn it is
 *   rings.inl   submissions in, completions out
 *   words.inl   slots whose words say themselves that they are full
 *   task.inl    a task's slice: poll, execute, commit
 */

#include "kernels/words.inl"
#include "kernels/hot.inl"
#include "kernels/queue.inl"
#include "kernels/rings.inl"
#include "kernels/task.inl"

/*
 * The block turns from one collective to another. A preemption is counted where it happens: when another
 * collective moves while the one that moved last is unfinished. Looking at tasks in vain costs nothing.
 */
DFK void dfk_switch(struct df_kdaemon *d, struct df_kblock *blk, struct df_kctx *ctx)
{
	struct df_kctx *last = blk->running;

	if (last) {
		last = dfk_at(blk, last);
		last->preempted = 1;
		blk->stats.preemptions++;
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
 * Thread 0: the instance in work has begun. A verdict has to know that of what hangs, a trace of everything: without one, what
 * runs through is not worth the writes.
 */
DFK void dfk_tell(struct df_kblock *blk, struct df_kctx *ctx)
{
	if (!ctx->lead || ctx->told)
		return;
	ctx->told = 1;
	dfk_cq_push(blk, DF_CQE_START, ctx);
}

/* Thread 0: the task did not move. able: it could start, it only waits for a peer. */
DFK void dfk_miss(struct df_kdaemon *d, struct df_kblock *blk, struct dfk_shared *sh,
		  struct df_kctx *ctx, int able)
{
	/* A rank of this daemon: it moves when it has its turn, not while we look for what it sends. */
	int own = able && sh->peer && sh->peer == d->self;

	blk->stats.polls++;
	sh->turn = DF_TURN_SPIN;
	if (able)
		dfk_able(blk);
	if (own)
		dfk_ask(blk);
	else if (able && ++ctx->polls < ctx->spin)
		return;
	/* What the next turn brings along is not worth the writes. */
	if (!own || blk->idle) {
		if (d->policy.events && ctx->k > ctx->finished * ctx->coll->loops * ctx->nr_inst)
			dfk_tell(blk, ctx);
		dfk_publish(blk);
	}
	/* Past its threshold, or not able to start: the next task gets its turn. Who was due has had its chance. */
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

/* Thread 0: what is to be done in this turn. */
DFK void dfk_decide(struct df_kdaemon *d, struct df_kblock *blk, struct dfk_shared *sh,
		    struct dfk_stage *stage)
{
	struct df_kctx *ctx;
	int got;

	sh->move = 0;
	sh->fetch.home = NULL;
	if (dfk_look(blk))
		dfk_sq_drain(d, blk, 1);
	if (!blk->task) {
		dfk_publish(blk);
		sh->turn = DF_TURN_EMPTY;
		return;
	}
	ctx = dfk_queue_free(blk);
	if (!ctx) {
		sh->turn = DF_TURN_TAKEN;
		return;
	}
#if DFK_WAYS
	if (!dfk_way(blk, ctx)) {
		dfk_fetch_begin(blk, ctx, &sh->fetch);
		sh->turn = DF_TURN_SPIN;
		return;
	}
	ctx = &dfk_way(blk, ctx)->ctx;
	((struct dfk_hot *)(void *)ctx)->used = dfk_local(blk)->turns;
#endif
	/*
	 * ACQUIRE pairs with the RELEASE of aborted in df_coll_abort() (runtime/coll/coll.c), which then waits
	 * until this block has dropped the task. On a GPU it does so before it launches us again: a copy
	 * is not told.
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
	got = dfk_task_poll(ctx, sh, stage);
	if (got > 0)
		sh->turn = DF_TURN_PROGRESS;
	else
		dfk_miss(d, blk, sh, ctx, got == 0);
}

/* All threads, which meet before the next turn: until then thread 0 may still be at this one. */
DFK enum df_turn dfk_block_turn(struct df_kdaemon *d, struct df_kblock *blk, struct dfk_shared *sh,
				struct dfk_stage *stage)
{
	int let;

	if (DFK_TID == 0)
		dfk_decide(d, blk, sh, stage);
	dfk_sync();
#if DFK_WAYS
	if (sh->fetch.home) {
		dfk_fetch(&sh->fetch);
		return DF_TURN_SPIN;
	}
#endif
	if (sh->move && sh->takes && !dfk_sync_and(dfk_words_get(&sh->get, stage->in))) {
		/* Nothing has happened; thread 0 alone writes what the others have read. */
		if (DFK_TID == 0)
			dfk_miss(d, blk, sh, sh->ctx, 1);
		dfk_sync();
	} else if (sh->move) {
		if (DFK_TID == 0)
			dfk_accept(d, blk, sh->ctx);
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
/* So many times as long a block stays if a peer's next slice is all that it waits for: it comes at any moment. */
#define DFK_PATIENCE 10
/*
 * And by so many times less if it has no task at all: it takes a multiprocessor from whatever the program does next. A little
 * it stays, since who waits for each operation submits the next one within microseconds.
 */
#define DFK_HASTE 20

/* Thread 0: whether the block has had something to do lately, for the others. */
DFK void dfk_stays(struct dfk_local *l, uint32_t stays)
{
	if (l->stays == stays)
		return;
	l->stays = stays;
	/* Relaxed, and so are the looks at it: it carries no data. */
	dfk_store_relaxed_sys(&l->home->stays, stays);
}

/* 1: some block stays. As long as it is the same one, that is one look across the bus. */
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
 * Thread 0, after each turn: does the block leave? When it is asked to, or when nothing has moved in any block for
 * df_policy.quit_ns, or a part of it if there is nothing to do in any. The driver waits for the kernel in calls that are nobody's fault (device synchronisation, loading, a
 * kernel that needs the whole device), so a daemon that has nothing to do must not stay. The host launches it again when
 * there is something.
 *
 * They leave together: the host can't launch one block, and work for one that had left alone would wait until the
 * last one leaves, which may be busy with other work for as long as the job runs. A block for which there was no room
 * stops nobody. It comes when the others are gone, and follows them when it has had its time, or it would never get
 * anything done (tests/model/leave.pml).
 */
DFK int dfk_leaves(struct dfk_local *l, enum df_turn turn)
{
	uint32_t quit, leave;
	uint64_t now;

	if (turn == DF_TURN_PROGRESS) {
		l->still = 0;
		l->able = 0;
		dfk_stays(l, 1);
	}
	if (l->looks++ % DFK_LOOK_EVERY)
		return 0;
	/* Relaxed: they carry no data. Both are on their way together. */
	quit = dfk_load_relaxed_sys(&l->d_home->quit);
	leave = dfk_load_relaxed_sys(&l->d_home->leave);
	if (quit)
		return 1;
	if (turn == DF_TURN_PROGRESS && !leave && l->came)
		return 0;
	now = dfk_now_ns();
	if (!l->came)
		l->came = now;
	if (leave && now - l->came >= l->d.policy.quit_ns)
		return 1;
	if (turn == DF_TURN_PROGRESS)
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
