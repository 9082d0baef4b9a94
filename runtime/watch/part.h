/*
 * Finds communicators that stand still while the process goes on. For the watchdog's thread only.
 */
#ifndef DF_RUNTIME_WATCH_PART_H
#define DF_RUNTIME_WATCH_PART_H

#include <stdint.h>

/*
 * After this number of time-outs a rank that others wait for is named although it does other
 * things, and a part of the job although the rest goes on.
 */
#define DF_PART_PATIENCE 4

/*
 * Whether a communicator with unfinished operations has ended none for DF_PART_PATIENCE time-outs,
 * and no verdict was reported since then (`told_ns`: the time of the last report, 0: none). A
 * process whose turn is later waits for longer.
 */
int df_part_due(uint64_t now, uint64_t timeout, uint64_t told_ns);
/*
 * Call after a look at the job that reported nothing: the next one is due when the wait is twice as
 * long, because each look asks all processes.
 */
void df_part_looked(void);

#endif
