/*
 * `dfshim show`: the records of traces as text or NDJSON, with filters. Field names are from
 * records.def.
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/base/clean_text.h"
#include "trace/cli/cmd.h"
#include "trace/cli/common/cli.h"
#include "trace/cli/common/input.h"
#include "trace/record/names.h"
#include "trace/read/reader.h"
#include "trace/read/stacks.h"
#include "trace/say/json.h"

#define NO_STREAM UINT64_MAX

struct filter {
	const char *comm, *at;
	int64_t rank;	 /* -1 means any rank */
	uint64_t stream; /* NO_STREAM means any stream */
	int json, has_types, stacks;
	uint8_t types[DF_REC_NR];
	double from, to;
	uint64_t tail;
};

/* Whether one of the record's fields that mean a stream has this value. */
static int names_stream(const struct df_rec *r, uint64_t stream)
{
	uint64_t v[4] = {r->op, r->a, r->b, r->c};

	for (int i = 1; i < 4; i++)
		if (!strncmp(df_rec_field(r->type, i), "stream", 6) && v[i] == stream)
			return 1;
	return r->type == DF_REC_CALL_ENTER && r->a == DF_CALL_STREAM_SYNC && r->b == stream;
}

static int passes(const struct filter *f, const struct df_reader *rd, const struct df_rec *r,
		  double t, const char *stack)
{
	const struct df_trace_comm *c;
	char hash[24];

	if (f->has_types && !f->types[r->type])
		return 0;
	if (t < f->from || t > f->to || (f->stream != NO_STREAM && !names_stream(r, f->stream)))
		return 0;
	if (f->at && !strstr(stack, f->at))
		return 0;
	if (!f->comm)
		return 1;
	c = df_rec_has_comm(r->type) ? df_reader_comm(rd, r->comm) : NULL;
	if (!c)
		return 0;
	snprintf(hash, sizeof(hash), "0x%" PRIx64, c->hash);
	return !strcmp(f->comm, hash) || !strcmp(f->comm, hash + 2) || !strcmp(f->comm, c->name);
}

static void print_text(const struct df_reader *rd, const struct df_rec *r, uint64_t index, double t)
{
	const struct df_trace_comm *c =
		df_rec_has_comm(r->type) ? df_reader_comm(rd, r->comm) : NULL;
	uint64_t v[4] = {r->op, r->a, r->b, r->c};
	char program[80];

	printf("%8" PRIu64 " %12.6f %6u %-14s", index, t, r->thread, df_rec_name(r->type));
	if (r->device != 0xffff)
		printf(" dev %u", r->device);
	if (c && c->name[0])
		printf(" comm %s rank %d", c->name, r->rank);
	else if (c)
		printf(" comm 0x%" PRIx64 " rank %d", c->hash, r->rank);
	if (r->type == DF_REC_OP_ISSUE) {
		printf(" op %" PRIu64 " %s %" PRIu64 " x %s stream %" PRIu64, r->op,
		       df_kind_name((uint8_t)r->a), r->b, df_dtype_name((uint8_t)(r->a >> 8)),
		       r->c);
		if (r->a >> 32)
			printf(" by %s", df_trace_proto((uint8_t)(r->a >> 32)));
		if (*df_reader_program(rd, r->a, program, sizeof(program)))
			printf(" program %s", program);
	} else if (r->type == DF_REC_CALL_ENTER || r->type == DF_REC_CALL_EXIT ||
		   r->type == DF_REC_RELEASE) {
		printf(" %s serial %" PRIu64 " %s 0x%" PRIx64 " %" PRIu64,
		       df_call_text((uint32_t)r->a), r->op,
		       r->type == DF_REC_CALL_EXIT ? "result" : "object", r->b, r->c);
	} else {
		for (int i = 0; i < 4; i++) {
			const char *name = df_rec_field(r->type, i);
			int n = (int)strcspn(name, ":(,|");

			if (strcmp(name, "0"))
				printf(df_rec_is_hex(r->type, i) ? " [%.*s 0x%" PRIx64 "]"
								 : " [%.*s %" PRId64 "]",
				       n, name, v[i]);
		}
	}
	if (r->site)
		printf(" site %08x", r->site);
	putchar('\n');
}

/* Returns field `which` of a record, according to its row in records.def. */
static json_t *field(const struct df_rec *r, int which)
{
	uint64_t v[4] = {r->op, r->a, r->b, r->c};

	return df_rec_is_hex(r->type, which) ? df_json_hex(v[which])
					     : json_integer((json_int_t)v[which]);
}

