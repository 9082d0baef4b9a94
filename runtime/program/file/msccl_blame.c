/*
 * Refused programs that have a known defect of the public MSCCL compiler. The step that the
 * compiler got wrong explains more than the chunk that is wrong as a result. Pure functions.
 */
#include <stdio.h>
#include <string.h>

#include "runtime/program/file/msccl.h"
#include "runtime/program/program_names.h"

/* Returns the n-th send of a connection, or NULL. */
static const struct df_pinst *send_of(const struct df_plan *plan, int from, int to, uint32_t chan,
				      uint32_t n)
{
	const struct df_prank *r = &plan->rank[from];

	for (uint32_t b = 0; b < r->nr_blocks; b++) {
		for (uint32_t i = 0; i < r->block[b].nr; i++) {
			const struct df_pinst *p = &r->block[b].inst[i];

			if (p->send_peer == to && p->send_chan == chan && !n--)
				return p;
		}
	}
	return NULL;
}

/*
 * Whether the step shows the defect: the compiler writes the sender's location of an operand into a
 * step that reads that location on its own rank. Such a step reduces with the sender's chunk number
 * and stores the result elsewhere.
 */
static int has_senders_source(const struct df_plan *plan, int rank, uint32_t b, uint32_t i)
{
	const struct df_pinst *in = &plan->rank[rank].block[b].inst[i], *s;
	const struct df_op_info *op = &df_op_info[in->op];
	uint32_t n = 0;

	if (!op->recvs || !op->reduces || !op->reads || !op->writes || in->src == in->dst)
		return 0;
	for (uint32_t k = 0; k < i; k++) {
		const struct df_pinst *p = &plan->rank[rank].block[b].inst[k];

		n += p->recv_peer == in->recv_peer && p->recv_chan == in->recv_chan;
	}
	s = send_of(plan, in->recv_peer, rank, in->recv_chan, n);
	return s && df_op_info[s->op].reads && s->src_buf == in->src_buf && s->src == in->src;
}

void df_msccl_blame(const struct df_plan *plan, struct df_perr *err)
{
	char was[sizeof(err->text)];

	for (int r = 0; r < plan->nranks; r++) {
		for (uint32_t b = 0; b < plan->rank[r].nr_blocks; b++) {
			for (uint32_t i = 0; i < plan->rank[r].block[b].nr; i++) {
				if (!has_senders_source(plan, r, b, i))
					continue;
				snprintf(was, sizeof(was), "rank %d: %.150s", err->rank, err->text);
				df_perr_clear(err);
				df_perr_set(err, (int)plan->rank[r].block[b].inst[i].line, r,
					    (int)b, (int)i,
					    "its source is the sender's location of the operand, a "
					    "known defect of the MSCCL compiler; so %s",
					    was);
				return;
			}
		}
	}
}
