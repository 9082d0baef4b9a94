/*
 * Examines cycles of operations that all their ranks have issued, in different orders. Pure
 * functions on a result.
 */
#include "trace/judge/result.h"
#include "trace/judge/judge_int.h"
#include "trace/record/names.h"

static int same_inst(const struct df_uop *a, const struct df_uop *b)
{
	return a->gcomm == b->gcomm && a->l.index == b->l.index &&
	       (a->l.kind == DF_KIND_SEND || a->l.kind == DF_KIND_RECV) ==
		       (b->l.kind == DF_KIND_SEND || b->l.kind == DF_KIND_RECV);
}

/* Whether two ranks of the cycle have the same two operations in opposite orders. */
static int has_inversion(const struct df_check_result *r)
{
	const struct df_check_set *set = r->set;

	for (size_t i = 0; i < r->nr_involved; i++) {
		for (size_t k = 0; k < r->nr_involved; k++) {
			const struct df_uop *a = &set->ops[r->involved[i]],
					    *b = &set->ops[r->involved[k]];
			size_t both = 0;

			if (df_uop_same_rank(set, a, b))
				continue;
			for (size_t j = 0; j < r->nr_involved; j++) {
				const struct df_uop *x = &set->ops[r->involved[j]];

				for (size_t q = 0;
				     df_uop_same_rank(set, x, a) && q < r->nr_involved; q++) {
					const struct df_uop *y = &set->ops[r->involved[q]];

					both += df_uop_same_rank(set, y, b) && same_inst(x, y);
				}
			}
			if (both >= 2)
				return 1;
		}
	}
	return 0;
}

/*
 * Whether the step leads from an operation to an earlier one on the same rank, without other work
 * between them.
 */
static int is_queued(const struct df_check_result *r, const struct df_step *s)
{
	const struct df_node *from = &r->g.nodes[s->from], *to = &r->g.nodes[s->to];

	if (!df_node_is_op(from) || !df_node_is_op(to) || from->ref == to->ref)
		return 0;
	/*
	 * By dfshim's rules a stream waits for an operation only if other work lies between them.
	 */
	if (s->kinds & 1u << DF_E_STREAM && !df_trc_nccl(&r->set->traces[from->trace]))
		return 0;
	return df_uop_same_rank(r->set, &r->set->ops[from->ref], &r->set->ops[to->ref]);
}

/*
 * Whether the cycle consists of operations only, and at least one of them waits only because it was
 * issued after another one. Then no common order suits all ranks, although no two ranks have the
 * same two operations. If other work lies between all of them, the ranks may instead pass results
 * on in a cycle.
 */
static int has_no_common_order(const struct df_check_result *r)
{
	int queued = 0, any = 0;

	for (size_t i = 0; i < r->nr_steps; i++) {
		if (r->g.nodes[r->steps[i].from].kind == DF_N_THREAD ||
		    r->g.nodes[r->steps[i].from].kind == DF_N_NEXT)
			return 0;
		queued |= is_queued(r, &r->steps[i]);
	}
	for (size_t i = 0; i < r->nr_involved; i++)
		any |= r->set->ops[r->involved[i]].l.kind != DF_KIND_SEND &&
		       r->set->ops[r->involved[i]].l.kind != DF_KIND_RECV;
	return queued && any;
}

int df_orders_differ(const struct df_check_result *r)
{
	return has_inversion(r) || has_no_common_order(r);
}

int df_orders_overlap(const struct df_check_result *r)
{
	const struct df_check_set *set = r->set;
	struct df_range in[2], out[2];

	for (size_t i = 0; i < r->nr_involved; i++)
		for (size_t k = 0; k < i; k++) {
			const struct df_uop *a = &set->ops[r->involved[i]],
					    *b = &set->ops[r->involved[k]];

			if (!df_uop_same_rank(set, a, b))
				continue;
			df_uop_buffers(set, a, &in[0], &out[0]);
			df_uop_buffers(set, b, &in[1], &out[1]);
			if (!df_range_overlap(in[0], out[1]) && !df_range_overlap(out[0], in[1]) &&
			    !df_range_overlap(out[0], out[1]))
				return 0;
		}
	return 1;
}
