/*
 * Clocks. dfshim counts in nanoseconds of the monotonic clock; the wall clock is only for times
 * that people read.
 */
#ifndef DF_BASE_TIME_H
#define DF_BASE_TIME_H

#include <stdint.h>
#include <time.h>

#define DF_NS_PER_US 1000ull
#define DF_NS_PER_MS 1000000ull
#define DF_NS_PER_S  1000000000ull

static inline uint64_t df_clock_ns_(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * DF_NS_PER_S + (uint64_t)ts.tv_nsec;
}

/* Monotonic; comparable between the processes of one machine. */
static inline uint64_t df_now_ns(void)
{
	return df_clock_ns_(CLOCK_MONOTONIC);
}

/* Since 1970. */
static inline uint64_t df_wall_ns(void)
{
	return df_clock_ns_(CLOCK_REALTIME);
}

/* May return early when a signal arrives. */
static inline void df_sleep_ns(uint64_t ns)
{
	struct timespec ts = {(time_t)(ns / DF_NS_PER_S), (long)(ns % DF_NS_PER_S)};

	nanosleep(&ts, (struct timespec *)0);
}

#endif
