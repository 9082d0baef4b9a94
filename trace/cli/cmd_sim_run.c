/*
 * `dfshim sim`: one run, a table of rules, or a sweep, as text, JSON or a picture; progress on a
 * terminal.
 *
 * The first interrupt ends the run and prints the results until then; the second ends the process.
 */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/err.h"
#include "trace/cli/common/cli.h"
#include "trace/cli/cmd_sim.h"
#include "trace/say/json.h"
#include "trace/sim/sim_int.h"
#include "trace/sim/sim_plot.h"

#define NAME "sim"

static atomic_int interrupted;

static void on_interrupt(int sig)
{
	(void)sig;
	atomic_store_explicit(&interrupted, 1, memory_order_relaxed);
	signal(SIGINT, SIG_DFL);
}

/* -- texts ------------------------------------------------------------------------------------- */

/* Writes a fraction as percent with a suitable number of digits. */
static const char *percent(double f, char *buf)
{
	double p = 100 * f;
	int places = p == 0 || p >= 99.95 ? 0
		     : p >= 9.995	  ? 1
		     : p >= 0.0995	  ? 2
		     : p >= 0.00995	  ? 3
					  : 4;

	snprintf(buf, 24, "%.*f %%", places, p);
	return buf;
}

static const char *interval(const double ci[2], char *buf)
{
	char lo[24], hi[24];

	snprintf(buf, 56, "%s to %s", percent(ci[0], lo), percent(ci[1], hi));
	return buf;
}

static const char *span(double s, char *buf)
{
	if (s < 60)
		snprintf(buf, 24, "%.1f s", s);
	else if (s < 3600)
		snprintf(buf, 24, "%d min %02d s", (int)s / 60, (int)s % 60);
	else
		snprintf(buf, 24, "%d h %02d min", (int)(s / 3600), (int)s % 3600 / 60);
	return buf;
}

/* -- progress ---------------------------------------------------------------------------------- */

struct show {
	int per_round, tty;
	int step, nr_steps; /* current point of a sweep or table, and number of points */
	int drawn;
};

static void show_round(void *arg, int64_t round, int deadlock, int64_t deadlocks)
{
	struct show *s = arg;

	(void)deadlock;
	if (s->per_round)
		printf("%lld %lld\n", (long long)round, (long long)deadlocks);
}

static void show_progress(void *arg, const struct df_sim_progress *p)
{
	struct show *s = arg;
	double rate = p->seconds > 0 ? (double)p->rounds / p->seconds : 0, left = -1;
	char buf[24], ratio[24];

	if (!s->tty || p->seconds < 0.3)
		return;
	fputs("\r\033[K", stderr);
	if (s->nr_steps > 1)
		fprintf(stderr, "[%d/%d] ", s->step, s->nr_steps);
	fprintf(stderr, "%lld", (long long)p->rounds);
	if (p->limit)
		fprintf(stderr, " of %lld", (long long)p->limit);
	fprintf(stderr, " rounds, %.0f/s, %lld deadlocks", rate, (long long)p->deadlocks);
	if (p->rounds)
		fprintf(stderr, " (%s)", percent((double)p->deadlocks / (double)p->rounds, ratio));
	if (p->limit && rate > 0)
		left = (double)(p->limit - p->rounds) / rate;
	if (p->until_width > 0 && p->rounds > 100) {
		/* The width shrinks with the square root of the rounds. */
		double need = (double)p->rounds * (p->width / p->until_width) *
			      (p->width / p->until_width);
		double t = need > (double)p->rounds ? (need - (double)p->rounds) / rate : 0;

		if (left < 0 || t < left)
			left = t;
	}
	if (left >= 0)
		fprintf(stderr, ", %s left", span(left, buf));
	fflush(stderr);
	s->drawn = 1;
}

static void erase_progress(struct show *s)
{
	if (s->drawn)
		fputs("\r\033[K", stderr);
	s->drawn = 0;
}

/* -- one run ----------------------------------------------------------------------------------- */

static uint64_t seed_of(const struct df_sim_args *a, const struct df_sim_config *cfg)
{
	return !a->have_seed && cfg->fix_seed ? 2023 : a->opt.seed;
}

