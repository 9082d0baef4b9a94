/*
 * `dfshim algo`: programs of collectives, from the library, built-in, or from files: lists,
 * translates, proves, runs on the reference executor, measures. runtime/program does the work; this
 * file has the user interface.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/err.h"
#include "runtime/program/file/algofile.h"
#include "runtime/program/file/canon.h"
#include "runtime/program/verify/exec.h"
#include "runtime/program/lang/library/library.h"
#include "runtime/program/file/text.h"
#include "runtime/program/build/tuner.h"
#include "runtime/program/program_names.h"
#include "trace/cli/algo/algo.h"
#include "trace/cli/cmd.h"
#include "trace/cli/common/cli.h"
#include "trace/say/json.h"

/* Parses "3+5": nodes of 3 and 5 ranks. */
static const char *take_layout(void *to, const char *s)
{
	struct df_algo_args *a = to;
	uint64_t node[4096];
	const char *at = s;
	char *end;
	int n = 0;

	for (uint64_t k = 0;; k++) {
		unsigned long g = strtoul(at, &end, 10);

		if (end == at || *at == '-' || !g || g > 4096u - (unsigned)n ||
		    (*end && *end != '+'))
			return "sizes of nodes as 3+5 are needed";
		while (g--)
			node[n++] = k;
		if (!*end)
			break;
		at = end + 1;
	}
	a->layout_text = s;
	df_layout_free(a->layout);
	return df_layout_create(n, node, &a->layout) ? "out of memory" : NULL;
}

