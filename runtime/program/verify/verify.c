/*
 * The promises of the collectives, and the runs that prove them: out of place, in place, two
 * instances back to back; then the slots. vsim.c executes. Pure functions, no state.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/err.h"
#include "runtime/base/vec.h"
#include "runtime/program/program_names.h"
#include "runtime/program/verify/vsim.h"

/* ---- postcondition ----------------------------------------------------------------------- */

/*
 * Compares one output chunk with the set that it must hold. *same: the expression that all ranks
 * have in common.
 */
static int check_chunk(struct df_vsim *s, int rank, uint32_t chunk, uint32_t want)
{
	const struct df_vloc *l = df_vsim_locate(s, rank, DF_BUF_OUT, chunk, 0);
	uint32_t have = l->v.expr ? s->sym->expr[l->v.expr].set : 0, t = l->w_thread;
	char a[80], b[80], text[240];

	if (have == want && (l->v.final || !df_coll_reduces(s->in->kind)))
		return 0;
	df_sym_str(s->sym, have, a, sizeof(a));
	df_sym_str(s->sym, want, b, sizeof(b));
	snprintf(text, sizeof(text), "output chunk %u ends as %s, must be %s", chunk, a,
		 have == want ? "finished" : b);
	if (!l->w_epoch)
		return df_perr_set(s->err, df_rank_line(s->in->plan, rank), rank, -1, -1,
				   "%s; nothing writes it", text);
	return df_vsim_fail(s, t, (l->w_epoch - 1) % s->g->thread[t].nr_inst, text);
}

static int check_post(struct df_vsim *s)
{
	const struct df_verify_in *in = s->in;
	uint32_t n = (uint32_t)in->nranks, k = s->g->progs[0]->chunks, nr;
	uint64_t *e;
	int rc = 0;

	s->out->has_post = 1;
	if (in->kind == DF_COLL_CUSTOM) {
		s->out->has_post = in->expect != NULL;
		for (uint32_t i = 0; in->expect && i < in->expect->nr; i++) {
			const struct df_expect *x = &in->expect->e[i];
			uint32_t set;

			if (x->rank < 0 || x->rank >= in->nranks ||
			    x->chunk >= s->g->progs[x->rank]->out_chunks)
				return df_perr_set(s->err, -1, x->rank, -1, -1,
						   "expects output chunk %u, which does not exist",
						   x->chunk);
			e = malloc((x->nr + 1ull) * sizeof(*e));
			if (!e)
				return -ENOMEM;
			for (uint32_t j = 0; j < x->nr; j++)
				e[j] = (uint64_t)(uint32_t)in->expect->c[x->first + j].rank << 32 |
				       in->expect->c[x->first + j].chunk;
			set = df_sym_want(s->sym, e, x->nr);
			free(e);
			rc = s->sym->err ? s->sym->err : check_chunk(s, x->rank, x->chunk, set);
			if (rc)
				return rc;
		}
		return 0;
	}
	e = malloc((n + 1ull) * sizeof(*e));
	if (!e)
		return -ENOMEM;
	for (int r = 0; !rc && r < in->nranks; r++) {
		uint32_t outs = df_coll_chunks(in->kind, in->nranks, in->root, r, k, 1);

		if (s->g->progs[r]->out_chunks < outs ||
		    s->g->progs[r]->in_chunks <
			    df_coll_chunks(in->kind, in->nranks, in->root, r, k, 0)) {
			rc = df_perr_set(
				s->err, -1, r, -1, -1,
				"divides its buffers into %u and %u chunks, %s needs %u and %u",
				s->g->progs[r]->in_chunks, s->g->progs[r]->out_chunks,
				df_coll_kind_name(in->kind),
				df_coll_chunks(in->kind, in->nranks, in->root, r, k, 0), outs);
			break;
		}
		for (uint32_t c = 0; !rc && c < outs; c++) {
			uint32_t part = c % k, cell = c / k, own = (uint32_t)r * k;

			nr = 1;
			switch (in->kind) {
			case DF_COLL_BROADCAST:
				e[0] = (uint64_t)(uint32_t)in->root << 32 | c;
				break;
			case DF_COLL_SCATTER:
				e[0] = (uint64_t)(uint32_t)in->root << 32 | (own + c);
				break;
			case DF_COLL_ALLGATHER:
			case DF_COLL_GATHER:
				e[0] = (uint64_t)cell << 32 | part;
				break;
			case DF_COLL_ALLTOALL:
				e[0] = (uint64_t)cell << 32 | (own + part);
				break;
			case DF_COLL_SENDRECV_SELF:
				e[0] = (uint64_t)(uint32_t)r << 32 | c;
				break;
			default:
				for (nr = 0; nr < n; nr++)
					e[nr] = (uint64_t)nr << 32 |
						(in->kind == DF_COLL_REDUCESCATTER ? own + c : c);
				break;
			}
			nr = df_sym_want(s->sym, e, nr);
			rc = s->sym->err ? s->sym->err : check_chunk(s, r, c, nr);
			if (!rc && in->kind == DF_COLL_ALLREDUCE &&
			    df_vsim_locate(s, r, DF_BUF_OUT, c, 0)->v.expr !=
				    df_vsim_locate(s, 0, DF_BUF_OUT, c, 0)->v.expr)
				s->out->same_order = 0;
		}
	}
	free(e);
	return rc;
}

