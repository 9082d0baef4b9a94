/*
 * Makes programs for one buffer right for two. In a program for in-place calls, input and output
 * are names of one location ("u", in the coordinates of the larger buffer). Executing the steps in
 * some legal order shows for each access whether the location was written before. If the program
 * has no races, that does not depend on the order.
 *
 *   never written before:  the caller's data, in the input
 *   written before:        the output; scratch if the collective gives this rank no output there
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/err.h"
#include "runtime/program/file/canon.h"
#include "runtime/program/program_names.h"
#include "runtime/program/verify/verify.h"
#include "runtime/program/verify/wiring.h"

#define NEED_SPLIT 1

struct place {
	uint8_t buf;
	uint32_t chunk;
};

struct canon {
	struct df_plan *plan;
	const struct df_pgraph *g;
	uint32_t *order, nr_order;
	uint8_t **touched;  /* by rank and location */
	uint32_t *scr_base; /* by rank: scratch chunks of the file */
	uint8_t *scr_used;
	uint32_t width; /* locations of a rank */
	int copy_first; /* first copy the caller's data into the output */
	int split;	/* one chunk per step */
	struct df_perr *err;
};

static int is_wide_out(enum df_coll_kind k)
{
	return k == DF_COLL_ALLGATHER || k == DF_COLL_GATHER;
}

static int is_wide_in(enum df_coll_kind k)
{
	return k == DF_COLL_REDUCESCATTER || k == DF_COLL_SCATTER;
}

uint32_t df_canon_unify(enum df_coll_kind kind, uint32_t chunks, int rank, int buf, uint32_t chunk)
{
	uint32_t own = (uint32_t)rank * chunks;

	if (is_wide_out(kind) && buf == DF_BUF_IN)
		return own + chunk;
	if (is_wide_in(kind) && buf == DF_BUF_OUT)
		return own + chunk;
	return chunk;
}

static uint32_t unify(const struct df_plan *p, int rank, int buf, uint32_t chunk)
{
	return df_canon_unify(p->kind, p->chunks, rank, buf, chunk);
}

/* Whether location u is in the output of this rank. Stores its chunk there in *chunk. */
static int in_output(const struct df_plan *p, int rank, uint32_t u, uint32_t *chunk)
{
	uint32_t own = (uint32_t)rank * p->chunks;

	*chunk = u;
	if (is_wide_in(p->kind)) {
		*chunk = u - own;
		return u >= own && u < own + p->chunks;
	}
	if (p->kind == DF_COLL_REDUCE || p->kind == DF_COLL_GATHER)
		return rank == p->root;
	return 1;
}

/* Whether location u is in the input of this rank. Stores its chunk there in *chunk. */
static int in_input(const struct df_plan *p, int rank, uint32_t u, uint32_t *chunk)
{
	uint32_t own = (uint32_t)rank * p->chunks;

	*chunk = u;
	if (is_wide_out(p->kind)) {
		*chunk = u - own;
		return u >= own && u < own + p->chunks;
	}
	if (p->kind == DF_COLL_BROADCAST || p->kind == DF_COLL_SCATTER)
		return rank == p->root;
	return 1;
}

static struct place place(struct canon *c, int rank, int buf, uint32_t chunk, int write,
			  uint32_t *loc)
{
	struct place p = {(uint8_t)buf, chunk};
	uint32_t u;

	*loc = UINT32_MAX;
	if (buf == DF_BUF_SCRATCH)
		return p;
	*loc = u = unify(c->plan, rank, buf, chunk);
	if (!write && !c->touched[rank][u] && in_input(c->plan, rank, u, &p.chunk)) {
		p.buf = DF_BUF_IN;
		return p;
	}
	p.buf = DF_BUF_OUT;
	if (in_output(c->plan, rank, u, &p.chunk))
		return p;
	c->scr_used[rank] = 1;
	p.buf = DF_BUF_SCRATCH;
	p.chunk = c->scr_base[rank] + u;
	return p;
}