/* Reads a configuration from JSON and runs it. Returns 0, or an exit status after a message. */
static int run(const struct df_sim_args *a, const json_t *root, enum df_sim_rules rules,
	       struct show *show, struct df_sim_config *cfg, struct df_sim_result *res)
{
	const char *from = a->config ? a->config : a->from_trace;
	struct df_sim_options opt = a->opt;
	char err[1024];
	int rc;

	rc = df_sim_config_from_json(cfg, root, err, sizeof(err));
	if (rc)
		return df_cli_input_error(NAME, from, "%s", err);
	if (a->scale > 1) {
		struct df_sim_workload big;

		rc = df_sim_workload_scale(&big, &cfg->load, a->scale);
		if (rc) {
			df_sim_config_fini(cfg);
			return df_cli_input_error(NAME, from, "--scale %d: %s", a->scale,
						  rc == -EINVAL ? "the workload becomes too large"
								: "out of memory");
		}
		df_sim_workload_fini(&cfg->load);
		cfg->load = big;
	}
	cfg->rules = rules;
	opt.seed = seed_of(a, cfg);
	opt.stop = &interrupted;
	opt.round = show_round;
	opt.progress = show->tty ? show_progress : NULL;
	opt.arg = show;
	rc = df_sim_run(cfg, &opt, res);
	erase_progress(show);
	if (rc) {
		df_sim_config_fini(cfg);
		return df_cli_input_error(NAME, from, "%s",
					  rc == -E2BIG
						  ? "sync_prob is so high that a GPU needs more "
						    "than 2^30 turns; choose a lower one"
						  : strerror(-rc));
	}
	return 0;
}

static json_t *result_json(const struct df_sim_args *a, const struct df_sim_config *cfg,
			   const struct df_sim_result *r)
{
	static const char *const rules[] = {"nccl", "dfshim-no-release", "dfshim"};
	json_t *o = json_pack(
		"{s:I, s:I, s:f, s:[f,f], s:f, s:f, s:I, s:i, s:s, s:s, s:s, s:s, s:f, s:f, s:i, "
		"s:i, s:i, s:I, s:I, s:I, s:I, s:I, s:b}",
		"rounds", (json_int_t)r->rounds, "deadlocks", (json_int_t)r->deadlocks, "ratio",
		r->ratio, "ci95", r->ci95[0], r->ci95[1], "rounds_per_second", r->rounds_per_second,
		"seconds", r->seconds, "seed", (json_int_t)seed_of(a, cfg), "jobs", a->opt.jobs,
		"model", df_sim_model_name(cfg->model), "semantics",
		df_sim_semantics_name(cfg->semantics), "dispatch",
		df_sim_dispatch_name(cfg->dispatch), "rules", rules[cfg->rules], "disorder_prob",
		cfg->disorder_prob, "sync_prob", cfg->sync_prob, "resource_limit",
		cfg->resource_limit, "gpus", cfg->load.nr_gpus, "groups", cfg->load.nr_groups,
		"events_per_round", (json_int_t)df_sim_workload_events(&cfg->load), "parts",
		(json_int_t)r->nr_parts, "parts_skipped", (json_int_t)r->nr_parts_skipped,
		"releases", (json_int_t)r->releases, "released_rounds",
		(json_int_t)r->released_rounds, "interrupted", r->stopped);

	if (a->observed)
		json_object_set(o, "observed", a->observed);
	return o;
}

int df_sim_cli_json(json_t *o)
{
	int rc = df_json_write(o, stdout, 1);

	putchar('\n');
	return rc ? 1 : 0;
}

