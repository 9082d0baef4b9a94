/*
 * Small programs on a GPU: all slices are words (LL), and each thread has at most one unit, which
 * is 8 bytes of data in two words. A thread keeps its units in registers and polls its own words in
 * place, so nothing passes through the stage, and one turn executes as much of the program as it
 * can. The decisions that thread 0 makes for each slice in task.inl are made here before the input
 * is there, by a thread for each instruction: the plan. A block without work makes the plan of the
 * next instance ahead: of what is submitted, only the addresses of the buffers are missing in it.
 *
 * The slices are those of task.inl, word for word: the other end of a connector may work in either
 * way. A slice is taken only when all threads have their words; until then nothing is stored, so an
 * attempt that ends without them leaves nothing behind.
 */

/* Units of a thread. A test executes all threads as one (tests/kernels/t_daemon_hot.c). */
#ifdef __CUDACC__
#define DFK_UNITS 1
#else
#define DFK_UNITS (DF_WORDS_BYTES / 8)
#endif
/* Looks of the other threads, which thread 0 ends earlier as a rule. */
#define DFK_SHORT_MOST (4 * DFK_LOOKS)

/* One instruction of the running instance, with addresses. */
struct dfk_plan {
	const uint8_t *a, *b; /* operands in memory; a: NULL if received; b: NULL if none */
	uint8_t *dst;	      /* or NULL */
	/* Where a, or b if a is received, and dst are: offset in the buffer; DFK_NOWHERE: NULL. */
	uint64_t src_off, dst_off;
	uint32_t src_buf, dst_buf;
	uint64_t *get, *put; /* words of the slots, or NULL */
	uint64_t *tail;	     /* of the connector that it sends on, or NULL */
	uint32_t get_flag, put_flag;
	uint32_t words; /* of the slice, on every rank */
	uint32_t bytes; /* of them that this rank has */
	uint32_t sweep; /* words of the slot that must be written, 0: only those of the slice */
	uint32_t ok;
	uint32_t tells; /* whether it needs dfk_commit(): it is the last one, or gives slots back */
	uint64_t recv_pos, send_pos;
	struct dfk_pub pub;
};

#ifdef __CUDACC__
static_assert(DFK_HOT_INSTS * sizeof(struct dfk_plan) <= sizeof(((struct dfk_stage *)0)->out),
	      "the plans have room in the stage");
#else
_Static_assert(DFK_HOT_INSTS * sizeof(struct dfk_plan) <= sizeof(((struct dfk_stage *)0)->out),
	       "the plans have room in the stage");
#endif

#define DFK_NOWHERE 3u

/* They are in the stage, which a short turn does not use. */
DFK struct dfk_plan *dfk_plans(struct dfk_stage *stage)
{
	return (struct dfk_plan *)(void *)stage->out;
}

/* The thread of an instruction: computes its plan, without the addresses in buffers. */
DFK void dfk_plan(struct df_kctx *ctx, uint32_t i, struct dfk_plan *p)
{
	const struct df_kcoll *c = ctx->coll;
	const struct df_inst *inst = dfk_inst(ctx, i);
	uint64_t round = ctx->finished, n = UINT64_MAX;
	uint32_t op = inst->op, bytes = dfk_slice_bytes(c, inst->cnt, 0);
	int has_src = op == DF_OP_SEND || op == DF_OP_COPY || op == DF_OP_REDUCE ||
		      op == DF_OP_RECV_REDUCE_COPY || op == DF_OP_RECV_REDUCE_SEND ||
		      op == DF_OP_RECV_REDUCE_COPY_SEND;
	int has_dst = op != DF_OP_SEND && op != DF_OP_RECV_REDUCE_SEND;
	struct dfk_words w;

	p->get = p->put = p->tail = NULL;
	p->tells = i + 1 == ctx->nr_inst;
	p->get_flag = p->put_flag = p->sweep = 0;
	p->recv_pos = p->send_pos = 0;
	p->src_buf = p->dst_buf = DFK_NOWHERE;
	p->ok = inst->cnt == 1 && op != DF_OP_NOP &&
		bytes <= 8u * DFK_UNITS * (uint32_t)DFK_NTHREADS;
	p->words = (bytes + 3) / 4 + !bytes;
	if (has_src) {
		n = dfk_tile(c, inst->src_buf, inst->src, 0, &p->src_off);
		p->src_off *= c->elem_bytes;
		p->src_buf = inst->src_buf;
	}
	if (has_dst) {
		uint64_t nd = dfk_tile(c, inst->dst_buf, inst->dst, 0, &p->dst_off);

		n = nd < n ? nd : n;
		p->dst_off *= c->elem_bytes;
		p->dst_buf = inst->dst_buf;
	}
	p->bytes = (uint32_t)(n * c->elem_bytes);
	if (inst->recv_conn != DF_NO_CONN) {
		const struct df_kconn *k = &ctx->recv[inst->recv_conn];

		p->recv_pos = round * k->per_loop + inst->recv_ord;
		p->ok &= k->proto == DF_PROTO_LL;
		dfk_words_of(&w, k, p->recv_pos, bytes);
		p->get = w.at;
		p->tells |= (p->recv_pos + 1) % k->credit == 0;
		p->get_flag = dfk_word_flag(w.lap);
	}
	if (inst->send_conn != DF_NO_CONN) {
		const struct df_kconn *k = &ctx->send[inst->send_conn];

		p->send_pos = round * k->per_loop + inst->send_ord;
		p->ok &= k->proto == DF_PROTO_LL;
		dfk_words_of(&w, k, p->send_pos, bytes);
		p->put = w.at;
		p->tail = k->tail;
		p->put_flag = dfk_word_flag(w.lap);
		p->sweep = w.lap % DFK_SWEEP == 0 ? k->slot_bytes / 8 : 0;
	}
	dfk_pub_slice(ctx, inst, 1, p->recv_pos, &p->pub);
}

