/*
 * Scheduling policy: from settings to the constants that the daemon uses (struct df_policy). Pure.
 */
#ifndef DF_RUNTIME_SCHED_H
#define DF_RUNTIME_SCHED_H

#include "kernels/abi.h"
#include "runtime/base/env.h"
#include "runtime/base/err.h"

void df_policy_init(struct df_policy *p, const struct df_env *env, int on_host);

#endif
