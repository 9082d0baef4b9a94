/*
 * The world of t_daemon.c and similar tests: ranks, their collectives with programs, connectors and
 * inputs, and the expected results.
 */
#ifndef DF_TESTS_KERNELS_WORLD_H
#define DF_TESTS_KERNELS_WORLD_H

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/abi.h"
#include "kernels/slot.h"
#include "kernels/daemon.h"
#include "runtime/base/rng.h"
#include "runtime/program/plan.h"
#include "runtime/program/program_names.h"
#include "runtime/program/proto.h"

#define MAX_RANKS 9
#define MAX_COLLS 6
#define MAX_INST  8
#define SWEEP	  (1ull << 20) /* in laps; as in kernels/words.inl */
#ifndef LINE_WORDS
#define LINE_WORDS 8 /* DFK_LINE of the machine on which the daemon runs */
#endif

struct rank_coll {
	struct df_kcoll k;
	struct df_program *prog;
	struct df_kconn *conns;
	struct df_kinst inst[MAX_INST];
	uint64_t done, past;
	uint64_t ready[MAX_INST]; /* whether each instance's input is there */
	struct df_kgate *
		/* Not NULL: the instances are replays of a graph, one after the other. */
		gate;
	int32_t *in[MAX_INST], *out[MAX_INST];
	void *mem[MAX_INST]; /* the allocation that contains both */
	uint64_t in_elems, out_elems;
};

struct world {
	int n, nc, ni, nb;
	struct df_kdaemon d[MAX_RANKS];
	struct df_kblock *blk[MAX_RANKS];
	struct rank_coll rc[MAX_COLLS][MAX_RANKS];
	enum df_coll_kind kind[MAX_COLLS];
	uint64_t count[MAX_COLLS];
	int root[MAX_COLLS];
	enum df_proto proto[MAX_COLLS];
	/* number of instances that each collective has finished before the test */
	uint64_t past[MAX_COLLS];
	struct df_conn_hdr *hdrs[1 << 16];
	uint32_t credit[1 << 16];
	size_t bytes[1 << 16]; /* size of the header and the slots */
	uint32_t nr_hdrs;
	int by_ref; /* percentage of connectors whose slices may go by reference */
};

static uint64_t below(struct df_rng *r, uint64_t n)
{
	return df_rng_u64(r) % n;
}

static int32_t input(int coll, int inst, int rank, uint64_t i)
{
	return (int32_t)(i * 7 + (uint64_t)rank * 1001 + (uint64_t)coll * 77 + (uint64_t)inst * 13);
}

/* Returns the expected element i of the output on this rank. */
static int32_t expect(const struct world *w, int c, int m, int rank, uint64_t i)
{
	uint64_t n = w->count[c];
	int32_t sum = 0;
	int r;

	switch (w->kind[c]) {
	case DF_COLL_ALLREDUCE:
	case DF_COLL_REDUCE:
		for (r = 0; r < w->n; r++)
			sum += input(c, m, r, i);
		return sum;
	case DF_COLL_REDUCESCATTER:
		for (r = 0; r < w->n; r++)
			sum += input(c, m, r, (uint64_t)rank * n + i);
		return sum;
	case DF_COLL_BROADCAST:
		return input(c, m, w->root[c], i);
	case DF_COLL_ALLGATHER:
	case DF_COLL_GATHER:
		return input(c, m, (int)(i / n), i % n);
	case DF_COLL_ALLTOALL:
		return input(c, m, (int)(i / n), (uint64_t)rank * n + i % n);
	case DF_COLL_SCATTER:
		return input(c, m, w->root[c], (uint64_t)rank * n + i);
	default:
		abort();
	}
}

