/* Scheduling policy: computes the daemon's constants (struct df_policy) from the settings. Pure. */
#ifndef DF_RUNTIME_DAEMON_SCHED_H
#define DF_RUNTIME_DAEMON_SCHED_H

#include "kernels/abi.h"
#include "runtime/base/env.h"
#include "runtime/base/err.h"

/*
 * DFSHIM_PRIORITY: the sum of all matching rules. Keys are comm (the communicator's name) and op
 * (AllReduce, Send, ...). Returns 0 if rules is NULL.
 */
int df_priority_of(const char *rules, const char *comm_name, const char *op_name);

void df_policy_init(struct df_policy *p, const struct df_env *env, int gpu);

#endif
