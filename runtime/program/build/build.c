/*
 * df_program_build() validates a request, chooses an algorithm, runs its builder for one rank and
 * finishes the program. choose() computes everything that the ranks must agree on, from the request
 * without its rank. Reentrant; no state.
 */
#include <string.h>

#include "runtime/base/err.h"
#include "runtime/program/build/build.h"
#include "runtime/program/program_names.h"

#define KIB 1024ull
#define MIB (1024 * KIB)

/* Number of bytes that justifies another block. */
#define PART_BYTES (256 * KIB)

/* ---- emission -------------------------------------------------------------------------------- */

static uint8_t raw(const struct df_emit *e, struct df_at at)
{
	return e->reduces && at.buf == DF_BUF_IN ? DF_INST_RAW_SRC : 0;
}

static void emit(struct df_emit *e, int op, const struct df_at *src, const struct df_at *dst,
		 int from, int to, int flags)
{
	struct df_pinst inst = {.op = (uint8_t)op,
				.cnt = (uint16_t)e->cnt,
				.send_peer = to,
				.recv_peer = from,
				.send_chan = e->chan,
				.recv_chan = e->chan,
				.flags = (uint8_t)flags};
	const struct df_at *at[2] = {src, dst};

	for (int k = 0; k < 2; k++) {
		if (at[k] && at[k]->buf == DF_BUF_SCRATCH &&
		    at[k]->chunk + e->cnt > e->r->scratch_chunks)
			e->r->scratch_chunks = at[k]->chunk + e->cnt;
	}
	if (src) {
		inst.src_buf = src->buf;
		inst.src = src->chunk;
		inst.flags |= raw(e, *src);
	}
	if (dst) {
		inst.dst_buf = dst->buf;
		inst.dst = dst->chunk;
	}
	df_prank_add(e->r, e->block, &inst);
}

void df_emit_send(struct df_emit *e, int to, struct df_at src)
{
	emit(e, DF_OP_SEND, &src, NULL, -1, to, 0);
}

void df_emit_recv(struct df_emit *e, int from, struct df_at dst)
{
	emit(e, DF_OP_RECV, NULL, &dst, from, -1, 0);
}

void df_emit_copy(struct df_emit *e, struct df_at src, struct df_at dst, int flags)
{
	emit(e, DF_OP_COPY, &src, &dst, -1, -1, flags);
}

void df_emit_reduce(struct df_emit *e, struct df_at src, struct df_at dst, int flags)
{
	emit(e, DF_OP_REDUCE, &src, &dst, -1, -1, flags);
}

void df_emit_rrc(struct df_emit *e, int from, struct df_at src, struct df_at dst, int flags)
{
	emit(e, DF_OP_RECV_REDUCE_COPY, &src, &dst, from, -1, flags);
}

void df_emit_rcs(struct df_emit *e, int from, struct df_at dst, int to)
{
	emit(e, DF_OP_RECV_COPY_SEND, NULL, &dst, from, to, 0);
}

void df_emit_rrs(struct df_emit *e, int from, struct df_at src, int to, int flags)
{
	emit(e, DF_OP_RECV_REDUCE_SEND, &src, NULL, from, to, flags);
}

void df_emit_rrcs(struct df_emit *e, int from, struct df_at src, struct df_at dst, int to,
		  int flags)
{
	emit(e, DF_OP_RECV_REDUCE_COPY_SEND, &src, &dst, from, to, flags);
}

/* ---- choice ------------------------------------------------------------------------------ */

int df_sends_all(const struct df_prog_req *q, enum df_algo algo)
{
	uint64_t s = df_coll_bytes(q), n = (uint64_t)q->nranks, nodes = (uint64_t)q->nodes;
	uint64_t most;

	if (q->kind != DF_COLL_ALLREDUCE)
		return 0;
	if (algo == DF_ALGO_ALLPAIRS)
		return s * (n - 1) <= 256 * KIB || q->count < n;
	if (algo != DF_ALGO_HIER || !df_algo_has(q, algo))
		return 0;
	/*
	 * One hop fewer between nodes, and messages between leaders only, are worth the bytes that
	 * pass through one rank.
	 */
	most = q->layout ? (uint64_t)q->layout->most_ranks : n / nodes;
	return s * (most - 1 + nodes - 1) <= 256 * KIB;
}

