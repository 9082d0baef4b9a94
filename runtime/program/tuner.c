/* The cost model, the table of measured rows, NCCL's variables. */
#define _GNU_SOURCE
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "runtime/base/err.h"
#include "runtime/program/tuner.h"

/* Measured with tests/bench/b_program.c and `dfshim algo bench`; only ratios matter for a choice. */
const struct df_cost df_cost_host = {.inst_ns = 120,
				     .byte_ns = 0.12,
				     .hop_ns = 4000,
				     .block_ns = 400,
				     .cores = 2,
				     .tile_bytes = 128 << 10};
/* One block of an H200 moves about 20 GB/s; a hop is a flag over NVLink. */
const struct df_cost df_cost_gpu = {.inst_ns = 350,
				    .byte_ns = 0.05,
				    .hop_ns = 1800,
				    .block_ns = 60,
				    .cores = 0,
				    .tile_bytes = 512 << 10};

int df_tuner_create(const struct df_cost *cost, struct df_tuner **out)
{
	struct df_tuner *t = calloc(1, sizeof(*t));

	if (!t)
		return -ENOMEM;
	t->cost = *cost;
	t->hash = DF_TUNER_VERSION;
	for (size_t i = 0; i < sizeof(*cost) / 8; i++) {
		uint64_t bits;

		memcpy(&bits, (const char *)cost + 8 * i, 8);
		t->hash = df_hash_u64(t->hash, bits);
	}
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
	t->hash = df_hash_u64(t->hash, row.from_bytes);
	t->hash = df_hash_u64(t->hash, (uint64_t)row.algo << 32 | row.blocks);
	return 0;
}

/* ---- NCCL's variables -------------------------------------------------------------------------------- */

/* One list such as "Ring,Tree" or "^Tree" into bits of `names`; unknown ones are appended to ignored. */
static uint32_t parse_list(const char *s, size_t n, const char *const *names, int nr, char *ignored,
			   size_t size)
{
	int invert = n && *s == '^';
	uint32_t mask = 0, all = (1u << nr) - 2; /* bit 0 is "auto" or "any" */
	const char *end = s + n;

	for (s += invert; s < end;) {
		const char *stop = memchr(s, ',', (size_t)(end - s));
		size_t len = (size_t)((stop ? stop : end) - s);
		int k;

		for (k = 1; k < nr; k++) {
			if (strlen(names[k]) == len && !strncasecmp(names[k], s, len))
				break;
		}
		if (k < nr)
			mask |= 1u << k;
		else if (ignored && size && len)
			snprintf(ignored + strlen(ignored), size - strlen(ignored), "%s%.*s",
				 *ignored ? "," : "", (int)len, s);
		s += len + 1;
	}
	return invert ? all & ~mask : mask;
}

void df_tuner_env(struct df_tuner *t, const char *nccl_algo, const char *nccl_proto, char *ignored,
		  size_t size)
{
	static const char *const protos[] = {"any", "Simple", "LL", "LL128"};
	const char *colon;

	if (ignored && size)
		*ignored = 0;
	if (nccl_algo) {
		/* "allreduce:tree;broadcast:ring": we keep one mask, that of AllReduce, or the general one. */
		const char *s = nccl_algo, *end;

		colon = strcasestr(s, "allreduce:");
		if (colon)
			s = colon + strlen("allreduce:");
		end = strchr(s, ';');
		if (colon || !strchr(s, ':'))
			t->algo_mask = parse_list(
				s, end ? (size_t)(end - s) : strlen(s),
				(const char *const[]){"auto", "ring", "tree", "allpairs", "hier"},
				DF_ALGO_NR, ignored, size);
	}
	if (nccl_proto && !strchr(nccl_proto, ':'))
		t->proto_mask = parse_list(nccl_proto, strlen(nccl_proto), protos, DF_PROTO_NR,
					   ignored, size);
	t->hash = df_hash_u64(t->hash, (uint64_t)t->algo_mask << 32 | t->proto_mask);
}

