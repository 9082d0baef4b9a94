/*
 * What comes to a block from the host and goes back to it: submissions, connectors that are new, completions. Thread 0
 * alone calls it.
 */

/* Thread 0: counters that lie in our GPU's memory begin; see df_kconn.fresh. */
DFK void dfk_conn_begin(struct df_kconn *c)
{
	/*
	 * ACQUIRE pairs with the RELEASE of fresh in connect_end() (runtime/connector.c): without it the
	 * connector's pointers could be read before they are set.
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
	dfk_store_relaxed_sys(&c->state, 1u);
	/*
	 * RELEASE pairs with the ACQUIRE of ready in reach_far() (runtime/transport/p2p.c): without it the
	 * other side could take what was in this memory before for the counters.
	 */
	dfk_store_release_sys(fresh, (uint64_t)1);
}

DFK void dfk_begin(struct df_kctx *ctx)
{
	const struct df_prog_block *pb = df_prog_block(ctx->coll->prog, ctx->block);
	uint32_t i;

	ctx->fresh = 0;
	for (i = 0; i < pb->nr_send; i++)
		dfk_conn_begin(&ctx->send[i]);
	for (i = 0; i < pb->nr_recv; i++)
		dfk_conn_begin(&ctx->recv[i]);
}

/* far: we can reach the GPU's memory; the host, when it cleans queues, leaves that to the block's next turn. */
DFK void dfk_sq_drain(struct df_kdaemon *d, struct df_kblock *blk, int far)
{
	struct df_ring *sq = &blk->sq;
	const struct df_sqe *slots = (const struct df_sqe *)sq->slots;
	uint32_t head = sq->head; /* ours: plain load is enough */
	uint32_t tail;

	/*
	 * ACQUIRE pairs with the RELEASE of tail in df_sq_push() (runtime/daemon.c). Without it the new
	 * tail could be seen with the old contents of the slot, or of the instance it names.
	 */
	tail = dfk_load_acquire_sys(&sq->tail);
	if (tail == head)
		return;
	while (head != tail) {
		struct df_sqe e = slots[head++ & sq->mask];

		if (!e.inst) {
			e.ctx->fresh = 1;
			e.ctx->loaded = 0;
			if (far)
				dfk_begin(e.ctx);
			continue;
		}
		if (!e.ctx->cur)
			e.ctx->cur = e.inst;
		e.ctx->announced++;
		if (!e.ctx->queued) {
			e.ctx->priority = e.inst->priority;
			dfk_queue_add(d, blk, e.ctx);
		} else if (d->policy.order && e.inst->priority > e.ctx->priority) {
			/* It can't overtake its own collective's earlier instances: they hurry too. */
			e.ctx->priority = e.inst->priority;
			dfk_queue_move(d, blk, e.ctx);
		}
	}
	blk->idle = 0;
	/*
	 * RELEASE pairs with the ACQUIRE of head in df_sq_push(): the host may overwrite the slots only
	 * after they have been copied out.
	 */
	dfk_store_release_sys(&sq->head, head);
}

DFK void dfk_cq_push(struct df_kblock *blk, uint32_t kind, const struct df_kctx *ctx)
{
	struct df_ring *cq = &blk->cq;
	struct df_cqe *slots = (struct df_cqe *)cq->slots;
	uint32_t tail = cq->tail; /* ours: plain load is enough */
	struct df_cqe *e;

	/*
	 * ACQUIRE pairs with the RELEASE of head in df_cq_drain() (runtime/daemon.c): without it we
	 * could overwrite a completion that is still being read.
	 */
	if (tail - dfk_load_acquire_sys(&cq->head) > cq->mask) {
		/* A completion must never wait for the host: it will look at all collectives instead. */
		if (kind == DF_CQE_DONE)
			dfk_store_relaxed_sys(&cq->lost, 1u);
		return;
	}
	e = &slots[tail & cq->mask];
	e->op = ctx->cur->op;
	e->coll = (uint64_t)(uintptr_t)ctx->coll;
	e->k = ctx->k;
	e->kind = kind;
	e->block = blk->index;
	/*
	 * RELEASE pairs with the ACQUIRE of tail in df_cq_drain(): without it the host could read a
	 * slot that is not written yet.
	 */
	dfk_store_release_sys(&cq->tail, tail + 1);
}
