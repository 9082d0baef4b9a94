/* How this process treats NCCL calls: decided once, at the first call that needs to know. */
#ifndef DF_INTERPOSE_REAL_FRONT_H
#define DF_INTERPOSE_REAL_FRONT_H

#include "interpose/nccl/nccl_types.h"

enum df_front {
	DF_FRONT_UNDECIDED,
	DF_FRONT_OWN,	/* dfshim executes */
	DF_FRONT_TRACE, /* NCCL executes, dfshim records */
	DF_FRONT_PLAIN, /* NCCL executes, dfshim does nothing */
	/*
	 * As TRACE, because dfshim could not start. But if the id was made by a rank where it
	 * could, this process takes part in the rendezvous, and all ranks give the communicator to
	 * NCCL together.
	 */
	DF_FRONT_UNABLE,
	DF_FRONT_REFUSE, /* neither can execute: every call fails with the reason */
};

/* Decides at the first call (starts the runtime; slow); cheap later. Thread-safe. */
enum df_front df_front(void);

/* The present decision; does not make one. */
enum df_front df_front_now(void);

/* Whether the real library makes communicators in this process. */
static inline int df_real_makes(enum df_front front)
{
	return front == DF_FRONT_PLAIN || front == DF_FRONT_TRACE || front == DF_FRONT_UNABLE;
}

/*
 * Whether groups are only the real library's. Otherwise they are ours, and open the real library's
 * group if needed.
 */
static inline int df_real_groups(enum df_front front)
{
	return front == DF_FRONT_PLAIN || front == DF_FRONT_TRACE;
}

/*
 * Returns why communicators of this process cannot be handed to the real library; NULL: they can.
 * After df_front().
 */
const char *df_front_bound(void);

/*
 * Returns briefly why this process does not take part in our communicators; NULL: it does. After
 * df_front().
 */
const char *df_front_absent(void);

/* Under DF_FRONT_REFUSE: reports why `what` cannot run; returns the error. */
ncclResult_t df_front_refused(const char *what);

/*
 * Prints the "NCCL version" line once, if NCCL_DEBUG asks for it. rank: in the communicator being
 * made.
 */
void df_front_show_version(int rank);

/*
 * At the end of the process: closes the trace of what NCCL executes. Returns 0 if there is none.
 * The runtime ends by itself. Async-signal-safe.
 */
int df_front_unload(void);

/* in the child of a fork */
void df_front_forked(void);

#endif
