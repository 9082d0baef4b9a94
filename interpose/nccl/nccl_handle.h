/*
 * The object behind an ncclComm_t of ours.
 *
 * A handle is recognized by its magic number, at the offset where the real library's struct has its
 * own, so that neither library accepts the other's handles. A destroyed handle stays in memory as a
 * tombstone until many others have been destroyed after it, so that a late use returns an error
 * instead of crashing.
 *
 * Threads: one thread at a time uses a communicator, except that any thread may call ncclCommAbort
 * and ncclCommGetAsyncError at any time. So `flags` and `async` are atomic, and `users` counts the
 * calls that are inside: the memory is freed when the last of them has left, not while calls are
 * inside.
 */
#ifndef DF_INTERPOSE_NCCL_NCCL_HANDLE_H
#define DF_INTERPOSE_NCCL_NCCL_HANDLE_H

#include <pthread.h>
#include <stdint.h>
#include "interpose/real/nccl_config.h"
#include "interpose/nccl/nccl_types.h"
#include "runtime/base/err.h"
#include "runtime/dfshim.h"

#define DF_HANDLE_MAGIC 0x6d6f63206d696864ull

enum df_handle_flag {
	DF_H_READY = 1, /* joined; without another flag, the handle can take operations */
	DF_H_BUSY = 2,	/* a background job runs: only GetAsyncError and Abort are allowed */
	DF_H_REVOKED = 4,
	DF_H_FINALIZED = 8,  /* Finalize was called */
	DF_H_FAILED = 16,    /* async holds an error */
	DF_H_ABORTED = 32,   /* Abort was called */
	DF_H_DESTROYED = 64, /* Destroy was called */
	DF_H_CLAIMED = 128,  /* a thread is freeing it; set once */
	DF_H_DEAD = 256,     /* a tombstone */
};

struct df_user_redop {
	int live;
	ncclDataType_t type;
	uint64_t arg;
	const void *ptr;
	int next_free;
};

struct df_window {
	struct df_window *next;
	struct df_handle *owner;
	void *ptr;
	size_t bytes;
	int flags;
};

struct df_range {
	struct df_range *next;
	void *ptr;
	size_t bytes;
	int refs;
};

struct df_handle {
	uint64_t magic; /* never changes; see the comment at the beginning of this file */
	uint32_t flags; /* bits of enum df_handle_flag; atomic */
	uint32_t users; /* number of calls inside; atomic */
	void *real; /* the real library's communicator that took over, or NULL; atomic, set once */
	struct df_comm *comm;
	int nranks, rank, device;
	int child_count;
	int async; /* ncclResult_t for GetAsyncError; atomic */
	/* The background job's serial in the trace; 0 if there is none yet; atomic. */
	uint64_t call;
	/* part of its reduction operators' handles, which identifies the communicator */
	uint32_t tag;
	uint64_t hash;
	uint64_t op_count;
	struct df_config config;
	/* The id that this rank has made for ncclCommGrow. */
	unsigned char grow_id[DF_ID_BYTES];
	int has_grow_id;
	pthread_mutex_t lock;	 /* guards the fields below */
	struct df_handle *child; /* the child that is being joined; an abort ends the child, too */
	struct df_user_redop *redops;
	int nr_redops, free_redop;
	struct df_range *ranges;
	struct df_handle *next; /* in the list of tombstones */
};

static inline int df_is_ours(const void *comm)
{
	return df_likely(comm != NULL) && df_likely(*(const uint64_t *)comm == DF_HANDLE_MAGIC);
}

/*
 * DF_FOREIGN(comm): whether the call goes to the real library. It does if the communicator belongs
 * to it, if all communicators do, or if one of ours was handed over to it (nccl_handover.c). The
 * variable `comm` then becomes the real library's communicator, and inside a group of ours a group
 * of the real library is open from then on.
 */
#define DF_FOREIGN(comm) df_unlikely(df_foreign((void **)&(comm)))
int df_foreign_slow(void **comm);

static inline int df_foreign(void **comm)
{
	/*
	 * RELAXED: df_foreign_slow() loads it again, with ACQUIRE. Only a call concurrent with
	 * ncclDevCommCreate on the same communicator can miss a hand-over by another thread.
	 */
	if (df_is_ours(*comm) &&
	    df_likely(!__atomic_load_n(&((struct df_handle *)*comm)->real, __ATOMIC_RELAXED)))
		return 0;
	return df_foreign_slow(comm);
}

/* Returns a new handle, or NULL if memory is short. */
struct df_handle *df_handle_new(const struct df_config *config, int device);
/*
 * Destroys the handle's communicator, if there is one, and makes the handle a tombstone. Does
 * nothing if another thread does that. May wait for calls that are inside; after ten seconds it
 * gives up with a warning.
 */
void df_handle_free(struct df_handle *h);

/* Does what NCCL's CommCheck does: returns ncclSuccess, or ncclInvalidArgument with NCCL's text. */
ncclResult_t df_comm_check(const void *comm, const char *op, const char *arg);
ncclResult_t df_ptr_check(const void *ptr, const char *op, const char *arg);
/*
 * Does what NCCL's EnsureReady does for a checked handle: returns the async error, or for a busy
 * handle an error with NCCL's text.
 */
ncclResult_t df_handle_ready(struct df_handle *h);
/* Returns the error for the operation `op` on a handle that has other flags than READY alone. */
ncclResult_t df_handle_unusable(struct df_handle *h, const char *op);

/* Returns the current result of GetAsyncError. Any thread. */
ncclResult_t df_handle_async(struct df_handle *h);
/* Sets flags and the async result. An error makes the handle FAILED. */
void df_handle_set(struct df_handle *h, uint32_t set, uint32_t clear, ncclResult_t async);
/*
 * Converts the result of an operation on h. If the communicator has ended, stores this as the async
 * error.
 */
ncclResult_t df_handle_result(struct df_handle *h, int err, const char *op);

static inline uint32_t df_handle_flags(const struct df_handle *h)
{
	/*
	 * ACQUIRE pairs with the read-modify-writes that release in nccl_handle.c and nccl_comm.c:
	 * without it, READY could be seen before nranks and rank.
	 */
	return __atomic_load_n(&h->flags, __ATOMIC_ACQUIRE);
}

/*
 * Counts the caller as inside the handle and returns the flags. If these forbid the call, the
 * caller has to leave.
 */
static inline uint32_t df_handle_enter(struct df_handle *h)
{
	/*
	 * This pairs with the abort, which sets a flag and then reads `users`. All four accesses
	 * are sequentially consistent: otherwise each side could miss the other's store, and the
	 * communicator could be freed under a call.
	 */
	__atomic_fetch_add(&h->users, 1, __ATOMIC_SEQ_CST);
	return __atomic_load_n(&h->flags, __ATOMIC_SEQ_CST);
}

static inline void df_handle_leave(struct df_handle *h)
{
	/*
	 * RELEASE pairs with the ACQUIRE in quiesce(): without it, the communicator could be freed
	 * under our last accesses.
	 */
	__atomic_fetch_sub(&h->users, 1, __ATOMIC_RELEASE);
}

#endif
