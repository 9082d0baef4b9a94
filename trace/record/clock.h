/*
 * Gives the time of records: the monotonic clock. If the processor has the counter from which the
 * kernel itself derives the time, the clock is read in half the time. Any thread; no locks, no
 * allocation, no system call.
 */
#ifndef DF_TRACE_RECORD_CLOCK_H
#define DF_TRACE_RECORD_CLOCK_H

#include <stdint.h>

/* Finds out whether the counter can be used. Called once, before records are written. */
void df_trace_clock_start(void);

/*
 * Returns CLOCK_MONOTONIC in nanoseconds, to within DF_TRACE_CLOCK_ERROR_NS; never decreases in one
 * thread.
 */
uint64_t df_trace_clock(void);

#define DF_TRACE_CLOCK_ERROR_NS 1000

#endif
