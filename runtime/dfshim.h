/*
 * The runtime's interface for interpose/: communicators and operations, in the field's terms,
 * without types of NCCL or CUDA. Only interpose/ knows NCCL's handles, groups, codes and texts.
 *
 * Results are 0 or -errno (runtime/base/err.h). Functions that can block say so; none holds an
 * internal lock while it waits for a peer, a stream, or the driver.
 */
#ifndef DF_RUNTIME_DFSHIM_H
#define DF_RUNTIME_DFSHIM_H

#include <stddef.h>
#include <stdint.h>
#include "kernels/abi.h"
#include "runtime/program/program.h"
#include "runtime/recorded.h"

#define DF_ID_BYTES   128
#define DF_NAME_BYTES 64

/* ---- life of the library ----------------------------------------------------------------- */

/*
 * Starts the runtime of this process: backend, trace; threads start when they are needed.
 * Idempotent, thread-safe; the first call may be slow. Fails with -EOPNOTSUPP if there is no usable
 * device; df_start_reason() says why.
 */
int df_start(void);
const char *df_start_reason(void);
/*
 * Called after df_start() has failed: sets up enough to join communicators, so that all their ranks
 * learn of the failure together. Only df_comm_join() and df_comm_allgather() work then. -errno:
 * even that failed.
 */
int df_start_unable(void);
/*
 * At the end of the process: writes counters and trace, reports the exit to peers. df_stop() is for
 * the destructor, df_stop_at_exit() for _exit(): it is async-signal-safe.
 */
void df_stop(void);
void df_stop_at_exit(void);
/* Whether CPU threads execute the daemon. Valid after df_start(). */
int df_on_host(void);
/* Whether NCCL's own kernels execute on lanes. Valid after df_start(). */
int df_on_lanes(void);

/* Get and set the current device of the calling thread. */
int df_device_get(void);
int df_device_set(int device);
int df_device_count(void);

/* ---- communicators ----------------------------------------------------------------------- */

struct df_comm;

/*
 * Makes an id. The first 40 bytes are free for the real library's handle, which the caller may
 * store there; our rendezvous (address, pid, nonce) follows. The process then serves the rendezvous
 * until all ranks have arrived. An id serves one communicator.
 */
int df_id_create(unsigned char id[DF_ID_BYTES]);
/* Makes an id for host:port, as NCCL_COMM_ID demands: the same on every rank; rank 0 serves it. */
int df_id_from_address(const char *host_port, unsigned char id[DF_ID_BYTES]);
/*
 * Adds our rendezvous to an id of NCCL's, in the bytes that its handle leaves zero, and serves it:
 * the ranks that mode trace watches find each other by it. NCCL ignores these bytes. Returns
 * -EBUSY if they are not zero; on an error the id is unchanged. name: public name of the id, or 0
 * for a random one.
 */
int df_id_watch(unsigned char id[DF_ID_BYTES], uint64_t name);
/* Adds only the name: an id without our rendezvous. */
int df_id_name(unsigned char id[DF_ID_BYTES], uint64_t name);
/* Returns the name that was added to an id of NCCL's, or 0. */
uint64_t df_id_named(const unsigned char id[DF_ID_BYTES]);
int df_id_is_watched(const unsigned char id[DF_ID_BYTES]);
/* Whether a process under dfshim made the id, for communicators of its own. */
int df_id_is_ours(const unsigned char id[DF_ID_BYTES]);
/*
 * Used when this rank cannot join, perhaps because its process has no control plane: reports that
 * to the rendezvous, so that joining fails on all ranks with this reason. Blocks for at most about
 * 10 s. Returns -errno if they could not be informed.
 */
int df_id_decline(int nr_ids, const unsigned char (*ids)[DF_ID_BYTES], int nranks, int rank,
		  const char *why);
/* NCCL's hash of the 128 bytes (getHash): the commHash of its logs. */
uint64_t df_id_hash(const unsigned char id[DF_ID_BYTES]);

