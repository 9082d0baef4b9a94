/*
 * Work of a process that is done once, by the first thread that needs it, and that may be slow or call a driver:
 *
 *	if (df_once_begin(&once, "the start")) {
 *		...
 *		df_once_end(&once);
 *	}
 *
 * Unlike pthread_once() it says so when it takes long: threads that need the work wait for the one that does it, and that one
 * may be stuck in a driver. It is no lock: the thread that works holds none of ours, as none may be held across a driver call.
 *
 * Threads: any. In the child of a fork the owner resets it, where the work is to be done again.
 */
#ifndef DF_BASE_ONCE_H
#define DF_BASE_ONCE_H

#include <stdint.h>
#include "runtime/base/err.h"

enum df_once_state { DF_ONCE_NOT_YET, DF_ONCE_BEGUN, DF_ONCE_DONE };

struct df_once {
	uint32_t state; /* of enum df_once_state; a futex */
};

/* What df_once_begin() does while it is not done; for it alone. */
int df_once_wait(struct df_once *once, const char *what);

/* It has been done, and what it wrote is seen. For who does not want to wait. */
static inline int df_once_is_done(const struct df_once *once)
{
	/* ACQUIRE pairs with the RELEASE in df_once_end(): without it the work could be seen half done. */
	return __atomic_load_n(&once->state, __ATOMIC_ACQUIRE) == DF_ONCE_DONE;
}

/*
 * 1: the caller does the work and calls df_once_end(). 0: it has been done, and what it wrote is seen. what: a noun that begins
 * a sentence to the user.
 */
static inline int df_once_begin(struct df_once *once, const char *what)
{
	return df_likely(df_once_is_done(once)) ? 0 : df_once_wait(once, what);
}

void df_once_end(struct df_once *once);

#endif
