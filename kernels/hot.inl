/*
 * Hot contexts. On a GPU, the memory that the host shares with a block is pinned host memory, and
 * each access to it crosses the bus. So a block on the device works on copies: its own state, and
 * DFK_WAYS contexts with their connectors and instructions, in shared memory. Contexts that do not
 * fit there are in *lines* of GPU memory; each context can use only one particular line. The state
 * of a context is in one place at a time: a way, its line, or the original.
 *
 *   dfk_block_enter()   copies the block's state; no context is hot
 *   dfk_fetch()         copies a context into a way: from its line or from the original. The way's
 *                       previous context goes to its line, and the previous one of the line to its
 *                       original
 *   dfk_block_leave()   copies everything back to the originals
 *
 * So whenever no kernel is on the device, the originals are valid: quitting and launching again
 * lose nothing, and the host may clean the queues. The host frees no context before it has taken
 * the kernel off the device, so nothing is ever written to memory that has another owner. While a
 * block is on the device it reads what the host changes in the originals: rings, ends of connectors
 * until they are connected, the `next` of instances, ready words.
 *
 * Built with DFK_WAYS 0, for CPU threads, all this is empty, and blocks work on the originals.
 */

#ifndef DFK_WAYS
#ifdef __CUDACC__
#define DFK_WAYS 2
#else
#define DFK_WAYS 0
#endif
#endif

/*
 * A busy block reads submissions and the request to leave across the bus once in this number of
 * turns.
 */
#ifndef DFK_LOOK_EVERY
#define DFK_LOOK_EVERY 16
#endif

/* The number of turns by priority, because a submission may be urgent. */
#define DFK_LOOK_URGENT ((DFK_LOOK_EVERY + 3) / 4)

#if DFK_WAYS

#ifndef DFK_HOT_CONNS
#define DFK_HOT_CONNS 8
#define DFK_HOT_INSTS 16
#endif

/* A copy of a context and of what it refers to. Parts that do not fit are used in the original. */
struct dfk_hot {
	struct df_kctx ctx; /* first; home NULL: unused */
	struct df_kcoll coll, *coll_home;
	struct df_kconn *send_home, *recv_home;
	const struct df_kinst *inst_of; /* the original of `inst`, or NULL */
	struct df_kinst inst;
	uint64_t inst_own; /* whether its waits are in own_waits and move with it */
	uint32_t brief;	   /* whether its program may be executed by gpu/short.inl */
	uint64_t used;	   /* dfk_local.turns when it was last used */
	struct df_kconn conn[DFK_HOT_CONNS];
	struct df_inst prog[DFK_HOT_INSTS];
};

/* A block's data in shared memory. */
struct dfk_local {
	/* First: the block's own state. The indices of its rings are in the original. */
	struct df_kblock blk;
	struct df_kblock *home;
	struct df_kdaemon d; /* quit is in the original */
	struct df_kdaemon *d_home;
	struct df_sq_slot slot; /* the current submission */
	uint32_t tail;		/* of the ring of submissions, when it was read */
	struct dfk_hot *lines;
	uint64_t turns, published; /* stats.slices when counters were last published */
	uint32_t told;		   /* sq.head as last published */
	/*
	 * for dfk_leaves(): number of turns; the time of the first one since the last progress, and
	 * since the start; 0: none
	 */
	uint32_t looks;
	uint64_t still, came;
	uint32_t able;	/* whether a task has waited for a peer since the last progress */
	uint32_t stays; /* as in the original */
	uint32_t asks;	/* the last block found to stay */
	uint32_t eager; /* whether the next turn must read the submissions */
	uint32_t moves; /* whether the last turn made progress */
	/*
	 * The plan in the stage (gpu/short.inl): its context, its instance, whether it is bad,
	 * whether the connectors are known to have room for it
	 */
	struct df_kctx *planned;
	uint64_t plan_seq;
	uint32_t plan_bad, plan_room;
	struct dfk_hot way[DFK_WAYS];
};