static void sizes(const struct world *w, int c, int rank, uint64_t *in, uint64_t *out)
{
	uint64_t n = w->count[c], all = n * (uint64_t)w->n;
	int root = rank == w->root[c];

	*in = *out = n;
	switch (w->kind[c]) {
	case DF_COLL_ALLGATHER:
		*out = all;
		break;
	case DF_COLL_GATHER:
		*out = root ? all : 0;
		break;
	case DF_COLL_ALLTOALL:
		*in = *out = all;
		break;
	case DF_COLL_REDUCESCATTER:
		*in = all;
		break;
	case DF_COLL_SCATTER:
		*in = root ? all : 0;
		break;
	case DF_COLL_REDUCE:
		*out = root ? n : 0;
		break;
	default:
		break;
	}
}

/* Allocates the buffers of an instance: separate, or in place as NCCL defines it. */
static void buffers(struct world *w, int c, int k, int m, int in_place)
{
	struct rank_coll *rc = &w->rc[c][k];
	uint64_t e, first = 0, back = 0;
	int64_t alias = -1;

	/*
	 * In place, the first output chunk is an input chunk, or the first input chunk is an output
	 * chunk.
	 */
	if (in_place && rc->out_elems)
		alias = df_coll_alias(w->kind[c], w->root[c], k, 1, 0);
	if (alias >= 0)
		first = (uint64_t)alias * w->count[c];
	if (in_place && rc->out_elems &&
	    (w->kind[c] == DF_COLL_ALLGATHER ||
	     (w->kind[c] == DF_COLL_GATHER && k == w->root[c]))) {
		alias = k;
		first = 0;
		back = (uint64_t)k * w->count[c];
	}
	rc->mem[m] = malloc((rc->in_elems + rc->out_elems + 2) * 4);
	if (alias < 0) {
		rc->in[m] = rc->mem[m];
		rc->out[m] = rc->in[m] + rc->in_elems + 1;
	} else {
		rc->in[m] = (int32_t *)rc->mem[m] + back;
		rc->out[m] = (int32_t *)rc->mem[m] + first;
	}
	memset(rc->mem[m], 0xa5, (rc->in_elems + rc->out_elems + 2) * 4);
	for (e = 0; e < rc->in_elems; e++)
		rc->in[m][e] = input(c, m, k, e);
}

/* Returns the receiving connector of (src, dst, channel). */
static struct df_kconn *receiver(struct world *w, int c, int src, int dst, uint32_t channel)
{
	struct rank_coll *rc = &w->rc[c][dst];
	uint32_t b, i;

	for (b = 0; b < rc->prog->nr_blocks; b++) {
		const struct df_prog_block *pb = df_prog_block(rc->prog, b);

		for (i = 0; i < pb->nr_recv; i++) {
			const struct df_conn_spec *s = df_prog_conn(rc->prog, pb->first_recv + i);

			if (s->peer == src && s->channel == channel)
				return &rc->conns[pb->first_recv + i];
		}
	}
	return NULL;
}

/* Sets the positions of a connector whose collective has executed this number of rounds. */
static void connector(struct df_conn_hdr *h, struct df_kconn *k, uint64_t rounds)
{
	uint64_t pos = rounds * k->per_loop;

	h->tail = h->head = pos;
	if (k->credit > 1)
		h->head -= pos % k->credit;
	k->seen = h->head;
}

static int young; /* if set, collectives start with instance 0 */

/* Returns how many instances the collective has finished before. Most collectives are new. */
static uint64_t age(struct df_rng *r, const struct rank_coll *rc, uint32_t slots)
{
	uint64_t per = rc->prog->nr_conns ? df_prog_conn(rc->prog, 0)->per_loop : 1;
	uint64_t lap = below(r, 2) ? 1ull << 31 : SWEEP * (1 + below(r, 9));
	uint64_t rounds = lap * slots / (per ? per : 1);

	return young || below(r, 3) ? 0 : rounds / rc->k.loops - below(r, 3);
}

/* If not NULL, all collectives have this shape, and a tile has at most 64 elements. */
static const struct shape {
	enum df_coll_kind kind;
	uint64_t count;
	enum df_proto proto;
	enum df_algo algo; /* DF_ALGO_AUTO: chosen by the library */
} * shape;

