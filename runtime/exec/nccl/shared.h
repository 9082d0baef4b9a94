/*
 * Memory that the ranks of a communicator on one node share. They use it to compare their calls
 * before NCCL launches them (compare.c), and to agree on an order (agree.c).
 *
 * One rank of the node makes it, a memfd without a name in any file system. It sends its descriptor
 * to the others over the control plane, and they open it in /proc, which the kernel allows to
 * processes that could trace it. So it is gone with the last process that maps it.
 */
#ifndef DF_RUNTIME_EXEC_NCCL_SHARED_H
#define DF_RUNTIME_EXEC_NCCL_SHARED_H

#include <stddef.h>
#include <stdint.h>
#include "runtime/exec/nccl/sequence.h"

struct df_lane;
struct df_lane_op;

/* number of collectives of a communicator that can be compared at a time */
#define DF_LANE_PLACES 1024
/* number of messages between two ranks in one direction that can be compared at a time */
#define DF_LANE_PAIRS 16
#define DF_LANE_ITEMS 512
#define DF_LANE_GOES  256

/*
 * A call, for the report that calls differ. It is valid if two reads of its word, before and after,
 * are equal.
 */
struct df_lane_call {
	uint64_t count;
	uint64_t what; /* kind | type << 8 | redop << 16 | (root or peer + 1) << 32 */
};

/* The next operation of the rank in the agreed order. */
struct df_lane_turn {
	uint32_t unit, op; /* as in struct df_lanes_item */
	uint32_t last;	   /* whether it is the last operation of a group for NCCL */
};

/* The area of one rank in the shared memory. */
struct df_lane_area {
	/* Counters. The rank writes `published` and `taken`. Rank 0 writes the others. */
	uint64_t published, consumed, gone, taken;
	uint32_t bell; /* futex word; a change wakes the rank's thread */
	uint32_t pad[7];
	struct df_lanes_item items[DF_LANE_ITEMS];
	struct df_lane_turn go[DF_LANE_GOES];
	struct df_lane_call calls[DF_LANE_PLACES];
};

struct df_lane_shared {
	uint64_t magic, token, hash;
	uint32_t nr;	 /* number of ranks */
	uint32_t closed; /* rank 0 has left, so no further order is agreed */
	uint32_t told;	 /* whether a rank has reported that calls differ */
	uint32_t pad0;
	uint64_t pad[11];
	/*
	 * After this struct: words[DF_LANE_PLACES][nr], pairs[nr][nr][2][DF_LANE_PAIRS],
	 * areas[nr].
	 */
};

/*
 * A lane's view of the shared memory. It is constant, except for the counts of the thread that puts
 * operations.
 */
struct df_lane_view {
	struct df_lane_shared *s;
	uint64_t bytes;
	uint64_t *words, *pairs;
	struct df_lane_area *areas;
	/* number of ranks on the node, and this rank's index among them (its slot) */
	uint32_t nr, slot;
	/* by rank of the communicator: its slot, or -1 if it is on another node */
	int *slots;
	uint32_t *ranks; /* by slot: the rank of the communicator */
	/* Only the thread that puts operations uses these: */
	uint64_t place;	    /* place of the next collective */
	uint64_t *messages; /* by slot and direction: number of the next message */
};

/*
 * Makes lane->view. Leaves it NULL if this rank is alone on its node, or if memory is short, which
 * is logged. Collective over the communicator; blocks. Returns 0, or -errno if the communicator
 * cannot be used.
 */
int df_lane_share(struct df_lane *lane);
void df_lane_unshare(struct df_lane *lane);

#endif
