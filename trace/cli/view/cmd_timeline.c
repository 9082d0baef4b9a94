/*
 * `dfshim timeline`: traces as Chrome/Perfetto JSON, with the argument names of PyTorch's profiler,
 * so that tools for its files can read ours.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "trace/cli/cmd.h"
#include "trace/cli/common/cli.h"
#include "trace/cli/common/input.h"
#include "trace/cli/view/timeline.h"
#include "trace/record/names.h"
#include "trace/judge/result.h"
#include "trace/say/json.h"

static uint64_t track_of(const struct df_bar_item *b)
{
	return b->is_call ? b->track : (b->track % 1000000 + 1) * 1000 + b->lane + 10000000;
}

static json_t *op_args(const struct df_bar_item *b)
{
	uint64_t in = b->count, n = b->count;
	json_t *o;

	if (b->kind == DF_KIND_ALLGATHER)
		n *= (uint64_t)b->nranks;
	if (b->kind == DF_KIND_REDUCESCATTER)
		in *= (uint64_t)b->nranks;
	if (b->kind == DF_KIND_ALLTOALL)
		n = in = b->count * (uint64_t)b->nranks;
	o = json_pack("{s:s, s:s, s:o, s:o, s:i, s:o, s:i, s:o, s:o}", "Collective name",
		      df_kind_fr(b->kind), "dtype", df_dtype_torch(b->type), "In msg nelems",
		      df_json_u64(in), "Out msg nelems", df_json_u64(n), "Group size", b->nranks,
		      "Process Group Name", df_json_text(b->comm), "Rank", b->comm_rank, "record",
		      df_json_u64(b->rec), "commHash", df_json_hex(b->comm_hash));
	if (b->program[0])
		json_object_set_new(o, "Program", df_json_text(b->program));
	if (b->stack[0])
		json_object_set_new(o, "Call stack", df_json_text(b->stack));
	if (!b->intent)
		json_object_set_new(o, "Seq", df_json_u64(b->index + 1));
	if (b->kind == DF_KIND_SEND || b->kind == DF_KIND_RECV) {
		int sends = b->kind == DF_KIND_SEND;

		json_object_set_new(o, "Src Rank", json_integer(sends ? b->comm_rank : b->peer));
		json_object_set_new(o, "Dst Rank", json_integer(sends ? b->peer : b->comm_rank));
	}
	return o;
}

static json_t *event(const struct df_bar_item *b)
{
	const char *suffix = b->unseen	  ? " (end not seen)"
			     : !b->open	  ? ""
			     : b->is_call ? " (never returned)"
			     : b->intent  ? " (never issued)"
			     : b->started ? " (never completed)"
					  : " (never started)";
	char name[160];
	json_t *o;

	if (b->is_call)
		snprintf(name, sizeof(name), "%s%s", df_call_text(b->call), suffix);
	else if (b->intent)
		snprintf(name, sizeof(name), "%s %s%s", df_kind_name(b->kind), b->comm, suffix);
	else
		snprintf(name, sizeof(name), "ncclDevKernel_%s %s#%" PRIu64 "%s",
			 df_kind_name(b->kind), b->comm, b->index + 1, suffix);
	o = json_pack("{s:s, s:o, s:s, s:i, s:o, s:o, s:o, s:o}", "ph", "X", "name",
		      df_json_text(name), "cat", b->is_call ? "cuda_runtime" : "kernel", "pid",
		      b->rank, "tid", df_json_u64(track_of(b)), "ts",
		      df_json_milli((double)b->begin_ns / 1e3), "dur",
		      df_json_milli((double)(b->end_ns - b->begin_ns) / 1e3), "args",
		      b->is_call ? json_pack("{s:o}", "record", df_json_u64(b->rec)) : op_args(b));
	if (b->open)
		json_object_set_new(o, "cname", json_string("terrible"));
	return o;
}

/* Events are written one by one, because there may be a million. */
struct events {
	FILE *out;
	int nr, rc;
};

static void put(struct events *e, json_t *o)
{
	fputs(e->nr++ ? ",\n" : "", e->out);
	e->rc = e->rc ?: df_json_write(o, e->out, 0);
}

static json_t *metadata(const char *name, int pid, uint64_t tid, json_t *args)
{
	return json_pack("{s:s, s:s, s:i, s:o, s:o}", "ph", "M", "name", name, "pid", pid, "tid",
			 df_json_u64(tid), "args", args);
}