static void setup(struct world *w, struct df_rng *r, int n, int nb, int nc, int ni)
{
	struct df_slots slots;
	int c, k, m, in_place, by_ref = w->by_ref;
	uint32_t b, i;

	memset(w, 0, sizeof(*w));
	w->by_ref = by_ref;
	w->n = n;
	w->nb = nb;
	w->nc = nc;
	w->ni = ni;
	for (k = 0; k < n; k++) {
		struct df_policy *p = &w->d[k].policy;

		w->d[k].nr_blocks = (uint32_t)nb;
		/*
		 * Some daemons count one of the ranks as their own: only the order of turns may
		 * depend on that.
		 */
		w->d[k].self = below(r, 2) ? below(r, (uint32_t)n) : 0;
		w->blk[k] = calloc((size_t)nb, sizeof(*w->blk[k]));
		w->d[k].blocks = w->blk[k];
		p->front = (int64_t)below(r, 5) + 1;
		p->step = (int64_t)below(r, 2);
		p->floor = 1;
		p->boost = (int64_t)below(r, 3) + 1;
		p->max = p->front * 4;
		p->order = below(r, 4) == 0;
		p->share = (uint32_t)below(r, 4) * 30;
		p->urgent = (uint32_t)below(r, 4) + 1;
		p->gang = below(r, 3) * 2;
		p->events = 2;
		for (m = 0; m < nb; m++) {
			w->blk[k][m].sq.mask = 63;
			w->blk[k][m].sq.slots = calloc(64, sizeof(struct df_sq_slot));
			w->blk[k][m].cq.mask = 7;
			w->blk[k][m].cq.slots = calloc(8, sizeof(struct df_cqe));
		}
	}
	for (c = 0; c < nc; c++) {
		w->kind[c] = (enum df_coll_kind)below(r, DF_COLL_SEND);
		w->count[c] = below(r, 4) ? below(r, 300) + 1 : below(r, 2000) + 1;
		w->root[c] = (int)below(r, (uint64_t)n);
		w->proto[c] = DF_PROTO_SIMPLE + (enum df_proto)below(r, 3);
		if (shape) {
			w->kind[c] = shape->kind;
			w->count[c] = shape->count;
			w->proto[c] = shape->proto;
		}
		for (k = 0; k < n; k++) {
			struct rank_coll *rc = &w->rc[c][k];
			struct df_prog_req req = {
				.kind = w->kind[c],
				.nranks = n,
				.rank = k,
				.root = w->root[c],
				.count = w->count[c],
				.elem_bytes = 4,
				.max_blocks = (uint32_t)nb,
				.algo = shape ? shape->algo : DF_ALGO_AUTO,
			};

			ck_assert_int_eq(df_program_build(&req, &rc->prog), 0);
			sizes(w, c, k, &rc->in_elems, &rc->out_elems);
			rc->conns = calloc(rc->prog->nr_conns + 1, sizeof(*rc->conns));
			df_kcoll_program(&rc->k, rc->prog);
			rc->k.type = DF_INT32;
			rc->k.id = (uint64_t)(c + 1) * 0x9e3779b97f4a7c15;
			rc->k.elem_bytes = 4;
			rc->k.count = w->count[c];
			rc->k.chunk_elems = (rc->k.count + rc->prog->chunks - 1) / rc->prog->chunks;
			rc->k.scratch =
				malloc(rc->prog->scratch_chunks * rc->k.chunk_elems * 4 + 64);
			rc->k.done = &rc->done;
			rc->k.ctx = calloc(rc->prog->nr_blocks, sizeof(*rc->k.ctx));
			in_place = w->by_ref && below(r, 2);
			for (m = 0; m < ni; m++)
				buffers(w, c, k, m, in_place);
		}
		/*
		 * All ranks have the same geometry. Tiles are tiny, so that there are many loops.
		 */
		for (k = 0; k < n; k++) {
			struct rank_coll *rc = &w->rc[c][k];
			uint64_t tile = below(r, 2) && !shape ? 16 : 64;

			tile = k ? w->rc[c][0].k.tile_elems : tile;
			rc->k.tile_elems = tile < rc->k.chunk_elems ? tile : rc->k.chunk_elems;
			rc->k.loops = (rc->k.chunk_elems + rc->k.tile_elems - 1) / rc->k.tile_elems;
			if ((uint64_t)rc->prog->max_cnt * rc->k.tile_elems * 4 > DF_WORDS_BYTES)
				w->proto[c] = DF_PROTO_SIMPLE;
		}
		slots = df_proto_slots(w->proto[c], 64, 1, w->rc[c][0].prog->min_slots,
				       (int)below(r, 2), LINE_WORDS);
		/* The smallest number of slots, or a few more. */
		slots.nr = w->rc[c][0].prog->min_slots + slots.credit - 1;
		slots.nr += (uint32_t)below(r, 3) + !w->rc[c][0].prog->min_slots;
		if (shape && w->proto[c] == DF_PROTO_SIMPLE)
			slots.nr =
				w->rc[c][0].prog->min_slots > 2 ? w->rc[c][0].prog->min_slots : 2;
		w->past[c] = age(r, &w->rc[c][0], slots.nr);
		for (k = 0; k < n; k++) {
			struct rank_coll *rc = &w->rc[c][k];

			rc->past = w->past[c];
			for (b = 0; b < rc->prog->nr_blocks; b++) {
				const struct df_prog_block *pb = df_prog_block(rc->prog, b);
				struct df_kctx *ctx = &rc->k.ctx[b];

				df_kctx_init(ctx, &rc->k, rc->conns, b);
				ctx->k = w->past[c] * rc->k.loops * ctx->nr_inst;
				ctx->announced = ctx->finished = w->past[c];
				rc->k.nr_blocks += pb->nr_inst != 0;
				for (i = 0; i < pb->nr_send; i++) {
					const struct df_conn_spec *s =
						df_prog_conn(rc->prog, pb->first_send + i);
					struct df_slots s0;
					uint32_t sb = (uint32_t)(rc->k.tile_elems * 4 *
								 w->rc[c][s->peer].prog->max_cnt);
					struct df_conn_hdr *h;
					struct df_kconn *rx, *tx = &rc->conns[pb->first_send + i];

					sb = rc->prog->max_cnt * (uint32_t)rc->k.tile_elems * 4 > sb
						     ? rc->prog->max_cnt *
							       (uint32_t)rc->k.tile_elems * 4
						     : sb;
					s0 = df_proto_slots(w->proto[c], sb, 1, 1, 0, LINE_WORDS);
					s0.nr = slots.nr;
					s0.credit = slots.credit;
					h = calloc(1, DF_CONN_SLOTS + (size_t)s0.nr * s0.bytes);
					w->credit[w->nr_hdrs] = s0.credit;
					w->bytes[w->nr_hdrs] =
						DF_CONN_SLOTS + (size_t)s0.nr * s0.bytes;
					w->hdrs[w->nr_hdrs++] = h;
					rx = receiver(w, c, k, s->peer, s->channel);
					ck_assert_msg(rx != NULL, "no receiver for %d->%d", k,
						      s->peer);
					tx->per_loop = s->per_loop;
					tx->nr_slots = s0.nr;
					tx->slot_bytes = s0.bytes;
					tx->proto = w->proto[c];
					tx->credit = s0.credit;
					tx->tail = &h->tail;
					tx->head = &h->head;
					tx->slots = (uint8_t *)h + DF_CONN_SLOTS;
					tx->refs = w->proto[c] == DF_PROTO_SIMPLE &&
								   s0.nr <= DF_CONN_REFS &&
								   (int)below(r, 100) < w->by_ref
							   ? h->refs
							   : NULL;
					tx->state = DF_KCONN_CONNECTED;
					connector(h, tx, w->past[c] * rc->k.loops);
					*rx = *tx;
					rx->peer = (uint64_t)k;
					tx->peer = (uint64_t)s->peer;
				}
			}
			for (b = 0; b < rc->prog->nr_blocks; b++) {
				const struct df_prog_block *pb = df_prog_block(rc->prog, b);

				for (i = 0; i < pb->nr_recv; i++)
					rc->conns[pb->first_recv + i].per_loop =
						df_prog_conn(rc->prog, pb->first_recv + i)
							->per_loop;
			}
		}
	}
}

