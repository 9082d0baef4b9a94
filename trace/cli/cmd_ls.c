/* `dfshim ls`: the contents of traces: process, communicators with exact counters, lost records. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include "runtime/base/clean_text.h"
#include "trace/cli/cmd.h"
#include "trace/cli/common/cli.h"
#include "trace/cli/common/input.h"
#include "trace/read/load.h"
#include "trace/say/json.h"

static const char *const modes[] = {"prevent", "trace", "off"};

static void text(const char *path, const struct df_reader *r, const struct df_load *l)
{
	const struct df_trace_header *h = &r->h;
	char name[PATH_MAX];

	printf("%s\n  rank %d of %u, pid %u on %s, %s, mode %s, %s rules, executor %s\n",
	       df_text_cleaned(path, name, sizeof(name)), h->rank, h->world, h->pid, h->host,
	       h->exe, h->mode < 3 ? modes[h->mode] : "?", h->rules == 1 ? "NCCL's" : "our",
	       df_header_executor(h));
	printf("  %" PRIu64
	       " records over %.3f s%s, %zu operations, %zu calls, %zu threads, %zu streams\n",
	       l->nr_recs, (double)(l->last_ns - l->first_ns) / 1e9,
	       h->closed ? "" : ", did not exit normally", l->nr_ops, l->nr_calls, l->nr_threads,
	       l->nr_streams);
	if (h->next > h->nr_recs)
		printf("  %" PRIu64 " older records overwritten\n", h->next - h->nr_recs);
	if (l->nr_torn)
		printf("  %" PRIu64 " records not whole\n", l->nr_torn);
	for (uint32_t i = 1; i <= r->nr_comms; i++) {
		const struct df_trace_comm *c = df_reader_comm(r, i);
		char lost[64] = "";

		if (c && c->drops)
			snprintf(lost, sizeof(lost), ", %" PRIu64 " records overwritten", c->drops);
		if (c)
			printf("  comm 0x%016" PRIx64 " %-12s rank %d of %d, device %d: %" PRIu64
			       " issued, %" PRIu64 " finished%s\n",
			       c->hash, c->name, c->rank, c->nranks, c->device, c->issued, c->done,
			       lost);
	}
}

static json_t *json(const char *path, const struct df_reader *r, const struct df_load *l)
{
	const struct df_trace_header *h = &r->h;
	json_t *comms = json_array();

	for (uint32_t i = 1; i <= r->nr_comms; i++) {
		const struct df_trace_comm *c = df_reader_comm(r, i);

		if (c)
			json_array_append_new(
				comms,
				json_pack("{s:o, s:o, s:i, s:i, s:i, s:o, s:o, s:o}", "hash",
					  df_json_hex(c->hash), "name", df_json_text(c->name),
					  "rank", c->rank, "nranks", c->nranks, "device", c->device,
					  "issued", df_json_u64(c->issued), "finished",
					  df_json_u64(c->done), "dropped", df_json_u64(c->drops)));
	}
	return json_pack(
		"{s:o, s:o, s:o, s:i, s:i, s:i, s:i, s:i, s:s, s:b, s:o, s:o, s:o, s:o, s:o, s:o}",
		"file", df_json_text(path), "host", df_json_text(h->host), "exe",
		df_json_text(h->exe), "rank", h->rank, "world", (int)h->world, "pid", (int)h->pid,
		"rules", (int)h->rules, "mode", (int)h->mode, "executor", df_header_executor(h),
		"closed", h->closed != 0, "records", df_json_u64(l->nr_recs), "torn",
		df_json_u64(l->nr_torn), "overwritten",
		df_json_u64(h->next > h->nr_recs ? h->next - h->nr_recs : 0), "operations",
		df_json_u64(l->nr_ops), "seconds",
		df_json_milli((double)(l->last_ns - l->first_ns) / 1e9), "communicators", comms);
}

int df_cmd_ls(int argc, char **argv)
{
	struct df_load l;
	char **paths;
	size_t nr;
	int as_json = 0, rc = 0;
	json_t *list;
	const struct df_opt options[] = {DF_OPT(JSON, as_json, "one JSON array")};

	DF_CLI_PARSE("ls", &argc, &argv, DF_CLI_TRACES,
		     .doc = "What each trace holds: process, rules, records, communicators with "
			    "the number of operations issued and finished, and what the ring has "
			    "overwritten.");
	paths = df_cli_trace_paths("ls", argc, argv, &nr);
	if (!paths)
		return 1;
	list = json_array();
	df_load_init(&l);
	for (size_t i = 0; i < nr; i++) {
		const char *why = "out of memory";
		struct df_reader r;

		if (df_reader_open(&r, paths[i], &why)) {
			rc = df_cli_input_error("ls", paths[i], "%s", why);
		} else {
			if (df_load_trace(&l, &r))
				rc = df_cli_input_error("ls", paths[i], "out of memory");
			else if (as_json)
				json_array_append_new(list, json(paths[i], &r, &l));
			else
				text(paths[i], &r, &l);
			df_reader_close(&r);
		}
	}
	if (as_json && df_json_line(json_incref(list), stdout))
		rc = df_cli_input_error("ls", "standard output", "cannot be written");
	json_decref(list);
	df_load_fini(&l);
	df_cli_paths_free(paths, nr);
	return rc;
}
