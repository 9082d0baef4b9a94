/*
 * One task of a block: checks whether its next slice can move, moves it, publishes it, and finishes
 * instances.
 */

/*
 * The end of a slice, as thread 0 publishes it: computed before the slice moves, so that nothing is
 * between the fence and the stores.
 */
struct dfk_pub {
	uint64_t *head, *tail; /* valid pointers also where they are not used */
	uint64_t *done, value; /* of the instance */
	struct df_kgate *gate;
	struct df_kctx *home;
	uint32_t gives; /* whether it publishes head */
	uint32_t last;	/* slice of the instance */
	uint32_t alone; /* whether no other block takes part */
};

/* Thread 0's decision, for the other threads of the block. */
struct dfk_shared {
	uint32_t turn; /* enum df_turn */
	uint32_t move; /* whether the turn moves a slice */
	/* whether the slice moves by words (`get` and `put`), through the stage */
	uint32_t takes, puts;
	struct dfk_fetch fetch;
	struct df_kctx *ctx;
	const struct df_kinst *now;
	const struct df_inst *inst;
	uint64_t loop;
	const uint8_t *from; /* the slot received from, or the stage */
	uint8_t *to;	     /* the slot sent to, or the stage; NULL: by reference */
	const uint8_t *ref;  /* the data sent by reference; NULL: it is copied */
#if !DFK_WAYS
	/* Whether the slice has already moved and only the end of the instance is missing. */
	uint32_t moved;
#endif
	uint64_t recv_pos, send_pos;
	uint64_t peer; /* df_kconn.peer of the awaited peer; 0: none */
	struct dfk_words get, put;
	struct dfk_pub pub;
#if DFK_WAYS
	/*
	 * gpu/short.inl: whether the turn is a short one; its first instruction; whether to give
	 * up; whether to plan; whether the input is there; whether there is no instance yet
	 */
	uint32_t brief, first, enough, plan, able, ahead;
#endif
};

