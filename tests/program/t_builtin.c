/*
 * Proves every built-in program with the verifier, and executes it on random data with random
 * preemption: all kinds and algorithms, 1 to 16 ranks, 1 to 4 blocks, in place and out of place
 * (also different on each rank), several instances one after the other, with the fewest slots that
 * the program needs.
 */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/rng.h"
#include "runtime/program/verify/exec.h"
#include "runtime/program/layout.h"
#include "runtime/program/program_names.h"
#include "tests/lib/test.h"

/* Fewer ranks with a sanitizer, because the time grows with the square. */
#define MAX_RANKS (df_test_slow() > 1 ? 8 : 16)

static uint64_t seed;

static struct df_program **build(struct df_prog_req q)
{
	struct df_program **p = calloc((size_t)q.nranks, sizeof(*p));

	for (q.rank = 0; q.rank < q.nranks; q.rank++) {
		int rc = df_program_build(&q, &p[q.rank]);

		ck_assert_msg(!rc, "%s n %d rank %d: %d", df_coll_kind_name(q.kind), q.nranks,
			      q.rank, rc);
		ck_assert_uint_eq(p[q.rank]->hash, p[0]->hash);
		ck_assert_uint_le(p[q.rank]->nr_blocks, q.max_blocks);
	}
	return p;
}

static void prove(const struct df_prog_req *q, struct df_program **p, const char *what)
{
	struct df_verify_in in = {
		.kind = q->kind, .nranks = q->nranks, .root = q->root, .progs = p};
	struct df_verify_out out;
	char text[512];
	int rc = df_verify(&in, &out);

	ck_assert_msg(!rc, "%s: %s", what, df_perr_str(&out.err, text, sizeof(text)));
	ck_assert_msg(out.out_of_place && out.has_post, "%s", what);
	ck_assert_msg(out.in_place || q->kind == DF_COLL_ALLTOALL || q->kind >= DF_COLL_SEND,
		      "%s: %s", what, df_perr_str(&out.note, text, sizeof(text)));
	ck_assert_msg(out.same_order, "%s: ranks reduce in different orders", what);
	ck_assert_msg(!out.whole_chunks, "%s: loses the end of chunks", what);
	ck_assert_msg(out.back_to_back, "%s: %s", what, df_perr_str(&out.note, text, sizeof(text)));
	ck_assert_msg(out.min_slots <= 2, "%s: %u slots", what, out.min_slots);
	ck_assert_uint_eq(out.min_slots, p[0]->min_slots);
}

static void execute(const struct df_prog_req *q, struct df_program **p, struct df_rng *rng,
		    const char *what)
{
	static const uint32_t ops[] = {DF_SUM, DF_PROD,	     DF_MAX,
				       DF_MIN, DF_PREMULSUM, DF_SUMPOSTDIV};
	struct df_exec_check c = {.progs = p,
				  .kind = q->kind,
				  .nranks = q->nranks,
				  .root = q->root,
				  .count = q->count,
				  .tile_elems = 1 + df_rng_below(rng, 64),
				  .in_place = df_rng_u64(rng),
				  .seed = df_rng_u64(rng),
				  .type = df_rng_below(rng, 2) ? DF_UINT32 : DF_FLOAT32,
				  .slots = p[0]->min_slots + (uint32_t)df_rng_below(rng, 2),
				  .instances = 1 + (uint32_t)df_rng_below(rng, 3)};
	struct df_perr err;
	char text[512];
	int rc;

	c.threads = q->nranks <= 8 && df_rng_below(rng, 32) == 0;
	if (q->kind == DF_COLL_ALLTOALL)
		c.in_place = 0;
	c.redop = ops[df_rng_below(rng, c.type == DF_FLOAT32 ? 5 : 6)];
	if (c.type == DF_FLOAT32 && c.redop == DF_PROD)
		c.redop = DF_SUM;
	df_perr_clear(&err);
	rc = df_exec_check(&c, &err);
	ck_assert_msg(!rc, "%s count %llu op %u: rc %d %s (seed %llu)", what,
		      (unsigned long long)q->count, c.redop, rc,
		      df_perr_str(&err, text, sizeof(text)), (unsigned long long)seed);
}

