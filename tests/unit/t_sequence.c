/*
 * Description: the order that rank 0 decides (DFSHIM_NCCL_ORDER=agree). Random programs in which
 * each rank has its own order of issue and its own groups complete on lanes that execute one group
 * after the other, even if a rank is ready with only a part of a group. So do programs with groups
 * that complete with NCCL, whatever their threads wait for in between. Ranks have the same order on
 * their lanes. Each receive gets its own message. Short messages complete without a receive.
 */
#include "tests/lib/test.h"

#include <errno.h>
#include <string.h>

#include "runtime/base/rng.h"
#include "runtime/exec/nccl/sequence.h"

#define RANKS	 4
#define OPS	 24
#define BUFFERED 8 /* messages of a pair that fit into the buffer */

/* An operation of all ranks, or (to >= 0) a message. */
struct op {
	int from, to, is_short;
	uint32_t number; /* of a send: its number among those of the pair that this rank issues */
	int here[RANKS], decided[RANKS], running[RANKS], ended;
};

struct unit {
	int ops[OPS], nr;
};

/* The messages from one rank to another, in the order in which lanes start them. */
struct pair {
	struct {
		int op[OPS], nr;
	} sends, receives;
	uint32_t issued;
};

static struct job {
	struct df_lanes_sequence *q;
	struct df_rng rng;
	int nr_ranks, nr_ops;
	struct op ops[OPS];
	struct unit units[RANKS][OPS + 1]; /* from 1, in order of issue */
	int nr_units[RANKS];
	/* operations in order of launch, and whether a group ends with each */
	int lane[RANKS][OPS], ends[RANKS][OPS];
	int nr_lane[RANKS], at[RANKS], nr_begun[RANKS];
	struct pair pairs[RANKS][RANKS];
} job;

static void go(void *arg, uint32_t rank, uint32_t unit, uint32_t op, int last)
{
	struct job *j = arg;
	int o = j->units[rank][unit].ops[op], at = j->nr_lane[rank]++;

	ck_assert(j->ops[o].here[rank] && !j->ops[o].decided[rank]);
	j->ops[o].decided[rank] = 1;
	j->lane[rank][at] = o;
	j->ends[rank][at] = last;
}

static int takes_part(const struct op *o, int rank)
{
	return o->to < 0 || o->from == rank || o->to == rank;
}

/* Starts an operation on the lane. NCCL gives the n-th receive of a pair the n-th message. */
static void begin(struct job *j, int rank, int op)
{
	struct op *o = &j->ops[op];
	struct pair *p = o->to < 0 ? NULL : &j->pairs[o->from][o->to];
	int n;

	o->running[rank] = 1;
	if (!p)
		return;
	if (o->from == rank)
		p->sends.op[n = p->sends.nr++] = op;
	else
		p->receives.op[n = p->receives.nr++] = op;
	ck_assert(n >= p->sends.nr || n >= p->receives.nr || p->sends.op[n] == p->receives.op[n]);
}

/*
 * Whether the message is in the buffer. Then all earlier messages without a receive are there too.
 */
static int is_buffered(const struct job *j, int op)
{
	const struct op *o = &j->ops[op];
	const struct pair *p = &j->pairs[o->from][o->to];
	int n;

	for (n = p->receives.nr; n < p->sends.nr && n < p->receives.nr + BUFFERED; n++) {
		if (!j->ops[p->sends.op[n]].is_short)
			return 0;
		if (p->sends.op[n] == op)
			return 1;
	}
	return 0;
}

/* Executes a rank's next group as far as possible. Returns 1 if an operation made progress. */
static int execute_group(struct job *j, int r)
{
	int at = j->at[r], moved = 0, all = 1, i, k;

	if (at == j->nr_lane[r])
		return 0;
	for (i = at;; i++) {
		struct op *o = &j->ops[j->lane[r][i]];
		int here = 1;

		ck_assert_int_lt(i, j->nr_lane[r]);
		if (i >= j->nr_begun[r]) {
			begin(j, r, j->lane[r][i]);
			j->nr_begun[r]++;
		}
		for (k = 0; k < j->nr_ranks; k++)
			here &= !takes_part(o, k) || o->running[k];
		moved |= here && !o->ended;
		o->ended |= here;
		all &= o->ended || (o->from == r && is_buffered(j, j->lane[r][i]));
		if (j->ends[r][i])
			break;
	}
	if (all)
		j->at[r] = i + 1;
	return moved || all;
}

