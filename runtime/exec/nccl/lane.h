/*
 * A lane is a stream of a communicator's own, on which the real NCCL's kernels execute the
 * communicator's operations (lane_executor.c). An operation is three things on the lane: waits for
 * the points that it follows, the real library's call, and the write of its own end.
 *
 * A lane's operations are in a list, in their order on the lane. This is the order of issue, or an
 * order on which the ranks agree (agree.c). In the second case an operation is first in another
 * list, that of undecided operations. Operations are appended while the device's lock is held. One
 * thread at a time puts them on the lane later, without that lock. retire() drops them from the
 * front.
 */
#ifndef DF_RUNTIME_EXEC_NCCL_LANE_H
#define DF_RUNTIME_EXEC_NCCL_LANE_H

#include <stdint.h>
#include <uthash.h>
#include "kernels/abi.h"
#include "runtime/backend.h"
#include "runtime/base/list.h"
#include "runtime/base/lock.h"
#include "runtime/dfshim.h"
#include "runtime/exec/nccl/budget.h"
#include "runtime/exec/nccl/nodes.h"
#include "runtime/exec/nccl/hold.h"
#include "runtime/executor.h"
#include "runtime/lanes.h"

struct df_dev;

/*
 * Maximum number of commands on a lane. A driver's queue has space for 1,024, and a thread that
 * adds one to a full queue waits in the driver.
 */
#define DF_LANE_DEPTH 900

/*
 * An operation on a lane. It is constant once it is in the list, except for the fields that say
 * otherwise.
 */
struct df_lane_op {
	/* link of the list that contains the operation; guarded by the lane's lock */
	struct df_lane_op *next;
	/* the operation that the same thread launched before; only that thread uses it */
	struct df_lane_op *mine;
	struct df_lane *lane;
	struct df_op op;
	uint64_t serial, group; /* operations of one group are put together */
	uint64_t issue;		/* number on the device, in the order of issue */
	struct df_kwait *waits;
	uint32_t nr_waits;
	/* its end: the word and the value; no other operation writes the word */
	uint64_t *word, value;
	/*
	 * The gate of a graph's replay, or NULL, and the replay's number there (df_kgate.issued,
	 * which the host counts). The lane writes the number to `begun` and then clears `arrived`.
	 * At the end it writes `open`, `opened` and the word. When the lane is ended, the host
	 * writes the last number that the lane still writes to `opened` into df_kgate.lane.
	 */
	struct df_kgate *gate;
	uint64_t replay;
	/*
	 * Signature, and number among the operations with this signature, for the trace. `match` is
	 * the value that is compared between ranks.
	 */
	uint64_t key, number, match;
	/*
	 * number of the operation's group on the lane, from 1 on; set when it enters the lane's
	 * list
	 */
	uint64_t turn;
	struct df_ident ident;
	int alone; /* whether the operation has no peer and no ident */
	/* guarded by the lane's lock: */
	/* the whole group is in the list, and the thread that issued it does not use it any more */
	uint8_t closed;
	uint8_t put;	 /* the operation is on the lane, or will never be */
	uint8_t ends;	 /* the lane will write the operation's end */
	uint8_t traced;	 /* the operation's begin is recorded */
	uint8_t dropped; /* it was ended with its communicator; the lane may still write the word */
};

/*
 * Returns the most commands that an operation gives the driver: its waits, NCCL's kernel with an
 * event before and after it, its end, and four more for a gate.
 */
static inline uint64_t df_lane_commands(const struct df_lane_op *e)
{
	return e->nr_waits + 4 + (e->gate ? 4 : 0);
}

/* How many operations of a signature there have been, for the trace. */
struct df_lane_count {
	struct df_sig sig;
	uint64_t key, nr, match;
	UT_hash_handle hh;
};

