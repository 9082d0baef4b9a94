/*
 * `dfshim plan`: would another schedule of gradient communication make a training job faster?
 * Parses the arguments and prints the result as text, JSON or picture. One thread.
 */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "trace/cli/cmd.h"
#include "trace/cli/common/cli.h"
#include "trace/cli/cmd_plan.h"
#include "trace/cli/common/input.h"
#include "trace/plan/plan_observe.h"

#define NAME "plan"

/* A smaller gain does not justify another schedule. */
#define WORTH 1.05

/* Indices of the schemes in a result. */
enum { DDP, BYTESCHEDULER, USBYTE, DEFT, DEFT_ONE_LINK, SCHEMES };

struct plan_args {
	const char *input, *plot;
	int json;
	int64_t iterations;
	struct df_plan_hints hints;
	struct df_plan_link links[DF_PLAN_LINKS];
	int nr_links;
};

struct result {
	struct df_plan_config config;
	struct df_plan_observed seen; /* nr_ranks is 0 if the input is not from traces */
	struct df_plan_outcome all[SCHEMES];
	int nr;
	double ratio;
	int rounds;
};

static const char *const keys[SCHEMES] = {"ddp", "bytescheduler", "usbyte", "deft",
					  "deft_one_link"};

/* -- arguments --------------------------------------------------------------------------------- */

static const char *take_link(void *to, const char *arg)
{
	struct plan_args *a = to;
	struct df_plan_link *l = &a->links[a->nr_links];
	const char *eq = strchr(arg, '=');
	char *end = NULL;

	if (a->nr_links == DF_PLAN_LINKS - 1)
		return "more links than can be planned for";
	if (eq)
		l->slowdown = strtod(eq + 1, &end);
	if (!eq || eq == arg || end == eq + 1 || *end || !(l->slowdown >= 1 && l->slowdown <= 1e4))
		return "allowed: NAME=S, S a number from 1 to 10000";
	snprintf(l->name, sizeof(l->name), "%.*s", (int)(eq - arg), arg);
	a->nr_links++;
	return NULL;
}

static void parse_args(struct plan_args *a, int argc, char **argv)
{
	const struct df_opt options[] = {
		DF_TAKE("link", "NAME=S", take_link, *a,
			"one more link, S times slower than the first; may be repeated"),
		DF_NUMBER("buckets", "N", a->hints.nr_buckets, 1, DF_PLAN_BUCKETS,
			  "all-reduces of an iteration of a recorded job (found by the period of "
			  "their sizes)"),
		DF_REAL("forward-share", "R", a->hints.forward_share, 0.01, 0.99,
			"the forward pass's share of the computation of a recorded job (0.333)"),
		DF_NUMBER("iterations", "N", a->iterations, 1, 1e7,
			  "iterations of DeFT to replay (10000)"),
		DF_TEXT("plot", "FILE.svg", a->plot, "draw two iterations of each scheme"),
		DF_OPT(JSON, a->json,
		       "one JSON object: answer, coverage_rate, buckets, and for each of schemes "
		       "iteration_ms, bubble_ms, updates_per_iteration, link_use, k, period, "
		       "staleness"),
	};

	DF_CLI_PARSE(
		NAME, &argc, &argv, .args = "CONFIG.json\nDIR", .most = 1,
		.missing = "no configuration, and no folder of traces",
		.doc = "Replays schedules of gradient communication on a network's buckets, from a "
		       "configuration or from a recorded data-parallel job: DDP, ByteScheduler, "
		       "US-Byte, and DeFT, which hides communication behind computation by "
		       "updating late. The first line says whether another schedule would "
		       "help.\vExit status: 0; 1 unreadable or impossible input; 2 wrong usage.");
	a->input = argv[0];
}

/* -- input ------------------------------------------------------------------------------------- */

static int has_traces(const char *path)
{
	struct stat st;

	return (!stat(path, &st) && S_ISDIR(st.st_mode)) || df_cli_is_trace(path);
}

static int load_traces(const struct plan_args *a, struct result *r)
{
	char *path = (char *)a->input, err[512];
	size_t nr;
	char **paths = df_cli_trace_paths(NAME, 1, &path, &nr);
	int rc;

	if (!paths)
		return 1;
	snprintf(r->config.profile.name, sizeof(r->config.profile.name), "%s", a->input);
	rc = df_plan_observe(&r->config.profile, &r->seen, paths, nr, &a->hints, err, sizeof(err));
	df_cli_paths_free(paths, nr);
	return rc ? df_cli_input_error(NAME, a->input, "%s", err) : 0;
}

