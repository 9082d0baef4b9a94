/*
 * Memory of the machine, or of the control group, for a job of many processes: a warning before it
 * runs out, because afterwards the kernel kills a process without one. Private to `dfshim run`.
 */
#ifndef DF_TRACE_CLI_RUN_RUN_MEMORY_H
#define DF_TRACE_CLI_RUN_RUN_MEMORY_H

#include <stdint.h>
#include <sys/types.h>

/* Whether less than a twentieth is free; *free_bytes is then set. */
int df_run_memory_is_short(uint64_t *free_bytes);
/* Returns the bytes that no other process shares; 0: unknown. */
uint64_t df_run_memory_own(pid_t pid);

#endif