struct df_lane {
	struct df_list node; /* link in the list of all lanes of the process */
	struct df_comm *comm;
	void *real; /* the real library's communicator */
	struct df_mstream *stream;
	/*
	 * CTAs of the lane's share of the device; 0 for a single rank, whose kernels wait for no
	 * peer
	 */
	long ctas;
	struct df_room room;
	/* shared with the other ranks on the node; NULL if nothing is shared */
	struct df_lane_view *view;
	struct df_lane_agree *agree; /* NULL if operations are put in their order of issue */
	/* guarded by the lock of the list of all lanes: */
	/* number of threads that use the lane and have no other reference that keeps it */
	uint32_t users;
	int abort;	   /* enum df_lane_abort */
	uint64_t abort_ns; /* when the abort was asked for */
	/* guarded by dev->lock: */
	struct df_list busy; /* link in df_dev.lanes while operations are in the lists below */
	struct df_lane_count *counts;
	/* operations are appended and dropped while both locks are held */
	struct df_lane_op *oldest, **last;
	struct df_mutex lock;	 /* guards the fields below and the links of the list */
	struct df_lane_op *next; /* the first operation that is not put yet */
	uint64_t depth;		 /* commands of operations that are put and have not been dropped */
	/* whether the next group waits for operations to end because the queue is full */
	int full;
	uint64_t nr_groups; /* number of groups so far: the turn of the last operation */
	uint64_t group;	    /* group of the last operation */
	/* Undecided operations in the order of issue. They are linked while both locks are held. */
	struct df_lane_op *undecided, **last_undecided;
	/* first undecided operation that agree.c has not seen; NULL if there is none */
	struct df_lane_op *fresh;
	struct df_hold hold;
	struct df_lane_nodes nodes; /* only the lanes' thread uses it */
	uint8_t *pairs;		    /* by rank: enum df_pair (put.h) */
	int putting;		    /* whether a thread is putting operations */
	/* whether that thread has not returned from NCCL although the lane was aborted */
	int stuck;
	int ended;   /* no more operations are put */
	int failed;  /* -errno if the real library refused an operation */
	int differs; /* other ranks make a different call, so no more operations are put */
};

enum df_lane_abort { DF_LANE_LIVES, DF_LANE_TO_ABORT, DF_LANE_ABORTING, DF_LANE_ABORTED };

extern const struct df_executor df_lane_executor; /* lane_executor.c */
extern const struct df_lane_calls *df_lane_calls; /* set by df_lanes_find() */

/*
 * Finds the real library. Called at the start of the process. Fails with -EOPNOTSUPP if there is
 * none that can be used for lanes.
 */
int df_lanes_find(void);

/*
 * Makes the lane of a communicator whose members are known, and connects it. Collective; blocks.
 * Returns 0 or -errno.
 */
int df_lane_make(struct df_comm *comm);
/* Frees the lane. Its operations must have ended, or df_lane_end() must have returned. Blocks. */
void df_lane_free(struct df_comm *comm);
void df_lane_forget_counts(struct df_lane *lane); /* lane_executor.c */
/* Appends the operation; cannot fail. The caller holds dev->lock. */
void df_lane_append(struct df_lane_op *e);
/*
 * Moves these undecided operations to the end of the lane's list, as one group, unless the lane has
 * ended.
 */
void df_lane_decided(struct df_lane *lane, struct df_lane_op *const *group, size_t nr);
/* Puts decided operations on the lane. The caller holds no lock; may call the driver. */
void df_lane_put_decided(struct df_lane *lane);
/*
 * Puts the operations that this thread has appended on their lanes. The caller holds no lock; may
 * call the driver.
 */
void df_lane_submitted(void);
/* Takes a use, which keeps the lane's memory. df_lane_unuse() drops it. */
void df_lane_use(struct df_lane *lane);
/* The same for a lane that may have been freed. Returns whether it has not. */
int df_lane_use_listed(const struct df_lane *lane);
void df_lane_unuse(struct df_lane *lane);
/*
 * Drops operations that have ended from the lists of the device's lanes. The caller holds
 * dev->lock.
 */
void df_lane_retire(struct df_dev *dev);
/* Queues a message of another rank for the lanes' thread. Does not block. */
void df_lane_heard(const void *data, size_t bytes);
/* Begins to abort the real library's communicator. The caller holds dev->lock. */
void df_lane_condemn(struct df_comm *comm);
/* Ends the unfinished operations of the communicator. */
void df_lane_end(struct df_comm *comm);
/*
 * Looks for ended operations on all devices, the given one first. Returns 1 if there were any, else
 * 0.
 */
int df_lane_pass(int device);
/* Notes that a thread begins (1) or ends (-1) to call df_lane_pass() again and again. */
void df_lane_waits(int more);
/* Notes that some operations have gates. */
void df_lane_gates(void);

#endif
