/* Sweeps over one or two keys of a configuration, and the curves of their results. One thread. */
#ifndef DF_TRACE_SIM_SIM_SWEEP_H
#define DF_TRACE_SIM_SIM_SWEEP_H

#include <stdio.h>

#define DF_SIM_SWEEP_MAX 1000

struct df_sim_sweep {
	char key[40];
	int nr;
	char (*text)[32]; /* nr values, written as in the command */
	double *x;	  /* the values as numbers; for words, their index */
	int numeric, log;
};

/*
 * Reads KEY=FROM:TO:log|lin:COUNT or KEY=VALUE,VALUE,... (values may be words). Returns 0, -ENOMEM,
 * or -EINVAL with the reason in err. The caller releases *sw with df_sim_sweep_fini().
 */
int df_sim_sweep_parse(struct df_sim_sweep *sw, const char *spec, char *err, size_t err_size);
void df_sim_sweep_fini(struct df_sim_sweep *sw);

struct df_sim_curve {
	const char *name; /* "" if there is only one curve */
	int nr;
	const double *ratio, *lo, *hi; /* as fractions */
};

#endif