/* Executes all lanes until nothing can proceed. */
static void execute(struct job *j)
{
	int moved = 1, r;

	while (moved)
		for (moved = 0, r = 0; r < j->nr_ranks; r++)
			moved |= execute_group(j, r);
}

static void pause_job(struct job *j)
{
	while (df_lanes_sequence_waits(j->q)) {
		ck_assert_int_eq(df_lanes_sequence_pause(j->q), 0);
		execute(j);
	}
}

/* Adds an operation of a unit to the sequence, because its rank is ready with it. */
static void arrive(struct job *j, int rank, int unit, int op)
{
	struct unit *u = &j->units[rank][unit];
	struct op *o = &j->ops[u->ops[op]];
	struct df_lanes_item it = {.key = (uint64_t)u->ops[op] + 1,
				   .unit = (uint32_t)unit,
				   .op = (uint32_t)op,
				   .nr = (uint32_t)u->nr,
				   .need = o->to < 0 ? (uint32_t)j->nr_ranks : 2,
				   .side = o->to < 0 ? (uint32_t)rank : o->to == rank};

	if (o->to >= 0) {
		it.message = (uint32_t)(o->to == rank ? o->from : o->to) + 1;
		it.number = o->number;
		it.is_short = o->from == rank && o->is_short;
	}
	o->here[rank] = 1;
	ck_assert_int_eq(df_lanes_sequence_add(j->q, (uint32_t)rank, &it), 0);
	execute(j);
}

/* Whether the rank's thread may go on after the unit. */
static int unit_ended(const struct job *j, int rank, int unit)
{
	const struct unit *u = &j->units[rank][unit];
	int i;

	for (i = 0; i < u->nr; i++) {
		const struct op *o = &j->ops[u->ops[i]];

		if (!o->ended &&
		    !(o->from == rank && o->running[rank] && is_buffered(j, u->ops[i])))
			return 0;
	}
	return 1;
}

/*
 * Makes ranks, operations, and each rank's units: grouped at random, in the order of `ops` or in
 * the rank's own order.
 */
static void make(struct job *j, uint64_t seed, int own_order)
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
			k = own_order ? (int)df_rng_below(&j->rng, (uint32_t)i + 1) : i;
			order[i] = order[k];
			order[k] = i;
		}
		for (i = 0; i < j->nr_ops; i++) {
			struct op *o = &j->ops[order[i]];

			if (!takes_part(o, r))
				continue;
			if (!u || df_rng_below(&j->rng, 2))
				u = &j->units[r][++j->nr_units[r]];
			u->ops[u->nr++] = order[i];
			if (o->from == r)
				o->number = j->pairs[r][o->to].issued++;
		}
	}
}

/*
 * Checks that all operations have ended, and that all lanes have the operations that they share in
 * the same order.
 */
static void check(struct job *j, const char *what, uint64_t seed)
{
	int r, i, k, last[RANKS][RANKS] = {0}, place[RANKS][OPS];

	for (i = 0; i < j->nr_ops; i++)
		ck_assert_msg(j->ops[i].ended, "%s, seed %llu: operation %d has not ended", what,
			      (unsigned long long)seed, i);
	for (r = 0; r < j->nr_ranks; r++)
		for (i = 0; i < j->nr_lane[r]; i++)
			place[r][j->lane[r][i]] = i + 1;
	for (r = 0; r < j->nr_ranks; r++)
		for (i = 0; i < j->nr_lane[r]; i++)
			for (k = 0; k < j->nr_ranks; k++) {
				const struct op *o = &j->ops[j->lane[r][i]];

				if (k == r || o->to >= 0)
					continue;
				ck_assert_int_gt(place[k][j->lane[r][i]], last[r][k]);
				last[r][k] = place[k][j->lane[r][i]];
			}
	df_lanes_sequence_free(j->q);
}

