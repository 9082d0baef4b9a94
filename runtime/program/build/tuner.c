/* The table of measured rows, its file, NCCL's variables. */
#define _GNU_SOURCE
#include <ctype.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/ascii.h"
#include "runtime/base/err.h"
#include "runtime/base/number.h"
#include "runtime/program/build/tuner.h"
#include "runtime/program/program_names.h"

int df_tuner_create(const struct df_cost *cost, struct df_tuner **out)
{
	struct df_tuner *t = calloc(1, sizeof(*t));

	if (!t)
		return -ENOMEM;
	t->cost = *cost;
	t->hash = df_hash_bytes(cost, sizeof(*cost), DF_TUNER_VERSION);
	*out = t;
	return 0;
}

void df_tuner_free(struct df_tuner *t)
{
	if (t)
		free(t->row);
	free(t);
}

int df_tuner_add(struct df_tuner *t, struct df_tune_row row)
{
	struct df_tune_row *more = realloc(t->row, (t->nr_rows + 1ull) * sizeof(*more));

	if (!more)
		return -ENOMEM;
	t->row = more;
	more[t->nr_rows++] = row;
	t->hash = df_hash_u64(t->hash, (uint64_t)row.kind << 32 | (uint32_t)row.nranks);
	t->hash = df_hash_u64(t->hash, (uint64_t)row.nodes);
	t->hash = df_hash_u64(t->hash, row.from_bytes);
	t->hash = df_hash_u64(t->hash, (uint64_t)row.algo << 32 | row.blocks);
	return 0;
}

/* ---- NCCL's variables -------------------------------------------------------------------- */

/* A name of NCCL's and our bit for it; 0: it has no meaning here. */
struct name {
	const char *text;
	uint32_t bit;
};

static const struct name nccl_algos[] = {
	{"ring", 1u << DF_ALGO_RING},
	{"tree", 1u << DF_ALGO_TREE},
	{"allpairs", 1u << DF_ALGO_ALLPAIRS},
	{"hier", 1u << DF_ALGO_HIER},
	{"collnetdirect", 0},
	{"collnetchain", 0},
	{"nvls", 0},
	{"nvlstree", 0},
	{"pat", 0},
	{"msccl", 0},
};
static const struct name nccl_protos[] = {
	{"simple", 1u << DF_PROTO_SIMPLE},
	{"ll", 1u << DF_PROTO_LL},
	{"ll128", 1u << DF_PROTO_LL128},
};
static const struct {
	const struct name *name;
	size_t nr;
	const char *allowed;
} vars[] = {
	[DF_NCCL_ALGO] =
		{nccl_algos, DF_ARRAY_LEN(nccl_algos),
		 "ring, tree, allpairs, hier (and collnetdirect, collnetchain, nvls, nvlstree, "
		 "pat, msccl, which mean nothing here) after an optional ^ and FUNCTION:"},
	[DF_NCCL_PROTO] = {nccl_protos, DF_ARRAY_LEN(nccl_protos),
			   "simple, ll, ll128 after an optional ^ and FUNCTION:"},
};

const char *df_tuner_env_allowed(enum df_nccl_var var)
{
	return vars[var].allowed;
}

/* Parses "Ring,Tree" or "^Tree", n characters. Fails with -EINVAL and *bad. */
static int parse_list(enum df_nccl_var var, const char *s, size_t n, uint32_t *mask, char *bad,
		      char *ignored, size_t size)
{
	int invert = n && *s == '^';
	const char *end = s + n;
	uint32_t all = 0;

	*mask = 0;
	for (size_t k = 0; k < vars[var].nr; k++)
		all |= vars[var].name[k].bit;
	s += invert;
	if (s == end)
		return snprintf(bad, size, "%.*s", (int)n + invert, s - invert), -EINVAL;
	while (s <= end) {
		const char *stop = memchr(s, ',', (size_t)(end - s));
		size_t len = (size_t)((stop ? stop : end) - s), k;
		const struct name *name = vars[var].name;

		for (k = 0; k < vars[var].nr; k++, name++) {
			if (strlen(name->text) == len && !df_strncasecmp(name->text, s, len))
				break;
		}
		if (k == vars[var].nr)
			return snprintf(bad, size, "%.*s", (int)len, s), -EINVAL;
		*mask |= name->bit;
		if (!name->bit)
			snprintf(ignored + strlen(ignored), size - strlen(ignored), "%s%s",
				 *ignored ? "," : "", name->text);
		s += len + 1;
	}
	if (invert)
		*mask = all & ~*mask;
	return 0;
}

