/*
 * Records NCCL's calls: traced_comm.c records communicators, traced.c groups and operations.
 * Private to these two; others use traced.h.
 */
#ifndef DF_INTERPOSE_REAL_TRACED_INT_H
#define DF_INTERPOSE_REAL_TRACED_INT_H

#include "interpose/real/traced.h"

/*
 * A call that has returned but which NCCL continues: set-up or finalization. `serial` is 0 if there
 * is none.
 */
struct behind {
	uint64_t serial;
	enum df_call call;
};

/*
 * A communicator whose handle NCCL writes later: at the end of the group, or when its parent is
 * reported ready again. `parent` is NULL if it is made by an init.
 */
struct made {
	ncclComm_t *comm;
	uint64_t hash;
	int nranks, rank; /* 0 for a child, for which NCCL is asked */
	struct traced *parent;
	enum df_call call;
	char name[32]; /* commName */
};

/*
 * The end of a communicator: dfshim ends it after a verdict, or the application does, but never
 * both.
 */
enum traced_end { DF_TRACED_LIVES, DF_TRACED_IS_STOPPED, DF_TRACED_STOPPED, DF_TRACED_GONE };

struct traced {
	const void *key; /* stored last */
	uint64_t hash;
	uint32_t comm; /* address of the communicator; stored last */
	int nranks, rank, device;
	uint64_t children, grown; /* numbers of those divided from it, and grown from it */
	int connected;		  /* whether its first operation has returned from NCCL; atomic */
	int end;		  /* atomic: enum traced_end */
	/*
	 * For a non-blocking communicator: operations that NCCL has not put on its streams yet.
	 * Guarded by deferred_lock.
	 */
	struct df_record_op *deferred;
	size_t nr_deferred, cap_deferred;
	struct behind behind;  /* guarded by deferred_lock */
	struct made *expected; /* children that NCCL is making; guarded by deferred_lock */
	size_t nr_expected, cap_expected;
};

/* Whether calls of NCCL are recorded, and this call is the application's, not NCCL's. */
int df_traced_recording(void);

/*
 * Returns the communicator with this address, or NULL. If `add` and there is none, returns a free
 * entry for it.
 */
struct traced *df_traced_slot(const void *comm, int add);

void df_traced_note_init(uint64_t serial, uint64_t hash, int nranks, int rank);
/*
 * Keeps a communicator until the thread's group ends, because NCCL makes it then. Returns 0 if the
 * thread is not in a group.
 */
int df_traced_made_later(const struct made *m);

/*
 * Call when a call that waits for other ranks has returned. `t` is the communicator that reports
 * its progress.
 */
void df_traced_returned(struct behind b, struct traced *t, ncclResult_t result);
/* Returns ncclRemoteError if dfshim has stopped the communicator, else `result`. */
ncclResult_t df_traced_result(const struct traced *t, ncclResult_t result);
/*
 * Call when a call has returned ncclInProgress. The communicator keeps the call until NCCL reports
 * another state: until then, a thread that polls the communicator waits for this call.
 */
void df_traced_go_on(struct traced *t, struct behind b);
/*
 * Keeps an operation that NCCL will put on its stream before the communicator is reported ready
 * again. Returns 0 if memory is short.
 */
int df_traced_defer(const struct df_record_op *op);
/* Keeps a child of a non-blocking communicator that NCCL is still making. */
void df_traced_expect(const struct made *m);

#endif
