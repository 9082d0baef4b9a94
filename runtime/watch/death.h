/*
 * Processes that die or can no longer be reached: their communicators here end, or the watchdog
 * learns that a member has left. df_rt.lock is not held.
 */
#ifndef DF_RUNTIME_WATCH_DEATH_H
#define DF_RUNTIME_WATCH_DEATH_H

#include <stdint.h>

struct df_net_event;

/* The process has ended. in_order: it exited normally. */
void df_death(uint64_t proc, int in_order);
/*
 * The state of the connection to another node has changed. Returns before the communicators that
 * this ends have ended.
 */
void df_death_net_event(const struct df_net_event *e);
/*
 * This process has no descriptor left to map that process's memory: soon ends their common
 * communicators.
 */
void df_death_no_file(uint64_t proc);
/* That process has reported the same about this one: ends their common communicators. */
void df_death_unmapped(uint64_t proc);

#endif