/* The thread of an instruction, when its buffers are known: computes the addresses in them. */
DFK void dfk_place(const struct df_kctx *ctx, uint32_t i, struct dfk_plan *p)
{
	const struct df_kcoll *c = ctx->coll;
	const struct df_inst *inst = dfk_inst(ctx, i);
	const struct df_kinst *now = &((const struct dfk_hot *)(const void *)ctx)->inst;
	const uint8_t *src = NULL;

	if (p->src_buf != DFK_NOWHERE)
		src = dfk_base(c, now, p->src_buf) + p->src_off;
	p->dst = p->dst_buf == DFK_NOWHERE ? NULL : dfk_base(c, now, p->dst_buf) + p->dst_off;
	p->a = inst->recv_conn == DF_NO_CONN ? src : NULL;
	p->b = inst->recv_conn != DF_NO_CONN ? src : inst->op == DF_OP_REDUCE ? p->dst : NULL;
	dfk_pub_inst(now, i + 1 == ctx->nr_inst, &p->pub);
}

/* Bytes of a unit of this rank: those after them are 0 when loaded, and not stored. */
DFK uint32_t dfk_unit_bytes(const struct dfk_plan *p, uint32_t u)
{
	uint32_t at = 8 * u;

	return at >= p->bytes ? 0 : p->bytes - at < 8 ? p->bytes - at : 8;
}

DFK uint64_t dfk_unit_load(const uint8_t *p, uint32_t bytes)
{
	uint64_t v = 0;
	uint32_t i;

	if (bytes == 8 && !((uintptr_t)p & 7))
		return *(const dfk_u64 *)p;
	if (!((bytes | (uintptr_t)p) & 3)) {
		for (i = 0; i < bytes; i += 4)
			v |= (uint64_t) * (const dfk_u32 *)(p + i) << (8 * i);
		return v;
	}
	for (i = 0; i < bytes; i++)
		v |= (uint64_t)p[i] << (8 * i);
	return v;
}

DFK void dfk_unit_store(uint8_t *p, uint64_t v, uint32_t bytes)
{
	uint32_t i;

	if (bytes == 8 && !((uintptr_t)p & 7)) {
		*(dfk_u64 *)p = v;
		return;
	}
	if (!((bytes | (uintptr_t)p) & 3)) {
		for (i = 0; i < bytes; i += 4)
			*(dfk_u32 *)(p + i) = (uint32_t)(v >> (8 * i));
		return;
	}
	for (i = 0; i < bytes; i++)
		p[i] = (uint8_t)(v >> (8 * i));
}

/* Whether both words of the unit, if it has two, have arrived. */
DFK int dfk_unit_get(const struct dfk_plan *p, uint32_t u, uint64_t *v)
{
	/* RELAXED: data and flag are one word. */
	uint64_t lo = dfk_load_relaxed_sys(&p->get[2 * u]),
		 hi = dfk_load_relaxed_sys(
			 &p->get[2 * u + 1 < p->words ? 2 * u + 1 : p->words - 1]);

	if ((uint32_t)(lo >> 32) != p->get_flag || (uint32_t)(hi >> 32) != p->get_flag)
		return 0;
	*v = (uint64_t)(uint32_t)lo | hi << 32;
	return 1;
}