/* Each rank has its own order and groups, and is ready with its operations at random times. */
START_TEST(t_any_order)
{
	uint64_t seed = df_test_seed();
	int n, r, i, k, left;

	for (n = 0; n < 20000 / df_test_slow(); n++, seed++) {
		make(&job, seed, 1);
		for (left = 0, r = 0; r < job.nr_ranks; r++)
			for (i = 1; i <= job.nr_units[r]; i++)
				left += job.units[r][i].nr;
		while (left) {
			r = (int)df_rng_below(&job.rng, (uint32_t)job.nr_ranks);
			i = 1 + (int)df_rng_below(&job.rng, OPS);
			if (i > job.nr_units[r])
				continue;
			k = (int)df_rng_below(&job.rng, (uint32_t)job.units[r][i].nr);
			if (job.ops[job.units[r][i].ops[k]].here[r])
				continue;
			arrive(&job, r, i, k);
			left--;
			if (!df_rng_below(&job.rng, 4))
				pause_job(&job);
		}
		pause_job(&job);
		check(&job, "any order", seed);
	}
}
END_TEST

/*
 * All ranks have the same order but different groups. A thread may wait for the end of a unit
 * before it issues the next one. Such a program completes with NCCL.
 */
START_TEST(t_groups)
{
	uint64_t seed = df_test_seed();
	int n, r, i, idle, next[RANKS];

	for (n = 0; n < 20000 / df_test_slow(); n++, seed++) {
		make(&job, seed, 0);
		for (r = 0; r < RANKS; r++)
			next[r] = 1;
		for (idle = 0; idle < 100; idle++) {
			r = (int)df_rng_below(&job.rng, (uint32_t)job.nr_ranks);
			if (next[r] > job.nr_units[r])
				continue;
			/* Two of three ranks wait. */
			if (next[r] > 1 && (r + n) % 3 && !unit_ended(&job, r, next[r] - 1)) {
				pause_job(&job);
				continue;
			}
			for (i = 0; i < job.units[r][next[r]].nr; i++)
				arrive(&job, r, next[r], i);
			next[r]++;
			idle = 0;
		}
		pause_job(&job);
		check(&job, "groups", seed);
	}
}
END_TEST

static uint32_t gone[16], nr_gone;

static void note(void *arg, uint32_t rank, uint32_t unit, uint32_t op, int last)
{
	(void)arg;
	(void)last;
	gone[nr_gone++] = rank << 16 | unit << 8 | op;
}

static struct df_lanes_sequence *begin_noted(void)
{
	struct df_lanes_sequence *q = df_lanes_sequence_new(3, note, NULL);

	ck_assert(q != NULL);
	nr_gone = 0;
	return q;
}

static void pause_twice(struct df_lanes_sequence *q)
{
	ck_assert_int_eq(df_lanes_sequence_pause(q), 0);
	ck_assert_int_eq(df_lanes_sequence_pause(q), 0);
}

/* Rank 0 sends a message to rank 1, in a unit of its own. */
static int sends(struct df_lanes_sequence *q, uint32_t unit, uint64_t key, int is_short)
{
	struct df_lanes_item it = {.key = key,
				   .unit = unit,
				   .nr = 1,
				   .need = 2,
				   .message = 2,
				   .number = unit - 1,
				   .is_short = is_short != 0};

	return df_lanes_sequence_add(q, 0, &it);
}

static int receives(struct df_lanes_sequence *q, uint32_t unit, uint64_t key)
{
	struct df_lanes_item it = {
		.key = key, .unit = unit, .nr = 1, .need = 2, .side = 1, .message = 1};

	return df_lanes_sequence_add(q, 1, &it);
}

static void expect_gone(uint32_t nr, uint32_t rank, uint32_t unit, uint32_t op)
{
	ck_assert_int_eq(nr_gone, nr);
	ck_assert_int_eq(gone[nr - 1], rank << 16 | unit << 8 | op);
}