int df_tuner_env(struct df_tuner *t, enum df_nccl_var var, const char *value, char *bad,
		 char *ignored, size_t size)
{
	uint32_t mask[DF_COLL_NR] = {0}, *to = var == DF_NCCL_ALGO ? t->algo_mask : t->proto_mask,
		 m;
	const char *s = value, *end = value + strlen(value);

	*bad = *ignored = 0;
	/*
	 * In "ring,tree;allreduce:tree" the list without a function is for all functions that have
	 * no list of their own.
	 */
	for (int own = 0; own < 2; own++) {
		for (s = value; s <= end; s++) {
			const char *stop = strchr(s, ';'), *colon;
			size_t len = (size_t)((stop ? stop : end) - s);
			char kind[32];
			int k = -1;

			colon = memchr(s, ':', len);
			if (colon) {
				snprintf(kind, sizeof(kind), "%.*s", (int)(colon - s), s);
				k = df_coll_kind_parse(kind);
				if (k < 0 || k >= DF_COLL_SEND)
					return snprintf(bad, size, "%s", kind), -EINVAL;
			}
			if ((colon != NULL) == own) {
				const char *list = colon ? colon + 1 : s;

				if (parse_list(var, list, len - (size_t)(list - s), &m, bad,
					       ignored, size))
					return -EINVAL;
				for (int i = 0; i < DF_COLL_NR; i++)
					if (k < 0 || k == i)
						mask[i] = m;
			}
			s += len;
		}
	}
	memcpy(to, mask, sizeof(mask));
	t->hash = df_hash_bytes(mask, sizeof(mask), t->hash + (uint64_t)var);
	return 0;
}

/* ---- the choice -------------------------------------------------------------------------- */

enum df_algo df_tuner_choose(const struct df_tuner *t, const struct df_cost *cost,
			     const struct df_prog_req *q, uint32_t *blocks, double *ns)
{
	const struct df_tune_row *best = NULL;
	uint32_t most = *blocks ? *blocks : 1, mask = t->algo_mask[q->kind], a;
	uint64_t s = df_coll_bytes(q);
	int nodes = q->nodes > 1 ? q->nodes : 1;

	cost = cost ? cost : &t->cost;
	/* A restriction that leaves no algorithm is ignored: the collective must be executed. */
	for (a = DF_ALGO_RING; a < DF_ALGO_NR; a++)
		if (mask >> a & 1 && df_algo_has(q, (enum df_algo)a))
			break;
	if (a == DF_ALGO_NR)
		mask = 0;
	for (uint32_t i = 0; i < t->nr_rows; i++) {
		const struct df_tune_row *r = &t->row[i];

		if (r->kind == (int)q->kind && r->nranks == q->nranks && r->nodes == nodes &&
		    r->from_bytes <= s &&
		    (!mask || r->algo == DF_ALGO_AUTO || mask >> r->algo & 1) &&
		    (r->algo == DF_ALGO_AUTO || df_algo_has(q, (enum df_algo)r->algo)) &&
		    (!best || r->from_bytes >= best->from_bytes))
			best = r;
	}
	if (!best || best->algo == DF_ALGO_AUTO)
		return df_cost_choose(cost, q, mask, blocks, ns);
	*blocks = best->blocks && best->blocks < most ? best->blocks : most;
	if (ns)
		*ns = df_cost_of(cost, q, (enum df_algo)best->algo, *blocks);
	return (enum df_algo)best->algo;
}

/* ---- the file ---------------------------------------------------------------------------- */

/* The fields of the line of costs, which is optional. */
static const struct {
	const char *name;
	size_t at;
} fields[] = {
#define FIELD(f)                                                                                   \
	{                                                                                          \
#f, offsetof(struct df_cost, f)                                                    \
	}
	FIELD(inst_ns),	 FIELD(byte_ns), FIELD(reduce_ns),   FIELD(hop_ns),	 FIELD(switch_ns),
	FIELD(block_ns), FIELD(far_ns),	 FIELD(far_inst_ns), FIELD(far_byte_ns), FIELD(cores),
#undef FIELD
};

int df_tuner_write(const struct df_tuner *t, FILE *f)
{
	DF_DECIMAL_POINT;

	fprintf(f, "dftune %d\n", DF_TUNER_VERSION);
	if (t->has_cost) {
		fprintf(f, "cost");
		for (unsigned i = 0; i < DF_ARRAY_LEN(fields); i++)
			fprintf(f, " %s %.17g", fields[i].name,
				*(const double *)((const char *)&t->cost + fields[i].at));
		fprintf(f, " tile_bytes %llu\n", (unsigned long long)t->cost.tile_bytes);
	}
	for (uint32_t i = 0; i < t->nr_rows; i++)
		fprintf(f, "%s ranks %d nodes %d from %llu use %s blocks %u\n",
			df_coll_kind_name((enum df_coll_kind)t->row[i].kind), t->row[i].nranks,
			t->row[i].nodes, (unsigned long long)t->row[i].from_bytes,
			df_algo_name((enum df_algo)t->row[i].algo), t->row[i].blocks);
	return ferror(f) ? -EIO : 0;
}

