/* Decides how this process treats NCCL calls: once, at the first call that needs the decision. */
#ifndef DF_INTERPOSE_REAL_FRONT_H
#define DF_INTERPOSE_REAL_FRONT_H

#include "interpose/nccl/nccl_types.h"

enum df_front {
	DF_FRONT_UNDECIDED,
	DF_FRONT_OWN,	/* dfshim executes */
	DF_FRONT_TRACE, /* NCCL executes, dfshim records */
	DF_FRONT_PLAIN, /* NCCL executes, dfshim does nothing */
	/*
	 * As TRACE, because dfshim could not start. But if the id was made by a rank where dfshim
	 * could start, this process takes part in the rendezvous, and all ranks hand the
	 * communicator to NCCL together.
	 */
	DF_FRONT_UNABLE,
	DF_FRONT_REFUSE, /* neither dfshim nor NCCL can execute: every call fails with the reason */
};

/*
 * Decides at the first call, which starts the runtime and is slow. Later calls are cheap.
 * Thread-safe.
 */
enum df_front df_front(void);

/* Returns the decision, without making one. */
enum df_front df_front_now(void);

/* Whether the real library makes communicators in this process. */
static inline int df_real_makes(enum df_front front)
{
	return front == DF_FRONT_PLAIN || front == DF_FRONT_TRACE || front == DF_FRONT_UNABLE;
}

/*
 * Whether all groups belong to the real library. Otherwise groups are ours, and open the real
 * library's group if needed.
 */
static inline int df_real_groups(enum df_front front)
{
	return front == DF_FRONT_PLAIN || front == DF_FRONT_TRACE;
}

/*
 * Returns why communicators of this process cannot be handed to the real library, or NULL if they
 * can. Call after df_front().
 */
const char *df_front_bound(void);

/*
 * Returns a brief reason why this process does not take part in our communicators, or NULL if it
 * does. Call after df_front().
 */
const char *df_front_absent(void);

/* For DF_FRONT_REFUSE: reports why `what` cannot run, and returns the error. */
ncclResult_t df_front_refused(const char *what);

/*
 * Prints the "NCCL version" line once, if NCCL_DEBUG asks for it. `rank` is the rank in the
 * communicator that is being made.
 */
void df_front_show_version(int rank);

/*
 * At the end of the process: closes the trace of what NCCL executes. Returns 0 if there is none, in
 * which case the runtime ends by itself. Async-signal-safe.
 */
int df_front_unload(void);

/* call in the child of a fork */
void df_front_forked(void);

#endif
