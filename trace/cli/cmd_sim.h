/* Inside `dfshim sim`: the arguments (cmd_sim.c) for the runs and their output (cmd_sim_run.c). */
#ifndef DF_TRACE_CLI_CMD_SIM_H
#define DF_TRACE_CLI_CMD_SIM_H

#include <jansson.h>

#include "trace/sim/sim.h"
#include "trace/sim/sim_sweep.h"

#define DF_SIM_CLI_SWEEPS 2

struct df_sim_args {
	const char *config, *from_trace, *output;
	int scale, rules, per_round, json, schema;
	struct df_sim_sweep sweep[DF_SIM_CLI_SWEEPS];
	int nr_sweeps;
	char **set;
	int nr_set, have_seed;
	struct df_sim_options opt;
	json_t *observed; /* with --from-trace: the observation, for the output; NULL without it */
};

/*
 * Runs the requested simulations and prints the results. Returns an exit status. A table of rules
 * and a sweep change root.
 */
int df_sim_cli_run(const struct df_sim_args *a, json_t *root);

/* Prints *o and releases it. Returns an exit status: 1 if `o` is NULL or on an error. */
int df_sim_cli_json(json_t *o);

#endif
