/*
 * Moves operations from a lane's list to its stream ("puts" them). Groups are put in order, by one
 * thread at a time.
 *
 * The first message from one rank to another connects the two: NCCL blocks the caller until both
 * have made their call. So a group with such a message is put by a thread started for that, and
 * later groups of the lane wait for that thread. tests/model/connect.pml is the model.
 */
#ifndef DF_RUNTIME_EXEC_NCCL_PUT_H
#define DF_RUNTIME_EXEC_NCCL_PUT_H

#include <stddef.h>
#include <stdint.h>

struct df_lane;
struct df_lane_op;
struct df_op;

/* A set of directions, for a peer: messages in these directions are connected. */
enum df_pair { DF_PAIR_SENDS = 1, DF_PAIR_RECEIVES = 2 };

/*
 * Puts the groups that may be put, unless another thread does so already. The caller holds no lock;
 * does not block.
 */
void df_lane_put_all(struct df_lane *lane);
/* Puts the held groups for which the device has capacity. The caller is as above. */
void df_lane_put_held(int device);
/* Whether the next group waits until operations have ended, because the lane's queue is full. */
int df_lane_is_full(struct df_lane *lane);

/* Whether everything that the operation waits for has ended. Once true, this stays true. */
int df_lane_is_ready(const struct df_lane_op *e);

/*
 * Records the begin of the operations that run on the lane. Operations that end soon are not
 * recorded, because a record for each would cost more than it is worth. The caller holds no lock.
 */
void df_lane_trace_begun(struct df_lane *lane);

/*
 * Whether NCCL may block in the operation's call until the peer makes its call. The caller holds
 * lane->lock.
 */
int df_lane_connects(const struct df_lane *lane, const struct df_op *op);

#endif
