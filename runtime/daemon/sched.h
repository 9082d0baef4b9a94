/*
 * Scheduling policy: from settings to the constants that the daemon uses (struct df_policy). Pure.
 */
#ifndef DF_RUNTIME_DAEMON_SCHED_H
#define DF_RUNTIME_DAEMON_SCHED_H

#include "kernels/abi.h"
#include "runtime/base/env.h"
#include "runtime/base/err.h"

/* DFSHIM_PRIORITY: the sum of all rules that match; keys are comm (the communicator's name) and op (AllReduce, Send, ...). rules NULL: 0. */
int df_priority_of(const char *rules, const char *comm_name, const char *op_name);

void df_policy_init(struct df_policy *p, const struct df_env *env, int gpu);

#endif