struct df_comm_config {
	char name[DF_NAME_BYTES]; /* commName, or "" */
	char net[DF_NAME_BYTES];  /* netName, or ""; a child by shrink has its parent's */
	int share;	/* splitShare, shrinkShare: aborting one communicator aborts its family */
	int max_blocks; /* maxCTAs; 0 no limit */
	int grows;	/* ncclCommGrow makes it */
	/* Why it cannot be handed to the real library, or NULL; the caller keeps the string. */
	const char *bound;
	/* For struct df_lane_calls.make; the caller keeps it. */
	const void *real;
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

/* Makes a communicator object on a device of this process. It has not joined yet. */
int df_comm_create(int device, const struct df_comm_config *config, struct df_comm **out);
/*
 * Joins: blocks until all ranks of the id have arrived, or another thread aborts the communicator
 * (-ECANCELED). ids: nr_ids of them (ncclCommInitRankScalable), the first gives the hash.
 *
 * Fails with -EPROTO if a rank runs without dfshim, has another version, is taken twice, or has
 * another nranks; with -EOPNOTSUPP if the runtime of one rank could not start and some rank cannot
 * use the real library. After an error the communicator can only be destroyed.
 *
 * DF_JOIN_UNABLE: all ranks have arrived, and each knows that the runtime of some rank could not
 * start. On all ranks the communicator then serves only df_comm_allgather().
 */
#define DF_JOIN_UNABLE 1
int df_comm_join(struct df_comm *comm, int nr_ids, const unsigned char (*ids)[DF_ID_BYTES],
		 int nranks, int rank);
/*
 * Joins the ranks of `parent` with the same color (collective over the parent; blocks). A rank with
 * color < 0 calls it too and gets no communicator: comm is NULL. Ranks are ordered by key, then by
 * the parent's rank.
 */
int df_comm_join_split(struct df_comm *comm, struct df_comm *parent, int color, int key);
/*
 * Joins the ranks of `parent` that are not excluded (sorted list). abort: first ends its
 * operations.
 */
int df_comm_join_shrink(struct df_comm *comm, struct df_comm *parent, const int *exclude,
			int nr_exclude, int abort);
/*
 * Joins the ranks of `parent`, which keep their numbers, and new ones, which use df_comm_join().
 * id: NULL except on the rank that made it. Fails with -EINVAL if no rank did.
 */
int df_comm_join_grown(struct df_comm *comm, struct df_comm *parent, const unsigned char *id,
		       int nranks);

/*
 * Sends `bytes` bytes to every rank and gets those of all, in rank order: out has nranks * bytes.
 * Collective over the communicator; blocks. Fails with -ECONNRESET, -ECANCELED.
 */
int df_comm_allgather(struct df_comm *comm, const void *in, size_t bytes, void *out);

/*
 * Waits until all submitted operations have finished. Blocks. Fails with -ECANCELED, -ECONNRESET.
 */
int df_comm_finalize(struct df_comm *comm);
/* Frees it; waits for its operations unless it was aborted or failed. Blocks. */
void df_comm_destroy(struct df_comm *comm);
/*
 * Ends all its operations at once, with undefined data: waiting streams continue, and calls that
 * block in it return. Any thread, any state. Returns when the daemon no longer uses the user's
 * buffers (bounded). The communicator can then only be queried and destroyed.
 */
void df_comm_abort(struct df_comm *comm);
/*
 * As abort for the operations in flight; later operations are refused, but split and shrink work.
 */
int df_comm_revoke(struct df_comm *comm);

int df_comm_nranks(const struct df_comm *comm);
int df_comm_rank(const struct df_comm *comm);
uint64_t df_comm_hash(const struct df_comm *comm);
enum df_comm_state df_comm_state(const struct df_comm *comm);
/*
 * Returns 0, or the error that ended it: -ECONNRESET (a peer died), -ETIMEDOUT (time-out with
 * abort), ... Any thread.
 */
int df_comm_error(const struct df_comm *comm);
/* The first line of the first verdict that ended communicators here, or "". Any thread. */
const char *df_comm_ended_for(void);
/*
 * Whether what the ranks make together while they join will never be made: another thread aborts
 * the communicator (-ECANCELED), or the process of a rank has ended (-ECONNRESET); else 0.
 */
int df_comm_stopped(const struct df_comm *comm);

/* ---- operations -------------------------------------------------------------------------- */

/*
 * An operation is done, or ended with its communicator, when *done >= value. Read *done with an
 * acquire, which pairs with the daemon's release of the results. The word is never freed.
 */
struct df_ticket {
	const uint64_t *done;
	uint64_t value;
};

/*
 * Used as a stream: the operation is ordered only with operations of the communicator whose buffers
 * overlap its own.
 */
#define DF_NO_STREAM ((const void *)~(uintptr_t)0)

struct df_op {
	enum df_coll_kind kind;
	struct df_comm *comm;
	const void *send;
	void *recv;
	uint64_t count; /* in the unit of the NCCL call (struct df_prog_req) */
	uint32_t type;	/* enum df_type */
	uint32_t redop; /* enum df_redop; the caller lowers AVG, see kernels/abi.h */
	uint64_t redop_arg;
	const void *redop_ptr; /* scalar on the device, read when the operation starts; or NULL */
	int root;	       /* root, or the peer of SEND and RECV */
	const void *stream;    /* cudaStream_t as the application gave it */
	uint32_t site;	       /* df_trace_site() */
	uint32_t id;  /* distinguishes collectives of equal arguments (native API); else 0 */
	int priority; /* under DFSHIM_ORDER=priority: added to the stream's */
	struct df_ticket *ticket; /* NULL, or filled in; not for a capturing stream */
};

/*
 * Submits the operations of one group, in the order of issue. Never waits for a peer. Fails with
 * -EINVAL if a stream is not of this process, -ECANCELED or -ECONNRESET if a communicator ended,
 * -ENOMEM. All operations are checked first; an error there submits none. If a later step fails
 * when some are submitted, all communicators of the group end. Streams may be capturing (all or
 * none): the operations become nodes of the graph.
 */
int df_submit(const struct df_op *ops, size_t nr_ops);

/*
 * Describes the blocking call that this thread is about to make. site: df_trace_site(); 0: none.
 * serial: where to store the call's serial, for df_call_polled(); other threads read it; or NULL.
 */
void df_call_about(uint32_t site, uint64_t *serial);
/*
 * The calling thread has asked whether that call, continued in the background, is over, and it is
 * not. 0: there is none.
 */
void df_call_polled(uint64_t serial);

/* Number of the communicator's unfinished operations. Any thread. */
uint64_t df_comm_pending(const struct df_comm *comm);

/* ---- memory ------------------------------------------------------------------------------ */

/* As ncclMemAlloc: device memory of the current device that peers can map. */
int df_mem_alloc(size_t bytes, void **out);
int df_mem_free(void *ptr);
/* Whether the device (on the CPU backend, the CPU) can read the range; for NCCL_CHECK_POINTERS. */
int df_mem_known(const void *ptr);

#endif
