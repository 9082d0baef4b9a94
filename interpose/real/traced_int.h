/*
 * Records NCCL's calls: traced_comm.c records communicators, traced.c groups and operations.
 * Private to these two; others use traced.h.
 */
#ifndef DF_INTERPOSE_REAL_TRACED_INT_H
#define DF_INTERPOSE_REAL_TRACED_INT_H

#include "interpose/real/traced.h"

/* A call that has returned, but which NCCL continues: set-up or finalization. serial 0: none. */
struct behind {
	uint64_t serial;
	enum df_call call;
};

/*
 * A communicator whose handle NCCL writes later: at the end of the group, or when its parent is
 * reported ready again. parent NULL: made by an init.
 */
struct made {
	ncclComm_t *comm;
	uint64_t hash;
	int nranks, rank; /* 0 for a child: NCCL is asked */
	struct traced *parent;
	enum df_call call;
	char name[32]; /* commName */
};

/*
 * A communicator is ended by dfshim after a verdict, or by the application, but never by both at a
 * time.
 */
enum traced_end { DF_TRACED_LIVES, DF_TRACED_IS_STOPPED, DF_TRACED_STOPPED, DF_TRACED_GONE };

struct traced {
	const void *key; /* stored last */
	uint64_t hash;
	uint32_t comm; /* from df_trace_comm() */
	int nranks, rank, device;
	uint64_t children;
	int connected; /* atomic: its first operation has returned from NCCL */
	int end;       /* atomic: enum traced_end */
	/*
	 * Non-blocking: operations that NCCL has not put on its streams yet. Under deferred_lock.
	 */
	struct df_record_op *deferred;
	size_t nr_deferred, cap_deferred;
	struct behind behind;  /* this and the next are under deferred_lock too */
	struct made *expected; /* children that NCCL is making */
	size_t nr_expected, cap_expected;
};

/* Whether calls of NCCL are recorded, and this call is the application's, not NCCL's. */
int df_traced_recording(void);

/*
 * Returns the communicator with this address, or NULL. add: returns a free entry for it if there is
 * none yet.
 */
struct traced *df_traced_slot(const void *comm, int add);

void df_traced_note_init(uint64_t serial, uint64_t hash, int nranks, int rank);
/*
 * In a group, NCCL makes the communicator when the group ends, so it is kept until then. Returns 0
 * if the thread is not in a group.
 */
int df_traced_made_later(const struct made *m);

/* A call that waits for other ranks has returned. t: the communicator that reports its progress. */
void df_traced_returned(struct behind b, struct traced *t, ncclResult_t result);
/* Returns ncclRemoteError if dfshim has stopped the communicator, else `result`. */
ncclResult_t df_traced_result(const struct traced *t, ncclResult_t result);
/*
 * NCCL has reported that it continues the call: a thread that polls the communicator waits for it.
 */
void df_traced_go_on(struct traced *t, struct behind b);
/*
 * NCCL will put the operation on its stream before the communicator is reported ready again.
 * Returns 0 without memory.
 */
int df_traced_defer(const struct df_record_op *op);
/* NCCL is still making this child of a non-blocking communicator. */
void df_traced_expect(const struct made *m);

#endif
