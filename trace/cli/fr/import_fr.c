/*
 * Converts Flight Recorder dumps to traces, see import_fr.h. A dump is only data: nothing in it is
 * executed.
 */
#define _GNU_SOURCE
#include "trace/cli/fr/import_fr.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <uthash.h>
#include "trace/cli/common/cli.h"
#include "trace/cli/common/dump_file.h"
#include "runtime/base/vec.h"
#include "trace/record/format.h"
#include "trace/record/trace_hash.h"
#include "trace/record/names.h"
#include "trace/cli/fr/pickle.h"

#define MAX_GROUPS 1024
#define MAX_FILE   (1LL << 30)
#define MAX_FRAMES 16	 /* maximum number of frames of a call site, as in our own traces */
#define ALL_FRAMES 65536 /* maximum number of frames of a file */

struct group {
	char name[64];
	uint64_t hash;
	int nranks, rank;
};

/* Content that is written once: a text by its hash, or a call site with its frames. */
struct seen {
	uint64_t hash;
	UT_hash_handle hh;
};

struct import {
	struct df_trace_header *h;
	size_t cap; /* capacity in records */
	struct seen *texts, *sites;
	size_t nr_frames;
	char *strings; /* as written to the file, after the records */
	size_t string_bytes, cap_strings;
	struct group groups[MAX_GROUPS];
	uint32_t nr_groups;
	int rank;
	size_t unknown; /* operations left out: of an unknown kind, or a group without this rank */
	size_t retired; /* operations that count as ended, but may have failed */
	size_t nr_ops;
	uint64_t open; /* number of operations that are not completed */
	uint64_t last_ns;
};

/* Reads a file. Returns NULL on failure, with the reason in *why. */
static void *read_file(const char *path, size_t *bytes, const char **why)
{
	FILE *f = fopen(path, "rb");
	struct stat st;
	void *p = NULL;

	if (!f || fstat(fileno(f), &st)) {
		*why = strerror(errno);
	} else if (S_ISDIR(st.st_mode)) {
		*why = "is a folder; give the dumps in it, one file a rank";
	} else if (!S_ISREG(st.st_mode)) {
		*why = "is not a regular file";
	} else if (st.st_size >= MAX_FILE) {
		*why = "is larger than 1 GiB";
	} else {
		*bytes = (size_t)st.st_size;
		p = malloc(*bytes + 1);
		*why = p ? "cannot be read to its end" : strerror(ENOMEM);
		if (p && fread(p, 1, *bytes, f) != *bytes) {
			free(p);
			p = NULL;
		}
	}
	if (f)
		fclose(f);
	return p;
}

static struct df_rec *put(struct import *im, uint64_t time, enum df_rec_type type, uint64_t op,
			  uint64_t a, uint64_t b, uint64_t c)
{
	struct df_trace_header *h = im->h;
	uint64_t at = h->next;
	struct df_rec *r;

	if (at >= im->cap)
		return NULL;
	h->next++;
	r = (struct df_rec *)((char *)h + h->off_recs) + at;
	r->time_ns = time;
	r->type = (uint16_t)type;
	r->device = 0;
	r->thread = (uint32_t)im->rank + 1;
	r->rank = -1;
	r->op = op;
	r->a = a;
	r->b = b;
	r->c = c;
	r->commit = (uint32_t)(at + 1);
	return r;
}

/* Parses "[0, 1, 5]": sets the number of ranks, and the position of this rank. */
static void parse_ranks(const char *s, int rank, struct group *g)
{
	for (char *end; *s; s = end) {
		long v;

		while (*s && (*s < '0' || *s > '9'))
			s++;
		if (!*s)
			return;
		v = strtol(s, &end, 10);
		if (v == rank)
			g->rank = g->nranks;
		g->nranks++;
	}
}

/* Writes the name by which an operation refers to its group. */
static void group_of(const struct df_pvalue *e, char *name, size_t size)
{
	const struct df_pvalue *group = df_pickle_get(e, "process_group");

	*name = '\0';
	if (group && group->kind == DF_P_LIST && group->nr)
		df_pickle_text(group->items[0], name, size);
}

/*
 * Adds PyTorch's description of a group to its name: "pg2(mesh_tp)". Some descriptions say nothing:
 * those that PyTorch writes for groups without one, and names that dfshim has exported.
 */