static void all_sizes(struct df_prog_req q, uint32_t max_blocks, struct df_rng *rng)
{
	static const uint64_t counts[] = {1, 7, 1000, 300000, 9000000};
	char what[128];

	for (q.max_blocks = 1; q.max_blocks <= max_blocks; q.max_blocks++) {
		for (unsigned s = 0; s < sizeof(counts) / sizeof(counts[0]); s++) {
			struct df_prog_req small;
			struct df_program **p;

			q.root = (int)df_rng_below(rng, (uint64_t)q.nranks);
			q.count = counts[s];
			p = build(q);
			for (int r = 1; r < q.nranks; r++) /* the tile follows from max_cnt */
				ck_assert_uint_eq(p[r]->max_cnt, p[0]->max_cnt);
			snprintf(what, sizeof(what),
				 "%s n %d nodes %d root %d blocks %u count %llu", p[0]->name,
				 q.nranks, q.nodes, q.root, q.max_blocks,
				 (unsigned long long)q.count);
			prove(&q, p, what);
			/* The same structure with little data keeps the test short. */
			small = q;
			small.count = df_rng_below(rng, 200);
			execute(&small, p, rng, what);
			df_programs_free(p, q.nranks);
		}
	}
}

START_TEST(t_all)
{
	struct df_prog_req q = {.kind = (enum df_coll_kind)_i, .elem_bytes = 4};
	struct df_rng rng;

	df_rng_init(&rng, seed + (uint64_t)_i);
	for (q.nranks = 1; q.nranks <= MAX_RANKS; q.nranks++) {
		for (int a = 0; a < DF_ALGO_NR; a++) {
			q.algo = (enum df_algo)a;
			all_sizes(q, 4, &rng);
		}
	}
}
END_TEST

/* Nodes: every division of 2 to 16 ranks into equal nodes, and numbers that cannot be divided. */
START_TEST(t_nodes)
{
	struct df_prog_req q = {
		.kind = (enum df_coll_kind)_i, .elem_bytes = 4, .algo = DF_ALGO_HIER};
	struct df_rng rng;

	df_rng_init(&rng, seed + 100 + (uint64_t)_i);
	for (q.nranks = 2; q.nranks <= MAX_RANKS; q.nranks++) {
		for (q.nodes = 2; q.nodes <= q.nranks; q.nodes++) {
			ck_assert_int_eq(df_algo_has(&q, DF_ALGO_HIER), q.nranks % q.nodes == 0);
			if (df_algo_has(&q, DF_ALGO_HIER))
				all_sizes(q, 2, &rng);
		}
	}
}
END_TEST

/* Returns the number of connections between nodes. */
static int crossings(const struct df_prog_req *q, struct df_program *const *p)
{
	int nr = 0;

	for (int r = 0; r < q->nranks; r++)
		for (uint32_t b = 0; b < p[r]->nr_blocks; b++) {
			const struct df_prog_block *pb = df_prog_block(p[r], b);

			for (uint32_t i = 0; i < pb->nr_send; i++)
				nr += q->layout->node[r] !=
				      q->layout->node[df_prog_conn(p[r], pb->first_send + i)->peer];
		}
	return nr;
}

/* Rings and chains cross each node's border once a round, whatever the ranks' numbers. */
static void in_order(struct df_prog_req q)
{
	int chain = q.kind == DF_COLL_BROADCAST || q.kind == DF_COLL_REDUCE;

	q.count = 1000;
	q.max_blocks = 1;
	for (q.root = 0; q.root < (chain ? q.nranks : 1); q.root++) {
		struct df_program **p = build(q);

		ck_assert_int_eq(crossings(&q, p), q.layout->nodes - chain);
		df_programs_free(p, q.nranks);
	}
}

/* Any layout: nodes of any size, their ranks in any order, with the fewest and the most nodes. */
START_TEST(t_layouts)
{
	static const char *const some[] = {"00011111",	  "0000000011111111222",
					   "01111111",	  "0101010",
					   "00000111111", "010",
					   "0112220",	  "01234566"};
	struct df_prog_req q = {.kind = (enum df_coll_kind)_i, .elem_bytes = 4};
	struct df_rng rng;

	df_rng_init(&rng, seed + 200 + (uint64_t)_i);
	for (unsigned k = 0; k < 8 + (MAX_RANKS == 16 ? 40 : 8); k++) {
		uint64_t node[20];
		struct df_layout *l;

		q.nranks = k < 8 ? (int)strlen(some[k])
				 : 2 + (int)df_rng_below(&rng, (uint64_t)MAX_RANKS - 1);
		for (int r = 0; r < q.nranks; r++)
			node[r] = k < 8 ? (uint64_t)some[k][r]
					: df_rng_below(&rng, 2 + df_rng_below(&rng, 3));
		ck_assert_int_eq(df_layout_create(q.nranks, node, &l), 0);
		q.layout = l;
		q.nodes = l->nodes;
		ck_assert_int_eq(df_algo_has(&q, DF_ALGO_HIER), l->nodes > 1);
		q.algo = DF_ALGO_HIER;
		if (l->nodes > 1)
			all_sizes(q, 2, &rng);
		q.algo = DF_ALGO_RING;
		if (l->nodes > 1 && df_algo_has(&q, q.algo)) {
			all_sizes(q, 2, &rng);
			in_order(q);
		}
		df_layout_free(l);
	}
}
END_TEST

