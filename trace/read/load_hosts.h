/* Threads that were seen waiting outside of NCCL and CUDA, as calls of a trace. */
#ifndef DF_TRACE_READ_LOAD_HOSTS_H
#define DF_TRACE_READ_LOAD_HOSTS_H

#include "trace/read/set.h"

/* Adds calls for threads that were seen waiting outside of recorded calls. Needs room for them. */
void df_trc_keep_outside(struct df_trc *t);
/* Returns the certain state of a thread, or NULL if it has ended. Only if t->hosts is set. */
const struct df_check_host *df_trc_host(const struct df_trc *t, uint32_t tid);
/* Whether open call i of the trace is the innermost one in which its thread waits. */
int df_trc_is_innermost(const struct df_trc *t, size_t i);
/* Returns a thread of the trace, or NULL. */
const struct df_lthread *df_trc_thread(const struct df_trc *t, uint32_t tid);
/* Whether the thread is known to have ended. */
int df_trc_has_gone(const struct df_trc *t, const struct df_lthread *th);

#endif
