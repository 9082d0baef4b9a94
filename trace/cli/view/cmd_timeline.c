/*
 * `dfshim timeline`: traces as Chrome/Perfetto JSON, with the argument names that PyTorch's profiler
 * uses, so that tools made for those read ours.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "trace/cli/cli.h"
#include "trace/cli/input.h"
#include "trace/cli/view/timeline.h"
#include "trace/read/json_text.h"
#include "trace/record/names.h"
#include "trace/judge/result.h"

static uint64_t track_of(const struct df_bar_item *b)
{
	return b->is_call ? b->track : (b->track % 1000000 + 1) * 1000 + b->lane + 10000000;
}

static void op_args(FILE *out, const struct df_bar_item *b)
{
	uint64_t in = b->count, n = b->count;

	if (b->kind == DF_KIND_ALLGATHER)
		n *= (uint64_t)b->nranks;
	if (b->kind == DF_KIND_REDUCESCATTER)
		in *= (uint64_t)b->nranks;
	if (b->kind == DF_KIND_ALLTOALL)
		n = in = b->count * (uint64_t)b->nranks;
	fputs("{\"Collective name\":", out);
	df_json_string(out, df_kind_fr(b->kind));
	fprintf(out,
		",\"dtype\":\"%s\",\"In msg nelems\":%" PRIu64 ",\"Out msg nelems\":%" PRIu64
		",\"Group size\":%d",
		df_dtype_torch(b->type), in, n, b->nranks);
	fputs(",\"Process Group Name\":", out);
	df_json_string(out, b->comm);
	fprintf(out, ",\"Rank\":%d,\"record\":%" PRIu64 ",\"commHash\":\"0x%" PRIx64 "\"",
		b->comm_rank, b->rec, b->comm_hash);
	if (b->stack[0]) {
		fputs(",\"Call stack\":", out);
		df_json_string(out, b->stack);
	}
	if (!b->intent)
		fprintf(out, ",\"Seq\":%" PRIu64, b->index + 1);
	if (b->kind == DF_KIND_SEND)
		fprintf(out, ",\"Src Rank\":%d,\"Dst Rank\":%d", b->comm_rank, b->peer);
	if (b->kind == DF_KIND_RECV)
		fprintf(out, ",\"Src Rank\":%d,\"Dst Rank\":%d", b->peer, b->comm_rank);
	fputc('}', out);
}

static void event(FILE *out, const struct df_bar_item *b)
{
	const char *suffix = !b->open	  ? ""
			     : b->intent  ? " (never issued)"
			     : b->started ? " (never completed)"
					  : " (never started)";
	char name[160];

	if (b->is_call)
		snprintf(name, sizeof(name), "%s%s", df_call_text(b->call),
			 b->open ? " (never returned)" : "");
	else if (b->intent)
		snprintf(name, sizeof(name), "%s %s%s", df_kind_name(b->kind), b->comm, suffix);
	else
		snprintf(name, sizeof(name), "ncclDevKernel_%s %s#%" PRIu64 "%s",
			 df_kind_name(b->kind), b->comm, b->index + 1, suffix);
	fputs(",\n{\"ph\":\"X\",\"name\":", out);
	df_json_string(out, name);
	fprintf(out, ",\"cat\":\"%s\",\"pid\":%d,\"tid\":%" PRIu64 ",\"ts\":%.3f,\"dur\":%.3f",
		b->is_call ? "cuda_runtime" : "kernel", b->rank, track_of(b),
		(double)b->begin_ns / 1e3, (double)(b->end_ns - b->begin_ns) / 1e3);
	if (b->open)
		fputs(",\"cname\":\"terrible\"", out);
	fputs(",\"args\":", out);
	if (b->is_call)
		fprintf(out, "{\"record\":%" PRIu64 "}", b->rec);
	else
		op_args(out, b);
	fputc('}', out);
}

static void metadata(FILE *out, const struct df_timeline *t)
{
	for (size_t i = 0; i < t->nr_procs; i++) {
		fprintf(out,
			"%s{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%zu,\"args\":{\"name\":",
			i ? ",\n" : "", i);
		df_json_string(out, t->procs[i].name);
		fprintf(out,
			"}},\n{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":%zu,\"args\":{\"sort_index\":%d}}",
			i, t->procs[i].rank);
	}
	for (size_t i = 0; i < t->nr_bars; i++) {
		const struct df_bar_item *b = &t->bars[i];

		if (i && b->rank == b[-1].rank && track_of(b) == track_of(&b[-1]))
			continue;
		fprintf(out,
			",\n{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%d,\"tid\":%" PRIu64
			",\"args\":{\"name\":\"%s %" PRIu64,
			b->rank, track_of(b), b->is_call ? "thread" : "stream", b->track);
		if (b->lane && !b->is_call)
			fprintf(out, " (%u)", b->lane + 1);
		fputs("\"}}", out);
	}
}

/* The bar of an operation or a call of a node, or NULL. */
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

static void flows(FILE *out, const struct df_timeline *t, const struct df_check_result *r)
{
	for (size_t i = 0; i < r->nr_steps; i++) {
		const struct df_bar_item *a = bar_of(t, r, r->steps[i].from),
					 *b = bar_of(t, r, r->steps[i].to);

		if (!a || !b || a == b)
			continue;
		fprintf(out,
			",\n{\"ph\":\"s\",\"id\":%zu,\"name\":\"waits for\",\"cat\":\"wait\",\"pid\":%d,\"tid\":%" PRIu64
			",\"ts\":%.3f},\n{\"ph\":\"f\",\"bp\":\"e\",\"id\":%zu,\"name\":\"waits for\",\"cat\":\"wait\",\"pid\":%d,"
			"\"tid\":%" PRIu64 ",\"ts\":%.3f}",
			i + 1, a->rank, track_of(a), (double)a->begin_ns / 1e3, i + 1, b->rank,
			track_of(b),
			(double)(b->begin_ns > a->begin_ns ? b->begin_ns : a->begin_ns) / 1e3);
	}
}

int df_cmd_timeline(int argc, char **argv)
{
	struct df_check_opts opts = {.alive = df_check_alive};
	struct df_check_result *r;
	struct df_timeline t;
	const char *output = NULL;
	uint64_t max = 500000;
	FILE *out;
	int json, rc;
	const struct df_opt options[] = {
		DF_OPT(OUTPUT, output, NULL),
		DF_OPT(MAX, max, "at most about N events (500000); the youngest are kept"),
		DF_OPT(JSON, json, "the same: it is always JSON"),
	};

	DF_CLI_PARSE(
		"timeline", &argc, &argv, DF_CLI_TRACES,
		.doc = "Writes the trace for ui.perfetto.dev and chrome://tracing: a process a rank, a track "
		       "a stream or thread. What never ended is drawn to the end of the trace; arrows follow "
		       "the verdict's cycle.");
	if (df_timeline_load(&t, "timeline", argc, argv, max))
		return 1;
	r = df_cli_judge("timeline", argc, argv, &opts);
	out = df_cli_create("timeline", output);
	if (!out) {
		rc = 1;
		goto out;
	}
	fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n", out);
	metadata(out, &t);
	for (size_t i = 0; i < t.nr_bars; i++)
		event(out, &t.bars[i]);
	if (r)
		flows(out, &t, r);
	fputs("\n],\"otherData\":{\"verdict\":", out);
	df_json_string(out, r ? df_check_line(r) : "");
	fprintf(out, ",\"events_left_out\":%zu}}\n", t.left_out);
	rc = df_cli_close("timeline", output, out, 0);
out:
	df_check_result_free(r);
	df_timeline_fini(&t);
	return rc;
}