static int has_alias(enum df_coll_kind k)
{
	return k <= DF_COLL_REDUCESCATTER || k == DF_COLL_GATHER || k == DF_COLL_SCATTER;
}

int df_verify(const struct df_verify_in *in, struct df_verify_out *out)
{
	struct df_pgraph g;
	struct df_sym sym;
	struct df_vsim a = {
		.in = in, .g = &g, .sym = &sym, .out = out, .err = &out->err, .rounds = 1};
	struct df_vsim b = a;
	int64_t slots;
	int rc;

	memset(out, 0, sizeof(*out));
	df_perr_clear(&out->err);
	df_perr_clear(&out->note);
	out->same_order = 1;
	rc = df_pgraph_init(&g, in->progs, in->nranks, in->plan, &out->err);
	if (rc)
		return rc;
	rc = df_sym_init(&sym, (uint32_t)in->nranks, g.progs[0]->chunks);
	if (rc)
		goto err_graph;
	a.set_flags = in->set_flags;
	rc = df_vsim_run(&a);
	if (!rc)
		rc = check_post(&a);
	if (rc)
		goto err_sim;
	out->out_of_place = 1;
	if (has_alias(in->kind)) {
		int whole = out->whole_chunks, same = out->same_order, post = out->has_post;

		b.err = &out->note;
		b.alias = 1;
		rc = df_vsim_run(&b);
		if (!rc)
			rc = check_post(&b);
		if (!rc && memcmp(a.trace, b.trace, a.nr_steps * sizeof(*a.trace)))
			rc = df_perr_set(b.err, -1, -1, -1, -1,
					 "moves other values in place than out of place");
		out->in_place = !rc;
		out->whole_chunks = whole;
		out->same_order = same;
		out->has_post = post;
		df_vsim_fini(&b);
		if (rc && rc != -EPROTO)
			goto err_sim;
		b = (struct df_vsim){.in = in, .g = &g, .sym = &sym, .out = out, .rounds = 1};
	}
	b.rounds = 2;
	b.alias = 0;
	b.err = out->note.text[0] ? NULL : &out->note;
	rc = df_vsim_run(&b);
	out->back_to_back = !rc;
	df_vsim_fini(&b);
	if (rc && rc != -EPROTO)
		goto err_sim;
	rc = 0;
	slots = df_flow_min_slots(in->progs, in->nranks, 0);
	if (slots <= 0) {
		rc = slots < 0
			     ? (int)slots
			     : df_perr_set(&out->err, -1, -1, -1, -1,
					   "deadlocks by itself with up to %d slots", DF_MAX_SLOTS);
		goto err_sim;
	}
	out->min_slots = (uint32_t)slots;
	for (int r = 0; r < in->nranks; r++) {
		if (in->set_flags)
			in->progs[r]->min_slots = (uint32_t)slots;
		else if (in->progs[r]->min_slots && in->progs[r]->min_slots != slots)
			rc = df_perr_set(&out->err, -1, r, -1, -1,
					 "says it needs %u slots, but needs %u",
					 in->progs[r]->min_slots, (uint32_t)slots);
	}
err_sim:
	df_vsim_fini(&a);
	df_sym_fini(&sym);
err_graph:
	df_pgraph_fini(&g);
	return rc;
}

/* ---- expectations ------------------------------------------------------------------------ */

int df_expects_add(struct df_expects *x, int rank, uint32_t chunk, int from, uint32_t from_chunk)
{
	struct df_expect *e = x->nr ? &x->e[x->nr - 1] : NULL;

	if (DF_VEC_ROOM(x->c, x->cap_c, x->nr_c + 1ull))
		return -ENOMEM;
	if (!e || e->rank != rank || e->chunk != chunk) {
		e = DF_VEC_PUSH(x->e, x->nr, x->cap);
		if (!e)
			return -ENOMEM;
		*e = (struct df_expect){rank, chunk, x->nr_c, 0};
	}
	x->c[x->nr_c++] = (struct df_contrib){from, from_chunk};
	e->nr++;
	return 0;
}

void df_expects_fini(struct df_expects *x)
{
	free(x->e);
	free(x->c);
	memset(x, 0, sizeof(*x));
}
