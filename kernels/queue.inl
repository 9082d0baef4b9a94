/*
 * A block's task queue, and the order in which its tasks get their turns: by arrival or priority, for how many polls,
 * and when ranks that disagree change to the order that is common to all of them (docs/kernels.md). Nothing but speed
 * depends on what is decided here. Thread 0 alone calls it.
 */

/*
 * Is a's place before b's, although it came later? Ranks that issue in one order meet by keeping it. Ranks that
 * don't would each prefer another task; while df_kblock.gang is set they prefer the same one, because the names of
 * collectives are the same on all of them.
 */
DFK int dfk_overtakes(const struct df_kdaemon *d, const struct df_kblock *blk,
		      const struct df_kctx *a, const struct df_kctx *b)
{
	if (d->policy.order && a->priority != b->priority)
		return a->priority > b->priority;
	return blk->gang && a->coll->id < b->coll->id;
}

DFK void dfk_queue_add(struct df_kdaemon *d, struct df_kblock *blk, struct df_kctx *ctx)
{
	struct df_kctx *after = blk->last;

	while (after && dfk_overtakes(d, blk, ctx, after))
		after = after->prev;
	ctx->prev = after;
	ctx->next = after ? after->next : blk->first;
	if (ctx->next)
		ctx->next->prev = ctx;
	else
		blk->last = ctx;
	if (after)
		after->next = ctx;
	else
		blk->first = ctx;
	ctx->queued = 1;
	ctx->loaded = 0;
	ctx->since = blk->queued++;
	blk->nr_tasks++;
	if (blk->nr_tasks > blk->stats.max_queue)
		blk->stats.max_queue = blk->nr_tasks;
	if (d->policy.order || !blk->task || dfk_overtakes(d, blk, ctx, blk->task)) {
		blk->task = blk->first;
		blk->pos = 0;
	}
}

DFK void dfk_queue_remove(struct df_kblock *blk, struct df_kctx *ctx)
{
	if (blk->running == ctx)
		blk->running = NULL;
	if (blk->task == ctx)
		blk->task = ctx->next; /* the position is now that of the next task */
	if (ctx->prev)
		ctx->prev->next = ctx->next;
	else
		blk->first = ctx->next;
	if (ctx->next)
		ctx->next->prev = ctx->prev;
	else
		blk->last = ctx->prev;
	ctx->next = ctx->prev = NULL;
	ctx->queued = 0;
	ctx->loaded = 0;
	blk->nr_tasks--;
	if (!blk->task) {
		blk->task = blk->first;
		blk->pos = 0;
	}
}

/* Its priority has changed. */
DFK void dfk_queue_move(struct df_kdaemon *d, struct df_kblock *blk, struct df_kctx *ctx)
{
	struct df_kctx *running = blk->running;
	uint32_t since = ctx->since;

	dfk_queue_remove(blk, ctx);
	dfk_queue_add(d, blk, ctx);
	ctx->since = since;
	blk->running = running;
}

/* The end of a traversal is where a block notices that nothing moves. */
DFK void dfk_queue_advance(struct df_kblock *blk)
{
	blk->task = blk->task->next;
	blk->pos++;
	if (!blk->task) {
		blk->task = blk->first;
		blk->pos = 0;
		blk->idle = blk->moved ? 0 : blk->idle + 1;
		blk->moved = 0;
	}
}

DFK int64_t dfk_threshold(const struct df_policy *p, uint32_t pos)
{
	int64_t t = p->front - p->step * (int64_t)pos;

	return t < p->floor ? p->floor : t;
}

/* Has the other end sent something for the instance in work? -1: there is none yet, or no more. */
DFK int dfk_heard(const struct df_kctx *ctx, const struct df_kconn *r)
{
	/* ACQUIRE pairs with the RELEASE of state in connect_end() (runtime/connector.c), as in dfk_task_poll(). */
	if (dfk_load_acquire_sys(&r->state) != 1)
		return -1;
	/* ACQUIRE pairs with the RELEASE of tail in dfk_commit(); nothing is read here that it publishes. */
	return dfk_load_acquire_sys(r->tail) > ctx->finished * ctx->coll->loops * r->per_loop;
}

/*
 * Is there a peer that has begun `now`, which we queued after `last`, but has sent nothing for that? Then it has
 * another order. A peer that is only late has sent nothing for either. One that has our order tries first what it
 * queued first, and where a program begins with sending that slice waits for nobody; where it does not, this is a
 * guess. First instances don't count: they begin in the order in which their connectors come.
 */
DFK int dfk_disagree(const struct df_kctx *last, const struct df_kctx *now)
{
	const struct df_prog_block *l = df_prog_block(last->coll->prog, last->block);
	const struct df_prog_block *n = df_prog_block(now->coll->prog, now->block);
	uint32_t i, k;

	if ((int32_t)(now->since - last->since) <= 0 || !last->finished || !now->finished ||
	    !l->nr_send || !n->nr_send)
		return 0;
	for (i = 0; i < l->nr_recv; i++) {
		if (dfk_heard(last, &last->recv[i]))
			continue;
		for (k = 0; k < n->nr_recv; k++)
			if (dfk_heard(now, &now->recv[k]) > 0 &&
			    now->recv[k].peer == last->recv[i].peer)
				return 1;
	}
	return 0;
}
