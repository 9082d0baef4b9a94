/*
 * What the runtime offers to interpose/: communicators and operations, in the field's terms, without a
 * type of NCCL or CUDA. Everything above this line knows NCCL's handles, groups, codes and texts; everything
 * below it knows none of them.
 *
 * Results: 0 or -errno (runtime/base/err.h). Functions that can block say so; none of them holds a lock
 * of ours while it waits for a peer, a stream, or the driver.
 */
#ifndef DF_RUNTIME_DFSHIM_H
#define DF_RUNTIME_DFSHIM_H

#include <stddef.h>
#include <stdint.h>
#include "kernels/abi.h"
#include "runtime/program/program.h"

#define DF_ID_BYTES   128
#define DF_NAME_BYTES 64

/* ---- life of the library ------------------------------------------------------------------------ */

/*
 * Starts the runtime of this process: backend, trace, threads on demand. Idempotent, thread-safe, may be
 * slow the first time. -EOPNOTSUPP: no usable device (the reason is in df_start_reason()).
 */
int df_start(void);
const char *df_start_reason(void);
/*
 * After df_start() has failed: sets up as much as it takes to join communicators, so that their ranks learn of it
 * together; df_comm_join() is then all that can be done with them, and df_comm_allgather(). -errno: not even that.
 */
int df_start_unable(void);
/* The end of the process: counters, trace, good-bye to the peers. For the destructor; and for _exit(): async-signal-safe. */
void df_stop(void);
void df_stop_at_exit(void);
/* 1 when the daemon runs on CPU threads. Valid after df_start(). */
int df_on_host(void);

/* The current device of the calling thread, or set it. */
int df_device_get(void);
int df_device_set(int device);
int df_device_count(void);

/* ---- communicators -------------------------------------------------------------------------------- */

struct df_comm;

/*
 * Makes an id: the first 40 bytes stay free for the real library's handle (*may* be filled by the
 * caller), our rendezvous (address, pid, nonce) lies behind. The process then serves the rendezvous
 * until all ranks have come. An id serves one communicator.
 */
int df_id_create(unsigned char id[DF_ID_BYTES]);
/* An id for host:port, as NCCL_COMM_ID demands: the same on every rank; rank 0 serves it. */
int df_id_from_address(const char *host_port, unsigned char id[DF_ID_BYTES]);
/* 1: the id was made by a process under dfshim. */
int df_id_is_ours(const unsigned char id[DF_ID_BYTES]);
/*
 * This rank can't join, and its process has perhaps no control plane: tells those who wait at the rendezvous, which
 * fails for all of them with this reason. Blocks, at most some 10 s. 0, or -errno: they were not told.
 */
int df_id_decline(int nr_ids, const unsigned char (*ids)[DF_ID_BYTES], int nranks, int rank,
		  const char *why);
/* NCCL's hash of the 128 bytes (getHash), the commHash of its logs. */
uint64_t df_id_hash(const unsigned char id[DF_ID_BYTES]);

struct df_comm_config {
	char name[DF_NAME_BYTES]; /* commName, or "" */
	char net[DF_NAME_BYTES];  /* netName, or ""; a child by shrink has its parent's */
	int share;		  /* splitShare, shrinkShare: abort of one aborts the family */
	int max_blocks;		  /* maxCTAs; 0 no limit */
	const char *bound; /* why it can't go over to the real library, or NULL; stays there */
	const void *real;  /* for struct df_lane_calls.make; stays there */
};

enum df_comm_state {
	DF_COMM_NEW,	 /* created, not joined */
	DF_COMM_JOINING, /* in rendezvous */
	DF_COMM_READY,
	DF_COMM_REVOKED,
	DF_COMM_FINALIZED,
	DF_COMM_ABORTED,
	DF_COMM_FAILED, /* see df_comm_error() */
};

