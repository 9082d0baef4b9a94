/*
 * `dfshim sim`: the deadlock simulator. Its arguments, and the configuration (or recorded job) they
 * lead to. One thread; the simulator starts its own.
 */
#define _GNU_SOURCE /* sched_getaffinity */
#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "runtime/base/err.h"
#include "trace/cli/cli.h"
#include "trace/cli/cmd_sim.h"
#include "trace/sim/sim_observe.h"

static const char help[] =
	"usage: dfshim sim CONFIG.json [OPTIONS]\n"
	"       dfshim sim --from-trace DIR [--scale K] [OPTIONS]\n"
	"       dfshim sim --schema\n\n"
	"Simulates how often a workload deadlocks when GPUs issue collectives out of\n"
	"order and synchronise in between (DFCCL, EuroSys '25, section 2.4).\n\n"
	"What to simulate\n"
	"  --semantics S       exact (default): a deadlock is a real cycle; artifact: as the\n"
	"                      published program decides; fifo: a strict queue per GPU\n"
	"  --dispatch D        interleave (default) or concatenate: a GPU's list from its groups'\n"
	"  --set KEY=VALUE     replace any key of the configuration; may be repeated\n"
	"  --rules             the same rounds under NCCL's and under dfshim's rules, in one table\n"
	"  --from-trace DIR    groups, collectives and rates from a recorded job\n"
	"  --scale K           the job at K times the GPUs: the largest groups grow, the others\n"
	"                      are repeated\n\n"
	"How long\n"
	"  --rounds N          rounds; default: total_rounds x num_process of the configuration\n"
	"  --until-width W     until the 95 % interval is at most W wide (0.002 = 0.2 points);\n"
	"                      --rounds is then the most, default: no bound\n"
	"  --seed N            default: 2023 with fix_seed 1, else from the system and printed\n"
	"  --jobs N            threads, default: all cores; the result does not depend on it\n"
	"  --plain             simulate every event, no short cuts; the same result, slower\n"
	"  --rng R             native, or cpython: one sequence as the published program draws\n"
	"                      (default for artifact with fix_seed 1; one thread)\n\n"
	"What to print\n"
	"  --per-round         a line \"round deadlocks-so-far\" for each round, nothing else\n"
	"  --json              one JSON object\n"
	"  --sweep KEY=A:B:log|lin:N   or KEY=V,V,...: a table over one key; twice: over two\n"
	"  -o, --output FILE.svg       draw the sweep\n"
	"  --schema            print the JSON schema of a configuration\n"
	"  -h, --help\n\n"
	"Exit status: 0; 1 unreadable or impossible configuration; 2 wrong usage; 130 interrupted.\n";

#define NAME "sim"

/* -- arguments ------------------------------------------------------------------------------------- */

static int number(const char *opt, const char *text, int64_t min, int64_t max, int64_t *out)
{
	char *end;
	long long v;

	errno = 0;
	v = strtoll(text, &end, 10);
	if (errno || *end || end == text || v < min || v > max)
		return df_cli_usage_error(NAME, "%s %s; allowed: an integer from %lld to %lld", opt,
					  text, (long long)min, (long long)max);
	*out = v;
	return 0;
}

enum {
	O_SEMANTICS = 256,
	O_DISPATCH,
	O_SET,
	O_RULES,
	O_TRACE,
	O_SCALE,
	O_ROUNDS,
	O_WIDTH,
	O_SEED,
	O_JOBS,
	O_PLAIN,
	O_RNG,
	O_PER_ROUND,
	O_JSON,
	O_SWEEP,
	O_SCHEMA
};

static const struct option options[] = {
	{"semantics", required_argument, NULL, O_SEMANTICS},
	{"dispatch", required_argument, NULL, O_DISPATCH},
	{"set", required_argument, NULL, O_SET},
	{"rules", no_argument, NULL, O_RULES},
	{"from-trace", required_argument, NULL, O_TRACE},
	{"scale", required_argument, NULL, O_SCALE},
	{"rounds", required_argument, NULL, O_ROUNDS},
	{"until-width", required_argument, NULL, O_WIDTH},
	{"seed", required_argument, NULL, O_SEED},
	{"jobs", required_argument, NULL, O_JOBS},
	{"plain", no_argument, NULL, O_PLAIN},
	{"rng", required_argument, NULL, O_RNG},
	{"per-round", no_argument, NULL, O_PER_ROUND},
	{"json", no_argument, NULL, O_JSON},
	{"sweep", required_argument, NULL, O_SWEEP},
	{"output", required_argument, NULL, 'o'},
	{"schema", no_argument, NULL, O_SCHEMA},
	{"help", no_argument, NULL, 'h'},
	{0},
};

/* Remembers KEY=VALUE for later; memory is the process's. */
static int add_set(struct df_sim_args *a, const char *key, const char *value)
{
	char **v = realloc(a->set, (size_t)(a->nr_set + 2) * sizeof(*v));

	if (v)
		a->set = v;
	if (!v || !(v[a->nr_set] = strdup(key)) || !(v[a->nr_set + 1] = strdup(value)))
		return df_cli_usage_error(NAME, "out of memory");
	a->nr_set += 2;
	return 0;
}

