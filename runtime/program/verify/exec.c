/*
 * The reference executor. Every context is a slice counter, exactly as in the daemon; instance,
 * loop, instruction and both FIFO positions follow from it. df_exec_run() has one thread.
 * df_exec_run_threads() has one for each rank, and only it executes that rank's blocks.
 */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/err.h"
#include "runtime/base/rng.h"
#include "runtime/base/time.h"
#include "runtime/program/program_names.h"
#include "runtime/program/verify/exec.h"
#include "runtime/program/verify/wiring.h"

union elem {
	uint32_t u;
	float f;
};

struct run {
	struct df_exec *x;
	struct df_pgraph g;
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

/* Returns the elements of a chunk; *at: where it begins in its buffer. */
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

/*
 * Whether the step is a copy, or a sum without pre- or postprocessing: loops that the compiler can
 * vectorise.
 */
static int plain(const struct df_exec *x, const struct df_inst *in, const struct df_op_info *op)
{
	return (!op->reduces || x->redop == DF_SUM) &&
	       (!in->flags || (x->redop != DF_PREMULSUM && x->redop != DF_SUMPOSTDIV));
}

static int move_plain(const struct df_exec *x, const struct df_op_info *op, const union elem *src,
		      const union elem *got, union elem *dst, union elem *tx, int local, uint64_t n)
{
	const union elem *b = local ? dst : got;
	union elem *to = dst ? dst : tx;

	if (!n || !to)
		return !n;
	if (!op->reduces) {
		memmove(to, src ? src : got, n * sizeof(*to));
	} else if (x->type == DF_FLOAT32) {
		for (uint64_t i = 0; i < n; i++)
			to[i].f = src[i].f + b[i].f;
	} else {
		for (uint64_t i = 0; i < n; i++)
			to[i].u = src[i].u + b[i].u;
	}
	if (dst && tx)
		memcpy(tx, dst, n * sizeof(*tx));
	return 1;
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
		if (plain(r->x, in, op) &&
		    move_plain(r->x, op, src, got, dst, tx ? tx + c * r->tile : NULL,
			       in->op == DF_OP_REDUCE, n))
			continue;
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

/* Returns 1 if it moved, 0 if it must wait. */
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

		/* Blocks of one rank share a thread, so program order suffices. */
		if (r->k[o] <= serial * r->g.thread[o].nr_inst + dep->inst)
			return 0;
	}
	if (in->recv_conn != DF_NO_CONN) {
		uint64_t pos;

		rc = th->recv[in->recv_conn];
		pos = serial * r->g.conn[rc].per_loop + in->recv_ord;
		/*
		 * Pairs with the release of tail below: else old bytes of the slot could be read.
		 */
		if (__atomic_load_n(&r->tail[rc], __ATOMIC_ACQUIRE) <= pos)
			return 0;
		rx = r->slots[rc] + pos % r->x->slots * r->width[rc] * r->tile;
	}
	if (in->send_conn != DF_NO_CONN) {
		uint64_t pos;

		sc = th->send[in->send_conn];
		pos = serial * r->g.conn[sc].per_loop + in->send_ord;
		/*
		 * Pairs with the release of head below: else a slot could be filled while it is
		 * read.
		 */
		if (pos - __atomic_load_n(&r->head[sc], __ATOMIC_ACQUIRE) >= r->x->slots)
			return 0;
		tx = r->slots[sc] + pos % r->x->slots * r->width[sc] * r->tile;
	}
	move(r, th, in, inst, loop, rx, tx);
	/*
	 * Pairs with the sender's acquire of head: without it the slot could be filled before we
	 * have read it.
	 */
	if (rx)
		__atomic_store_n(&r->head[rc], r->head[rc] + 1, __ATOMIC_RELEASE);
	/*
	 * Pairs with the receiver's acquire of tail: without it the slot could be read before we
	 * have filled it.
	 */
	if (tx)
		__atomic_store_n(&r->tail[sc], r->tail[sc] + 1, __ATOMIC_RELEASE);
	r->k[t]++;
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
		/* Sometimes one to three instructions, sometimes as many as possible. */
		uint64_t burst =
			df_rng_below(&r->rng, 4) ? 1 + df_rng_below(&r->rng, 3) : UINT64_MAX;
		uint64_t moved = 0;

		while (moved < burst && r->k[t] < end && step(r, t))
			moved++;
		r->x->slices += moved;
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
		/* Nothing moved, perhaps by chance: one turn of each thread decides. */
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

/* ---- one thread per rank ----------------------------------------------------------------- */

struct worker {
	struct run *r;
	int rank;
	uint64_t slices, passes;
	int rc;
	pthread_t id;
};

/* If nothing moves anywhere for this long, the programs are stuck. */
#define STUCK_NS (2 * DF_NS_PER_S)

static void *work(void *arg)
{
	struct worker *w = arg;
	struct run *r = w->r;
	uint32_t first = r->g.first_thread[w->rank], end = r->g.first_thread[w->rank + 1], left = 0;
	uint64_t instances = r->x->instances ? r->x->instances : 1, idle_since = 0;

	for (uint32_t t = first; t < end; t++)
		left += r->g.thread[t].nr_inst > 0;
	while (left) {
		uint64_t moved = 0;

		for (uint32_t t = first; t < end; t++) {
			uint64_t last = (uint64_t)r->g.thread[t].nr_inst * r->loops * instances,
				 n = 0;

			if (r->k[t] == last)
				continue;
			while (r->k[t] < last && step(r, t))
				n++;
			moved += n;
			left -= r->k[t] == last;
		}
		w->slices += moved;
		w->passes++;
		if (moved) {
			idle_since = 0;
			continue;
		}
		sched_yield();
		if (!idle_since)
			idle_since = df_now_ns();
		else if (w->passes % 1024 == 0 && df_now_ns() - idle_since > STUCK_NS) {
			w->rc = -EDEADLK;
			return NULL;
		}
	}
	return NULL;
}

static int run_threads(struct run *r, struct df_perr *err)
{
	struct worker *w = calloc((size_t)r->x->nranks, sizeof(*w));
	int rc = 0, n;

	if (!w)
		return -ENOMEM;
	for (n = 0; n < r->x->nranks; n++) {
		w[n] = (struct worker){.r = r, .rank = n};
		rc = -pthread_create(&w[n].id, NULL, work, &w[n]);
		if (rc)
			break;
	}
	/* Threads that did start end by themselves if their peers are missing. */
	while (n-- > 0) {
		pthread_join(w[n].id, NULL);
		r->x->slices += w[n].slices;
		if (w[n].rc && !rc) {
			rc = w[n].rc;
			df_perr_set(err, -1, n, -1, -1, "deadlock with %u slots", r->x->slots);
		}
	}
	free(w);
	return rc;
}

static int run_with(struct df_exec *x, struct df_perr *err,
		    int (*drive)(struct run *r, struct df_perr *err))
{
	struct run r = {.x = x};
	int rc = df_pgraph_init(&r.g, x->progs, x->nranks, NULL, err);
	uint64_t chunks, begin;

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
	begin = df_now_ns();
	rc = drive(&r, err);
	x->ns = df_now_ns() - begin;
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
	df_pgraph_fini(&r.g);
	return rc;
}

int df_exec_run(struct df_exec *x, struct df_perr *err)
{
	return run_with(x, err, run_all);
}

int df_exec_run_threads(struct df_exec *x, struct df_perr *err)
{
	return run_with(x, err, run_threads);
}