DFK void dfk_unit_put(const struct dfk_plan *p, uint32_t u, uint64_t v)
{
	uint64_t flag = (uint64_t)p->put_flag << 32;

	/* RELAXED: data and flag are one word. */
	dfk_store_relaxed_sys(&p->put[2 * u], flag | (uint32_t)v);
	if (2 * u + 1 < p->words)
		dfk_store_relaxed_sys(&p->put[2 * u + 1], flag | v >> 32);
}

/*
 * Thread 0: whether the next instance has all connectors, and room in all its slots. Once this is
 * so it stays so, unless the connectors change (dfk_reconnect()).
 */
DFK uint32_t dfk_short_room(struct df_kctx *ctx)
{
	uint32_t i;

	for (i = 0; i < ctx->nr_send; i++) {
		struct df_kconn *s = &ctx->send[i];
		uint64_t end = (ctx->finished + 1) * s->per_loop;

		if (!dfk_connected(ctx, s))
			return 0;
		if (end - s->seen > s->nr_slots)
			/* ACQUIRE pairs with the RELEASE of head, as in dfk_task_poll(). */
			s->seen = dfk_load_acquire_sys(s->head);
		if (end - s->seen > s->nr_slots)
			return 0;
	}
	for (i = 0; i < ctx->nr_recv; i++)
		if (!dfk_connected(ctx, &ctx->recv[i]))
			return 0;
	return 1;
}

/*
 * Thread 0, before a turn without a task: whether the turn plans the next instance of the context
 * whose plan is in the stage.
 */
DFK uint32_t dfk_short_ahead(const struct df_kblock *blk, struct dfk_shared *sh)
{
	struct dfk_local *l = dfk_local(blk);

	if (!dfk_unplanned(l))
		return 0;
	sh->ctx = l->planned;
	sh->plan = sh->ahead = 1;
	l->plan_seq = l->planned->finished;
	l->plan_room = dfk_short_room(l->planned);
	return 1;
}

/*
 * Thread 0, before a turn: whether the turn is a short one. Needs all connectors, and room in all
 * slots of the instance: if a part of them is enough for the next slice, task.inl moves it.
 */
DFK int dfk_short_wanted(struct df_kblock *blk, struct df_kctx *ctx, struct dfk_shared *sh)
{
	struct dfk_local *l = dfk_local(blk);

	if (!((const struct dfk_hot *)(const void *)ctx)->brief)
		return 0;
	/* dfk_instance_begin() sets the address of scratch memory, on which the plan depends. */
	if (ctx->coll->scratch_chunks && !ctx->coll->scratch)
		return 0;
	if (dfk_now(ctx)->seq != ctx->finished) {
		/*
		 * ACQUIRE pairs with the RELEASE of next in df_coll_append()
		 * (runtime/coll/coll.c), as in dfk_task_poll().
		 */
		dfk_now_is(ctx, dfk_load_acquire_sys(&ctx->cur->next));
		dfk_now(ctx);
	}
	sh->ctx = ctx;
	sh->ahead = 0;
	sh->plan = l->planned != ctx || l->plan_seq != ctx->finished;
	if (!sh->plan && l->plan_bad)
		return 0;
	if (sh->plan || !l->plan_room) {
		if (!dfk_short_room(ctx))
			return 0;
		l->planned = ctx;
		l->plan_seq = ctx->finished;
		l->plan_bad = 0;
		l->plan_room = 1;
	}
	return 1;
}

/* Thread 0: what dfk_commit() and dfk_miss() need of the slice. */
DFK void dfk_short_slice(struct df_kctx *ctx, uint32_t i, const struct dfk_plan *p,
			 struct dfk_shared *sh)
{
	sh->inst = dfk_inst(ctx, i);
	sh->now = dfk_now(ctx);
	sh->loop = 0;
	sh->takes = p->get != NULL;
	sh->puts = p->put != NULL;
	sh->recv_pos = p->recv_pos;
	sh->send_pos = p->send_pos;
	sh->ref = NULL;
	sh->pub = p->pub;
}

/* Whether the slice needs dfk_commit(). */
DFK int dfk_short_tells(const struct df_kdaemon *d, const struct dfk_plan *p)
{
	return p->tells || d->policy.order;
}