#ifdef __CUDACC__
static_assert(sizeof(struct dfk_hot) <= DF_LINE_BYTES, "a context has room in its line");
#else
_Static_assert(sizeof(struct dfk_hot) <= DF_LINE_BYTES, "a context has room in its line");
#endif

DFK struct dfk_local *dfk_local(const struct df_kblock *blk)
{
	return (struct dfk_local *)(uintptr_t)blk;
}

/* All threads copy a part. */
DFK void dfk_copy(void *to, const void *from, uint32_t bytes)
{
	dfk_u64 *t = (dfk_u64 *)to;
	const dfk_u64 *f = (const dfk_u64 *)from;
	uint32_t i;

	for (i = (uint32_t)DFK_TID; i < bytes / 8; i += DFK_NTHREADS)
		t[i] = f[i];
}

/* Returns the line that a context can use, or NULL if there are no lines. */
DFK struct dfk_hot *dfk_line(const struct df_kblock *blk, const struct df_kctx *home)
{
	const struct dfk_local *l = dfk_local(blk);
	uint64_t h = (uint64_t)(uintptr_t)home >> 6;

	if (!l->lines)
		return NULL;
	h ^= h >> 7 ^ h >> 17;
	return (struct dfk_hot *)(void *)((uint8_t *)(void *)l->lines +
					  (h & (l->d.nr_lines - 1)) * DF_LINE_BYTES);
}

DFK struct dfk_hot *dfk_way(const struct df_kblock *blk, const struct df_kctx *home)
{
	struct dfk_local *l = dfk_local(blk);
	uint32_t i;

	for (i = 0; i < DFK_WAYS; i++)
		if (l->way[i].ctx.home == home)
			return &l->way[i];
	return NULL;
}

/* Returns where the state of a context is: a copy, or the original itself. */
DFK struct df_kctx *dfk_at(const struct df_kblock *blk, struct df_kctx *home)
{
	struct dfk_hot *h = dfk_way(blk, home);

	if (!h) {
		h = dfk_line(blk, home);
		if (!h || h->ctx.home != home)
			return home;
	}
	return &h->ctx;
}

DFK struct df_kctx *dfk_home(struct df_kctx *ctx)
{
	return ctx->home ? ctx->home : ctx;
}

DFK struct df_kblock *dfk_block_home(struct df_kblock *blk)
{
	return dfk_local(blk)->home;
}

DFK struct df_kcoll *dfk_coll_home(const struct df_kctx *ctx)
{
	return ctx->home ? ((const struct dfk_hot *)(const void *)ctx)->coll_home : ctx->coll;
}

/* Thread 0: makes a copy refer to the copies in the same struct. */
DFK void dfk_point(struct dfk_hot *h)
{
	struct df_kctx *c = &h->ctx;
	int room = c->nr_send + c->nr_recv <= DFK_HOT_CONNS;

	c->coll = &h->coll;
	c->send = room ? h->conn : h->send_home;
	c->recv = room ? h->conn + c->nr_send : h->recv_home;
	if (h->inst_of && h->inst_own)
		h->inst.waits = h->inst.own_waits;
}

/*
 * Thread 0: copies back to the original. The copy may remain: the original is not read before the
 * task leaves the queue.
 */
DFK void dfk_save(const struct dfk_hot *h)
{
	const struct df_kctx *c = &h->ctx;
	struct df_kctx *o = c->home;

	/* RELAXED: where other blocks read it, dfk_commit() has already released it. */
	dfk_store_relaxed_sys(&o->k, c->k);
	o->cur = c->cur;
	o->announced = c->announced;
	o->finished = c->finished;
	o->next = c->next;
	o->prev = c->prev;
	o->redop_arg = c->redop_arg;
	o->queued = c->queued;
	o->priority = c->priority;
	o->ready = c->ready;
	o->loaded = c->loaded;
	o->preempted = c->preempted;
	o->fresh = c->fresh;
	o->since = c->since;
	o->served = c->served;
	o->told = c->told;
	o->spin = c->spin;
	o->polls = c->polls;
}