/* ---- the model --------------------------------------------------------------------------------------- */

static uint64_t total_bytes(const struct df_prog_req *q)
{
	uint64_t s = q->count * q->elem_bytes;

	return q->kind == DF_COLL_ALLGATHER || q->kind == DF_COLL_REDUCESCATTER ||
			       q->kind == DF_COLL_ALLTOALL || q->kind == DF_COLL_GATHER ||
			       q->kind == DF_COLL_SCATTER
		       ? s * (uint64_t)q->nranks
		       : s;
}

static double depth_of_tree(int n)
{
	double d = 0;

	for (; n > 1; n = (n - 1) / 2)
		d++;
	return d;
}

/* What one rank does, and how many peers in a row it waits for. */
struct work {
	double insts, bytes, hops;
};

static struct work work_of(const struct df_prog_req *q, enum df_algo algo)
{
	double n = q->nranks, s = (double)total_bytes(q), p = n - 1;
	int one_step = s * p <= 256 * 1024 || q->count < (uint64_t)q->nranks;

	switch (q->kind) {
	case DF_COLL_ALLREDUCE:
		if (algo == DF_ALGO_RING)
			return (struct work){2 * n - 1, 6 * s * p / n, 2 * p};
		if (algo == DF_ALGO_TREE)
			return (struct work){5, 10 * s, 2 * depth_of_tree(q->nranks)};
		return one_step ? (struct work){2 * p + 1, 5 * s * p, 1}
				: (struct work){4 * p, 9 * s * p / n, 2};
	case DF_COLL_BROADCAST:
	case DF_COLL_REDUCE:
		if (algo == DF_ALGO_RING)
			return (struct work){1, 3 * s, p};
		if (algo == DF_ALGO_TREE)
			return (struct work){2, 5 * s, depth_of_tree(q->nranks)};
		return (struct work){p + 1, 3 * s * p, 1};
	case DF_COLL_ALLGATHER:
	case DF_COLL_REDUCESCATTER:
		if (algo == DF_ALGO_RING)
			return (struct work){n + 1, 3.2 * s * p / n, p};
		return (struct work){2 * p + 1, 4.2 * s * p / n, 1};
	default:
		return (struct work){2 * p + 1, 4 * s, 1};
	}
}

double df_tuner_cost(const struct df_cost *c, const struct df_prog_req *q, enum df_algo algo,
		     uint32_t blocks)
{
	struct work w = work_of(q, algo);
	double b = blocks ? blocks : 1, tiles, busy, share;

	/* A piece of work that fits one slice runs once; longer ones repeat the instructions. */
	tiles = w.insts > 0 ? w.bytes / w.insts / b / (double)c->tile_bytes : 0;
	tiles = tiles < 1 ? 1 : tiles;
	/* Ranks that share cores do their work one after the other. */
	share = c->cores > 0 && q->nranks * b > c->cores ? q->nranks * b / c->cores : 1;
	busy = (w.insts * tiles * c->inst_ns + w.bytes / b * c->byte_ns) * share;
	return busy + w.hops * c->hop_ns + b * c->block_ns;
}

