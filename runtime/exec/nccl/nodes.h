/*
 * Calls of ranks on different nodes are compared lazily: only if a collective has not ended for a
 * while. Each rank then reports the collective to rank 0 once, with its number in the communicator
 * and the values that are compared (compare.c). Ranks that wait for one another in NCCL report the
 * same number, so rank 0 finds two different calls in one place. As long as operations end, there
 * are no messages.
 *
 * Only the lanes' thread enters it.
 */
#ifndef DF_RUNTIME_EXEC_NCCL_NODES_H
#define DF_RUNTIME_EXEC_NCCL_NODES_H

#include <stdint.h>

struct df_lane_report;
struct df_hold_message;
struct df_lane;

struct df_lane_nodes {
	uint64_t serial, since; /* serial of the oldest operation, and when it became the oldest */
	uint64_t reported;	/* number of the last collective that was reported, plus 1 */
	struct df_lane_report *reports; /* on rank 0, by rank */
};

/* Looks at the lane's oldest operation. `now` is from df_now_ns(). */
void df_lane_nodes_turn(struct df_lane *lane, uint64_t now);
/* Reads a report of another rank. */
void df_lane_nodes_read(struct df_lane *lane, const struct df_hold_message *m);

#endif