static int print_json(const struct df_reader *rd, const struct df_rec *r, uint64_t index,
		      const char *stack)
{
	const struct df_trace_comm *c =
		df_rec_has_comm(r->type) ? df_reader_comm(rd, r->comm) : NULL;
	char program[80];
	json_t *o = json_pack("{s:o, s:o, s:s, s:I, s:i, s:o, s:o, s:o, s:o, s:o}", "record",
			      df_json_u64(index), "time_ns", df_json_u64(r->time_ns), "type",
			      df_rec_name(r->type), "thread", (json_int_t)r->thread, "job_rank",
			      rd->h.rank, "op", field(r, 0), "a", field(r, 1), "b", field(r, 2),
			      "c", field(r, 3), "site", df_json_hex(r->site));

	if (r->device != 0xffff)
		json_object_set_new(o, "device", json_integer(r->device));
	if (c) {
		json_object_set_new(o, "comm", df_json_hex(c->hash));
		json_object_set_new(o, "comm_name", df_json_text(c->name));
		json_object_set_new(o, "rank", json_integer(r->rank));
	}
	if (r->type == DF_REC_OP_ISSUE)
		df_json_add(o,
			    json_pack("{s:s, s:s, s:s, s:s}", "kind", df_kind_name((uint8_t)r->a),
				      "dtype", df_dtype_name((uint8_t)(r->a >> 8)), "redop",
				      df_redop_name((uint8_t)(r->a >> 16)), "proto",
				      df_trace_proto((uint8_t)(r->a >> 32))));
	if (r->type == DF_REC_OP_ISSUE && *df_reader_program(rd, r->a, program, sizeof(program)))
		json_object_set_new(o, "program", df_json_text(program));
	if (r->type == DF_REC_CALL_ENTER || r->type == DF_REC_CALL_EXIT ||
	    r->type == DF_REC_RELEASE)
		json_object_set_new(o, "call", json_string(df_call_text((uint32_t)r->a)));
	if (r->site)
		json_object_set_new(o, "stack", df_json_frames(stack));
	return df_json_line(o, stdout);
}

/* Prints the records of a trace that match the filter. Returns 0 or -ENOMEM. */
static int show(const struct filter *f, struct df_reader *rd)
{
	const struct df_rec *r;
	struct df_stacks stacks = {0};
	struct df_lnote *notes = NULL;
	size_t nr_notes = 0;
	int rc = 0;
	uint64_t index, skip = f->tail && rd->end - rd->first > f->tail ? rd->end - f->tail : 0,
			t0 = 0;

	/* The frames of a site are recorded with its first call, so read the whole trace first. */
	if ((f->json || f->at || f->stacks) && df_stack_notes(rd, &notes, &nr_notes))
		return -ENOMEM;
	while (!rc && (r = df_reader_next(rd, &index))) {
		const char *stack;
		double t;

		if (!t0)
			t0 = r->time_ns;
		t = r->time_ns >= t0 ? (double)(r->time_ns - t0) / 1e9
				     : -(double)(t0 - r->time_ns) / 1e9;
		if (index < skip)
			continue;
		stack = df_stacks_get(&stacks, 0, notes, nr_notes, rd, r->site);
		if (!passes(f, rd, r, t, stack))
			continue;
		if (f->json)
			rc = print_json(rd, r, index, stack);
		else
			print_text(rd, r, index, t);
		if (f->stacks && !f->json && stack[0])
			printf("%23s at %s\n", "", stack);
	}
	df_stacks_fini(&stacks);
	free(notes);
	return rc;
}

static const char *take_type(void *to, const char *name)
{
	struct filter *f = to;
	int type = df_rec_parse(name);

	if (type < 0)
		return "no such record type";
	f->types[type] = f->has_types = 1;
	return NULL;
}

int df_cmd_show(int argc, char **argv)
{
	struct filter f = {.rank = -1, .stream = NO_STREAM, .from = -1e30, .to = 1e30};
	size_t nr, shown = 0;
	char **paths;
	int rc = 0;
	const struct df_opt options[] = {
		DF_OPT(JSON, f.json,
		       "one JSON object a line (NDJSON); stack: the frames of the call, innermost "
		       "first"),
		DF_NUMBER("rank", "N", f.rank, 0, INT32_MAX,
			  "only the trace of this rank of the job"),
		DF_TEXT("comm", "NAME|HASH", f.comm, "only records of this communicator"),
		DF_NUMBER("stream", "N", f.stream, 0, 1.9e19, "only records that name this stream"),
		DF_TAKE("type", "NAME", take_type, f,
			"only records of this type; may be given more than once"),
		DF_TEXT("at", "TEXT", f.at,
			"only records whose call stack has a frame with this text, as of a "
			"function or a line"),
		DF_REAL("from", "SECONDS", f.from, -1e30, 1e30,
			"only from this time of the trace on"),
		DF_REAL("to", "SECONDS", f.to, -1e30, 1e30, "only up to this time of the trace"),
		DF_NUMBER("tail", "N", f.tail, 0, 1e15, "only the last N records of each trace"),
		DF_FLAG("stacks", f.stacks, "below a record its call stack, innermost first"),
	};

	DF_CLI_PARSE("show", &argc, &argv, DF_CLI_TRACES,
		     .doc = "Prints the records of traces, oldest first, one a line.");
	paths = df_cli_trace_paths("show", argc, argv, &nr);
	if (!paths)
		return 1;
	for (size_t i = 0; i < nr; i++) {
		const char *why = "";
		struct df_reader rd;
		char name[PATH_MAX];

		if (df_reader_open(&rd, paths[i], &why)) {
			rc = df_cli_input_error("show", paths[i], "%s", why);
		} else {
			if (f.rank < 0 || rd.h.rank == f.rank) {
				if (!f.json)
					printf("%s# %s: rank %d, pid %u on %s\n",
					       shown++ ? "\n" : "",
					       df_text_cleaned(paths[i], name, sizeof(name)),
					       rd.h.rank, rd.h.pid, rd.h.host);
				if (show(&f, &rd))
					rc = df_cli_input_error("show", paths[i], "out of memory");
			}
			df_reader_close(&rd);
		}
	}
	df_cli_paths_free(paths, nr);
	return rc;
}
