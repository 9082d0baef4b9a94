/*
 * What is recorded around calls that the real library executes (traced.c).
 */
#ifndef DF_INTERPOSE_NCCL_NCCL_COLL_H
#define DF_INTERPOSE_NCCL_NCCL_COLL_H

#include "interpose/nccl/nccl_types.h"
#include "runtime/dfshim.h"
#include "trace/record/format.h"

struct df_traced_call {
	enum df_coll_kind kind;
	const void *send;
	void *recv;
	size_t count;
	int type, redop, root;
	cudaStream_t stream;
};

/* Around the real library's call that issues an operation. Not recorded when NCCL itself makes the call. */
struct df_traced_op {
	void *t;  /* NULL: nothing is left to do at the end */
	void *on; /* its communicator; NULL: not recorded */
	uint64_t serial;
	enum df_call call;
	struct df_record_op op;
	/* A first use, which connects before it issues: it is recorded as issued when that is done. */
	int intended;
	uint32_t site;
	struct df_traced_call what;
};
void df_traced_begin(struct df_traced_op *o, const struct df_traced_call *c, ncclComm_t comm,
		     const void *pc);
/* Returns the result to report to the application. */
ncclResult_t df_traced_end(struct df_traced_op *o, ncclResult_t result);

/* The thread opens a group of the real library; the real ncclGroupEnd, which may block, between two records. */
void df_traced_group_start(void);
ncclResult_t df_traced_group_end(uint32_t site);
/* The real library's group has ended without running (ncclGroupSimulateEnd). */
void df_traced_group_dropped(void);

/* NCCL has reported this asynchronous state; returns the one to report to the application. */
ncclResult_t df_traced_settled(ncclComm_t comm, ncclResult_t state);

/* A call that can block begins; the result goes to df_traced_leave(). comm NULL: object says on what. */
uint64_t df_traced_enter(enum df_call call, ncclComm_t comm, uint64_t object, uint64_t detail,
			 uint32_t site);
void df_traced_leave(uint64_t serial, enum df_call call, ncclResult_t result);

/*
 * A communicator is about to be made, rank -1: all its ranks; for df_traced_leave(), or for df_traced_made(), which also
 * says whether it was.
 */
uint64_t df_traced_init(ncclComm_t *comm, uint64_t hash, int nranks, int rank, const void *pc);
void df_traced_made(ncclComm_t *comm, uint64_t hash, int nranks, int rank, uint64_t serial,
		    ncclResult_t result);

/* A communicator of the real library appears; nranks 0: it is asked for its size and rank. */
void df_traced_comm_add(ncclComm_t comm, uint64_t hash, int nranks, int rank, uint64_t parent);
/* Instead of df_traced_leave(): it was finalized, destroyed or aborted. */
void df_traced_ended(ncclComm_t comm, enum df_call call, uint64_t serial, ncclResult_t result);
/* Instead of df_traced_leave(): this child was made of it; its handle may be written later. */
void df_traced_divided(enum df_call call, ncclComm_t comm, ncclComm_t *child, uint64_t hash,
		       uint64_t serial, ncclResult_t result);
/* The hash for a child of `comm`: equal on all ranks that make the same children in the same order. */
uint64_t df_traced_child_hash(ncclComm_t comm, uint64_t salt);
/* The calls of the real library that the thread of mode trace makes. */
const struct df_record_nccl *df_traced_nccl(void);
/* A hash for a communicator whose id we never see (ncclCommInitAll). */
uint64_t df_traced_local_hash(void);

#endif
