/*
 * Files of programs and the table that DFSHIM_ALGO loads. Files are read once, before first use;
 * afterwards everything is constant. No locks.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "runtime/base/err.h"
#include "runtime/program/file/algofile.h"
#include "runtime/program/file/canon.h"
#include "runtime/program/file/text.h"
#include "runtime/program/build/tuner.h"
#include "runtime/program/program_names.h"

#define MAX_FILE (256l << 20)

char *df_algo_slurp(const char *path, size_t *size, struct df_perr *err)
{
	FILE *f = fopen(path, "re");
	char *text = NULL;
	struct stat st;
	long n;

	if (!f || fstat(fileno(f), &st)) {
		df_perr_set(err, -1, -1, -1, -1, "%s", strerror(errno));
		goto out;
	}
	if (!S_ISREG(st.st_mode)) {
		df_perr_set(err, -1, -1, -1, -1, "is not a regular file");
		goto out;
	}
	n = (long)st.st_size;
	if (n > MAX_FILE) {
		df_perr_set(err, -1, -1, -1, -1, "is larger than %ld MiB", MAX_FILE >> 20);
		goto out;
	}
	text = malloc((size_t)n + 1);
	if (!text) {
		df_perr_set(err, -1, -1, -1, -1, "no memory");
		goto out;
	}
	*size = fread(text, 1, (size_t)n, f);
	text[*size] = 0;
out:
	if (f)
		fclose(f);
	return text;
}

void df_algo_free(struct df_algo_file *a)
{
	if (!a)
		return;
	if (a->plan)
		df_programs_free(a->progs, a->plan->nranks);
	df_plan_destroy(a->plan);
	df_expects_fini(&a->expect);
	free(a);
}

int df_algo_parse_only(const char *path, const char *text, size_t size, struct df_algo_file **out,
		       struct df_perr *err)
{
	struct df_algo_file *a = calloc(1, sizeof(*a));
	size_t i = 0;
	int rc;

	if (!a)
		return -ENOMEM;
	snprintf(a->path, sizeof(a->path), "%s", path);
	snprintf(err->file, sizeof(err->file), "%s", path);
	if (size >= 3 && !memcmp(text, "\xef\xbb\xbf", 3))
		i = 3;
	while (i < size && strchr(" \t\r\n", text[i]) && text[i])
		i++;
	a->is_msccl = i < size && text[i] == '<';
	if (a->is_msccl) {
		rc = df_msccl_parse(text, size, &a->plan, &a->expect, &a->msccl, err);
	} else {
		struct df_program **raw;

		rc = df_text_parse(text, size, &a->plan, &a->expect, err);
		if (!rc && a->plan->in_place == 1) {
			rc = df_plan_finish(a->plan, 0, &raw);
			if (!rc) {
				rc = df_canon(a->plan, raw, NULL, err);
				df_programs_free(raw, a->plan->nranks);
			}
		}
	}
	if (rc) {
		df_algo_free(a);
		return rc;
	}
	*out = a;
	return 0;
}

/*
 * For a program that writes to its input. First proves it as if the input were its own, so that
 * other errors name the file's own steps; then makes it work on a copy. Fails with -EPROTO and
 * a->v.err.
 */
static int stage_written(struct df_algo_file *a)
{
	struct df_plan *plan = a->plan;
	uint32_t *own = calloc((size_t)plan->nranks, sizeof(*own));
	struct df_program **progs = NULL;
	struct df_verify_in in = {.kind = plan->kind,
				  .nranks = plan->nranks,
				  .root = plan->root,
				  .plan = plan,
				  .expect = a->expect.nr ? &a->expect : NULL,
				  .set_flags = 1,
				  .own_input = 1};
	int rc;

	if (!own)
		return -ENOMEM;
	/* A rank may name an input that the collective does not give it. */
	for (int r = 0; r < plan->nranks; r++) {
		own[r] = plan->rank[r].in_chunks;
		plan->rank[r].in_chunks = df_canon_input_reach(&plan->rank[r]);
	}
	rc = df_plan_finish(plan, 0, &progs);
	in.progs = progs;
	if (!rc)
		rc = df_verify(&in, &a->v);
	df_programs_free(progs, plan->nranks);
	for (int r = 0; r < plan->nranks; r++)
		plan->rank[r].in_chunks = own[r];
	free(own);
	a->staged = !rc;
	return rc ? rc : df_canon_stage(plan);
}

int df_algo_parse(const char *path, const char *text, size_t size, struct df_algo_file **out,
		  struct df_perr *err)
{
	struct df_algo_file *a = NULL;
	int rc = df_algo_parse_only(path, text, size, &a, err);

