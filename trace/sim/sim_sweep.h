/* Sweeps over one or two keys of a configuration, and the curves of their results. One thread. */
#ifndef DF_TRACE_SIM_SIM_SWEEP_H
#define DF_TRACE_SIM_SIM_SWEEP_H

#include <stdio.h>

#define DF_SIM_SWEEP_MAX 1000

struct df_sim_sweep {
	char key[40];
	int nr;
	char (*text)[32]; /* nr values, written as in the file */
	double *x;	  /* the same as numbers; for words their index */
	int numeric, log;
};

/*
 * Reads KEY=FROM:TO:log|lin:COUNT or KEY=VALUE,VALUE,... (words allowed). Fails with -EINVAL and
 * err, or with -ENOMEM.
 */
int df_sim_sweep_parse(struct df_sim_sweep *sw, const char *spec, char *err, size_t err_size);
void df_sim_sweep_fini(struct df_sim_sweep *sw);

struct df_sim_curve {
	const char *name; /* "" for the only one */
	int nr;
	const double *ratio, *lo, *hi; /* as fractions */
};

#endif
