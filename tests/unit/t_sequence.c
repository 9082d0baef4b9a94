/*
 * Description: the order that rank 0 decides (DFSHIM_NCCL_ORDER=agree): random programs in which
 * each rank has its own order of issue all end on lanes that execute one unit after the other; so
 * do programs with groups that end with NCCL, whatever their threads wait for in between; short
 * messages end without a receive.
 */
#include "tests/lib/test.h"

#include <errno.h>
#include <string.h>

#include "runtime/base/rng.h"
#include "runtime/exec/nccl/sequence.h"

#define RANKS 4
#define OPS   24

/* An operation of all ranks, or a message (to >= 0). */
struct op {
	int from, to;
	int running[RANKS], ended;
};

struct unit {
	int ops[OPS], nr, arrived, launched, ended;
};

static struct job {
	struct df_lanes_sequence *q;
	struct df_rng rng;
	int nr_ranks, nr_ops;
	struct op ops[OPS];
	struct unit units[RANKS][OPS + 1]; /* from 1, by order of issue */
	int nr_units[RANKS];
	uint32_t lane[RANKS][OPS + 1]; /* units in the order of their launch */
	int nr_lane[RANKS], at[RANKS];
} job;

static void go(void *arg, uint32_t rank, uint32_t unit)
{
	struct job *j = arg;

	ck_assert(!j->units[rank][unit].launched && j->units[rank][unit].arrived);
	j->units[rank][unit].launched = 1;
	j->lane[rank][j->nr_lane[rank]++] = unit;
}

static int takes_part(const struct op *o, int rank)
{
	return o->to < 0 || o->from == rank || o->to == rank;
}

/* Executes what the lanes hold, as far as it gets. */
static void execute(struct job *j)
{
	int moved = 1, r, i, k;

	while (moved) {
		moved = 0;
		for (r = 0; r < j->nr_ranks; r++) {
			struct unit *u = &j->units[r][j->lane[r][j->at[r]]];
			int all = 1;

			if (j->at[r] == j->nr_lane[r])
				continue;
			for (i = 0; i < u->nr; i++) {
				struct op *o = &j->ops[u->ops[i]];
				int here = 1;

				o->running[r] = 1;
				for (k = 0; k < j->nr_ranks; k++)
					here &= !takes_part(o, k) || o->running[k];
				moved |= here && !o->ended;
				o->ended |= here;
				all &= o->ended;
			}
			if (all) {
				u->ended = 1;
				j->at[r]++;
				moved = 1;
			}
		}
	}
}

static void arrive(struct job *j, int rank, int unit)
{
	struct unit *u = &j->units[rank][unit];
	int i, ret;

	u->arrived = 1;
	for (i = 0; i < u->nr; i++) {
		const struct op *o = &j->ops[u->ops[i]];

		ret = df_lanes_sequence_add(
			j->q, (uint32_t)rank, (uint32_t)unit, (uint64_t)u->ops[i] + 1,
			o->to < 0 ? (uint32_t)j->nr_ranks : 2,
			o->to < 0 ? (uint32_t)rank : o->to == rank, o->to >= 0, 0, i + 1 == u->nr);
		ck_assert_int_eq(ret, 0);
	}
	execute(j);
}

/* Ranks, operations, and each rank's units: grouped at random, in the order of `ops` or its own. */
static void make(struct job *j, uint64_t seed, int grouped)
{
	int r, i, k, order[OPS];

	memset(j, 0, sizeof(*j));
	df_rng_init(&j->rng, seed);
	j->nr_ranks = 2 + (int)df_rng_below(&j->rng, RANKS - 1);
	j->nr_ops = 1 + (int)df_rng_below(&j->rng, OPS);
	j->q = df_lanes_sequence_new((uint32_t)j->nr_ranks, go, j);
	ck_assert(j->q != NULL);
	for (i = 0; i < j->nr_ops; i++) {
		j->ops[i].to = -1;
		if (df_rng_below(&j->rng, 2))
			continue;
		j->ops[i].from = (int)df_rng_below(&j->rng, (uint32_t)j->nr_ranks);
		j->ops[i].to = (j->ops[i].from + 1 +
				(int)df_rng_below(&j->rng, (uint32_t)j->nr_ranks - 1)) %
			       j->nr_ranks;
	}
	for (r = 0; r < j->nr_ranks; r++) {
		struct unit *u = NULL;

		for (i = 0; i < j->nr_ops; i++) {
			k = (int)df_rng_below(&j->rng, (uint32_t)i + 1);
			order[i] = order[grouped ? i : k];
			order[grouped ? i : k] = i;
		}
		for (i = 0; i < j->nr_ops; i++) {
			if (!takes_part(&j->ops[order[i]], r))
				continue;
			if (!u || !grouped || df_rng_below(&j->rng, 2))
				u = &j->units[r][++j->nr_units[r]];
			u->ops[u->nr++] = order[i];
		}
	}
}