/*
 * Finds the place of chunks [first, first + cnt). NEED_SPLIT: they are not contiguous in one
 * buffer.
 */
static int range(struct canon *c, int rank, int buf, uint32_t first, uint32_t cnt, int write,
		 struct place *out)
{
	for (uint32_t i = 0; i < cnt; i++) {
		uint32_t u;
		struct place p = place(c, rank, buf, first + i, write, &u);

		if (!i)
			*out = p;
		else if (p.buf != out->buf || p.chunk != out->chunk + i)
			return NEED_SPLIT;
	}
	return 0;
}

static void touch(struct canon *c, int rank, int buf, uint32_t first, uint32_t cnt)
{
	for (uint32_t i = 0; buf != DF_BUF_SCRATCH && i < cnt; i++)
		c->touched[rank][unify(c->plan, rank, buf, first + i)] = 1;
}

/* Emits the translation of one step of the file. */
static int rewrite(struct canon *c, struct df_prank *to, int rank, uint32_t b, struct df_pinst in)
{
	const struct df_op_info *op = &df_op_info[in.op];
	struct place s = {0}, d = {0}, r = {0};
	int sb = in.src_buf, db = in.dst_buf, rc = 0;
	uint32_t dst = in.dst;

	in.deps = 0;
	if (op->reads)
		rc = range(c, rank, sb, in.src, in.cnt, 0, &s);
	if (!rc && in.op == DF_OP_REDUCE)
		rc = range(c, rank, db, dst, in.cnt, 0, &r);
	if (!rc && op->writes)
		rc = range(c, rank, db, dst, in.cnt, 1, &d);
	if (rc)
		return rc;
	if (in.op == DF_OP_REDUCE && (r.buf != d.buf || r.chunk != d.chunk)) {
		/* The second operand is also the destination: copy it there first. */
		struct df_pinst copy = {.op = DF_OP_COPY,
					.cnt = in.cnt,
					.src_buf = r.buf,
					.src = r.chunk,
					.dst_buf = d.buf,
					.dst = d.chunk,
					.send_peer = -1,
					.recv_peer = -1,
					.line = in.line};

		if (!df_prank_add(to, b, &copy))
			return -ENOMEM;
	}
	if (op->reads) {
		in.src_buf = s.buf;
		in.src = s.chunk;
	}
	if (op->writes) {
		in.dst_buf = d.buf;
		in.dst = d.chunk;
		touch(c, rank, db, dst, in.cnt);
	}
	return df_prank_add(to, b, &in) ? 0 : -ENOMEM;
}

/*
 * In place, an output chunk that no step has written yet holds the caller's own data: copies it
 * there. *end: 1 + the last copy's step in block 0.
 */
static int copy_own(struct canon *c, struct df_prank *to, int rank, uint32_t *end)
{
	const struct df_plan *p = c->plan;
	uint32_t outs = df_coll_chunks(p->kind, p->nranks, p->root, rank, p->chunks, 1);
	struct df_pinst *last = NULL;

	for (uint32_t o = 0; o < outs; o++) {
		struct df_pinst in = {.op = DF_OP_COPY,
				      .cnt = 1,
				      .src_buf = DF_BUF_IN,
				      .dst_buf = DF_BUF_OUT,
				      .dst = o,
				      .send_peer = -1,
				      .recv_peer = -1,
				      .line = p->rank[rank].line};
		uint32_t u = unify(p, rank, DF_BUF_OUT, o);

		if (c->touched[rank][u] || !in_input(p, rank, u, &in.src)) {
			last = NULL;
			continue;
		}
		if (last && last->src + last->cnt == in.src && last->cnt < UINT16_MAX) {
			last->cnt++;
			c->touched[rank][u] |= (uint8_t)c->copy_first;
			continue;
		}
		last = df_prank_add(to, 0, &in);
		if (!last)
			return -ENOMEM;
		c->touched[rank][u] |= (uint8_t)c->copy_first;
	}
	*end = to->nr_blocks ? to->block[0].nr : 0;
	return 0;
}

