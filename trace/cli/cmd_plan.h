/* Shared by the two halves of `dfshim plan`: the configuration. */
#ifndef DF_TRACE_CLI_CMD_PLAN_H
#define DF_TRACE_CLI_CMD_PLAN_H

#include "trace/plan/plan_int.h"

/* A configuration file. The walk is valid if it has a preserver. */
struct df_plan_config {
	struct df_plan_profile profile;
	struct df_plan_walk walk;
	int has_walk;
};

/*
 * Reads a configuration. Fails with -EINVAL and err, which names the key. docs/man/dfshim-plan.1
 * has the keys.
 */
int df_plan_config_read(struct df_plan_config *c, const char *path, char *err, size_t size);

#endif
