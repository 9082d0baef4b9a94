/*
 * The daemon: what one block does in one turn. Compiled twice, for a GPU block and for a CPU thread.
 *
 * A turn is: take in new submissions; look at the task whose turn it is; if its next slice can move, move
 * it, else count a failed poll and, past the spin threshold, go to the next task (that is the whole of
 * preemption: nothing is held and nothing needs saving, because df_kctx.k says where the task stands).
 *
 * Thread 0 of the block decides and commits; all threads move data. What they agree on lies in
 * struct dfk_shared.
 */

#include "kernels/words.inl"

/* What thread 0 decided, for the other threads of the block. */
struct dfk_shared {
	uint32_t turn;	      /* enum df_turn */
	uint32_t move;	      /* 1: a slice is to be moved */
	uint32_t takes, puts; /* 1: by the words `get` and `put`, through the stage */
	struct df_kctx *ctx;
	const struct df_inst *inst;
	uint64_t loop;
	const uint8_t *from; /* slot received from, or the stage */
	uint8_t *to;	     /* slot sent to, or the stage */
	uint64_t recv_pos, send_pos;
	struct dfk_words get, put;
};

/* ---- task queue ---------------------------------------------------------------------------------- */

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

/* ---- rings --------------------------------------------------------------------------------------- */

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

/* ---- one task ------------------------------------------------------------------------------------- */

DFK int64_t dfk_threshold(const struct df_policy *p, uint32_t pos)
{
	int64_t t = p->front - p->step * (int64_t)pos;

	return t < p->floor ? p->floor : t;
}

/* Elements of a chunk's tile, and where they lie in the buffer. */
DFK uint64_t dfk_tile(const struct df_kcoll *c, uint32_t buf, uint64_t chunk, uint64_t loop,
		      uint64_t *offset)
{
	uint64_t start = loop * c->tile_elems, len = c->chunk_elems;

	if (buf == DF_BUF_SCRATCH) {
		*offset = chunk * c->chunk_elems + start;
	} else {
		uint64_t part = chunk % c->prog->chunks;
		uint64_t at = part * c->chunk_elems;

		*offset = chunk / c->prog->chunks * c->count + at + start;
		if (at + len > c->count)
			len = at < c->count ? c->count - at : 0;
	}
	if (start >= len)
		return 0;
	len -= start;
	return len < c->tile_elems ? len : c->tile_elems;
}

DFK uint8_t *dfk_base(const struct df_kcoll *c, const struct df_kinst *in, uint32_t buf)
{
	if (buf == DF_BUF_IN)
		return (uint8_t *)(uintptr_t)in->in;
	return buf == DF_BUF_OUT ? (uint8_t *)in->out : c->scratch;
}

/* May the instance touch the user's buffers? */
DFK int dfk_instance_ready(struct df_kctx *ctx)
{
	const struct df_kinst *in = ctx->cur;
	uint32_t i;

	for (i = 0; i < in->nr_waits; i++)
		/*
		 * ACQUIRE pairs with the RELEASE of whoever fulfils the wait: the user's stream (its write
		 * of the ready word) or dfk_finish() of an earlier operation. Without it the data they
		 * wrote could be read stale.
		 */
		if (dfk_load_acquire_sys(in->waits[i].addr) < in->waits[i].value)
			return 0;
	ctx->redop_arg = in->redop_arg;
	if (in->redop_ptr) {
		const uint8_t *s = (const uint8_t *)in->redop_ptr;
		uint64_t v = 0;

		for (i = 0; i < ctx->coll->elem_bytes; i++)
			v |= (uint64_t)s[i] << (8 * i);
		ctx->redop_arg = v;
	}
	ctx->ready = 1;
	return 1;
}

/*
 * Can the next slice of the task move? Fills sh if so. 0: not now, -1: not before somebody else acts. By words: it
 * is about to be there, all threads together find out.
 */