/* Makes the instance's input valid, or invalid again. */
static void turn_over(struct rank_coll *rc, int m)
{
	uint64_t e;

	for (e = 0; e < rc->in_elems; e++)
		rc->in[m][e] ^= 0x55555555;
}

/* As the user's stream does: makes the input valid, then sets the ready word. */
static void ring(struct rank_coll *rc, int m)
{
	if (!rc->inst[m].done_value || rc->ready[m])
		return;
	turn_over(rc, m);
	/* RELEASE pairs with the ACQUIRE of dfk_waits_over(). */
	__atomic_store_n(&rc->ready[m], 1, __ATOMIC_RELEASE);
}

/* Submits an instance. With `late`, its input becomes valid after the call. */
static void submit(struct world *w, int k, int c, int m, int late)
{
	struct rank_coll *rc = &w->rc[c][k];
	struct df_kinst *in = &rc->inst[m];
	uint32_t b;

	in->in = rc->in[m];
	in->out = rc->out[m];
	in->seq = w->past[c] + (uint64_t)m;
	in->done_value = (uint64_t)m + 1;
	in->blocks_left = rc->k.nr_blocks;
	in->waits = in->own_waits;
	in->waits[0] = (struct df_kwait){&rc->ready[m], 1};
	in->nr_waits = 1;
	/* Peers may read both buffers, the input only, or neither. */
	in->shown = w->by_ref == 100 ? 3 : 3u >> (unsigned)(m * 5 + c * 3 + k) % 3;
	in->gate = rc->gate;
	if (rc->gate) {
		/* As wait_for_stream() in runtime/order/submit.c does. */
		in->nr_waits = 0;
		if (rc->k.nr_blocks > 1)
			in->waits[in->nr_waits++] = (struct df_kwait){&rc->done, (uint64_t)m};
		in->waits[in->nr_waits++] = (struct df_kwait){&rc->gate->arrived, 1};
		if (!late)
			/*
			 * RELEASE pairs with the ACQUIRE of dfk_waits_over(), as a graph's
			 * write does.
			 */
			__atomic_store_n(&rc->gate->arrived, 1, __ATOMIC_RELEASE);
	}
	rc->ready[m] = !late;
	if (late)
		turn_over(rc, m);
	/* Ranks have different priorities. */
	in->priority = (int32_t)((unsigned)(m * 7 + c * 5 + k * 3) % 4) - 1;
	/*
	 * RELEASE of next pairs with the daemon's ACQUIRE, as in runtime/coll/coll.c.
	 */
	if (m)
		__atomic_store_n(&rc->inst[m - 1].next, in, __ATOMIC_RELEASE);
	for (b = 0; b < rc->prog->nr_blocks; b++) {
		if (!rc->k.ctx[b].nr_inst)
			continue;
		df_sq_put(&w->blk[k][b % (uint32_t)w->nb].sq, &(struct df_sqe){&rc->k.ctx[b], in},
			  1);
	}
	if (!rc->k.nr_blocks)
		rc->done = in->done_value;
}

