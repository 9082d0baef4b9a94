/*
 * Work that a process does once, in the first thread that needs it, and that may be slow or call a
 * driver:
 *
 * 	if (df_once_begin(&once, "the start")) {
 * 		...
 * 		df_once_end(&once);
 * 	}
 *
 * Unlike pthread_once(), it warns when the work takes long: threads that need it wait for a thread
 * that may be stuck in a driver. It is not a lock: the working thread must hold no lock of ours,
 * because a driver call may block.
 *
 * Threads: any. The child of a fork resets it if the work has to be done again.
 */
#ifndef DF_BASE_ONCE_H
#define DF_BASE_ONCE_H

#include <stdint.h>
#include "runtime/base/err.h"

enum df_once_state { DF_ONCE_NOT_YET, DF_ONCE_BEGUN, DF_ONCE_DONE };

struct df_once {
	uint32_t state; /* of enum df_once_state; a futex */
};

/* For df_once_begin() only: its slow path. */
int df_once_wait(struct df_once *once, const char *what);

/* Returns 1 if the work is done and its results are visible. Never waits. */
static inline int df_once_is_done(const struct df_once *once)
{
	/*
	 * ACQUIRE pairs with the RELEASE in df_once_end(): without it the work could be seen half
	 * done.
	 */
	return __atomic_load_n(&once->state, __ATOMIC_ACQUIRE) == DF_ONCE_DONE;
}

/*
 * Returns 1 if the caller has to do the work and call df_once_end(), or 0 if it is done and its
 * results are visible. what: names the work in a warning, at the beginning of a sentence.
 */
static inline int df_once_begin(struct df_once *once, const char *what)
{
	return df_likely(df_once_is_done(once)) ? 0 : df_once_wait(once, what);
}

void df_once_end(struct df_once *once);

#endif
