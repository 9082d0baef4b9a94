/*
 * The compiler: trace -> instructions with dependencies -> fused -> scheduled -> blocks and
 * channels -> plan. Deterministic: every choice is by depth, height, then the number of the
 * operation in the text.
 *
 * The result cannot deadlock with at least min_slots slots: there is one order of all instructions
 * in which each follows its dependencies and every connection delivers in the order in which it was
 * filled, and each block executes its instructions in that order.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/err.h"
#include "runtime/base/vec.h"
#include "runtime/program/file/canon.h"
#include "runtime/program/lang/lower_int.h"
#include "runtime/program/program_names.h"

#define NONE UINT32_MAX

static uint32_t push_edge(struct df_lower *w, uint32_t node, uint32_t next)
{
	struct df_ledge *e = DF_VEC_PUSH(w->edge, w->nr_edges, w->cap_edges);

	if (!e) {
		w->rc = -ENOMEM;
		return next;
	}
	*e = (struct df_ledge){node, next};
	return w->nr_edges;
}

/* ---- instructions and their dependencies ------------------------------------------------- */

static struct df_lplace *place(struct df_lower *w, int rank, int buf, uint32_t index)
{
	df_lang_place(w->l, rank, &buf, &index);
	return &w->place[w->place_base[rank * DF_LANG_BUFS + buf] + index];
}

static void depend(struct df_lower *w, uint32_t n, uint32_t on)
{
	struct df_lnode *x = &w->node[n];

	if (on == NONE || on == n)
		return;
	for (uint32_t e = x->preds; e; e = w->edge[e - 1].next) {
		if (w->edge[e - 1].node == on)
			return;
	}
	x->preds = push_edge(w, on, x->preds);
}

static void reads(struct df_lower *w, uint32_t n, int buf, uint32_t index)
{
	struct df_lnode *x = &w->node[n];

	for (uint32_t i = 0; i < x->cnt; i++) {
		struct df_lplace *p = place(w, x->rank, buf, index + i);

		depend(w, n, p->writer);
		p->readers = push_edge(w, n, p->readers);
		p->nr_readers++;
	}
}

/*
 * Called when the value at `p` is overwritten or the program ends. Unless exactly one instruction
 * has read the value, its writer must store it.
 */
static void forget(struct df_lower *w, struct df_lplace *p)
{
	if (p->writer != NONE && p->nr_readers != 1)
		w->node[p->writer].store = 1;
}

static void writes(struct df_lower *w, uint32_t n, int buf, uint32_t index)
{
	struct df_lnode *x = &w->node[n];

	for (uint32_t i = 0; i < x->cnt; i++) {
		struct df_lplace *p = place(w, x->rank, buf, index + i);

		forget(w, p);
		for (uint32_t e = p->readers; e; e = w->edge[e - 1].next)
			depend(w, n, w->edge[e - 1].node);
		depend(w, n, p->writer);
		p->writer = n;
		p->readers = p->nr_readers = 0;
	}
}

static uint32_t add(struct df_lower *w, int op, const struct df_lang_op *o, int rank)
{
	w->node[w->nr] = (struct df_lnode){.op = (uint8_t)op,
					   .rank = rank,
					   .channel = o->channel,
					   .cnt = o->cnt,
					   .line = (uint32_t)o->line,
					   .send_x = NONE,
					   .recv_x = NONE,
					   .into = NONE};
	return w->nr++;
}

static void make_nodes(struct df_lower *w)
{
	for (uint32_t k = 0; k < w->l->nr_ops && !w->rc; k++) {
		const struct df_lang_op *o = &w->l->op[k];
		int remote = o->src_rank != o->dst_rank;
		uint32_t s, d;

		if (remote) {
			s = add(w, DF_OP_SEND, o, o->src_rank);
			d = add(w, o->reduce ? DF_OP_RECV_REDUCE_COPY : DF_OP_RECV, o, o->dst_rank);
			w->node[s].send_x = w->node[d].recv_x = k;
			w->xfer[k] = (struct df_lxfer){s, d, NONE, 0};
		} else {
			s = d = add(w, o->reduce ? DF_OP_REDUCE : DF_OP_COPY, o, o->dst_rank);
		}
		w->node[s].src_buf = o->src_buf;
		w->node[s].src = o->src;
		reads(w, s, o->src_buf, o->src);
		w->node[d].dst_buf = o->dst_buf;
		w->node[d].dst = o->dst;
		if (o->reduce) {
			if (remote) {
				w->node[d].src_buf = o->dst_buf;
				w->node[d].src = o->dst;
			}
			reads(w, d, o->dst_buf, o->dst);
		}
		writes(w, d, o->dst_buf, o->dst);
	}
	/* The final contents of input and output belong to the caller. */
	for (int r = 0; r < w->l->o.nranks; r++) {
		for (int b = 0; b < w->l->nr_bufs; b++) {
			uint32_t at = w->place_base[r * DF_LANG_BUFS + b];

			for (uint32_t i = 0; i < w->l->places[r * DF_LANG_BUFS + b].nr; i++) {
				struct df_lplace *p = &w->place[at + i];

				if (b <= DF_OUT && p->writer != NONE)
					w->node[p->writer].store = 1;
				forget(w, p);
			}
		}
	}
}