static int convert(struct canon *c)
{
	const struct df_pgraph *g = c->g;
	struct df_plan *p = c->plan;
	struct df_prank *to = calloc((size_t)p->nranks, sizeof(*to));
	uint32_t **first = calloc(g->nr_threads + 1ull, sizeof(*first)), *pc, *copied, end;
	int rc = -ENOMEM;

	copied = calloc((size_t)p->nranks, sizeof(*copied));
	pc = calloc(g->nr_threads + 1ull, sizeof(*pc));
	if (!to || !first || !pc || !copied)
		goto out;
	for (int r = 0; r < p->nranks; r++) {
		memset(c->touched[r], 0, c->width);
		c->scr_used[r] = 0;
	}
	for (uint32_t t = 0; t < g->nr_threads; t++) {
		first[t] = calloc(g->thread[t].nr_inst + 1ull, sizeof(**first));
		if (!first[t] || !df_prank_block(&to[g->thread[t].rank], g->thread[t].block))
			goto out;
	}
	for (int r = 0; c->copy_first && r < p->nranks; r++) {
		uint32_t end;

		rc = copy_own(c, &to[r], r, &end);
		if (rc)
			goto out;
		copied[r] = end;
		if (g->first_thread[r] < g->first_thread[r + 1])
			first[g->first_thread[r]][0] = end;
	}
	for (uint32_t k = 0; k < c->nr_order; k++) {
		uint32_t t = c->order[k], i = pc[t]++;
		const struct df_gthread *th = &g->thread[t];
		const struct df_pinst *in = &p->rank[th->rank].block[th->block].inst[i];
		uint32_t parts = c->split && in->cnt > 1 ? in->cnt : 1;

		for (uint32_t j = 0; j < parts; j++) {
			struct df_pinst part = *in;

			if (parts > 1) {
				part.cnt = 1;
				part.src += df_op_info[in->op].reads ? j : 0;
				part.dst += df_op_info[in->op].writes ? j : 0;
			}
			rc = rewrite(c, &to[th->rank], th->rank, th->block, part);
			if (rc)
				goto out;
		}
		first[t][i + 1] = to[th->rank].block[th->block].nr;
	}
	for (uint32_t t = 0; t < g->nr_threads; t++) {
		const struct df_gthread *th = &g->thread[t];
		const struct df_prank *from = &p->rank[th->rank];

		if (copied[th->rank] && th->block && th->nr_inst)
			df_prank_dep(&to[th->rank], th->block, 0, 0, copied[th->rank] - 1);
		for (uint32_t i = 0; i < th->nr_inst; i++) {
			for (uint32_t d = from->block[th->block].inst[i].deps; d;
			     d = from->dep[d - 1].next) {
				uint32_t o = g->first_thread[th->rank] + from->dep[d - 1].block;

				df_prank_dep(&to[th->rank], th->block, first[t][i],
					     from->dep[d - 1].block,
					     first[o][from->dep[d - 1].inst + 1] - 1);
			}
		}
	}
	rc = 0;
	for (int r = 0; !rc && r < p->nranks; r++)
		rc = c->copy_first ? 0 : copy_own(c, &to[r], r, &end);
	for (int r = 0; !rc && r < p->nranks; r++) {
		to[r].scratch_chunks = c->scr_base[r] + (c->scr_used[r] ? c->width : 0);
		to[r].line = p->rank[r].line;
		rc = to[r].err;
	}
	if (rc)
		goto out;
	for (int r = 0; r < p->nranks; r++) {
		struct df_prank old = p->rank[r];

		p->rank[r] = to[r];
		to[r] = old;
	}
out:
	for (uint32_t t = 0; first && t < g->nr_threads; t++)
		free(first[t]);
	for (int r = 0; to && r < p->nranks; r++)
		df_prank_fini(&to[r]);
	free(first);
	free(copied);
	free(pc);
	free(to);
	return rc;
}

