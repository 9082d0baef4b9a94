/*
 * The reference executor. One thread; every context is a slice counter, exactly as in the daemon: instance,
 * loop, instruction and both FIFO positions follow from it.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/err.h"
#include "runtime/base/rng.h"
#include "runtime/program/exec.h"
#include "runtime/program/graph.h"

union elem {
	uint32_t u;
	float f;
};

struct run {
	struct df_exec *x;
	struct df_graph g;
	struct df_rng rng;
	uint64_t chunk_elems, tile, loops;
	uint64_t *k; /* by thread */
	uint64_t *tail, *head;
	union elem **slots;   /* by connection: slots * max_cnt * tile */
	union elem **scratch; /* by rank */
	uint32_t *width;      /* by connection: chunks a slot holds */
};

static uint64_t min64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Elements of a chunk, and where it begins in its buffer. */
static uint64_t chunk_len(const struct run *r, const struct df_program *p, int buf, uint32_t chunk,
			  uint64_t *at)
{
	uint64_t start;

	if (buf == DF_BUF_SCRATCH) {
		*at = chunk * r->chunk_elems;
		return r->chunk_elems;
	}
	start = min64((uint64_t)(chunk % p->chunks) * r->chunk_elems, r->x->count);
	*at = (uint64_t)(chunk / p->chunks) * r->x->count + start;
	return min64(r->chunk_elems, r->x->count - start);
}

/* The piece of one chunk that this loop moves: *elems of it, maybe none. */
static union elem *piece(struct run *r, int rank, uint64_t inst, int buf, uint32_t chunk,
			 uint64_t loop, uint64_t *elems)
{
	const struct df_program *p = r->g.progs[rank];
	uint64_t at, len = chunk_len(r, p, buf, chunk, &at), off = min64(loop * r->tile, len);
	uint64_t ix = inst * (uint64_t)r->x->nranks + (uint64_t)rank;
	union elem *base = buf == DF_BUF_IN    ? r->x->in[ix]
			   : buf == DF_BUF_OUT ? r->x->out[ix]
					       : r->scratch[rank];

	*elems = min64(r->tile, len - off);
	return base + at + off;
}

static union elem apply(const struct df_exec *x, int rank, union elem a, union elem b,
			unsigned flags, int reduces)
{
	union elem v = a, arg = {.u = x->args ? (uint32_t)x->args[rank] : 0};
	int f = x->type == DF_FLOAT32;

	if (x->redop == DF_PREMULSUM) {
		if (flags & DF_INST_RAW_SRC) {
			if (f)
				a.f *= arg.f;
			else
				a.u *= arg.u;
		}
		if (flags & DF_INST_RAW_DST) {
			if (f)
				b.f *= arg.f;
			else
				b.u *= arg.u;
		}
		v = a;
	}
	if (reduces) {
		switch (x->redop) {
		case DF_PROD:
			if (f)
				v.f = a.f * b.f;
			else
				v.u = a.u * b.u;
			break;
		case DF_MAX:
			if (f)
				v.f = a.f > b.f ? a.f : b.f;
			else
				v.u = a.u > b.u ? a.u : b.u;
			break;
		case DF_MIN:
			if (f)
				v.f = a.f < b.f ? a.f : b.f;
			else
				v.u = a.u < b.u ? a.u : b.u;
			break;
		default:
			if (f)
				v.f = a.f + b.f;
			else
				v.u = a.u + b.u;
			break;
		}
	}
	if (x->redop == DF_SUMPOSTDIV && (flags & DF_INST_FINAL) && x->args)
		v.u /= (uint32_t)x->args[rank];
	return v;
}

