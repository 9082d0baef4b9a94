/*
 * Runs the reference executor with random data, and computes the collectives by definition.
 * Integers are compared exactly; floats with a double sum, and bit for bit between the ranks of an
 * AllReduce.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/err.h"
#include "runtime/base/rng.h"
#include "runtime/program/program_names.h"
#include "runtime/program/verify/exec.h"

struct chk {
	struct df_exec_check *c;
	uint32_t chunks;
	uint64_t in_elems, out_elems; /* room for any rank */
	uint32_t **orig;	      /* by instance * nranks + rank: copy of the input */
	uint32_t **in, **out;
	uint64_t *args;
};

static float as_float(uint32_t u)
{
	float f;

	memcpy(&f, &u, sizeof(f));
	return f;
}

static uint32_t as_bits(float f)
{
	uint32_t u;

	memcpy(&u, &f, sizeof(u));
	return u;
}

static uint64_t cells(uint32_t chunks_of_buffer, uint32_t chunks)
{
	return (chunks_of_buffer + chunks - 1) / chunks;
}

/*
 * Finds the inputs of output element e of a rank: fills rank/element pairs, returns their number.
 */
static uint32_t sources(const struct chk *k, int rank, uint64_t e, int *from, uint64_t *at)
{
	const struct df_exec_check *c = k->c;
	uint64_t cell = e / c->count, off = e % c->count;
	uint32_t n = (uint32_t)c->nranks;
	int all = 0;

	from[0] = rank;
	at[0] = e;
	switch (c->kind) {
	case DF_COLL_ALLREDUCE:
	case DF_COLL_REDUCE:
	case DF_COLL_REDUCESCATTER:
		all = 1;
		break;
	case DF_COLL_BROADCAST:
		from[0] = c->root;
		break;
	case DF_COLL_SCATTER:
		from[0] = c->root;
		at[0] = (uint64_t)rank * c->count + e;
		break;
	case DF_COLL_ALLGATHER:
	case DF_COLL_GATHER:
		from[0] = (int)cell;
		at[0] = off;
		break;
	case DF_COLL_ALLTOALL:
		from[0] = (int)cell;
		at[0] = (uint64_t)rank * c->count + off;
		break;
	default:
		break;
	}
	if (!all)
		return 1;
	for (uint32_t r = 0; r < n; r++) {
		from[r] = (int)r;
		at[r] = c->kind == DF_COLL_REDUCESCATTER ? (uint64_t)rank * c->count + e : e;
	}
	return n;
}

static int wrong(const struct chk *k, struct df_perr *err, uint32_t inst, int rank, uint64_t e,
		 uint32_t have, double want)
{
	if (k->c->type == DF_FLOAT32)
		df_perr_set(err, -1, rank, -1, -1,
			    "instance %u output element %llu is %g, must be %g", inst,
			    (unsigned long long)e, (double)as_float(have), want);
	else
		df_perr_set(err, -1, rank, -1, -1,
			    "instance %u output element %llu is %u, must be %u", inst,
			    (unsigned long long)e, have, (uint32_t)(int64_t)want);
	return -EILSEQ;
}

static int check_elem(const struct chk *k, struct df_perr *err, uint32_t inst, int rank, uint64_t e,
		      const int *from, const uint64_t *at, uint32_t nr)
{
	const struct df_exec_check *c = k->c;
	uint32_t **orig = k->orig + (size_t)inst * (size_t)c->nranks;
	uint32_t have = k->out[(size_t)inst * (size_t)c->nranks + (size_t)rank][e], u = 0;
	double d = 0, mag = 0;

	for (uint32_t i = 0; i < nr; i++) {
		uint32_t v = orig[from[i]][at[i]];
		double f = (double)as_float(v);

		if (c->redop == DF_PREMULSUM && df_coll_reduces(c->kind)) {
			v *= (uint32_t)k->args[from[i]];
			f = (double)(as_float(orig[from[i]][at[i]]) *
				     as_float((uint32_t)k->args[from[i]]));
		}
		if (!i) {
			u = v;
			d = f;
		} else if (c->redop == DF_PROD) {
			u *= v;
			d *= f;
		} else if (c->redop == DF_MAX) {
			u = u > v ? u : v;
			d = d > f ? d : f;
		} else if (c->redop == DF_MIN) {
			u = u < v ? u : v;
			d = d < f ? d : f;
		} else {
			u += v;
			d += f;
		}
		mag = fabs(d) > mag ? fabs(d) : mag;
	}
	if (c->redop == DF_SUMPOSTDIV && df_coll_reduces(c->kind))
		u /= (uint32_t)k->args[rank];
	if (c->type != DF_FLOAT32)
		return have == u ? 0 : wrong(k, err, inst, rank, e, have, u);
	if (!(fabs((double)as_float(have) - d) <= 1e-6 * nr * (mag + 1)))
		return wrong(k, err, inst, rank, e, have, d);
	return 0;
}