/* Thread 0: the scratch memory exists, because the instance waited for it. */
DFK void dfk_scratch(struct df_kctx *ctx)
{
	if (ctx->home && ctx->coll->scratch_chunks && !ctx->coll->scratch)
		ctx->coll->scratch = dfk_coll_home(ctx)->scratch;
}

/*
 * Thread 0: whether a program may be executed by gpu/short.inl: one loop, slices that can be words,
 * no dependencies, plain operations, connectors and instructions in the copy.
 */
DFK uint32_t dfk_is_brief(const struct dfk_hot *h)
{
	return h->coll.loops == 1 && dfk_slice_bytes(&h->coll, 1, 0) <= DF_WORDS_BYTES &&
	       !h->coll.nr_deps && h->coll.redop < DF_PREMULSUM &&
	       h->ctx.nr_inst <= DFK_HOT_INSTS && h->ctx.send == h->conn;
}

/* ---- fetching ------------------------------------------------------------------------------- */

/* Thread 0's decision about the context to fetch. */
struct dfk_fetch {
	struct df_kctx *home; /* NULL: none */
	struct dfk_hot *way, *from, *to;
};

DFK void dfk_fetch_begin(const struct df_kblock *blk, struct df_kctx *home, struct dfk_fetch *f)
{
	struct dfk_local *l = dfk_local(blk);
	struct dfk_hot *line = dfk_line(blk, home), *old;
	uint32_t i;

	f->home = home;
	l->planned = NULL;
	f->way = &l->way[0];
	for (i = 1; i < DFK_WAYS; i++)
		if (!l->way[i].ctx.home || (f->way->ctx.home && l->way[i].used < f->way->used))
			f->way = &l->way[i];
	f->from = line && line->ctx.home == home ? line : NULL;
	f->to = NULL;
	if (!f->way->ctx.home)
		return;
	old = dfk_line(blk, f->way->ctx.home);
	if (!old || old == f->from) {
		dfk_save(f->way);
		return;
	}
	if (old->ctx.home)
		dfk_save(old);
	f->to = old;
}

/* All threads. They synchronize after f is set, and after the last use of the way. */
DFK void dfk_fetch(const struct dfk_fetch *f)
{
	struct dfk_hot *w = f->way;
	uint32_t i, fits;

	/* Each thread overwrites below only what it has read itself. */
	if (f->to)
		dfk_copy(f->to, w, sizeof(*w));
	if (f->from)
		dfk_copy(w, f->from, sizeof(*w));
	else
		dfk_copy(&w->ctx, f->home, sizeof(w->ctx));
	dfk_sync();
	if (DFK_TID == 0) {
		if (f->to)
			dfk_point(f->to);
		if (f->from) {
			f->from->ctx.home = NULL;
		} else {
			w->ctx.home = f->home;
			w->coll_home = w->ctx.coll;
			w->send_home = w->ctx.send;
			w->recv_home = w->ctx.recv;
			w->inst_of = NULL;
			/* Values that may change are read when they are needed. */
			w->coll.scratch = NULL;
			w->coll.aborted = 0;
			for (i = 0; i < DFK_HOT_CONNS; i++)
				w->conn[i].state = 0;
		}
	}
	dfk_sync();
	if (!f->from) {
		fits = w->ctx.nr_inst <= DFK_HOT_INSTS;
		dfk_copy(&w->coll, w->coll_home, offsetof(struct df_kcoll, scratch));
		if (fits)
			dfk_copy(w->prog, df_prog_inst(w->coll_home->prog, w->ctx.first_inst),
				 w->ctx.nr_inst * (uint32_t)sizeof(struct df_inst));
	}
	dfk_sync();
	if (DFK_TID == 0) {
		dfk_point(w);
		w->brief = dfk_is_brief(w);
		if (w->ctx.ready)
			dfk_scratch(&w->ctx);
	}
}