/* ---- fusion ------------------------------------------------------------------------------ */

struct df_lconn *df_lower_find_conn(struct df_lower *w, int src, int dst, int channel)
{
	uint64_t key = (uint64_t)(uint32_t)src << 32 | (uint32_t)dst;
	uint32_t i = (uint32_t)df_hash_u64(key, (uint64_t)channel) & w->conn_mask;

	for (; w->conn_map[i]; i = (i + 1) & w->conn_mask) {
		struct df_lconn *c = &w->conn[w->conn_map[i] - 1];

		if (c->src == src && c->dst == dst && c->channel == channel)
			return c;
	}
	w->conn[w->nr_conns] = (struct df_lconn){
		src, dst, channel, 0, 0, NONE, NONE, NONE, NONE}; /* lower_init() made room */
	w->conn_map[i] = ++w->nr_conns;
	return &w->conn[w->nr_conns - 1];
}

uint32_t df_lower_conn_of(struct df_lower *w, uint32_t x)
{
	const struct df_lnode *s = &w->node[w->xfer[x].from], *d = &w->node[w->xfer[x].to];
	struct df_lconn *c = df_lower_find_conn(w, s->rank, d->rank, s->channel);

	return (uint32_t)(c - w->conn);
}

/*
 * One peer per direction: whether this receive and this send may share a block. If so, they do from
 * now on.
 */
static int may_pair(struct df_lower *w, uint32_t in_x, uint32_t out_x)
{
	uint32_t in, out;

	if (w->l->o.blocks == DF_BLOCKS_CHANNEL)
		return 1;
	in = df_lower_conn_of(w, in_x);
	out = df_lower_conn_of(w, out_x);
	if (w->conn[in].mate_in == out)
		return 1;
	if (w->conn[in].mate_in != NONE || w->conn[out].mate_out != NONE)
		return 0;
	w->conn[in].mate_in = out;
	w->conn[out].mate_out = in;
	return 1;
}

static void fuse(struct df_lower *w, uint32_t *best)
{
	/*
	 * Find the send that each receive may be fused with: it reads only the result of the
	 * receive, and of several such sends it is on the longest path to the end.
	 */
	for (uint32_t s = 0; s < w->nr; s++) {
		struct df_lnode *x = &w->node[s], *b;
		uint32_t r;

		if (x->op != DF_OP_SEND || !x->preds || w->edge[x->preds - 1].next)
			continue;
		r = w->edge[x->preds - 1].node;
		b = &w->node[r];
		if ((b->op != DF_OP_RECV && b->op != DF_OP_RECV_REDUCE_COPY) || b->cnt != x->cnt ||
		    b->dst_buf != x->src_buf || b->dst != x->src || b->channel != x->channel)
			continue;
		if (best[r] == NONE || w->node[best[r]].height < x->height)
			best[r] = s;
	}
	for (uint32_t r = 0; r < w->nr; r++) {
		struct df_lnode *b = &w->node[r], *x;

		if (best[r] == NONE)
			continue;
		x = &w->node[best[r]];
		if (!may_pair(w, b->recv_x, x->send_x))
			continue;
		b->op = b->op == DF_OP_RECV ? DF_OP_RECV_COPY_SEND
			: b->store	    ? DF_OP_RECV_REDUCE_COPY_SEND
					    : DF_OP_RECV_REDUCE_SEND;
		b->send_x = x->send_x;
		w->xfer[x->send_x].from = r;
		x->dead = 1;
		x->into = r;
	}
}

uint32_t df_lower_rep(const struct df_lower *w, uint32_t n)
{
	return w->node[n].into == NONE ? n : w->node[n].into;
}

/* Calls f(w, n, before) for each node that must precede n, after fusion. */
static void each_pred(struct df_lower *w, uint32_t n,
		      void (*f)(struct df_lower *w, uint32_t n, uint32_t before))
{
	const struct df_lnode *x = &w->node[n];

	for (uint32_t e = x->preds; e; e = w->edge[e - 1].next) {
		uint32_t p = df_lower_rep(w, w->edge[e - 1].node);

		if (p != n)
			f(w, n, p);
	}
	if (x->recv_x != NONE)
		f(w, n, df_lower_rep(w, w->xfer[x->recv_x].from));
}

