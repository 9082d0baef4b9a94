/*
 * Measures how fast the simulator is: the event-by-event engine on one core in its bit-identical
 * mode, which draws as the published program does, and all 3D rows of Table 1 of the DFCCL paper at
 * the paper's 32,000 rounds with the short cuts, on two cores.
 *
 *   b_sim [GLOB]   only the figures whose name matches
 */
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "runtime/base/err.h"
#include "trace/sim/sim.h"

struct row {
	const char *name;
	enum df_sim_model model;
	int tp, dp, pp, nt, nd;
	double disorder, sync;
};

static const struct row rows[] = {
	{"single_444_1e-7", DF_SIM_SINGLE, 4, 4, 4, 400, 1200, 1e-7, 0},
	{"single_444_1e-6", DF_SIM_SINGLE, 4, 4, 4, 400, 1200, 1e-6, 0},
	{"single_8_6_64_1e-9", DF_SIM_SINGLE, 8, 6, 64, 400, 1200, 1e-9, 0},
	{"single_8_6_64_1e-8", DF_SIM_SINGLE, 8, 6, 64, 400, 1200, 1e-8, 0},
	{"sync_444_2e-3_4e-3", DF_SIM_SYNC, 4, 4, 4, 400, 1200, 2e-3, 4e-3},
	{"sync_444_4e-3_4e-3", DF_SIM_SYNC, 4, 4, 4, 400, 1200, 4e-3, 4e-3},
	{"sync_444_4e-3_2e-3", DF_SIM_SYNC, 4, 4, 4, 400, 1200, 4e-3, 2e-3},
	{"sync_444x2_4e-3_4e-3", DF_SIM_SYNC, 4, 4, 4, 800, 2400, 4e-3, 4e-3},
	{"sync_8_6_64_8e-4_8e-4", DF_SIM_SYNC, 8, 6, 64, 400, 1200, 8e-4, 8e-4},
};

static const char *glob = "*";

static int wanted(const char *name)
{
	return fnmatch(glob, name, 0) == 0;
}

static int config(struct df_sim_config *cfg, const struct row *r, enum df_sim_semantics semantics)
{
	int m = 0, g = 0;

	memset(cfg, 0, sizeof(*cfg));
	cfg->model = r->model;
	cfg->semantics = semantics;
	cfg->disorder_prob = r->disorder;
	cfg->sync_prob = r->sync;
	cfg->total_rounds = 32000;
	cfg->num_process = 1;
	cfg->resource_limit = -1;
	if (df_sim_workload_init(&cfg->load, (r->tp + r->dp) * r->pp, 2 * r->tp * r->dp * r->pp))
		return -1;
	cfg->load.nr_gpus = r->tp * r->dp * r->pp;
	for (int p = 0; p < r->pp; p++)
		for (int i = 0; i < r->dp + r->tp; i++, g++) {
			int base = p * r->tp * r->dp, is_tp = i < r->dp;

			for (int k = 0; k < (is_tp ? r->tp : r->dp); k++)
				cfg->load.members[m++] =
					base + (is_tp ? i * r->tp + k : k * r->tp + i - r->dp);
			cfg->load.nr_colls[g] = is_tp ? r->nt : r->nd;
			cfg->load.start[g + 1] = m;
		}
	return 0;
}

static int run(const struct row *r, enum df_sim_semantics semantics, int64_t rounds, int jobs,
	       enum df_sim_rng_kind rng, struct df_sim_result *res)
{
	struct df_sim_options o = {.rounds = rounds, .seed = 2023, .jobs = jobs, .rng = rng};
	struct df_sim_config cfg;
	int rc = config(&cfg, r, semantics);

	if (!rc)
		rc = df_sim_run(&cfg, &o, res);
	df_sim_config_fini(&cfg);
	if (rc)
		fprintf(stderr, "b_sim: %s: error %d\n", r->name, rc);
	return rc;
}

static double cpu_seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

/*
 * Simulates every (4,4,4) row event by event on one core: at least 1,000 rounds/s. Counts processor
 * time, so that other load does not lower the rate, and takes the best of eight.
 */
static int bench_plain(void)
{
	for (size_t i = 0; i < DF_ARRAY_LEN(rows); i++) {
		struct df_sim_result res;
		double target = 1000, rate = 0;
		char name[80];

		if (rows[i].pp != 4)
			continue;
		snprintf(name, sizeof(name), "sim_plain_%s", rows[i].name);
		if (!wanted(name))
			continue;
		for (int k = 0; k < 8; k++) {
			double began = cpu_seconds();

			if (run(&rows[i], DF_SIM_ARTIFACT, 400, 1, DF_SIM_RNG_CPYTHON, &res))
				return 1;
			rate = DF_MAX(rate, 400 / (cpu_seconds() - began));
		}
		printf("BENCH %s %.0f rounds/s target >=%.0f %s\n", name, res.rounds_per_second,
		       target, res.rounds_per_second >= target ? "ok" : "MISS");
		fflush(stdout);
	}
	return 0;
}

/* Simulates all 3D rows at 32,000 rounds on two cores: under 10 minutes together. */
static int bench_table(const char *name, enum df_sim_semantics semantics)
{
	double total = 0;

	if (!wanted(name))
		return 0;
	for (size_t i = 0; i < DF_ARRAY_LEN(rows); i++) {
		struct df_sim_result res;

		if (run(&rows[i], semantics, 32000, 2, DF_SIM_RNG_NATIVE, &res))
			return 1;
		printf("# %s %s: %.3f %% [%.3f, %.3f], %.2f s\n", name, rows[i].name,
		       100 * res.ratio, 100 * res.ci95[0], 100 * res.ci95[1], res.seconds);
		fflush(stdout);
		total += res.seconds;
	}
	printf("BENCH %s %.1f s target <600 %s\n", name, total, total < 600 ? "ok" : "MISS");
	return 0;
}

int main(int argc, char **argv)
{
	if (argc > 1)
		glob = argv[1];
	return bench_plain() || bench_table("sim_table1_3d_exact", DF_SIM_EXACT) ||
	       bench_table("sim_table1_3d_artifact", DF_SIM_ARTIFACT);
}
