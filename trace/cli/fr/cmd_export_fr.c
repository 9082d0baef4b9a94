/*
 * `dfshim export-fr`: PyTorch Flight Recorder dumps from traces, one file per rank, in the format
 * that torchfrtrace and similar tools read.
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "trace/cli/cmd.h"
#include "trace/cli/common/cli.h"
#include "trace/cli/common/input.h"
#include "trace/record/names.h"
#include "trace/cli/fr/pickle.h"
#include "trace/read/set.h"
#include "trace/read/stacks.h"

struct export
{
	struct df_check_set *set;
	struct df_load load;
	const struct df_reader *reader; /* of the trace in load */
	uint32_t *order; /* communicators, the largest first; the position is the name */
	const char *prefix;
	size_t nr_files;
	struct df_stacks stacks; /* of the current trace */
};

static void key_int(FILE *out, const char *key, int64_t v)
{
	df_pickle_put_string(out, key);
	df_pickle_put_int(out, v);
}

static void key_text(FILE *out, const char *key, const char *v)
{
	df_pickle_put_string(out, key);
	df_pickle_put_string(out, v);
}

static const struct df_check_set *sorting;

static int by_size(const void *pa, const void *pb)
{
	const struct df_gcomm *a = &sorting->gcomms[*(const uint32_t *)pa],
			      *b = &sorting->gcomms[*(const uint32_t *)pb];

	if (a->nranks != b->nranks)
		return b->nranks - a->nranks;
	return *(const uint32_t *)pa < *(const uint32_t *)pb ? -1 : 1;
}

static uint32_t place_of(const struct export *x, uint32_t gcomm)
{
	for (uint32_t i = 0; i < x->set->nr_gcomms; i++)
		if (x->order[i] == gcomm)
			return i;
	return 0;
}

/*
 * Returns the job's rank of a member. For a member without a trace, returns its rank in the
 * communicator.
 */
static int world_of(const struct export *x, uint32_t gcomm, int rank)
{
	const struct df_trc_comm *e = df_set_entry(x->set, gcomm, rank);

	return e ? e->world : rank;
}

static void pg_config(const struct export *x, FILE *out)
{
	df_pickle_put_string(out, "pg_config");
	df_pickle_dict(out);
	for (uint32_t i = 0; i < x->set->nr_gcomms; i++) {
		const struct df_gcomm *g = &x->set->gcomms[x->order[i]];
		char name[16], *ranks = malloc((size_t)g->nranks * 12 + 8);
		size_t n = 0;

		if (!ranks)
			continue;
		n += (size_t)sprintf(ranks, "[");
		for (int r = 0; r < g->nranks; r++)
			n += (size_t)sprintf(ranks + n, "%s%d", r ? ", " : "",
					     world_of(x, x->order[i], r));
		sprintf(ranks + n, "]");
		snprintf(name, sizeof(name), "%u", i);
		df_pickle_put_string(out, name);
		df_pickle_dict(out);
		key_text(out, "name", name);
		key_text(out, "desc", i ? g->label : "default_pg");
		key_text(out, "ranks", ranks);
		df_pickle_dict_end(out);
		free(ranks);
	}
	df_pickle_dict_end(out);
}

static void pg_status(const struct export *x, const struct df_trc *t, int32_t device, FILE *out)
{
	df_pickle_put_string(out, "pg_status");
	df_pickle_dict(out);
	for (uint32_t k = 0; k < t->nr_entries; k++) {
		const struct df_trc_comm *e = &x->set->entries[t->first_entry + k];
		int64_t enqueued = -1, started = -1, completed = -1;
		char name[16];

		if (e->gcomm == DF_NONE || e->device != device)
			continue;
		for (size_t i = 0; i < x->load.nr_ops; i++) {
			const struct df_lop *op = &x->load.ops[i];

			if (op->comm != e->local || df_kind_is_p2p(op->kind))
				continue;
			enqueued = (int64_t)op->index + 1;
			if (op->state >= DF_OP_STARTED)
				started = enqueued;
			if (op->state >= DF_OP_FINISHED)
				completed = enqueued;
		}
		snprintf(name, sizeof(name), "%u", place_of(x, e->gcomm));
		df_pickle_put_string(out, name);
		df_pickle_dict(out);
		key_int(out, "last_enqueued_collective", enqueued);
		key_int(out, "last_started_collective", started);
		key_int(out, "last_completed_collective", completed);
		df_pickle_dict_end(out);
	}
	df_pickle_dict_end(out);
}