static int parse(struct df_algo_args *a, int *argc, char ***argv)
{
	const struct df_opt options[] = {
		DF_HEADING("The program:"),
		DF_NUMBER("ranks", "N", a->shape.nranks, 1, 4096,
			  "ranks, nodes times gpus (8 on each node)"),
		DF_NUMBER("nodes", "N", a->shape.nodes, 1, 4096, "nodes (1)"),
		DF_NUMBER("gpus", "N", a->shape.gpus, 1, 4096,
			  "ranks on each node (ranks / nodes)"),
		DF_TAKE("layout", "A+B+...", take_layout, *a,
			"nodes of these sizes, in place of --ranks, --nodes and --gpus; for "
			"built-in programs"),
		DF_NUMBER("root", "R", a->shape.root, 0, 4095, "root of a rooted collective (0)"),
		DF_NUMBER("channels", "N", a->shape.channels, 1, 64,
			  "rings in a ring program of the library (1)"),
		DF_NUMBER("instances", "N", a->shape.instances, 1, 64,
			  "copies of the program, each for a part of every chunk (1)"),
		DF_INDEX("blocks", "channel|peer", a->policy,
			 "one block per channel, or one peer per direction and block, which "
			 "MSCCL's format needs"),
		DF_FLAG("no-fuse", a->shape.no_fuse,
			"leave receives and the sends that forward them apart"),
		DF_NUMBER("bytes", "N", a->bytes, 0, 1ull << 50,
			  "size of the call that a built-in program is for (1048576)"),
		DF_NUMBER("max-blocks", "N", a->max_blocks, 1, 1024,
			  "most blocks of the call that a built-in program is for; bench measures "
			  "1 to this number (1)"),
		DF_HEADING("Output:"),
		DF_INDEX("format", "text|msccl|rccl", a->format,
			 "format that show and compile write (text)"),
		DF_OPT(OUTPUT, a->out, NULL),
		DF_OPT(JSON, a->json, "one JSON object a line: ls, verify, run and bench"),
		DF_HEADING("run and bench:"),
		DF_NUMBER("count", "N", a->count, 0, 1 << 28, "elements (1000)"),
		DF_NUMBER("slots", "N", a->slots, 1, 1 << 16, "slots per connection (the fewest)"),
		DF_NUMBER("tile", "N", a->tile, 1, 1 << 28, "elements of a chunk per slice (64)"),
		DF_INDEX("op", "sum|prod|max|min|premulsum|sumpostdiv", a->redop,
			 "reduction (sum)"),
		DF_INDEX("type", "uint32|float32", a->is_float, "type of the elements (uint32)"),
		DF_OPT(ROUNDS, a->rounds, "schedules to try, measurements of a job (20)"),
		DF_OPT(SEED, a->seed, "seed of the first schedule (1)"),
		DF_TEXT("kind", "KIND,...|all", a->kind,
			"collectives that bench measures (AllReduce)"),
		DF_TEXT("sizes", "BYTES,...", a->sizes, "sizes that bench measures (1K to 16M)"),
		DF_NUMBER("turns", "N", a->turns, 1, 1000, "jobs that bench runs (3)"),
		DF_TEXT("tuner", "FILE", a->tuner,
			"bench: the runtime's own choice (the column \"auto\") is made by this "
			"file"),
		DF_OPT(WORKER, a->worker, NULL),
	};

	*a = (struct df_algo_args){.bytes = 1 << 20,
				   .max_blocks = 1,
				   .count = 1000,
				   .tile = 64,
				   .rounds = 20,
				   .turns = 3,
				   .seed = 1};
	DF_CLI_PARSE(
		"algo", argc, argv,
		.args = "ls [FILE|DIR...]\nshow FILE|NAME\ncompile FILE|NAME\nverify FILE|NAME...\n"
			"run FILE|NAME\nbench",
		.most = -1, .missing = "no action; allowed: ls, show, compile, verify, run, bench",
		.doc = "ls: list the library and the built-in programs, or say which files are "
		       "valid. show: print a program in readable form. compile: translate a "
		       "program to text or MSCCL XML. verify: prove that it is correct. run: "
		       "execute it on random data under random preemption. bench: time the "
		       "built-in algorithms on the daemon (CPU threads, a process for each rank) "
		       "and write a tuner file (DFSHIM_TUNER). NAME is a program of the library "
		       "(allreduce-ring) or a built-in one (AllReduce/ring).\vExit status: 0; 1 "
		       "unreadable input; 2 wrong usage; 3 a program was refused or computed a "
		       "wrong result.");
	a->file = *argv + 1;
	a->nr_files = *argc - 1;
	a->shape.blocks = (enum df_block_policy)a->policy;
	if (a->layout) {
		if (a->shape.nranks || a->shape.nodes || a->shape.gpus)
			return df_cli_usage_error("algo",
						  "--layout determines the ranks and nodes: leave "
						  "out --ranks, --nodes and --gpus");
		a->shape.nranks = a->layout->nranks;
		a->shape.nodes = a->layout->nodes;
		a->shape.gpus = df_layout_size(a->layout, 0);
		goto shaped;
	}
	if (!a->shape.nodes)
		a->shape.nodes = 1;
	if (!a->shape.nranks)
		a->shape.nranks =
			a->shape.gpus ? a->shape.nodes * a->shape.gpus : 8 * a->shape.nodes;
	if (!a->shape.gpus)
		a->shape.gpus = a->shape.nranks / a->shape.nodes;
	if (a->shape.nranks != a->shape.nodes * a->shape.gpus)
		return df_cli_usage_error("algo", "--ranks %d: %d nodes of %d GPUs have %d ranks",
					  a->shape.nranks, a->shape.nodes, a->shape.gpus,
					  a->shape.nodes * a->shape.gpus);
shaped:
	if (a->shape.root >= a->shape.nranks)
		return df_cli_usage_error("algo", "--root %d: with %d ranks the root is below %d",
					  a->shape.root, a->shape.nranks, a->shape.nranks);
	return 0;
}

/* ---- sources of programs ----------------------------------------------------------------- */

/*
 * Parses "AllReduce/ring": kind and algorithm of a built-in program. Returns 0 if the name is no
 * such program.
 */
static int parse_builtin(const char *name, enum df_coll_kind *kind, enum df_algo *algo)
{
	char text[64];
	char *slash;
	int k;

	if (strlen(name) >= sizeof(text))
		return 0;
	strcpy(text, name);
	slash = strchr(text, '/');
	*algo = DF_ALGO_AUTO;
	if (slash) {
		int i = df_algo_find_name(slash + 1, strlen(slash + 1));

		*slash = 0;
		if (i < 0)
			return 0;
		*algo = (enum df_algo)i;
	}
	k = df_coll_kind_parse(text);
	*kind = (enum df_coll_kind)k;
	return k >= 0 && k < DF_COLL_SEND;
}

