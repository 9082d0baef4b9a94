/*
 * Follows a ring while it is written: how long finished operations took, and since when others have
 * been unfinished. Each step reads only the records since the last step. If more than half the ring
 * was written since, it skips the older records; then some operations are not counted.
 *
 * Belongs to one thread. Zeroed at first.
 */
#ifndef DF_TRACE_READ_LIVE_FOLLOW_H
#define DF_TRACE_READ_LIVE_FOLLOW_H

#include <stddef.h>
#include <stdint.h>
#include "runtime/base/map.h"
#include "trace/record/format.h"

struct df_follow_op;

struct df_follow {
	struct df_map places; /* serial and communicator -> place in ops, plus 1; 0: it has ended */
	struct df_follow_op *ops;
	size_t nr_ops, cap_ops;
	struct df_map took;   /* communicator and kind -> ns from the begin to the end, summed */
	struct df_map ended;  /* communicator and kind -> number of these operations */
	struct df_map oldest; /* communicator -> time of issue of its oldest unfinished operation */
	uint64_t next;	      /* index of the next record */
};

/*
 * Reads the records since the last step. Returns 0, or -ENOMEM if it may have missed some.
 * Afterwards a value of `oldest` is 0 if the communicator has nothing unfinished.
 */
int df_follow_step(struct df_follow *f, const struct df_trace_header *ring);

#endif
