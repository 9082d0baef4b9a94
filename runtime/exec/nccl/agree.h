/* One order for the operations of a communicator. */
#ifndef DF_RUNTIME_EXEC_NCCL_AGREE_H
#define DF_RUNTIME_EXEC_NCCL_AGREE_H

struct df_lane;

/*
 * Starts the thread that agrees on an order and launches in it. Beyond one node there is none: the
 * order of issue stays. Returns 0 or -errno.
 */
int df_lane_agree_start(struct df_lane *lane);
/* There are new operations. */
void df_lane_agree_wake(struct df_lane *lane);
/* The lane has ended: returns when the thread uses none of its operations any more. */
void df_lane_agree_end(struct df_lane *lane);
/* Lets the thread end; df_lane.users counts it until then. Never blocks. */
void df_lane_agree_stop(struct df_lane *lane);
/* After the thread has ended. */
void df_lane_agree_free(struct df_lane *lane);

#endif