static int load(const struct plan_args *a, struct result *r)
{
	struct df_plan_profile *p = &r->config.profile;
	char err[512];
	int rc;

	if (has_traces(a->input)) {
		rc = load_traces(a, r);
		if (rc)
			return rc;
	} else if (df_plan_config_read(&r->config, a->input, err, sizeof(err))) {
		return df_cli_input_error(NAME, a->input, "%s", err);
	}
	if (p->nr_links + a->nr_links > DF_PLAN_LINKS)
		return df_cli_usage_error(NAME, "--link: %s has %d links; at most %d in all",
					  a->input, p->nr_links, DF_PLAN_LINKS);
	for (int i = 0; i < a->nr_links; i++) {
		p->links[p->nr_links] = a->links[i];
		p->links[p->nr_links++].startup_ns =
			llround((double)p->links[0].startup_ns * a->links[i].slowdown);
	}
	if (df_plan_check(p, err, sizeof(err)))
		return df_cli_input_error(NAME, a->input, "%s", err);
	return 0;
}

/* -- schemes ----------------------------------------------------------------------------------- */

static int replay(const struct plan_args *a, struct result *r)
{
	struct df_plan_profile *p = &r->config.profile;
	int rc;

	rc = df_plan_ddp(p, &r->all[DDP]);
	if (!rc)
		rc = df_plan_bytescheduler(p, &r->all[BYTESCHEDULER]);
	if (!rc)
		rc = df_plan_usbyte(p, &r->all[USBYTE]);
	if (!rc && r->config.has_walk)
		rc = df_plan_feedback(p, &r->config.walk, a->iterations, &r->all[DEFT], &r->ratio,
				      &r->rounds);
	else if (!rc)
		rc = df_plan_deft_replay(p, p->nr_links, a->iterations, &r->all[DEFT]);
	if (!rc && p->nr_links > 1)
		rc = df_plan_deft_replay(p, 1, a->iterations, &r->all[DEFT_ONE_LINK]);
	r->nr = p->nr_links > 1 ? SCHEMES : DEFT_ONE_LINK;
	if (rc == -ERANGE)
		return df_cli_input_error(
			NAME, a->input,
			"communication takes longer than the forward pass by so large a factor "
			"that its buckets would be sent in more than %d parts",
			DF_PLAN_BUCKETS);
	return rc ? df_cli_input_error(NAME, a->input, "%s", strerror(-rc)) : 0;
}

/* -- the answer -------------------------------------------------------------------------------- */

/* Writes the answer to "would it help me?" in one sentence. */
static void answer(const struct result *r, char *buf, size_t size)
{
	const struct df_plan_outcome *ddp = &r->all[DDP], *deft = &r->all[DEFT];
	const struct df_plan_outcome *same = &r->all[BYTESCHEDULER];
	double faster = ddp->iteration_ns / deft->iteration_ns, exact;

	if (r->all[USBYTE].iteration_ns < same->iteration_ns)
		same = &r->all[USBYTE];
	exact = ddp->iteration_ns / same->iteration_ns;
	if (fmax(faster, exact) < WORTH)
		snprintf(buf, size,
			 "No: DDP waits only %.1f ms of an iteration of %.1f ms for communication, "
			 "so no schedule makes it more than %.1f %% faster.",
			 ddp->bubble_ns / 1e6, ddp->iteration_ns / 1e6,
			 100 * (fmax(faster, exact) - 1));
	else if (exact >= 0.97 * faster)
		snprintf(buf, size,
			 "Yes, without late updates: %s would take %.1f ms an iteration where DDP "
			 "takes %.1f (%.2f times faster) and compute the same numbers.",
			 same->name, same->iteration_ns / 1e6, ddp->iteration_ns / 1e6, exact);
	else
		snprintf(buf, size,
			 "Yes, if updates may be late: DeFT would take %.1f ms an iteration where "
			 "DDP takes %.1f (%.2f times faster), with %.2f updates an iteration, up "
			 "to %d iteration%s late; with the same numbers as DDP, %s would take %.1f "
			 "ms (%.2f).",
			 deft->iteration_ns / 1e6, ddp->iteration_ns / 1e6, faster, deft->updates,
			 deft->late_most, deft->late_most == 1 ? "" : "s", same->name,
			 same->iteration_ns / 1e6, exact);
}

static void print_k(const struct df_plan_outcome *o)
{
	for (int i = 0; i < o->nr_k && i < 12; i++)
		printf("%s%d", i ? "," : "  ", o->k[i]);
	if (o->nr_k > 12)
		fputs(",...", stdout);
	putchar('\n');
}

