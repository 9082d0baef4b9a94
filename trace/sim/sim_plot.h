/* Pictures of sweeps. */
#ifndef DF_TRACE_SIM_SIM_PLOT_H
#define DF_TRACE_SIM_SIM_PLOT_H

#include <stdio.h>

struct df_sim_curve;
struct df_sim_sweep;

/*
 * Writes one or several curves over a sweep as self-contained SVG: the ratio of deadlocks in
 * percent, and its interval. Fails with -EIO if the stream reports an error.
 */
int df_sim_plot(FILE *out, const struct df_sim_sweep *x, const struct df_sim_curve *curves,
		int nr_curves, const char *title);

#endif