/*
 * Where ranks share few cores, a small instruction costs more than its bytes, and every hop of a
 * chain waits until another thread is scheduled: fewest steps win. For large messages the fused
 * ring wins, because it moves the fewest bytes.
 */
static enum df_algo auto_algo(const struct df_prog_req *q, uint64_t s)
{
	uint64_t peers = (uint64_t)q->nranks - 1;
	int n = q->nranks;

	if (df_algo_has(q, DF_ALGO_HIER))
		return DF_ALGO_HIER;
	switch (q->kind) {
	case DF_COLL_ALLREDUCE:
		if (n > 16)
			return s <= MIB ? DF_ALGO_TREE : DF_ALGO_RING;
		return s * peers <= 256 * KIB || s <= 4 * MIB ? DF_ALGO_ALLPAIRS : DF_ALGO_RING;
	case DF_COLL_BROADCAST:
	case DF_COLL_REDUCE:
		if (n == 2 || (n <= 8 && s <= 64 * KIB))
			return DF_ALGO_ALLPAIRS;
		return s <= MIB ? DF_ALGO_TREE : DF_ALGO_RING;
	case DF_COLL_ALLGATHER:
	case DF_COLL_REDUCESCATTER:
		return n == 2 || (n <= 32 && s <= MIB) ? DF_ALGO_ALLPAIRS : DF_ALGO_RING;
	default:
		return DF_ALGO_ALLPAIRS;
	}
}

/* For programs over nodes: sets the number of chunks, and the width of any rank's widest step. */
static void choose_hier(const struct df_prog_req *q, const struct df_layout *l, struct df_choice *c)
{
	if (q->kind == DF_COLL_ALLREDUCE)
		c->chunks *= (uint32_t)l->nodes * l->lanes;
	if (q->kind == DF_COLL_BROADCAST || q->kind == DF_COLL_REDUCE)
		c->chunks *= l->lanes;
	if (q->kind == DF_COLL_ALLTOALL)
		c->max_cnt = (uint32_t)l->most_ranks;
	else if (q->kind == DF_COLL_ALLREDUCE && l->most_lanes == 1 && l->most_ranks > 1)
		c->max_cnt = (uint32_t)l->nodes;
	else if (q->kind <= DF_COLL_REDUCE)
		c->max_cnt = l->most_lanes;
}