/* ---- what a context refers to --------------------------------------------------------------- */

/*
 * Thread 0: copies the fixed part of an instance, from the instance or from the slot that contained
 * it.
 */
DFK void dfk_now_copy(struct dfk_hot *h, const struct df_kinst *in, const dfk_u64 *fixed)
{
	dfk_u64 *to = (dfk_u64 *)(void *)&h->inst.in;
	dfk_u64 v[DF_KINST_FIXED / 8];
	uint32_t i;

	/*
	 * All loads are issued before the first store: a store between two loads might alias the
	 * second one, so each load would wait for the previous one, perhaps across the bus.
	 */
	for (i = 0; i < DF_KINST_FIXED / 8; i++)
		v[i] = fixed[i];
	for (i = 0; i < DF_KINST_FIXED / 8; i++)
		to[i] = v[i];
	h->inst_own = h->inst.waits == in->own_waits;
	if (h->inst_own)
		h->inst.waits = h->inst.own_waits;
	h->inst_of = in;
}

/* Thread 0: returns the running instance, of which the copy lacks the fields that change. */
DFK const struct df_kinst *dfk_now(struct df_kctx *ctx)
{
	struct dfk_hot *h = (struct dfk_hot *)(void *)ctx;
	const struct df_kinst *in = ctx->cur;

	if (!ctx->home)
		return in;
	if (h->inst_of != in)
		dfk_now_copy(h, in, (const dfk_u64 *)(const void *)&in->in);
	return &h->inst;
}

/* Thread 0: makes another instance the running one. */
DFK void dfk_now_is(struct df_kctx *ctx, struct df_kinst *in)
{
	ctx->cur = in;
	if (ctx->home)
		((struct dfk_hot *)(void *)ctx)->inst_of = NULL;
}

/* Thread 0: gpu/take.inl has made it valid. */
DFK struct df_sqe dfk_sqe(const struct df_sq_slot *slot)
{
	return slot->e;
}

/* Thread 0: makes the instance of a submission the running one. */
DFK void dfk_now_from(struct df_kctx *ctx, const struct df_sq_slot *slot)
{
	ctx->cur = slot->e.inst;
	if (ctx->home)
		dfk_now_copy((struct dfk_hot *)(void *)ctx, slot->e.inst,
			     (const dfk_u64 *)(const void *)slot->fixed);
}

DFK const struct df_inst *dfk_inst(const struct df_kctx *ctx, uint32_t i)
{
	if (ctx->home && ctx->nr_inst <= DFK_HOT_INSTS)
		return &((const struct dfk_hot *)(const void *)ctx)->prog[i];
	return df_prog_inst(ctx->coll->prog, ctx->first_inst + i);
}

/* Thread 0: whether the connector is connected. */
DFK int dfk_connected(const struct df_kctx *ctx, struct df_kconn *k)
{
	const struct dfk_hot *h = (const struct dfk_hot *)(const void *)ctx;
	const struct df_kconn *o;
	uint32_t i;

	if (!ctx->home || ctx->send != h->conn)
		/*
		 * ACQUIRE pairs with the RELEASE of state in connect_end()
		 * (runtime/coll/connector.c): without it, the connector's pointers could be read
		 * before they are set.
		 */
		return dfk_load_acquire_sys(&k->state) & DF_KCONN_CONNECTED;
	if (k->state & DF_KCONN_CONNECTED)
		return 1;
	i = (uint32_t)(k - h->conn);
	o = i < ctx->nr_send ? h->send_home + i : h->recv_home + (i - ctx->nr_send);
	/*
	 * ACQUIRE pairs with the RELEASE of state in connect_end() (runtime/coll/connector.c), as
	 * above.
	 */
	if (!(dfk_load_acquire_sys(&o->state) & DF_KCONN_CONNECTED))
		return 0;
	*k = *o;
	return 1;
}

