/*
 * A block's task queue, and the order in which its tasks get turns: by arrival or priority, for how
 * many polls, and when ranks that disagree change to the order that is common to all of them
 * (docs/kernels.md). These decisions affect only speed. Only thread 0 calls this.
 *
 * `home` is the original context, by which the queue knows a task. `ctx` is where its state is at
 * the moment (hot.inl).
 */

/*
 * Whether a is placed before b although it arrived later. Ranks that issue in the same order agree
 * by keeping that order. Ranks that do not would each prefer another task. While df_kblock.gang is
 * set they prefer the same one, because the ids of collectives are equal on all ranks.
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
	struct df_kctx *home = dfk_home(ctx), *after = blk->last;

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

/* Moves the task because its priority has changed. */
DFK void dfk_queue_move(struct df_kdaemon *d, struct df_kblock *blk, struct df_kctx *home)
{
	struct df_kctx *running = blk->running, *ctx = dfk_at(blk, home);
	uint32_t since = ctx->since;

	dfk_queue_remove(blk, home);
	dfk_queue_add(d, blk, ctx);
	ctx->since = since;
	blk->running = running;
}

/*
 * A task is as urgent as its most urgent instance. Adjusts its priority after an instance has
 * finished or the host has raised one.
 */
DFK void dfk_queue_weigh(struct df_kdaemon *d, struct df_kblock *blk, struct df_kctx *ctx)
{
	const struct df_kinst *in = ctx->cur;
	uint64_t nr = ctx->announced - ctx->finished;
	int32_t most = 0, p;
	uint64_t i;

	for (i = 0; i < nr; i++) {
		if (i || dfk_now(ctx)->seq != ctx->finished)
			/*
			 * ACQUIRE pairs with the RELEASE of next in df_coll_append(), as in
			 * dfk_task_poll().
			 */
			in = dfk_load_acquire_sys(&in->next);
		/* RELAXED: the host may raise it (df_coll_lend()); it carries no data. */
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
 * By priority: whether a less urgent task is queued too. After a slice of its own, an urgent task
 * waits for its peers about as long as one of their slices may take (df_policy.urgent). After that
 * it is polled once after each slice of the other tasks.
 */
DFK int dfk_is_urgent(const struct df_kblock *blk, const struct df_kctx *ctx)
{
	return ctx->priority > dfk_at(blk, blk->last)->priority;
}

/*
 * Returns the task that has its turn. While slices move without the lock, this is a task that is
 * more urgent than the least urgent one and has no moving slice. So another thread executes urgent
 * tasks in the meantime, and begins nothing else that could delay the slices. NULL if there is
 * none.
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
		/* A task at the end of the queue is not urgent. */
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
 * By priority: called when a slice of this many bytes has moved. Adds up what the more urgent tasks
 * move while others are queued, so that those finally get their share. Polling after a slice costs
 * about as much as 512 bytes.
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

/*
 * The bytes that the less urgent tasks move at a time when they get their share: several slices of
 * small operations, one of a large one.
 */
#define DFK_SHARE_BYTES 65536

DFK int dfk_owes(const struct df_kdaemon *d, const struct df_kblock *blk)
{
	return blk->owed && blk->owed >= DFK_SHARE_BYTES * (100 - (int64_t)d->policy.share);
}

/*
 * Returns the less urgent task that has waited longest for its share, or NULL if all are equally
 * urgent.
 */
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
 * By priority, after each slice: chooses the task of the next turn. This is a more urgent task than
 * the last one, because it may have become ready, or from time to time one of the others.
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

/* Called at the end of a traversal of the queue: notices that nothing makes progress. */
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

/*
 * Whether the other end has sent something for the running instance; -1 if the connector is not
 * connected.
 */
DFK int dfk_heard(const struct df_kctx *ctx, struct df_kconn *r)
{
	if (!dfk_connected(ctx, r))
		return -1;
	/*
	 * ACQUIRE pairs with the RELEASE of tail in dfk_commit(); none of the data that it
	 * publishes is read here.
	 */
	return dfk_load_acquire_sys(r->tail) > ctx->finished * ctx->coll->loops * r->per_loop;
}

/*
 * Whether a peer has begun `now`, which this block queued after `last`, but has sent nothing for
 * `last`. Then the peer has another order. A late peer has sent nothing for either. A peer with the
 * same order first tries the task that it queued first. If a program begins by sending, its first
 * slice waits for no other, so the answer is certain; otherwise it is a guess. First instances do
 * not count, because they begin in the order in which their connectors are made.
 */
DFK int dfk_disagree(const struct df_kctx *last, const struct df_kctx *now)
{
	uint32_t i, k;

	if ((int32_t)(now->since - last->since) <= 0 || !last->finished || !now->finished ||
	    !last->nr_send || !now->nr_send)
		return 0;
	/* The same collective, of two ranks of this daemon: no order has one before the other. */
	if (last->coll->id == now->coll->id)
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