static void describe(char *name, size_t size, const char *desc)
{
	size_t n = strlen(name);

	if (*desc && strcmp(desc, "undefined") && strcmp(desc, "default_pg") &&
	    strncmp(desc, "pg", 2) && n + 3 < size)
		snprintf(name + n, size - n, "(%.*s)", (int)(size - n - 3), desc);
}

/* Fills the table of communicators. `first` is the dump's first operation, or NULL. */
static void groups(struct import *im, const struct df_pvalue *config, const struct df_pvalue *first)
{
	struct df_trace_comm *table = (struct df_trace_comm *)((char *)im->h + im->h->off_comms);
	size_t bytes = 1 << 20;
	char *ranks = malloc(bytes), desc[64];

	for (size_t i = 0; ranks && config && config->kind == DF_P_DICT && i + 1 < config->nr &&
			   im->nr_groups < MAX_GROUPS;
	     i += 2) {
		struct group *g = &im->groups[im->nr_groups];
		struct df_trace_comm *c = &table[im->nr_groups];

		g->rank = -1;
		df_pickle_text(config->items[i], g->name, sizeof(g->name));
		/* gloo lists its group without a name. */
		if (!*g->name && config->nr == 2 && first)
			group_of(first, g->name, sizeof(g->name));
		df_pickle_text(df_pickle_get(config->items[i + 1], "ranks"), ranks, bytes);
		df_pickle_text(df_pickle_get(config->items[i + 1], "desc"), desc, sizeof(desc));
		parse_ranks(ranks, im->rank, g);
		g->hash = df_mix64(df_hash64(g->name, strlen(g->name)) ^
				   df_hash64(ranks, strlen(ranks)));
		im->nr_groups++;
		if (g->rank < 0)
			continue;
		c->hash = g->hash;
		c->nranks = g->nranks;
		c->rank = g->rank;
		snprintf(c->name, sizeof(c->name), "pg%.20s", g->name);
		describe(c->name, sizeof(c->name), desc);
		c->used = 1;
	}
	im->h->comms_used = im->nr_groups;
	free(ranks);
}

static uint64_t elements(const struct df_pvalue *shapes)
{
	uint64_t n = 0;

	for (size_t i = 0; shapes && shapes->kind == DF_P_LIST && i < shapes->nr; i++) {
		const struct df_pvalue *s = shapes->items[i];
		uint64_t one = 1;

		for (size_t k = 0; s->kind == DF_P_LIST && k < s->nr; k++)
			one *= (uint64_t)df_pickle_int(s->items[k], 1);
		n += one;
	}
	return n;
}

/* Returns 1 if the hash is new. */
static int first_time(struct seen **table, uint64_t hash)
{
	struct seen *s;

	HASH_FIND(hh, *table, &hash, sizeof(hash), s);
	if (s)
		return 0;
	s = malloc(sizeof(*s));
	if (!s)
		return 0;
	s->hash = hash;
	HASH_ADD(hh, *table, hash, sizeof(s->hash), s);
	return 1;
}

static void forget(struct seen **table)
{
	struct seen *s, *next;

	HASH_ITER(hh, *table, s, next)
	{
		HASH_DEL(*table, s);
		free(s);
	}
}

static void put_text(struct import *im, const char *text, uint64_t hash)
{
	struct df_trace_string s = {.hash = hash, .bytes = (uint32_t)strlen(text), .used = 1};
	size_t need = sizeof(s) + ((s.bytes + 7) & ~7u);

	if (!first_time(&im->texts, hash))
		return;
	if (DF_VEC_ROOM(im->strings, im->cap_strings, im->string_bytes + need))
		return; /* without memory its sites are shown by number */
	memset(im->strings + im->string_bytes, 0, need);
	memcpy(im->strings + im->string_bytes, &s, sizeof(s));
	memcpy(im->strings + im->string_bytes + sizeof(s), text, s.bytes);
	im->string_bytes += need;
}

/*
 * Returns the call site with the frames of an operation, innermost first: "file:line!function"
 * each. Returns 0 if there are none.
 */
