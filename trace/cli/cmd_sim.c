/*
 * `dfshim sim`: the deadlock simulator's arguments, and the configuration (or recorded job) that
 * they name. One thread; the simulator starts its own.
 */
#define _GNU_SOURCE /* sched_getaffinity */
#include <jansson.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "runtime/base/err.h"
#include "trace/cli/cmd.h"
#include "trace/cli/common/cli.h"
#include "trace/cli/cmd_sim.h"
#include "trace/sim/sim_observe.h"

#define NAME "sim"

/* -- arguments --------------------------------------------------------------------------------- */

/* Stores KEY=VALUE for load(). Returns what is wrong, or NULL. */
static const char *add_set(struct df_sim_args *a, const char *key, size_t len, const char *value)
{
	char **v = realloc(a->set, (size_t)(a->nr_set + 2) * sizeof(*v));

	if (v)
		a->set = v;
	if (!v || !(v[a->nr_set] = strndup(key, len)) || !(v[a->nr_set + 1] = strdup(value)))
		return "out of memory";
	a->nr_set += 2;
	return NULL;
}

static const char *take_set(void *to, const char *arg)
{
	const char *eq = strchr(arg, '=');

	return eq && eq > arg ? add_set(to, arg, (size_t)(eq - arg), eq + 1) : "allowed: KEY=VALUE";
}

static const char *take_sweep(void *to, const char *arg)
{
	struct df_sim_args *a = to;
	static char err[512];

	if (a->nr_sweeps == DF_SIM_CLI_SWEEPS)
		return "given more than twice";
	if (df_sim_sweep_parse(&a->sweep[a->nr_sweeps], arg, err, sizeof(err)))
		return err;
	a->nr_sweeps++;
	return NULL;
}

static int parse_args(struct df_sim_args *a, int argc, char **argv)
{
	const char *semantics = NULL, *dispatch = NULL, *rng = NULL;
	double width = 0;
	const struct df_opt options[] = {
		DF_HEADING("Simulation:"),
		DF_WORD("semantics", "exact|artifact|fifo", semantics,
			"what is a deadlock; exact (default): a real cycle; artifact: as the "
			"published program decides; fifo: a strict queue per GPU"),
		DF_WORD("dispatch", "interleave|concatenate", dispatch,
			"how the lists of a GPU's groups become one; interleave (default): one "
			"collective of each in turn; concatenate: one list after the other"),
		DF_TAKE("set", "KEY=VALUE", take_set, *a,
			"replace any key of the configuration; may be repeated"),
		DF_FLAG("rules", a->rules,
			"the same rounds under NCCL's and under dfshim's rules, in one table"),
		DF_TEXT("from-trace", "DIR", a->from_trace,
			"groups, collectives and rates from a recorded job; --set may replace what "
			"was observed"),
		DF_NUMBER("scale", "K", a->scale, 1, 1e6,
			  "the workload at K times the GPUs: copies of it, in which the largest "
			  "groups are merged and the others are repeated"),
		DF_HEADING("How long:"),
		DF_OPT(ROUNDS, a->opt.rounds,
		       "rounds (total_rounds x num_process of the configuration)"),
		DF_REAL("until-width", "W", width, 1e-12, 0.999999,
			"until the 95 % interval is at most W wide (0.002: 0.2 points); --rounds "
			"is then the most, without it there is no bound"),
		DF_OPT(SEED, a->opt.seed,
		       "2023 with fix_seed 1, else from the system; it is printed with the result"),
		DF_NUMBER("jobs", "N", a->opt.jobs, 1, 1024,
			  "threads (all cores); the result does not depend on it"),
		DF_FLAG("plain", a->opt.plain,
			"simulate every event, no short cuts; the same result, slower"),
		DF_WORD("rng", "native|cpython", rng,
			"native: one stream of random numbers a round; cpython: one sequence as "
			"the published program draws (default for artifact with fix_seed 1; one "
			"thread)"),
		DF_HEADING("What to print:"),
		DF_FLAG("per-round", a->per_round,
			"a line \"round deadlocks-so-far\" for each round; the summary goes to "
			"standard error"),
		DF_OPT(JSON, a->json,
		       "one JSON object: rounds, deadlocks, ratio, ci95, rounds_per_second, seed "
		       "and more"),
		DF_TAKE("sweep", "KEY=VALUES", take_sweep, *a,
			"a table over one key: FROM:TO:log|lin:COUNT or V,V,...; twice: over two "
			"keys"),
		DF_OPT_AS(OUTPUT, "FILE.svg", a->output,
			  "draw the sweep: the ratio with its interval over the first key, a curve "
			  "for each value of the second"),
		DF_FLAG("schema", a->schema, "print the JSON schema of a configuration"),
	};
	uint64_t seed = a->opt.seed;

	a->opt.seed = UINT64_MAX;
	DF_CLI_PARSE(NAME, &argc, &argv, .args = "CONFIG.json\n--from-trace=DIR\n--schema",
		     .most = 1,
		     .doc = "Simulates how often a workload deadlocks when GPUs issue collectives "
			    "out of order and synchronise in between (DFCCL, EuroSys '25, section "
			    "2.4).\vExit status: 0; 1 unreadable or impossible configuration; 2 "
			    "wrong usage; 130 interrupted.");
	a->have_seed = a->opt.seed != UINT64_MAX;
	if (!a->have_seed)
		a->opt.seed = seed;
	a->opt.until_width = width;
	if (rng)
		a->opt.rng = *rng == 'n' ? DF_SIM_RNG_NATIVE : DF_SIM_RNG_CPYTHON;
	if ((semantics && add_set(a, "semantics", 9, semantics)) ||
	    (dispatch && add_set(a, "dispatch", 8, dispatch)))
		return df_cli_input_error(NAME, "options", "out of memory");
	if (a->schema)
		return 0;
	a->config = argc ? argv[0] : NULL;
	if (!a->config == !a->from_trace)
		return df_cli_usage_error(NAME, a->config ? "both a configuration and --from-trace"
							  : "no configuration");
	if (a->output && !a->nr_sweeps)
		return df_cli_usage_error(NAME, "-o draws a sweep: --sweep is missing");
	if (a->per_round && (a->nr_sweeps || a->rules))
		return df_cli_usage_error(NAME, "--per-round goes with a single run only");
	if (a->rules && a->nr_sweeps)
		return df_cli_usage_error(NAME, "--rules and --sweep cannot be combined");
	if (a->nr_sweeps == 2 && !strcmp(a->sweep[0].key, a->sweep[1].key))
		return df_cli_usage_error(NAME, "--sweep %s is given twice", a->sweep[0].key);
	return 0;
}