START_TEST(t_short)
{
	struct df_lanes_sequence *q = begin_noted();
	struct df_lanes_item it;
	uint32_t i;

	/* Messages without a receive are launched at once, as far as the buffer has room. */
	for (i = 1; i <= BUFFERED; i++) {
		ck_assert_int_eq(sends(q, i, 100 + i, 1), 0);
		expect_gone(i, 0, i, 0);
	}
	ck_assert_int_eq(sends(q, i, 100 + i, 1), 0);
	pause_twice(q);
	expect_gone(BUFFERED, 0, BUFFERED, 0);
	ck_assert(!df_lanes_sequence_waits(q));
	/* The second receive would get the first message, so it waits for the first one. */
	ck_assert_int_eq(receives(q, 1, 102), 0);
	pause_twice(q);
	ck_assert_int_eq(nr_gone, BUFFERED);
	ck_assert_int_eq(receives(q, 2, 101), 0);
	expect_gone(BUFFERED + 1, 1, 2, 0);
	pause_twice(q);
	ck_assert_int_eq(gone[BUFFERED + 1], 0 << 16 | (BUFFERED + 1) << 8);
	expect_gone(BUFFERED + 3, 1, 1, 0);
	df_lanes_sequence_free(q);

	/* A message does not overtake an earlier one in the buffer, unless it is received first. */
	q = begin_noted();
	ck_assert_int_eq(sends(q, 2, 12, 1), 0);
	pause_twice(q);
	ck_assert_int_eq(nr_gone, 0);
	ck_assert_int_eq(receives(q, 1, 12), 0);
	ck_assert_int_eq(nr_gone, 2);
	/* Contradictory calls are refused. */
	it = (struct df_lanes_item){.key = 33, .unit = 1, .nr = 1, .need = 2, .message = 1};
	ck_assert_int_eq(df_lanes_sequence_add(q, 3, &it), -EPROTO);
	it.message = 4;
	ck_assert_int_eq(df_lanes_sequence_add(q, 0, &it), -EPROTO);
	it.message = 1;
	it.op = 1;
	ck_assert_int_eq(df_lanes_sequence_add(q, 0, &it), -EPROTO);
	ck_assert_int_eq(sends(q, 5, 23, 0), 0);
	it = (struct df_lanes_item){
		.key = 23, .unit = 5, .nr = 1, .need = 2, .side = 1, .message = 3};
	ck_assert_int_eq(df_lanes_sequence_add(q, 1, &it), -EPROTO);
	it = (struct df_lanes_item){.key = 23, .unit = 6, .nr = 1, .need = 3, .side = 1};
	ck_assert_int_eq(df_lanes_sequence_add(q, 1, &it), -EPROTO);
	ck_assert_int_eq(sends(q, 5, 23, 0), -EPROTO);
	df_lanes_sequence_free(q);
}
END_TEST

/*
 * Rank 0 sends and receives in a group. Rank 1 receives, then waits for its device, which executes
 * the receive and a collective, and then sends. So the parts of the group end one by one, with the
 * collective between them.
 */
START_TEST(t_parts)
{
	struct df_lanes_sequence *q = begin_noted();
	struct df_lanes_item
		send = {.key = 1, .unit = 1, .nr = 2, .need = 2, .message = 2},
		recv = {.key = 2, .unit = 1, .op = 1, .nr = 2, .need = 2, .side = 1, .message = 2},
		coll = {.key = 3, .unit = 2, .nr = 1, .need = 2},
		back = {.key = 2, .unit = 3, .nr = 1, .need = 2, .message = 1};

	ck_assert_int_eq(df_lanes_sequence_add(q, 0, &send), 0);
	ck_assert_int_eq(df_lanes_sequence_add(q, 0, &recv), 0);
	ck_assert_int_eq(receives(q, 1, 1), 0);
	/* At first the group stays together. */
	ck_assert_int_eq(nr_gone, 0);
	pause_twice(q);
	ck_assert_int_eq(gone[0], 0 << 16 | 1 << 8 | 0);
	expect_gone(2, 1, 1, 0);
	ck_assert_int_eq(df_lanes_sequence_add(q, 0, &coll), 0);
	coll.side = 1;
	ck_assert_int_eq(df_lanes_sequence_add(q, 1, &coll), 0);
	expect_gone(4, 1, 2, 0);
	ck_assert_int_eq(df_lanes_sequence_add(q, 1, &back), 0);
	ck_assert_int_eq(gone[4], 1 << 16 | 3 << 8 | 0);
	expect_gone(6, 0, 1, 1);
	df_lanes_sequence_free(q);
}
END_TEST

int main(void)
{
	return DF_TESTS("sequence", {t_any_order}, {t_groups}, {t_short}, {t_parts});
}
