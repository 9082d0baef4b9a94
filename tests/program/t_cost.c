/*
 * The cost model: how measurements of processes are coded, how they are agreed on, and choices that
 * are obvious. A choice must not depend on the rank that makes it.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/rng.h"
#include "runtime/program/build/cost.h"
#include "runtime/program/layout.h"
#include "tests/lib/test.h"

START_TEST(t_code)
{
	ck_assert_uint_eq(df_cal_code(0), 0);
	ck_assert_uint_eq(df_cal_code(-1), 0);
	ck_assert(df_cal_value(0) == 0);
	for (double x = 0.0001; x < 1e8; x *= 1.0137) {
		double y = df_cal_value(df_cal_code(x));

		ck_assert_msg(y > x / 1.05 && y < x * 1.05, "%g becomes %g", x, y);
		ck_assert_uint_eq(df_cal_code(y * 1.0001), df_cal_code(y * 1.001));
	}
	ck_assert(df_cal_value(df_cal_code(1e30)) > 1e7);
	ck_assert_int_eq(df_cal_log(1), 0);
	ck_assert_int_eq(df_cal_log(2), 8);
	ck_assert_int_eq(df_cal_log(0.25), -16);
	ck_assert_int_eq(df_cal_log(1e30), 64);
	ck_assert_int_eq(df_cal_log(0), -64);
}
END_TEST

static struct df_cal nothing(void)
{
	struct df_cal c = {{0}, {0}};

	memset(c.factor, -128, sizeof(c.factor));
	return c;
}

START_TEST(t_agree)
{
	struct df_cal row[5];
	struct df_cost c = df_cost_host;

	for (int i = 0; i < 5; i++)
		row[i] = nothing();
	/* If no process has measured, the constants are used. */
	ck_assert_int_eq(df_cal_agree(&c, 5, row), 0);
	ck_assert(!memcmp(&c, &df_cost_host, sizeof(c)));
	/* The median of the known values. An outlier changes nothing. */
	row[0].v[DF_CAL_INST] = df_cal_code(50);
	row[2].v[DF_CAL_INST] = df_cal_code(60);
	row[3].v[DF_CAL_INST] = df_cal_code(1e6);
	row[1].v[DF_CAL_CORES] = df_cal_code(0.5);
	ck_assert_int_eq(df_cal_agree(&c, 5, row), 0);
	ck_assert(c.inst_ns > 57 && c.inst_ns < 63);
	ck_assert(c.cores > 2.4 && c.cores < 2.6);
	ck_assert(c.byte_ns == df_cost_host.byte_ns);
	/* But a hop costs the least that any process has measured. */
	row[0].v[DF_CAL_HOP] = row[3].v[DF_CAL_HOP] = df_cal_code(5000);
	row[2].v[DF_CAL_HOP] = df_cal_code(100);
	ck_assert_int_eq(df_cal_agree(&c, 5, row), 0);
	ck_assert(c.hop_ns > 95 && c.hop_ns < 105);
	/*
	 * Ring takes twice as long as expected, tree as long as expected. Factors of algorithms
	 * that were not tried are in between, 2^0.5.
	 */
	row[0].factor[DF_ALGO_RING - 1] = 8;
	row[4].factor[DF_ALGO_TREE - 1] = 0;
	ck_assert_int_eq(df_cal_agree(&c, 5, row), 0);
	ck_assert(c.factor[DF_ALGO_RING] == 2 && c.factor[DF_ALGO_TREE] == 1);
	ck_assert(c.factor[DF_ALGO_HIER] > 1.41 && c.factor[DF_ALGO_HIER] < 1.42);
	row[0].factor[DF_ALGO_RING - 1] = -12;
	row[4].factor[DF_ALGO_TREE - 1] = -128;
	c = df_cost_host;
	ck_assert_int_eq(df_cal_agree(&c, 5, row), 0);
	ck_assert(c.factor[DF_ALGO_RING] > 0.35 && c.factor[DF_ALGO_RING] < 0.36);
	ck_assert(c.factor[DF_ALGO_TREE] == c.factor[DF_ALGO_RING]);
}
END_TEST

/*
 * The slowest way decides, whatever the order of arrival. Figures that no process has measured
 * remain.
 */
START_TEST(t_far)
{
	struct df_far way[3] = {{0}};
	struct df_cost c = df_cost_host, again;

	df_far_agree(&c, 3, way);
	df_far_agree(&c, 0, NULL);
	ck_assert(!memcmp(&c, &df_cost_host, sizeof(c)));
	way[0] = (struct df_far){.ns = df_cal_code(5e4), .inst = df_cal_code(900)};
	way[2] = (struct df_far){.ns = df_cal_code(2e3), .byte = df_cal_code(80)};
	df_far_agree(&c, 3, way);
	ck_assert(c.far_ns > 4.8e4 && c.far_ns < 5.2e4);
	ck_assert(c.far_inst_ns > 860 && c.far_inst_ns < 940);
	ck_assert(c.far_byte_ns > 77 && c.far_byte_ns < 83);
	way[1] = way[0];
	way[0] = way[2];
	way[2] = (struct df_far){0};
	again = df_cost_host;
	df_far_agree(&again, 3, way);
	ck_assert(!memcmp(&c, &again, sizeof(c)));
}
END_TEST