static void sizes(FILE *out, const char *key, uint64_t n, int none)
{
	df_pickle_put_string(out, key);
	df_pickle_list(out);
	if (!none) {
		df_pickle_list(out);
		df_pickle_put_int(out, (int64_t)n);
		df_pickle_list_end(out);
	}
	df_pickle_list_end(out);
}

static void types(FILE *out, const char *key, const char *type)
{
	df_pickle_put_string(out, key);
	df_pickle_list(out);
	df_pickle_put_string(out, type);
	df_pickle_list_end(out);
}

static void time_of(FILE *out, const char *key, uint64_t mono, int64_t to_real)
{
	df_pickle_put_string(out, key);
	if (mono)
		df_pickle_put_int(out, (int64_t)mono + to_real);
	else
		df_pickle_put_none(out);
}

/* Writes the frames of an operation's call site, innermost first. */
static void frames(struct export *x, const struct df_lop *op, FILE *out)
{
	const char *at = df_stacks_get(&x->stacks, 0, x->load.notes, x->load.nr_notes, x->reader,
				       op->site),
		   *end, *name;
	struct df_stack_line line;
	char text[512];

	df_pickle_put_string(out, "frames");
	df_pickle_list(out);
	for (; *at; at = *end ? end + strlen(DF_STACK_SEP) : end) {
		end = strstr(at, DF_STACK_SEP);
		if (!end)
			end = at + strlen(at);
		df_pickle_dict(out);
		if (df_stack_line(at, &line)) {
			snprintf(text, sizeof(text), "%.*s", line.name_bytes, line.name);
			key_text(out, "name", text);
			snprintf(text, sizeof(text), "%.*s", line.file_bytes, at);
			key_text(out, "filename", text);
			key_int(out, "line", line.line);
		} else {
			snprintf(text, sizeof(text), "%.*s", (int)(end - at), at);
			name = strchr(text, '!');
			key_text(out, "name", name ? name + 1 : text);
			text[name ? name - text : (ptrdiff_t)strcspn(text, "+")] = 0;
			key_text(out, "filename", text);
			key_int(out, "line", 0);
		}
		df_pickle_dict_end(out);
	}
	df_pickle_list_end(out);
}

/*
 * Writes an entry. `p2p` is the number of a message, or 0 for a collective; messages with the same
 * number are one group. `end`: the entry closes a group of messages.
 */