DFK int dfk_task_poll(struct df_kctx *ctx, struct dfk_shared *sh, struct dfk_stage *stage)
{
	const struct df_kcoll *c = ctx->coll;
	const struct df_inst *inst;
	uint64_t round;
	uint32_t i;

	if (ctx->cur->seq != ctx->finished)
		/*
		 * ACQUIRE pairs with the RELEASE of next in df_coll_instance() (runtime/coll.c): without
		 * it the instance could be read before it is filled.
		 */
		ctx->cur = dfk_load_acquire_sys(&ctx->cur->next);
	if (!ctx->ready && !dfk_instance_ready(ctx))
		return -1;
	sh->takes = sh->puts = 0;
	round = ctx->k / ctx->nr_inst; /* instances * loops + loop */
	inst = df_prog_inst(c->prog, ctx->first_inst + (uint32_t)(ctx->k % ctx->nr_inst));
	sh->loop = round - ctx->finished * c->loops;
	for (i = 0; i < inst->nr_deps; i++) {
		const struct df_dep *dep = df_prog_dep(c->prog, inst->first_dep + i);
		const struct df_kctx *other = &c->ctx[dep->block];

		/*
		 * ACQUIRE pairs with the RELEASE of k in dfk_commit() by the other block. Without it what
		 * that block wrote to the common buffers could be missed.
		 */
		if (dfk_load_acquire_sys(&other->k) <= round * other->nr_inst + dep->inst)
			return 0;
	}
	if (inst->recv_conn != DF_NO_CONN) {
		struct df_kconn *r = &ctx->recv[inst->recv_conn];

		/*
		 * ACQUIRE pairs with the RELEASE of state in df_conn_connect() (runtime/connector.c):
		 * without it the connector's pointers could be read before they are set.
		 */
		if (dfk_load_acquire_sys(&r->state) != 1)
			return -1;
		sh->recv_pos = round * r->per_loop + inst->recv_ord;
		sh->takes = r->proto >= DF_PROTO_LL;
		if (sh->takes) {
			dfk_words_of(&sh->get, r, sh->recv_pos,
				     dfk_slice_bytes(c, inst->cnt, sh->loop));
			if (!dfk_words_look(&sh->get))
				return 0;
			sh->from = (const uint8_t *)stage->in;
		} else if (r->seen <= sh->recv_pos) {
			/*
			 * ACQUIRE pairs with the RELEASE of tail in dfk_commit() of the sender. Without
			 * it the slot could be read before the sender filled it.
			 */
			r->seen = dfk_load_acquire_sys(r->tail);
			if (r->seen <= sh->recv_pos)
				return 0;
		}
		if (!sh->takes)
			sh->from = r->slots + sh->recv_pos % r->nr_slots * r->slot_bytes;
	}
	if (inst->send_conn != DF_NO_CONN) {
		struct df_kconn *s = &ctx->send[inst->send_conn];

		/* ACQUIRE pairs with df_conn_connect() as above. */
		if (dfk_load_acquire_sys(&s->state) != 1)
			return -1;
		sh->send_pos = round * s->per_loop + inst->send_ord;
		if (sh->send_pos - s->seen >= s->nr_slots) {
			/*
			 * ACQUIRE pairs with the RELEASE of head in dfk_commit() of the receiver. Without
			 * it the slot could be overwritten while the receiver still reads it.
			 */
			s->seen = dfk_load_acquire_sys(s->head);
			if (sh->send_pos - s->seen >= s->nr_slots)
				return 0;
		}
		sh->puts = s->proto >= DF_PROTO_LL;
		if (sh->puts) {
			dfk_words_of(&sh->put, s, sh->send_pos,
				     dfk_slice_bytes(c, inst->cnt, sh->loop));
			sh->to = (uint8_t *)stage->out;
		} else {
			sh->to = s->slots + sh->send_pos % s->nr_slots * s->slot_bytes;
		}
	}
	sh->ctx = ctx;
	sh->inst = inst;
	sh->move = 1;
	return 1;
}