static void raise_height(struct df_lower *w, uint32_t n, uint32_t before)
{
	if (w->node[before].height < w->node[n].height + 1)
		w->node[before].height = w->node[n].height + 1;
}

static void raise_depth(struct df_lower *w, uint32_t n, uint32_t before)
{
	if (w->node[n].depth < w->node[before].depth + 1)
		w->node[n].depth = w->node[before].depth + 1;
}

static void add_succ(struct df_lower *w, uint32_t n, uint32_t before)
{
	w->succ[before] = push_edge(w, n, w->succ[before]);
	w->node[n].waits++;
}

/* ---- emission ---------------------------------------------------------------------------- */

/* Removes dependencies that an earlier step of the same block implies. */
static int prune(struct df_prank *r)
{
	/* By block: 1 + the step that was waited for. */
	uint32_t *seen = calloc(r->nr_blocks + 1ull, sizeof(*seen));

	if (!seen)
		return -ENOMEM;
	for (uint32_t b = 0; b < r->nr_blocks; b++) {
		memset(seen, 0, r->nr_blocks * sizeof(*seen));
		for (uint32_t i = 0; i < r->block[b].nr; i++) {
			uint32_t *at = &r->block[b].inst[i].deps;

			while (*at) {
				const struct df_pdep *d = &r->dep[*at - 1];

				if (d->inst + 1 <= seen[d->block]) {
					*at = d->next;
					continue;
				}
				seen[d->block] = d->inst + 1;
				at = &r->dep[*at - 1].next;
			}
		}
	}
	free(seen);
	return 0;
}

static int emit(struct df_lower *w, const uint32_t *order, uint32_t nr)
{
	struct df_lang *l = w->l;
	uint32_t *base = calloc((size_t)l->o.nranks * DF_LANG_BUFS, sizeof(*base));

	if (!base)
		return -ENOMEM;
	for (int r = 0; r < l->o.nranks; r++) {
		uint32_t at = 0;

		for (int b = 2; b < l->nr_bufs; b++) {
			base[r * DF_LANG_BUFS + b] = at;
			at += l->places[r * DF_LANG_BUFS + b].nr;
		}
		w->plan->rank[r].scratch_chunks = at;
	}
	for (uint32_t i = 0; i < nr; i++) {
		struct df_lnode *x = &w->node[order[i]];
		struct df_prank *r = &w->plan->rank[x->rank];
		const struct df_op_info *op = &df_op_info[x->op];
		struct df_pinst in = {.op = x->op,
				      .cnt = (uint16_t)x->cnt,
				      .line = x->line,
				      .send_peer = -1,
				      .recv_peer = -1};

		if (op->reads) {
			in.src_buf = (uint8_t)(x->src_buf > DF_OUT ? DF_BUF_SCRATCH : x->src_buf);
			in.src = x->src + base[x->rank * DF_LANG_BUFS + x->src_buf];
		}
		if (op->writes) {
			in.dst_buf = (uint8_t)(x->dst_buf > DF_OUT ? DF_BUF_SCRATCH : x->dst_buf);
			in.dst = x->dst + base[x->rank * DF_LANG_BUFS + x->dst_buf];
		}
		if (x->send_x != NONE) {
			const struct df_lconn *c = &w->conn[w->xfer[x->send_x].conn];

			in.send_peer = c->dst;
			in.send_chan = (uint32_t)c->channel;
		}
		if (x->recv_x != NONE) {
			const struct df_lconn *c = &w->conn[w->xfer[x->recv_x].conn];

			in.recv_peer = c->src;
			in.recv_chan = (uint32_t)c->channel;
		}
		if (!df_prank_add(r, x->block, &in))
			break;
		x->at = r->block[x->block].nr - 1;
	}
	free(base);
	for (uint32_t i = 0; i < nr; i++) {
		struct df_lnode *x = &w->node[order[i]];

		for (uint32_t e = x->preds; e; e = w->edge[e - 1].next) {
			const struct df_lnode *p = &w->node[df_lower_rep(w, w->edge[e - 1].node)];

			if (p->block != x->block)
				df_prank_dep(&w->plan->rank[x->rank], x->block, x->at, p->block,
					     p->at);
		}
	}
	for (int r = 0; r < l->o.nranks; r++) {
		int rc = prune(&w->plan->rank[r]);

		if (rc)
			return rc;
	}
	return 0;
}

/* ---- all together ------------------------------------------------------------------------ */

