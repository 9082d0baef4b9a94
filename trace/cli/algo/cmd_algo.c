/*
 * `dfshim algo`: programs of collectives: the library, the built-in ones, files. Looks, translates, proves,
 * runs on the reference executor, measures. The work is done in runtime/program; here is the talking.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/err.h"
#include "runtime/base/json.h"
#include "runtime/program/file/algofile.h"
#include "runtime/program/file/canon.h"
#include "runtime/program/verify/exec.h"
#include "runtime/program/lang/library.h"
#include "runtime/program/file/text.h"
#include "runtime/program/build/tuner.h"
#include "trace/cli/algo/cmd_algo.h"
#include "trace/cli/cli.h"

static const char help[] =
	"usage: dfshim algo ls [FILE|DIR...]          the library and built-in programs; verdicts of files\n"
	"       dfshim algo show FILE|NAME            a program in readable form\n"
	"       dfshim algo compile FILE|NAME         translate: library or file to text or MSCCL XML\n"
	"       dfshim algo verify FILE|NAME...       prove: exit 0 valid, 3 refused\n"
	"       dfshim algo run FILE|NAME             execute on random data under random preemption\n"
	"       dfshim algo bench [-o FILE]           time the built-in algorithms on the daemon (CPU threads,\n"
	"                                             a process a rank), write a tuner file (DFSHIM_TUNER)\n\n"
	"NAME is a program of the library (allreduce-ring) or a built-in one (AllReduce/ring).\n\n"
	"The program:\n"
	"  --ranks N, --nodes N, --gpus N   shape: ranks = nodes * gpus (8 ranks on 1 node)\n"
	"  --layout A+B+...                 nodes of these sizes, for built-in programs\n"
	"  --root R                         of rooted collectives (0)\n"
	"  --channels N                     rings of the library's rings (1)\n"
	"  --instances N                    copies over parts of the chunks (1)\n"
	"  --blocks channel|peer            one block per channel, or one peer per block as in MSCCL\n"
	"  --no-fuse                        leave sends and receives apart\n"
	"  --bytes N, --max-blocks N        of the call, for built-in programs (1048576, 1)\n\n"
	"Output:\n"
	"  --format text|msccl|rccl         of show and compile (text)\n"
	"  -o FILE                          instead of standard output\n"
	"  --json                           results as JSON\n\n"
	"run and bench:\n"
	"  --count N --slots N --tile N     elements (1000), slots (fewest), elements of a slice (64)\n"
	"  --op sum|prod|max|min|premulsum|sumpostdiv, --type uint32|float32\n"
	"  --rounds N --seed N              schedules to try (20), the first one's seed\n"
	"  --kind K,...|all --sizes A,B,... what bench measures (AllReduce; 1K to 16M)\n"
	"  --turns N                        jobs that bench runs, of --rounds measurements each (3)\n"
	"  --tuner FILE                     of the job whose column is \"auto\": the runtime's own choice\n";

static int opt_u64(const char *name, const char *s, uint64_t min, uint64_t max, uint64_t *out)
{
	char *end;
	uint64_t v;

	errno = 0;
	v = strtoull(s, &end, 0);
	if (end != s && (*end == 'K' || *end == 'M' || *end == 'G') && !end[1]) {
		v <<= *end == 'K' ? 10 : *end == 'M' ? 20 : 30;
		end++;
	}
	if (*s == '-' || end == s || *end || errno || v < min || v > max)
		return df_cli_usage_error("algo", "%s: '%s' is not a number from %llu to %llu",
					  name, s, (unsigned long long)min,
					  (unsigned long long)max);
	*out = v;
	return 0;
}

static int opt_choice(const char *name, const char *s, const char *const *choices, int nr, int *out)
{
	for (*out = 0; *out < nr; ++*out) {
		if (!strcmp(s, choices[*out]))
			return 0;
	}
	return df_cli_usage_error("algo", "%s: unknown '%s'", name, s);
}

/* "3+5": nodes of 3 and 5 ranks. */
static int opt_layout(const char *s, struct df_algo_args *a)
{
	uint64_t node[4096];
	const char *at = s;
	char *end;
	int n = 0;

	for (uint64_t k = 0;; k++) {
		unsigned long g = strtoul(at, &end, 10);

		if (end == at || *at == '-' || !g || g > 4096u - (unsigned)n ||
		    (*end && *end != '+'))
			return df_cli_usage_error("algo",
						  "--layout: sizes of nodes as 3+5, not '%s'", s);
		while (g--)
			node[n++] = k;
		if (!*end)
			break;
		at = end + 1;
	}
	df_layout_free(a->layout);
	return df_layout_create(n, node, &a->layout)
		       ? df_cli_input_error("algo", "--layout", "no memory")
		       : 0;
}

