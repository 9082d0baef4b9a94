/* Copies a whole plan into instances over parts of the chunks. */
#include <stdlib.h>

#include "runtime/base/err.h"
#include "runtime/program/lang/lang_int.h"
#include "runtime/program/program_names.h"

struct rep {
	const struct df_plan *plan;
	uint32_t k, chunks, channels;
};

/* Maps chunk c of instance t: part p of each count becomes parts t * chunks + p of k * chunks. */
static uint32_t map_chunk(const struct rep *r, int rank, int buf, uint32_t c, uint32_t t)
{
	if (buf == DF_BUF_SCRATCH)
		return t * r->plan->rank[rank].scratch_chunks + c;
	return c / r->chunks * (r->chunks * r->k) + t * r->chunks + c % r->chunks;
}

static int contiguous(const struct rep *r, const struct df_pinst *in)
{
	const struct df_op_info *op = &df_op_info[in->op];

	if (op->reads && in->src_buf != DF_BUF_SCRATCH &&
	    in->src / r->chunks != (in->src + in->cnt - 1) / r->chunks)
		return 0;
	return !(op->writes && in->dst_buf != DF_BUF_SCRATCH &&
		 in->dst / r->chunks != (in->dst + in->cnt - 1) / r->chunks);
}

static int replicate_rank(const struct rep *r, int rank, int split, struct df_prank *to)
{
	const struct df_prank *from = &r->plan->rank[rank];

	for (uint32_t t = 0; t < r->k; t++) {
		for (uint32_t b = 0; b < from->nr_blocks; b++) {
			uint32_t nb = b * r->k + t;

			if (!df_prank_block(to, nb))
				return -ENOMEM;
			for (uint32_t i = 0; i < from->block[b].nr; i++) {
				struct df_pinst in = from->block[b].inst[i];
				const struct df_op_info *op = &df_op_info[in.op];
				uint32_t parts = split && in.cnt > 1 ? in.cnt : 1;

				for (uint32_t j = 0; j < parts; j++) {
					struct df_pinst x = in;

					x.deps = 0;
					if (parts > 1)
						x.cnt = 1;
					if (op->reads)
						x.src = map_chunk(r, rank, in.src_buf, in.src + j,
								  t);
					if (op->writes)
						x.dst = map_chunk(r, rank, in.dst_buf, in.dst + j,
								  t);
					if (op->sends)
						x.send_chan += t * r->channels;
					if (op->recvs)
						x.recv_chan += t * r->channels;
					if (!df_prank_add(to, nb, &x))
						return -ENOMEM;
				}
			}
		}
		for (uint32_t b = 0; b < from->nr_blocks; b++) {
			uint32_t at = 0;

			for (uint32_t i = 0; i < from->block[b].nr; i++) {
				const struct df_pinst *in = &from->block[b].inst[i];

				for (uint32_t d = in->deps; d; d = from->dep[d - 1].next) {
					uint32_t o = from->dep[d - 1].block,
						 n = from->dep[d - 1].inst, end = 0;

					for (uint32_t j = 0; j <= n; j++)
						end += split && from->block[o].inst[j].cnt > 1
							       ? from->block[o].inst[j].cnt
							       : 1;
					df_prank_dep(to, b * r->k + t, at, o * r->k + t, end - 1);
				}
				at += split && in->cnt > 1 ? in->cnt : 1;
			}
		}
	}
	to->in_chunks = from->in_chunks * r->k;
	to->out_chunks = from->out_chunks * r->k;
	to->scratch_chunks = from->scratch_chunks * r->k;
	return to->err;
}

int df_plan_replicate(struct df_plan *plan, uint32_t k, struct df_expects *expect)
{
	struct rep r = {.plan = plan, .k = k, .chunks = plan->chunks, .channels = 1};
	struct df_expects x = {0};
	struct df_prank *to;
	int split = 0, rc = 0;

	if (k > 4096 || (uint64_t)plan->chunks * k * (uint64_t)plan->nranks > 1u << 24)
		return -EINVAL;
	for (int n = 0; n < plan->nranks; n++) {
		for (uint32_t b = 0; b < plan->rank[n].nr_blocks; b++) {
			for (uint32_t i = 0; i < plan->rank[n].block[b].nr; i++) {
				const struct df_pinst *in = &plan->rank[n].block[b].inst[i];

				if (in->send_peer >= 0 && in->send_chan >= r.channels)
					r.channels = in->send_chan + 1;
				if (in->recv_peer >= 0 && in->recv_chan >= r.channels)
					r.channels = in->recv_chan + 1;
				split |= !contiguous(&r, in);
			}
		}
	}
	to = calloc((size_t)plan->nranks, sizeof(*to));
	if (!to)
		return -ENOMEM;
	for (int n = 0; !rc && n < plan->nranks; n++)
		rc = replicate_rank(&r, n, split, &to[n]);
	for (uint32_t i = 0; !rc && expect && i < expect->nr; i++) {
		for (uint32_t t = 0; !rc && t < k; t++) {
			const struct df_expect *e = &expect->e[i];

			for (uint32_t j = 0; !rc && j < e->nr; j++) {
				const struct df_contrib *c = &expect->c[e->first + j];

				rc = df_expects_add(
					&x, e->rank, map_chunk(&r, 0, DF_BUF_OUT, e->chunk, t),
					c->rank, map_chunk(&r, 0, DF_BUF_IN, c->chunk, t));
			}
		}
	}
	for (int n = 0; n < plan->nranks; n++) {
		struct df_prank old = plan->rank[n];

		if (!rc) {
			plan->rank[n] = to[n];
			to[n] = old;
		}
		df_prank_fini(&to[n]);
	}
	free(to);
	if (rc) {
		df_expects_fini(&x);
		return rc;
	}
	if (expect) {
		df_expects_fini(expect);
		*expect = x;
	}
	plan->chunks *= k;
	return 0;
}