/* Thread 0: a slice has moved that needs nothing of dfk_commit() but the block's own counters. */
DFK void dfk_short_sent(struct df_kdaemon *d, struct df_kblock *blk, struct df_kctx *ctx,
			const struct dfk_plan *p)
{
	blk->moved = 1;
	ctx->polls = 0;
	/* RELAXED: with words only the host reads it, after the gate. */
	if (p->tail)
		dfk_store_relaxed_sys(p->tail, p->send_pos + 1);
	dfk_store_relaxed_sys(&ctx->k, ctx->k + 1);
	dfk_count(d, blk, ctx);
}

/* The first unit of a thread: those of warp 0, whose thread 0 has other work, are the last ones. */
DFK uint32_t dfk_unit_first(void)
{
	if (DFK_NTHREADS <= 32)
		return (uint32_t)DFK_TID;
	return (uint32_t)(DFK_TID >= 32 ? DFK_TID - 32 : DFK_TID + DFK_NTHREADS - 32);
}

/*
 * Thread 0: whether the instance may access the buffers. Looks for a while if no task waits. The
 * caller calls dfk_instance_begin().
 */
DFK uint32_t dfk_short_ready(struct df_kblock *blk, struct df_kctx *ctx)
{
	int i, looks = blk->first == blk->last ? DFK_LOOKS : 1;
	const struct df_kinst *in = dfk_now(ctx);
	struct dfk_heed h = {blk->sq.head, 0, 0, 0};

	if (ctx->ready)
		return 1;
	for (i = 0; i < looks; i++) {
		if (dfk_waits_over(in))
			return 1;
		/* Not between the first two looks: the mark often arrives then. */
		if (i % DFK_HEED_EVERY != 1)
			continue;
		if (dfk_heed(blk, &h))
			break;
		h = dfk_heed_begin(blk);
	}
	return 0;
}

/*
 * Thread 0, while the other threads poll their words: looks at the slice's last unit, and ends the
 * attempt when the threshold is reached or the host wants something.
 */
DFK int dfk_short_wait(struct df_kblock *blk, struct df_kctx *ctx, struct dfk_shared *sh,
		       const struct dfk_plan *p, uint32_t at)
{
	int64_t left = ctx->spin - ctx->polls, i;
	struct dfk_heed h = {blk->sq.head, 0, 0, 0};
	uint64_t v;

	if (left > DFK_LOOKS)
		left = DFK_LOOKS;
	for (i = 0; !dfk_unit_get(p, at, &v); i++) {
		if (i + 1 >= left) {
			dfk_store_relaxed_sys(&sh->enough, 1u);
			ctx->polls += i;
			return 0;
		}
		/* Not between the first two looks: the slice often arrives then. */
		if (i % DFK_HEED_EVERY == 1) {
			if (dfk_heed(blk, &h))
				left = 0;
			else
				h = dfk_heed_begin(blk);
		}
	}
	return 1;
}

/*
 * All threads: moves one slice. Returns whether it has moved; if not, nothing has changed. The
 * block synchronizes before the next slice if this one has stored its result.
 */
DFK int dfk_short_move(struct df_kblock *blk, struct dfk_shared *sh, const struct dfk_plan *plan)
{
	const struct dfk_plan p = *plan;
	uint64_t a[DFK_UNITS], b[DFK_UNITS];
	uint32_t bytes[DFK_UNITS], type = sh->ctx->coll->type, redop = sh->ctx->coll->redop;
	uint32_t n, i, u = dfk_unit_first(), units = (p.words + 1) / 2, looks = 0;
	int got = 1;

	for (n = 0; n < DFK_UNITS; n++) {
		uint32_t at = u + n * (uint32_t)DFK_NTHREADS;

		a[n] = b[n] = 0;
		bytes[n] = dfk_unit_bytes(&p, at);
		if (at >= units)
			continue;
		/* These loads are in progress while the words are polled. */
		if (p.a)
			a[n] = dfk_unit_load(p.a + 8 * at, bytes[n]);
		if (p.b)
			b[n] = dfk_unit_load(p.b + 8 * at, bytes[n]);
		/*
		 * Thread 0 does not end the looks if its own words have arrived, and the others may
		 * never do: the rank that sends them may die in the middle of a slice.
		 */
		if (p.get && DFK_TID)
			/* RELAXED: the barrier below orders it. */
			while (!(got = dfk_unit_get(&p, at, &a[n])) && looks++ < DFK_SHORT_MOST &&
			       !dfk_load_relaxed_sys(&sh->enough))
				;
	}
	if (p.get && DFK_TID == 0)
		got = dfk_short_wait(blk, sh->ctx, sh, &p, units - 1);
	for (n = 0; n < DFK_UNITS && p.get && DFK_TID == 0 && got; n++) {
		uint32_t at = u + n * (uint32_t)DFK_NTHREADS;

		if (at < units)
			got = dfk_unit_get(&p, at, &a[n]);
	}
	if (p.get && !dfk_sync_and(got))
		return 0;
	for (n = 0; n < DFK_UNITS; n++) {
		uint32_t at = u + n * (uint32_t)DFK_NTHREADS;

		if (at >= units)
			continue;
		if (p.b)
			a[n] = dfk_unit(type, redop, a[n], b[n]);
		if (p.put)
			dfk_unit_put(&p, at, a[n]);
		if (p.dst)
			dfk_unit_store(p.dst + 8 * at, a[n], bytes[n]);
	}
	for (i = p.words + (uint32_t)DFK_TID; i < p.sweep; i += DFK_NTHREADS)
		dfk_store_relaxed_sys(&p.put[i], (uint64_t)p.put_flag << 32);
	return 1;
}