static uint32_t site_of(struct import *im, const struct df_pvalue *frames, uint64_t time)
{
	size_t nr = frames && frames->kind == DF_P_LIST ? frames->nr : 0;
	char texts[MAX_FRAMES][512], file[320], name[128];
	uint64_t hash = 0, hashes[MAX_FRAMES];
	uint32_t site;

	if (nr > MAX_FRAMES)
		nr = MAX_FRAMES;
	for (size_t i = 0; i < nr; i++) {
		const struct df_pvalue *f = frames->items[i];

		df_pickle_text(df_pickle_get(f, "filename"), file, sizeof(file));
		df_pickle_text(df_pickle_get(f, "name"), name, sizeof(name));
		snprintf(texts[i], sizeof(texts[i]), "%s:%" PRId64 "!%s", file,
			 df_pickle_int(df_pickle_get(f, "line"), 0), name);
		hashes[i] = df_hash64(texts[i], strlen(texts[i]));
		hash = df_mix64(hash ^ hashes[i]);
	}
	site = (uint32_t)(hash ^ hash >> 32);
	if (!nr || !site)
		return 0;
	if (im->nr_frames + nr <= ALL_FRAMES && first_time(&im->sites, site)) {
		im->nr_frames += nr;
		for (size_t i = 0; i < nr; i++) {
			put_text(im, texts[i], hashes[i]);
			put(im, time, DF_REC_SITE, site, i, 0, hashes[i]);
		}
	}
	return site;
}

static size_t all_frames(const struct df_pvalue *entries, size_t nr)
{
	size_t sum = 0;

	for (size_t i = 0; i < nr && sum < ALL_FRAMES; i++) {
		const struct df_pvalue *f = df_pickle_get(entries->items[i], "frames");

		sum += f && f->kind == DF_P_LIST ? f->nr : 0;
	}
	return sum < ALL_FRAMES ? sum : ALL_FRAMES;
}

static void entry(struct import *im, const struct df_pvalue *e, uint64_t serial)
{
	const struct df_pvalue *types;
	char name[64], op[96], type[32], state[16];
	uint64_t created = (uint64_t)df_pickle_int(df_pickle_get(e, "time_created_ns"), 1);
	uint64_t started =
		(uint64_t)df_pickle_int(df_pickle_get(e, "time_discovered_started_ns"), 0);
	uint64_t done =
		(uint64_t)df_pickle_int(df_pickle_get(e, "time_discovered_completed_ns"), 0);
	uint64_t in = elements(df_pickle_get(e, "input_sizes")),
		 out = elements(df_pickle_get(e, "output_sizes")), count, seq;
	int p2p = (int)df_pickle_int(df_pickle_get(e, "is_p2p"), 0), kind = -1, peer = -1, a, b,
	    dtype;
	const char *what;
	uint32_t g = 0, site;

	group_of(e, name, sizeof(name));
	while (g < im->nr_groups && strcmp(im->groups[g].name, name))
		g++;
	df_pickle_text(df_pickle_get(e, "profiling_name"), op, sizeof(op));
	what = strchr(op, ':') ? strchr(op, ':') + 1 : op;
	if (sscanf(what, "send %d->%d", &a, &b) == 2) {
		kind = DF_KIND_SEND;
		peer = b;
	} else if (sscanf(what, "recv %d<-%d", &a, &b) == 2) {
		kind = DF_KIND_RECV;
		peer = b;
	} else if (!strcmp(what, "coalesced")) {
		return; /* this entry only closes a group */
	} else {
		kind = df_kind_parse_fr(what);
	}
	if (g == im->nr_groups || im->groups[g].rank < 0 || kind < 0) {
		im->unknown++;
		return;
	}
	types = df_pickle_get(e, kind == DF_KIND_RECV ? "output_dtypes" : "input_dtypes");
	df_pickle_text(types && types->kind == DF_P_LIST && types->nr ? types->items[0] : NULL,
		       type, sizeof(type));
	dtype = df_dtype_parse_torch(type);
	df_pickle_text(df_pickle_get(e, "state"), state, sizeof(state));
	/*
	 * Backends without events of a GPU do not update the state, and retire entries that have
	 * ended.
	 */
	if (strncmp(op, "nccl:", 5) && df_pickle_int(df_pickle_get(e, "retired"), 0)) {
		im->retired += strcmp(state, "completed") != 0;
		snprintf(state, sizeof(state), "completed");
	}
	seq = (uint64_t)df_pickle_int(df_pickle_get(e, p2p ? "p2p_seq_id" : "collective_seq_id"),
				      1);
	count = kind == DF_KIND_RECV || kind == DF_KIND_REDUCESCATTER || kind == DF_KIND_SCATTER
			? out
			: in;
	if (kind == DF_KIND_ALLTOALL && im->groups[g].nranks)
		count = in / (uint64_t)im->groups[g].nranks;
	site = site_of(im, df_pickle_get(e, "frames"), created);
	/* The tensors of a barrier have no meaning. */
	if (!strcmp(what, "barrier"))
		count = 1;
	for (int i = 0; i < 3; i++) {
		static const enum df_rec_type recs[3] = {DF_REC_OP_ISSUE, DF_REC_OP_ARGS,
							 DF_REC_OP_MATCH};
		uint64_t args[3][3] = {
			{(uint64_t)kind | (uint64_t)(dtype < 0 ? 7 : dtype) << 8, count, g + 1},
			{0, 0, (uint64_t)((uint32_t)peer + 1)},
			{df_mix64((uint64_t)kind ^ count << 8), 0, seq ? seq - 1 : 0}};
		struct df_rec *r =
			put(im, created, recs[i], serial, args[i][0], args[i][1], args[i][2]);

		if (r) {
			r->comm = g + 1;
			r->rank = im->groups[g].rank;
			r->site = recs[i] == DF_REC_OP_ISSUE ? site : 0;
		}
	}
	im->nr_ops++;
	im->open += strcmp(state, "completed") != 0;
	if (created > im->last_ns)
		im->last_ns = created;
	if (done > im->last_ns)
		im->last_ns = done;
	if (strcmp(state, "scheduled")) {
		struct df_rec *r =
			put(im, started ? started : created, DF_REC_OP_START, serial, 0, 0, 0);

		if (r)
			r->comm = g + 1;
	}
	if (!strcmp(state, "completed")) {
		struct df_rec *r = put(im, done ? done : created, DF_REC_OP_DONE, serial, 0, 0, 0);

		if (r)
			r->comm = g + 1;
	}
}