static int one_option(struct df_sim_args *a, int o, char *arg)
{
	char err[512], *eq, *end;
	int64_t n;
	int rc;

	switch (o) {
	case O_SEMANTICS:
		return add_set(a, "semantics", arg);
	case O_DISPATCH:
		return add_set(a, "dispatch", arg);
	case O_SET:
		eq = strchr(arg, '=');
		if (!eq || eq == arg)
			return df_cli_usage_error(NAME, "--set %s; allowed: KEY=VALUE", arg);
		*eq = '\0';
		return add_set(a, arg, eq + 1);
	case O_RULES:
		a->rules = 1;
		return 0;
	case O_TRACE:
		a->from_trace = arg;
		return 0;
	case O_SCALE:
		rc = number("--scale", arg, 1, 1000000, &n);
		a->scale = rc ? 1 : (int)n;
		return rc;
	case O_ROUNDS:
		return number("--rounds", arg, 1, 1000000000000000, &a->opt.rounds);
	case O_WIDTH:
		a->opt.until_width = strtod(arg, &end);
		if (*end || end == arg || !(a->opt.until_width > 0 && a->opt.until_width < 1))
			return df_cli_usage_error(
				NAME, "--until-width %s; allowed: a number above 0 and below 1",
				arg);
		return 0;
	case O_SEED:
		rc = number("--seed", arg, 0, INT64_MAX, &n);
		a->opt.seed = (uint64_t)n;
		a->have_seed = 1;
		return rc;
	case O_JOBS:
		rc = number("--jobs", arg, 1, 1024, &n);
		a->opt.jobs = rc ? 1 : (int)n;
		return rc;
	case O_PLAIN:
		a->opt.plain = 1;
		return 0;
	case O_RNG:
		if (strcmp(arg, "native") && strcmp(arg, "cpython"))
			return df_cli_usage_error(NAME, "--rng %s; allowed: native, cpython", arg);
		a->opt.rng = *arg == 'n' ? DF_SIM_RNG_NATIVE : DF_SIM_RNG_CPYTHON;
		return 0;
	case O_PER_ROUND:
		a->per_round = 1;
		return 0;
	case O_JSON:
		a->json = 1;
		return 0;
	case O_SWEEP:
		if (a->nr_sweeps == DF_SIM_CLI_SWEEPS)
			return df_cli_usage_error(NAME, "--sweep is given more than twice");
		if (df_sim_sweep_parse(&a->sweep[a->nr_sweeps], arg, err, sizeof(err)))
			return df_cli_usage_error(NAME, "%s", err);
		a->nr_sweeps++;
		return 0;
	case 'o':
		a->output = arg;
		return 0;
	case O_SCHEMA:
		a->schema = 1;
		return 0;
	}
	return df_cli_usage_error(NAME, "unknown option, or one without its value");
}

static int parse_args(struct df_sim_args *a, int argc, char **argv)
{
	int o, rc;

	optind = 1;
	opterr = 0;
	while ((o = getopt_long(argc, argv, "ho:", options, NULL)) != -1) {
		if (o == '?')
			return df_cli_usage_error(NAME,
						  "'%s': unknown option, or its value is missing",
						  argv[optind - 1]);
		if (o == 'h') {
			fputs(help, stdout);
			exit(0);
		}
		rc = one_option(a, o, optarg);
		if (rc)
			return rc;
	}
	if (a->schema)
		return 0;
	if (optind < argc)
		a->config = argv[optind++];
	if (optind < argc)
		return df_cli_usage_error(NAME, "'%s': only one configuration at a time",
					  argv[optind]);
	if (!a->config == !a->from_trace)
		return df_cli_usage_error(NAME, a->config ? "both a configuration and --from-trace"
							  : "no configuration");
	if (a->output && !a->nr_sweeps)
		return df_cli_usage_error(NAME, "-o draws a sweep: --sweep is missing");
	if (a->per_round && (a->nr_sweeps || a->rules))
		return df_cli_usage_error(NAME, "--per-round goes with a single run only");
	if (a->rules && a->nr_sweeps)
		return df_cli_usage_error(NAME, "--rules and --sweep can't be combined");
	if (a->nr_sweeps == 2 && !strcmp(a->sweep[0].key, a->sweep[1].key))
		return df_cli_usage_error(NAME, "--sweep %s is given twice", a->sweep[0].key);
	return 0;
}

/* A configuration from a recorded job; says on standard error what was seen. */
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
		"observed    %d GPUs, %d communicators, %lld collectives issued: %lld out of order, "
		"%lld device-wide synchronisations\n",
		o.load.nr_gpus, o.load.nr_groups, (long long)o.nr_issued, (long long)o.nr_disorder,
		(long long)o.nr_sync);
	fprintf(stderr,
		"            disorder_prob %g (95 %% interval %.3g to %.3g), sync_prob %g\n", d,
		ci[0], ci[1], s);
	if (!o.nr_disorder)
		fprintf(stderr,
			"note        no disorder was recorded; --set disorder_prob=%.2g asks for the worst "
			"that fits\n",
			ci[1]);
	if (o.nr_incomplete)
		fprintf(stderr,
			"note        %d communicators have ranks without a trace: the job was larger\n",
			o.nr_incomplete);
	if (o.nr_dropped)
		fprintf(stderr,
			"note        the rings had overwritten %lld records (DFSHIM_TRACE_MB): this is "
			"the end of the job\n",
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
	a.opt.seed &= UINT32_MAX; /* short enough to type again */
	rc = parse_args(&a, argc, argv);
	if (rc) {
		/* said already */
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
