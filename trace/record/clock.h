/*
 * The time of records: the monotonic clock, but at half its price where the processor has a counter that the
 * kernel itself takes the time from. Any thread; no locks, no allocation, no system call.
 */
#ifndef DF_TRACE_RECORD_CLOCK_H
#define DF_TRACE_RECORD_CLOCK_H

#include <stdint.h>

/* Finds out whether the counter can be used. Called once, before records are written. */
void df_trace_clock_start(void);

/* Nanoseconds of CLOCK_MONOTONIC, to within DF_TRACE_CLOCK_ERROR_NS; never decreases in one thread. */
uint64_t df_trace_clock(void);

#define DF_TRACE_CLOCK_ERROR_NS 1000

#endif
