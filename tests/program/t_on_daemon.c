/*
 * Compiled and imported programs on the daemon itself, which must compute the same as the reference
 * executor, bit for bit: with the fewest slots, few daemon blocks for many program blocks, several
 * instances in flight, turns in random order, slices by reference, in place where this is right,
 * and buffers that are written as soon as an instance has ended. (tests/kernels/t_daemon.c tests
 * built-in programs.)
 */
#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/daemon.h"
#include "kernels/slot.h"
#include "runtime/base/rng.h"
#include "runtime/program/file/algofile.h"
#include "runtime/program/file/canon.h"
#include "runtime/program/verify/exec.h"
#include "runtime/program/verify/wiring.h"
#include "runtime/program/lang/library/library.h"
#include "runtime/program/program_names.h"
#include "runtime/program/proto.h"
#include "tests/lib/test.h"

#define INST 3
#define DATA "../shared/data/msccl"

static uint64_t seed;

struct rank {
	struct df_kdaemon d;
	struct df_kblock *blk;
	struct df_kcoll k;
	struct df_kconn *conns;
	struct df_kinst inst[INST];
	uint64_t done;
	uint32_t *in[INST], *out[INST], *want[INST];
	uint64_t nr_in, nr_out;
	int submitted, checked;
};

struct world {
	struct df_program *const *p;
	struct rank *rank;
	int n, nb, by_ref, in_place;
	uint64_t count;
	struct df_conn_hdr **hdr;
	struct df_pgraph g;
};

static void init_rank(struct world *w, int r, struct df_rng *rng, uint64_t tile)
{
	const struct df_program *p = w->p[r];
	struct rank *k = &w->rank[r];
	uint64_t nr_in;

	nr_in = k->nr_in = (p->in_chunks + p->chunks - 1) / p->chunks * w->count;
	k->nr_out = (p->out_chunks + p->chunks - 1) / p->chunks * w->count;
	k->blk = calloc((size_t)w->nb, sizeof(*k->blk));
	k->d.nr_blocks = (uint32_t)w->nb;
	k->d.blocks = k->blk;
	k->d.policy = (struct df_policy){
		.front = 1 + (int64_t)df_rng_below(rng, 4), .floor = 1, .boost = 1, .max = 8};
	for (int b = 0; b < w->nb; b++) {
		k->blk[b].sq.mask = 255;
		k->blk[b].sq.slots = calloc(256, sizeof(struct df_sq_slot));
		k->blk[b].cq.mask = 7;
		k->blk[b].cq.slots = calloc(8, sizeof(struct df_cqe));
	}
	k->conns = calloc(p->nr_conns + 1, sizeof(*k->conns));
	k->k = (struct df_kcoll){.type = DF_UINT32,
				 .redop = DF_SUM,
				 .elem_bytes = 4,
				 .count = w->count,
				 .chunk_elems = (w->count + p->chunks - 1) / p->chunks,
				 .done = &k->done};
	df_kcoll_program(&k->k, p);
	k->k.tile_elems = tile < k->k.chunk_elems ? tile : k->k.chunk_elems;
	k->k.loops = (k->k.chunk_elems + k->k.tile_elems - 1) / k->k.tile_elems;
	k->k.scratch = malloc(p->scratch_chunks * k->k.chunk_elems * 4 + 64);
	k->k.ctx = calloc(p->nr_blocks + 1, sizeof(*k->k.ctx));
	for (uint32_t b = 0; b < p->nr_blocks; b++) {
		df_kctx_init(&k->k.ctx[b], &k->k, k->conns, b);
		k->k.nr_blocks += k->k.ctx[b].nr_inst != 0;
	}
	for (int i = 0; i < INST; i++) {
		k->in[i] = malloc(nr_in * 4 + 4);
		k->out[i] = w->in_place ? k->in[i] : calloc(k->nr_out + 1, 4);
		k->want[i] = calloc(k->nr_out + 1, 4);
		for (uint64_t e = 0; e < nr_in; e++)
			k->in[i][e] = (uint32_t)df_rng_u64(rng);
	}
}

