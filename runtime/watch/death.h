/*
 * Handles processes that die or can no longer be reached: their communicators here end, or the
 * watchdog learns that a member has left. The caller does not hold df_rt.lock.
 */
#ifndef DF_RUNTIME_WATCH_DEATH_H
#define DF_RUNTIME_WATCH_DEATH_H

#include <stdint.h>

struct df_net_event;

/* Ends the communicators of a process that has ended. `in_order`: it exited normally. */
void df_death(uint64_t proc, int in_order);
/*
 * Call when the state of the connection to another node has changed. Returns before the
 * communicators that end as a result have ended.
 */
void df_death_net_event(const struct df_net_event *e);
/*
 * Call when this process has no descriptor left to map the memory of that process. Soon ends their
 * common communicators.
 */
void df_death_no_file(uint64_t proc);
/* Call when that process cannot map the memory of this one: ends their common communicators. */
void df_death_unmapped(uint64_t proc);

#endif
