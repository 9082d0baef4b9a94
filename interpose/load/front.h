/*
 * What becomes of NCCL calls in this process: decided once, at the first call that needs to know.
 */
#ifndef DF_INTERPOSE_LOAD_FRONT_H
#define DF_INTERPOSE_LOAD_FRONT_H

#include "interpose/nccl/nccl_types.h"

enum df_front {
	DF_FRONT_UNDECIDED,
	DF_FRONT_OWN,	/* our runtime executes */
	DF_FRONT_TRACE, /* NCCL executes, we record */
	DF_FRONT_PLAIN, /* NCCL executes, we are not there */
	/*
	 * As TRACE, because we could not start; a communicator whose id was made by a rank that could is joined all the
	 * same, and all its ranks give it to NCCL together.
	 */
	DF_FRONT_UNABLE,
	DF_FRONT_REFUSE, /* nobody can: every call fails with the reason */
};

/* Decides at the first call (starts the runtime, slow), then cheap. Thread-safe. */
enum df_front df_front(void);

/* The decision so far, without making it. */
enum df_front df_front_now(void);

/* 1: the real library makes communicators in this process. */
static inline int df_real_makes(enum df_front front)
{
	return front == DF_FRONT_PLAIN || front == DF_FRONT_TRACE || front == DF_FRONT_UNABLE;
}

/* 1: its groups are the real library's alone; else ours, in which the real library's is opened when it is needed. */
static inline int df_real_groups(enum df_front front)
{
	return front == DF_FRONT_PLAIN || front == DF_FRONT_TRACE;
}

/* Why communicators of this process can't go over to the real library; NULL: they can. After df_front(). */
const char *df_front_bound(void);

/* Why this process does not take part in communicators of ours, in few words; NULL: it does. After df_front(). */
const char *df_front_absent(void);

/* Under DF_FRONT_REFUSE: says why `what` can't run; returns the error. */
ncclResult_t df_front_refused(const char *what);

/* The one "NCCL version" line, as NCCL_DEBUG asks for it. rank: of the communicator being made. */
void df_front_show_version(int rank);

/* At the end of the process: closes the trace of what NCCL executes. The runtime ends by itself. Async-signal-safe. */
void df_front_unload(void);

/* In the child of a fork. */
void df_front_forked(void);

#endif