/* All threads: moves the data of one slice. */
DFK void dfk_execute(const struct dfk_shared *sh)
{
	const struct df_kctx *ctx = sh->ctx;
	const struct df_kcoll *c = ctx->coll;
	const struct df_inst *inst = sh->inst;
	uint32_t q, eb = c->elem_bytes;
	uint32_t op = inst->op;
	int has_src = op == DF_OP_SEND || op == DF_OP_COPY || op == DF_OP_REDUCE ||
		      op == DF_OP_RECV_REDUCE_COPY || op == DF_OP_RECV_REDUCE_SEND ||
		      op == DF_OP_RECV_REDUCE_COPY_SEND;
	int has_dst = op != DF_OP_SEND && op != DF_OP_RECV_REDUCE_SEND && op != DF_OP_NOP;
	int recvs = inst->recv_conn != DF_NO_CONN, sends = inst->send_conn != DF_NO_CONN;
	int premul = c->redop == DF_PREMULSUM;

	if (op == DF_OP_NOP)
		return;
	for (q = 0; q < inst->cnt; q++) {
		uint64_t at = q * c->tile_elems * eb, off, n = UINT64_MAX;
		const uint8_t *src = NULL;
		uint8_t *dst = NULL;
		struct dfk_move m;

		if (has_src) {
			n = dfk_tile(c, inst->src_buf, (uint64_t)inst->src + q, sh->loop, &off);
			src = dfk_base(c, ctx->cur, inst->src_buf) + off * eb;
		}
		if (has_dst) {
			uint64_t nd =
				dfk_tile(c, inst->dst_buf, (uint64_t)inst->dst + q, sh->loop, &off);

			n = nd < n ? nd : n;
			dst = dfk_base(c, ctx->cur, inst->dst_buf) + off * eb;
		}
		if (n == 0)
			continue;
		m.dst = dst;
		m.dst2 = sends ? sh->to + at : NULL;
		m.a = recvs ? sh->from + at : src;
		m.b = recvs ? src : (op == DF_OP_REDUCE ? dst : NULL);
		m.elems = n;
		m.type = c->type;
		m.redop = c->redop;
		m.arg = ctx->redop_arg;
		m.pre_a = premul && !recvs && (inst->flags & DF_INST_RAW_SRC);
		m.pre_b = premul && ((recvs && src && (inst->flags & DF_INST_RAW_SRC)) ||
				     (op == DF_OP_REDUCE && (inst->flags & DF_INST_RAW_DST)));
		m.post = c->redop == DF_SUMPOSTDIV && (inst->flags & DF_INST_FINAL);
		if (!m.b && !m.dst2 && m.dst == m.a && !m.pre_a && !m.post)
			continue;
		dfk_move(&m);
	}
}

/* An instance has left: those behind it may be less urgent. */
DFK void dfk_calm(struct df_kdaemon *d, struct df_kblock *blk, struct df_kctx *ctx)
{
	const struct df_kinst *in = ctx->cur;
	uint64_t nr = ctx->announced - ctx->finished;
	int32_t most = 0;
	uint64_t i;

	for (i = 0; i < nr; i++) {
		/* ACQUIRE pairs with the RELEASE of next in df_coll_instance(), as in dfk_task_poll(). */
		in = dfk_load_acquire_sys(&in->next);
		if (!i || in->priority > most)
			most = in->priority;
		if (most == ctx->priority)
			return;
	}
	ctx->priority = most;
	dfk_queue_move(d, blk, ctx);
}

