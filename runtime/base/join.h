/* Joins threads whose calls may hang. */
#ifndef DF_BASE_JOIN_H
#define DF_BASE_JOIN_H

#ifndef _GNU_SOURCE
#error "pthread_timedjoin_np() needs _GNU_SOURCE"
#endif
#include <errno.h>
#include <pthread.h>

#include "runtime/base/err.h"
#include "runtime/base/time.h"

#define DF_JOIN_STEP_NS (100 * DF_NS_PER_MS)

/*
 * Joins the thread. After ns it detaches the thread and returns -ETIMEDOUT. Counts time in steps of
 * at most DF_JOIN_STEP_NS each: if this process is stopped or has no processor, the thread cannot
 * return either, and that time must not count.
 */
static inline int df_join_within(pthread_t t, uint64_t ns)
{
	uint64_t step, until;
	struct timespec ts;

	for (; ns; ns -= step) {
		step = DF_MIN(ns, DF_JOIN_STEP_NS);
		until = df_wall_ns() + step;
		ts = (struct timespec){(time_t)(until / DF_NS_PER_S), (long)(until % DF_NS_PER_S)};
		if (!pthread_timedjoin_np(t, NULL, &ts))
			return 0;
	}
	pthread_detach(t);
	return -ETIMEDOUT;
}

#endif
