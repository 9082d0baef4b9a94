/*
 * Recording of the operations that NCCL executes (mode trace): the part of runtime/dfshim.h that
 * runtime/record implements.
 */
#ifndef DF_RUNTIME_RECORDED_H
#define DF_RUNTIME_RECORDED_H

#include <stddef.h>
#include <stdint.h>
#include "runtime/program/program.h"

/* Calls of NCCL that the watchdog thread of mode trace makes. */
struct df_record_nccl {
	/* Ends all stuck operations with ncclRemoteError. Returns 0 if it cannot. */
	int (*stop)(void);
	/*
	 * Calls df_record_no_slot() for each communicator that waits for a slot. NULL: not known
	 * here.
	 */
	void (*slot_waits)(void);
};
/* Opens the trace and starts the watchdog thread. On an error nothing is recorded. */
int df_record_start(const struct df_record_nccl *nccl);
/* The process exits: closes the trace. Async-signal-safe. */
void df_record_stop(void);
/*
 * The control plane of mode trace. An id that NCCL has made: adds our rendezvous to it, or leaves
 * it as it is.
 */
void df_record_id(unsigned char id[128]);
/*
 * The same for an id by which other ranks join a communicator that grows; `parent` is the hash of
 * that one, `hash` that of the new one, which the id carries to the new ranks (df_id_named()). This
 * process passes the id on to the ranks of the parent, which do not get it from NCCL. With `parent`
 * 0 the id only gets the hash.
 */
void df_record_grow_id(unsigned char id[128], uint64_t hash, uint64_t parent);
/*
 * A rank of the parent is about to make the communicator that has grown. It joins the others when
 * it has got the id, even if the parent has ended by then.
 */
void df_record_grow(uint64_t hash, uint64_t parent, int nranks, int rank);
/*
 * Call before NCCL makes a communicator by these ids (grows: by ncclCommGrow()), after it has made
 * it, and after it has ended it. trace: the number from df_trace_comm(). parent: the hash of the
 * communicator that it was split from, or 0. The ranks join in the background. These functions wait
 * for no peer and cannot fail.
 */
void df_record_join(uint64_t hash, int nr_ids, const unsigned char (*ids)[128], int nranks,
		    int rank, int grows);
void df_record_made(uint64_t hash, int rank, uint32_t trace, uint64_t parent);
void df_record_ended(uint64_t hash, int rank);
/* comm: of df_trace_comm(). */
void df_record_no_slot(uint32_t comm);
/* Depth of this thread's calls into NCCL. If not 0, its CUDA calls are NCCL's. */
extern __thread int df_record_inside __attribute__((tls_model("initial-exec")));

/* A call of NCCL that issues an operation. */
struct df_record_call {
	enum df_coll_kind kind;
	int type, redop, peer; /* peer: the peer or the root; -1: none */
	uint64_t count;
	const void *send;
	void *recv;
	uint32_t comm, site; /* from df_trace_comm(), df_trace_site() */
	int32_t rank, device;
	uint64_t serial; /* of its record; 0: a new one */
};

/* An operation between df_record_before() and df_record_after(). */
struct df_record_op {
	uint64_t op; /* serial */
	uint32_t comm;
	int32_t rank, device;
	const void *stream;
	void *on;	/* the recorded stream; NULL: `stream` is it */
	void *owner;	/* for the caller's use */
	uint64_t group; /* serial; 0: none */
	int seen;	/* its end will be seen */
	uint64_t from, to;
	uint64_t behind; /* what its stream waits for by an event, in the form of record.c */
};

/*
 * Record an operation that is about to be enqueued. df_record_issue() also fills *op for
 * df_record_before(); it returns 0 if the stream captures: then each launch of the graph records
 * it. df_record_intend(): NCCL has to connect first, in that call.
 */
int df_record_intend(const struct df_record_call *c, const void *stream, uint64_t call);
int df_record_issue(const struct df_record_call *c, const void *stream, uint64_t group,
		    struct df_record_op *op);
/*
 * Call these before and after the call that enqueues the operations: a call of NCCL, or the launch
 * of a graph. `begun`: whether that call has enqueued them.
 */
void df_record_before(struct df_record_op *ops, size_t nr);
void df_record_after(struct df_record_op *ops, size_t nr, int begun);

/* Records a call of NCCL that can block, enum df_call. Returns its serial for df_record_leave(). */
uint64_t df_record_enter(uint32_t call, uint32_t comm, int rank, int device, uint64_t object,
			 uint64_t detail, uint32_t site);
void df_record_leave(uint64_t serial, uint32_t call, uint64_t result);
/* The call has returned, and NCCL continues it until df_record_leave(). */
void df_record_goes_on(uint64_t serial, uint32_t call);
/* Returns the device of this thread; -1 if unknown. */
int df_record_device(void);

#endif
