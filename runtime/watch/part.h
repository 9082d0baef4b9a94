/*
 * Finds communicators that stand still while the process goes on. For the watchdog's thread only.
 */
#ifndef DF_RUNTIME_WATCH_PART_H
#define DF_RUNTIME_WATCH_PART_H

#include <stdint.h>

/*
 * Whether a communicator with unfinished operations has ended none for four times the time-out, and
 * no verdict was reported since then (`told_ns`: the time of the last report, 0: none). A
 * process whose turn is later waits for longer.
 */
int df_part_due(uint64_t now, uint64_t timeout, uint64_t told_ns);

#endif
