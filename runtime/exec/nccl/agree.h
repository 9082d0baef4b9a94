/* Agrees on one order for the operations of a communicator. */
#ifndef DF_RUNTIME_EXEC_NCCL_AGREE_H
#define DF_RUNTIME_EXEC_NCCL_AGREE_H

struct df_lane;

/*
 * Starts the thread that agrees on an order and launches in that order. If the communicator spans
 * several nodes, starts none: the order of issue is kept. Returns 0 or -errno.
 */
int df_lane_agree_start(struct df_lane *lane);
/* Wakes the thread, because there are new operations. */
void df_lane_agree_wake(struct df_lane *lane);
/*
 * Call when the lane has ended. Returns when the thread uses none of the lane's operations any
 * more.
 */
void df_lane_agree_end(struct df_lane *lane);
/* Asks the thread to end. df_lane.users counts the thread until then. Does not block. */
void df_lane_agree_stop(struct df_lane *lane);
/* Frees lane->agree. Call after the thread has ended. */
void df_lane_agree_free(struct df_lane *lane);

#endif