static void print_text(const struct df_sim_args *a, const struct df_sim_config *cfg,
		       const struct df_sim_result *r, FILE *out)
{
	char b[2][56];

	fprintf(out, "model       %s, %s semantics, %s", df_sim_model_name(cfg->model),
		df_sim_semantics_name(cfg->semantics), df_sim_dispatch_name(cfg->dispatch));
	if (cfg->model == DF_SIM_SYNC && cfg->resource_limit > 0)
		fprintf(out, ", %d at once", cfg->resource_limit);
	fprintf(out, "\nworkload    %d GPUs in %d groups, %lld collective parts a round\n",
		cfg->load.nr_gpus, cfg->load.nr_groups,
		(long long)df_sim_workload_events(&cfg->load));
	fprintf(out, "disorder    %g\n", cfg->disorder_prob);
	if (cfg->model == DF_SIM_SYNC)
		fprintf(out, "sync        %g\n", cfg->sync_prob);
	fprintf(out, "rounds      %lld%s (seed %llu)\n", (long long)r->rounds,
		r->stopped ? ", interrupted" : "", (unsigned long long)seed_of(a, cfg));
	fprintf(out, "deadlocks   %lld\n", (long long)r->deadlocks);
	fprintf(out, "ratio       %s, 95 %% interval %s\n", percent(r->ratio, b[0]),
		interval(r->ci95, b[1]));
	fprintf(out, "speed       %.0f rounds/s, %s", r->rounds_per_second, span(r->seconds, b[0]));
	if (r->nr_parts_skipped)
		fprintf(out, "; %s of the independent parts needed no simulation",
			percent((double)r->nr_parts_skipped / (double)r->nr_parts, b[1]));
	fputc('\n', out);
	if (cfg->model == DF_SIM_SINGLE && cfg->semantics == DF_SIM_ARTIFACT && r->ratio > 0.99)
		fprintf(out, "note        groups of unequal share make the published single-queue "
			     "test fire\n            without any disorder; --semantics exact or "
			     "fifo does not\n");
	if (cfg->fix_seed && cfg->num_process > 1 && cfg->semantics == DF_SIM_ARTIFACT)
		fprintf(out,
			"note        fix_seed 1: all %d processes replay the same %lld rounds\n",
			cfg->num_process, (long long)cfg->total_rounds);
}

static int run_once(const struct df_sim_args *a, const json_t *root, struct show *show)
{
	struct df_sim_config cfg;
	struct df_sim_result res;
	int rc = run(a, root, DF_SIM_NCCL, show, &cfg, &res);

	if (rc)
		return rc;
	if (a->json)
		rc = df_sim_cli_json(result_json(a, &cfg, &res));
	else
		print_text(a, &cfg, &res, a->per_round ? stderr : stdout);
	df_sim_config_fini(&cfg);
	return rc ? rc : res.stopped ? 130 : 0;
}

/* -- rules ------------------------------------------------------------------------------------- */

static const struct row {
	enum df_sim_model model;
	enum df_sim_semantics semantics;
	enum df_sim_rules rules;
	int limit; /* whether resource_limit applies; the row is omitted if it is not set */
	const char *name;
} rows[] = {
	{DF_SIM_SINGLE, DF_SIM_FIFO, DF_SIM_NCCL, 0, "NCCL, one stream per GPU"},
	{DF_SIM_SINGLE, DF_SIM_EXACT, DF_SIM_NCCL, 0, "NCCL, one stream per communicator"},
	{DF_SIM_SINGLE, DF_SIM_EXACT, DF_SIM_PREEMPT, 0, "dfshim: matching, preemption"},
	{DF_SIM_SYNC, DF_SIM_FIFO, DF_SIM_NCCL, 0, "NCCL, one stream per GPU"},
	{DF_SIM_SYNC, DF_SIM_EXACT, DF_SIM_NCCL, 1, "NCCL, limited residency"},
	{DF_SIM_SYNC, DF_SIM_EXACT, DF_SIM_NCCL, 0, "NCCL, streams and room for all"},
	{DF_SIM_SYNC, DF_SIM_EXACT, DF_SIM_PREEMPT, 0, "dfshim: matching, preemption"},
	{DF_SIM_SYNC, DF_SIM_EXACT, DF_SIM_RELEASE, 0, "dfshim: the same, and release"},
};

