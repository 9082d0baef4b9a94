/*
 * Waits of the application's threads, and letting them go when they are part of a proved deadlock. Any thread.
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
	uint64_t call;		      /* serial of its CALL_ENTER */
	uint32_t what;		      /* enum df_call */
	const struct df_touch *touch; /* of a copy: what it touches; NULL: no copy, or not known */
	uint32_t released;
	uint32_t told; /* the watchdog looks at it */
	uint64_t since;
	/* the watchdog's: what it saw of the device, since when that is so; its looks */
	uint64_t moved, quiet, look, last_look, pause;
};
/* As the executor's wait(); returns 1 if the wait was released before it was ready. */
int df_host_wait(struct df_dev *dev, uint32_t what, uint64_t call, int (*ready)(void *arg),
		 void *arg);
/* The same before a copy for which the host waits; touch NULL: never released. */
int df_host_wait_copy(struct df_dev *dev, uint64_t call, const struct df_touch *touch,
		      int (*ready)(void *arg), void *arg);
/*
 * 1: a wait has lasted suspiciously long since it was last looked at. *next: when to ask again; *age: for how long
 * nothing has moved around the oldest.
 */
int df_release_due(uint64_t now, uint64_t *next, uint64_t *age);
/* The host can see memory of this kind without a CUDA call that we would notice. */
int df_host_visible(uintptr_t at, uintptr_t end);
/* The waits that the policy allows to be released now: serials of their calls. */
uint32_t df_release_may(uint64_t *calls, uint32_t max);
/*
 * Releases those of them that are still there and allowed; how many. likely: they are not proved to be part of a
 * deadlock. line: what the report says of it; may be NULL.
 */
unsigned df_release(const uint64_t *calls, uint32_t nr, int likely, const char *line);
/*
 * Logs the first release as soon as what it left behind is done: until then it may have helped nobody. Or when it is `after`
 * ns ago. Returns how long to wait before the next call.
 */
uint64_t df_release_log(uint64_t after);
/* It has only led to what is reported now. */
void df_release_forget_log(void);

#endif