static void choose(const struct df_prog_req *q, const struct df_layout *layout, struct df_choice *c)
{
	uint64_t s = df_coll_bytes(q);
	uint32_t blocks = q->max_blocks ? q->max_blocks : 1, n = (uint32_t)q->nranks;
	uint64_t parts = s / PART_BYTES;

	c->algo = q->algo;
	if (c->algo == DF_ALGO_AUTO || !df_algo_has(q, c->algo))
		c->algo = auto_algo(q, s);
	c->direct = df_sends_all(q, c->algo);
	if (c->direct || q->kind >= DF_COLL_SEND ||
	    (q->kind == DF_COLL_ALLTOALL && c->algo == DF_ALGO_HIER))
		parts = 1;
	if (q->kind == DF_COLL_ALLREDUCE && c->algo == DF_ALGO_TREE && blocks > 1)
		blocks /= 2; /* up and down have separate blocks */
	if (parts > blocks)
		parts = blocks;
	c->nb = parts ? (uint32_t)parts : 1;
	c->chunks = c->nb;
	if (q->kind == DF_COLL_ALLREDUCE && n > 1 &&
	    (c->algo == DF_ALGO_RING || (c->algo == DF_ALGO_ALLPAIRS && !c->direct)))
		c->chunks *= n;
	c->max_cnt = 0;
	if (c->algo == DF_ALGO_HIER && layout && !c->direct)
		choose_hier(q, layout, c);
	c->min_slots = 1;
	if (c->algo == DF_ALGO_RING &&
	    ((q->kind == DF_COLL_ALLREDUCE && n > 1) ||
	     ((q->kind == DF_COLL_ALLGATHER || q->kind == DF_COLL_REDUCESCATTER) && n > 2)))
		c->min_slots = 2;
	switch (q->kind) {
	case DF_COLL_ALLREDUCE:
		c->name = c->algo == DF_ALGO_RING   ? "ring"
			  : c->algo == DF_ALGO_TREE ? "tree"
			  : c->direct		    ? "one-step"
						    : "all-pairs";
		break;
	case DF_COLL_BROADCAST:
	case DF_COLL_REDUCE:
		c->name = c->algo == DF_ALGO_RING   ? "chain"
			  : c->algo == DF_ALGO_TREE ? "tree"
						    : "direct";
		break;
	case DF_COLL_ALLGATHER:
	case DF_COLL_REDUCESCATTER:
		c->name = c->algo == DF_ALGO_RING ? "ring" : "all-pairs";
		break;
	default:
		c->name = "direct";
		break;
	}
	if (c->algo == DF_ALGO_HIER)
		c->name = q->kind == DF_COLL_ALLTOALL ? "two-step"
			  : c->direct		      ? "leaders"
						      : "hierarchical";
	if (n == 1)
		c->name = "copy";
}

static uint64_t choice_hash(const struct df_prog_req *q, const struct df_choice *c)
{
	enum df_coll_kind kind = q->kind == DF_COLL_RECV ? DF_COLL_SEND : q->kind;
	uint64_t h = df_hash_u64(DF_ABI_VERSION, 0x6275696c74ull ^ (uint64_t)kind << 48);
	int split = c->algo == DF_ALGO_TREE && q->max_blocks > 1;
	int root = df_coll_rooted(kind) ? q->root : 0;

	h = df_hash_u64(h, (uint64_t)q->nranks << 32 | (uint32_t)root);
	if (c->algo == DF_ALGO_HIER || (c->algo == DF_ALGO_RING && q->nodes > 1))
		h = df_hash_u64(h, q->layout ? q->layout->hash : (uint64_t)q->nodes);
	h = df_hash_u64(h, (uint64_t)c->algo << 32 | (uint32_t)c->direct << 1 | (uint32_t)split);
	return df_hash_u64(h, (uint64_t)c->nb << 32 | c->chunks);
}

/* ---- build ------------------------------------------------------------------------------- */

static int req_check(const struct df_prog_req *q)
{
	if ((unsigned)q->kind >= DF_COLL_CUSTOM || q->nranks < 1 || q->rank < 0 ||
	    q->rank >= q->nranks || !q->elem_bytes || (unsigned)q->algo >= DF_ALGO_NR)
		return -EINVAL;
	if (q->count > UINT64_MAX / q->elem_bytes / (uint64_t)q->nranks)
		return -EINVAL;
	if (q->layout && (q->layout->nranks != q->nranks || q->layout->nodes != q->nodes))
		return -EINVAL;
	if (df_coll_rooted(q->kind))
		return q->root < 0 || q->root >= q->nranks ? -EINVAL : 0;
	if (q->kind == DF_COLL_SEND || q->kind == DF_COLL_RECV)
		return q->peer < 0 || q->peer >= q->nranks || q->peer == q->rank ? -EINVAL : 0;
	return 0;
}