static void entry(struct export *x, const struct df_trc_comm *e, const struct df_lop *op,
		  int64_t id, int64_t to_real, int64_t p2p, int end, FILE *out)
{
	static const char *const states[] = {"scheduled", "started", "completed", "completed"};
	const struct df_gcomm *g = &x->set->gcomms[e->gcomm];
	uint32_t place = place_of(x, e->gcomm);
	uint64_t in = op->count, n = op->count;
	char name[16], text[96];

	if (op->kind == DF_KIND_ALLGATHER || op->kind == DF_KIND_GATHER)
		n *= (uint64_t)g->nranks;
	if (op->kind == DF_KIND_REDUCESCATTER || op->kind == DF_KIND_SCATTER)
		in *= (uint64_t)g->nranks;
	if (op->kind == DF_KIND_ALLTOALL)
		in = n = op->count * (uint64_t)g->nranks;
	snprintf(name, sizeof(name), "%u", place);
	if (end)
		snprintf(text, sizeof(text), "nccl:coalesced");
	else if (op->kind == DF_KIND_SEND)
		snprintf(text, sizeof(text), "nccl:send %d->%d", op->rank, op->peer);
	else if (op->kind == DF_KIND_RECV)
		snprintf(text, sizeof(text), "nccl:recv %d<-%d", op->rank, op->peer);
	else
		snprintf(text, sizeof(text), "nccl:%s", df_kind_fr(op->kind));
	df_pickle_dict(out);
	frames(x, op, out);
	key_int(out, "record_id", id);
	key_int(out, "pg_id", place);
	df_pickle_put_string(out, "process_group");
	df_pickle_tuple(out);
	df_pickle_put_string(out, name);
	df_pickle_put_string(out, place ? g->label : "default_pg");
	df_pickle_tuple_end(out);
	key_int(out, "collective_seq_id", p2p ? 0 : (int64_t)op->index + 1);
	key_int(out, "p2p_seq_id", p2p);
	key_int(out, "op_id", (int64_t)op->cindex + 1);
	key_text(out, "profiling_name", text);
	key_text(out, "thread_name", "");
	df_pickle_put_string(out, "thread_id");
	snprintf(text, sizeof(text), "%u", op->thread);
	df_pickle_put_string(out, text);
	time_of(out, "time_created_ns", op->issue_ns, to_real);
	if (op->start_ns && op->done_ns > op->start_ns) {
		df_pickle_put_string(out, "duration_ms");
		df_pickle_put_float(out, (double)(op->done_ns - op->start_ns) / 1e6);
	}
	sizes(out, "input_sizes", in, op->kind == DF_KIND_RECV || end);
	types(out, "input_dtypes", df_dtype_torch(op->type));
	sizes(out, "output_sizes", n, op->kind == DF_KIND_SEND || end);
	types(out, "output_dtypes", df_dtype_torch(op->type));
	key_text(out, "state", states[op->state < 4 ? op->state : 0]);
	time_of(out, "time_discovered_started_ns", op->start_ns, to_real);
	time_of(out, "time_discovered_completed_ns", op->done_ns, to_real);
	df_pickle_put_string(out, "retired");
	df_pickle_put_bool(out, op->state >= DF_OP_FINISHED);
	key_int(out, "timeout_ms", 600000);
	df_pickle_put_string(out, "is_p2p");
	df_pickle_put_bool(out, p2p != 0);
	df_pickle_dict_end(out);
}

/* Number and group of the last message of a communicator. */
struct numbers {
	int64_t last;
	uint32_t group;
};

/*
 * Numbers the messages. Messages continue the numbers of their communicator's collectives, because
 * readers take adjacent entries with equal numbers for a group, whether they are messages or
 * collectives. Returns 0 or -ENOMEM.
 */
static int number_messages(const struct export *x, const struct df_trc *t, struct numbers **out)
{
	struct numbers *n = calloc((size_t)t->nr_entries + 1, sizeof(*n));

	for (size_t i = 0; n && i < x->load.nr_ops; i++)
		if (x->load.ops[i].comm <= t->nr_entries && !df_kind_is_p2p(x->load.ops[i].kind) &&
		    n[x->load.ops[i].comm].last <= (int64_t)x->load.ops[i].index)
			n[x->load.ops[i].comm].last = (int64_t)x->load.ops[i].index + 1;
	*out = n;
	return n ? 0 : -ENOMEM;
}

/* Whether the group of messages that contains operation i continues after it. */
static int goes_on(const struct export *x, size_t i)
{
	const struct df_lop *op = &x->load.ops[i];

	for (size_t k = i + 1; k < x->load.nr_ops; k++) {
		const struct df_lop *o = &x->load.ops[k];

		if (o->comm == op->comm)
			return df_kind_is_p2p(o->kind) && o->group == op->group;
	}
	return 0;
}

