/* What the replays share: spans of an outcome, and the iteration of a scheme without late updates. */
#ifndef DF_TRACE_PLAN_PLAN_OUTCOME_H
#define DF_TRACE_PLAN_PLAN_OUTCOME_H

#include "trace/plan/plan_sched.h"

/* Sent in one iteration, on the first link; times from the start of the backward pass. */
struct df_plan_sent {
	int bucket;
	int64_t begin_ns, end_ns;
};

/* 0 or -ENOMEM. */
int df_plan_span_add(struct df_plan_outcome *o, struct df_plan_span s);
/* The passes of one iteration, the backward pass as a whole beginning there: spans only. 0 or -ENOMEM. */
int df_plan_span_backward(struct df_plan_outcome *o, const struct df_plan_profile *p, int64_t at);

/*
 * The end of an iteration, from the start of its backward pass to the start of the next, when bucket i is computed in
 * the next forward pass only after done[i]. Each iteration is then like the last: the forward pass of the last bucket
 * comes after everything that was sent.
 */
int64_t df_plan_forward_end(const struct df_plan_profile *p, const int64_t *done);
/* Fills an outcome. 0 or -ENOMEM, nothing then needs to be freed. */
int df_plan_synchronous(const struct df_plan_profile *p, const char *name, const int64_t *done,
			const struct df_plan_sent *sent, size_t nr, struct df_plan_outcome *out);

#endif