/*
 * Completes the partial order of a program that deadlocks arbitrarily; the verifier will refuse it.
 */
static int full_order(struct canon *c, uint32_t steps)
{
	uint32_t *pc = calloc(c->g->nr_threads + 1ull, sizeof(*pc));

	if (!pc)
		return -ENOMEM;
	for (uint32_t k = 0; k < c->nr_order; k++)
		pc[c->order[k]]++;
	for (uint32_t t = 0; c->nr_order < steps; t++) {
		while (pc[t]++ < c->g->thread[t].nr_inst)
			c->order[c->nr_order++] = t;
	}
	free(pc);
	return 0;
}

static int canon_in_place(struct df_plan *plan, const struct df_pgraph *g, uint32_t *split,
			  struct df_perr *err)
{
	struct canon c = {.plan = plan, .g = g, .err = err};
	uint32_t steps = 0;
	int rc = -ENOMEM;

	for (uint32_t t = 0; t < g->nr_threads; t++)
		steps += g->thread[t].nr_inst;
	c.width = plan->chunks *
		  (is_wide_in(plan->kind) || is_wide_out(plan->kind) ? (uint32_t)plan->nranks : 1);
	c.order = calloc(steps + 1ull, sizeof(*c.order));
	c.touched = calloc((size_t)plan->nranks, sizeof(*c.touched));
	c.scr_base = calloc((size_t)plan->nranks, sizeof(*c.scr_base));
	c.scr_used = calloc((size_t)plan->nranks, 1);
	if (!c.order || !c.touched || !c.scr_base || !c.scr_used)
		goto out;
	for (int r = 0; r < plan->nranks; r++) {
		uint32_t room = c.width;

		/* Refuse a file that names chunks beyond the collective's buffers. */
		for (int b = 0; b < 2; b++) {
			uint32_t chunks = b ? plan->rank[r].out_chunks : plan->rank[r].in_chunks;
			uint32_t end = chunks ? unify(plan, r, b, chunks - 1) + 1 : 0;

			if (end > room) {
				rc = df_perr_set(
					err, -1, r, -1, -1,
					"%s has %u chunks, more than the collective's buffer",
					b ? "output" : "input", chunks);
				goto out;
			}
		}
		c.touched[r] = calloc(room + 1ull, 1);
		if (!c.touched[r])
			goto out;
		c.scr_base[r] = plan->rank[r].scratch_chunks;
	}
	rc = df_pgraph_order(g, c.order, &c.nr_order);
	if (rc >= 0)
		rc = full_order(&c, steps);
	if (rc)
		goto out;
	rc = convert(&c);
	if (rc == NEED_SPLIT) {
		c.copy_first = 1;
		rc = convert(&c);
	}
	if (rc == NEED_SPLIT) {
		c.copy_first = 0;
		c.split = 1;
		rc = convert(&c);
	}
	if (!rc && split)
		*split = (uint32_t)c.split;
out:
	for (int r = 0; c.touched && r < plan->nranks; r++)
		free(c.touched[r]);
	free(c.touched);
	free(c.order);
	free(c.scr_base);
	free(c.scr_used);
	return rc;
}

int df_canon(struct df_plan *plan, struct df_program *const *progs, uint32_t *split,
	     struct df_perr *err)
{
	struct df_pgraph g;
	int rc = df_pgraph_init(&g, progs, plan->nranks, plan, err);

