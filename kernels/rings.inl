/*
 * The exchange between a block and the host: submissions, new connectors, completions. Only thread
 * 0 calls this.
 */

/* Thread 0: initializes counters in this GPU's memory; see df_kconn.fresh. */
DFK void dfk_conn_begin(struct df_kconn *c)
{
	/*
	 * ACQUIRE pairs with the RELEASE of fresh in connect_end() (runtime/coll/connector.c):
	 * without it, the connector's pointers could be read before they are set.
	 */
	uint64_t *fresh = dfk_load_acquire_sys(&c->fresh);

	if (!fresh)
		return;
	c->fresh = NULL;
	if (c->proto >= DF_PROTO_LL) {
		uint64_t *word = (uint64_t *)(void *)c->slots;
		uint64_t i;

		for (i = 0; i < (uint64_t)c->nr_slots * c->slot_bytes / 8; i++)
			dfk_store_relaxed_sys(&word[i], (uint64_t)0);
	}
	dfk_store_relaxed_sys(c->tail, c->base);
	dfk_store_relaxed_sys(c->head, c->base);
	c->seen = 0;
	dfk_store_relaxed_sys(&c->state, (uint32_t)DF_KCONN_CONNECTED);
	/*
	 * RELEASE pairs with the ACQUIRE of ready in reach_far() (runtime/transport/p2p.c): without
	 * it, the other side could take the previous contents of this memory for the counters.
	 */
	dfk_store_release_sys(fresh, (uint64_t)1);
}

DFK void dfk_begin(struct df_kctx *ctx)
{
	struct df_kctx *home = dfk_home(ctx);
	uint32_t i;

	ctx->fresh = 0;
	for (i = 0; i < ctx->nr_send; i++)
		dfk_conn_begin(&home->send[i]);
	for (i = 0; i < ctx->nr_recv; i++)
		dfk_conn_begin(&home->recv[i]);
}

/*
 * Thread 0: accepts a submission. far: this thread can access the GPU's memory. The host, when it
 * cleans queues, leaves that to the block's next turn.
 */
DFK void dfk_sq_accept(struct df_kdaemon *d, struct df_kblock *blk, const struct df_sq_slot *slot,
		       int far)
{
	struct df_sqe e = dfk_sqe(slot);
	struct df_kctx *ctx = dfk_at(blk, e.ctx);
	int32_t priority;

	blk->idle = 0;
	if (!e.inst) {
		ctx->fresh = 1;
		ctx->loaded = 0;
		dfk_reconnect(blk, ctx);
		if (far)
			dfk_begin(ctx);
		if (d->policy.order && ctx->queued)
			dfk_queue_weigh(d, blk, ctx);
		return;
	}
	/*
	 * This is the next instance, because all earlier ones are finished. So the list need not be
	 * followed.
	 */
	if (ctx->announced == ctx->finished)
		dfk_now_from(ctx, slot);
	ctx->announced++;
	/* RELAXED: the host may raise it (df_coll_lend()); it carries no data. */
	priority = d->policy.order ? dfk_load_relaxed_sys(&e.inst->priority) : 0;
	if (!ctx->queued) {
		ctx->priority = priority;
		dfk_queue_add(d, blk, ctx);
	} else if (d->policy.order && priority > ctx->priority) {
		/*
		 * An instance cannot overtake the earlier instances of its collective, so those
		 * become as urgent.
		 */
		ctx->priority = priority;
		dfk_queue_move(d, blk, e.ctx);
	}
}

#if !DFK_WAYS
/* far: as above. On a GPU, gpu/take.inl does this. */
DFK void dfk_sq_drain(struct df_kdaemon *d, struct df_kblock *blk, int far)
{
	const struct df_ring *sq = &blk->sq;
	const struct df_sq_slot *slots = (const struct df_sq_slot *)sq->slots;
	uint32_t head = sq->head; /* only this side writes it: a plain load is enough */
	uint32_t tail;

	/*
	 * ACQUIRE pairs with the RELEASE of tail in df_sq_put() (kernels/slot.h). Without it, the
	 * new tail could be seen with the old contents of the slot, or of the instance it names.
	 */
	tail = dfk_load_acquire_sys(&sq->tail);
	if (tail == head)
		return;
	while (head != tail)
		dfk_sq_accept(d, blk, &slots[head++ & sq->mask], far);
	dfk_sq_taken(blk, head);
}
#endif

DFK void dfk_cq_push(struct df_kblock *blk, uint32_t kind, struct df_kctx *ctx)
{
	struct df_ring *cq = &blk->cq;
	struct df_cqe *e = (struct df_cqe *)cq->slots + (cq->tail & cq->mask);
	const struct df_kinst *in = dfk_now(ctx);
	uint64_t lap = DF_LAP(cq, cq->tail);

	if (!dfk_cq_room(blk)) {
		/*
		 * A block must never wait for the host to make room for a completion. Without room,
		 * the host will check all collectives instead.
		 */
		if (kind == DF_CQE_DONE)
			dfk_store_relaxed_sys(&dfk_block_home(blk)->cq.lost, 1u);
		return;
	}
	if (kind == DF_CQE_PREEMPT || kind == DF_CQE_RESUME) {
		e->k = ctx->k;
		e->block = blk->index;
		/*
		 * RELEASE for `coll` below; pairs with the ACQUIRE named there. Without it, the
		 * host could read the previous contents.
		 */
		dfk_fence_release_sys();
	}
	dfk_store_relaxed_sys(&e->value,
			      (kind == DF_CQE_DONE ? in->done_value : in->op) << 1 | lap);
	/*
	 * RELEASE pairs with the ACQUIRE in cq_next() (runtime/coll/dev.c). For DONE, the fence
	 * is that of `done` in dfk_finish().
	 */
	dfk_store_released_sys(&e->coll,
			       (uint64_t)(uintptr_t)dfk_coll_home(ctx) | (uint64_t)kind << 1 | lap);
	cq->tail++;
}
