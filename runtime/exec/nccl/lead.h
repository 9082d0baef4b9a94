/*
 * The messages of a communicator's ranks, which hold.c and lead.c share, and rank 0's part. Only
 * the lanes' thread calls these functions, except where stated; none blocks.
 */
#ifndef DF_RUNTIME_EXEC_NCCL_LEAD_H
#define DF_RUNTIME_EXEC_NCCL_LEAD_H

#include <stdint.h>
#include "runtime/exec/nccl/hold.h"

struct df_lane;

/*
 * Duration of a watching, at least. With this interval all ranks check that the processes for which
 * they wait are alive.
 */
#define DF_HOLD_WATCH_NS (40 * DF_NS_PER_MS)

enum df_hold_what {
	DF_HOLD_ASK_WATCH, /* to rank 0: a group is held here */
	DF_HOLD_WATCH,	   /* from rank 0: announce groups */
	DF_HOLD_BEFORE,	   /* to rank 0: idents below these numbers ended before the watching */
	DF_HOLD_GROUP,	   /* to rank 0: this group is ready */
	DF_HOLD_OLDEST,	   /* to rank 0: all groups before this one have ended */
	DF_HOLD_GIVE,	   /* from rank 0: give the reserve for groups up to this one */
	/* to rank 0: the reserve is given, or the groups have been launched meanwhile */
	DF_HOLD_GIVEN,
	DF_HOLD_GO,	   /* from rank 0: launch groups up to this one */
	DF_HOLD_END_WATCH, /* from rank 0: the watching ends */
	DF_HOLD_GONE, /* the sender has left the communicator, so all its operations have ended */
	DF_HOLD_CALL  /* to rank 0: a collective has not ended for a while (nodes.h) */
};

struct df_hold_head {
	uint64_t comm, proc; /* `proc` is the sender's process id */
	int32_t from, to;
	uint32_t what, watch; /* enum df_hold_what; number of the watching */
	uint64_t group;
	uint32_t launched, nr; /* `nr` is the number of idents */
};

struct df_hold_message {
	struct df_hold_head h;
	struct df_ident idents[];
};

/* Rank 0 begins to watch the communicator, because a rank has asked for it. */
void df_lead_watch(struct df_lane *lane);
/* Reads a message to rank 0 about the watching. The caller has checked its ranks and idents. */
void df_lead_read(struct df_lane *lane, const struct df_hold_message *m);
/* Notes that all operations of the rank have ended, and that it answers no message. */
void df_lead_gone(struct df_lane *lane, int rank);
/* Whether rank 0 watches the communicator. */
int df_lead_watches(const struct df_lane *lane);
/* Whether rank 0 waits for a message of the rank. */
int df_lead_waits_for(const struct df_lane *lane, int rank);
/*
 * Does the work of rank 0: finds groups that can end, permits their launch on the reserve, and ends
 * the watching after a while. Returns whether a watching is under way.
 */
int df_lead_turn(struct df_lane *lane);
/* Frees lane->hold.lead. Called by the thread that frees the lane. */
void df_lead_free(struct df_lane *lane);

#endif