	if (rc)
		return rc;
	/* If input and output are one buffer, a write to the input is a write to the output. */
	if (a->plan->in_place != 1 && df_canon_writes_input(a->plan))
		rc = stage_written(a);
	if (!rc)
		rc = df_plan_prove(a->plan, &a->expect, &a->progs, &a->v);
	if (rc) {
		char file[sizeof(err->file)];

		memcpy(file, err->file, sizeof(file));
		if (rc == -EPROTO)
			*err = a->v.err;
		if (rc == -EPROTO && a->is_msccl)
			df_msccl_blame(a->plan, err);
		memcpy(err->file, file, sizeof(file));
		df_algo_free(a);
		return rc;
	}
	*out = a;
	return 0;
}

int df_algo_read(const char *path, struct df_algo_file **out, struct df_perr *err)
{
	size_t size = 0;
	char *text;
	int rc;

	df_perr_clear(err);
	snprintf(err->file, sizeof(err->file), "%s", path);
	text = df_algo_slurp(path, &size, err);
	if (!text)
		return -EIO;
	rc = df_algo_parse(path, text, size, out, err);
	free(text);
	if (rc && !err->text[0])
		df_perr_set(err, -1, -1, -1, -1, "%s", strerror(-rc));
	return rc;
}

/* ---- the table --------------------------------------------------------------------------- */

struct loading {
	struct df_algo_table *t;
	void (*refused)(void *arg, const struct df_perr *err);
	void *arg;
	int rc;
};

/* Makes a program that is right only out of place right in place too. Fails with -EPROTO, *err. */
static int stage(struct df_algo_file *a, struct df_perr *err)
{
	struct df_perr why = a->v.note;
	int rc;

	df_programs_free(a->progs, a->plan->nranks);
	a->progs = NULL;
	rc = df_canon_stage(a->plan);
	if (!rc)
		rc = df_plan_prove(a->plan, &a->expect, &a->progs, &a->v);
	if (rc || !a->v.in_place) {
		*err = why;
		snprintf(err->file, sizeof(err->file), "%.127s", a->path);
		return rc ? rc : -EPROTO;
	}
	a->staged = 1;
	return 0;
}

static void load_file(struct loading *l, const char *path)
{
	struct df_algo_file *a = NULL, **more;
	struct df_perr err;
	int rc = df_algo_read(path, &a, &err);

	if (!rc && a->plan->kind == DF_COLL_CUSTOM) {
		df_perr_clear(&err);
		snprintf(err.file, sizeof(err.file), "%s", path);
		df_perr_set(&err, -1, -1, -1, -1,
			    "is a custom collective: no NCCL function asks for it");
		rc = -EPROTO;
	}
	/* A rank does not know whether another one calls in place, so a program must serve both. */
	if (!rc && !a->v.in_place && !a->staged && a->plan->kind != DF_COLL_ALLTOALL)
		rc = stage(a, &err);
	if (rc) {
		if (l->refused)
			l->refused(l->arg, &err);
		df_algo_free(a);
		return;
	}
	more = realloc(l->t->file, (l->t->nr + 1ull) * sizeof(*more));
	if (!more) {
		l->rc = -ENOMEM;
		df_algo_free(a);
		return;
	}
	l->t->file = more;
	more[l->t->nr++] = a;
	l->t->hash = df_hash_u64(l->t->hash, a->progs[0]->hash);
	l->t->hash = df_hash_u64(l->t->hash, a->plan->min_bytes);
}

static int is_program(const struct dirent *d)
{
	size_t n = strlen(d->d_name);

	return n > 4 && (!strcmp(d->d_name + n - 4, ".xml") || !strcmp(d->d_name + n - 4, ".dfp"));
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name); /* not the locale's order: equal on all ranks */
}

static void load_path(struct loading *l, const char *path)
{
	struct dirent **names = NULL;
	struct stat st;
	char file[4096];
	int n;

	if (stat(path, &st) || !S_ISDIR(st.st_mode)) {
		load_file(l, path);
		return;
	}
	n = scandir(path, &names, is_program, by_name);
	for (int i = 0; i < n; i++) {
		if ((size_t)snprintf(file, sizeof(file), "%s/%s", path, names[i]->d_name) <
		    sizeof(file))
			load_file(l, file);
		free(names[i]);
	}
	free(names);
}

int df_algo_table_load(const char *list, void (*refused)(void *arg, const struct df_perr *err),
		       void *arg, struct df_algo_table **out)
{
	struct loading l = {.refused = refused, .arg = arg};
	char *copy = strdup(list ? list : ""), *save = NULL;

	l.t = calloc(1, sizeof(*l.t));
	if (!copy || !l.t) {
		free(copy);
		free(l.t);
		return -ENOMEM;
	}
	for (char *p = strtok_r(copy, ":", &save); p && !l.rc; p = strtok_r(NULL, ":", &save))
		load_path(&l, p);
	free(copy);
	if (l.rc) {
		df_algo_table_free(l.t);
		return l.rc;
	}
	*out = l.t;
	return 0;
}

