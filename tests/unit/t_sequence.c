/*
 * Description: the order that rank 0 decides (DFSHIM_NCCL_ORDER=agree): random programs in which
 * each rank has its own order of issue all end on lanes that execute one unit after the other; so
 * do programs with groups that end with NCCL, whatever their threads wait for in between. Each
 * receive gets its own message. Short messages end without a receive.
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
	int from, to, is_short;
	int running[RANKS], ended;
};

struct unit {
	int ops[OPS], nr, arrived, launched, begun, ended;
};

/* The messages from one rank to another, in the order in which lanes begin them. */
struct pair {
	struct {
		int op[OPS], nr;
	} sends, receives;
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
	struct pair pairs[RANKS][RANKS];
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

/* The lane's next unit begins: NCCL gives the n-th receive of a pair the n-th message. */
static void begin(struct job *j, int rank, struct unit *u)
{
	int i, n;

	u->begun = 1;
	for (i = 0; i < u->nr; i++) {
		struct op *o = &j->ops[u->ops[i]];
		struct pair *p = o->to < 0 ? NULL : &j->pairs[o->from][o->to];

		o->running[rank] = 1;
		if (!p)
			continue;
		if (o->from == rank)
			p->sends.op[n = p->sends.nr++] = u->ops[i];
		else
			p->receives.op[n = p->receives.nr++] = u->ops[i];
		ck_assert(n >= p->sends.nr || n >= p->receives.nr ||
			  p->sends.op[n] == p->receives.op[n]);
	}
}

/* Whether the unit's message is in the buffer: so are those before it that have no receive. */
static int is_buffered(const struct job *j, const struct unit *u, int op)
{
	const struct op *o = &j->ops[op];
	const struct pair *p = &j->pairs[o->from][o->to];
	int n, i;

	for (n = 0; n < p->sends.nr && o->is_short; n++) {
		if (p->sends.op[n] == op)
			return 1;
		for (i = 0; i < u->nr && u->ops[i] != p->sends.op[n];)
			i++;
		if (!j->ops[p->sends.op[n]].ended &&
		    (i == u->nr || !j->ops[p->sends.op[n]].is_short))
			return 0;
	}
	return 0;
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
			if (!u->begun)
				begin(j, r, u);
			for (i = 0; i < u->nr; i++) {
				struct op *o = &j->ops[u->ops[i]];
				int here = 1;

				for (k = 0; k < j->nr_ranks; k++)
					here &= !takes_part(o, k) || o->running[k];
				moved |= here && !o->ended;
				o->ended |= here;
				all &= o->ended || (o->from == r && is_buffered(j, u, u->ops[i]));
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
		struct df_lanes_message m = {(uint32_t)(o->to == rank ? o->from : o->to),
					     o->is_short};

		ret = df_lanes_sequence_add(j->q, (uint32_t)rank, (uint32_t)unit,
					    (uint64_t)u->ops[i] + 1,
					    o->to < 0 ? (uint32_t)j->nr_ranks : 2,
					    o->to < 0 ? (uint32_t)rank : o->to == rank,
					    o->to < 0 ? NULL : &m, i + 1 == u->nr);
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
		j->ops[i].from = j->ops[i].to = -1;
		if (df_rng_below(&j->rng, 2))
			continue;
		j->ops[i].from = (int)df_rng_below(&j->rng, (uint32_t)j->nr_ranks);
		j->ops[i].to = (j->ops[i].from + 1 +
				(int)df_rng_below(&j->rng, (uint32_t)j->nr_ranks - 1)) %
			       j->nr_ranks;
		j->ops[i].is_short = (int)df_rng_below(&j->rng, 2);
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

static struct df_lanes_sequence *begin_noted(void)
{
	struct df_lanes_sequence *q = df_lanes_sequence_new(3, note, NULL);

	ck_assert(q != NULL);
	nr_gone = 0;
	return q;
}

/* A message, the unit's last operation if `last`. */
static int message(struct df_lanes_sequence *q, uint32_t rank, uint32_t unit, uint64_t key,
		   uint32_t side, uint32_t peer, int is_short, int last)
{
	struct df_lanes_message m = {peer, is_short};

	return df_lanes_sequence_add(q, rank, unit, key, 2, side, &m, last);
}

static int sends(struct df_lanes_sequence *q, uint32_t unit, uint64_t key, int is_short)
{
	return message(q, 0, unit, key, 0, 1, is_short, 1);
}

static int receives(struct df_lanes_sequence *q, uint32_t unit, uint64_t key)
{
	return message(q, 1, unit, key, 1, 0, 0, 1);
}

static void expect_gone(uint32_t nr, uint32_t rank, uint32_t unit)
{
	ck_assert_int_eq(nr_gone, nr);
	ck_assert_int_eq(gone[nr - 1], rank << 8 | unit);
}

START_TEST(t_short)
{
	struct df_lanes_sequence *q = begin_noted();

	/* Rank 0's first message to rank 1 goes at once, the next one when that is received. */
	ck_assert_int_eq(sends(q, 1, 11, 1), 0);
	ck_assert_int_eq(nr_gone, 1);
	ck_assert_int_eq(sends(q, 2, 12, 1), 0);
	ck_assert_int_eq(nr_gone, 1);
	ck_assert_int_eq(receives(q, 1, 11), 0);
	ck_assert_int_eq(gone[1], 1 << 8 | 1);
	expect_gone(3, 0, 2);
	ck_assert_int_eq(receives(q, 2, 12), 0);
	ck_assert_int_eq(nr_gone, 4);
	/* While one is in the buffer, the receive of another one would get it. */
	ck_assert_int_eq(sends(q, 3, 21, 1), 0);
	ck_assert_int_eq(nr_gone, 5);
	ck_assert_int_eq(sends(q, 4, 22, 0), 0);
	ck_assert_int_eq(receives(q, 3, 22), 0);
	ck_assert_int_eq(nr_gone, 5);
	ck_assert_int_eq(receives(q, 4, 21), 0);
	ck_assert_int_eq(nr_gone, 8);
	ck_assert_int_eq(gone[5], 1 << 8 | 4);
	/* Contradictions are refused. */
	ck_assert_int_eq(message(q, 3, 1, 33, 0, 1, 0, 1), -EPROTO);
	ck_assert_int_eq(message(q, 0, 5, 33, 0, 3, 0, 1), -EPROTO);
	ck_assert_int_eq(sends(q, 5, 23, 0), 0);
	ck_assert_int_eq(message(q, 1, 5, 23, 1, 2, 0, 1), -EPROTO);
	ck_assert_int_eq(df_lanes_sequence_add(q, 1, 5, 23, 3, 1, NULL, 1), -EPROTO);
	ck_assert_int_eq(sends(q, 5, 23, 0), -EPROTO);
	df_lanes_sequence_free(q);
}
END_TEST

/*
 * Rank 0 sends to rank 1 and receives from rank 2 in a group, and then sends a short message to
 * rank 1. Rank 1 receives both in the same order.
 */
static void group_then_short(int first_is_short)
{
	struct df_lanes_sequence *q = begin_noted();

	ck_assert_int_eq(message(q, 0, 1, 11, 0, 1, first_is_short, 0), 0);
	ck_assert_int_eq(message(q, 0, 1, 12, 1, 2, 0, 1), 0);
	ck_assert_int_eq(nr_gone, 0);
	ck_assert_int_eq(message(q, 2, 1, 12, 0, 0, 0, 1), 0);
	ck_assert_int_eq(nr_gone, 2);
	ck_assert_int_eq(sends(q, 2, 13, 1), 0);
	ck_assert_int_eq(nr_gone, 2);
	ck_assert_int_eq(receives(q, 1, 11), 0);
	ck_assert_int_eq(gone[2], 1 << 8 | 1);
	expect_gone(4, 0, 2);
	ck_assert_int_eq(receives(q, 2, 13), 0);
	expect_gone(5, 1, 2);
	df_lanes_sequence_free(q);
}

START_TEST(t_group_then_short)
{
	struct df_lanes_sequence *q;

	group_then_short(0);
	group_then_short(1);
	/* The group's short message does not keep rank 0 waiting. */
	q = begin_noted();
	ck_assert_int_eq(message(q, 0, 1, 11, 0, 1, 1, 0), 0);
	ck_assert_int_eq(message(q, 0, 1, 12, 1, 2, 0, 1), 0);
	ck_assert_int_eq(message(q, 2, 1, 12, 0, 0, 0, 1), 0);
	ck_assert_int_eq(message(q, 0, 2, 13, 0, 2, 0, 1), 0);
	ck_assert_int_eq(nr_gone, 2);
	ck_assert_int_eq(message(q, 2, 2, 13, 1, 0, 0, 1), 0);
	ck_assert_int_eq(nr_gone, 4);
	df_lanes_sequence_free(q);
	/* Two messages of a group in the buffer are received in their order. */
	q = begin_noted();
	ck_assert_int_eq(message(q, 0, 1, 11, 0, 1, 1, 0), 0);
	ck_assert_int_eq(message(q, 0, 1, 12, 0, 1, 1, 1), 0);
	ck_assert_int_eq(nr_gone, 1);
	ck_assert_int_eq(receives(q, 1, 12), 0);
	ck_assert_int_eq(nr_gone, 1);
	ck_assert_int_eq(receives(q, 2, 11), 0);
	ck_assert_int_eq(gone[1], 1 << 8 | 2);
	expect_gone(3, 1, 1);
	df_lanes_sequence_free(q);
}
END_TEST

int main(void)
{
	return DF_TESTS("sequence", {t_any_order}, {t_groups}, {t_short}, {t_group_then_short});
}
