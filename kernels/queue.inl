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

/*
 * A task is as urgent as the most urgent of its instances. One of them has left, or the host has made one more urgent: is
 * it still what it was?
 */
DFK void dfk_queue_weigh(struct df_kdaemon *d, struct df_kblock *blk, struct df_kctx *ctx)
{
	const struct df_kinst *in = ctx->cur;
	uint64_t nr = ctx->announced - ctx->finished;
	int32_t most = 0, p;
	uint64_t i;

	for (i = 0; i < nr; i++) {
		if (i || dfk_now(ctx)->seq != ctx->finished)
			/* ACQUIRE pairs with the RELEASE of next in df_coll_instance(), as in dfk_task_poll(). */
			in = dfk_load_acquire_sys(&in->next);
		/* Relaxed: the host may raise it (df_coll_lend()); it carries no data. */
		p = dfk_load_relaxed_sys(&in->priority);
		if (!i || p > most)
			most = p;
	}
	if (most == ctx->priority)
		return;
	ctx->priority = most;
	dfk_queue_move(d, blk, dfk_home(ctx));
}

/*
 * By priority: something less urgent is queued too. After a slice of its own an urgent task waits for its peers about as
 * long as one of their slices may take (df_policy.urgent), and is then looked at once after each slice of the others.
 */
DFK int dfk_is_urgent(const struct df_kblock *blk, const struct df_kctx *ctx)
{
	return ctx->priority > dfk_at(blk, blk->last)->priority;
}

/*
 * Whose turn it is. While slices move without the lock, only a task that is more urgent than the least urgent one, and of which no slice
 * moves: a thread that comes by executes what is urgent beside them, and takes nothing else up that could keep it. NULL: there is none.
 */
#if DFK_WAYS
#define dfk_queue_free(blk) ((blk)->task)
#else
DFK struct df_kctx *dfk_queue_free(struct df_kblock *blk)
{
	int again = 0;

	if (!blk->moving)
		return blk->task;
	while (!dfk_is_urgent(blk, blk->task) || blk->task->moving) {
		/* One that is urgent is not the last. */
		if (dfk_is_urgent(blk, blk->task)) {
			blk->task = blk->task->next;
			blk->pos++;
			continue;
		}
		if (again++)
			return NULL;
		blk->task = blk->first;
		blk->pos = 0;
	}
	return blk->task;
}
#endif

/*
 * By priority: a slice of so many bytes has moved. What the more urgent tasks move while others are queued is accounted
 * for, so that those get their share of it in the end. Looking after a slice costs about as much as 512 bytes.
 */
DFK void dfk_account(const struct df_kdaemon *d, struct df_kblock *blk, const struct df_kctx *ctx,
		     uint64_t bytes)
{
	int64_t work = (int64_t)bytes + 512, share = d->policy.share;

	if (dfk_is_urgent(blk, ctx))
		blk->owed += work * share;
	else if (ctx->priority < dfk_at(blk, blk->first)->priority)
		blk->owed -= work * (100 - share);
	if (blk->owed < 0)
		blk->owed = 0;
}

/* What the share is dealt out in, in bytes: several slices of small operations, one of a large one. */
#define DFK_SHARE_BYTES 65536

DFK int dfk_owes(const struct df_kdaemon *d, const struct df_kblock *blk)
{
	return blk->owed && blk->owed >= DFK_SHARE_BYTES * (100 - (int64_t)d->policy.share);
}

/* The less urgent task whose share is longest ago. NULL: all are equally urgent. */
DFK struct df_kctx *dfk_queue_due(struct df_kblock *blk, uint32_t *pos)
{
	int32_t most = dfk_at(blk, blk->first)->priority;
	struct df_kctx *home, *due = NULL;
	uint32_t i = 0;

	for (home = blk->first; home; home = dfk_at(blk, home)->next, i++) {
		const struct df_kctx *ctx = dfk_at(blk, home);

		if (ctx->priority == most ||
		    (due && (int32_t)(ctx->served - dfk_at(blk, due)->served) >= 0))
			continue;
		due = home;
		*pos = i;
	}
	return due;
}

/*
 * By priority, after each slice: whose turn is it now? That of whatever is more urgent than what has just moved, since it
 * may have become ready meanwhile; and from time to time that of the others.
 */
DFK void dfk_queue_front(struct df_kdaemon *d, struct df_kblock *blk)
{
	struct df_kctx *first = blk->first, *turn = blk->task, *due = NULL;
	uint32_t pos = 0;

	if (!first || first == blk->last)
		return;
	if (dfk_owes(d, blk))
		due = dfk_queue_due(blk, &pos);
	if (due) {
		dfk_at(blk, due)->served = ++blk->served;
	} else if (dfk_at(blk, turn)->priority < dfk_at(blk, first)->priority) {
		due = first;
		pos = 0;
	}
	if (!due || due == turn)
		return;
	dfk_at(blk, turn)->loaded = 0;
	blk->task = due;
	blk->pos = pos;
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