static int parse(struct df_algo_args *a, int argc, char **argv)
{
	static const char *const blocks[] = {"channel", "peer"};
	static const char *const formats[] = {"text", "msccl", "rccl"};
	static const char *const ops[] = {"sum", "prod", "max", "min", "premulsum", "sumpostdiv"};
	static const char *const types[] = {"uint32", "float32"};
	uint64_t v = 0;
	int c, rc = 0;

	*a = (struct df_algo_args){.bytes = 1 << 20,
				   .max_blocks = 1,
				   .count = 1000,
				   .tile = 64,
				   .rounds = 20,
				   .turns = 3,
				   .seed = 1};
	for (int i = 1; i < argc && !rc; i++) {
		const char *o = argv[i], *x = i + 1 < argc ? argv[i + 1] : NULL;

		if (!strcmp(o, "--json")) {
			a->json = 1;
			continue;
		}
		if (!strcmp(o, "--no-fuse")) {
			a->shape.no_fuse = 1;
			continue;
		}
		if (o[0] != '-' || !o[1]) {
			if (a->nr_files == DF_ARRAY_LEN(a->file))
				return df_cli_usage_error("algo", "more than %zu files",
							  DF_ARRAY_LEN(a->file));
			a->file[a->nr_files++] = o;
			continue;
		}
		if (!x)
			return df_cli_usage_error("algo", "%s needs a value, or is unknown", o);
		i++;
		c = -1;
		if (!strcmp(o, "-o"))
			a->out = x;
		else if (!strcmp(o, "--blocks"))
			rc = opt_choice(o, x, blocks, 2, &c),
			a->shape.blocks = (enum df_block_policy)c;
		else if (!strcmp(o, "--format"))
			rc = opt_choice(o, x, formats, 3, &a->format);
		else if (!strcmp(o, "--op"))
			rc = opt_choice(o, x, ops, 6, &c), a->redop = (uint32_t)c;
		else if (!strcmp(o, "--type"))
			rc = opt_choice(o, x, types, 2, &a->is_float);
		else if (!strcmp(o, "--kind"))
			a->kind = x;
		else if (!strcmp(o, "--tuner"))
			a->tuner = x;
		else if (!strcmp(o, "--worker"))
			a->worker = x;
		else if (!strcmp(o, "--turns"))
			rc = opt_u64(o, x, 1, 1000, &v), a->turns = (int)v;
		else if (!strcmp(o, "--sizes"))
			a->sizes = x;
		else if (!strcmp(o, "--ranks"))
			rc = opt_u64(o, x, 1, 4096, &v), a->shape.nranks = (int)v;
		else if (!strcmp(o, "--nodes"))
			rc = opt_u64(o, x, 1, 4096, &v), a->shape.nodes = (int)v;
		else if (!strcmp(o, "--gpus"))
			rc = opt_u64(o, x, 1, 4096, &v), a->shape.gpus = (int)v;
		else if (!strcmp(o, "--layout"))
			rc = opt_layout(x, a), a->layout_text = x;
		else if (!strcmp(o, "--root"))
			rc = opt_u64(o, x, 0, 4095, &v), a->shape.root = (int)v;
		else if (!strcmp(o, "--channels"))
			rc = opt_u64(o, x, 1, 64, &v), a->shape.channels = (int)v;
		else if (!strcmp(o, "--instances"))
			rc = opt_u64(o, x, 1, 64, &v), a->shape.instances = (uint32_t)v;
		else if (!strcmp(o, "--max-blocks"))
			rc = opt_u64(o, x, 1, 1024, &v), a->max_blocks = (uint32_t)v;
		else if (!strcmp(o, "--bytes"))
			rc = opt_u64(o, x, 0, 1ull << 50, &a->bytes);
		else if (!strcmp(o, "--count"))
			rc = opt_u64(o, x, 0, 1 << 28, &a->count);
		else if (!strcmp(o, "--slots"))
			rc = opt_u64(o, x, 1, 1 << 16, &v), a->slots = (uint32_t)v;
		else if (!strcmp(o, "--tile"))
			rc = opt_u64(o, x, 1, 1 << 28, &a->tile);
		else if (!strcmp(o, "--rounds"))
			rc = opt_u64(o, x, 1, 1 << 24, &a->rounds);
		else if (!strcmp(o, "--seed"))
			rc = opt_u64(o, x, 0, UINT64_MAX, &a->seed);
		else
			return df_cli_usage_error("algo", "unknown option '%s'", o);
	}
	if (rc)
		return rc;
	if (a->layout) {
		if (a->shape.nranks || a->shape.nodes || a->shape.gpus)
			return df_cli_usage_error("algo", "--layout says how many ranks and nodes");
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
		return df_cli_usage_error("algo", "%d ranks are not %d nodes of %d",
					  a->shape.nranks, a->shape.nodes, a->shape.gpus);
shaped:
	if (a->shape.root >= a->shape.nranks)
		return df_cli_usage_error("algo", "root %d of %d ranks", a->shape.root,
					  a->shape.nranks);
	return 0;
}

/* ---- where programs come from -------------------------------------------------------------------------- */

/* "AllReduce/ring": kind and algorithm of a built-in program; 0 if the name is none. */
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
	for (q.rank = 0; !rc && q.rank < n; q.rank++)
		rc = df_program_build(&q, &p[q.rank]);
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

/* 1: can't be read at all; 3: read and refused. */
int df_algo_refused(const char *name, const struct df_perr *err, int rc)
{
	char text[512];

	if (rc != -EPROTO)
		return df_cli_input_error("algo", name, "%s", err->text);
	fprintf(stderr, "dfshim algo: %s\n", df_perr_str(err, text, sizeof(text)));
	return 3;
}

/* ---- ls ------------------------------------------------------------------------------------------------ */

static void ls_refused(void *arg, const struct df_perr *err)
{
	char text[512];

	*(int *)arg = 3;
	printf("refused  %s\n", df_perr_str(err, text, sizeof(text)));
}

/* JSON has the standard output for itself. */
static void ls_refused_aside(void *arg, const struct df_perr *err)
{
	char text[512];

	*(int *)arg = 3;
	fprintf(stderr, "dfshim algo: refused: %s\n", df_perr_str(err, text, sizeof(text)));
}

static void ls_row(int *nr, const char *from, const char *name, const char *kind)
{
	char buf[4600];
	struct df_json j;

	df_json_init(&j, buf, sizeof(buf));
	df_json_object(&j, NULL);
	df_json_str(&j, "from", from);
	df_json_str(&j, "name", name);
	df_json_str(&j, "kind", kind);
	df_json_end(&j);
	if (df_json_fini(&j) > 0)
		printf("%s%s", (*nr)++ ? ",\n" : "", buf);
}

static int ls_json(const struct df_algo_args *a)
{
	int rc = 0, nr = 0;

	puts("[");
	for (unsigned i = 0; i < df_library_size && !a->nr_files; i++)
		ls_row(&nr, "library", df_library[i].name, df_coll_kind_name(df_library[i].kind));
	for (int k = 0; k < DF_COLL_SEND && !a->nr_files; k++) {
		struct df_prog_req q = {.kind = (enum df_coll_kind)k, .nranks = 4, .nodes = 2};

		for (int g = DF_ALGO_RING; g < DF_ALGO_NR; g++)
			if (df_algo_has(&q, (enum df_algo)g))
				ls_row(&nr, "built-in", df_algo_name((enum df_algo)g),
				       df_coll_kind_name(q.kind));
	}
	for (int i = 0; i < a->nr_files; i++) {
		struct df_algo_table *t;

		if (df_algo_table_load(a->file[i], ls_refused_aside, &rc, &t))
			return df_cli_input_error("algo", a->file[i], "no memory");
		for (uint32_t k = 0; k < t->nr; k++)
			ls_row(&nr, "file", t->file[k]->path,
			       df_coll_kind_name(t->file[k]->plan->kind));
		df_algo_table_free(t);
	}
	puts("\n]");
	return rc;
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
			return df_cli_input_error("algo", a->file[i], "no memory");
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

/* ---- show, compile --------------------------------------------------------------------------------------- */

static int cmd_write(const struct df_algo_args *a)
{
	struct df_algo_file *f = NULL;
	struct df_perr err;
	FILE *out = stdout;
	int rc;

	if (a->nr_files != 1)
		return df_cli_usage_error("algo", "one file or name, please");
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
	return rc ? df_cli_input_error("algo", a->out ? a->out : "output", "can't be written") : 0;
}

/* ---- run ------------------------------------------------------------------------------------------------- */

static int cmd_run(const struct df_algo_args *a)
{
	struct df_algo_file *f = NULL;
	uint64_t slices = 0, preemptions = 0;
	struct df_perr err;
	char text[512];
	int rc;

	if (a->nr_files != 1)
		return df_cli_usage_error("algo", "run which program?");
	if (a->redop == DF_SUMPOSTDIV && a->is_float)
		return df_cli_usage_error("algo", "sumpostdiv is for integers");
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
		printf("{\"rounds\":%llu,\"slices\":%llu,\"preemptions\":%llu,\"ok\":true}\n",
		       (unsigned long long)a->rounds, (unsigned long long)slices,
		       (unsigned long long)preemptions);
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
	int rc;

	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
			fputs(help, stdout);
			return 0;
		}
	}
	if (argc < 2)
		return df_cli_usage_error("algo", "what? ls, show, compile, verify, run or bench");
	for (unsigned i = 0; i < DF_ARRAY_LEN(cmds); i++) {
		if (strcmp(argv[1], cmds[i].name))
			continue;
		rc = parse(&a, argc - 1, argv + 1);
		rc = rc ? rc : cmds[i].run(&a);
		df_layout_free(a.layout);
		return rc;
	}
	return df_cli_usage_error("algo", "unknown action '%s'", argv[1]);
}