enum df_algo df_tuner_choose(const struct df_tuner *t, const struct df_prog_req *q,
			     uint32_t *blocks)
{
	const struct df_tune_row *best_row = NULL;
	uint64_t s = total_bytes(q);
	enum df_algo best = DF_ALGO_AUTO;
	uint32_t most = *blocks ? *blocks : 1, best_blocks = most;
	double least = 0;

	for (uint32_t i = 0; i < t->nr_rows; i++) {
		const struct df_tune_row *r = &t->row[i];

		if (r->kind == (int)q->kind && r->nranks == q->nranks && r->from_bytes <= s &&
		    (!t->algo_mask || t->algo_mask >> r->algo & 1) &&
		    (!best_row || r->from_bytes >= best_row->from_bytes))
			best_row = r;
	}
	if (best_row) {
		*blocks = best_row->blocks && best_row->blocks < most ? best_row->blocks : most;
		return (enum df_algo)best_row->algo;
	}
	if (q->kind > DF_COLL_REDUCESCATTER)
		return DF_ALGO_AUTO;
	for (int a = DF_ALGO_RING; a < DF_ALGO_NR; a++) {
		if (t->algo_mask && !(t->algo_mask >> a & 1))
			continue;
		if (!df_algo_has(q, (enum df_algo)a))
			continue;
		for (uint32_t b = 1; b <= most; b *= 2) {
			double cost = df_tuner_cost(&t->cost, q, (enum df_algo)a, b);

			if (best == DF_ALGO_AUTO || cost < least) {
				best = (enum df_algo)a;
				best_blocks = b;
				least = cost;
			}
		}
	}
	*blocks = best_blocks;
	return best;
}

/* ---- the file ---------------------------------------------------------------------------------------- */

int df_tuner_write(const struct df_tuner *t, FILE *f)
{
	const struct df_cost *c = &t->cost;

	fprintf(f, "dftune %d\n", DF_TUNER_VERSION);
	fprintf(f,
		"cost inst_ns %.17g byte_ns %.17g hop_ns %.17g block_ns %.17g cores %.17g tile_bytes %llu\n",
		c->inst_ns, c->byte_ns, c->hop_ns, c->block_ns, c->cores,
		(unsigned long long)c->tile_bytes);
	for (uint32_t i = 0; i < t->nr_rows; i++)
		fprintf(f, "%s ranks %d from %llu use %s blocks %u\n",
			df_coll_kind_name((enum df_coll_kind)t->row[i].kind), t->row[i].nranks,
			(unsigned long long)t->row[i].from_bytes,
			df_algo_name((enum df_algo)t->row[i].algo), t->row[i].blocks);
	return ferror(f) ? -EIO : 0;
}

static int parse_line(struct df_tuner **t, const char *line, int nr, struct df_perr *err)
{
	char kind[32], algo[32];
	unsigned long long bytes;
	struct df_tune_row row;
	struct df_cost c;
	int end = 0, version;

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
	if (sscanf(line,
		   "cost inst_ns %lf byte_ns %lf hop_ns %lf block_ns %lf cores %lf tile_bytes %llu %n",
		   &c.inst_ns, &c.byte_ns, &c.hop_ns, &c.block_ns, &c.cores, &bytes, &end) == 6 &&
	    end && !line[end]) {
		if (!(c.inst_ns >= 0 && c.byte_ns >= 0 && c.hop_ns >= 0 && c.block_ns >= 0 &&
		      c.cores >= 0 && bytes))
			return df_perr_set(err, nr, -1, -1, -1, "a cost is negative");
		if ((*t)->nr_rows)
			return df_perr_set(err, nr, -1, -1, -1, "costs come before the rows");
		df_tuner_free(*t);
		*t = NULL;
		c.tile_bytes = bytes;
		return df_tuner_create(&c, t);
	}
	end = 0;
	if (sscanf(line, "%31s ranks %d from %llu use %31s blocks %u %n", kind, &row.nranks, &bytes,
		   algo, &row.blocks, &end) != 5 ||
	    !end || line[end])
		return df_perr_set(err, nr, -1, -1, -1, "is no row: \"%.60s\"", line);
	row.kind = df_coll_kind_parse(kind);
	row.from_bytes = bytes;
	row.algo = df_algo_find_name(algo, strlen(algo));
	if (row.kind < 0 || row.algo < 0 || row.nranks < 1)
		return df_perr_set(err, nr, -1, -1, -1, "unknown %s",
				   row.kind < 0	    ? kind
				   : row.nranks < 1 ? "number of ranks"
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
