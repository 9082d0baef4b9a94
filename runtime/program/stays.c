/*
 * Which instructions send what stays where it is until it has been received (DF_INST_STAYS), so that a receiver that reaches the
 * sender's memory may read it there. Decided for one rank's program alone, for a call in place and one that is not: input and
 * output chunks that may be one (df_coll_alias()) count as one.
 *
 * It stays if
 *  - nothing writes it afterwards: all that writes it are instructions of the same block, up to the one that sends it; or
 *  - it is this rank's contribution to an AllReduce, nothing else reads that, and the only thing that ever overwrites it is a
 *    result that comes from a peer. The result is made of all contributions, so who sent it knows this one.
 *
 * DF_INST_KNOWN: it is an AllReduce, and the block that sends it ends with receiving a result. All ranks have a part in that, so they
 * have all begun, and wait for nothing but each other's slices: the block may end when what it has sent has been received.
 *
 * Loops touch different elements. Scratch is left out: another block of the rank may be at the next instance already.
 */
#include <stdlib.h>

#include "runtime/base/err.h"
#include "runtime/program/plan.h"

/* What one rank's program does with one chunk. */
struct place {
	uint32_t writes, reads;
	uint32_t block, last; /* of the writes: the last one's */
	uint8_t many;	      /* they are of several blocks */
	uint8_t made;	      /* one of them is more than a result put down */
};

struct places {
	const struct df_program *p;
	const struct df_phead *head;
	struct place *v;
};

/* NULL: scratch, or outside of the buffers, which the verifier refuses later. */
static struct place *place(const struct places *s, uint32_t buf, uint32_t chunk)
{
	const struct df_phead *h = s->head;
	int64_t in;

	if (buf == DF_BUF_IN)
		return chunk < s->p->in_chunks ? &s->v[chunk] : NULL;
	if (buf != DF_BUF_OUT || chunk >= s->p->out_chunks)
		return NULL;
	in = df_coll_alias(h->kind, h->nranks, h->root, h->rank, h->chunks, chunk);
	return &s->v[in >= 0 && in < s->p->in_chunks ? (uint64_t)in : s->p->in_chunks + chunk];
}

static void note(const struct places *s, uint32_t block, uint32_t i, const struct df_inst *in)
{
	const struct df_op_info *op = &df_op_info[in->op];

	for (uint32_t q = 0; q < in->cnt; q++) {
		struct place *src = op->reads ? place(s, in->src_buf, in->src + q) : NULL;
		struct place *dst = op->writes ? place(s, in->dst_buf, in->dst + q) : NULL;

		/* In place, such a copy does nothing. */
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
 * Does the block end with receiving what nothing writes any more, and does nothing of this rank wait for that? Then nobody needs it to
 * go on before what it has sent has been received.
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

/* DF_INST_STAYS, and DF_INST_KNOWN if the block can wait at its end. */
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

	/* In place or not: only its author knows what lies where. */
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
