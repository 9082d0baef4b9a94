/*
 * Operations that are held because the multiprocessors are short (budget.h), and how they are
 * launched nevertheless: the protocol of a communicator's ranks, over the control plane.
 *
 * A rank that has held a group for a while asks rank 0 to *watch* the communicator. From then on
 * each rank announces its groups to rank 0, in order, as soon as their data is there. Rank 0 looks
 * for sets of announced groups that need only one another. For devices that have not launched their
 * groups it asks for the reserves, one after the other, in ascending order of df_member.device_id.
 * Then it lets all ranks launch. All holders of reserves ask in this order. A set has all that its
 * groups need to end: their peers, and the groups before them on their lanes that have not ended.
 * So reserves are always given back. After a while the watching ends, until a rank asks again.
 * tests/model/lanes.pml is the model for collectives.
 *
 * A group's *idents* say who its peers are: the n-th collective of the communicator, or the n-th
 * message of a pair of ranks.
 */
#ifndef DF_RUNTIME_EXEC_NCCL_HOLD_H
#define DF_RUNTIME_EXEC_NCCL_HOLD_H

#include <stddef.h>
#include <stdint.h>

struct df_lane;
struct df_lane_op;

enum df_ident_class { DF_IDENT_COLL, DF_IDENT_SEND, DF_IDENT_RECV };

struct df_ident {
	uint32_t class; /* enum df_ident_class */
	int32_t peer;	/* peer of a message; 0 for a collective */
	uint64_t nr;	/* number among the idents of this class and peer, from 0 on */
};

/* The state of one rank. Guarded by the lane's lock except where stated. */
struct df_hold {
	uint64_t *counts; /* numbers of operations: collectives, sends by peer, receives by peer */
	uint32_t watch;	  /* number of the watching under way; 0 if there is none */
	uint64_t said;	  /* the last group that was announced in this watching */
	/* first operation of the group after `said`; NULL if that group is not in the list yet */
	struct df_lane_op *next;
	/* Only the lanes' thread uses these: */
	int asked;	 /* whether this rank has asked rank 0 to watch */
	uint64_t since;	 /* since when the next group is held although its data is ready, or 0 */
	uint32_t give;	 /* number of the watching in which rank 0 asks for the reserve */
	uint64_t oldest; /* the oldest group that has not ended, as reported to rank 0 */
	/* when the thread last checked that the ranks for which it waits are alive */
	uint64_t looked;
	struct df_lead *lead; /* NULL except on rank 0 */
};

/* Returns 0 or -ENOMEM. */
int df_hold_init(struct df_lane *lane);
void df_hold_fini(struct df_lane *lane);
/*
 * Numbers an operation that enters the lane's list among those of its kind and peer (`ident`). A
 * send to the rank itself gets no number. The caller holds the lane's lock.
 */
void df_hold_ident(struct df_lane *lane, struct df_lane_op *e);
/* Whether an operation that has ended may be forgotten. The caller holds the lane's lock. */
int df_hold_may_forget(const struct df_lane *lane, const struct df_lane_op *e);

/*
 * Called when a message of another rank has arrived. Does not block. Returns 1 if it was queued for
 * df_hold_read().
 */
int df_hold_heard(const void *data, size_t bytes);

/*
 * Whether rank 0 watches the lane, so that its changes must be reported at once. The caller holds
 * no lock.
 */
int df_hold_is_watched(struct df_lane *lane);

/* Only the lanes' thread calls the functions below, with no lock held. */

/*
 * Reads the messages that have arrived. find() returns a lane of this process and takes a use of
 * it; put() drops the use.
 */
void df_hold_read(struct df_lane *(*find)(uint64_t hash, int rank),
		  void (*put)(struct df_lane *lane));
/*
 * Sends the lane's announcements and reports. On rank 0, also does the work of rank 0. Returns
 * whether it must be called again soon, although nothing is held on the device.
 */
int df_hold_turn(struct df_lane *lane);

/* ---- for lead.c ---- */

struct df_hold_head;

/*
 * Ends the communicator, because a held operation cannot be launched any more for lack of
 * memory.
 */
void df_hold_no_memory(struct df_lane *lane);
/* Sends the message to rank `to`. Fills in comm, proc, from, to and nr. */
void df_hold_send(struct df_lane *lane, int to, struct df_hold_head m);
/* Sends rank 0 a report that has the size of `idents` idents. */
void df_hold_report(struct df_lane *lane, const void *report, size_t idents);
/*
 * Returns an array of counts: of collectives and, for each rank, of sends and receives. All are 0.
 * Returns NULL if memory is short.
 */
uint64_t *df_hold_new_counts(int nranks);
/* Returns the address of the count of the ident's class and peer. */
uint64_t *df_hold_count(uint64_t *counts, int nranks, const struct df_ident *id);

#endif
