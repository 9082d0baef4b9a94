/* Finds what each thread of the application is doing or waiting for. Any thread may call this. */
#ifndef DF_RUNTIME_WATCH_HOSTS_H
#define DF_RUNTIME_WATCH_HOSTS_H

#include <stdint.h>

struct df_check_host;

/* Records what each thread does (HOST_AT). Takes some milliseconds. */
void df_hosts_note(void);
/*
 * Whether to record now where threads are, although the time-out has not expired: a process that is
 * killed before leaves traces that explain its hang. `progress` changes when the process makes
 * progress. Returns 1 when that has not changed for quiet_ns, and then each time that
 * the silence has become longer by half, until the time-out. Then the caller records the time, too
 * (df_trace_clocks()). Only the thread that explains hangs calls this.
 */
int df_hosts_due(uint64_t progress, uint64_t quiet_ns);
/*
 * Stores the certain state of each of the application's threads, sorted by thread id. The caller
 * frees the array. Returns 0, or -errno if nothing is certain.
 */
int df_hosts_certain(struct df_check_host **out, uint32_t *nr);

#endif
