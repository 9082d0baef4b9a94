/*
 * The multiprocessors of a device, shared out among its lanes. NCCL's kernels occupy theirs until
 * all ranks have launched, so kernels are launched only as far as they fit together: while one of
 * its groups is unfinished, a lane has a share as large as its communicator's CTAs. The rest, room
 * for the widest communicator that there may be, is the *reserve*. It is given only to a group that
 * is ready on all ranks (hold.h), so the lane that has it always finishes.
 *
 * Where streams share hardware queues (struct df_blocks.queues), a kernel also needs a queue that
 * no other lane's is in, and NCCL uses a second stream beside the lane. So at most DF_LANES_MOST
 * lanes have shares, and one more the reserve.
 *
 * The reserve is kept free also while all lanes together would fit: a lane that is made later would
 * find it taken by operations that may wait for its own.
 *
 * Any thread; no function blocks, and all but df_budget_init() take a leaf lock.
 */
#ifndef DF_RUNTIME_EXEC_NCCL_BUDGET_H
#define DF_RUNTIME_EXEC_NCCL_BUDGET_H

#include <stdint.h>
#include "runtime/base/list.h"

struct df_lane;

#define DF_LANES_MOST  11
#define DF_LANE_QUEUES (2 * (DF_LANES_MOST + 1))

enum df_room_kind { DF_ROOM_NONE, DF_ROOM_SHARE, DF_ROOM_RESERVE };

/* A lane's part of the budget. Guarded by the lock in budget.c. */
struct df_room {
	struct df_list waiting; /* in its device's queue for the reserve */
	enum df_room_kind has;
	uint64_t out;	/* operations on the lane that have not ended */
	uint64_t last;	/* the last group that was let onto the lane */
	uint64_t asked; /* the reserve is asked for, for groups up to this; 0: it is not */
	uint64_t upto;	/* has == DF_ROOM_RESERVE: for groups up to this */
	uint64_t go;	/* ... and up to this they may be launched */
	int held;	/* its next group waits for room */
	int open;	/* nothing is held any more */
	int dropped;	/* it launches nothing any more */
};

/* At the start of the process, for its devices. Returns 0 or -ENOMEM. */
int df_budget_init(int nr_devs);
/* A lane of lane->ctas CTAs has been made. */
void df_budget_join(struct df_lane *lane);
/* Takes back what the lane has and asks for. It launches nothing any more. */
void df_budget_drop(struct df_lane *lane);
/* Undoes df_budget_join(), after df_budget_drop(). */
void df_budget_leave(struct df_lane *lane);

/*
 * Returns 1 if this group, of nr operations, may be launched; 0 if it is held. The caller launches
 * groups in the order of their numbers, from 1 on, and tries again later.
 */
int df_budget_take(struct df_lane *lane, uint64_t group, uint64_t nr);
/* nr operations have ended. Returns 1 if there is room again, and a lane waits for it. */
int df_budget_back(struct df_lane *lane, uint64_t nr);
/* Whether the lane's next group waits for room. */
int df_budget_holds(struct df_lane *lane);

/* Asks for the reserve for all groups up to this one. One request at a time. */
void df_budget_ask(struct df_lane *lane, uint64_t upto);
/*
 * Gives the reserve if it is asked for and free. Returns 1 when a request of this lane is answered:
 * it has the reserve, or its groups have been launched without it. Then the request is over.
 */
int df_budget_answer(struct df_lane *lane);
/* There is no rank 0 that could give the reserve: nothing of this lane is held any more. */
void df_budget_open(struct df_lane *lane);
/* All devices have given their reserve: groups up to this one may be launched on it. */
void df_budget_go(struct df_lane *lane, uint64_t upto);

#endif
