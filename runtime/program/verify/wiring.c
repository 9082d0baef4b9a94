/*
 * Pairs the connections and makes the range checks that all later steps of the verifier rely on. No
 * state beyond the graph.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/err.h"
#include "runtime/program/program_names.h"
#include "runtime/program/verify/wiring.h"

int df_rank_line(const struct df_plan *plan, int rank)
{
	return plan && plan->rank[rank].line ? (int)plan->rank[rank].line : -1;
}

int df_plan_line(const struct df_plan *plan, int rank, uint32_t block, uint32_t step)
{
	uint32_t line;

	if (!plan || block >= plan->rank[rank].nr_blocks ||
	    step >= plan->rank[rank].block[block].nr)
		return -1;
	line = plan->rank[rank].block[block].inst[step].line;
	return line ? (int)line : -1;
}

static int check_inst(const struct df_program *p, const struct df_prog_block *blk, uint32_t b,
		      uint32_t i, const struct df_plan *plan, struct df_perr *err)
{
	const struct df_inst *in = df_prog_inst(p, blk->first_inst + i);
	const uint32_t size[3] = {p->in_chunks, p->out_chunks, p->scratch_chunks};
	static const char *const name[3] = {"input", "output", "scratch"};
	int line = df_plan_line(plan, p->rank, b, i);
	const struct df_op_info *op;

#define BAD(...) return df_perr_set(err, line, p->rank, (int)b, (int)i, __VA_ARGS__)
	if (in->op >= DF_OP_NR)
		BAD("unknown opcode %u", in->op);
	op = &df_op_info[in->op];
	if (in->op != DF_OP_NOP && !in->cnt)
		BAD("%s of no chunks", op->text);
	if (op->sends != (in->send_conn != DF_NO_CONN) ||
	    (op->sends && in->send_conn >= blk->nr_send))
		BAD("%s %s", op->text, op->sends ? "without a peer to send to" : "must not send");
	if (op->recvs != (in->recv_conn != DF_NO_CONN) ||
	    (op->recvs && in->recv_conn >= blk->nr_recv))
		BAD("%s %s", op->text,
		    op->recvs ? "without a peer to receive from" : "must not receive");
	if (op->reads && (in->src_buf > DF_BUF_SCRATCH || in->src > size[in->src_buf] ||
			  in->cnt > size[in->src_buf] - in->src))
		BAD("%s reads %s chunks %u..%u, the buffer has %u", op->text,
		    in->src_buf > DF_BUF_SCRATCH ? "unknown" : name[in->src_buf], in->src,
		    in->src + in->cnt - 1, in->src_buf > DF_BUF_SCRATCH ? 0 : size[in->src_buf]);
	if (op->writes && (in->dst_buf > DF_BUF_SCRATCH || in->dst > size[in->dst_buf] ||
			   in->cnt > size[in->dst_buf] - in->dst))
		BAD("%s writes %s chunks %u..%u, the buffer has %u", op->text,
		    in->dst_buf > DF_BUF_SCRATCH ? "unknown" : name[in->dst_buf], in->dst,
		    in->dst + in->cnt - 1, in->dst_buf > DF_BUF_SCRATCH ? 0 : size[in->dst_buf]);
	if (in->nr_deps > p->nr_deps || in->first_dep > p->nr_deps - in->nr_deps)
		BAD("dependencies %u..%u of %u", in->first_dep, in->first_dep + in->nr_deps,
		    p->nr_deps);
	for (uint32_t d = 0; d < in->nr_deps; d++) {
		const struct df_dep *dep = df_prog_dep(p, in->first_dep + d);

		if (dep->block >= p->nr_blocks ||
		    dep->inst >= df_prog_block(p, dep->block)->nr_inst)
			BAD("depends on block %u step %u, which does not exist", dep->block,
			    dep->inst);
		if (dep->block == b && dep->inst >= i)
			BAD("depends on step %u of its own block, which is later", dep->inst);
	}
#undef BAD
	return 0;
}

static int check_program(const struct df_program *p, int nranks, int rank,
			 const struct df_plan *plan, struct df_perr *err)
{
	if (!p || p->version != DF_ABI_VERSION)
		return df_perr_set(err, -1, rank, -1, -1, "no program, or one of another version");
	if (p->nranks != nranks || p->rank != rank)
		return df_perr_set(err, -1, rank, -1, -1, "is the program of rank %d of %d",
				   p->rank, p->nranks);
	if (!p->chunks || !p->max_cnt)
		return df_perr_set(err, -1, rank, -1, -1, "divides the buffer into 0 chunks");
	for (uint32_t b = 0; b < p->nr_blocks; b++) {
		const struct df_prog_block *blk = df_prog_block(p, b);

		for (uint32_t i = 0; i < blk->nr_inst; i++) {
			int rc = check_inst(p, blk, b, i, plan, err);

			if (rc)
				return rc;
		}
		for (uint32_t k = 0; k < blk->nr_send + blk->nr_recv; k++) {
			uint32_t ix = k < blk->nr_send ? blk->first_send + k
						       : blk->first_recv + k - blk->nr_send;
			int peer = df_prog_conn(p, ix)->peer;

			if (peer < 0 || peer >= nranks || peer == rank)
				return df_perr_set(err, df_plan_line(plan, rank, b, 0), rank,
						   (int)b, -1, "has rank %d as peer", peer);
		}
	}
	return 0;
}

/* Returns the first step of a block on one of its connections, for messages. */
static int first_use(const struct df_program *p, uint32_t b, int sends, uint32_t conn)
{
	const struct df_prog_block *blk = df_prog_block(p, b);

	for (uint32_t i = 0; i < blk->nr_inst; i++) {
		const struct df_inst *in = df_prog_inst(p, blk->first_inst + i);

		if ((sends ? in->send_conn : in->recv_conn) == conn)
			return (int)i;
	}
	return -1;
}

