/*
 * Lanes: each communicator's operations on a stream of its own, where the real NCCL's kernels
 * execute them (lane_executor.c). An operation is three things on the lane: waits for the points
 * that it follows, the real library's call, and the write of its own end.
 *
 * A lane's operations are in a list, in the order on the lane: the order of issue, or one that the
 * ranks agree on (agree.c). Then they are in another list, that of undecided ones, before. They
 * are appended under the device's lock and put on the lane later, without it, by one thread at a
 * time. retire() drops them from the front.
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
 * Commands on a lane at a time. A driver's queue has room for 1,024, and a thread that adds one to
 * a full queue waits in the driver.
 */
#define DF_LANE_DEPTH 900

/* An operation on a lane. Constant once it is in the list, but for what is said below. */
struct df_lane_op {
	struct df_lane_op *next; /* the list that it is in; the lane's lock */
	struct df_lane_op *mine; /* the one that its thread launched before; that thread's */
	struct df_lane *lane;
	struct df_op op;
	uint64_t serial, group; /* operations of one group are put together */
	struct df_kwait *waits;
	uint32_t nr_waits;
	uint64_t *word, value; /* its end; no other operation writes the word */
	/*
	 * The gate of a graph's replay, else NULL, and the replay's number there (df_kgate.issued,
	 * which the host counts). The lane writes the number to `begun` and then clears `arrived`;
	 * at the end it writes `open`, `opened` and the word. When the lane is ended, the host
	 * writes to df_kgate.lane the last number that the lane still writes to `opened`.
	 */
	struct df_kgate *gate;
	uint64_t replay;
	/*
	 * Signature and number among its equals, as for the trace; match: what is compared between
	 * ranks.
	 */
	uint64_t key, number, match;
	/* set when it is in the lane's list: number of its group on the lane, from 1 on */
	uint64_t turn;
	struct df_ident ident;
	int alone; /* it has no peer and no ident */
	/* the lane's lock: */
	uint8_t closed;	 /* its whole group is in the list, and its thread has let go of it */
	uint8_t put;	 /* it is on the lane, or never will be */
	uint8_t ends;	 /* the lane writes its end, sooner or later */
	uint8_t traced;	 /* its begin is recorded */
	uint8_t dropped; /* it ended with its communicator: the lane may still write the word */
};

/*
 * The driver's commands: its waits, NCCL's kernel with the events around it, its end, and four more
 * for a gate.
 */
static inline uint64_t df_lane_commands(const struct df_lane_op *e)
{
	return e->nr_waits + 4 + (e->gate ? 4 : 0);
}

/* A signature: how many operations of it there have been, for the trace. */
struct df_lane_count {
	struct df_sig sig;
	uint64_t key, nr, match;
	UT_hash_handle hh;
};

struct df_lane {
	struct df_list node; /* all lanes of the process */
	struct df_comm *comm;
	void *real; /* the real library's communicator */
	struct df_mstream *stream;
	long ctas; /* of its share of the device; 0: one rank, whose kernels wait for no peer */
	struct df_room room;
	struct df_lane_view *view;   /* what it shares with others on its node; NULL: nothing */
	struct df_lane_agree *agree; /* NULL: operations are put in their order of issue */
	/* the lock of the list of all lanes: */
	uint32_t users;	   /* threads that use it without another hold on it */
	int abort;	   /* enum df_lane_abort */
	uint64_t abort_ns; /* when the abort was asked for */
	/* dev->lock: */
	struct df_lane_count *counts;
	struct df_lane_op *oldest, **last; /* appended and dropped under both locks */
	struct df_mutex lock;		   /* of what follows, and of the list's links */
	struct df_lane_op *next;	   /* the first that is not put yet */
	uint64_t depth; /* commands of operations that are put and have not been dropped */
	int full;	/* the next group waits for operations to end */
	uint64_t nr_groups, group; /* turn and group of the last */
	/* in the order of issue; linked under both locks */
	struct df_lane_op *undecided, **last_undecided;
	struct df_lane_op *fresh; /* the first of them that agree.c has not seen; NULL: none */
	struct df_hold hold;
	struct df_lane_nodes nodes; /* the lanes' thread's */
	uint8_t *pairs;		    /* by rank: enum df_pair (put.h) */
	int putting;		    /* a thread is putting them */
	int stuck;   /* ... and has not returned from NCCL although the lane was aborted */
	int ended;   /* none is put any more */
	int failed;  /* -errno: the real library refused one */
	int differs; /* other ranks call something else: none is put any more */
};

enum df_lane_abort { DF_LANE_LIVES, DF_LANE_TO_ABORT, DF_LANE_ABORTING, DF_LANE_ABORTED };

extern const struct df_executor df_lane_executor; /* lane_executor.c */
extern const struct df_lane_calls *df_lane_calls; /* set by df_lanes_find() */

/* At the start of the process. Fails with -EOPNOTSUPP: there is no real library for lanes. */
int df_lanes_find(void);

/*
 * Makes the lane of a communicator whose members are known, and connects it. Collective, blocks.
 * Returns 0 or -errno.
 */
int df_lane_make(struct df_comm *comm);
/* Frees it. Its operations have ended, or it was ended and df_lane_end() has returned. Blocks. */
void df_lane_free(struct df_comm *comm);
void df_lane_forget_counts(struct df_lane *lane); /* lane_executor.c */
/* Appends the operation; cannot fail. dev->lock held. */
void df_lane_append(struct df_lane_op *e);
/*
 * These undecided operations are the next in the lane's list, as one group, unless it has ended.
 */
void df_lane_decided(struct df_lane *lane, struct df_lane_op *const *group, size_t nr);
/* Puts what was decided on the lane. No lock held; may call the driver. */
void df_lane_put_decided(struct df_lane *lane);
/* Puts on their lanes what this thread has appended. No lock held; may call the driver. */
void df_lane_submitted(void);
/* A use keeps the lane's memory; df_lane_unuse() ends it. */
void df_lane_use(struct df_lane *lane);
void df_lane_unuse(struct df_lane *lane);
/* Drops operations that have ended from the lists of the device's lanes. dev->lock held. */
void df_lane_retire(struct df_dev *dev);
/* A message of another rank has arrived. Does not block. */
void df_lane_heard(const void *data, size_t bytes);
/* Begins to abort the real library's communicator. dev->lock held. */
void df_lane_condemn(struct df_comm *comm);
/* Ends the unfinished operations of the communicator. */
void df_lane_end(struct df_comm *comm);
/* Looks for ended operations on all devices, the given one first. Returns 1 if there were any. */
int df_lane_pass(int device);
/* Some operations have gates. */
void df_lane_gates(void);
/* Adds the ends of unfinished operations to the set. dev->lock held. -ENOMEM. */
int df_lane_in_flight(struct df_dev *dev, struct df_flights *set);

#endif