/* Makes a configuration from a recorded job; prints to standard error what it observed. */
static json_t *load_trace(struct df_sim_args *a, int *status)
{
	struct df_sim_observed o;
	char err[1024];
	double d, s, ci[2];
	json_t *root;

	if (df_sim_observe(&o, a->from_trace, err, sizeof(err))) {
		fprintf(stderr, "dfshim " NAME ": %s\n", err);
		*status = 1;
		return NULL;
	}
	d = (double)o.nr_disorder / (double)o.nr_issued;
	s = (double)o.nr_sync / (double)(o.nr_sync + o.nr_issued);
	df_sim_wilson(o.nr_disorder, o.nr_issued, ci);
	fprintf(stderr,
		"observed    %d GPUs, %d communicators, %lld collectives issued: %lld out of "
		"order, %lld device-wide synchronisations\n",
		o.load.nr_gpus, o.load.nr_groups, (long long)o.nr_issued, (long long)o.nr_disorder,
		(long long)o.nr_sync);
	fprintf(stderr,
		"            disorder_prob %g (95 %% interval %.3g to %.3g), sync_prob %g\n", d,
		ci[0], ci[1], s);
	if (!o.nr_disorder)
		fprintf(stderr,
			"note        no disorder was recorded; --set disorder_prob=%.2g asks for "
			"the worst that fits\n",
			ci[1]);
	if (o.nr_incomplete)
		fprintf(stderr,
			"note        %d communicators have ranks without a trace: the job was "
			"larger\n",
			o.nr_incomplete);
	if (o.nr_dropped)
		fprintf(stderr,
			"note        the rings had overwritten %lld records (DFSHIM_TRACE_MB): "
			"this is the end of the job\n",
			(long long)o.nr_dropped);
	a->observed = json_pack(
		"{s:i, s:i, s:I, s:I, s:I, s:I, s:i}", "gpus", o.load.nr_gpus, "communicators",
		o.load.nr_groups, "issued", (json_int_t)o.nr_issued, "disordered",
		(json_int_t)o.nr_disorder, "device_syncs", (json_int_t)o.nr_sync, "records_dropped",
		(json_int_t)o.nr_dropped, "communicators_incomplete", o.nr_incomplete);
	root = df_sim_workload_json(&o.load, s > 0 ? "StreamWithSync" : "Single", d, s);
	df_sim_workload_fini(&o.load);
	if (!root)
		*status = df_cli_input_error(NAME, a->from_trace, "out of memory");
	return root;
}

static json_t *load(struct df_sim_args *a, int *status)
{
	char err[1024];
	json_t *root = NULL;

	if (a->from_trace) {
		root = load_trace(a, status);
		if (!root)
			return NULL;
	} else if (df_sim_json_load(&root, a->config, err, sizeof(err))) {
		*status = df_cli_input_error(NAME, a->config, "%s", err);
		return NULL;
	}
	for (int i = 0; i < a->nr_set; i += 2)
		if (!json_is_object(root) ||
		    df_sim_json_set(root, a->set[i], a->set[i + 1], err, sizeof(err))) {
			if (!json_is_object(root))
				*status = df_cli_input_error(NAME, a->config,
							     "the file holds no JSON object");
			else
				*status = df_cli_usage_error(NAME, "%s", err);
			json_decref(root);
			return NULL;
		}
	return root;
}

int df_cmd_sim(int argc, char **argv)
{
	struct df_sim_args a = {.scale = 1};
	cpu_set_t cpus;
	json_t *root;
	int rc;

	a.opt.jobs = sched_getaffinity(0, sizeof(cpus), &cpus) ? 1 : CPU_COUNT(&cpus);
	if (getrandom(&a.opt.seed, sizeof(a.opt.seed), 0) != (ssize_t)sizeof(a.opt.seed))
		a.opt.seed = (uint64_t)getpid();
	a.opt.seed &= UINT32_MAX; /* keeps the seed short enough to be typed again */
	rc = parse_args(&a, argc, argv);
	if (rc) {
		/* a message was printed already */
	} else if (a.schema) {
		rc = df_sim_cli_json(df_sim_schema());
	} else {
		root = load(&a, &rc);
		if (root)
			rc = df_sim_cli_run(&a, root);
		json_decref(root);
	}
	json_decref(a.observed);
	for (int i = 0; i < a.nr_sweeps; i++)
		df_sim_sweep_fini(&a.sweep[i]);
	for (int i = 0; i < a.nr_set; i++)
		free(a.set[i]);
	free(a.set);
	return rc;
}
