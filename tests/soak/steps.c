/*
 * A clock that is set now and then. In processes that preload this, CLOCK_REALTIME, time() and
 * gettimeofday() jump by up to a day, forwards and backwards, every quarter of a second.
 * CLOCK_MONOTONIC never jumps on any system. STEPS_SEED selects the steps.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static int (*real)(clockid_t, struct timespec *);

static int64_t step(void)
{
	const char *seed = getenv("STEPS_SEED");
	struct timespec ts;
	uint64_t z;

	if (!real)
		real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
	real(CLOCK_MONOTONIC, &ts);
	z = (uint64_t)ts.tv_sec * 4 + (uint64_t)ts.tv_nsec / 250000000 +
	    (seed ? strtoull(seed, NULL, 0) : 0);
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	return (int64_t)(z >> 20) % 86400 * (z & 1 ? 1 : -1);
}

int clock_gettime(clockid_t clock, struct timespec *ts)
{
	int64_t s = step();
	int err = real(clock, ts);

	if (!err && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
		ts->tv_sec += s;
	return err;
}

time_t time(time_t *to)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	if (to)
		*to = ts.tv_sec;
	return ts.tv_sec;
}

int gettimeofday(struct timeval *tv, void *zone)
{
	struct timespec ts;

	(void)zone;
	clock_gettime(CLOCK_REALTIME, &ts);
	tv->tv_sec = ts.tv_sec;
	tv->tv_usec = ts.tv_nsec / 1000;
	return 0;
}
