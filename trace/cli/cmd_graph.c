/* `dfshim graph`: the wait-for graph, or the order of execution, as DOT, SVG or JSON. */
#include <stdio.h>
#include <string.h>
#include "trace/cli/cmd.h"
#include "trace/cli/common/cli.h"
#include "trace/cli/common/input.h"
#include "trace/say/json.h"
#include "trace/say/picture.h"

static int ends_in(const char *s, const char *end)
{
	size_t n = strlen(s), m = strlen(end);

	return n >= m && !strcmp(s + n - m, end);
}

static int picture_json(const struct df_picture *p, FILE *out)
{
	json_t *nodes = json_array(), *edges = json_array();

	for (size_t i = 0; i < p->nr_boxes; i++)
		json_array_append_new(nodes, json_pack("{s:i, s:o, s:o, s:b, s:b}", "id", (int)i,
						       "rank", df_json_text(p->boxes[i].where),
						       "text", df_json_text(p->boxes[i].text),
						       "started", p->boxes[i].started, "in_cycle",
						       p->boxes[i].in_cycle));
	for (size_t i = 0; i < p->nr_arrows; i++)
		json_array_append_new(
			edges,
			json_pack("{s:i, s:i, s:s, s:b, s:b}", "from", (int)p->arrows[i].from, "to",
				  (int)p->arrows[i].to, "why", p->arrows[i].why, "in_cycle",
				  p->arrows[i].in_cycle, "can_be_cut", p->arrows[i].cut));
	return df_json_line(json_pack("{s:o, s:o, s:o}", "nodes", nodes, "edges", edges, "left_out",
				      df_json_u64(p->left_out)),
			    out);
}

int df_cmd_graph(int argc, char **argv)
{
	struct df_check_opts opts = {.alive = df_check_alive};
	const char *output = NULL;
	struct df_check_result *r;
	struct df_picture p;
	int json = 0, exec = 0, rc;
	uint64_t max = 200;
	FILE *out;
	const struct df_opt options[] = {
		DF_FLAG("exec", exec, "the unfinished operations in the order of issue instead"),
		DF_OPT(JSON, json, "nodes and edges as JSON"),
		DF_OPT(MAX, max, "draw at most N boxes (200), those of the cycle first"),
		DF_OPT(OUTPUT, output,
		       "write to FILE; its ending .svg, .json or .dot decides the form (DOT on "
		       "standard output)"),
	};

	DF_CLI_PARSE("graph", &argc, &argv, DF_CLI_TRACES,
		     .doc = "Draws the wait-for graph of what is stuck: a column for each rank, an "
			    "arrow from each operation or thread to what it waits for, the cycle "
			    "in red, dashed where it can be cut.");
	r = df_cli_judge("graph", argc, argv, &opts);
	if (!r)
		return 1;
	rc = df_picture_make(&p, r, exec, max, max);
	if (rc) {
		df_check_result_free(r);
		return df_cli_input_error("graph", argv[0], "%s", strerror(-rc));
	}
	out = df_cli_create("graph", output);
	if (out && (json || (output && ends_in(output, ".json"))))
		rc = picture_json(&p, out);
	else if (out && output && ends_in(output, ".svg"))
		df_picture_svg(&p, df_check_line(r), out);
	else if (out)
		df_picture_dot(&p, df_check_line(r), out);
	rc = out ? df_cli_close("graph", output, out, rc) : 1;
	df_picture_fini(&p);
	df_check_result_free(r);
	return rc;
}