static int load_builtin(const struct df_algo_args *a, enum df_coll_kind kind, enum df_algo algo,
			struct df_algo_file **out, struct df_perr *err)
{
	int n = a->shape.nranks, rc = 0;
	uint64_t steps = 0;
	struct df_prog_req q = {.kind = kind,
				.algo = algo,
				.nranks = n,
				.nodes = a->shape.nodes,
				.layout = a->layout,
				.root = a->shape.root,
				.elem_bytes = 4,
				.max_blocks = a->max_blocks};
	struct df_program **p = calloc((size_t)n, sizeof(*p));
	struct df_algo_file *f = calloc(1, sizeof(*f));

	if (!p || !f)
		rc = -ENOMEM;
	q.count = a->bytes / 4;
	for (q.rank = 0; !rc && q.rank < n; q.rank++) {
		rc = df_program_build(&q, &p[q.rank]);
		steps += rc ? 0 : p[q.rank]->nr_inst;
		if (df_verify_too_large(steps, n, 0))
			rc = df_perr_set(err, -1, -1, -1, -1,
					 "more than %llu steps for %d ranks are too many to be "
					 "verified: take fewer ranks or blocks",
					 (unsigned long long)steps, n);
	}
	if (!rc) {
		f->plan = df_plan_from_programs(p, n, kind, a->shape.root);
		rc = f->plan ? df_plan_prove(f->plan, NULL, &f->progs, &f->v) : -ENOMEM;
		if (rc == -EPROTO)
			*err = f->v.err;
	}
	df_programs_free(p, n);
	if (rc) {
		df_algo_free(f);
		return rc;
	}
	*out = f;
	return 0;
}

static int load_library(const struct df_algo_args *a, const struct df_lib *lib,
			struct df_algo_file **out, struct df_perr *err)
{
	struct df_algo_file *f;
	int rc;

	if (a->layout && !a->layout->equal)
		return df_perr_set(err, -1, -1, -1, -1,
				   "the library's programs are for nodes of equal size");
	f = calloc(1, sizeof(*f));
	if (!f)
		return -ENOMEM;
	rc = df_library_compile(lib, &a->shape, &f->plan, &f->expect, err);
	if (!rc) {
		rc = df_plan_prove(f->plan, &f->expect, &f->progs, &f->v);
		if (rc == -EPROTO)
			*err = f->v.err;
	}
	if (rc) {
		df_algo_free(f);
		return rc;
	}
	*out = f;
	return 0;
}

int df_algo_load(const struct df_algo_args *a, const char *name, struct df_algo_file **out,
		 struct df_perr *err)
{
	const struct df_lib *lib = df_library_find(name);
	enum df_coll_kind kind;
	enum df_algo algo;
	int rc;

	df_perr_clear(err);
	if (access(name, F_OK) && lib)
		rc = load_library(a, lib, out, err);
	else if (access(name, F_OK) && parse_builtin(name, &kind, &algo))
		rc = load_builtin(a, kind, algo, out, err);
	else
		return df_algo_read(name, out, err);
	if (!err->file[0])
		snprintf(err->file, sizeof(err->file), "%s", name);
	if (rc)
		df_perr_set(err, -1, -1, -1, -1, "%s", strerror(-rc));
	return rc;
}

/* Returns 1 if the program could not be read, 3 if it was read and refused. */
int df_algo_refused(const char *name, const struct df_perr *err, int rc)
{
	char text[512];

	if (rc != -EPROTO)
		return df_cli_input_error("algo", name, "%s", err->text);
	fprintf(stderr, "dfshim algo: %s\n", df_perr_str(err, text, sizeof(text)));
	return 3;
}

/* ---- ls ---------------------------------------------------------------------------------- */

static void ls_refused(void *arg, const struct df_perr *err)
{
	char text[512];

	*(int *)arg = 3;
	printf("refused  %s\n", df_perr_str(err, text, sizeof(text)));
}

