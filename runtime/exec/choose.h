/* The choice of this process's executor (runtime/executor.h). */
#ifndef DF_RUNTIME_EXEC_CHOOSE_H
#define DF_RUNTIME_EXEC_CHOOSE_H

/*
 * Sets df_executor: NCCL's kernels on lanes, or the daemon. Once, at the start of the process.
 * Returns what the trace says of it (enum df_executed_by).
 */
unsigned df_executor_choose(int by_lanes);

#endif
