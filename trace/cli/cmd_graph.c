/*
 * `dfshim graph`: who waits for whom, or the order of execution, as DOT, SVG or JSON.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "trace/cli/cli.h"
#include "trace/cli/input.h"
#include "trace/say/picture.h"

static const char help[] =
	"Usage: dfshim graph [--exec] [--json] [--max N] [-o FILE] DIR|FILE...\n"
	"\n"
	"Draws the wait-for graph of what is stuck: one column a rank, an arrow from what waits to what it\n"
	"waits for, the cycle in red, dashed where it can be cut.\n"
	"\n"
	"  --exec          the unfinished operations in the order of issue instead\n"
	"  --json          nodes and edges as JSON\n"
	"  --max N         at most N boxes (default 200); those of the cycle come first\n"
	"  -o FILE         write there; .svg, .json or .dot decides the form (default: DOT on standard output)\n";

static int ends_in(const char *s, const char *end)
{
	size_t n = strlen(s), m = strlen(end);

	return n >= m && !strcmp(s + n - m, end);
}

int df_cmd_graph(int argc, char **argv)
{
	static const struct option options[] = {
		{"help", no_argument, NULL, 'h'},	  {"json", no_argument, NULL, 'j'},
		{"exec", no_argument, NULL, 'e'},	  {"max", required_argument, NULL, 'm'},
		{"output", required_argument, NULL, 'o'}, {NULL, 0, NULL, 0}};
	struct df_check_opts opts = {.alive = df_check_alive};
	struct df_check_set *set;
	struct df_check_result *r;
	struct df_picture p;
	const char *output = NULL;
	FILE *out = stdout;
	char *end;
	int c, json = 0, exec = 0, rc;
	long max = 200;

	opterr = 0;
	optind = 1;
	while ((c = getopt_long(argc, argv, "ho:", options, NULL)) != -1) {
		switch (c) {
		case 'h':
			fputs(help, stdout);
			return 0;
		case 'j':
			json = 1;
			break;
		case 'e':
			exec = 1;
			break;
		case 'm':
			max = strtol(optarg, &end, 10);
			if (*end || max < 1)
				return df_cli_usage_error(
					"graph", "--max %s: not a positive number", optarg);
			break;
		case 'o':
			output = optarg;
			break;
		default:
			return df_cli_usage_error("graph", "unknown or incomplete option '%s'",
						  argv[optind - 1]);
		}
	}
	if (optind == argc)
		return df_cli_usage_error("graph", "no trace folder given");
	set = df_cli_load("graph", argc - optind, argv + optind);
	if (!set)
		return 1;
	rc = df_check_run(set, &opts, &r);
	df_check_set_free(set);
	if (!rc) {
		rc = df_picture_make(&p, r, exec, (size_t)max);
		if (rc)
			df_check_result_free(r);
	}
	if (rc)
		return df_cli_input_error("graph", argv[optind], "%s", strerror(-rc));
	if (output) {
		out = fopen(output, "w");
		rc = out ? 0 : df_cli_input_error("graph", output, "%s", strerror(errno));
	}
	if (out) {
		if (json || (output && ends_in(output, ".json")))
			df_picture_json(&p, out);
		else if (output && ends_in(output, ".svg"))
			df_picture_svg(&p, df_check_line(r), out);
		else
			df_picture_dot(&p, df_check_line(r), out);
		if (output && fclose(out))
			rc = df_cli_input_error("graph", output, "%s", strerror(errno));
	}
	df_picture_fini(&p);
	df_check_result_free(r);
	return rc;
}