static int convert(struct import *im, const struct df_pvalue *root, const char *sub,
		   const char *dir, const char *path)
{
	const struct df_pvalue *entries = df_pickle_get(root, "entries");
	size_t nr = entries && entries->kind == DF_P_LIST ? entries->nr : 0, bytes, ring = 64;
	char file[PATH_MAX];
	struct stat st;
	FILE *out;

	if (!df_pickle_get(root, "version"))
		return df_cli_input_error(sub, path, "not a Flight Recorder dump (no version)");
	im->cap = nr * 5 + 8 + all_frames(entries, nr);
	while (ring < im->cap)
		ring *= 2;
	bytes = 4096 + MAX_GROUPS * sizeof(struct df_trace_comm) + ring * sizeof(struct df_rec);
	im->h = calloc(1, bytes);
	if (!im->h)
		return df_cli_input_error(sub, path, "out of memory");
	*im->h = (struct df_trace_header){
		.magic = DF_TRACE_MAGIC,
		.version = DF_TRACE_VERSION,
		.header_bytes = 4096,
		.rec_bytes = sizeof(struct df_rec),
		.comm_bytes = sizeof(struct df_trace_comm),
		.nr_recs = ring,
		.nr_comms = MAX_GROUPS,
		.off_comms = 4096,
		.off_strings = 4096 + MAX_GROUPS * sizeof(struct df_trace_comm),
		.off_recs = 4096 + MAX_GROUPS * sizeof(struct df_trace_comm),
		.rank = im->rank,
		.rules = 1,
		/*
		 * As for operations that NCCL executes: ends and starts are only partly
		 * recorded.
		 */
		.mode = 1,
		.host = "imported"};
	groups(im, df_pickle_get(root, "pg_config"), nr ? entries->items[0] : NULL);
	for (size_t i = 0; i < nr; i++)
		entry(im, entries->items[i], i + 1);
	/*
	 * The dump was written when a time-out expired. The file's time shows how long after the
	 * last operation.
	 */
	if (!stat(path, &st) && im->open) {
		uint64_t now =
			(uint64_t)st.st_mtim.tv_sec * 1000000000u + (uint64_t)st.st_mtim.tv_nsec;

		if (now > im->last_ns)
			put(im, now, DF_REC_STALL, 0, (now - im->last_ns) / 1000000, im->open, 0);
	}
	im->h->off_strings = bytes;
	im->h->nr_string_bytes = im->h->strings_used = (uint32_t)im->string_bytes;
	snprintf(file, sizeof(file), "%s/rank%d.dft", dir, im->rank);
	out = fopen(file, "wb");
	if (!out || fwrite(im->h, 1, bytes, out) != bytes ||
	    fwrite(im->strings, 1, im->string_bytes, out) != im->string_bytes || fclose(out))
		return df_cli_input_error(sub, file, "%s", strerror(errno));
	if (im->unknown)
		fprintf(stderr,
			"dfshim %s: %s: %zu operations were left out: NCCL has no such kind, or "
			"the dump does not list their group\n",
			sub, path, im->unknown);
	if (im->retired)
		fprintf(stderr,
			"dfshim %s: %s: %zu operations count as ended, but may have failed: this "
			"backend records no difference\n",
			sub, path, im->retired);
	return 0;
}