struct end {
	int32_t src, dst;
	uint32_t channel, thread, local;
	int32_t recv;
};

static int end_cmp(const void *x, const void *y)
{
	const struct end *a = x, *b = y;

	if (a->src != b->src)
		return a->src < b->src ? -1 : 1;
	if (a->dst != b->dst)
		return a->dst < b->dst ? -1 : 1;
	if (a->channel != b->channel)
		return a->channel < b->channel ? -1 : 1;
	if (a->recv != b->recv)
		return a->recv - b->recv;
	return a->thread < b->thread ? -1 : a->thread > b->thread;
}

static int end_bad(const struct df_pgraph *g, const struct end *e, const struct df_plan *plan,
		   struct df_perr *err, const char *what)
{
	const struct df_gthread *t = &g->thread[e->thread];
	int step = first_use(g->progs[t->rank], t->block, !e->recv, e->local);

	return df_perr_set(err,
			   df_plan_line(plan, t->rank, t->block, (uint32_t)(step < 0 ? 0 : step)),
			   t->rank, (int)t->block, step, "connection %d -> %d channel %u %s",
			   e->src, e->dst, e->channel, what);
}

static int pair(struct df_pgraph *g, struct end *end, uint32_t nr, const struct df_plan *plan,
		struct df_perr *err)
{
	uint32_t *store = g->ends;

	for (uint32_t i = 0; i < nr; i += 2) {
		struct df_gconn *c = &g->conn[g->nr_conns];
		const struct end *s = &end[i], *r = &end[i + 1];
		const struct df_program *sp, *rp;
		uint32_t nr_s, nr_r;
		char text[96];

		if (s->recv)
			return end_bad(g, s, plan, err,
				       "is received from, but no block sends on it");
		if (i + 1 == nr || r->src != s->src || r->dst != s->dst || r->channel != s->channel)
			return end_bad(g, s, plan, err,
				       "is sent on, but no block receives from it");
		if (!r->recv)
			return end_bad(g, r, plan, err, "has two blocks that send");
		if (i + 2 < nr && end[i + 2].src == s->src && end[i + 2].dst == s->dst &&
		    end[i + 2].channel == s->channel)
			return end_bad(g, &end[i + 2], plan, err, "has two blocks that receive");
		sp = g->progs[s->src];
		rp = g->progs[s->dst];
		nr_s = df_prog_conn(sp, df_prog_block(sp, g->thread[s->thread].block)->first_send +
						s->local)
			       ->per_loop;
		nr_r = df_prog_conn(rp, df_prog_block(rp, g->thread[r->thread].block)->first_recv +
						r->local)
			       ->per_loop;
		if (nr_s != nr_r) {
			snprintf(text, sizeof(text), "carries %u slices, but %u are received", nr_s,
				 nr_r);
			return end_bad(g, nr_s > nr_r ? s : r, plan, err, text);
		}
		*c = (struct df_gconn){s->src, s->dst, s->channel, s->thread, nr_s, g->nr_slices};
		/* The connections of one thread are stored together: sends, then receives. */
		store[(g->thread[s->thread].send - store) + s->local] = g->nr_conns;
		store[(g->thread[r->thread].recv - store) + r->local] = g->nr_conns;
		g->nr_slices += nr_s;
		g->nr_conns++;
	}
	return 0;
}