static void print_text(const struct result *r)
{
	const struct df_plan_profile *p = &r->config.profile;
	double f = (double)df_plan_forward_ns(p) / 1e6, b = (double)df_plan_backward_ns(p) / 1e6;
	double c = (double)df_plan_comm_ns(p) / 1e6;
	char text[512];

	answer(r, text, sizeof(text));
	printf("%s\n\n"
	       "%s: %d buckets, forward %.1f ms, backward %.1f ms, communication %.1f ms, CR "
	       "%.2f\n",
	       text, p->name, p->nr_buckets, f, b, c, c / (f + b));
	if (r->seen.nr_ranks)
		printf("recorded: %d iterations of %d ranks, %.1f ms each; the forward pass's "
		       "share of computation is assumed\n",
		       r->seen.nr_iterations, r->seen.nr_ranks, r->seen.iteration_ns / 1e6);
	if (r->seen.nr_small)
		printf("recorded: %d small all-reduce%s of each iteration left out\n",
		       r->seen.nr_small, r->seen.nr_small == 1 ? "" : "s");
	printf("\n%-15s %9s %8s %8s %12s  ", "", "iteration", "waiting", "updates/", "late");
	printf("link use\n%-15s %9s %8s %8s %6s %5s", "scheme", "ms", "ms", "iter.", "mean",
	       "most");
	for (int l = 0; l < p->nr_links; l++)
		printf(" %7.7s", p->links[l].name);
	puts("  k");
	for (int i = 0; i < r->nr; i++) {
		const struct df_plan_outcome *o = &r->all[i];

		printf("%-15s %9.1f %8.1f %8.3f %6.2f %5d", o->name, o->iteration_ns / 1e6,
		       o->bubble_ns / 1e6, o->updates, o->late, o->late_most);
		for (int l = 0; l < p->nr_links; l++)
			printf(" %5.0f %%", 100 * o->link_use[l]);
		print_k(o);
	}
	puts("\n"
	     "late: iterations from a gradient to its update; k: iterations merged in each update");
	if (r->config.has_walk)
		printf("preserver: ratio %.4f after %d enlargements of the capacity, %s\n",
		       r->ratio, r->rounds,
		       fabs(r->ratio - 1) <= r->config.walk.epsilon
			       ? "accepted"
			       : "refused: merged updates would slow convergence");
}

static int print_json(const struct result *r)
{
	const struct df_plan_profile *p = &r->config.profile;
	json_t *root, *schemes = json_object(), *buckets = json_array();
	char text[512];
	int rc;

	answer(r, text, sizeof(text));
	for (int i = 0; i < r->nr; i++) {
		const struct df_plan_outcome *o = &r->all[i];
		json_t *use = json_object(), *k = json_array();

		for (int l = 0; l < p->nr_links; l++)
			json_object_set_new(use, p->links[l].name, json_real(o->link_use[l]));
		for (int j = 0; j < o->nr_k; j++)
			json_array_append_new(k, json_integer(o->k[j]));
		json_object_set_new(
			schemes, keys[i],
			json_pack("{s:s, s:f, s:f, s:f, s:o, s:o, s:i, s:{s:f, s:i}}", "name",
				  o->name, "iteration_ms", o->iteration_ns / 1e6, "bubble_ms",
				  o->bubble_ns / 1e6, "updates_per_iteration", o->updates,
				  "link_use", use, "k", k, "period", o->period, "staleness", "mean",
				  o->late, "max", o->late_most));
	}
	for (int i = 0; i < p->nr_buckets; i++) {
		const struct df_plan_bucket *b = &p->buckets[i];

		json_array_append_new(
			buckets,
			json_pack("{s:f, s:f, s:f, s:I}", "forward_ms", (double)b->forward_ns / 1e6,
				  "backward_ms", (double)b->backward_ns / 1e6, "communication_ms",
				  (double)b->comm_ns / 1e6, "parameters", (json_int_t)b->params));
	}
	root = json_pack("{s:s, s:s, s:f, s:o, s:o}", "answer", text, "name", p->name,
			 "coverage_rate",
			 (double)df_plan_comm_ns(p) /
				 (double)(df_plan_forward_ns(p) + df_plan_backward_ns(p)),
			 "schemes", schemes, "buckets", buckets);
	if (root && r->seen.nr_ranks)
		json_object_set_new(root, "recorded",
				    json_pack("{s:i, s:i, s:f}", "ranks", r->seen.nr_ranks,
					      "iterations", r->seen.nr_iterations, "iteration_ms",
					      r->seen.iteration_ns / 1e6));
	if (root && r->config.has_walk)
		json_object_set_new(root, "preserver",
				    json_pack("{s:f, s:i, s:f, s:b}", "ratio", r->ratio, "rounds",
					      r->rounds, "capacity", fmax(p->capacity, 1),
					      "accepted",
					      fabs(r->ratio - 1) <= r->config.walk.epsilon));
	rc = !root || json_dumpf(root, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
	json_decref(root);
	putchar('\n');
	return rc ? df_cli_input_error(NAME, "standard output", "cannot write") : 0;
}

static int plot(const char *path, const struct result *r)
{
	FILE *f = df_cli_create(NAME, path);

	return f ? df_cli_close(NAME, path, f, df_plan_plot(f, &r->config.profile, r->all, r->nr))
		 : 1;
}

int df_cmd_plan(int argc, char **argv)
{
	struct plan_args a = {.iterations = 10000};
	struct result *r;
	int rc;

	parse_args(&a, argc, argv);
	r = calloc(1, sizeof(*r));
	if (!r)
		return df_cli_input_error(NAME, a.input, "out of memory");
	rc = load(&a, r);
	if (!rc)
		rc = replay(&a, r);
	if (!rc && a.plot)
		rc = plot(a.plot, r);
	if (!rc && a.json)
		rc = print_json(r);
	else if (!rc)
		print_text(r);
	for (int i = 0; i < SCHEMES; i++)
		df_plan_outcome_fini(&r->all[i]);
	free(r);
	return rc;
}
