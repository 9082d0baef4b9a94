/*
 * What an ncclComm_t of ours points to.
 *
 * A handle is found by its magic, which lies where the real library's struct has its own, so that neither
 * takes the other's. It stays in memory for ever after it was destroyed, as a tombstone, until many others
 * were destroyed after it: a late use gives an error instead of a crash.
 *
 * Threads: one communicator is used by one thread at a time, except for ncclCommAbort and
 * ncclCommGetAsyncError, which may come from any thread at any moment. Hence `flags` and `async` are
 * atomic, and `users` counts the calls that are inside, so that the last one out, not the abort, makes
 * it safe to free.
 */
#ifndef DF_INTERPOSE_NCCL_NCCL_HANDLE_H
#define DF_INTERPOSE_NCCL_NCCL_HANDLE_H

#include <pthread.h>
#include <stdint.h>
#include "interpose/nccl/nccl_config.h"
#include "interpose/nccl/nccl_types.h"
#include "runtime/base/err.h"
#include "runtime/dfshim.h"

#define DF_HANDLE_MAGIC 0x6d6f63206d696864ull

enum df_handle_flag {
	DF_H_READY = 1, /* joined; alone: fit for operations */
	DF_H_BUSY = 2,	/* something runs in the background: only GetAsyncError and Abort */
	DF_H_REVOKED = 4,
	DF_H_FINALIZED = 8,  /* Finalize was called */
	DF_H_FAILED = 16,    /* async holds an error */
	DF_H_ABORTED = 32,   /* Abort was called */
	DF_H_DESTROYED = 64, /* Destroy was called */
	DF_H_CLAIMED = 128,  /* somebody is freeing it; set once */
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
	uint64_t magic; /* stays; see above */
	uint32_t flags; /* enum df_handle_flag; atomic */
	uint32_t users; /* calls inside; atomic */
	void *real; /* the real library's communicator that took over, or NULL; atomic, set once */
	struct df_comm *comm;
	int nranks, rank, device;
	int child_count;
	int async; /* ncclResult_t for GetAsyncError; atomic */
	/* What runs in the background: its serial in the trace, 0 none yet; atomic. */
	uint64_t call;
	uint32_t tag; /* goes into its reduction operators' handles */
	uint64_t hash;
	uint64_t op_count;
	struct df_config config;
	pthread_mutex_t lock;	 /* what follows */
	struct df_handle *child; /* being joined now: an abort ends it too */
	struct df_user_redop *redops;
	int nr_redops, free_redop;
	struct df_range *ranges;
	struct df_handle *next; /* graveyard */
};

static inline int df_is_ours(const void *comm)
{
	return df_likely(comm != NULL) && df_likely(*(const uint64_t *)comm == DF_HANDLE_MAGIC);
}

/*
 * DF_FOREIGN(comm): 1 if the real library shall have the call: the communicator is its own, or all are, or one
 * of ours was handed over to it (handover.c); `comm`, a variable, is then the real library's. Inside a
 * group of ours its own is open from then on.
 */
#define DF_FOREIGN(comm) df_unlikely(df_foreign((void **)&(comm)))
int df_foreign_slow(void **comm);

static inline int df_foreign(void **comm)
{
	/*
	 * The relaxed load is read again, with an acquire, in df_foreign_slow(); one that misses a hand-over
	 * by another thread is a call at the same time as ncclDevCommCreate on one communicator.
	 */
	if (df_is_ours(*comm) &&
	    df_likely(!__atomic_load_n(&((struct df_handle *)*comm)->real, __ATOMIC_RELAXED)))
		return 0;
	return df_foreign_slow(comm);
}

/* A new handle, or NULL. */
struct df_handle *df_handle_new(const struct df_config *config, int device);
/*
 * Destroys its communicator, if there is one, and makes it a tombstone, unless somebody else is at it. May
 * wait for calls that are inside; after ten seconds it is left as it is, with a warning.
 */
void df_handle_free(struct df_handle *h);

/* NCCL's CommCheck: ncclSuccess, or ncclInvalidArgument with its text. */
ncclResult_t df_comm_check(const void *comm, const char *op, const char *arg);
ncclResult_t df_ptr_check(const void *ptr, const char *op, const char *arg);
/* NCCL's EnsureReady for a checked handle: the async error, or the text for one that is busy. */
ncclResult_t df_handle_ready(struct df_handle *h);
/* Why a handle with flags other than READY alone can't take the operation `op`. */
ncclResult_t df_handle_unusable(struct df_handle *h, const char *op);

/* What GetAsyncError says now. Any thread. */
ncclResult_t df_handle_async(struct df_handle *h);
/* Sets flags and the async result; an error makes the handle FAILED. */
void df_handle_set(struct df_handle *h, uint32_t set, uint32_t clear, ncclResult_t async);
/* A result of an operation on h: remembered as the async error where the communicator itself ended. */
ncclResult_t df_handle_result(struct df_handle *h, int err, const char *op);

static inline uint32_t df_handle_flags(const struct df_handle *h)
{
	/*
	 * The acquire pairs with the read-modify-writes that release in nccl_handle.c and nccl_comm.c: without it
	 * READY could be seen before nranks and rank.
	 */
	return __atomic_load_n(&h->flags, __ATOMIC_ACQUIRE);
}

/* Counts the caller as inside; returns the flags as of then: if they are not to its liking it leaves. */
static inline uint32_t df_handle_enter(struct df_handle *h)
{
	/*
	 * This pairs with the abort, which sets a flag and then reads `users`. All four are sequentially
	 * consistent: without that each side could miss the other's store, and the communicator would
	 * be freed under a call.
	 */
	__atomic_fetch_add(&h->users, 1, __ATOMIC_SEQ_CST);
	return __atomic_load_n(&h->flags, __ATOMIC_SEQ_CST);
}

static inline void df_handle_leave(struct df_handle *h)
{
	/*
	 * The release pairs with the acquire of df_handle_quiesce(): without it the communicator could be
	 * freed under our last accesses.
	 */
	__atomic_fetch_sub(&h->users, 1, __ATOMIC_RELEASE);
}

#endif
