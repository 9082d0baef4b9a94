/*
 * The order of a communicator's operations, decided by its rank 0 (agree.c) from what each rank has
 * ready. Knows no threads, no memory that is shared, and no NCCL; one thread at a time.
 *
 * An operation meets its counterparts, one on each rank, or the other end of a message. A
 * *decision* is a set of meetings whose operations are all there. Each rank launches its part of
 * the set as one group of NCCL, in one order. So all lanes have the same order, and what is
 * launched waits for nothing that is not: it ends.
 *
 * A *unit* is what a rank issues together: one operation, or those of a group. Units are decided
 * whole, with all that meets them, as soon as all of that is there. If something of it stays away
 * (df_lanes_sequence_pause()), the meetings that are complete are decided without the others,
 * because what is missing may wait for their end.
 *
 * A short message may end in NCCL's buffer before it is received. This is decided after a pause
 * too, for the oldest messages of a pair of ranks. NCCL gives the n-th receive of a pair the n-th
 * message, so those behind it are decided only with its receive, or later.
 */
#ifndef DF_RUNTIME_EXEC_NCCL_SEQUENCE_H
#define DF_RUNTIME_EXEC_NCCL_SEQUENCE_H

#include <stdint.h>

struct df_lanes_sequence;

/* An operation that is ready on a rank. In memory that ranks share. */
struct df_lanes_item {
	uint64_t key;	  /* equal for what meets */
	uint32_t unit;	  /* from 1, in the order of issue */
	uint32_t op, nr;  /* which of the unit's nr operations it is */
	uint32_t need;	  /* operations that meet */
	uint32_t side;	  /* which of them this is; of a message: 0 sends, 1 receives */
	uint32_t message; /* its peer's slot plus 1; 0: it is no message */
	uint32_t number; /* of a send, among those to this peer, in the order of issue, from 0 on */
	uint32_t is_short; /* it is a send that may end in NCCL's buffer */
};

/* An operation of this rank is decided. last: it is the rank's last one in this decision. */
typedef void (*df_lanes_go)(void *arg, uint32_t rank, uint32_t unit, uint32_t op, int last);

struct df_lanes_sequence *df_lanes_sequence_new(uint32_t nr, df_lanes_go go, void *arg);
void df_lanes_sequence_free(struct df_lanes_sequence *q);

/*
 * The rank has this operation ready. Calls go() for what is decided because of it. Returns 0,
 * -EPROTO if the ranks contradict themselves, or -ENOMEM.
 */
int df_lanes_sequence_add(struct df_lanes_sequence *q, uint32_t rank,
			  const struct df_lanes_item *item);
/* Whether something waits for a pause. */
int df_lanes_sequence_waits(const struct df_lanes_sequence *q);
/* Decides what has waited since the call before this one. Returns 0 or -ENOMEM. */
int df_lanes_sequence_pause(struct df_lanes_sequence *q);

#endif
