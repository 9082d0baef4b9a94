/*
 * Submissions on a GPU. The first warp reads the next slot of the ring whole, each thread a word.
 * So a look is one round trip across the bus, and finds the submission complete or not at all.
 */

/*
 * The first warp: takes the next submission to shared memory. Returns whether there is one.
 * dfk_local.tail shows whether another one follows.
 */
DFK int dfk_sq_get(struct df_kblock *blk)
{
	struct dfk_local *l = dfk_local(blk);
	const struct df_ring *sq = &blk->sq;
	const struct df_sq_slot *slot =
		(const struct df_sq_slot *)sq->slots + (sq->head & sq->mask);
	const uint64_t *from = (const uint64_t *)(const void *)slot;
	dfk_u64 *to = (dfk_u64 *)(void *)&l->slot;
	uint64_t lap = DF_LAP(sq, sq->head);
	uint32_t i, tail = 0, words = sizeof(*slot) / 8;
	int got = 1;

	/* RELAXED: a hint. It is in progress together with the other loads. */
	if (DFK_TID == DFK_LANES - 1)
		tail = dfk_load_relaxed_sys(&l->home->sq.tail);
	for (i = (uint32_t)DFK_TID; i < words; i += DFK_LANES) {
		/*
		 * ACQUIRE of the first word, by thread 0, pairs with the RELEASE in df_sq_put()
		 * (kernels/slot.h): without it, what the submission refers to could be read
		 * before it is complete. The other words are data and flag in one.
		 */
		uint64_t v = dfk_load_acquire_sys(&from[i]);

		got &= v >> 63 == lap;
		to[i] = v;
	}
	if (DFK_TID == DFK_LANES - 1)
		l->tail = tail;
	if (!dfk_lanes_all(got))
		return 0;
	for (i = (uint32_t)DFK_TID; i + 1 < words; i += DFK_LANES)
		to[i] = to[i] << 1 >> 1 | l->slot.tops >> i << 63;
	return dfk_lanes_all(1);
}

/*
 * Thread 0, with a submission to a block without tasks: whether it is the instance that was planned
 * ahead (gpu/short.inl). If so, accepts it and decides this turn, with the results of
 * dfk_sq_accept() and dfk_decide(). In these, each load waits for the previous one. Here all loads
 * precede the stores. This is possible because the block has no other task, and because the copy of
 * the context is in shared memory already (hot.inl).
 */
DFK int dfk_sq_planned(const struct df_kdaemon *d, struct df_kblock *blk, struct dfk_shared *sh)
{
	struct dfk_local *l = dfk_local(blk);
	struct df_kctx *ctx = l->planned, *home = l->slot.e.ctx;
	uint64_t announced, turns = l->turns;
	uint32_t head = blk->sq.head, queued = blk->queued, most = blk->stats.max_queue;
	int64_t spin = dfk_threshold(&d->policy, 0);

	if (!ctx || blk->task || !l->slot.e.inst)
		return 0;
	announced = ctx->announced;
	if ((ctx->home != home) | (l->plan_seq != announced) | l->plan_bad | !l->plan_room |
	    (d->policy.order != 0))
		return 0;
	dfk_now_from(ctx, &l->slot);
	ctx->announced = announced + 1;
	ctx->priority = 0;
	ctx->queued = ctx->loaded = 1;
	ctx->since = queued;
	ctx->polls = 0;
	ctx->spin = spin;
	((struct dfk_hot *)(void *)ctx)->used = turns;
	blk->first = blk->last = blk->task = home;
	blk->pos = 0;
	blk->idle = 0;
	blk->nr_tasks = 1;
	blk->queued = queued + 1;
	blk->stats.max_queue = most ? most : 1;
	dfk_sq_taken(blk, head + 1);
	l->eager = (uint32_t)dfk_sq_more(blk, l->tail);
	sh->ctx = ctx;
	sh->move = sh->ahead = sh->plan = 0;
	sh->fetch.home = NULL;
	sh->brief = 1;
	return 1;
}

/*
 * The first warp: accepts the submissions. Looks again for a while if there is no work. Returns to
 * thread 0 whether the turn is decided.
 */
DFK int dfk_sq_look(struct df_kdaemon *d, struct df_kblock *blk, struct dfk_shared *sh)
{
	struct dfk_local *l = dfk_local(blk);
	int looks = 0, more, decided = 0;

	do {
		int got = dfk_sq_get(blk);

		more = 0;
		if (DFK_TID == 0 && got && dfk_sq_planned(d, blk, sh)) {
			decided = 1;
		} else if (DFK_TID == 0 && got) {
			dfk_sq_accept(d, blk, &l->slot, 1);
			dfk_sq_taken(blk, blk->sq.head + 1);
			more = dfk_sq_more(blk, l->tail);
		} else if (DFK_TID == 0) {
			more = dfk_look_again(blk, ++looks);
		}
	} while (dfk_lanes_any(more));
	return decided;
}
