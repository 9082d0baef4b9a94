/*
 * Derives a profile from a recorded data-parallel job: its buckets, and their times of computation
 * and transfer.
 */
#ifndef DF_TRACE_PLAN_PLAN_OBSERVE_H
#define DF_TRACE_PLAN_PLAN_OBSERVE_H

#include "trace/plan/plan_int.h"

/* Values that a trace does not contain. */
struct df_plan_hints {
	int nr_buckets;	      /* all-reduces of an iteration; 0: from the period of their sizes */
	double forward_share; /* of computation; 0: a third */
};

struct df_plan_observed {
	int nr_ranks, nr_iterations; /* measured; the figures are medians over the iterations */
	int nr_small;	     /* all-reduces of an iteration that are too small for a bucket */
	double iteration_ns; /* measured */
};

/*
 * Uses the communicator with the most reduced bytes. Fills in buckets and the first link, and keeps
 * the rest of *p. Returns 0; or -EINVAL, -EPROTO, -ENOMEM or an error of opening, with the reason
 * in err.
 */
int df_plan_observe(struct df_plan_profile *p, struct df_plan_observed *o, char **paths, size_t nr,
		    const struct df_plan_hints *hints, char *err, size_t size);

#endif