/* Thread 0: the turn ends without the next slice. */
DFK void dfk_short_missed(struct df_kdaemon *d, struct df_kblock *blk, struct dfk_shared *sh,
			  struct df_kctx *ctx, int able)
{
	dfk_lasted(blk);
	if (!able)
		sh->peer = 0;
	dfk_miss(d, blk, sh, ctx, able);
}

/* All threads, which synchronize before and after. Returns the result of the turn. */
DFK enum df_turn dfk_short_turn(struct df_kdaemon *d, struct df_kblock *blk, struct dfk_shared *sh,
				struct dfk_stage *stage)
{
	struct df_kctx *ctx = sh->ctx;
	struct dfk_plan *plan = dfk_plans(stage);
	uint32_t i, nr = ctx->nr_inst;
	uint32_t u = dfk_unit_first();
	int ok = 1;

	/* By a thread of each warp from warp 1 on, while thread 0 waits for the input. */
	for (i = u / 32; i < nr && u % 32 == 0; i += (DFK_NTHREADS + 31) / 32) {
		if (sh->plan)
			dfk_plan(ctx, i, &plan[i]);
		dfk_place(ctx, i, &plan[i]);
		ok &= (int)plan[i].ok;
	}
	if (sh->ahead)
		return DF_TURN_EMPTY;
	if (DFK_TID == 0) {
		sh->first = (uint32_t)(ctx->k - ctx->finished * nr);
		sh->enough = 0;
		sh->able = dfk_short_ready(blk, ctx);
		if (!sh->able)
			dfk_short_missed(d, blk, sh, ctx, 0);
	}
	if (!dfk_sync_and(ok)) {
		/* Nothing has moved; the next turn is another one. */
		if (DFK_TID == 0)
			dfk_local(blk)->plan_bad = 1;
		return DF_TURN_SPIN;
	}
	if (!sh->able)
		return DF_TURN_SPIN;
	/* Programs that are executed here do not depend on what this sets. */
	if (DFK_TID == 0 && !ctx->ready)
		dfk_instance_begin(ctx);
	for (i = sh->first; i < nr; i++) {
		if (DFK_TID == 0 && dfk_short_tells(d, &plan[i]))
			dfk_short_slice(ctx, i, &plan[i], sh);
		if (!dfk_short_move(blk, sh, &plan[i])) {
			if (DFK_TID == 0) {
				sh->peer = ctx->recv[dfk_inst(ctx, i)->recv_conn].peer;
				dfk_short_missed(d, blk, sh, ctx, 1);
				sh->turn = i > sh->first ? DF_TURN_PROGRESS : DF_TURN_SPIN;
			}
			dfk_sync();
			return (enum df_turn)sh->turn;
		}
		/*
		 * The next slice may use the result, and the fence of the end follows. At the end
		 * the input is the user's again, so all threads must have read it, also if they
		 * only send.
		 */
		if (plan[i].dst || plan[i].pub.last)
			dfk_sync();
		if (DFK_TID == 0) {
			if (i == sh->first)
				dfk_accept(d, blk, ctx);
			if (dfk_short_tells(d, &plan[i]))
				dfk_commit(d, blk, sh);
			else
				dfk_short_sent(d, blk, ctx, &plan[i]);
		}
		/* By priority, each slice is followed by a decision. */
		if (d->policy.order)
			break;
	}
	return DF_TURN_PROGRESS;
}