static void names(struct events *e, const struct df_timeline *t)
{
	for (size_t i = 0; i < t->nr_procs; i++) {
		put(e, metadata("process_name", (int)i, 0,
				json_pack("{s:o}", "name", df_json_text(t->procs[i].name))));
		put(e, metadata("process_sort_index", (int)i, 0,
				json_pack("{s:i}", "sort_index", t->procs[i].rank)));
	}
	for (size_t i = 0; i < t->nr_bars; i++) {
		const struct df_bar_item *b = &t->bars[i];
		char name[64], lane[16] = "";

		if (i && b->rank == b[-1].rank && track_of(b) == track_of(&b[-1]))
			continue;
		if (b->lane && !b->is_call)
			snprintf(lane, sizeof(lane), " (%u)", b->lane + 1);
		snprintf(name, sizeof(name), "%s %" PRIu64 "%s", b->is_call ? "thread" : "stream",
			 b->track, lane);
		put(e, metadata("thread_name", b->rank, track_of(b),
				json_pack("{s:s}", "name", name)));
	}
}

/* Returns the bar of an operation or a call of a node, or NULL. */
static const struct df_bar_item *bar_of(const struct df_timeline *t,
					const struct df_check_result *r, uint32_t node)
{
	const struct df_node *n = &r->g.nodes[node];
	uint64_t rec;
	uint32_t trace;

	if (n->kind == DF_N_START || n->kind == DF_N_DONE) {
		rec = r->set->ops[n->ref].l.rec;
		trace = r->set->ops[n->ref].trace;
	} else if (n->kind == DF_N_THREAD) {
		rec = r->set->traces[n->trace].calls[n->ref].rec;
		trace = n->trace;
	} else {
		return NULL;
	}
	for (size_t i = 0; i < t->nr_bars; i++)
		if (t->bars[i].trace == trace && t->bars[i].rec == rec)
			return &t->bars[i];
	return NULL;
}

/* One end of an arrow. */
static json_t *flow(const char *ph, size_t id, const struct df_bar_item *b, uint64_t at_ns)
{
	return json_pack("{s:s, s:s, s:o, s:s, s:s, s:i, s:o, s:o}", "ph", ph, "bp", "e", "id",
			 df_json_u64(id), "name", "waits for", "cat", "wait", "pid", b->rank, "tid",
			 df_json_u64(track_of(b)), "ts", df_json_milli((double)at_ns / 1e3));
}

static void flows(struct events *e, const struct df_timeline *t, const struct df_check_result *r)
{
	for (size_t i = 0; i < r->nr_steps; i++) {
		const struct df_bar_item *a = bar_of(t, r, r->steps[i].from),
					 *b = bar_of(t, r, r->steps[i].to);

		if (!a || !b || a == b)
			continue;
		put(e, flow("s", i + 1, a, a->begin_ns));
		put(e, flow("f", i + 1, b, b->begin_ns > a->begin_ns ? b->begin_ns : a->begin_ns));
	}
}

int df_cmd_timeline(int argc, char **argv)
{
	struct df_check_opts opts = {.alive = df_check_alive};
	struct df_check_result *r;
	struct df_timeline t;
	const char *output = NULL;
	uint64_t max = 500000;
	struct events e = {0};
	FILE *out;
	int json, rc;
	const struct df_opt options[] = {
		DF_OPT(OUTPUT, output, NULL),
		DF_OPT(MAX, max, "at most about N events (500000); the youngest are kept"),
		DF_OPT(JSON, json, "the same: it is always JSON"),
	};

	DF_CLI_PARSE("timeline", &argc, &argv, DF_CLI_TRACES,
		     .doc = "Writes the trace for ui.perfetto.dev and chrome://tracing: a process "
			    "for each rank, a track for each stream and thread. An operation that "
			    "has not ended is drawn to the end of the trace. Arrows follow the "
			    "verdict's cycle.");
	r = df_cli_judge("timeline", argc, argv, &opts);
	if (!r)
		return 1;
	rc = df_timeline_load(&t, r->set, NULL, r->set->nr_traces, max);
	if (rc) {
		df_check_result_free(r);
		return df_cli_input_error("timeline", argv[0], "%s", strerror(-rc));
	}
	out = df_cli_create("timeline", output);
	if (!out) {
		rc = 1;
		goto out;
	}
	e.out = out;
	fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n", out);
	names(&e, &t);
	for (size_t i = 0; i < t.nr_bars; i++)
		put(&e, event(&t.bars[i]));
	flows(&e, &t, r);
	fputs("\n],\"otherData\":", out);
	e.nr = 0;
	put(&e, json_pack("{s:o, s:o}", "verdict", df_json_text(df_check_line(r)),
			  "events_left_out", df_json_u64(t.left_out)));
	fputs("}\n", out);
	rc = df_cli_close("timeline", output, out, e.rc);
out:
	df_check_result_free(r);
	df_timeline_fini(&t);
	return rc;
}