static enum df_algo choose(struct df_prog_req q, const struct df_cost *c)
{
	uint32_t blocks = 1, again = 1;
	enum df_algo a = df_cost_choose(c, &q, 0, &blocks, NULL);

	q.rank = q.nranks - 1;
	ck_assert_int_eq(df_cost_choose(c, &q, 0, &again, NULL), a);
	ck_assert_uint_eq(blocks, again);
	return a;
}

START_TEST(t_choice)
{
	struct df_prog_req q = {.nranks = 8, .elem_bytes = 4, .count = 2, .max_blocks = 1};
	struct df_cost c = df_cost_host;

	/* Few steps for little data, few bytes for much data. */
	ck_assert_int_eq(choose(q, &c), DF_ALGO_ALLPAIRS);
	q.count = 64 << 20;
	ck_assert_int_eq(choose(q, &c), DF_ALGO_RING);
	/* With slow links between nodes few messages, or few bytes, between nodes. */
	q.nodes = 2;
	q.count = 1 << 18;
	ck_assert_int_eq(choose(q, &c), DF_ALGO_HIER);
	q.kind = DF_COLL_ALLTOALL;
	q.count = 64;
	ck_assert_int_eq(choose(q, &c), DF_ALGO_HIER);
	/* The choice depends on the request alone, so all ranks of a node make the same. */
	for (int kind = 0; kind <= DF_COLL_SCATTER; kind++) {
		q.kind = (enum df_coll_kind)kind;
		for (q.nranks = 1; q.nranks <= 24; q.nranks++) {
			for (q.nodes = 1; q.nodes <= 3; q.nodes++) {
				q.root = q.nranks / 2;
				q.count = 1000;
				ck_assert_int_ne(choose(q, &c), DF_ALGO_AUTO);
			}
		}
	}
}
END_TEST

/*
 * Ranks with a CPU each need no wake-up, even after their share of CPUs was coded. Ranks that share
 * a CPU do.
 */
START_TEST(t_cores)
{
	struct df_prog_req q = {
		.nranks = 4, .nodes = 2, .elem_bytes = 4, .count = 2, .max_blocks = 1};

	for (int shared = 0; shared < 2; shared++) {
		struct df_cal row[4];
		struct df_cost c = df_cost_host;

		for (int i = 0; i < 4; i++) {
			row[i] = nothing();
			row[i].v[DF_CAL_SWITCH] = df_cal_code(20000);
			/* Two ranks on a node, as df_cal_members() computes it. */
			row[i].v[DF_CAL_CORES] =
				df_cal_code(df_cal_value(df_cal_code(shared ? 1 : 2)) / 2);
		}
		ck_assert_int_eq(df_cal_agree(&c, 4, row), 0);
		c.far_ns = 13000;
		c.far_inst_ns = 9500;
		ck_assert_int_eq(choose(q, &c), shared ? DF_ALGO_ALLPAIRS : DF_ALGO_HIER);
	}
}
END_TEST

/* Only the cost of a network changes, and with it the program. */
START_TEST(t_network)
{
	struct df_prog_req q = {.nranks = 8, .nodes = 2, .elem_bytes = 4, .max_blocks = 1};
	struct df_cost fast = df_cost_host, slow = df_cost_host, distant = df_cost_host;

	fast.far_ns = 2000;
	fast.far_inst_ns = 500;
	fast.far_byte_ns = 0.05;
	slow.far_byte_ns = 80;
	distant.far_ns = distant.hop_ns = distant.switch_ns = 1e6;
	/* Little data: as few steps and messages between nodes as possible. */
	q.count = 1024;
	q.nranks = 12;
	ck_assert_int_eq(choose(q, &fast), DF_ALGO_HIER);
	ck_assert_int_eq(choose(q, &slow), DF_ALGO_HIER);
	q.count = 2;
	ck_assert_int_eq(choose(q, &fast), DF_ALGO_HIER);
	/*
	 * Over more nodes: few steps and few copies if bytes are cheap, few bytes over each border
	 * if bytes are expensive.
	 */
	q.nodes = 6;
	q.count = 4096;
	ck_assert_int_eq(choose(q, &fast), DF_ALGO_TREE);
	ck_assert_int_eq(choose(q, &slow), DF_ALGO_RING);
	q.nodes = 2;
	/* The same for much data over two nodes. The hierarchy crosses the border once. */
	q.nranks = 8;
	q.count = 4 << 20;
	ck_assert_int_eq(choose(q, &fast), DF_ALGO_RING);
	ck_assert_int_eq(choose(q, &slow), DF_ALGO_HIER);
	/* If every hop is expensive, one hop. */
	q.count = 64;
	ck_assert_int_eq(choose(q, &distant), DF_ALGO_ALLPAIRS);
	q.kind = DF_COLL_ALLTOALL;
	q.count = 256;
	ck_assert_int_eq(choose(q, &fast), DF_ALGO_ALLPAIRS);
	ck_assert_int_eq(choose(q, &slow), DF_ALGO_HIER);
}
END_TEST

