/*
 * Follows a ring while it is written: how long operations took that have ended, and since when
 * others have not. Each step reads the records since the last one, so a step is cheap. If more than
 * half the ring was written since, the older records are skipped: durations are of the operations
 * that were seen.
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
 * Reads what was written since the last step. Returns 0 or -ENOMEM; then something may have been
 * missed. Afterwards a value of `oldest` is 0 if nothing is unfinished.
 */
int df_follow_step(struct df_follow *f, const struct df_trace_header *ring);
void df_follow_fini(struct df_follow *f);

#endif