static int check_custom(const struct chk *k, struct df_perr *err, uint32_t inst)
{
	const struct df_exec_check *c = k->c;
	const struct df_expects *x = c->expect;
	uint64_t ce = (c->count + k->chunks - 1) / k->chunks;
	int from[64];
	uint64_t at[64];

	for (uint32_t i = 0; x && i < x->nr; i++) {
		const struct df_expect *w = &x->e[i];
		uint64_t lo = w->chunk % k->chunks * ce, first = w->chunk / k->chunks * c->count;

		for (uint64_t e = lo; w->nr <= 64 && e < lo + ce && e < c->count; e++) {
			int rc;

			for (uint32_t j = 0; j < w->nr; j++) {
				const struct df_contrib *o = &x->c[w->first + j];

				from[j] = o->rank;
				at[j] = o->chunk / k->chunks * c->count +
					o->chunk % k->chunks * ce + e - lo;
			}
			rc = check_elem(k, err, inst, w->rank, first + e, from, at, w->nr);
			if (rc)
				return rc;
		}
	}
	return 0;
}

static int check_results(const struct chk *k, struct df_perr *err, uint32_t inst)
{
	const struct df_exec_check *c = k->c;
	int *from = calloc((size_t)c->nranks, sizeof(*from)), rc = 0;
	uint64_t *at = calloc((size_t)c->nranks, sizeof(*at));

	if (!from || !at)
		rc = -ENOMEM;
	for (int r = 0; !rc && r < c->nranks; r++) {
		uint64_t outs = c->count * df_coll_chunks(c->kind, c->nranks, c->root, r, 1, 1);

		for (uint64_t e = 0; !rc && e < outs; e++) {
			uint32_t nr = sources(k, r, e, from, at);

			rc = check_elem(k, err, inst, r, e, from, at, nr);
			if (!rc && c->kind == DF_COLL_ALLREDUCE &&
			    k->out[(size_t)inst * (size_t)c->nranks + (size_t)r][e] !=
				    k->out[(size_t)inst * (size_t)c->nranks][e]) {
				df_perr_set(err, -1, r, -1, -1,
					    "element %llu differs bitwise from rank 0's",
					    (unsigned long long)e);
				rc = -EILSEQ;
			}
		}
	}
	free(from);
	free(at);
	return rc;
}

/* Allocates a rank's memory for an instance: in place if requested and defined. */
static int setup(struct chk *k, struct df_rng *rng, uint32_t inst, int rank)
{
	struct df_exec_check *c = k->c;
	size_t ix = (size_t)inst * (size_t)c->nranks + (size_t)rank;
	uint32_t in_cells = df_coll_chunks(c->kind, c->nranks, c->root, rank, 1, 0);
	int64_t alias = -1, back = -1;
	uint64_t total = k->in_elems + k->out_elems + 1;
	uint32_t *mem = calloc(total, sizeof(*mem)), *orig = calloc(k->in_elems + 1, sizeof(*orig));

	k->in[ix] = mem;
	k->orig[ix] = orig;
	if (!mem || !orig)
		return -ENOMEM;
	k->out[ix] = mem + k->in_elems;
	if (rank < 64 && (c->in_place >> rank & 1)) {
		/*
		 * In units of cells: output cell 0 is at input cell `alias`, or input cell 0 at
		 * output cell `back`.
		 */
		alias = df_coll_alias(c->kind, c->root, rank, 1, 0);
		if (alias < 0 && df_coll_alias(c->kind, c->root, rank, 1, (uint32_t)rank) == 0)
			back = rank;
		if (c->kind == DF_COLL_ALLGATHER || c->kind == DF_COLL_GATHER) {
			alias = -1;
			back = c->kind == DF_COLL_GATHER && rank != c->root ? -1 : rank;
		}
	}
	if (alias >= 0)
		k->out[ix] = mem + (uint64_t)alias * c->count;
	if (back >= 0) {
		/*
		 * The allocation begins with IN. Make it begin with OUT, and keep the pointer to
		 * free.
		 */
		k->out[ix] = mem;
		k->in[ix] = mem + (uint64_t)back * c->count;
	}
	for (uint64_t e = 0; e < k->in_elems && in_cells; e++) {
		uint32_t v = (uint32_t)df_rng_u64(rng);

		if (c->type == DF_FLOAT32)
			v = as_bits((float)((int32_t)v % 1000) / 7.0f + 1e-3f);
		if (e < (uint64_t)in_cells * c->count || c->kind == DF_COLL_CUSTOM)
			orig[e] = k->in[ix][e] = v;
	}
	return 0;
}

