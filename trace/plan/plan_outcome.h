/*
 * Shared by the replays: spans of an outcome, and the iteration of a scheme without late updates.
 */
#ifndef DF_TRACE_PLAN_PLAN_OUTCOME_H
#define DF_TRACE_PLAN_PLAN_OUTCOME_H

#include "trace/plan/plan_int.h"

/* One transfer of an iteration, on the first link; times from the start of the backward pass. */
struct df_plan_sent {
	int bucket;
	int64_t begin_ns, end_ns;
};

/*
 * The end of an iteration, from the start of its backward pass to the start of the next, if bucket
 * i is computed in the next forward pass only after done[i]. All iterations are then equal, because
 * the forward pass of the last bucket follows everything that was sent.
 */
int64_t df_plan_forward_end(const struct df_plan_profile *p, const int64_t *done);
/* Fills an outcome. Returns 0, or -ENOMEM with nothing to free. */
int df_plan_synchronous(const struct df_plan_profile *p, const char *name, const int64_t *done,
			const struct df_plan_sent *sent, size_t nr, struct df_plan_outcome *out);

#endif