	if (rc)
		return rc;
	if (split)
		*split = 0;
	if (plan->in_place == 1 && plan->kind == DF_COLL_ALLTOALL)
		rc = df_perr_set(err, -1, -1, -1, -1, "AlltoAll in place does not exist in NCCL");
	else if (plan->in_place == 1 && plan->kind != DF_COLL_CUSTOM)
		rc = canon_in_place(plan, &g, split, err);
	df_pgraph_fini(&g);
	for (int r = 0; !rc && plan->kind != DF_COLL_CUSTOM && r < plan->nranks; r++) {
		uint32_t in =
			df_coll_chunks(plan->kind, plan->nranks, plan->root, r, plan->chunks, 0);
		uint32_t out =
			df_coll_chunks(plan->kind, plan->nranks, plan->root, r, plan->chunks, 1);

		plan->rank[r].in_chunks = in;
		plan->rank[r].out_chunks = out;
	}
	return rc;
}

/*
 * Adds a last step to blocks that share scratch with other blocks of their rank. It waits until
 * those no longer use it, so that no instance begins while the one before still uses the scratch.
 */
static int add_fences(struct df_plan *plan)
{
	for (int k = 0; k < plan->nranks; k++) {
		struct df_prank *r = &plan->rank[k];
		uint32_t n = r->nr_blocks, nr_s = r->scratch_chunks;
		uint32_t *last = calloc(n + 1ull,
					sizeof(*last)); /* 1 + last step that uses shared scratch */
		uint32_t *owner =
			calloc(nr_s + 1ull, sizeof(*owner)); /* 1 + block, or UINT32_MAX: several */

		if (!last || !owner) {
			free(last);
			free(owner);
			return -ENOMEM;
		}
		for (int pass = 0; pass < 2; pass++) {
			for (uint32_t b = 0; b < n; b++) {
				for (uint32_t i = 0; i < r->block[b].nr; i++) {
					const struct df_pinst *in = &r->block[b].inst[i];
					const struct df_op_info *op = &df_op_info[in->op];

					for (uint32_t c = 0; c < in->cnt; c++) {
						uint32_t at[2] = {in->src + c, in->dst + c};
						int use[2] = {op->reads &&
								      in->src_buf == DF_BUF_SCRATCH,
							      op->writes && in->dst_buf ==
										    DF_BUF_SCRATCH};

						for (int o = 0; o < 2; o++) {
							if (!use[o] || at[o] >= nr_s)
								continue;
							if (!pass && owner[at[o]] &&
							    owner[at[o]] != b + 1)
								owner[at[o]] = UINT32_MAX;
							else if (!pass)
								owner[at[o]] = b + 1;
							else if (owner[at[o]] == UINT32_MAX)
								last[b] = i + 1;
						}
					}
				}
			}
		}
		for (uint32_t b = 0; b < n; b++) {
			struct df_pinst nop = {.op = DF_OP_NOP, .send_peer = -1, .recv_peer = -1};

			if (!last[b] || !df_prank_add(r, b, &nop))
				continue;
			for (uint32_t o = 0; o < n; o++) {
				if (o != b && last[o])
					df_prank_dep(r, b, r->block[b].nr - 1, o, last[o] - 1);
			}
		}
		free(last);
		free(owner);
		if (r->err)
			return r->err;
	}
	return 0;
}

/* Adds a copy of the first n input chunks at the head of block 0. Fails with -ENOMEM. */
static int copy_input(struct df_prank *r, uint32_t base, uint32_t n)
{
	/* One chunk a step, because the largest step decides how a message is divided. */
	struct df_pinst copy = {.op = DF_OP_COPY,
				.src_buf = DF_BUF_IN,
				.dst_buf = DF_BUF_SCRATCH,
				.cnt = 1,
				.send_peer = -1,
				.recv_peer = -1};
	struct df_pblock *first;

	for (uint32_t i = 0; i < n; i++) {
		if (!df_prank_add(r, 0, &copy))
			return r->err;
	}
	first = &r->block[0];
	memmove(first->inst + n, first->inst, (first->nr - n) * sizeof(*first->inst));
	for (uint32_t i = 0; i < n; i++) {
		copy.src = i;
		copy.dst = base + i;
		first->inst[i] = copy;
	}
	return 0;
}

