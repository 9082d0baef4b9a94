/*
 * The inside of what is recorded around NCCL's calls: traced_comm.c has the communicators, traced.c groups and
 * operations. Private to the two; others use nccl_coll.h.
 */
#ifndef DF_INTERPOSE_REAL_TRACED_H
#define DF_INTERPOSE_REAL_TRACED_H

#include "interpose/nccl/nccl_coll.h"

/* A call that has come back while NCCL goes on with it: set-up, finalization. serial 0: none. */
struct behind {
	uint64_t serial;
	enum df_call call;
};

/*
 * A communicator whose handle NCCL writes later: at the end of the group, or when what it makes it from, its parent
 * (NULL: by init), is said to be ready again.
 */
struct made {
	ncclComm_t *comm;
	uint64_t hash;
	int nranks, rank; /* of a child 0: it is asked */
	struct traced *parent;
	enum df_call call;
};

struct traced {
	const void *key; /* stored last */
	uint64_t hash;
	uint32_t comm; /* of df_trace_comm() */
	int nranks, rank, device;
	uint64_t children;
	int connected; /* atomic: its first operation has come back from NCCL */
	/* Non-blocking: what NCCL has not put on its streams yet; under deferred_lock. */
	struct df_record_op *deferred;
	size_t nr_deferred, cap_deferred;
	struct behind behind;  /* under deferred_lock, too, and: */
	struct made *expected; /* children that NCCL is making */
	size_t nr_expected, cap_expected;
};

/* 1: what goes to NCCL is recorded, and this is a call of the application. */
int df_traced_recording(void);

/* The communicator of this address; add: or the place for it. NULL: none. */
struct traced *df_traced_slot(const void *comm, int add);

void df_traced_note_init(uint64_t serial, uint64_t hash, int nranks, int rank);
/* In a group of NCCL's it is made when the group ends: kept until then. 0: it is not in one. */
int df_traced_made_later(const struct made *m);

/* A call that waits for other ranks has come back; t: whom to ask how it goes on. */
void df_traced_returned(struct behind b, struct traced *t, ncclResult_t result);
/* NCCL has said that it goes on with the call: whoever polls the communicator waits for it. */
void df_traced_go_on(struct traced *t, struct behind b);
/* NCCL puts it on its stream at a time of its own, before the communicator is said to be ready again. 0: no memory. */
int df_traced_defer(const struct df_record_op *op);
/* NCCL goes on making this child of a non-blocking communicator. */
void df_traced_expect(const struct made *m);

#endif