static void move(struct run *r, const struct df_gthread *th, const struct df_inst *in,
		 uint64_t inst, uint64_t loop, const union elem *rx, union elem *tx)
{
	const struct df_op_info *op = &df_op_info[in->op];

	for (uint32_t c = 0; in->op != DF_OP_NOP && c < in->cnt; c++) {
		uint64_t n = r->tile, m;
		union elem *src = NULL, *dst = NULL;
		const union elem *got = rx ? rx + c * r->tile : NULL;

		if (op->reads) {
			src = piece(r, th->rank, inst, in->src_buf, in->src + c, loop, &m);
			n = min64(n, m);
		}
		if (op->writes) {
			dst = piece(r, th->rank, inst, in->dst_buf, in->dst + c, loop, &m);
			n = min64(n, m);
		}
		for (uint64_t i = 0; i < n; i++) {
			union elem a = src ? src[i] : got[i], b = {0}, v;

			if (in->op == DF_OP_REDUCE)
				b = dst[i];
			else if (op->reduces)
				b = got[i];
			v = apply(r->x, th->rank, a, b, in->flags, op->reduces);
			if (dst)
				dst[i] = v;
			if (tx)
				tx[c * r->tile + i] = v;
		}
	}
}

/* 1 moved, 0 must wait. */
static int step(struct run *r, uint32_t t)
{
	const struct df_gthread *th = &r->g.thread[t];
	const struct df_program *p = r->g.progs[th->rank];
	uint64_t k = r->k[t], per = (uint64_t)th->nr_inst * r->loops, inst = k / per;
	uint64_t loop = k % per / th->nr_inst, serial = inst * r->loops + loop;
	const struct df_inst *in = &th->inst[k % th->nr_inst];
	const union elem *rx = NULL;
	union elem *tx = NULL;
	uint32_t rc = 0, sc = 0;

	for (uint32_t d = 0; d < in->nr_deps; d++) {
		const struct df_dep *dep = df_prog_dep(p, in->first_dep + d);
		uint32_t o = r->g.first_thread[th->rank] + dep->block;

		if (r->k[o] <= serial * r->g.thread[o].nr_inst + dep->inst)
			return 0;
	}
	if (in->recv_conn != DF_NO_CONN) {
		uint64_t pos;

		rc = th->recv[in->recv_conn];
		pos = serial * r->g.conn[rc].per_loop + in->recv_ord;
		if (r->tail[rc] <= pos)
			return 0;
		rx = r->slots[rc] + pos % r->x->slots * r->width[rc] * r->tile;
	}
	if (in->send_conn != DF_NO_CONN) {
		uint64_t pos;

		sc = th->send[in->send_conn];
		pos = serial * r->g.conn[sc].per_loop + in->send_ord;
		if (pos - r->head[sc] >= r->x->slots)
			return 0;
		tx = r->slots[sc] + pos % r->x->slots * r->width[sc] * r->tile;
	}
	move(r, th, in, inst, loop, rx, tx);
	if (rx)
		r->head[rc]++;
	if (tx)
		r->tail[sc]++;
	r->k[t]++;
	r->x->slices++;
	return 1;
}

static int run_all(struct run *r, struct df_perr *err)
{
	uint32_t *live, nr = 0, idle = 0;
	uint64_t instances = r->x->instances ? r->x->instances : 1;

	live = malloc((r->g.nr_threads + 1ull) * sizeof(*live));
	if (!live)
		return -ENOMEM;
	for (uint32_t t = 0; t < r->g.nr_threads; t++) {
		if (r->g.thread[t].nr_inst)
			live[nr++] = t;
	}
	while (nr) {
		uint32_t i = (uint32_t)df_rng_below(&r->rng, nr), t = live[i];
		uint64_t end = (uint64_t)r->g.thread[t].nr_inst * r->loops * instances;
		/* Sometimes one instruction, sometimes as many as will go. */
		uint64_t burst =
			df_rng_below(&r->rng, 4) ? 1 + df_rng_below(&r->rng, 3) : UINT64_MAX;
		uint64_t moved = 0;

		while (moved < burst && r->k[t] < end && step(r, t))
			moved++;
		if (r->k[t] == end)
			live[i] = live[--nr];
		else
			r->x->preemptions++;
		if (moved) {
			idle = 0;
			continue;
		}
		if (++idle < 8 * nr + 64)
			continue;
		/* Unlucky, or stuck: one turn each decides. */
		for (i = 0; i < nr && !step(r, live[i]); i++)
			;
		if (i == nr) {
			const struct df_gthread *th = &r->g.thread[live[0]];

			df_perr_set(err, -1, th->rank, (int)th->block,
				    (int)(r->k[live[0]] % th->nr_inst),
				    "deadlock with %u slots (%u blocks wait)", r->x->slots, nr);
			free(live);
			return -EDEADLK;
		}
		if (r->k[live[i]] == (uint64_t)r->g.thread[live[i]].nr_inst * r->loops * instances)
			live[i] = live[--nr];
		idle = 0;
	}
	free(live);
	return 0;
}