/* Thread 0: called when connectors have changed; drops their copies. */
DFK void dfk_reconnect(struct df_kblock *blk, struct df_kctx *ctx)
{
	struct dfk_hot *h = (struct dfk_hot *)(void *)ctx;
	uint32_t i;

	if (ctx->home)
		for (i = 0; i < DFK_HOT_CONNS; i++)
			h->conn[i].state = 0;
	if (dfk_local(blk)->planned == ctx)
		dfk_local(blk)->planned = NULL;
}

/* Thread 0: publishes the counters, so that they can be read while the block is on the device. */
DFK void dfk_publish(struct df_kblock *blk)
{
	struct dfk_local *l = dfk_local(blk);
	const uint64_t *from = (const uint64_t *)(const void *)&blk->stats;
	uint64_t *to = (uint64_t *)(void *)&l->home->stats;
	uint32_t i;

	if (l->published == blk->stats.slices)
		return;
	l->published = blk->stats.slices;
	for (i = 0; i < sizeof(blk->stats) / 8; i++)
		dfk_store_relaxed_sys(&to[i], from[i]);
}

/* Thread 0: whether to read across the bus in this turn; a busy block does so only now and then. */
DFK int dfk_look(struct df_kblock *blk)
{
	uint64_t turn = dfk_local(blk)->turns++;
	int eager = !blk->task || dfk_local(blk)->eager;

	dfk_local(blk)->eager = 0;
	/* Publish now and then: a block that always has work must not look stuck. */
	if (turn % (16 * DFK_LOOK_EVERY) == 0)
		dfk_publish(blk);
	if (dfk_local(blk)->d.policy.order)
		return eager || turn % DFK_LOOK_URGENT == 0;
	/* While it makes progress, dfk_leaves() reads the ring's tail without waiting for it. */
	return eager || (!dfk_local(blk)->moves && turn % DFK_LOOK_EVERY == 0);
}

/* Thread 0: whether the instance after that of the plan in the stage has no plan yet. */
DFK int dfk_unplanned(const struct dfk_local *l)
{
	return l->planned && !l->plan_bad && l->plan_seq != l->planned->finished;
}

/*
 * Looks of an idle block in a turn, each a round trip across the bus: a turn takes longer than what
 * is between two looks.
 */
#define DFK_IDLE_LOOKS 4

/* Thread 0, after `looks` looks at the submissions: whether it looks again in this turn. */
DFK int dfk_look_again(const struct df_kblock *blk, int looks)
{
	struct dfk_local *l = dfk_local(blk);

	if (blk->task || looks >= DFK_IDLE_LOOKS || dfk_unplanned(l))
		return 0;
	l->looks += l->looks % DFK_LOOK_EVERY != 0;
	return 1;
}

/* Thread 0: the task waits for another rank of this daemon, for which there may be a submission. */
DFK void dfk_ask(struct df_kblock *blk)
{
	dfk_local(blk)->eager = 1;
}

/*
 * Thread 0: whether the awaited peer may be a task of this block: a rank of this daemon, and the
 * block has other tasks. Another block's task acts while this block polls. If the peer's task has
 * not been accepted yet, dfk_heed() notices its submission.
 */
DFK int dfk_is_own(const struct df_kdaemon *d, const struct df_kblock *blk, uint64_t peer)
{
	return peer && peer == d->self && blk->first != blk->last;
}

/* Thread 0: the task waits for a peer, which may act at any moment. */
DFK void dfk_able(struct df_kblock *blk)
{
	dfk_local(blk)->able = 1;
}

/*
 * Thread 0: whether the ring has submissions that were not taken, by this reading of its tail. The
 * reading may be older than the head, hence the signed difference.
 */
DFK int dfk_sq_more(const struct df_kblock *blk, uint32_t tail)
{
	return (int32_t)(tail - blk->sq.head) > 0;
}

/*
 * Thread 0: submissions up to head have been accepted. Publishes head only after many of them,
 * because that takes a fence.
 */