/*
 * Parses "cost NAME VALUE ...", all fields in this order. Returns 1 if the line is another one;
 * else as df_perr_set().
 */
static int parse_cost(struct df_tuner **t, const char *line, int nr, struct df_perr *err)
{
	struct df_cost c = df_cost_host;
	unsigned long long tile;
	int end = 0, rc;

	if (strncmp(line, "cost ", 5) != 0)
		return 1;
	line += 5;
	for (unsigned i = 0; i < DF_ARRAY_LEN(fields); i++) {
		size_t len = strlen(fields[i].name);
		char *stop;
		double v;

		if (strncmp(line, fields[i].name, len) || line[len] != ' ')
			return df_perr_set(err, nr, -1, -1, -1, "%s is missing in the costs",
					   fields[i].name);
		v = df_strtod(line + len, &stop);
		if (stop == line + len || !(v >= 0 && v < 1e12))
			return df_perr_set(err, nr, -1, -1, -1, "%s is not a cost", fields[i].name);
		*(double *)((char *)&c + fields[i].at) = v;
		for (line = stop; *line == ' '; line++)
			;
	}
	if (sscanf(line, "tile_bytes %llu %n", &tile, &end) != 1 || !end || line[end] || !tile)
		return df_perr_set(err, nr, -1, -1, -1, "tile_bytes is missing in the costs");
	if ((*t)->nr_rows || (*t)->has_cost)
		return df_perr_set(err, nr, -1, -1, -1,
				   "costs must be given once, before the rows");
	df_tuner_free(*t);
	*t = NULL;
	c.tile_bytes = tile;
	rc = df_tuner_create(&c, t);
	if (!rc)
		(*t)->has_cost = 1;
	return rc;
}

static int parse_line(struct df_tuner **t, const char *line, int nr, struct df_perr *err)
{
	char kind[32], algo[32];
	unsigned long long bytes;
	struct df_tune_row row;
	int end = 0, version, rc;

	while (isspace((unsigned char)*line))
		line++;
	if (!*line || *line == '#')
		return 0;
	if (!*t) {
		if (sscanf(line, "dftune %d %n", &version, &end) != 1 || line[end])
			return df_perr_set(err, nr, -1, -1, -1, "does not begin with \"dftune %d\"",
					   DF_TUNER_VERSION);
		if (version != DF_TUNER_VERSION)
			return df_perr_set(err, nr, -1, -1, -1, "version %d; this dfshim reads %d",
					   version, DF_TUNER_VERSION);
		return df_tuner_create(&df_cost_host, t);
	}
	rc = parse_cost(t, line, nr, err);
	if (rc <= 0)
		return rc;
	end = 0;
	if (sscanf(line, "%31s ranks %d nodes %d from %llu use %31s blocks %u %n", kind,
		   &row.nranks, &row.nodes, &bytes, algo, &row.blocks, &end) != 6 ||
	    !end || line[end])
		return df_perr_set(err, nr, -1, -1, -1, "is not a row: \"%.60s\"", line);
	row.kind = df_coll_kind_parse(kind);
	row.from_bytes = bytes;
	row.algo = df_algo_find_name(algo, strlen(algo));
	if (row.kind < 0 || row.algo < DF_ALGO_AUTO || row.nranks < 1 || row.nodes < 1)
		return df_perr_set(err, nr, -1, -1, -1, "unknown %s",
				   row.kind < 0	    ? kind
				   : row.nranks < 1 ? "number of ranks"
				   : row.nodes < 1  ? "number of nodes"
						    : algo);
	return df_tuner_add(*t, row);
}

int df_tuner_parse(const char *text, size_t size, struct df_tuner **out, struct df_perr *err)
{
	const char *end = text + size;
	struct df_tuner *t = NULL;
	char line[256];
	int rc = 0, nr = 0;

	while (!rc && text < end) {
		const char *nl = memchr(text, '\n', (size_t)(end - text));
		size_t n = (size_t)((nl ? nl : end) - text);

		nr++;
		if (n >= sizeof(line) || memchr(text, 0, n)) {
			rc = df_perr_set(err, nr, -1, -1, -1,
					 "line is too long or holds a zero byte");
			break;
		}
		memcpy(line, text, n);
		line[n] = 0;
		rc = parse_line(&t, line, nr, err);
		text = nl ? nl + 1 : end;
	}
	if (!rc && !t)
		rc = df_perr_set(err, nr, -1, -1, -1, "is empty");
	if (rc) {
		df_tuner_free(t);
		return rc;
	}
	*out = t;
	return 0;
}