/* With JSON, standard output has only the JSON. */
static void ls_refused_aside(void *arg, const struct df_perr *err)
{
	char text[512];

	*(int *)arg = 3;
	fprintf(stderr, "dfshim algo: refused: %s\n", df_perr_str(err, text, sizeof(text)));
}

static void ls_row(json_t *list, const char *from, const char *name, enum df_coll_kind kind)
{
	json_array_append_new(list, json_pack("{s:s, s:o, s:s}", "from", from, "name",
					      df_json_text(name), "kind", df_coll_kind_name(kind)));
}

static int ls_json(const struct df_algo_args *a)
{
	json_t *list = json_array();
	int rc = 0;

	for (unsigned i = 0; i < df_library_size && !a->nr_files; i++)
		ls_row(list, "library", df_library[i].name, df_library[i].kind);
	for (int k = 0; k < DF_COLL_SEND && !a->nr_files; k++) {
		struct df_prog_req q = {.kind = (enum df_coll_kind)k, .nranks = 4, .nodes = 2};

		for (int g = DF_ALGO_RING; g < DF_ALGO_NR; g++)
			if (df_algo_has(&q, (enum df_algo)g))
				ls_row(list, "built-in", df_algo_name((enum df_algo)g), q.kind);
	}
	for (int i = 0; i < a->nr_files; i++) {
		struct df_algo_table *t;

		if (df_algo_table_load(a->file[i], ls_refused_aside, &rc, &t)) {
			json_decref(list);
			return df_cli_input_error("algo", a->file[i], "out of memory");
		}
		for (uint32_t k = 0; k < t->nr; k++)
			ls_row(list, "file", t->file[k]->path, t->file[k]->plan->kind);
		df_algo_table_free(t);
	}
	return df_json_line(list, stdout) ? 1 : rc;
}

static int cmd_ls(const struct df_algo_args *a)
{
	int rc = 0;

	if (a->json)
		return ls_json(a);
	if (!a->nr_files) {
		printf("library (dfshim algo show NAME --nodes N --gpus N):\n");
		for (unsigned i = 0; i < df_library_size; i++)
			printf("  %-24s %-14s %s\n", df_library[i].name,
			       df_coll_kind_name(df_library[i].kind), df_library[i].help);
		printf("built-in (dfshim algo show NAME --nodes N --gpus N --bytes N):\n");
		for (int k = 0; k < DF_COLL_SEND; k++) {
			struct df_prog_req q = {
				.kind = (enum df_coll_kind)k, .nranks = 4, .nodes = 2};

			printf(" ");
			for (int g = DF_ALGO_RING; g < DF_ALGO_NR; g++) {
				if (df_algo_has(&q, (enum df_algo)g))
					printf(" %s/%s", df_coll_kind_name(q.kind),
					       df_algo_name((enum df_algo)g));
			}
			puts("");
		}
		return 0;
	}
	for (int i = 0; i < a->nr_files; i++) {
		struct df_algo_table *t;

		if (df_algo_table_load(a->file[i], ls_refused, &rc, &t))
			return df_cli_input_error("algo", a->file[i], "out of memory");
		for (uint32_t k = 0; k < t->nr; k++) {
			const struct df_algo_file *f = t->file[k];

			printf("valid    %s: %s, %d ranks, %u chunks, %u slots\n", f->path,
			       df_coll_kind_name(f->plan->kind), f->plan->nranks, f->plan->chunks,
			       f->v.min_slots);
		}
		df_algo_table_free(t);
	}
	return rc;
}

/* ---- show, compile ----------------------------------------------------------------------- */

