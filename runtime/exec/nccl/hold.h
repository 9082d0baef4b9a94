/*
 * Operations that are held because the multiprocessors are short (budget.h), and how they are
 * launched nevertheless: the protocol of a communicator's ranks, over the control plane.
 *
 * A rank that holds a group asks rank 0 to *watch* the communicator. From then on each rank
 * announces its groups to rank 0, in order, as soon as their data is there. Rank 0 looks for sets
 * of groups that need only one another, all of which are announced. It asks for the reserves of
 * those devices that have not launched theirs, one after the other, in ascending order of
 * df_member.device_id, and then says go to all. All holders of reserves ask in this order. A set
 * has all that its groups need to end: their peers, and the groups before them on their lanes that
 * have not ended. So reserves are always given back. When nothing is held for a while, the watching
 * ends. tests/model/lanes.pml is the model for collectives.
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
	int32_t peer;	/* of a message; else 0 */
	uint64_t nr;	/* among the idents of this class and peer, from 0 on */
};

/* A rank's part. Guarded by the lane's lock unless said. */
struct df_hold {
	uint64_t *counts; /* operations of each kind: collectives, sends and receives by peer */
	uint32_t watch;	  /* number of the watching under way; 0: none */
	uint64_t said;	  /* groups up to this one have been announced in it */
	struct df_lane_op *next; /* the first of the group after it; NULL: there is none yet */
	/* The thread's: */
	int asked;	      /* rank 0 has been asked to watch */
	uint32_t give;	      /* the watching in which rank 0 asks for the reserve */
	uint64_t oldest;      /* the oldest group that has not ended, as rank 0 knows it */
	uint64_t looked;      /* when it last looked whether the ranks it waits for live */
	struct df_lead *lead; /* on rank 0 */
};

/* Returns 0 or -ENOMEM. */
int df_hold_init(struct df_lane *lane);
void df_hold_fini(struct df_lane *lane);
/* Gives an operation that enters the lane's list its ident. Lane's lock held. */
void df_hold_ident(struct df_lane *lane, struct df_lane_op *e);
/* Whether an operation that has ended may be forgotten. Lane's lock held. */
int df_hold_may_forget(const struct df_lane *lane, const struct df_lane_op *e);

/* A message of another rank has arrived. Does not block. Returns 1 if there is one to read. */
int df_hold_heard(const void *data, size_t bytes);

/* Whether other ranks wait for what the lane has to say. No lock held. */
int df_hold_is_watched(struct df_lane *lane);

/* The calls below belong to the lanes' thread; no lock held. */

/* Reads the messages that have arrived. find: of this process, with a use that put() ends. */
void df_hold_read(struct df_lane *(*find)(uint64_t hash, int rank),
		  void (*put)(struct df_lane *lane));
/* Sends what a lane has to say, and does what its rank 0 has to do. */
void df_hold_turn(struct df_lane *lane);

/* ---- for lead.c ---- */

struct df_hold_head;

/* A held operation could not be launched any more: ends the communicator. */
void df_hold_no_memory(struct df_lane *lane);
/* Sends it to that rank; fills in comm, proc, from, to and nr. */
void df_hold_send(struct df_lane *lane, int to, struct df_hold_head m);
/* Sends rank 0 a report of the size of that number of idents. */
void df_hold_report(struct df_lane *lane, const void *report, size_t idents);
/* Counts of collectives and, for each rank, of sends and receives; all 0. NULL: no memory. */
uint64_t *df_hold_new_counts(int nranks);
/* The count of the ident's kind. */
uint64_t *df_hold_count(uint64_t *counts, int nranks, const struct df_ident *id);

#endif