static int run_rules(const struct df_sim_args *a, json_t *root, struct show *show)
{
	const char *model = json_string_value(json_object_get(root, "model"));
	int sync = model && !strcmp(model, "StreamWithSync"), rc = 0, first = 1, stopped = 0;
	json_int_t limit = json_integer_value(json_object_get(root, "resource_limit"));
	json_t *list = json_array();

	for (size_t i = 0; i < DF_ARRAY_LEN(rows); i++)
		show->nr_steps += (int)rows[i].model == sync && (!rows[i].limit || limit > 0);
	for (size_t i = 0; i < DF_ARRAY_LEN(rows) && !rc && !stopped; i++) {
		const struct row *row = &rows[i];
		struct df_sim_config cfg;
		struct df_sim_result r;
		char b[2][56];

		if ((int)row->model != sync || (row->limit && limit <= 0))
			continue;
		json_object_set_new(root, "semantics",
				    json_string(df_sim_semantics_name(row->semantics)));
		json_object_set_new(root, "resource_limit", json_integer(row->limit ? limit : -1));
		show->step++;
		rc = run(a, root, row->rules, show, &cfg, &r);
		if (rc)
			break;
		stopped = r.stopped;
		if (first && !a->json) {
			printf("%d GPUs, %d groups, disorder %g", cfg.load.nr_gpus,
			       cfg.load.nr_groups, cfg.disorder_prob);
			if (sync)
				printf(", sync %g", cfg.sync_prob);
			printf("; %lld rounds each, seed %llu\n\n", (long long)r.rounds,
			       (unsigned long long)seed_of(a, &cfg));
			printf("%-34s %9s %9s  %-22s %-12s %s\n", "rules", "deadlocks", "ratio",
			       "95 % interval", "rounds saved", "time");
		}
		first = 0;
		if (a->json) {
			json_t *o = result_json(a, &cfg, &r);

			json_object_set_new(o, "name", json_string(row->name));
			json_array_append_new(list, o);
		} else {
			printf("%-34s %9lld %9s  %-22s ", row->name, (long long)r.deadlocks,
			       percent(r.ratio, b[0]), interval(r.ci95, b[1]));
			if (row->rules == DF_SIM_RELEASE)
				printf("%-12lld ", (long long)r.released_rounds);
			else
				printf("%-12s ", "-");
			printf("%s\n", span(r.seconds, b[0]));
		}
		df_sim_config_fini(&cfg);
	}
	if (a->json && !rc) {
		rc = df_sim_cli_json(json_pack("{s:o}", "rules", list));
	} else {
		json_decref(list);
		if (!rc && sync)
			printf("\nRounds saved: a synchronisation that closed a proven cycle was "
			       "released.\n");
	}
	return rc ? rc : stopped ? 130 : 0;
}

/* -- sweeps ------------------------------------------------------------------------------------ */

static int draw(const struct df_sim_args *a, const struct df_sim_result *res,
		const struct df_sim_config *cfg)
{
	const struct df_sim_sweep *x = &a->sweep[0], *y = a->nr_sweeps > 1 ? &a->sweep[1] : NULL;
	int nr_curves = y ? y->nr : 1, rc = -ENOMEM;
	struct df_sim_curve *curves = calloc((size_t)nr_curves, sizeof(*curves));
	double *v = calloc((size_t)nr_curves * (size_t)x->nr * 3, sizeof(*v));
	char(*names)[80] = calloc((size_t)nr_curves, sizeof(*names)), title[160];
	FILE *f = NULL;

	if (!curves || !v || !names)
		goto out;
	for (int k = 0; k < nr_curves; k++) {
		double *p = v + (size_t)k * (size_t)x->nr * 3;

		if (y)
			snprintf(names[k], sizeof(names[k]), "%s = %s", y->key, y->text[k]);
		curves[k] = (struct df_sim_curve){names[k], x->nr, p, p + x->nr, p + 2 * x->nr};
		for (int i = 0; i < x->nr; i++) {
			const struct df_sim_result *r = &res[k * x->nr + i];

			p[i] = r->ratio;
			p[x->nr + i] = r->ci95[0];
			p[2 * x->nr + i] = r->ci95[1];
		}
	}
	snprintf(title, sizeof(title), "Deadlocks: %s, %d GPUs, %d groups, %lld rounds a point",
		 df_sim_model_name(cfg->model), cfg->load.nr_gpus, cfg->load.nr_groups,
		 (long long)res[0].rounds);
	errno = 0;
	f = fopen(a->output, "w");
	rc = f ? df_sim_plot(f, x, curves, nr_curves, title) : -EIO;
	if (f && fclose(f))
		rc = -EIO;
out:
	if (rc)
		df_cli_input_error(NAME, a->output, "cannot write: %s",
				   rc == -ENOMEM ? "out of memory" : strerror(errno ? errno : EIO));
	free(curves);
	free(v);
	free(names);
	return rc ? 1 : 0;
}