static int lower_init(struct df_lower *w)
{
	struct df_lang *l = w->l;
	uint32_t places = 0;

	w->place_base = calloc((size_t)l->o.nranks * DF_LANG_BUFS, sizeof(*w->place_base));
	if (!w->place_base)
		return -ENOMEM;
	for (int i = 0; i < l->o.nranks * DF_LANG_BUFS; i++) {
		w->place_base[i] = places;
		places += l->places[i].nr;
	}
	for (w->conn_mask = 63; w->conn_mask < 4 * l->nr_ops; w->conn_mask = 2 * w->conn_mask + 1)
		;
	w->node = calloc(2ull * l->nr_ops + 1, sizeof(*w->node));
	w->xfer = calloc(l->nr_ops + 1ull, sizeof(*w->xfer));
	w->conn = calloc(2ull * l->nr_ops + 1, sizeof(*w->conn));
	w->conn_map = calloc(w->conn_mask + 1ull, sizeof(*w->conn_map));
	w->heap = calloc(2ull * l->nr_ops + 1, sizeof(*w->heap));
	w->succ = calloc(2ull * l->nr_ops + 1, sizeof(*w->succ));
	w->place = calloc(places + 1ull, sizeof(*w->place));
	if (!w->node || !w->xfer || !w->conn || !w->conn_map || !w->heap || !w->succ || !w->place)
		return -ENOMEM;
	for (uint32_t i = 0; i < places; i++)
		w->place[i].writer = NONE;
	for (uint32_t k = 0; k < l->nr_ops; k++) {
		if (l->op[k].channel >= w->next_channel)
			w->next_channel = l->op[k].channel + 1;
	}
	return 0;
}

static int lower_all(struct df_lower *w)
{
	uint32_t *order = NULL, *best, nr = 0;
	int rc = lower_init(w);

	if (rc)
		return rc;
	make_nodes(w);
	if (w->rc)
		return w->rc;
	order = calloc(w->nr + 1ull, sizeof(*order));
	best = malloc((w->nr + 1ull) * sizeof(*best));
	if (!order || !best) {
		free(order);
		free(best);
		return -ENOMEM;
	}
	memset(best, 0xff, (w->nr + 1ull) * sizeof(*best));
	for (uint32_t n = w->nr; n-- > 0;)
		each_pred(w, n, raise_height);
	for (uint32_t k = 0; k < w->l->nr_ops; k++) {
		if (w->l->op[k].src_rank != w->l->op[k].dst_rank)
			df_lower_conn_of(w, k);
	}
	if (!w->l->o.no_fuse)
		fuse(w, best);
	free(best);
	if (w->l->o.blocks == DF_BLOCKS_PEER)
		df_lower_pair_rest(w);
	for (uint32_t n = 0; n < w->nr; n++) {
		if (w->node[n].dead)
			continue;
		each_pred(w, n, raise_depth);
		each_pred(w, n, add_succ);
	}
	rc = w->rc ? w->rc : df_lower_schedule(w, order, &nr);
	if (!rc)
		rc = (w->l->o.blocks == DF_BLOCKS_PEER ? df_lower_blocks_by_peer
						       : df_lower_blocks_by_channel)(w, order, nr);
	if (!rc)
		rc = emit(w, order, nr);
	free(order);
	return rc;
}

int df_lang_compile(struct df_lang *l, struct df_plan **out, struct df_expects *expect,
		    struct df_perr *err)
{
	struct df_lower w = {.l = l, .err = err};
	struct df_program **raw = NULL;
	struct df_plan *plan;
	int rc = l->rc;

	if (rc) {
		if (err && rc == -EPROTO)
			*err = l->err;
		return rc;
	}
	plan = df_plan_create(l->o.kind, l->o.nranks, l->o.root, l->o.chunks);
	if (!plan)
		return -ENOMEM;
	memcpy(plan->name, l->name, sizeof(plan->name));
	plan->proto = l->o.proto;
	plan->in_place = l->o.in_place ? 1 : 0;
	w.plan = plan;
	rc = lower_all(&w);
	free(w.node);
	free(w.edge);
	free(w.place);
	free(w.place_base);
	free(w.xfer);
	free(w.conn);
	free(w.conn_map);
	free(w.heap);
	free(w.succ);
	if (!rc && l->o.instances > 1)
		rc = df_plan_replicate(plan, l->o.instances, &l->expect);
	if (!rc)
		rc = df_plan_finish(plan, 0, &raw);
	if (!rc)
		rc = df_canon(plan, raw, NULL, err);
	df_programs_free(raw, l->o.nranks);
	if (rc) {
		df_plan_destroy(plan);
		return rc;
	}
	plan->in_place = l->o.in_place ? 2 : 0;
	if (expect) {
		*expect = l->expect;
		memset(&l->expect, 0, sizeof(l->expect));
	}
	*out = plan;
	return 0;
}