static int reads_input(const struct df_pinst *in)
{
	return df_op_info[in->op].reads && in->src_buf == DF_BUF_IN;
}

static int writes_input(const struct df_pinst *in)
{
	return df_op_info[in->op].writes && in->dst_buf == DF_BUF_IN;
}

int df_canon_writes_input(const struct df_plan *plan)
{
	for (int k = 0; k < plan->nranks; k++) {
		const struct df_prank *r = &plan->rank[k];

		for (uint32_t b = 0; b < r->nr_blocks; b++)
			for (uint32_t i = 0; i < r->block[b].nr; i++)
				if (writes_input(&r->block[b].inst[i]))
					return 1;
	}
	return 0;
}

uint32_t df_canon_input_reach(const struct df_prank *r)
{
	uint32_t reach = r->in_chunks;

	for (uint32_t b = 0; b < r->nr_blocks; b++) {
		for (uint32_t i = 0; i < r->block[b].nr; i++) {
			const struct df_pinst *in = &r->block[b].inst[i];

			if (reads_input(in))
				reach = DF_MAX(reach, in->src + in->cnt);
			if (writes_input(in))
				reach = DF_MAX(reach, in->dst + in->cnt);
		}
	}
	return reach;
}

int df_canon_stage(struct df_plan *plan)
{
	for (int k = 0; k < plan->nranks; k++) {
		struct df_prank *r = &plan->rank[k];
		uint32_t base = r->scratch_chunks, reach = df_canon_input_reach(r),
			 n = r->in_chunks;

		/* If the collective gives this rank no input, there is nothing to copy. */
		if (plan->kind != DF_COLL_CUSTOM)
			n = DF_MIN(n, df_coll_chunks(plan->kind, plan->nranks, plan->root, k,
						     plan->chunks, 0));
		r->in_chunks = n;
		if (!r->nr_blocks || !reach)
			continue;
		for (uint32_t b = 0; b < r->nr_blocks; b++) {
			for (uint32_t i = 0; i < r->block[b].nr; i++) {
				struct df_pinst *in = &r->block[b].inst[i];

				if (reads_input(in)) {
					in->src_buf = DF_BUF_SCRATCH;
					in->src += base;
				}
				if (writes_input(in)) {
					in->dst_buf = DF_BUF_SCRATCH;
					in->dst += base;
				}
			}
		}
		for (uint32_t d = 0; d < r->nr_deps; d++)
			r->dep[d].inst += r->dep[d].block ? 0 : n;
		r->scratch_chunks += reach;
		if (!n)
			continue;
		if (copy_input(r, base, n))
			return r->err;
		/*
		 * The output may be the input: no step may write it before all of the input is
		 * copied.
		 */
		for (uint32_t b = 1; b < r->nr_blocks; b++) {
			if (r->block[b].nr)
				df_prank_dep(r, b, 0, 0, n - 1);
		}
		if (r->err)
			return r->err;
	}
	return 0;
}

int df_plan_prove(struct df_plan *plan, const struct df_expects *expect, struct df_program ***progs,
		  struct df_verify_out *out)
{
	struct df_verify_in in = {.kind = plan->kind,
				  .nranks = plan->nranks,
				  .root = plan->root,
				  .plan = plan,
				  .expect = expect && expect->nr ? expect : NULL,
				  .set_flags = 1};
	struct df_program **p;
	int rc;

	for (int fenced = 0;; fenced++) {
		rc = df_plan_finish(plan, 0, &p);
		if (rc)
			return rc;
		in.progs = p;
		rc = df_verify(&in, out);
		if (rc || out->back_to_back || fenced)
			break;
		df_programs_free(p, plan->nranks);
		rc = add_fences(plan);
		if (rc)
			return rc;
	}
	if (rc) {
		df_programs_free(p, plan->nranks);
		return rc;
	}
	*progs = p;
	return 0;
}