/* A communicator object on a device of this process; not yet joined. */
int df_comm_create(int device, const struct df_comm_config *config, struct df_comm **out);
/*
 * Joins: blocks until all ranks of the id have come (or the communicator is aborted by another thread:
 * -ECANCELED). ids: nr_ids of them (ncclCommInitRankScalable), the first gives the hash. -EPROTO: a
 * rank that is not under dfshim, another version, a rank taken twice, or nranks that differ; -EOPNOTSUPP: the runtime of one rank could not start, and one can't
 * go over to the real library. After an error the communicator can only be destroyed.
 * DF_JOIN_UNABLE: all ranks have come, and all are told that the runtime of some could not start. Then the
 * communicator serves for df_comm_allgather() and nothing else, on all of them.
 */
#define DF_JOIN_UNABLE 1
int df_comm_join(struct df_comm *comm, int nr_ids, const unsigned char (*ids)[DF_ID_BYTES],
		 int nranks, int rank);
/*
 * Joins the part of `parent` with the same color (collective over the parent; blocks). color < 0: takes
 * part, gets nothing (comm is NULL then). Ranks are ordered by key, then by the parent's rank.
 */
int df_comm_join_split(struct df_comm *comm, struct df_comm *parent, int color, int key);
/* Joins the ranks of `parent` that are not excluded (sorted list); abort: end its operations first. */
int df_comm_join_shrink(struct df_comm *comm, struct df_comm *parent, const int *exclude,
			int nr_exclude, int abort);

/*
 * Gives `bytes` bytes to every rank, gets those of all in rank order: out has nranks * bytes. Collective over the
 * communicator, as split is; blocks. 0, -ECONNRESET, -ECANCELED.
 */
int df_comm_allgather(struct df_comm *comm, const void *in, size_t bytes, void *out);

/* Waits until everything submitted has finished. Blocks. 0, -ECANCELED, -ECONNRESET. */
int df_comm_finalize(struct df_comm *comm);
/* Frees it; waits for its operations unless it was aborted or failed. Blocks. */
void df_comm_destroy(struct df_comm *comm);
/*
 * Ends every operation on it at once, with undefined data: streams that wait become runnable, calls that
 * block in it return. May be called from any thread, in any state. Returns when the daemon has let go of
 * the user's buffers (bounded). The communicator can then only be queried and destroyed.
 */
void df_comm_abort(struct df_comm *comm);
/* As abort for the operations in flight; later operations are refused, split and shrink are not. */
int df_comm_revoke(struct df_comm *comm);

int df_comm_nranks(const struct df_comm *comm);
int df_comm_rank(const struct df_comm *comm);
uint64_t df_comm_hash(const struct df_comm *comm);
enum df_comm_state df_comm_state(const struct df_comm *comm);
/* 0, or what ended it: -ECONNRESET (a peer died), -ETIMEDOUT (time-out with abort), ... Any thread. */
int df_comm_error(const struct df_comm *comm);

/* ---- operations ------------------------------------------------------------------------------------ */

/*
 * How to see that an operation is done (or ended with its communicator): *done >= value, with an acquire
 * that pairs with the daemon's release of the results. The word stays valid for ever.
 */
struct df_ticket {
	const uint64_t *done;
	uint64_t value;
};

/* As a stream: ordered with nothing but operations of the communicator whose buffers overlap. */
#define DF_NO_STREAM ((const void *)~(uintptr_t)0)

struct df_op {
	enum df_coll_kind kind;
	struct df_comm *comm;
	const void *send;
	void *recv;
	uint64_t count; /* as the NCCL call counts (struct df_prog_req) */
	uint32_t type;	/* enum df_type */
	uint32_t redop; /* enum df_redop; AVG lowered by the caller, see kernels/abi.h */
	uint64_t redop_arg;
	const void
		*redop_ptr; /* the scalar on the device, read when the operation starts, or NULL */
	int root;	    /* root, or the peer of SEND and RECV */
	const void *stream; /* cudaStream_t as the application gave it */
	uint32_t site;	    /* df_trace_site() */
	uint32_t id;  /* tells collectives of equal arguments apart (native API); 0 otherwise */
	int priority; /* under DFSHIM_ORDER=priority: added to that of the stream */
	struct df_ticket *ticket; /* NULL, or filled in; not for a capturing stream */
};