/* Writes the same document as a pickle, so that one reader serves both formats. */
static void put_json(FILE *out, json_t *v)
{
	const char *key;
	json_t *item;
	size_t i;

	switch (json_typeof(v)) {
	case JSON_OBJECT:
		df_pickle_dict(out);
		json_object_foreach(v, key, item)
		{
			df_pickle_put_string(out, key);
			put_json(out, item);
		}
		df_pickle_dict_end(out);
		break;
	case JSON_ARRAY:
		df_pickle_list(out);
		json_array_foreach(v, i, item) put_json(out, item);
		df_pickle_list_end(out);
		break;
	case JSON_STRING:
		df_pickle_put_string(out, json_string_value(v));
		break;
	case JSON_INTEGER:
		df_pickle_put_int(out, json_integer_value(v));
		break;
	case JSON_REAL:
		df_pickle_put_float(out, json_real_value(v));
		break;
	case JSON_TRUE:
	case JSON_FALSE:
		df_pickle_put_bool(out, json_is_true(v));
		break;
	case JSON_NULL:
		df_pickle_put_none(out);
		break;
	}
}

/* Replaces the text by its pickle. Returns 0, -EPROTO with the reason in why, or -ENOMEM. */
static int json_to_pickle(char **data, size_t *bytes, char *why, size_t size)
{
	json_error_t err;
	json_t *root = json_loadb(*data, *bytes, 0, &err);
	char *text = NULL;
	size_t n = 0;
	FILE *out;

	if (!root) {
		snprintf(why, size, "line %d: %.120s", err.line, err.text);
		return -EPROTO;
	}
	out = open_memstream(&text, &n);
	if (out) {
		df_pickle_begin(out);
		put_json(out, root);
		df_pickle_end(out);
	}
	json_decref(root);
	if (!out || fclose(out))
		return -ENOMEM;
	free(*data);
	*data = text;
	*bytes = n;
	return 0;
}

static int looks_like_json(const char *data, size_t bytes)
{
	size_t i = 0;

	while (i < bytes && isspace((unsigned char)data[i]))
		i++;
	return i < bytes && data[i] == '{';
}

static int read_dump(struct df_pickle *p, char **data, size_t *bytes)
{
	int rc = looks_like_json(*data, *bytes)
			 ? json_to_pickle(data, bytes, p->error, sizeof(p->error))
			 : 0;

	return rc ? rc : df_pickle_read(p, *data, *bytes);
}

static int import(const char *sub, const char *dir, const char *path, int rank, size_t *nr_ops)
{
	struct import *im = calloc(1, sizeof(*im));
	struct df_pickle p;
	size_t bytes = 0;
	const char *why = strerror(ENOMEM);
	char *data = im ? read_file(path, &bytes, &why) : NULL;
	int rc;

	memset(&p, 0, sizeof(p));
	if (!data) {
		rc = df_cli_input_error(sub, path, "%s", why);
	} else if (rank < 0) {
		rc = df_cli_input_error(sub, path, "the name does not end with the rank");
	} else if (read_dump(&p, &data, &bytes)) {
		rc = df_cli_input_error(sub, path, "%s", *p.error ? p.error : strerror(ENOMEM));
	} else {
		im->rank = rank;
		rc = convert(im, p.root, sub, dir, path);
		*nr_ops += im->nr_ops;
	}
	df_pickle_free(&p);
	if (im) {
		forget(&im->texts);
		forget(&im->sites);
		free(im->strings);
		free(im->h);
	}
	free(im);
	free(data);
	return rc;
}

int df_fr_import(const char *sub, const char *dir, size_t nr, char *const *paths, size_t *nr_ops)
{
	int failed = 0;

	*nr_ops = 0;
	for (size_t i = 0; i < nr; i++) {
		int rank = df_cli_dump_rank(paths[i]);
		size_t k = 0;

		while (k < i && (rank < 0 || df_cli_dump_rank(paths[k]) != rank))
			k++;
		if (k < i)
			failed +=
				df_cli_input_error(sub, paths[i], "rank %d, as %s", rank, paths[k]);
		else
			failed += import(sub, dir, paths[i], rank, nr_ops) != 0;
	}
	return failed;
}