void df_algo_table_free(struct df_algo_table *t)
{
	if (!t)
		return;
	for (uint32_t i = 0; i < t->nr; i++)
		df_algo_free(t->file[i]);
	free(t->file);
	free(t);
}

/* Returns NULL if the file serves the call, else the reason why it does not. */
static const char *unfit(const struct df_algo_file *a, const struct df_algo_query *q)
{
	const struct df_prog_req *r = q->req;
	uint64_t bytes = r->count * r->elem_bytes;
	int is_float = q->type == DF_FLOAT16 || q->type == DF_FLOAT32 || q->type == DF_FLOAT64 ||
		       q->type >= DF_BFLOAT16;

	if (a->plan->kind != r->kind)
		return "is for another collective";
	if (a->plan->nranks != r->nranks)
		return "is for another number of ranks";
	if (df_coll_rooted(r->kind) && a->plan->root != r->root)
		return "is for another root";
	if (!r->count)
		return "there is nothing to move";
	if (bytes < a->plan->min_bytes)
		return "the message is below its minBytes";
	if (a->plan->max_bytes && bytes > a->plan->max_bytes)
		return "the message is above its maxBytes";
	if (a->v.whole_chunks && r->count % a->plan->chunks)
		return "the count is not a multiple of its chunks";
	if (r->kind == DF_COLL_ALLREDUCE && !a->v.same_order && is_float && q->redop != DF_MAX &&
	    q->redop != DF_MIN)
		return "its ranks reduce in different orders: floating-point results would differ";
	if (q->max_slots && a->v.min_slots > q->max_slots)
		return "it needs more slots than there may be";
	return NULL;
}

const struct df_algo_file *df_algo_find(const struct df_algo_table *t,
					const struct df_algo_query *q, char *why, size_t size)
{
	int close = 0;

	if (why && size)
		snprintf(why, size, "no program is loaded");
	for (uint32_t i = 0; t && i < t->nr; i++) {
		const char *reason = unfit(t->file[i], q);

		if (!reason)
			return t->file[i];
		/* Prefer the reason of the last file for this collective. */
		if (why && size && (!close || t->file[i]->plan->kind == q->req->kind))
			snprintf(why, size, "%s: %s", t->file[i]->path, reason);
		close |= t->file[i]->plan->kind == q->req->kind;
	}
	return NULL;
}

/* Returns the author's choice if NCCL_PROTO allows it, else the cheapest that it allows. */
static enum df_proto protocol(const struct df_tuner *t, const struct df_algo_query *q,
			      const struct df_program *p, enum df_proto wish)
{
	uint32_t mask = t ? t->proto_mask[q->req->kind] : 0;

	if (wish != DF_PROTO_ANY && (!mask || mask >> wish & 1))
		mask = 1u << wish;
	if (!t && !q->cost)
		return wish == DF_PROTO_ANY ? DF_PROTO_SIMPLE : wish;
	return df_cost_proto(q->cost ? q->cost : &t->cost, p, q->req->count, q->req->elem_bytes,
			     mask);
}

int df_program_select(const struct df_algo_table *t, const struct df_tuner *tuner,
		      const struct df_algo_query *q, struct df_program **out,
		      struct df_algo_pick *pick)
{
	const struct df_algo_file *a = df_algo_find(t, q, NULL, 0);
	struct df_prog_req r = *q->req;
	double ns = 0;
	int rc;

	if (pick)
		*pick = (struct df_algo_pick){.algo = DF_ALGO_AUTO, .proto = DF_PROTO_SIMPLE};
	if (r.rank < 0 || r.rank >= r.nranks)
		return -EINVAL;
	if (a) {
		const struct df_program *p = a->progs[r.rank];
		struct df_program *copy = malloc(p->bytes);

		if (!copy)
			return -ENOMEM;
		memcpy(copy, p, p->bytes);
		*out = copy;
		if (pick) {
			pick->proto = protocol(tuner, q, p, a->plan->proto);
			pick->staged = a->staged;
		}
		return 0;
	}
	if (tuner && r.algo == DF_ALGO_AUTO)
		r.algo = df_tuner_choose(tuner, q->cost, &r, &r.max_blocks, &ns);
	if (pick)
		*pick = (struct df_algo_pick){.algo = r.algo, .proto = DF_PROTO_SIMPLE, .ns = ns};
	rc = df_program_build(&r, out);
	if (!rc && pick)
		pick->proto = protocol(tuner, q, *out, DF_PROTO_ANY);
	return rc;
}