static void check(struct job *j, const char *what, uint64_t seed)
{
	int r;

	for (r = 0; r < j->nr_ranks; r++)
		ck_assert_msg(j->at[r] == j->nr_units[r],
			      "%s, seed %llu: rank %d ended %d of %d units, %d launched", what,
			      (unsigned long long)seed, r, j->at[r], j->nr_units[r], j->nr_lane[r]);
	df_lanes_sequence_free(j->q);
}

/* Each rank has an order of its own, and is ready with its operations in any order. */
START_TEST(t_any_order)
{
	uint64_t seed = df_test_seed();
	int n, r, i, left;

	for (n = 0; n < 20000 / df_test_slow(); n++, seed++) {
		make(&job, seed, 0);
		for (left = 0, r = 0; r < job.nr_ranks; r++)
			left += job.nr_units[r];
		while (left) {
			r = (int)df_rng_below(&job.rng, (uint32_t)job.nr_ranks);
			i = 1 + (int)df_rng_below(&job.rng, OPS);
			if (i > job.nr_units[r] || job.units[r][i].arrived)
				continue;
			arrive(&job, r, i);
			left--;
		}
		check(&job, "any order", seed);
	}
}
END_TEST

/*
 * All ranks have one order, but different groups. A thread may wait for the end of a unit before it
 * issues the next one. Such a program ends with NCCL.
 */
START_TEST(t_groups)
{
	uint64_t seed = df_test_seed();
	int n, r, idle, next[RANKS];

	for (n = 0; n < 20000 / df_test_slow(); n++, seed++) {
		make(&job, seed, 1);
		for (r = 0; r < RANKS; r++)
			next[r] = 1;
		for (idle = 0; idle < 1000; idle++) {
			r = (int)df_rng_below(&job.rng, (uint32_t)job.nr_ranks);
			if (next[r] > job.nr_units[r])
				continue;
			/* Two of three ranks wait. */
			if (next[r] > 1 && (r + n) % 3 && !job.units[r][next[r] - 1].ended)
				continue;
			arrive(&job, r, next[r]++);
			idle = 0;
		}
		check(&job, "groups", seed);
	}
}
END_TEST

static uint32_t gone[16], nr_gone;

static void note(void *arg, uint32_t rank, uint32_t unit)
{
	(void)arg;
	gone[nr_gone++] = rank << 8 | unit;
}

START_TEST(t_short)
{
	struct df_lanes_sequence *q = df_lanes_sequence_new(2, note, NULL);

	nr_gone = 0;
	/* Rank 0's first message to rank 1 goes at once, the next one when that is received. */
	ck_assert_int_eq(df_lanes_sequence_add(q, 0, 1, 11, 2, 0, 1, 2, 1), 0);
	ck_assert_int_eq(nr_gone, 1);
	ck_assert_int_eq(df_lanes_sequence_add(q, 0, 2, 12, 2, 0, 1, 2, 1), 0);
	ck_assert_int_eq(nr_gone, 1);
	ck_assert_int_eq(df_lanes_sequence_add(q, 1, 1, 11, 2, 1, 1, 0, 1), 0);
	ck_assert_int_eq(nr_gone, 3);
	ck_assert_int_eq(gone[1], 1 << 8 | 1);
	ck_assert_int_eq(gone[2], 2);
	ck_assert_int_eq(df_lanes_sequence_add(q, 1, 2, 12, 2, 1, 1, 0, 1), 0);
	ck_assert_int_eq(nr_gone, 4);
	/* While one is in the buffer, the receive of another one would get it. */
	ck_assert_int_eq(df_lanes_sequence_add(q, 0, 3, 21, 2, 0, 1, 2, 1), 0);
	ck_assert_int_eq(nr_gone, 5);
	ck_assert_int_eq(df_lanes_sequence_add(q, 0, 4, 22, 2, 0, 1, 0, 1), 0);
	ck_assert_int_eq(df_lanes_sequence_add(q, 1, 3, 22, 2, 1, 1, 0, 1), 0);
	ck_assert_int_eq(nr_gone, 5);
	ck_assert_int_eq(df_lanes_sequence_add(q, 1, 4, 21, 2, 1, 1, 0, 1), 0);
	ck_assert_int_eq(nr_gone, 8);
	ck_assert_int_eq(gone[5], 1 << 8 | 4);
	/* Contradictions are refused. */
	ck_assert_int_eq(df_lanes_sequence_add(q, 2, 1, 33, 2, 0, 1, 0, 1), -EPROTO);
	ck_assert_int_eq(df_lanes_sequence_add(q, 0, 5, 23, 2, 0, 1, 0, 1), 0);
	ck_assert_int_eq(df_lanes_sequence_add(q, 1, 5, 23, 3, 1, 1, 0, 1), -EPROTO);
	ck_assert_int_eq(df_lanes_sequence_add(q, 1, 5, 23, 2, 0, 1, 0, 1), -EPROTO);
	df_lanes_sequence_free(q);
}
END_TEST

int main(void)
{
	return DF_TESTS("sequence", {t_any_order}, {t_groups}, {t_short});
}
