/*
 * Waiting in place, on a GPU: thread 0 looks at a task's next slice many times in a turn, because a
 * turn takes longer than a look. Meanwhile it reads the host's words that can end the wait, so no
 * look waits for the bus.
 */

/* Looks at words and streams in a turn; after that, the block looks elsewhere. */
#define DFK_LOOKS 32
/* Words of the host are read once in this number of those looks. */
#define DFK_HEED_EVERY 4

/*
 * Words of the host, read while thread 0 waits for something else: whether there are submissions or
 * a request to leave. The loads are in progress until dfk_heed() uses their results.
 */
struct dfk_heed {
	uint32_t tail, quit, leave;
	uint32_t begun; /* for dfk_leaves(): whether they are being read */
};

DFK struct dfk_heed dfk_heed_begin(const struct df_kblock *blk)
{
	const struct dfk_local *l = dfk_local(blk);
	struct dfk_heed h;

	/* RELAXED: hints, which are read again before anything follows from them. */
	h.tail = dfk_load_relaxed_sys(&l->home->sq.tail);
	h.quit = dfk_load_relaxed_sys(&l->d_home->quit);
	h.leave = dfk_load_relaxed_sys(&l->d_home->leave);
	h.begun = 0;
	return h;
}

/* Whether the block should look there. */
DFK int dfk_heed(struct df_kblock *blk, const struct dfk_heed *h)
{
	struct dfk_local *l = dfk_local(blk);

	if (dfk_sq_more(blk, h->tail))
		l->eager = 1;
	if (h->quit || h->leave)
		l->looks = 0;
	return dfk_sq_more(blk, h->tail) || h->quit || h->leave;
}

/* Thread 0: the turn has taken as long as several others, for dfk_leaves(). */
DFK void dfk_lasted(struct df_kblock *blk)
{
	struct dfk_local *l = dfk_local(blk);

	l->looks = (l->looks + 3) & ~3u;
}

/*
 * Thread 0: as dfk_task_poll(), but looks until the threshold is reached or the host wants
 * something. It looks once if other tasks could start instead, and if the peer may be a task of
 * this block, which acts only when it has its turn.
 */
DFK int dfk_await(struct df_kdaemon *d, struct df_kblock *blk, struct df_kctx *ctx,
		  struct dfk_shared *sh, struct dfk_stage *stage)
{
	struct dfk_heed h = {blk->sq.head, 0, 0, 0};
	int64_t left = ctx->spin - ctx->polls, i;
	int got, alone = blk->first == blk->last;

	if (left > DFK_LOOKS)
		left = DFK_LOOKS;
	for (i = 0; (got = dfk_task_poll(ctx, sh, stage)) <= 0; i++) {
		if (got < 0 ? !alone || i + 1 >= DFK_LOOKS
			    : i + 1 >= left || dfk_is_own(d, blk, sh->peer))
			break;
		if (i % DFK_HEED_EVERY)
			continue;
		if (dfk_heed(blk, &h))
			break;
		h = dfk_heed_begin(blk);
	}
	if (i) {
		ctx->polls += i;
		dfk_lasted(blk);
	}
	return got;
}