int df_exec_run(struct df_exec *x, struct df_perr *err)
{
	struct run r = {.x = x};
	int rc = df_graph_init(&r.g, x->progs, x->nranks, NULL, err);
	uint64_t chunks;

	if (rc)
		return rc;
	rc = -EINVAL;
	if ((x->type != DF_UINT32 && x->type != DF_FLOAT32) || x->redop >= DF_NR_REDOPS ||
	    !x->slots)
		goto out;
	df_rng_init(&r.rng, x->seed);
	chunks = x->progs[0]->chunks;
	r.chunk_elems = (x->count + chunks - 1) / chunks;
	r.tile = x->tile_elems ? x->tile_elems : r.chunk_elems;
	r.tile = r.tile ? r.tile : 1;
	r.loops = r.chunk_elems ? (r.chunk_elems + r.tile - 1) / r.tile : 1;
	x->slices = x->preemptions = 0;
	r.k = calloc(r.g.nr_threads + 1ull, sizeof(*r.k));
	r.tail = calloc(r.g.nr_conns + 1ull, sizeof(*r.tail));
	r.head = calloc(r.g.nr_conns + 1ull, sizeof(*r.head));
	r.slots = calloc(r.g.nr_conns + 1ull, sizeof(*r.slots));
	r.width = calloc(r.g.nr_conns + 1ull, sizeof(*r.width));
	r.scratch = calloc((size_t)x->nranks, sizeof(*r.scratch));
	rc = -ENOMEM;
	if (!r.k || !r.tail || !r.head || !r.slots || !r.width || !r.scratch)
		goto out;
	for (uint32_t t = 0; t < r.g.nr_threads; t++) {
		const struct df_gthread *th = &r.g.thread[t];

		for (uint32_t i = 0; i < th->nr_inst; i++) {
			const struct df_inst *in = &th->inst[i];

			if (in->send_conn != DF_NO_CONN &&
			    r.width[th->send[in->send_conn]] < in->cnt)
				r.width[th->send[in->send_conn]] = in->cnt;
			if (in->recv_conn != DF_NO_CONN &&
			    r.width[th->recv[in->recv_conn]] < in->cnt)
				r.width[th->recv[in->recv_conn]] = in->cnt;
		}
	}
	for (uint32_t c = 0; c < r.g.nr_conns; c++) {
		r.slots[c] = calloc((size_t)x->slots * r.width[c] * r.tile + 1, sizeof(union elem));
		if (!r.slots[c])
			goto out;
	}
	for (int k = 0; k < x->nranks; k++) {
		r.scratch[k] =
			calloc(x->progs[k]->scratch_chunks * r.chunk_elems + 1, sizeof(union elem));
		if (!r.scratch[k])
			goto out;
	}
	rc = run_all(&r, err);
out:
	for (uint32_t c = 0; r.slots && c < r.g.nr_conns; c++)
		free(r.slots[c]);
	for (int k = 0; r.scratch && k < x->nranks; k++)
		free(r.scratch[k]);
	free(r.k);
	free(r.tail);
	free(r.head);
	free(r.slots);
	free(r.width);
	free(r.scratch);
	df_graph_fini(&r.g);
	return rc;
}