DFK void dfk_sq_taken(struct df_kblock *blk, uint32_t head)
{
	struct dfk_local *l = dfk_local(blk);

	blk->sq.head = head;
	if (head - l->told <= blk->sq.mask / 4)
		return;
	l->told = head;
	/*
	 * RELEASE pairs with the ACQUIRE of head in ring_push() (runtime/coll/dev.c): the host
	 * may overwrite the slots only after they have been copied.
	 */
	dfk_store_release_sys(&l->home->sq.head, head);
}

/*
 * Thread 0: whether there is room for a completion. Reads the host's counter only if there may be
 * none.
 */
DFK int dfk_cq_room(struct df_kblock *blk)
{
	struct df_ring *cq = &blk->cq;

	if (cq->tail - cq->head > cq->mask) {
		/*
		 * ACQUIRE pairs with the RELEASE of head in df_dev_retire() (runtime/coll/dev.c):
		 * without it, this could overwrite a completion that is still being read.
		 */
		cq->head = dfk_load_acquire_sys(&dfk_local(blk)->home->cq.head);
	}
	return cq->tail - cq->head <= cq->mask;
}

/* ---- entering and leaving ------------------------------------------------------------------- */

/* All threads. */
DFK void dfk_block_enter(struct dfk_local *l, struct df_kdaemon *d, uint32_t block)
{
	struct df_kblock *o = &d->blocks[block], *b = &l->blk;
	uint32_t i;

	/*
	 * Each thread copies some words, so that these cross the bus together. RELAXED: some of
	 * them the host may be writing, but those are not used.
	 */
	for (i = (uint32_t)DFK_TID; i < sizeof(*d) / 8; i += DFK_NTHREADS)
		((dfk_u64 *)(void *)&l->d)[i] =
			dfk_load_relaxed_sys(&((const dfk_u64 *)(const void *)d)[i]);
	for (i = (uint32_t)DFK_TID; i < sizeof(*b) / 8; i += DFK_NTHREADS)
		((dfk_u64 *)(void *)b)[i] =
			dfk_load_relaxed_sys(&((const dfk_u64 *)(const void *)o)[i]);
	dfk_sync();
	if (DFK_TID == 0) {
		l->d_home = d;
		l->home = o;
		l->told = b->sq.head;
		b->cq.head = b->cq.tail - b->cq.mask - 1; /* read when it is needed */
		l->turns = 0;
		l->looks = 1; /* not before it has had some turns */
		l->able = l->asks = l->eager = l->moves = 0;
		l->stays = 1;
		/* RELAXED: it carries no data. */
		dfk_store_relaxed_sys(&o->stays, 1u);
		l->still = l->came = 0;
		l->planned = NULL;
		l->plan_bad = l->plan_room = 0;
		l->published = b->stats.slices;
		for (i = 0; i < DFK_WAYS; i++)
			l->way[i].ctx.home = NULL;
		l->lines = NULL;
		if (l->d.lines)
			l->lines = (struct dfk_hot *)(void *)((uint8_t *)l->d.lines +
							      (size_t)block * l->d.nr_lines *
								      DF_LINE_BYTES);
	}
	dfk_sync();
	for (i = (uint32_t)DFK_TID; l->lines && i < l->d.nr_lines; i += DFK_NTHREADS)
		((struct dfk_hot *)(void *)((uint8_t *)(void *)l->lines +
					    (size_t)i * DF_LINE_BYTES))
			->ctx.home = NULL;
	dfk_sync();
}

/*
 * All threads. The end of the kernel, which the host awaits, orders this before its next
 * accesses.
 */