/* Makes a submitted instance more urgent, as df_coll_lend() does. */
static inline void lend(struct world *w, int k, int c, int m, int32_t priority)
{
	struct rank_coll *rc = &w->rc[c][k];
	uint32_t b;

	if (!rc->inst[m].done_value || rc->inst[m].priority >= priority)
		return;
	__atomic_store_n(&rc->inst[m].priority, priority, __ATOMIC_RELAXED);
	for (b = 0; b < rc->prog->nr_blocks; b++) {
		if (!rc->k.ctx[b].nr_inst)
			continue;
		df_sq_put(&w->blk[k][b % (uint32_t)w->nb].sq, &(struct df_sqe){&rc->k.ctx[b], NULL},
			  1);
	}
}

/* Returns whether each block's ring has room for `nr` further submissions. */
static inline int room(const struct world *w, int k, int nr)
{
	int i;

	for (i = 0; i < w->nb; i++) {
		const struct df_ring *sq = &w->blk[k][i].sq;

		/* ACQUIRE pairs with the RELEASE of head in dfk_sq_taken(). */
		if (sq->tail - __atomic_load_n(&sq->head, __ATOMIC_ACQUIRE) + (uint32_t)nr >
		    sq->mask)
			return 0;
	}
	return 1;
}

/* Defined by t_daemon_hot.c: moves the block's state to where a test can read it. */
#ifndef SETTLE
#define SETTLE(blk) ((void)(blk))
#endif

