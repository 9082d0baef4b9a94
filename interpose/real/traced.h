/*
 * Records calls of NCCL that the real library executes (mode trace): groups and operations
 * (traced.c), communicators (traced_comm.c).
 */
#ifndef DF_INTERPOSE_REAL_TRACED_H
#define DF_INTERPOSE_REAL_TRACED_H

#include "interpose/nccl/nccl_coll.h"

struct df_record_nccl;

void df_traced_begin(struct df_traced_op *o, const struct df_traced_call *c, ncclComm_t comm,
		     const void *pc);
/* Ends the record of a call. Returns the result to report to the application. */
ncclResult_t df_traced_end(struct df_traced_op *o, ncclResult_t result);

/*
 * Begins a group of the real library in this thread. The end calls the real ncclGroupEnd, which may
 * block, and records it before and after.
 */
void df_traced_group_start(void);
ncclResult_t df_traced_group_end(uint32_t site);
/* Drops the group's calls: the real library ended it without running (ncclGroupSimulateEnd). */
void df_traced_group_dropped(void);
/*
 * Call when NCCL has reported this asynchronous state of the communicator. Returns the state to
 * report to the application.
 */
ncclResult_t df_traced_settled(ncclComm_t comm, ncclResult_t state);

/*
 * Call when a call that can block begins; df_traced_leave() takes its result. If `comm` is NULL,
 * `object` identifies the object of the call. Returns the serial of the call.
 */
uint64_t df_traced_enter(enum df_call call, ncclComm_t comm, uint64_t object, uint64_t detail,
			 uint32_t site);
void df_traced_leave(uint64_t serial, enum df_call call, ncclResult_t result);

/*
 * Calls the real library's ncclGetUniqueId. In mode trace the id also carries our rendezvous, by
 * which the processes of the job find each other.
 */
ncclResult_t df_traced_id(ncclUniqueId *id);
/* Announces to the job's other processes that this rank is about to create a communicator. */
void df_traced_join(uint64_t hash, int nr_ids, const ncclUniqueId *ids, int nranks, int rank);
/*
 * Calls the real library's ncclCommGetUniqueId. The id also carries the hash of the communicator
 * that will grow from `comm`, and in mode trace our rendezvous.
 */
ncclResult_t df_traced_grow_id(ncclComm_t comm, ncclUniqueId *id);
/*
 * Call when this rank is about to call ncclCommGrow. `comm` and `id` are its arguments; stores the
 * number that the rank will have. Returns the hash of the new communicator, equal on all its ranks,
 * or 0 if it is not recorded.
 */
uint64_t df_traced_grow(ncclComm_t comm, const ncclUniqueId *id, int nranks, int *rank);

/*
 * Call before a communicator is created, by ncclCommInitRank and its like or by ncclCommGrow.
 * `rank` -1 means all its ranks. Follow with
 * df_traced_leave(), or with df_traced_made(), which also adds the communicator if it was created.
 */
uint64_t df_traced_init(enum df_call call, uint64_t hash, int nranks, int rank, const void *pc);
void df_traced_made(enum df_call call, ncclComm_t *comm, uint64_t hash, int nranks, int rank,
		    const char *name, uint64_t serial, ncclResult_t result);
/* Adds a communicator of the real library. If `nranks` is 0, asks NCCL for its size and rank. */
void df_traced_comm_add(ncclComm_t comm, uint64_t hash, int nranks, int rank, uint64_t parent,
			const char *name);
/*
 * Called instead of df_traced_leave() for a call that finalized, destroyed or aborted the
 * communicator.
 */
void df_traced_ended(ncclComm_t comm, enum df_call call, uint64_t serial, ncclResult_t result);

/*
 * Called instead of df_traced_leave() for a call that created a child of `comm`. NCCL may write the
 * child's handle later.
 */
void df_traced_divided(enum df_call call, ncclComm_t comm, ncclComm_t *child, uint64_t hash,
		       const char *name, uint64_t serial, ncclResult_t result);

/*
 * Returns the hash of a new child of `comm`. It is equal on all ranks that create the same children
 * in the same order.
 */
uint64_t df_traced_child_hash(ncclComm_t comm, uint64_t salt);
/* The functions of the real library that the thread of mode trace calls. */
const struct df_record_nccl *df_traced_nccl(void);
/* Returns a hash for a communicator without a visible id (ncclCommInitAll). */
uint64_t df_traced_local_hash(void);

#endif
