/*
 * From a recorded data-parallel job to a profile: its buckets, and how long they take to compute and to send.
 */
#ifndef DF_TRACE_PLAN_PLAN_OBSERVE_H
#define DF_TRACE_PLAN_PLAN_OBSERVE_H

#include "trace/plan/plan_sched.h"

/* What a trace can't tell. */
struct df_plan_hints {
	int nr_buckets;	      /* all-reduces of an iteration; 0: from the period of their sizes */
	double forward_share; /* of computation; 0: a third */
};

struct df_plan_observed {
	int nr_ranks, nr_iterations; /* that the figures are medians of */
	int nr_small;	     /* all-reduces of an iteration that are too small for a bucket */
	double iteration_ns; /* as measured */
};

/*
 * Of the communicator on which most bytes were reduced. Buckets and the first link are filled in, the rest of *p is
 * kept. 0; -EINVAL, -EPROTO, -ENOMEM or what opening said, and the reason in err.
 */
int df_plan_observe(struct df_plan_profile *p, struct df_plan_observed *o, char **paths, size_t nr,
		    const struct df_plan_hints *hints, char *err, size_t size);

#endif