int df_exec_check(struct df_exec_check *c, struct df_perr *err)
{
	uint32_t instances = c->instances ? c->instances : 1;
	size_t nr = (size_t)instances * (size_t)c->nranks;
	struct chk k = {.c = c, .chunks = c->progs[0]->chunks};
	void **base = calloc(nr, sizeof(*base));
	struct df_exec x;
	struct df_rng rng;
	int rc = -ENOMEM;

	df_rng_init(&rng, c->seed ^ 0xdada);
	for (int r = 0; r < c->nranks; r++) {
		uint64_t in = c->count * cells(c->progs[r]->in_chunks, k.chunks);
		uint64_t out = c->count * cells(c->progs[r]->out_chunks, k.chunks);

		k.in_elems = in > k.in_elems ? in : k.in_elems;
		k.out_elems = out > k.out_elems ? out : k.out_elems;
	}
	k.in = calloc(nr, sizeof(*k.in));
	k.out = calloc(nr, sizeof(*k.out));
	k.orig = calloc(nr, sizeof(*k.orig));
	k.args = calloc((size_t)c->nranks, sizeof(*k.args));
	if (!base || !k.in || !k.out || !k.orig || !k.args)
		goto out;
	for (int r = 0; r < c->nranks; r++)
		k.args[r] = c->redop == DF_SUMPOSTDIV ? (uint64_t)c->nranks
			    : c->type == DF_FLOAT32   ? as_bits(0.5f + (float)r)
						      : (uint64_t)r + 3;
	for (uint32_t i = 0; i < instances; i++) {
		for (int r = 0; r < c->nranks; r++) {
			size_t ix = (size_t)i * (size_t)c->nranks + (size_t)r;

			rc = setup(&k, &rng, i, r);
			base[ix] = k.out[ix] && k.out[ix] < k.in[ix] ? k.out[ix] : k.in[ix];
			if (rc)
				goto out;
		}
	}
	x = (struct df_exec){.progs = c->progs,
			     .nranks = c->nranks,
			     .count = c->count,
			     .tile_elems = c->tile_elems,
			     .type = c->type,
			     .redop = c->redop,
			     .args = k.args,
			     .slots = c->slots,
			     .instances = instances,
			     .seed = c->seed,
			     .in = (void **)k.in,
			     .out = (void **)k.out};
	rc = c->threads ? df_exec_run_threads(&x, err) : df_exec_run(&x, err);
	c->ns = x.ns;
	c->slices = x.slices;
	c->preemptions = x.preemptions;
	c->bytes = (k.in_elems > k.out_elems ? k.in_elems : k.out_elems) * 4;
	for (uint32_t i = 0; !rc && i < instances; i++)
		rc = c->kind == DF_COLL_CUSTOM ? check_custom(&k, err, i)
					       : check_results(&k, err, i);
out:
	for (size_t i = 0; base && i < nr; i++) {
		free(base[i]);
		if (k.orig)
			free(k.orig[i]);
	}
	free(base);
	free(k.in);
	free(k.out);
	free(k.orig);
	free(k.args);
	return rc;
}