/* Checks the output of one instance on one rank. */
static void result(const struct world *w, int c, int k, int m, uint64_t seed)
{
	const struct rank_coll *rc = &w->rc[c][k];
	uint64_t e;

	for (e = 0; e < rc->out_elems; e++)
		ck_assert_msg(rc->out[m][e] == expect(w, c, m, k, e),
			      "seed %llu: %s n %d count %llu root %d inst %d rank %d element %llu: "
			      "%d, not %d (%s)",
			      (unsigned long long)seed, df_coll_kind_name(w->kind[c]), w->n,
			      (unsigned long long)w->count[c], w->root[c], m, k,
			      (unsigned long long)e, rc->out[m][e], expect(w, c, m, k, e),
			      rc->prog->name);
}

/*
 * Checks the result of each instance as soon as it has finished, while others run, and then
 * overwrites its buffers, as the user may. seen: number of instances of each collective that were
 * checked.
 */
static inline void look(const struct world *w, int k, int *seen, uint64_t seed)
{
	int c;

	for (c = 0; c < w->nc; c++) {
		const struct rank_coll *rc = &w->rc[c][k];

		/* ACQUIRE pairs with the RELEASE of done in dfk_finish(). */
		while ((uint64_t)seen[c] < __atomic_load_n(&rc->done, __ATOMIC_ACQUIRE)) {
			result(w, c, k, seen[c], seed);
			memset(rc->mem[seen[c]++], 0x3c, (rc->in_elems + rc->out_elems + 2) * 4);
		}
	}
}

/* Checks that all tasks and slices are finished, and frees the world. */
static void clear(struct world *w, uint64_t seed)
{
	int k, c, m, i;

	for (k = 0; k < w->n; k++)
		for (i = 0; i < w->nb; i++) {
			SETTLE(&w->blk[k][i]);
			ck_assert_msg(w->blk[k][i].nr_tasks == 0 && !w->blk[k][i].first,
				      "seed %llu: a task is left", (unsigned long long)seed);
		}
	while (w->nr_hdrs) {
		struct df_conn_hdr *h = w->hdrs[--w->nr_hdrs];

		/*
		 * With words, the receiver returns credit only after several slices, so the head
		 * may lag.
		 */
		ck_assert_msg(h->head == h->tail - h->tail % w->credit[w->nr_hdrs],
			      "seed %llu: a slice was not consumed", (unsigned long long)seed);
		free(h);
	}
	for (k = 0; k < w->n; k++) {
		for (i = 0; i < w->nb; i++) {
			free(w->blk[k][i].sq.slots);
			free(w->blk[k][i].cq.slots);
		}
		free(w->blk[k]);
		for (c = 0; c < w->nc; c++) {
			struct rank_coll *rc = &w->rc[c][k];

			df_program_free(rc->prog);
			free(rc->conns);
			free(rc->k.scratch);
			free(rc->k.ctx);
			for (m = 0; m < w->ni; m++)
				free(rc->mem[m]);
		}
	}
}

#endif