/* A pair of Send and Recv while other ranks are idle. */
START_TEST(t_p2p)
{
	struct df_rng rng;

	df_rng_init(&rng, seed);
	for (int n = 2; n <= 8; n++) {
		struct df_prog_req q = {.kind = DF_COLL_SEND,
					.nranks = n,
					.count = 100,
					.elem_bytes = 4,
					.max_blocks = 4};
		struct df_program **p = calloc((size_t)n, sizeof(*p));
		struct df_expects x = {0};
		struct df_verify_out out;
		struct df_verify_in in = {
			.kind = DF_COLL_CUSTOM, .nranks = n, .progs = p, .expect = &x};
		struct df_exec_check c = {.progs = p,
					  .kind = DF_COLL_CUSTOM,
					  .nranks = n,
					  .expect = &x,
					  .count = 100,
					  .tile_elems = 9,
					  .seed = seed,
					  .type = DF_UINT32,
					  .slots = 1,
					  .instances = 3};
		int a = (int)df_rng_below(&rng, (uint64_t)n),
		    b = (a + 1 + (int)df_rng_below(&rng, (uint64_t)n - 1)) % n;
		struct df_perr err;

		q.rank = a;
		q.peer = b;
		ck_assert_int_eq(df_program_build(&q, &p[a]), 0);
		q.kind = DF_COLL_RECV;
		q.rank = b;
		q.peer = a;
		ck_assert_int_eq(df_program_build(&q, &p[b]), 0);
		ck_assert_uint_eq(p[a]->hash, p[b]->hash);
		for (int r = 0; r < n; r++) {
			struct df_prank none = {0};
			struct df_phead head = {
				.name = "idle", .nranks = n, .rank = r, .chunks = 1};

			if (!p[r])
				ck_assert_int_eq(df_prank_finish(&none, &head, &p[r]), 0);
		}
		ck_assert_int_eq(df_expects_add(&x, b, 0, a, 0), 0);
		in.set_flags = 1;
		ck_assert_int_eq(df_verify(&in, &out), 0);
		ck_assert_uint_eq(out.min_slots, 1);
		df_perr_clear(&err);
		ck_assert_msg(df_exec_check(&c, &err) == 0, "%s", err.text);
		df_expects_fini(&x);
		df_programs_free(p, n);
	}
}
END_TEST

START_TEST(t_bad_requests)
{
	struct df_program *p = NULL;
	const struct df_prog_req good = {
		.nranks = 4, .rank = 1, .count = 10, .elem_bytes = 4, .max_blocks = 1};
	struct df_prog_req q;

#define REFUSED(...)                                                                               \
	do {                                                                                       \
		q = good;                                                                          \
		__VA_ARGS__;                                                                       \
		ck_assert_int_eq(df_program_build(&q, &p), -EINVAL);                               \
		ck_assert_ptr_null(p);                                                             \
	} while (0)
	REFUSED(q.nranks = 0);
	REFUSED(q.rank = 4);
	REFUSED(q.rank = -1);
	REFUSED(q.elem_bytes = 0);
	REFUSED(q.kind = DF_COLL_CUSTOM);
	REFUSED(q.kind = DF_COLL_BROADCAST; q.root = 4);
	REFUSED(q.kind = DF_COLL_SEND; q.peer = 1);
	REFUSED(q.kind = DF_COLL_RECV; q.peer = 7);
	REFUSED(q.count = UINT64_MAX / 8);
	REFUSED(q.algo = DF_ALGO_NR);
}
END_TEST

int main(void)
{
	seed = df_test_seed();
	return DF_TESTS("builtin programs", {t_all, DF_COLL_SCATTER + 1},
			{t_nodes, DF_COLL_ALLTOALL + 1}, {t_layouts, DF_COLL_ALLTOALL + 1},
			{t_all, DF_COLL_SENDRECV_SELF + 1, .from = DF_COLL_SENDRECV_SELF}, {t_p2p},
			{t_bad_requests});
}
