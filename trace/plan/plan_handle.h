/*
 * DeFT's state machine behind a handle and plain arrays: what libdfplan.so offers to other languages, interpose/python
 * first of all. From equal arguments every process gets equal answers. A handle belongs to one thread at a time.
 */
#ifndef DF_TRACE_PLAN_PLAN_HANDLE_H
#define DF_TRACE_PLAN_PLAN_HANDLE_H

#include <stdint.h>

#define DF_PLAN_API __attribute__((visibility("default")))

struct df_plan_handle;

/*
 * A network of nr buckets, input side first, with times in nanoseconds: NULL, and why in err, where there can be no plan.
 * slowdown: of each link, 1 for the first. startup_ns: of each link, part of a transfer's time whatever its size; NULL: none.
 */
DF_PLAN_API struct df_plan_handle *df_plan_open(int nr, const int64_t *forward_ns,
						const int64_t *backward_ns, const int64_t *comm_ns,
						const int64_t *params, int nr_links,
						const double *slowdown, const int64_t *startup_ns,
						char *err, int64_t size);
DF_PLAN_API void df_plan_close(struct df_plan_handle *h);

/* Items of the partition: which part of how many of which bucket. How many; arrays may be NULL. */
DF_PLAN_API int df_plan_items(const struct df_plan_handle *h, int32_t *bucket, int32_t *part,
			      int32_t *parts);

/*
 * The next iteration: what is sent, on which link, in which stage (enum df_plan_stage), in order. Arrays of twice the
 * items. How many; *merged: iterations of the update at its end, 0 none; *formed: 1 if FUTURE becomes CURRENT.
 */
DF_PLAN_API int df_plan_next(struct df_plan_handle *h, int32_t *item, int32_t *link, int32_t *stage,
			     int32_t *merged, int32_t *formed);

/* No gradient waits any more: the state is that of the beginning. */
DF_PLAN_API void df_plan_restart(struct df_plan_handle *h);

/*
 * The preserver: where the loss that it expects with merged updates differs from that without by more than epsilon,
 * stages get more time for communication from now on. fall, noise: mean and standard deviation of what one update takes
 * off the loss. *ratio: of the two losses, as it is now. How often stages got more so far, at most 10 times; or -errno.
 */
DF_PLAN_API int df_plan_preserved(struct df_plan_handle *h, double loss, double fall, double noise,
				  double epsilon, double *ratio);

/*
 * Without late updates: order[] is in which order whole buckets are sent where each layer's forward computation waits for
 * its own. Milliseconds of an iteration; below 0, out of memory.
 */
DF_PLAN_API double df_plan_order(const struct df_plan_handle *h, int32_t *order);

/* Milliseconds of an iteration as the planner expects them: under DDP, and now. */
DF_PLAN_API double df_plan_expect_ddp(const struct df_plan_handle *h);
DF_PLAN_API double df_plan_expect(const struct df_plan_handle *h);

#endif