/*
 * The ranks of a node share its links. Their number does not change the cost of the same total
 * amount, and receiving costs as much as sending.
 */
START_TEST(t_shared)
{
	struct df_prog_req q = {.nodes = 2, .elem_bytes = 1, .max_blocks = 1, .count = 1 << 24};
	struct df_cost c = df_cost_host;
	double one, four;

	c.far_byte_ns = 1e4; /* all other costs are small */
	for (int in = 0; in < 2; in++) {
		/* Every rank of the other node receives from the root, or sends to it. */
		q.kind = in ? DF_COLL_REDUCE : DF_COLL_BROADCAST;
		q.nranks = 2;
		one = df_cost_of(&c, &q, DF_ALGO_ALLPAIRS, 1);
		q.nranks = 8;
		four = df_cost_of(&c, &q, DF_ALGO_ALLPAIRS, 1);
		ck_assert_msg(four > 3.9 * one && four < 4.1 * one, "%g and %g", one, four);
	}
	/* The hierarchy crosses once in each direction, by one rank or by four. */
	q.kind = DF_COLL_ALLREDUCE;
	q.nranks = 2;
	one = df_cost_of(&c, &q, DF_ALGO_HIER, 1);
	q.nranks = 8;
	four = df_cost_of(&c, &q, DF_ALGO_HIER, 1);
	ck_assert_msg(four > 0.95 * one && four < 1.05 * one, "%g and %g", one, four);
}
END_TEST

/*
 * All ranks make the same choice for any layout and any costs, because it is a function of values
 * on which they have agreed.
 */
START_TEST(t_alike)
{
	struct df_rng rng;

	df_rng_init(&rng, df_test_seed());
	for (int i = 0; i < 300 / df_test_slow(); i++) {
		struct df_cost c = df_cost_host;
		struct df_prog_req q = {.kind = (enum df_coll_kind)df_rng_below(&rng, DF_COLL_SEND),
					.nranks = 2 + (int)df_rng_below(&rng, 22),
					.count = 1ull << df_rng_below(&rng, 24),
					.elem_bytes = 4,
					.max_blocks = 4};
		uint64_t node[24], nodes = 1 + df_rng_below(&rng, 4);
		enum df_algo first = DF_ALGO_AUTO;
		struct df_layout *l;

		for (int r = 0; r < q.nranks; r++)
			node[r] = df_rng_below(&rng, nodes);
		ck_assert_int_eq(df_layout_create(q.nranks, node, &l), 0);
		q.layout = l;
		q.nodes = l->nodes;
		q.root = (int)df_rng_below(&rng, (uint64_t)q.nranks);
		c.far_ns = (double)(1ull << df_rng_below(&rng, 24));
		c.far_inst_ns = (double)(1ull << df_rng_below(&rng, 20));
		c.far_byte_ns = (double)(1ull << df_rng_below(&rng, 20)) / 1024;
		c.cores = (double)df_rng_below(&rng, 64);
		for (q.rank = 0; q.rank < q.nranks; q.rank++) {
			uint32_t blocks = 4;
			enum df_algo a = df_cost_choose(&c, &q, 0, &blocks, NULL);

			ck_assert(df_algo_has(&q, a));
			if (!q.rank)
				first = a;
			ck_assert_int_eq(a, first);
		}
		df_layout_free(l);
	}
}
END_TEST

/* Within one structure more data never costs less. Programs that cannot be built have no cost. */
START_TEST(t_cost)
{
	struct df_prog_req q = {.nranks = 6, .nodes = 3, .elem_bytes = 4, .max_blocks = 1};
	double last;

	for (int a = DF_ALGO_RING; a < DF_ALGO_NR; a++) {
		last = 0;
		for (q.count = 6 << 20; q.count < 1 << 28; q.count *= 2) {
			double t = df_cost_of(&df_cost_host, &q, (enum df_algo)a, 1);

			ck_assert_msg(t > last, "%s of %llu", df_algo_name((enum df_algo)a),
				      (unsigned long long)q.count);
			last = t;
		}
	}
	q.kind = DF_COLL_ALLGATHER;
	ck_assert(df_cost_of(&df_cost_host, &q, DF_ALGO_TREE, 1) < 0);
	q.nodes = 4;
	ck_assert(df_cost_of(&df_cost_host, &q, DF_ALGO_HIER, 1) < 0);
}
END_TEST

int main(void)
{
	return DF_TESTS("cost model", {t_code}, {t_agree}, {t_far}, {t_choice}, {t_cores},
			{t_network}, {t_shared}, {t_alike}, {t_cost});
}