static int export_rank(struct export *x, const struct df_trc *t, int32_t device, int world)
{
	int64_t to_real = (int64_t)(t->h.real_ns - t->h.mono_ns), id = 0;
	struct numbers *numbers;
	char path[PATH_MAX];
	FILE *out;

	snprintf(path, sizeof(path), "%s%d", x->prefix, world);
	if (number_messages(x, t, &numbers))
		return df_cli_input_error("export-fr", path, "out of memory");
	out = fopen(path, "wb");
	if (!out)
		free(numbers);
	if (!out)
		return df_cli_input_error("export-fr", path, "%s", strerror(errno));
	df_pickle_begin(out);
	df_pickle_dict(out);
	key_text(out, "version", "2.10");
	key_text(out, "comm_lib_version", "0.0.0");
	df_pickle_put_string(out, "nccl_comm_state");
	df_pickle_dict(out);
	df_pickle_dict_end(out);
	pg_config(x, out);
	pg_status(x, t, device, out);
	df_pickle_put_string(out, "entries");
	df_pickle_list(out);
	for (size_t i = 0; i < x->load.nr_ops; i++) {
		const struct df_lop *op = &x->load.ops[i];
		const struct df_trc_comm *e;

		if (op->comm > t->nr_entries)
			continue;
		e = &x->set->entries[t->first_entry + op->comm - 1];
		if (e->gcomm == DF_NONE || e->device != device)
			continue;
		if (df_kind_is_p2p(op->kind)) {
			struct numbers *n = &numbers[op->comm];
			int grouped = op->group && n->group == op->group;

			n->last += !grouped;
			n->group = op->group;
			entry(x, e, op, id++, to_real, n->last, 0, out);
			if (grouped && !goes_on(x, i))
				entry(x, e, op, id++, to_real, n->last, 1, out);
		} else {
			entry(x, e, op, id++, to_real, 0, 0, out);
		}
	}
	free(numbers);
	df_pickle_list_end(out);
	df_pickle_dict_end(out);
	df_pickle_end(out);
	if (fclose(out))
		return df_cli_input_error("export-fr", path, "%s", strerror(errno));
	x->nr_files++;
	return 0;
}

static int export_trace(struct export *x, const struct df_trc *t)
{
	struct df_reader rd;
	int32_t done[64];
	size_t nr_done = 0;
	const char *why = "out of memory";
	int rc = 0;

	if (df_reader_open(&rd, t->path, &why))
		return df_cli_input_error("export-fr", t->path, "%s", why);
	x->reader = &rd;
	if (df_load_trace(&x->load, &rd))
		rc = df_cli_input_error("export-fr", t->path, "out of memory");
	/* A process may have several ranks: one file for each. */
	for (uint32_t k = 0; k < t->nr_entries && !rc; k++) {
		const struct df_trc_comm *e = &x->set->entries[t->first_entry + k];
		size_t i = 0;

		while (i < nr_done && done[i] != e->device)
			i++;
		if (e->gcomm == DF_NONE || i < nr_done || nr_done == 64)
			continue;
		done[nr_done++] = e->device;
		rc = export_rank(x, t, e->device, e->world);
	}
	df_stacks_fini(&x->stacks);
	df_reader_close(&rd);
	return rc;
}

int df_cmd_export_fr(int argc, char **argv)
{
	struct export x = {.prefix = "nccl_trace_rank_"};
	int rc = 0;
	const struct df_opt options[] = {
		DF_OPT_AS(OUTPUT, "PREFIX", x.prefix,
			  "what the files' names begin with (./nccl_trace_rank_)"),
	};

	DF_CLI_PARSE("export-fr", &argc, &argv, DF_CLI_TRACES,
		     .doc = "Writes a Flight Recorder dump of each rank to PREFIX<rank>, for "
			    "torchfrtrace and other tools that read PyTorch's dumps. Each call has "
			    "its frames, those of Python programs with line numbers.");
	x.set = df_cli_load("export-fr", argc, argv);
	if (!x.set)
		return 1;
	df_load_init(&x.load);
	x.order = malloc((x.set->nr_gcomms + 1) * sizeof(*x.order));
	if (!x.order || df_set_seal(x.set, NULL)) {
		rc = df_cli_input_error("export-fr", argv[0], "out of memory");
	} else {
		for (uint32_t i = 0; i < x.set->nr_gcomms; i++)
			x.order[i] = i;
		sorting = x.set;
		qsort(x.order, x.set->nr_gcomms, sizeof(*x.order), by_size);
		for (size_t i = 0; i < x.set->nr_traces && !rc; i++)
			if (!x.set->traces[i].dropped)
				rc = export_trace(&x, &x.set->traces[i]);
		if (!rc)
			printf("%zu files %s<rank>\n", x.nr_files, x.prefix);
	}
	free(x.order);
	df_load_fini(&x.load);
	df_check_set_free(x.set);
	return rc;
}
