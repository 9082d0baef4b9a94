/*
 * `dfshim plan`: what its two halves share, arguments with the configuration they name, and the result.
 */
#ifndef DF_TRACE_CLI_CMD_PLAN_H
#define DF_TRACE_CLI_CMD_PLAN_H

#include "trace/plan/plan_sched.h"

/* A configuration file; the walk is there if it has a preserver. */
struct df_plan_config {
	struct df_plan_profile profile;
	struct df_plan_walk walk;
	int has_walk;
};

/* 0, or -EINVAL and what is wrong with which key. docs/man/dfshim-plan.1 has the keys. */
int df_plan_config_read(struct df_plan_config *c, const char *path, char *err, size_t size);

#endif
