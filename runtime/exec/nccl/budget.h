/*
 * Shares a device's multiprocessors out among its lanes. NCCL's kernels occupy their
 * multiprocessors until all ranks have launched, so kernels are launched only if they fit on the
 * device together. While one of its groups is unfinished, a lane has a share as large as its
 * communicator's CTAs. The rest is the *reserve*, which suffices for the widest communicator that
 * there may be. It is given only to a group that is ready on all ranks (hold.h), so the lane that
 * has the reserve always finishes. This capacity (a share or the reserve) is called `room` in the
 * names of the code.
 *
 * Shares are given in the order in which groups were issued on the device: while a group is held,
 * later groups of other lanes are held too, even those of lanes that have shares. So each device
 * has launched the first part of its order of issue. If all devices have one order, the first group
 * that has not ended is launched on all of its devices: it ends, and no rank asks for a reserve.
 * While a device seems to need the reserves (df_budget_is_stuck()), its lanes get shares in the
 * order of their making instead, which most devices have in common.
 *
 * Where streams share hardware queues (struct df_blocks.queues), a kernel also needs a queue that
 * no other lane's kernel is in, and NCCL uses a second stream besides the lane. So at most
 * DF_LANES_MOST lanes have shares, and one more has the reserve.
 *
 * The reserve is kept free even while all lanes together would fit: a lane that is made later would
 * find it taken by operations that may wait for operations of that lane.
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

/* A lane's capacity. Guarded by the lock in budget.c. */
struct df_room {
	struct df_list waiting; /* link in the device's queue for the reserve */
	struct df_list held;	/* link in the device's list of held lanes */
	/* if it is held: number of the lane's next group, and of its issue on the device */
	uint64_t next, issue;
	uint64_t made; /* number of the lane on its device, in the order of making */
	enum df_room_kind has;
	uint64_t out;  /* number of operations on the lane that have not ended */
	uint64_t last; /* number of the last group that was let onto the lane */
	/* the reserve is requested for groups up to this number; 0 if it is not requested */
	uint64_t asked;
	uint64_t upto; /* if has == DF_ROOM_RESERVE: the reserve is for groups up to this number */
	uint64_t go;   /* if has == DF_ROOM_RESERVE: groups up to this number may be launched */
	int open;      /* whether nothing of the lane is held any more */
	int dropped;   /* whether the lane launches nothing any more */
};

/* Called at the start of the process with the number of its devices. Returns 0 or -ENOMEM. */
int df_budget_init(int nr_devs);
/* Adds a lane that was made, with lane->ctas CTAs. */
void df_budget_join(struct df_lane *lane);
/* Takes back the lane's capacity and its requests. The lane launches nothing any more. */
void df_budget_drop(struct df_lane *lane);
/* Undoes df_budget_join(). Call after df_budget_drop(). */
void df_budget_leave(struct df_lane *lane);

/*
 * Returns 1 if this group, of `nr` operations, may be launched, or 0 if it is held. `issue` is the
 * number of its first operation on the device. The caller launches groups in the order of their
 * numbers, from 1 on, and tries a held group again later.
 */
int df_budget_take(struct df_lane *lane, uint64_t group, uint64_t nr, uint64_t issue);
/*
 * Call when `nr` operations have ended. Returns 1 if capacity became free and a lane waits for
 * it.
 */
int df_budget_back(struct df_lane *lane, uint64_t nr);
/* Whether the lane's next group waits for capacity. */
int df_budget_holds(struct df_lane *lane);
/* Whether a lane of the device is held. */
int df_budget_holds_any(int device);
/* Whether held lanes of the device ask for the reserves at once (df_budget_is_stuck()). */
int df_budget_is_urgent(int device);
/*
 * Returns the first held lane of the device whose next group may be launched now, or NULL. Another
 * thread may free the lane.
 */
struct df_lane *df_budget_next(int device);

/* Requests the reserve for all groups up to this one. A lane has at most one request. */
void df_budget_ask(struct df_lane *lane, uint64_t upto);
/*
 * Whether the lane asks for the reserves now: `now`, its next group has been held since `since`. So
 * it is if the device has not ended an operation for STILL_NS, or shortly after that, or if others
 * have kept the group from its turn for long. It is not if the devices have one order of issue and
 * the machine is not overloaded.
 */
int df_budget_is_stuck(struct df_lane *lane, uint64_t since, uint64_t now);
/*
 * Gives the lane the reserve if it is requested and free. Returns 1 when the lane's request is
 * answered: the lane has the reserve, or its groups have been launched without it. The request is
 * over then.
 */
int df_budget_answer(struct df_lane *lane);
/* Releases the lane from all holding, because no rank 0 can give it the reserve any more. */
void df_budget_open(struct df_lane *lane);
/*
 * Allows groups up to this one to be launched on the reserve, because all devices have given
 * theirs.
 */
void df_budget_go(struct df_lane *lane, uint64_t upto);

#endif
