/*
 * Memory that the ranks of a communicator on one node share: where they compare their calls before
 * NCCL launches them (compare.c), and where they agree on an order (agree.c).
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

#define DF_LANE_PLACES 1024 /* collectives of a communicator that are compared at a time */
#define DF_LANE_PAIRS  16   /* messages of two ranks in one direction */
#define DF_LANE_ITEMS  512
#define DF_LANE_GOES   256

/* A call, for the report. Valid between two equal reads of its word. */
struct df_lane_call {
	uint64_t count;
	uint64_t what; /* kind | type << 8 | redop << 16 | (root or peer + 1) << 32 */
};

/* The rank's next operation in the agreed order. */
struct df_lane_turn {
	uint32_t unit, op; /* as in df_lanes_item */
	uint32_t last;	   /* it is the last one of a group for NCCL */
};

/* A rank's part. */
struct df_lane_area {
	/* Counters. The rank writes published and taken, rank 0 the others. */
	uint64_t published, consumed, gone, taken;
	uint32_t bell; /* futex word of the rank's thread */
	uint32_t pad[7];
	struct df_lanes_item items[DF_LANE_ITEMS];
	struct df_lane_turn go[DF_LANE_GOES];
	struct df_lane_call calls[DF_LANE_PLACES];
};

struct df_lane_shared {
	uint64_t magic, token, hash;
	uint32_t nr;	 /* ranks */
	uint32_t closed; /* rank 0 has left: there is no agreed order from here on */
	uint32_t told;	 /* a rank reports that calls differ */
	uint32_t pad0;
	uint64_t pad[11];
	/* then words[DF_LANE_PLACES][nr], pairs[nr][nr][2][DF_LANE_PAIRS], areas[nr] */
};

/* A lane's view. Constant, but for what the thread that puts operations counts. */
struct df_lane_view {
	struct df_lane_shared *s;
	uint64_t bytes;
	uint64_t *words, *pairs;
	struct df_lane_area *areas;
	uint32_t nr, slot; /* ranks on the node, and the number of this rank among them */
	int *slots;	   /* by rank of the communicator; -1: it is on another node */
	uint32_t *ranks;   /* by slot */
	/* the thread that puts: */
	uint64_t place;	    /* of the next collective */
	uint64_t *messages; /* by slot and direction */
};

/*
 * Makes lane->view, or leaves it NULL if this rank is alone on its node or there is no memory,
 * which is logged. Collective over the communicator; blocks. Returns 0, or -errno if the
 * communicator cannot be used.
 */
int df_lane_share(struct df_lane *lane);
void df_lane_unshare(struct df_lane *lane);

#endif
