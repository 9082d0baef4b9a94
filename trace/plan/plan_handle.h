/*
 * DeFT's state machine behind a handle and plain arrays: the interface of libdfplan.so for other
 * languages, mainly interpose/python. With equal arguments every process gets equal results. A
 * handle belongs to one thread at a time.
 */
#ifndef DF_TRACE_PLAN_PLAN_HANDLE_H
#define DF_TRACE_PLAN_PLAN_HANDLE_H

#include <stdint.h>

#define DF_PLAN_API __attribute__((visibility("default")))

struct df_plan_handle;

/*
 * A network of nr buckets, input side first, with times in nanoseconds. Returns NULL, and the
 * reason in err, if no plan is possible. slowdown: of each link, 1 for the first. startup_ns: of
 * each link, the part of a transfer's time that does not depend on its size; NULL: none.
 */
DF_PLAN_API struct df_plan_handle *df_plan_open(int nr, const int64_t *forward_ns,
						const int64_t *backward_ns, const int64_t *comm_ns,
						const int64_t *params, int nr_links,
						const double *slowdown, const int64_t *startup_ns,
						char *err, int64_t size);
DF_PLAN_API void df_plan_close(struct df_plan_handle *h);

/*
 * The items of the partition: which part, of how many, of which bucket. Returns their number;
 * arrays may be NULL.
 */
DF_PLAN_API int df_plan_items(const struct df_plan_handle *h, int32_t *bucket, int32_t *part,
			      int32_t *parts);

/*
 * The next iteration: the items that are sent, in order, with link and stage (enum df_plan_stage).
 * The arrays have room for twice the items. Returns the number. *merged: iterations of the update
 * at its end, 0: no update; *formed: whether FUTURE becomes CURRENT.
 */
DF_PLAN_API int df_plan_next(struct df_plan_handle *h, int32_t *item, int32_t *link, int32_t *stage,
			     int32_t *merged, int32_t *formed);

/* Returns to the initial state: no gradient waits to be sent. */
DF_PLAN_API void df_plan_restart(struct df_plan_handle *h);

/*
 * The preserver: if the expected loss with merged updates differs from that without by more than
 * epsilon, stages get more time for communication from now on. fall, noise: mean and standard
 * deviation of the decrease of the loss by one update. *ratio: of the two losses, after that.
 * Returns how often stages were extended until now, at most 10 times; or -errno.
 */
DF_PLAN_API int df_plan_preserved(struct df_plan_handle *h, double loss, double fall, double noise,
				  double epsilon, double *ratio);

/*
 * Without late updates: order[] is the order in which whole buckets are sent if each layer's
 * forward computation waits for its own bucket. Returns the milliseconds of an iteration, or a
 * negative number if there is no memory.
 */
DF_PLAN_API double df_plan_order(const struct df_plan_handle *h, int32_t *order);

/* The expected milliseconds of an iteration, under DDP and with DeFT; 0 without memory. */
DF_PLAN_API double df_plan_expect_ddp(const struct df_plan_handle *h);
DF_PLAN_API double df_plan_expect(const struct df_plan_handle *h);

#endif
