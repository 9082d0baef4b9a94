/*
 * From a lane's list to its stream: groups are put in order, by one thread at a time.
 *
 * The first message from one rank to another connects the two: NCCL blocks the caller until both
 * have made their call. So a group with such a message is put by a thread started for that, and
 * later groups of the lane wait behind it. tests/model/connect.pml is the model.
 */
#ifndef DF_RUNTIME_EXEC_NCCL_PUT_H
#define DF_RUNTIME_EXEC_NCCL_PUT_H

#include <stddef.h>
#include <stdint.h>

struct df_lane;
struct df_lane_op;
struct df_op;

/* With a peer, a set: messages that are connected. */
enum df_pair { DF_PAIR_SENDS = 1, DF_PAIR_RECEIVES = 2 };

/* Puts the groups that may be put, unless another thread does so. No lock held, does not block. */
void df_lane_put_all(struct df_lane *lane);

/* Whether all that the operation waits for has ended. It stays so. */
int df_lane_is_ready(const struct df_lane_op *e);

/*
 * Records the begin of the operations that run on the lane. Those that end soon are never recorded:
 * a record for each would cost the job more than it shows. No lock held.
 */
void df_lane_trace_begun(struct df_lane *lane);

/* Whether NCCL may block for the operation until its peer makes its call. lane->lock held. */
int df_lane_connects(const struct df_lane *lane, const struct df_op *op);

#endif