static int cmd_write(const struct df_algo_args *a)
{
	struct df_algo_file *f = NULL;
	struct df_perr err;
	FILE *out = stdout;
	int rc;

	if (a->nr_files != 1)
		return df_cli_usage_error("algo", "exactly one file or name is needed");
	rc = df_algo_load(a, a->file[0], &f, &err);
	if (rc)
		return df_algo_refused(a->file[0], &err, rc);
	if (a->out) {
		out = fopen(a->out, "we");
		if (!out) {
			df_algo_free(f);
			return df_cli_input_error("algo", a->out, "%s", strerror(errno));
		}
	}
	df_perr_clear(&err);
	if (a->format == 0)
		rc = df_text_write(out, f->plan, &f->expect);
	else
		rc = df_msccl_write(out, f->plan, a->format == 2, f->v.in_place, &err);
	if (a->out && fclose(out) && !rc)
		rc = -EIO;
	df_algo_free(f);
	if (rc == -EOPNOTSUPP) {
		char text[512];

		if (a->out)
			unlink(a->out);
		return df_cli_input_error(
			"algo", a->file[0], "%s%s", df_perr_str(&err, text, sizeof(text)),
			df_library_find(a->file[0]) ? " (try --blocks peer)" : "");
	}
	return rc ? df_cli_input_error("algo", a->out ? a->out : "output", "cannot be written") : 0;
}

/* ---- run --------------------------------------------------------------------------------- */

static int cmd_run(const struct df_algo_args *a)
{
	struct df_algo_file *f = NULL;
	uint64_t slices = 0, preemptions = 0;
	struct df_perr err;
	char text[512];
	int rc;

	if (a->nr_files != 1)
		return df_cli_usage_error("algo", "run: exactly one file or name is needed");
	if (a->redop == DF_SUMPOSTDIV && a->is_float)
		return df_cli_usage_error("algo", "--op sumpostdiv: for integers only (--type)");
	rc = df_algo_load(a, a->file[0], &f, &err);
	if (rc)
		return df_algo_refused(a->file[0], &err, rc);
	for (uint64_t i = 0; !rc && i < a->rounds; i++) {
		struct df_exec_check c = {.progs = f->progs,
					  .kind = f->plan->kind,
					  .nranks = f->plan->nranks,
					  .root = f->plan->root,
					  .expect = &f->expect,
					  .count = a->count,
					  .tile_elems = a->tile,
					  .in_place = f->v.in_place ? a->seed + i : 0,
					  .seed = a->seed + i,
					  .type = a->is_float ? DF_FLOAT32 : DF_UINT32,
					  .redop = a->redop,
					  .slots = a->slots ? a->slots : f->v.min_slots,
					  .instances = 1 + (uint32_t)(i % 3)};

		if (f->v.whole_chunks)
			c.count -= c.count % f->plan->chunks;
		df_cli_progress("algo run", i, a->rounds);
		df_perr_clear(&err);
		rc = df_exec_check(&c, &err);
		slices += c.slices;
		preemptions += c.preemptions;
		if (rc)
			fprintf(stderr, "dfshim algo: %s: seed %llu: %s\n", a->file[0],
				(unsigned long long)(a->seed + i),
				err.text[0] ? df_perr_str(&err, text, sizeof(text))
					    : strerror(-rc));
	}
	df_cli_progress("algo run", a->rounds, a->rounds);
	if (!rc && a->json)
		rc = df_json_line(json_pack("{s:o, s:o, s:o, s:b}", "rounds",
					    df_json_u64(a->rounds), "slices", df_json_u64(slices),
					    "preemptions", df_json_u64(preemptions), "ok", 1),
				  stdout);
	else if (!rc)
		printf("%s: %llu runs %s, %llu slices, %llu preemptions\n", a->file[0],
		       (unsigned long long)a->rounds,
		       f->v.has_post ? "right" : "complete (nothing says what is right)",
		       (unsigned long long)slices, (unsigned long long)preemptions);
	df_algo_free(f);
	return rc ? 3 : 0;
}

int df_cmd_algo(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*run)(const struct df_algo_args *a);
	} cmds[] = {{"ls", cmd_ls},	    {"show", cmd_write},
		    {"compile", cmd_write}, {"verify", df_algo_verify},
		    {"run", cmd_run},	    {"bench", df_algo_bench}};
	struct df_algo_args a;
	int rc = parse(&a, &argc, &argv);

	for (unsigned i = 0; i < DF_ARRAY_LEN(cmds) && !rc; i++) {
		if (strcmp(argv[0], cmds[i].name))
			continue;
		rc = cmds[i].run(&a);
		df_layout_free(a.layout);
		return rc;
	}
	df_layout_free(a.layout);
	return rc ?: df_cli_usage_error("algo", "unknown action '%s'", argv[0]);
}
