/*
 * Watches the memory of the machine, or of the control group, for a job of many processes. A
 * warning before memory runs out helps, because afterwards the kernel kills a process without one.
 * Private to `dfshim run`.
 */
#ifndef DF_TRACE_CLI_RUN_RUN_MEMORY_H
#define DF_TRACE_CLI_RUN_RUN_MEMORY_H

#include <stdint.h>
#include <sys/types.h>

/* Whether less than a twentieth is free. If so, *free_bytes is set. */
int df_run_memory_is_short(uint64_t *free_bytes);
/* Returns the bytes of the process that no other process shares, or 0 if unknown. */
uint64_t df_run_memory_own(pid_t pid);

#endif