/* The block's part of an instance is done; the last block tells the world. */
DFK void dfk_finish(struct df_kdaemon *d, struct df_kblock *blk, struct df_kctx *ctx)
{
	struct df_kinst *in = ctx->cur;

	/*
	 * ACQ_REL pairs with itself in the other blocks: the last one to come here sees, and with the
	 * RELEASE of done passes on, what all of them wrote to the user's buffers.
	 */
	if (dfk_sub_acq_rel_dev(&in->blocks_left, 1u) == 0) {
		blk->stats.operations++;
		/*
		 * RELEASE pairs with the ACQUIRE of whoever waits for the operation: streams, host
		 * threads, dfk_instance_ready() of a dependent one. Without it they could read the
		 * result before it is there.
		 */
		dfk_store_release_sys(ctx->coll->done, in->done_value);
		/*
		 * After the word: the host takes note of what the word says when it reads the completion.
		 * The instance is still there, because we have not finished a later one.
		 */
		dfk_cq_push(blk, DF_CQE_DONE, ctx);
	}
	ctx->finished++;
	/*
	 * Back to our own order, all ranks at the same operation: those that still kept the common one would be
	 * seen to disagree, and it would never end.
	 */
	if (blk->gang && ctx->finished % d->policy.gang == 0)
		blk->gang = 0;
	ctx->ready = 0;
	blk->running = NULL;
	if (ctx->finished == ctx->announced)
		dfk_queue_remove(blk, ctx);
	else if (d->policy.order)
		dfk_calm(d, blk, ctx);
	if (d->policy.order) {
		/* What is more urgent may have become ready meanwhile. */
		ctx->loaded = 0;
		blk->task = blk->first;
		blk->pos = 0;
	}
}

/* Thread 0, after the data has moved: publishes the slice. */
DFK void dfk_commit(struct df_kdaemon *d, struct df_kblock *blk, struct dfk_shared *sh)
{
	struct df_kctx *ctx = sh->ctx;
	const struct df_kcoll *c = ctx->coll;
	const struct df_inst *inst = sh->inst;

	if (inst->recv_conn != DF_NO_CONN) {
		struct df_kconn *r = &ctx->recv[inst->recv_conn];

		/*
		 * RELEASE pairs with the ACQUIRE of head in dfk_task_poll() of the sender: our reads of
		 * the slot are over before it may write there again.
		 */
		if (!sh->takes || (sh->recv_pos + 1) % r->credit == 0) {
			dfk_store_release_sys(r->head, sh->recv_pos + 1);
			dfk_ring_bell(r->bell);
		}
	}
	if (inst->send_conn != DF_NO_CONN) {
		struct df_kconn *s = &ctx->send[inst->send_conn];

		/*
		 * RELEASE pairs with the ACQUIRE of tail in dfk_task_poll() of the receiver: the slot is
		 * complete before it can be seen. By words nobody looks at it but the host, behind the gate.
		 */
		if (sh->puts)
			dfk_store_relaxed_sys(s->tail, sh->send_pos + 1);
		else
			dfk_store_release_sys(s->tail, sh->send_pos + 1);
		dfk_ring_bell(s->bell);
	}
	/*
	 * RELEASE pairs with the ACQUIRE of k in dfk_task_poll() by blocks that depend on us. Where none can,
	 * nobody looks, and a GPU is spared a fence.
	 */
	if (c->prog->nr_deps)
		dfk_store_release_sys(&ctx->k, ctx->k + 1);
	else
		dfk_store_relaxed_sys(&ctx->k, ctx->k + 1);
	dfk_store_relaxed_sys(&blk->stats.slices, blk->stats.slices + 1); /* the host looks */
	blk->moved = 1;
	ctx->polls = 0;
	if (ctx->spin < d->policy.max / d->policy.boost)
		ctx->spin *= d->policy.boost;
	else
		ctx->spin = d->policy.max;
	if (ctx->k == (ctx->finished + 1) * c->loops * ctx->nr_inst)
		dfk_finish(d, blk, ctx);
}

/* ---- the turn --------------------------------------------------------------------------------------- */

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

/*
 * The block turns from one collective to another. A preemption is counted where it happens: when another
 * collective moves while the one that moved last is unfinished. Looking at tasks in vain costs nothing.
 */