static void build_part(struct df_emit *e, const struct df_prog_req *q, const struct df_choice *c,
		       uint32_t p)
{
	int ring = c->algo == DF_ALGO_RING, tree = c->algo == DF_ALGO_TREE,
	    hier = c->algo == DF_ALGO_HIER;

	switch (q->kind) {
	case DF_COLL_ALLREDUCE:
		if (tree) {
			int split = q->max_blocks > 1;

			e->block = split ? 2 * p : p;
			df_build_ar_tree(e, p, p & 1, split);
		} else if (hier) {
			(c->direct ? df_build_ar_leaders : df_build_ar_hier)(e, p);
		} else if (ring) {
			df_build_ar_ring(e, p);
		} else if (c->direct) {
			df_build_ar_onestep(e, p);
		} else {
			df_build_ar_allpairs(e, p);
		}
		break;
	case DF_COLL_BROADCAST:
		(ring	? df_build_bcast_chain
		 : hier ? df_build_bcast_hier
		 : tree ? df_build_bcast_tree
			: df_build_bcast_direct)(e, p);
		break;
	case DF_COLL_REDUCE:
		(ring	? df_build_reduce_chain
		 : hier ? df_build_reduce_hier
		 : tree ? df_build_reduce_tree
			: df_build_reduce_direct)(e, p);
		break;
	case DF_COLL_ALLGATHER:
		(ring ? df_build_ag_ring : hier ? df_build_ag_hier : df_build_ag_allpairs)(e, p);
		break;
	case DF_COLL_REDUCESCATTER:
		(ring ? df_build_rs_ring : hier ? df_build_rs_hier : df_build_rs_allpairs)(e, p);
		break;
	case DF_COLL_ALLTOALL:
		(hier ? df_build_alltoall_hier : df_build_alltoall)(e, p);
		break;
	case DF_COLL_GATHER:
		df_build_gather(e, p);
		break;
	case DF_COLL_SCATTER:
		df_build_scatter(e, p);
		break;
	case DF_COLL_SEND:
		df_emit_send(e, q->peer, DF_AT_IN(p));
		break;
	case DF_COLL_RECV:
		df_emit_recv(e, q->peer, DF_AT_OUT(p));
		break;
	case DF_COLL_SENDRECV_SELF:
	case DF_COLL_CUSTOM:
	case DF_COLL_NR:
		break;
	}
}

int df_program_build(const struct df_prog_req *req, struct df_program **out)
{
	struct df_choice c;
	struct df_prank r;
	struct df_phead head = {.nranks = 0};
	struct df_emit e = {.n = 0};
	const struct df_layout *layout = req->layout;
	struct df_layout *equal = NULL;
	char name[48];
	int rc = req_check(req);

	if (rc)
		return rc;
	if (!layout && df_algo_has(req, DF_ALGO_HIER)) {
		rc = df_layout_create_equal(req->nranks, req->nodes, &equal);
		if (rc)
			return rc;
		layout = equal;
	}
	choose(req, layout, &c);
	df_prank_init(&r);
	r.in_chunks = df_coll_chunks(req->kind, req->nranks, req->root, req->rank, c.chunks, 0);
	r.out_chunks = df_coll_chunks(req->kind, req->nranks, req->root, req->rank, c.chunks, 1);
	e = (struct df_emit){.r = &r,
			     .n = req->nranks,
			     .rank = req->rank,
			     .root = req->root,
			     .layout = layout,
			     .nb = c.nb,
			     .cnt = 1,
			     .reduces = df_coll_reduces(req->kind)};
	for (uint32_t p = 0; p < c.nb; p++) {
		e.block = e.chan = p;
		if (req->nranks == 1 || req->kind == DF_COLL_SENDRECV_SELF)
			df_emit_copy(&e, DF_AT_IN(p), DF_AT_OUT(p), e.reduces ? DF_INST_FINAL : 0);
		else
			build_part(&e, req, &c, p);
	}
	strcpy(name, df_coll_kind_name(req->kind));
	strcat(name, " ");
	strcat(name, c.name);
	head = (struct df_phead){.name = name,
				 .nranks = req->nranks,
				 .rank = req->rank,
				 .chunks = c.chunks,
				 .min_slots = c.min_slots,
				 .max_cnt = c.max_cnt,
				 .hash = choice_hash(req, &c),
				 .kind = req->kind,
				 .root = req->root};
	rc = df_prank_finish(&r, &head, out);
	df_prank_fini(&r);
	df_layout_free(equal);
	return rc;
}
