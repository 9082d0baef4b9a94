/*
 * The cost model: the coding of what processes measure, the agreement, and choices that anybody would make. A
 * choice must not depend on the rank that asks.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/rng.h"
#include "runtime/program/build/cost.h"
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
	/* Nobody knows: the constants. */
	ck_assert_int_eq(df_cal_agree(&c, 5, row), 0);
	ck_assert(!memcmp(&c, &df_cost_host, sizeof(c)));
	/* The median of those who know; one that is far off decides nothing. */
	row[0].v[DF_CAL_INST] = df_cal_code(50);
	row[2].v[DF_CAL_INST] = df_cal_code(60);
	row[3].v[DF_CAL_INST] = df_cal_code(1e6);
	row[1].v[DF_CAL_CORES] = df_cal_code(0.5);
	ck_assert_int_eq(df_cal_agree(&c, 5, row), 0);
	ck_assert(c.inst_ns > 57 && c.inst_ns < 63);
	ck_assert(c.cores > 2.4 && c.cores < 2.6);
	ck_assert(c.byte_ns == df_cost_host.byte_ns);
	/* Twice as long as expected, and as expected: those not tried are in between, 2^0.5. */
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

	/* Little data: few steps. Much: few bytes. */
	ck_assert_int_eq(choose(q, &c), DF_ALGO_ALLPAIRS);
	q.count = 64 << 20;
	ck_assert_int_eq(choose(q, &c), DF_ALGO_RING);
	/* Slow links between nodes: few messages across, few bytes across. */
	q.nodes = 2;
	q.count = 1 << 18;
	ck_assert_int_eq(choose(q, &c), DF_ALGO_HIER);
	q.kind = DF_COLL_ALLTOALL;
	q.count = 64;
	ck_assert_int_eq(choose(q, &c), DF_ALGO_HIER);
	/* No rank of a node may have an opinion of its own: nothing but the request is looked at. */
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

/* More data never costs less, within one structure; what can't be built has no cost. */
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
	return DF_TESTS("cost model", {t_code}, {t_agree}, {t_choice}, {t_cost});
}
