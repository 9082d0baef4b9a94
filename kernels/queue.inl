/*
 * A block's task queue, and the order in which its tasks get their turns: by arrival or priority, for how many polls,
 * and when ranks that disagree change to the order that is common to all of them (docs/kernels.md). Nothing but speed
 * depends on what is decided here. Thread 0 alone calls it.
 *
 * `home` is a task as the queue names it, `ctx` where its state is at the moment (hot.inl).
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

DFK void dfk_queue_add(struct df_kdaemon *d, struct df_kblock *blk, struct df_kctx *home)
{
	struct df_kctx *ctx = dfk_at(blk, home), *after = blk->last;

	while (after && dfk_overtakes(d, blk, ctx, dfk_at(blk, after)))
		after = dfk_at(blk, after)->prev;
	ctx->prev = after;
	ctx->next = after ? dfk_at(blk, after)->next : blk->first;
	if (ctx->next)
		dfk_at(blk, ctx->next)->prev = home;
	else
		blk->last = home;
	if (after)
		dfk_at(blk, after)->next = home;
	else
		blk->first = home;
	ctx->queued = 1;
	ctx->loaded = 0;
	ctx->since = blk->queued++;
	blk->nr_tasks++;
	if (blk->nr_tasks > blk->stats.max_queue)
		blk->stats.max_queue = blk->nr_tasks;
	if (d->policy.order || !blk->task || dfk_overtakes(d, blk, ctx, dfk_at(blk, blk->task))) {
		blk->task = blk->first;
		blk->pos = 0;
	}
}

DFK void dfk_queue_remove(struct df_kblock *blk, struct df_kctx *home)
{
	struct df_kctx *ctx = dfk_at(blk, home);

	if (blk->running == home)
		blk->running = NULL;
	if (blk->task == home)
		blk->task = ctx->next; /* the position is now that of the next task */
	if (ctx->prev)
		dfk_at(blk, ctx->prev)->next = ctx->next;
	else
		blk->first = ctx->next;
	if (ctx->next)
		dfk_at(blk, ctx->next)->prev = ctx->prev;
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
DFK void dfk_queue_move(struct df_kdaemon *d, struct df_kblock *blk, struct df_kctx *home)
{
	struct df_kctx *running = blk->running, *ctx = dfk_at(blk, home);
	uint32_t since = ctx->since;

	dfk_queue_remove(blk, home);
	dfk_queue_add(d, blk, home);
	ctx->since = since;
	blk->running = running;
}

/* The end of a traversal is where a block notices that nothing moves. */
DFK void dfk_queue_advance(struct df_kblock *blk)
{
	blk->task = dfk_at(blk, blk->task)->next;
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
DFK int dfk_heard(const struct df_kctx *ctx, struct df_kconn *r)
{
	if (!dfk_connected(ctx, r))
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
	uint32_t i, k;

	if ((int32_t)(now->since - last->since) <= 0 || !last->finished || !now->finished ||
	    !last->nr_send || !now->nr_send)
		return 0;
	for (i = 0; i < last->nr_recv; i++) {
		if (dfk_heard(last, &last->recv[i]))
			continue;
		for (k = 0; k < now->nr_recv; k++)
			if (dfk_heard(now, &now->recv[k]) > 0 &&
			    now->recv[k].peer == last->recv[i].peer)
				return 1;
	}
	return 0;
}