int df_pgraph_init(struct df_pgraph *g, struct df_program *const *progs, int nranks,
		   const struct df_plan *plan, struct df_perr *err)
{
	uint32_t nr_ends = 0, at = 0, e = 0;
	struct end *end = NULL;
	int rc;

	*g = (struct df_pgraph){.progs = progs, .nranks = nranks};
	for (int r = 0; r < nranks; r++) {
		rc = check_program(progs[r], nranks, r, plan, err);
		if (rc)
			return rc;
		/* Tiles depend on these, so they must be equal on all ranks. */
		if (progs[r]->chunks != progs[0]->chunks || progs[r]->max_cnt != progs[0]->max_cnt)
			return df_perr_set(err, df_rank_line(plan, r), r, -1, -1,
					   "has %u chunks and steps of up to %u, rank 0 %u and %u",
					   progs[r]->chunks, progs[r]->max_cnt, progs[0]->chunks,
					   progs[0]->max_cnt);
		g->nr_threads += progs[r]->nr_blocks;
		for (uint32_t b = 0; b < progs[r]->nr_blocks; b++)
			nr_ends += df_prog_block(progs[r], b)->nr_send +
				   df_prog_block(progs[r], b)->nr_recv;
	}
	g->first_thread = calloc((size_t)nranks + 1, sizeof(*g->first_thread));
	g->thread = calloc(g->nr_threads + 1, sizeof(*g->thread));
	g->conn = calloc(nr_ends / 2 + 1, sizeof(*g->conn));
	g->ends = calloc(nr_ends + 1, sizeof(*g->ends));
	end = calloc(nr_ends + 1, sizeof(*end));
	rc = -ENOMEM;
	if (!g->first_thread || !g->thread || !g->conn || !g->ends || !end)
		goto out;
	for (int r = 0; r < nranks; r++) {
		const struct df_program *p = progs[r];

		for (uint32_t b = 0; b < p->nr_blocks; b++, at++) {
			const struct df_prog_block *blk = df_prog_block(p, b);
			struct df_gthread *t = &g->thread[at];

			t->rank = r;
			t->block = b;
			t->nr_inst = blk->nr_inst;
			t->inst = df_prog_inst(p, blk->first_inst);
			t->send = g->ends + e;
			t->recv = g->ends + e + blk->nr_send;
			for (uint32_t k = 0; k < blk->nr_send; k++) {
				const struct df_conn_spec *c = df_prog_conn(p, blk->first_send + k);

				end[e++] = (struct end){r, c->peer, c->channel, at, k, 0};
			}
			for (uint32_t k = 0; k < blk->nr_recv; k++) {
				const struct df_conn_spec *c = df_prog_conn(p, blk->first_recv + k);

				end[e++] = (struct end){c->peer, r, c->channel, at, k, 1};
			}
		}
		g->first_thread[r + 1] = at;
	}
	qsort(end, nr_ends, sizeof(*end), end_cmp);
	rc = pair(g, end, nr_ends, plan, err);
out:
	free(end);
	if (rc)
		df_pgraph_fini(g);
	return rc;
}

void df_pgraph_fini(struct df_pgraph *g)
{
	free(g->first_thread);
	free(g->thread);
	free(g->conn);
	free(g->ends);
	memset(g, 0, sizeof(*g));
}