DFK void dfk_switch(struct df_kdaemon *d, struct df_kblock *blk, struct df_kctx *ctx)
{
	struct df_kctx *last = blk->running;

	if (last) {
		last->preempted = 1;
		blk->stats.preemptions++;
		blk->stats.context_saves++;
		if (d->policy.gang && !blk->gang && dfk_disagree(last, ctx))
			blk->gang = 1;
		if (d->policy.events)
			dfk_cq_push(blk, DF_CQE_PREEMPT, last);
	}
	blk->stats.context_loads++;
	if (ctx->preempted) {
		ctx->preempted = 0;
		if (d->policy.events)
			dfk_cq_push(blk, DF_CQE_RESUME, ctx);
	}
	blk->running = ctx;
}

/* Thread 0: the task did not move. able: it could start, it only waits for a peer. */
DFK void dfk_miss(struct df_kdaemon *d, struct df_kblock *blk, struct dfk_shared *sh,
		  struct df_kctx *ctx, int able)
{
	blk->stats.polls++;
	sh->turn = DF_TURN_SPIN;
	if (able && ++ctx->polls < ctx->spin)
		return;
	/* Past its threshold, or not able to start: the next task gets its turn. */
	ctx->loaded = 0;
	dfk_queue_advance(blk);
	if (blk->pos == 0 && blk->idle > d->policy.quit) {
		blk->idle = 0;
		blk->stats.quits++;
		sh->turn = DF_TURN_QUIT;
	}
}

/* Thread 0: the slice will move. */
DFK void dfk_accept(struct df_kdaemon *d, struct df_kblock *blk, struct df_kctx *ctx)
{
	if (blk->running != ctx)
		dfk_switch(d, blk, ctx);
	if (d->policy.events && ctx->lead &&
	    ctx->k == ctx->finished * ctx->coll->loops * ctx->nr_inst)
		dfk_cq_push(blk, DF_CQE_START, ctx);
}

/* Thread 0: what is to be done in this turn. */
DFK void dfk_decide(struct df_kdaemon *d, struct df_kblock *blk, struct dfk_shared *sh,
		    struct dfk_stage *stage)
{
	struct df_kctx *ctx;
	int got;

	sh->move = 0;
	dfk_sq_drain(d, blk, 1);
	ctx = blk->task;
	if (!ctx) {
		sh->turn = DF_TURN_EMPTY;
		return;
	}
	/*
	 * ACQUIRE pairs with the RELEASE of aborted in df_coll_abort() (runtime/coll.c), which then waits
	 * until this block has dropped the task.
	 */
	if (dfk_load_acquire_sys(&ctx->coll->aborted)) {
		ctx->finished = ctx->announced;
		dfk_queue_remove(blk, ctx);
		sh->turn = DF_TURN_PROGRESS;
		return;
	}
	if (!ctx->loaded) {
		if (ctx->fresh)
			dfk_begin(ctx);
		ctx->loaded = 1;
		ctx->polls = 0;
		ctx->spin = dfk_threshold(&d->policy, blk->pos);
	}
	got = dfk_task_poll(ctx, sh, stage);
	if (got > 0)
		sh->turn = DF_TURN_PROGRESS;
	else
		dfk_miss(d, blk, sh, ctx, got == 0);
}

DFK enum df_turn dfk_block_turn(struct df_kdaemon *d, struct df_kblock *blk, struct dfk_shared *sh,
				struct dfk_stage *stage)
{
	if (DFK_TID == 0)
		dfk_decide(d, blk, sh, stage);
	dfk_sync();
	if (sh->move && sh->takes && !dfk_sync_and(dfk_words_get(&sh->get, stage->in))) {
		/* Nothing has happened; thread 0 alone writes what the others have read. */
		if (DFK_TID == 0)
			dfk_miss(d, blk, sh, sh->ctx, 1);
		dfk_sync();
	} else if (sh->move) {
		if (DFK_TID == 0)
			dfk_accept(d, blk, sh->ctx);
		dfk_execute(sh);
		dfk_sync();
		if (sh->puts) {
			dfk_words_put(&sh->put, stage->out,
				      sh->ctx->send[sh->inst->send_conn].slot_bytes);
			dfk_sync();
		}
		if (DFK_TID == 0)
			dfk_commit(d, blk, sh);
		dfk_sync();
	}
	return (enum df_turn)sh->turn;
}