/*
 * Submits the operations of one group, in the order of issue. Never waits for a peer. All or nothing: on an error none of them
 * runs. -EINVAL: not a stream of this process; -ECANCELED, -ECONNRESET: a communicator ended;
 * -ENOMEM. Streams may be capturing (all or none): the operations become nodes of the graph.
 */
int df_submit(const struct df_op *ops, size_t nr_ops);

/*
 * Of the blocking call that this thread is about to make: its call site (df_trace_site()), 0: none; and where its
 * serial goes, for df_call_polled(): NULL or a word that other threads read.
 */
void df_call_about(uint32_t site, uint64_t *serial);
/* The calling thread has asked whether a call that goes on in the background is over, and it is not; 0: there is none. */
void df_call_polled(uint64_t serial);

/* Operations of the communicator not yet finished. Any thread. */
uint64_t df_comm_pending(const struct df_comm *comm);

/* ---- what NCCL executes, recorded (mode trace) ------------------------------------------------------ */

/* The calls of NCCL that the thread of mode trace makes. */
struct df_record_nccl {
	/* Ends all that is stuck with ncclRemoteError. Returns 0 if it cannot. verdict: one line. */
	int (*stop)(const char *verdict);
	/* df_record_no_slot() for each communicator that waits for a slot; NULL: not known. */
	void (*slot_waits)(void);
};
/* Opens the trace and starts that thread. Returns 0, or -errno: nothing is recorded. */
int df_record_start(const struct df_record_nccl *nccl);
void df_record_no_slot(uint32_t comm); /* of df_trace_comm() */
/* This thread is inside NCCL, so many calls deep: what it does with CUDA is NCCL's doing. */
extern __thread int df_record_inside __attribute__((tls_model("initial-exec")));

/* A call of NCCL that issues an operation, as it is recorded. */
struct df_record_call {
	enum df_coll_kind kind;
	int type, redop, peer; /* peer: or root; -1 none */
	uint64_t count;
	const void *send;
	void *recv;
	uint32_t comm, site; /* of df_trace_comm(), df_trace_site() */
	int32_t rank, device;
};

/* An operation between df_record_before() and df_record_after(). */
struct df_record_op {
	uint64_t op; /* serial */
	uint32_t comm;
	int32_t rank, device;
	const void *stream;
	void *on;	/* the recorded stream; NULL: `stream` says which */
	void *owner;	/* the caller's */
	uint64_t group; /* serial, 0 none */
	int seen;	/* its end will be seen */
	uint64_t from, to;
};

/*
 * An operation is about to be put on the stream: written down, and *op filled for df_record_before(). 0: the stream
 * captures; then it is written down with each launch of the graph. intend: NCCL has to connect first, in that call.
 */
int df_record_intend(const struct df_record_call *c, const void *stream, uint64_t call);
int df_record_issue(const struct df_record_call *c, const void *stream, uint64_t group,
		    struct df_record_op *op);
/* Around the call of NCCL that puts them on their streams. begun 0: it did not, or not yet. */
void df_record_before(struct df_record_op *ops, size_t nr);
void df_record_after(struct df_record_op *ops, size_t nr, int begun);

/* A call of NCCL that can block: the result goes to df_record_leave(). call: enum df_call. */
uint64_t df_record_enter(uint32_t call, uint32_t comm, int rank, int device, uint64_t object,
			 uint64_t detail, uint32_t site);
void df_record_leave(uint64_t serial, uint32_t call, uint64_t result);
/* The call has come back, and NCCL goes on with it until df_record_leave(). */
void df_record_goes_on(uint64_t serial, uint32_t call);
/* The device of this thread, -1 unknown. */
int df_record_device(void);

/* ---- memory ---------------------------------------------------------------------------------------- */

/* ncclMemAlloc: device memory of the current device that peers can map. */
int df_mem_alloc(size_t bytes, void **out);
int df_mem_free(void *ptr);
/* 1 if the device (or the host, on the host backend) can read the range; for NCCL_CHECK_POINTERS. */
int df_mem_known(const void *ptr);

#endif