/* The number of elements of a chunk's tile, and its offset in the buffer. */
DFK uint64_t dfk_tile(const struct df_kcoll *c, uint32_t buf, uint64_t chunk, uint64_t loop,
		      uint64_t *offset)
{
	uint64_t start = loop * c->tile_elems, len = c->chunk_elems;

	if (buf == DF_BUF_SCRATCH) {
		*offset = chunk * c->chunk_elems + start;
	} else {
		uint64_t part = chunk % c->chunks;
		uint64_t at = part * c->chunk_elems;

		*offset = chunk / c->chunks * c->count + at + start;
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

#define DFK_LATE_BYTES 32768 /* a smaller slice is copied faster than its credit arrives */

/* Whether this is the last slice of the instance. */
DFK int dfk_is_last(const struct df_kctx *ctx)
{
	return ctx->k + 1 == (ctx->finished + 1) * ctx->coll->loops * ctx->nr_inst;
}

/*
 * Returns the address of the slice to be sent, if its receiver may read it there; NULL if it must
 * be copied. The last slices of an instance, as many as there are slots, are copied. So all slices
 * by reference have been received before the last slice can be sent, and no rank has to wait for a
 * receiver because of them. There is one exception: a rank that waits for a result to which the
 * receiver contributes (DF_INST_KNOWN). On CPU threads a large slice of such a rank is sent by
 * reference even if it is among the last ones, and the instance ends when the receiver has
 * acknowledged it (dfk_received()).
 */
DFK const uint8_t *dfk_ref(struct df_kctx *ctx, const struct df_inst *inst,
			   const struct df_kconn *s, const struct dfk_shared *sh)
{
	const struct df_kcoll *c = ctx->coll;
	uint64_t total = c->loops * s->per_loop, off, n;
	int sends = inst->op == DF_OP_SEND;
	int late = sh->send_pos - ctx->finished * total + s->nr_slots >= total;
	uint32_t buf = sends ? inst->src_buf : inst->dst_buf;

#if !DFK_WAYS
	late = late && (!(inst->flags & DF_INST_KNOWN) || dfk_is_last(ctx) ||
			dfk_slice_bytes(c, 1, sh->loop) < DFK_LATE_BYTES);
#endif
	if (!s->refs || !(inst->flags & DF_INST_STAYS) || late || !(dfk_now(ctx)->shown >> buf & 1))
		return NULL;
	/* Data that is multiplied while it is sent is not in memory. */
	if (sends && c->redop == DF_PREMULSUM && (inst->flags & DF_INST_RAW_SRC))
		return NULL;
	n = dfk_tile(c, buf, sends ? inst->src : inst->dst, sh->loop, &off);
	/* The receiver may read as much as a slice can hold. */
	if (n * c->elem_bytes != dfk_slice_bytes(c, 1, sh->loop))
		return NULL;
	return dfk_base(c, dfk_now(ctx), buf) + off * c->elem_bytes;
}

#if !DFK_WAYS
/* Whether everything that the task has sent by reference has been received. */
DFK int dfk_received(struct df_kctx *ctx)
{
	uint32_t i;

	for (i = 0; i < ctx->nr_send; i++) {
		struct df_kconn *s = &ctx->send[i];
		/* RELAXED: this thread wrote them. */
		uint64_t tail = s->refs ? dfk_load_relaxed_sys(s->tail) : 0, pos = tail;

		while (pos > s->seen && tail - pos < s->nr_slots &&
		       !dfk_load_relaxed_sys(&s->refs[(pos - 1) % s->nr_slots]))
			pos--;
		if (pos <= s->seen || tail - pos == s->nr_slots)
			continue;
		/*
		 * ACQUIRE pairs with the RELEASE of head in dfk_commit() of the receiver: its reads
		 * of our buffer are over before the buffer belongs to the user again.
		 */
		s->seen = dfk_load_acquire_sys(s->head);
		if (s->seen < pos)
			return 0;
	}
	return 1;
}

/*
 * Whether the last slice has moved (its credit shows it), but some slices that were sent by
 * reference had not been received then. The credit is given before that, because the sender of the
 * last slice may wait for it just as this rank waits for its own credit.
 */
DFK uint32_t dfk_has_moved(const struct df_kctx *ctx, const struct df_inst *inst,
			   const struct dfk_shared *sh)
{
	return inst->recv_conn != DF_NO_CONN && !sh->takes && dfk_is_last(ctx) &&
	       dfk_load_relaxed_sys(ctx->recv[inst->recv_conn].head) > sh->recv_pos;
}

/*
 * The slice has not arrived, and only has to be stored. Lets the network thread store it directly,
 * which saves a copy. No other code uses this memory, because writing there is this block's next
 * step, and the receiver of data that was there has read it.
 */
DFK void dfk_land(const struct df_kctx *ctx, const struct df_inst *inst, const struct df_kconn *r,
		  const struct dfk_shared *sh)
{
	const struct df_kcoll *c = ctx->coll;
	uint64_t *at = &r->refs[sh->recv_pos % r->nr_slots], off, n;

	if (dfk_load_relaxed_sys(at) || inst->cnt != 1 || inst->dst_buf == DF_BUF_SCRATCH ||
	    (inst->op != DF_OP_RECV && inst->op != DF_OP_RECV_COPY_SEND) ||
	    (c->redop == DF_SUMPOSTDIV && (inst->flags & DF_INST_FINAL)))
		return;
	n = dfk_tile(c, inst->dst_buf, inst->dst, sh->loop, &off);
	/* The peer may send as much as a slice can hold. */
	if (n * c->elem_bytes != dfk_slice_bytes(c, 1, sh->loop))
		return;
	/*
	 * RELEASE pairs with the ACQUIRE in landing() (runtime/transport/net/slots.c): our accesses
	 * to this memory happen first.
	 */
	dfk_store_release_sys(
		at, DF_LAND_ASKED | (uint64_t)(uintptr_t)(dfk_base(c, dfk_now(ctx), inst->dst_buf) +
							  off * c->elem_bytes));
}
#endif

/* Whether everything has ended that must precede the instance's access to the user's buffers. */
DFK int dfk_waits_over(const struct df_kinst *in)
{
	uint32_t i;

	for (i = 0; i < in->nr_waits; i++)
		/*
		 * ACQUIRE pairs with the RELEASE of the writer: the user's stream (its write of the
		 * ready word) or dfk_finish() of an earlier operation. Without it, their data could
		 * be read stale.
		 */
		if (dfk_load_acquire_sys(in->waits[i].addr) < in->waits[i].value)
			return 0;
	return 1;
}

/* Then: the instance may access the buffers. */
DFK void dfk_instance_begin(struct df_kctx *ctx)
{
	const struct df_kinst *in = dfk_now(ctx);
	uint32_t i;

	/*
	 * Clear `arrived`. The graph writes it again only after it has seen the gate open, and the
	 * gate is opened after the fence of a slice. If there are other blocks, they may not have
	 * read it yet, so the last block clears it.
	 */
	if (in->gate && ctx->coll->nr_blocks == 1)
		dfk_store_relaxed_sys(&in->gate->arrived, (uint64_t)0);
	dfk_scratch(ctx);
	ctx->redop_arg = in->redop_arg;
	if (in->redop_ptr) {
		const uint8_t *s = (const uint8_t *)in->redop_ptr;
		uint64_t v = 0;

		for (i = 0; i < ctx->coll->elem_bytes; i++)
			v |= (uint64_t)s[i] << (8 * i);
		ctx->redop_arg = v;
	}
	ctx->ready = 1;
}

/* Whether the instance may access the user's buffers. */
DFK int dfk_instance_ready(struct df_kctx *ctx)
{
	if (!dfk_waits_over(dfk_now(ctx)))
		return 0;
	dfk_instance_begin(ctx);
	return 1;
}

/*
 * Whether the next slice of the task can move; if so, fills sh. Returns 0 if it cannot now, -1 if
 * it cannot before another rank or thread acts. With words, 1 means that the slice has probably
 * arrived, and all threads check together.
 */
DFK int dfk_task_poll(struct df_kctx *ctx, struct dfk_shared *sh, struct dfk_stage *stage)
{
	const struct df_kcoll *c = ctx->coll;
	const struct df_inst *inst;
	uint64_t round;
	uint32_t i;

	if (dfk_now(ctx)->seq != ctx->finished)
		/*
		 * ACQUIRE pairs with the RELEASE of next in df_coll_append()
		 * (runtime/coll/coll.c): without it, the instance could be read before it is
		 * filled.
		 */
		dfk_now_is(ctx, dfk_load_acquire_sys(&ctx->cur->next));
	if (!ctx->ready && !dfk_instance_ready(ctx))
		return -1;
	sh->takes = sh->puts = 0;
	sh->peer = 0;
	round = ctx->k / ctx->nr_inst; /* instances * loops + loop */
	inst = dfk_inst(ctx, (uint32_t)(ctx->k % ctx->nr_inst));
	sh->loop = round - ctx->finished * c->loops;
	for (i = 0; i < inst->nr_deps; i++) {
		const struct df_dep *dep = df_prog_dep(c->prog, inst->first_dep + i);
		const struct df_kctx *other = &c->ctx[dep->block];

		/*
		 * ACQUIRE pairs with the RELEASE of k in dfk_commit() by the other block. Without
		 * it, that block's writes to the common buffers could be missed.
		 */
		if (dfk_load_acquire_sys(&other->k) <= round * other->nr_inst + dep->inst)
			return 0;
	}
	if (inst->recv_conn != DF_NO_CONN) {
		struct df_kconn *r = &ctx->recv[inst->recv_conn];

		if (!dfk_connected(ctx, r))
			return -1;
		sh->peer = r->peer;
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
			 * ACQUIRE pairs with the RELEASE of tail in dfk_commit() of the sender.
			 * Without it, the slot could be read before the sender filled it.
			 */
			r->seen = dfk_load_acquire_sys(r->tail);
			if (r->seen <= sh->recv_pos) {
#if !DFK_WAYS
				if (r->lands)
					dfk_land(ctx, inst, r, sh);
#endif
				return 0;
			}
		}
		if (!sh->takes) {
			uint64_t slot = sh->recv_pos % r->nr_slots;
			/* RELAXED: it is written before the tail, which has been acquired. */
			uint64_t ref = r->refs ? dfk_load_relaxed_sys(&r->refs[slot]) : 0;

#if !DFK_WAYS
			/* The request was too late: the slice is in its slot. */
			ref = ref & DF_LAND_ASKED ? 0 : ref;
#endif
			/* RELAXED: the writer waits until this turn is over. */
			if (ref && dfk_load_relaxed_sys(&r->state) == DF_KCONN_WITHDRAWN)
				return 0;
			sh->from = ref ? (const uint8_t *)(uintptr_t)ref
				       : r->slots + slot * r->slot_bytes;
		}
	}
	if (inst->send_conn != DF_NO_CONN) {
		struct df_kconn *s = &ctx->send[inst->send_conn];

		if (!dfk_connected(ctx, s))
			return -1;
		sh->peer = s->peer;
		sh->send_pos = round * s->per_loop + inst->send_ord;
		if (sh->send_pos - s->seen >= s->nr_slots) {
			/*
			 * ACQUIRE pairs with the RELEASE of head in dfk_commit() of the receiver.
			 * Without it, the slot could be overwritten while the receiver still reads
			 * it.
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
			sh->ref = dfk_ref(ctx, inst, s, sh);
			sh->to = sh->ref ? NULL
					 : s->slots + sh->send_pos % s->nr_slots * s->slot_bytes;
		}
	}
#if !DFK_WAYS
	sh->moved = dfk_has_moved(ctx, inst, sh);
	if ((sh->moved || (sh->takes && dfk_is_last(ctx))) && !dfk_received(ctx))
		return 0;
#endif
	sh->ctx = ctx;
	sh->now = dfk_now(ctx);
	sh->inst = inst;
	sh->move = 1;
	return 1;
}

/*
 * By priority, on CPU threads: a large slice moves without the block's lock. So another thread can
 * execute more urgent tasks without waiting for the slice, or until this thread gets a processor
 * again. Returns 1 if other threads may give the block turns, until dfk_retake().
 */
#if DFK_WAYS
#define dfk_let(d, blk, sh)  0
#define dfk_retake(blk, ctx) ((void)0)
#else
DFK int dfk_let(const struct df_kdaemon *d, struct df_kblock *blk, const struct dfk_shared *sh)
{
	/* RELAXED: the writer takes the lock repeatedly until nothing moves. */
	if (!d->policy.let || sh->takes || sh->puts || dfk_load_relaxed_sys(&d->quit) ||
	    dfk_slice_bytes(sh->ctx->coll, sh->inst->cnt, sh->loop) < d->policy.let)
		return 0;
	sh->ctx->moving = 1;
	blk->moving++;
	df_block_let(blk);
	return 1;
}

DFK void dfk_retake(struct df_kblock *blk, struct df_kctx *ctx)
{
	df_block_take(blk);
	ctx->moving = 0;
	blk->moving--;
}
#endif

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

	if (op == DF_OP_NOP || (op == DF_OP_SEND && !sh->to))
		return;
#if !DFK_WAYS
	if (sh->moved)
		return;
#endif
	for (q = 0; q < inst->cnt; q++) {
		uint64_t at = q * c->tile_elems * eb, off, n = UINT64_MAX;
		const uint8_t *src = NULL;
		uint8_t *dst = NULL;
		struct dfk_move m;

		if (has_src) {
			n = dfk_tile(c, inst->src_buf, (uint64_t)inst->src + q, sh->loop, &off);
			src = dfk_base(c, sh->now, inst->src_buf) + off * eb;
		}
		if (has_dst) {
			uint64_t nd =
				dfk_tile(c, inst->dst_buf, (uint64_t)inst->dst + q, sh->loop, &off);

			n = nd < n ? nd : n;
			dst = dfk_base(c, sh->now, inst->dst_buf) + off * eb;
		}
		if (n == 0)
			continue;
		m.dst = dst;
		m.dst2 = sends && sh->to ? sh->to + at : NULL;
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
		/*
		 * Nothing to copy: the data is already there, in place or stored by the network
		 * thread.
		 */
		if (!m.b && m.dst == m.a && !m.pre_a && !m.post) {
			if (!m.dst2)
				continue;
			m.dst = m.dst2;
			m.dst2 = NULL;
		}
		dfk_move(&m);
	}
}

/*
 * The block has finished its part of an instance. Returns whether it is the last one. The caller
 * publishes the end after a fence.
 */
DFK int dfk_is_over(struct df_kctx *ctx, const struct dfk_pub *p)
{
	/*
	 * ACQ_REL pairs with itself in the other blocks: the last one sees what all of them wrote
	 * to the user's buffers, and publishes it with the RELEASE of done. A single block needs no
	 * other.
	 */
	if (!p->alone && dfk_sub_acq_rel_dev(&ctx->cur->blocks_left, 1u) != 0)
		return 0;
	if (p->gate && !p->alone)
		dfk_store_relaxed_sys(&p->gate->arrived, (uint64_t)0);
	/* A thread that sees `done` must see it too, or it would expect another opening. */
	if (p->gate)
		dfk_store_relaxed_sys(&p->gate->opened, p->value);
	return 1;
}

/* Publishes the end of the instance, after a fence. */
DFK void dfk_end(struct df_kblock *blk, struct df_kctx *ctx, const struct dfk_pub *p)
{
	/*
	 * RELEASE pairs with the stream's wait for the gate: the results are written and `arrived`
	 * is cleared before the graph continues.
	 */
	if (p->gate)
		dfk_store_released_sys(&p->gate->open, (uint64_t)1);
	/*
	 * RELEASE pairs with the ACQUIRE of each waiter: streams, CPU threads,
	 * dfk_waits_over() of a dependent operation. Without it, they could read the result
	 * before it is written. A thread that sees `done` also sees that the gate was opened.
	 */
	dfk_store_released_sys(p->done, p->value);
	/*
	 * After the word, because the host uses the word's value when it reads the completion. The
	 * instance still exists, because this block has not finished a later one.
	 */
	dfk_cq_push(blk, DF_CQE_DONE, ctx);
	blk->stats.operations++;
}

/* The block goes on to the next instance, or another task. */
DFK void dfk_finish(struct df_kdaemon *d, struct df_kblock *blk, struct df_kctx *ctx)
{
	ctx->finished++;
	/*
	 * Return to this block's own order. All ranks do so at the same operation. Otherwise ranks
	 * that keep the common order would seem to disagree, and ranks would never leave the common
	 * order.
	 */
	if (blk->gang && ctx->finished % d->policy.gang == 0)
		blk->gang = 0;
	ctx->ready = 0;
	ctx->told = 0;
	if (blk->running == dfk_home(ctx))
		blk->running = NULL;
	if (ctx->finished == ctx->announced)
		dfk_queue_remove(blk, dfk_home(ctx));
	else if (d->policy.order)
		dfk_queue_weigh(d, blk, ctx);
}

/* A slice has moved: the task sticks to the block. */
DFK void dfk_count(const struct df_kdaemon *d, struct df_kblock *blk, struct df_kctx *ctx)
{
	dfk_store_relaxed_sys(&blk->stats.slices, blk->stats.slices + 1); /* the host reads it */
	if (d->policy.order && dfk_is_urgent(blk, ctx))
		ctx->spin = d->policy.urgent;
	else if (ctx->spin < d->policy.max / d->policy.boost)
		ctx->spin *= d->policy.boost;
	else
		ctx->spin = d->policy.max;
}

/* Once it is known which slice will move: what does not depend on its instance. */
DFK void dfk_pub_slice(struct df_kctx *ctx, const struct df_inst *inst, uint32_t takes,
		       uint64_t recv_pos, struct dfk_pub *p)
{
	int recvs = inst->recv_conn != DF_NO_CONN, sends = inst->send_conn != DF_NO_CONN;
	/*
	 * Pointers that are used only if it receives and sends. They are never NULL: ptxas (12.9
	 * and 13.0) makes NULL with "CS2R R, SRZ" and, if the load that would replace it is
	 * predicated off, reads R before it is written.
	 */
	const struct df_kconn *r = &ctx->recv[recvs ? inst->recv_conn : 0];
	const struct df_kconn *s = &ctx->send[sends ? inst->send_conn : 0];

	p->gives = recvs && (!takes || (recv_pos + 1) % r->credit == 0);
	p->head = recvs ? r->head : &ctx->k;
	p->tail = sends ? s->tail : &ctx->k;
	p->home = dfk_home(ctx);
	p->done = ctx->coll->done;
	p->alone = ctx->coll->nr_blocks == 1;
}

/* The part that depends on the instance. */
DFK void dfk_pub_inst(const struct df_kinst *now, uint32_t last, struct dfk_pub *p)
{
	p->last = last;
	p->value = now->done_value;
	p->gate = now->gate;
}

/* Thread 0, after the data has moved: publishes the slice. */
DFK void dfk_commit(struct df_kdaemon *d, struct df_kblock *blk, struct dfk_shared *sh)
{
	const struct dfk_pub p = sh->pub;
	struct df_kctx *ctx = sh->ctx;
	const struct df_kcoll *c = ctx->coll;
	const struct df_inst *inst = sh->inst;
	int sends = inst->send_conn != DF_NO_CONN, recvs = inst->recv_conn != DF_NO_CONN;
	/* As in dfk_pub_slice(). */
	struct df_kconn *r = &ctx->recv[recvs ? inst->recv_conn : 0];
	struct df_kconn *s = &ctx->send[sends ? inst->send_conn : 0];
#if DFK_WAYS
	const int ends = (int)p.last, gives = (int)p.gives;
#else
	/*
	 * Slices among the last ones that were sent by reference may still be in use:
	 * dfk_has_moved(). This cannot be so if the last slice is a send.
	 */
	int ends = p.last && (sends || !p.gives || dfk_received(ctx));
	int gives = p.gives && !sh->moved;
#endif
	int over = 0;

	/*
	 * A block whose last slice is received finishes before the fence, so that the last block
	 * needs one fence for the slice and the end. A sender's peer waits for the slice.
	 */
	if (ends && (p.alone || !sends))
		over = dfk_is_over(ctx, &p);
	if (sends && s->refs) {
		/* RELAXED: the tail, which is released below, becomes visible after it. */
		dfk_store_relaxed_sys(&s->refs[sh->send_pos % s->nr_slots],
				      (uint64_t)(uintptr_t)sh->ref);
		blk->stats.refs += sh->ref != NULL;
	}
#if !DFK_WAYS
	/* RELAXED: head, which is released below, becomes visible after it. */
	if (gives && r->lands)
		dfk_store_relaxed_sys(&r->refs[sh->recv_pos % r->nr_slots], (uint64_t)0);
#endif
	/* RELEASE for the stores below and in dfk_end(): pairs with the ACQUIREs named there. */
	if (gives || (sends && !sh->puts) || c->nr_deps || over)
		dfk_fence_release_sys();
	if (gives) {
		/*
		 * RELEASE pairs with the ACQUIRE of head in dfk_task_poll() of the sender: our
		 * reads of the slot are over before the sender may write it again.
		 */
		dfk_store_released_sys(p.head, sh->recv_pos + 1);
		dfk_ring_bell(r->bell);
	}
	blk->moved = 1;
	ctx->polls = 0;
	if (p.last && !ends)
		return;
	if (sends) {
		/*
		 * RELEASE pairs with the ACQUIRE of tail in dfk_task_poll() of the receiver: the
		 * slot is complete before it can be seen. With words only the host reads it, after
		 * the gate.
		 */
		if (sh->puts)
			dfk_store_relaxed_sys(p.tail, sh->send_pos + 1);
		else
			dfk_store_released_sys(p.tail, sh->send_pos + 1);
		dfk_ring_bell(s->bell);
	}
	/*
	 * RELEASE pairs with the ACQUIRE of k in dfk_task_poll() by dependent blocks. Without
	 * dependencies no block reads it.
	 */
	if (c->nr_deps)
		dfk_store_released_sys(&p.home->k, ctx->k + 1);
	if (!c->nr_deps || DFK_WAYS)
		dfk_store_relaxed_sys(&ctx->k, ctx->k + 1);
	if (ends && sends && !p.alone && dfk_is_over(ctx, &p)) {
		dfk_fence_release_sys();
		over = 1;
	}
	if (over)
		dfk_end(blk, ctx, &p);
	dfk_store_relaxed_sys(&blk->stats.slices, blk->stats.slices + 1); /* the host reads it */
	if (d->policy.order && dfk_is_urgent(blk, ctx))
		ctx->spin = d->policy.urgent;
	else if (ctx->spin < d->policy.max / d->policy.boost)
		ctx->spin *= d->policy.boost;
	else
		ctx->spin = d->policy.max;
	if (d->policy.order)
		dfk_account(d, blk, ctx, dfk_slice_bytes(c, inst->cnt, sh->loop));
	if (ends)
		dfk_finish(d, blk, ctx);
	if (d->policy.order)
		dfk_queue_front(d, blk);
}
