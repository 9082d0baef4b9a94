/*
 * The statements of a Python program that decide which of two calls a rank makes. Reads the source
 * files that the traces name, so only tools may call it, never a process of the job.
 */
#ifndef DF_TRACE_SAY_DECIDED_H
#define DF_TRACE_SAY_DECIDED_H

struct df_check_result;

/*
 * Sets `decided` of a result with a first divergence whose source files are on this machine and
 * have not changed since the job began. Else leaves it NULL.
 */
void df_decided_find(struct df_check_result *r);

#endif