DFK void dfk_block_leave(struct dfk_local *l)
{
	struct df_kblock *o = l->home;
	uint32_t i;

	for (i = (uint32_t)DFK_TID; l->lines && i < l->d.nr_lines; i += DFK_NTHREADS) {
		const struct dfk_hot *h =
			(const struct dfk_hot *)(const void *)((const uint8_t *)(void *)l->lines +
							       (size_t)i * DF_LINE_BYTES);

		if (h->ctx.home)
			dfk_save(h);
	}
	for (i = (uint32_t)DFK_TID; i < DFK_WAYS; i += DFK_NTHREADS)
		if (l->way[i].ctx.home)
			dfk_save(&l->way[i]);
	if (DFK_TID)
		return;
	o->first = l->blk.first;
	o->last = l->blk.last;
	o->task = l->blk.task;
	o->running = l->blk.running;
	o->pos = l->blk.pos;
	o->nr_tasks = l->blk.nr_tasks;
	o->moved = l->blk.moved;
	o->queued = l->blk.queued;
	o->gang = l->blk.gang;
	o->served = l->blk.served;
	o->owed = l->blk.owed;
	o->idle = l->blk.idle;
	o->stays = 0;
	o->cq.tail = l->blk.cq.tail;
	l->published = ~(uint64_t)0;
	dfk_publish(&l->blk);
	/*
	 * RELEASE pairs with the ACQUIRE of head in ring_push() (runtime/coll/dev.c), as in
	 * dfk_sq_taken().
	 */
	dfk_store_release_sys(&o->sq.head, l->blk.sq.head);
}

#else

struct dfk_fetch {
	struct df_kctx *home;
};

#define dfk_at(blk, ctx)	((void)(blk), (ctx))
#define dfk_home(ctx)		(ctx)
#define dfk_block_home(blk)	(blk)
#define dfk_coll_home(ctx)	((ctx)->coll)
#define dfk_now(ctx)		((const struct df_kinst *)(ctx)->cur)
#define dfk_now_is(ctx, in)	((ctx)->cur = (in))
#define dfk_now_from(ctx, slot) ((ctx)->cur = dfk_sqe(slot).inst)
#define dfk_inst(ctx, i)	df_prog_inst((ctx)->coll->prog, (ctx)->first_inst + (i))
#define dfk_scratch(ctx)	((void)(ctx))
#define dfk_reconnect(blk, ctx) ((void)(ctx))
#define dfk_ask(blk)		((void)(blk))
/* A rank of this daemon acts when its block has its turn, not while this one polls. */
#define dfk_is_own(d, blk, at)	((at) && (at) == (d)->self)
#define dfk_publish(blk)	((void)(blk))
#define dfk_able(blk)		((void)(blk))

/* A slot as for a GPU has a lap in the highest bit of each word; pointers have none there. */
DFK struct df_sqe dfk_sqe(const struct df_sq_slot *slot)
{
	struct df_sqe e;

	e.ctx = (struct df_kctx *)((uintptr_t)slot->e.ctx << 1 >> 1);
	e.inst = (struct df_kinst *)((uintptr_t)slot->e.inst << 1 >> 1);
	return e;
}

/*
 * ACQUIRE pairs with the RELEASE of state in connect_end() (runtime/coll/connector.c): without it,
 * the connector's pointers could be read before they are set.
 */
DFK int dfk_connected(const struct df_kctx *ctx, struct df_kconn *k)
{
	(void)ctx;
	return dfk_load_acquire_sys(&k->state) & DF_KCONN_CONNECTED;
}

DFK void dfk_sq_taken(struct df_kblock *blk, uint32_t head)
{
	/*
	 * RELEASE pairs with the ACQUIRE of head in ring_push() (runtime/coll/dev.c): the host
	 * may overwrite the slots only after they have been copied.
	 */
	dfk_store_release_sys(&blk->sq.head, head);
}

DFK int dfk_cq_room(struct df_kblock *blk)
{
	/*
	 * ACQUIRE pairs with the RELEASE of head in df_dev_retire() (runtime/coll/dev.c): without
	 * it, this could overwrite a completion that is still being read.
	 */
	return blk->cq.tail - dfk_load_acquire_sys(&blk->cq.head) <= blk->cq.mask;
}

#endif