static void connect(struct world *w, uint32_t least, enum df_proto proto)
{
	uint32_t most = 0;
	struct df_slots s;

	for (int r = 0; r < w->n; r++)
		most = w->p[r]->max_cnt > most ? w->p[r]->max_cnt : most;
	most *= (uint32_t)w->rank[0].k.tile_elems * 4;
	if (most > DF_WORDS_BYTES)
		proto = DF_PROTO_SIMPLE;
	/* The fewest slots with which it may work. */
	s = df_proto_slots(proto, most, 1, least, 0, 8);
	s.nr = least + s.credit - 1;
	s.nr += !least;
	w->hdr = calloc(w->g.nr_conns + 1, sizeof(*w->hdr));
	for (uint32_t t = 0; t < w->g.nr_threads; t++) {
		const struct df_gthread *th = &w->g.thread[t];
		const struct df_program *p = w->p[th->rank];
		const struct df_prog_block *pb = df_prog_block(p, th->block);

		for (uint32_t i = 0; i < pb->nr_send + pb->nr_recv; i++) {
			uint32_t c = i < pb->nr_send ? th->send[i] : th->recv[i - pb->nr_send];
			struct df_kconn *e =
				i < pb->nr_send ? &w->rank[th->rank].conns[pb->first_send + i]
						: &w->rank[th->rank]
							   .conns[pb->first_recv + i - pb->nr_send];

			if (!w->hdr[c])
				w->hdr[c] = calloc(1, DF_CONN_SLOTS + (size_t)s.nr * s.bytes);
			*e = (struct df_kconn){.state = 1,
					       .nr_slots = s.nr,
					       .slot_bytes = s.bytes,
					       .proto = proto,
					       .credit = s.credit,
					       .per_loop = w->g.conn[c].per_loop,
					       .tail = &w->hdr[c]->tail,
					       .head = &w->hdr[c]->head,
					       .refs = w->by_ref && proto == DF_PROTO_SIMPLE &&
								       s.nr <= DF_CONN_REFS
							       ? w->hdr[c]->refs
							       : NULL,
					       .slots = (uint8_t *)w->hdr[c] + DF_CONN_SLOTS};
		}
	}
}

static void submit(struct world *w, int r)
{
	struct rank *k = &w->rank[r];
	int m = k->submitted++;
	struct df_kinst *in = &k->inst[m];

	in->in = k->in[m];
	in->out = k->out[m];
	in->seq = (uint64_t)m;
	in->done_value = (uint64_t)m + 1;
	in->blocks_left = k->k.nr_blocks;
	in->waits = in->own_waits;
	in->shown = 1u << DF_BUF_IN | 1u << DF_BUF_OUT;
	if (m)
		k->inst[m - 1].next = in;
	for (uint32_t b = 0; b < k->k.prog->nr_blocks; b++) {
		if (!k->k.ctx[b].nr_inst)
			continue;
		df_sq_put(&k->blk[b % (uint32_t)w->nb].sq, &(struct df_sqe){&k->k.ctx[b], in}, 0);
	}
	if (!k->k.nr_blocks)
		k->done = in->done_value;
}

/* Checks the results of ended instances, and then writes to their buffers. */
static void check(struct rank *k, const char *what, int r)
{
	while ((uint64_t)k->checked < k->done) {
		int m = k->checked++;

		ck_assert_msg(!memcmp(k->out[m], k->want[m], k->nr_out * 4),
			      "%s: rank %d instance %d differs from the reference (SEED=%llu)",
			      what, r, m, (unsigned long long)seed);
		memset(k->out[m], 0x3c, k->nr_out * 4);
		memset(k->in[m], 0x3c, k->nr_in * 4);
	}
}

