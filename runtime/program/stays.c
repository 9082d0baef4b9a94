/*
 * Finds the instructions whose sent data stays in place until it has been received (DF_INST_STAYS).
 * A receiver that can access the sender's memory may then read it there. The decision is made for
 * one rank's program alone and holds for a call in place and one that is not: input and output
 * chunks that can be the same memory (df_coll_alias()) count as one.
 *
 * The data stays in place if
 *
 * - nothing writes it afterwards: all its writers are instructions of the same block, none of them
 *   after the send; or
 * - it is this rank's contribution to an AllReduce, no other instruction reads it, and the only
 *   instruction that overwrites it stores a result from a peer. The result is made of all
 *   contributions, so the rank that sent it has this one.
 *
 * DF_INST_KNOWN: the collective is an AllReduce, and the sending block ends by receiving a result.
 * All ranks contribute to that result, so all have begun and wait only for each other's slices. So
 * the block may wait at its end until its slices have been received.
 *
 * Different loops access different elements. Scratch memory is excluded, because another block of
 * the rank may have begun the next instance.
 */
#include <stdlib.h>

#include "runtime/base/err.h"
#include "runtime/program/plan.h"
#include "runtime/program/program.h"
#include "runtime/program/program_names.h"

/* The accesses of one rank's program to one chunk. */
struct place {
	uint32_t writes, reads;
	uint32_t block, last; /* block and index of the last write */
	uint8_t many;	      /* several blocks write it */
	uint8_t made;	      /* a writer does more than store a received result */
};

struct places {
	const struct df_program *p;
	const struct df_phead *head;
	struct place *v;
};

/*
 * Returns NULL for scratch memory, and for chunks outside of the buffers, which the verifier
 * refuses later.
 */
static struct place *place(const struct places *s, uint32_t buf, uint32_t chunk)
{
	const struct df_phead *h = s->head;
	int64_t in;

	if (buf == DF_BUF_IN)
		return chunk < s->p->in_chunks ? &s->v[chunk] : NULL;
	if (buf != DF_BUF_OUT || chunk >= s->p->out_chunks)
		return NULL;
	in = df_coll_alias(h->kind, h->root, h->rank, h->chunks, chunk);
	return &s->v[in >= 0 && in < s->p->in_chunks ? (uint64_t)in : s->p->in_chunks + chunk];
}

static void note(const struct places *s, uint32_t block, uint32_t i, const struct df_inst *in)
{
	const struct df_op_info *op = &df_op_info[in->op];

	for (uint32_t q = 0; q < in->cnt; q++) {
		struct place *src = op->reads ? place(s, in->src_buf, in->src + q) : NULL;
		struct place *dst = op->writes ? place(s, in->dst_buf, in->dst + q) : NULL;

		/* With src == dst, a copy does nothing. */
		if (in->op == DF_OP_COPY && src == dst)
			continue;
		if (src)
			src->reads++;
		if (!dst)
			continue;
		dst->reads += in->op == DF_OP_REDUCE;
		dst->many |= dst->writes && dst->block != block;
		dst->made |= in->op != DF_OP_RECV && in->op != DF_OP_RECV_COPY_SEND;
		dst->writes++;
		dst->block = block;
		dst->last = i;
	}
}

/*
 * Whether the block ends by receiving chunks that nothing writes afterwards, and no instruction of
 * this rank waits for that. Then the block may wait until its slices have been received.
 */
static int ends_receiving(const struct places *s, uint32_t block)
{
	const struct df_prog_block *pb = df_prog_block(s->p, block);
	const struct df_inst *last = df_prog_inst(s->p, pb->first_inst + pb->nr_inst - 1);

	if (last->recv_conn == DF_NO_CONN || last->send_conn != DF_NO_CONN)
		return 0;
	for (uint32_t i = 0; i < s->p->nr_deps; i++) {
		const struct df_dep *dep = df_prog_dep(s->p, i);

		if (dep->block == block && dep->inst == pb->nr_inst - 1)
			return 0;
	}
	for (uint32_t q = 0; q < last->cnt; q++) {
		const struct place *at = place(s, last->dst_buf, last->dst + q);

		if (!at || at->many || at->block != block || at->last != pb->nr_inst - 1)
			return 0;
	}
	return 1;
}

/* Returns DF_INST_STAYS, with DF_INST_KNOWN if the block can wait at its end. */
static uint8_t stays(const struct places *s, uint32_t block, uint32_t i, const struct df_inst *in)
{
	int own = in->op == DF_OP_SEND;
	uint32_t buf = own ? in->src_buf : in->dst_buf;
	const struct place *at;
	uint8_t flags = DF_INST_STAYS;

	if (in->send_conn == DF_NO_CONN || (!own && !df_op_info[in->op].writes) || in->cnt != 1)
		return 0;
	at = place(s, buf, own ? in->src : in->dst);
	if (!at)
		return 0;
	if (s->head->kind == DF_COLL_ALLREDUCE && ends_receiving(s, block))
		flags |= DF_INST_KNOWN;
	if (!at->writes || (!at->many && at->block == block && at->last <= i))
		return flags;
	if (s->head->kind != DF_COLL_ALLREDUCE || !own || buf != DF_BUF_IN || at->reads != 1 ||
	    at->writes != 1 || at->made)
		return 0;
	return flags;
}

int df_program_stays(struct df_program *p, const struct df_phead *head)
{
	struct places s = {.p = p, .head = head};

	/* Only the author knows which chunks are the same memory. */
	if (head->kind == DF_COLL_CUSTOM)
		return 0;
	s.v = calloc((size_t)p->in_chunks + p->out_chunks + 1, sizeof(*s.v));
	if (!s.v)
		return -ENOMEM;
	for (uint32_t pass = 0; pass < 2; pass++) {
		for (uint32_t b = 0; b < p->nr_blocks; b++) {
			const struct df_prog_block *pb = df_prog_block(p, b);

			for (uint32_t i = 0; i < pb->nr_inst; i++) {
				struct df_inst *in = (struct df_inst *)(uintptr_t)df_prog_inst(
					p, pb->first_inst + i);

				if (!pass)
					note(&s, b, i, in);
				else
					in->flags |= stays(&s, b, i, in);
			}
		}
	}
	free(s.v);
	return 0;
}