/* Checks that every point of a sweep is possible before the first is run. */
static int check_sweep(const struct df_sim_args *a, json_t *root)
{
	const struct df_sim_sweep *x = &a->sweep[0], *y = a->nr_sweeps > 1 ? &a->sweep[1] : NULL;
	char err[1024];

	for (int i = 0; i < x->nr * (y ? y->nr : 1); i++) {
		struct df_sim_config cfg;
		int rc = df_sim_json_set(root, x->key, x->text[i % x->nr], err, sizeof(err));

		if (!rc && y)
			rc = df_sim_json_set(root, y->key, y->text[i / x->nr], err, sizeof(err));
		if (!rc)
			rc = df_sim_config_from_json(&cfg, root, err, sizeof(err));
		if (rc)
			return df_cli_usage_error(NAME, "--sweep: %s", err);
		df_sim_config_fini(&cfg);
	}
	return 0;
}

static int run_sweep(const struct df_sim_args *a, json_t *root, struct show *show)
{
	const struct df_sim_sweep *x = &a->sweep[0], *y = a->nr_sweeps > 1 ? &a->sweep[1] : NULL;
	int nr = x->nr * (y ? y->nr : 1), rc = 0, done = 0, stopped = 0;
	struct df_sim_result *res = calloc((size_t)nr, sizeof(*res));
	struct df_sim_config cfg = {0};
	json_t *points;
	char err[1024], b[2][56];

	rc = check_sweep(a, root);
	if (rc) {
		free(res);
		return rc;
	}
	points = json_array();
	if (!res)
		return df_cli_input_error(NAME, a->config, "out of memory");
	show->nr_steps = nr;
	if (!a->json) {
		if (y)
			printf("%-16s ", y->key);
		printf("%-16s %9s %9s %9s  %-22s %s\n", x->key, "rounds", "deadlocks", "ratio",
		       "95 % interval", "rounds/s");
	}
	for (; done < nr && !rc && !stopped; done++) {
		int i = done % x->nr, k = done / x->nr;

		rc = df_sim_json_set(root, x->key, x->text[i], err, sizeof(err));
		if (!rc && y)
			rc = df_sim_json_set(root, y->key, y->text[k], err, sizeof(err));
		if (rc) {
			rc = df_cli_usage_error(NAME, "%s", err);
			break;
		}
		df_sim_config_fini(&cfg);
		show->step = done + 1;
		rc = run(a, root, DF_SIM_NCCL, show, &cfg, &res[done]);
		if (rc)
			break;
		stopped = res[done].stopped;
		if (a->json) {
			json_t *o = result_json(a, &cfg, &res[done]);

			json_object_set(o, x->key, json_object_get(root, x->key));
			if (y)
				json_object_set(o, y->key, json_object_get(root, y->key));
			json_array_append_new(points, o);
			continue;
		}
		if (y)
			printf("%-16s ", y->text[k]);
		printf("%-16s %9lld %9lld %9s  %-22s %.0f\n", x->text[i],
		       (long long)res[done].rounds, (long long)res[done].deadlocks,
		       percent(res[done].ratio, b[0]), interval(res[done].ci95, b[1]),
		       res[done].rounds_per_second);
		fflush(stdout);
	}
	if (!rc && a->output && !stopped)
		rc = draw(a, res, &cfg);
	if (a->json && !rc) {
		json_t *names = json_pack("[s]", x->key);

		if (y)
			json_array_append_new(names, json_string(y->key));
		rc = df_sim_cli_json(json_pack("{s:o, s:o}", "sweep", names, "points", points));
	} else {
		json_decref(points);
	}
	df_sim_config_fini(&cfg);
	free(res);
	return rc ? rc : stopped ? 130 : 0;
}

/* -- all of it --------------------------------------------------------------------------------- */

int df_sim_cli_run(const struct df_sim_args *a, json_t *root)
{
	struct show show = {.per_round = a->per_round};
	int rc;

	show.tty = isatty(STDERR_FILENO) && !(a->per_round && isatty(STDOUT_FILENO));
	signal(SIGINT, on_interrupt);
	if (a->nr_sweeps)
		rc = run_sweep(a, root, &show);
	else if (a->rules)
		rc = run_rules(a, root, &show);
	else
		rc = run_once(a, root, &show);
	signal(SIGINT, SIG_DFL);
	return rc;
}
