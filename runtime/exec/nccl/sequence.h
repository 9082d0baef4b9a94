/*
 * The order of a communicator's operations, decided by its rank 0 (agree.c) from what each rank has
 * ready. Knows no threads, no memory that is shared, and no NCCL; one thread at a time.
 *
 * A *unit* is what a rank launches together: one operation, or those of a group. An operation
 * meets its counterparts, one on each rank, or the other end of a message. A unit can be launched
 * out of the order of issue if all counterparts of its operations, and all that are launched
 * together with these, are there. The first of a rank in the order of issue can be launched as soon
 * as one of its operations has all counterparts, and these are launched, or are in units that are
 * first too: so would NCCL. Neither is launched on a rank that has launched something that waits
 * for another rank's part, unless it is that part: it would only wait as well. Nor is a message
 * that NCCL would not give its own receive: it gives the n-th receive of a pair the n-th message.
 *
 * A short message ends in a buffer, received or not, if all before it from this rank to the other
 * one have been received, or are in its own unit and short too. The sender does not wait for it any
 * more, and the first unit of a rank can be launched if it has nothing but such messages.
 */
#ifndef DF_RUNTIME_EXEC_NCCL_SEQUENCE_H
#define DF_RUNTIME_EXEC_NCCL_SEQUENCE_H

#include <stddef.h>
#include <stdint.h>

struct df_lanes_sequence;

/* Calls go() for each unit when it may be launched, in the order of each rank. */
struct df_lanes_sequence *
df_lanes_sequence_new(uint32_t nr, void (*go)(void *arg, uint32_t rank, uint32_t unit), void *arg);
void df_lanes_sequence_free(struct df_lanes_sequence *q);
struct df_lanes_message {
	uint32_t peer; /* of a send the receiver, of a receive the sender */
	int is_short;  /* it is a send, and can end without its receive */
};

/*
 * The rank has this operation of the unit ready; its units arrive one after the other, in any
 * order. `need` operations with this key meet, this one in place `side`. message: it is a send
 * (side 0) or its receive (side 1); else NULL. last: it is the unit's last. Calls go() for all
 * units that may be launched now. Returns 0, -EPROTO if the ranks contradict themselves, or
 * -ENOMEM.
 */
int df_lanes_sequence_add(struct df_lanes_sequence *q, uint32_t rank, uint32_t unit, uint64_t key,
			  uint32_t need, uint32_t side, const struct df_lanes_message *message,
			  int last);

#endif
