/*
 * Waits of the application's threads, and their release when they are part of a proved deadlock.
 * Any thread may call these functions.
 */
#ifndef DF_RUNTIME_WATCH_RELEASE_H
#define DF_RUNTIME_WATCH_RELEASE_H

#include <stdint.h>
#include "runtime/base/list.h"

struct df_dev;
struct df_touch;

struct df_host_wait {
	struct df_list node;
	struct df_dev *dev;
	int (*ready)(void *arg);
	void *arg;
	uint64_t call; /* serial of the call's CALL_ENTER record */
	uint32_t what; /* enum df_call */
	/* the bytes that a copy touches; NULL if it is no copy, or if they are unknown */
	const struct df_touch *touch;
	uint32_t released;
	uint32_t told; /* whether the watchdog observes this wait */
	uint64_t since;
	/*
	 * Only the watchdog uses these: progress of the device, when it last changed, times of the
	 * next and the last check, pause.
	 */
	uint64_t moved, quiet, look, last_look, pause;
};
/* Waits as the executor's wait() does. Returns 1 if the wait was released before it was ready. */
int df_host_wait(struct df_dev *dev, uint32_t what, uint64_t call, int (*ready)(void *arg),
		 void *arg);
/*
 * As df_host_wait(), before a copy that blocks its caller. The wait is never released if `touch` is
 * NULL.
 */
int df_host_wait_copy(struct df_dev *dev, uint64_t call, const struct df_touch *touch,
		      int (*ready)(void *arg), void *arg);
/*
 * Returns 1 if a wait has lasted suspiciously long since the last check. *next is when to call
 * again. *age is the time without progress around the oldest wait.
 */
int df_release_due(uint64_t now, uint64_t *next, uint64_t *age);
/* Whether a thread can see this memory without a CUDA call that we intercept. */
int df_host_visible(uintptr_t at, uintptr_t end);
/*
 * Writes the serials of the calls whose waits the policy allows to release now. Returns their
 * number.
 */
uint32_t df_release_may(uint64_t *calls, uint32_t max);
/*
 * Releases those of the waits that still exist and that the policy still allows. Returns their
 * number. `likely`: they are not proved to be part of a deadlock. `line` is the report's first
 * line, or NULL.
 */
unsigned df_release(const uint64_t *calls, uint32_t nr, int likely, const char *line);
/*
 * Logs the first release once the operations for which the wait waited have finished, because until
 * then it may not have helped; at the latest `after` ns after the release. Returns how long to wait
 * before the next call.
 */
uint64_t df_release_log(uint64_t after);
/* Drops the pending log line: the release only led to the hang that is reported now. */
void df_release_forget_log(void);

#endif