/* `in_place` means that the program is right in place too. */
static void on_daemon(const char *what, const struct df_plan *plan, struct df_program *const *p,
		      uint32_t slots, int in_place, struct df_rng *rng)
{
	struct world w = {.p = p,
			  .n = plan->nranks,
			  .nb = 1 + (int)df_rng_below(rng, 3),
			  .by_ref = df_rng_below(rng, 4) != 0,
			  .in_place = in_place && plan->kind == DF_COLL_ALLREDUCE &&
				      df_rng_below(rng, 2)};
	uint64_t turns = 0, tile = 1 + df_rng_below(rng, 8);
	void **in = calloc((size_t)(INST * w.n), sizeof(*in)),
	     **out = calloc((size_t)(INST * w.n), sizeof(*out));
	struct df_exec x;
	struct df_perr err;
	int left = w.n;

	w.count = plan->chunks * (1 + df_rng_below(rng, 20));
	w.rank = calloc((size_t)w.n, sizeof(*w.rank));
	df_perr_clear(&err);
	ck_assert_int_eq(df_pgraph_init(&w.g, p, w.n, NULL, &err), 0);
	for (int r = 0; r < w.n; r++) {
		init_rank(&w, r, rng, tile);
		for (int m = 0; m < INST; m++) {
			in[m * w.n + r] = w.rank[r].in[m];
			out[m * w.n + r] = w.rank[r].want[m];
		}
	}
	connect(&w, slots, DF_PROTO_SIMPLE + (enum df_proto)df_rng_below(rng, 3));
	x = (struct df_exec){.progs = p,
			     .nranks = w.n,
			     .count = w.count,
			     .tile_elems = tile,
			     .type = DF_UINT32,
			     .slots = slots,
			     .instances = INST,
			     .seed = df_rng_u64(rng),
			     .in = in,
			     .out = out};
	ck_assert_msg(df_exec_run(&x, &err) == 0, "%s: %s", what, err.text);
	while (left) {
		int r = (int)df_rng_below(rng, (uint64_t)w.n);

		if (w.rank[r].submitted < INST && df_rng_below(rng, 8) == 0)
			submit(&w, r);
		df_block_turn(&w.rank[r].d, &w.rank[r].blk[df_rng_below(rng, (uint64_t)w.nb)]);
		check(&w.rank[r], what, r);
		if (++turns % 64)
			continue;
		for (left = r = 0; r < w.n; r++)
			left += w.rank[r].done != INST;
		ck_assert_msg(turns < 40000000, "%s: no end in sight (SEED=%llu)", what,
			      (unsigned long long)seed);
	}
	for (int r = 0; r < w.n; r++) {
		struct rank *k = &w.rank[r];

		ck_assert_int_eq(k->checked, INST);
		for (int m = 0; m < INST; m++) {
			if (!w.in_place)
				free(k->out[m]);
			free(k->in[m]);
			free(k->want[m]);
		}
		for (int b = 0; b < w.nb; b++) {
			free(k->blk[b].sq.slots);
			free(k->blk[b].cq.slots);
		}
		free(k->blk);
		free(k->conns);
		free(k->k.scratch);
		free(k->k.ctx);
	}
	for (uint32_t c = 0; c < w.g.nr_conns; c++)
		free(w.hdr[c]);
	free(w.hdr);
	free(w.rank);
	free(in);
	free(out);
	df_pgraph_fini(&w.g);
}

START_TEST(t_library)
{
	const struct df_lib *lib = &df_library[_i];
	struct df_rng rng;

	df_rng_init(&rng, seed + (uint64_t)_i);
	for (int v = 0; v < 24; v++) {
		struct df_shape s = {.nodes = 1 + v % 2,
				     .gpus = 2 << df_rng_below(&rng, 2),
				     .channels = 1 + v / 2 % 2,
				     .instances = 1 + (uint32_t)(v / 4 % 3),
				     .blocks = v / 12 ? DF_BLOCKS_PEER : DF_BLOCKS_CHANNEL};
		struct df_plan *plan;
		struct df_program **p;
		struct df_expects x = {0};
		struct df_verify_out out;
		struct df_perr err;

		s.nranks = s.nodes * s.gpus;
		df_perr_clear(&err);
		ck_assert_msg(df_library_compile(lib, &s, &plan, &x, &err) == 0, "%s", err.text);
		ck_assert_msg(df_plan_prove(plan, &x, &p, &out) == 0, "%s", out.err.text);
		on_daemon(lib->name, plan, p, out.min_slots, out.in_place, &rng);
		df_programs_free(p, plan->nranks);
		df_plan_destroy(plan);
		df_expects_fini(&x);
	}
}
END_TEST

/* Every valid file of the data set with few enough steps for a short test. */
START_TEST(t_msccl)
{
	DIR *dir = opendir(DATA);
	struct dirent *d;
	struct df_rng rng;
	int ran = 0;

	df_rng_init(&rng, seed);
	while (dir && (d = readdir(dir))) {
		char path[512];
		struct df_algo_file *a;
		struct df_perr err;

		if (!strstr(d->d_name, ".xml") || !strncmp(d->d_name, "bad_", 4))
			continue;
		snprintf(path, sizeof(path), DATA "/%s", d->d_name);
		ck_assert_msg(df_algo_read(path, &a, &err) == 0, "%s: %s", path, err.text);
		if (a->progs[0]->nr_inst < 100) {
			on_daemon(d->d_name, a->plan, a->progs, a->v.min_slots, a->v.in_place,
				  &rng);
			ran++;
		}
		df_algo_free(a);
	}
	if (dir) {
		ck_assert_int_ge(ran, 70);
		closedir(dir);
	}
}
END_TEST

int main(void)
{
	seed = df_test_seed();
	return DF_TESTS("programs on the daemon", {t_library, (int)df_library_size}, {t_msccl});
}
