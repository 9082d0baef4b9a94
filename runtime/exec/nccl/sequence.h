/*
 * The order of a communicator's operations. Rank 0 of the communicator decides it (agree.c) from
 * the operations that each rank has ready. This code has no threads, no shared memory and no calls
 * of NCCL; one thread at a time uses it.
 *
 * An operation *meets* its counterparts: one on each rank, or the other end of a message. A
 * *decision* is a set of meetings all of whose operations have arrived. Each rank launches its part
 * of the set as one group of NCCL, in one order. So all lanes have the same order, and a launched
 * operation waits only for launched operations: it ends.
 *
 * A *unit* consists of the operations that a rank issues together: one operation, or those of a
 * group. A unit is decided as a whole, with all operations that meet it, as soon as all of these
 * have arrived. If some of them do not arrive for a time (df_lanes_sequence_pause()), the complete
 * meetings are decided without the others, because the missing operations may wait for their end.
 *
 * A short message may end in NCCL's buffer before it is received. This is decided at once, for the
 * oldest messages of a pair of ranks, and after a pause while the unit is not all there. NCCL
 * gives the n-th message of a pair to the n-th receive, so later messages of the pair are decided
 * only together with the receive of the buffered one, or after it.
 */
#ifndef DF_RUNTIME_EXEC_NCCL_SEQUENCE_H
#define DF_RUNTIME_EXEC_NCCL_SEQUENCE_H

#include <stdint.h>

struct df_lanes_sequence;

/* An operation that is ready on a rank. It is in memory that ranks share. */
struct df_lanes_item {
	uint64_t key;	  /* equal for operations that meet */
	uint32_t unit;	  /* number of the unit, from 1, in the order of issue */
	uint32_t op, nr;  /* index in the unit, and number of the unit's operations */
	uint32_t need;	  /* number of operations that meet */
	uint32_t side;	  /* index among these; for a message: 0 sends, 1 receives */
	uint32_t message; /* for a message: the peer's slot plus 1; else 0 */
	/* for a send: its number among those to this peer, in the order of issue, from 0 on */
	uint32_t number;
	uint32_t is_short; /* whether it is a send that may end in NCCL's buffer */
};

/*
 * Called for each operation of `rank` that is decided. `last` says that it is the rank's last one
 * in this decision.
 */
typedef void (*df_lanes_go)(void *arg, uint32_t rank, uint32_t unit, uint32_t op, int last);

struct df_lanes_sequence *df_lanes_sequence_new(uint32_t nr, df_lanes_go go, void *arg);
void df_lanes_sequence_free(struct df_lanes_sequence *q);

/*
 * Adds an operation that the rank has ready. Calls go() for each operation that is decided as a
 * result. Returns 0, -EPROTO if the ranks contradict one another, or -ENOMEM.
 */
int df_lanes_sequence_add(struct df_lanes_sequence *q, uint32_t rank,
			  const struct df_lanes_item *item);
/* Whether a meeting waits for a pause. */
int df_lanes_sequence_waits(const struct df_lanes_sequence *q);
/* Decides the meetings that were waiting at the previous call already. Returns 0 or -ENOMEM. */
int df_lanes_sequence_pause(struct df_lanes_sequence *q);

#endif
