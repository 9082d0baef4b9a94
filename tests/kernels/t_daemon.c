/*
 * Limit: 300 s
 *
 * Description: the daemon executes every built-in program of several ranks under random preemption.
 * Blocks of all ranks get turns in random order with random policies. Submissions arrive at random
 * moments and in a different order on every rank, so tasks are preempted at every instruction.
 * Results must be exact, and every counter must have its final value. Ranks that disagree take a
 * common order, and later their own again. Connectors use all protocols. Some collectives are old:
 * their positions are about to wrap the flags of low-latency words, or precede a lap on which all
 * words are written (tests/kernels/t_words.c tests those more closely). The seed is printed on
 * failure.
 */
#include <check.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/abi.h"
#include "kernels/daemon.h"
#include "runtime/base/rng.h"
#include "runtime/program/proto.h"
#include "tests/kernels/world.h"
#include "tests/lib/test.h"

#ifndef NR_WORLDS
#define NR_WORLDS 150 /* smaller in a sanitizer's build */
#endif

/*
 * With order by priority, the queue is sorted, and each task has the priority of its most urgent
 * unfinished instance.
 */
static void check_order(const struct df_kblock *blk, uint64_t seed)
{
	const struct df_kctx *ctx;

	for (ctx = blk->first; ctx; ctx = ctx->next) {
		const struct rank_coll *rc =
			(const void *)((const char *)ctx->coll - offsetof(struct rank_coll, k));
		int32_t most = rc->inst[ctx->finished - rc->past].priority;
		uint64_t m;

		for (m = ctx->finished; m < ctx->announced; m++)
			if (rc->inst[m - rc->past].priority > most)
				most = rc->inst[m - rc->past].priority;
		ck_assert_msg(
			ctx->priority == most && (!ctx->next || ctx->next->priority <= most),
			"seed %llu: a task of priority %d (its instances: %d) before one of %d",
			(unsigned long long)seed, ctx->priority, most,
			ctx->next ? ctx->next->priority : 0);
	}
}

/* Runs a random world. With `by_priority`, instances also become more urgent at random moments. */
static void run(uint64_t seed, int n, int nb, int nc, int ni, int by_priority)
{
	static struct world w;
	struct df_rng r;
	int order[MAX_RANKS][MAX_COLLS * MAX_INST], at[MAX_RANKS] = {0};
	int k, c, m, i, left;
	int seen[MAX_RANKS][MAX_COLLS] = {0};
	uint64_t turns = 0;

	df_rng_init(&r, seed);
	w.by_ref = below(&r, 4) ? 80 : 0;
	setup(&w, &r, n, nb, nc, ni);
	for (k = 0; k < n; k++) {
		w.d[k].policy.order |= (uint32_t)by_priority;
		for (i = 0; i < nc * ni; i++)
			order[k][i] = i % nc;
		for (i = nc * ni - 1; i > 0; i--) {
			int j = (int)below(&r, (uint64_t)i + 1), t = order[k][i];

			order[k][i] = order[k][j];
			order[k][j] = t;
		}
	}
	do {
		k = (int)below(&r, (uint64_t)n);
		if (at[k] < nc * ni && below(&r, 3) == 0) {
			c = order[k][at[k]];
			for (m = i = 0; i < at[k]; i++)
				m += order[k][i] == c;
			submit(&w, k, c, m, below(&r, 2) == 0);
			at[k]++;
		}
		if (by_priority && below(&r, 8) == 0 && room(&w, k, 40))
			lend(&w, k, (int)below(&r, (uint64_t)nc), (int)below(&r, (uint64_t)ni),
			     (int32_t)below(&r, 6) - 1);
		ring(&w.rc[below(&r, (uint64_t)nc)][k], (int)below(&r, (uint64_t)ni));
		i = (int)below(&r, (uint64_t)nb);
		df_block_turn(&w.d[k], &w.blk[k][i]);
		look(&w, k, seen[k], seed);
		if (w.d[k].policy.order && turns % 8 == 0) {
			SETTLE(&w.blk[k][i]);
			check_order(&w.blk[k][i], seed);
		}
		left = 0;
		if (++turns % 256 == 0)
			for (k = 0; k < n; k++)
				for (c = 0; c < nc; c++)
					left += w.rc[c][k].done != (uint64_t)ni;
		else
			left = 1;
		ck_assert_msg(turns < 40000000, "seed %llu: no end in sight (n %d, blocks %d)",
			      (unsigned long long)seed, n, nb);
	} while (left);
	for (i = 0; i < nc * n; i++)
		ck_assert_int_eq(seen[i % n][i / n], ni);
	clear(&w, seed);
}

START_TEST(test_random)
{
	struct df_rng r;
	uint64_t seed = df_test_seed() * 1000 + (uint64_t)_i;

	df_rng_init(&r, seed ^ 0x5eed);
	run(seed, (int)below(&r, 8) + 1, (int)below(&r, 3) + 1, (int)below(&r, MAX_COLLS) + 1,
	    (int)below(&r, 3) + 1, 0);
}
END_TEST

START_TEST(test_priorities)
{
	struct df_rng r;
	uint64_t seed = df_test_seed() * 1000 + (uint64_t)_i;

	df_rng_init(&r, seed ^ 0x97f4);
	run(seed, (int)below(&r, 8) + 1, (int)below(&r, 3) + 1, (int)below(&r, MAX_COLLS) + 1,
	    (int)below(&r, 3) + 1, 1);
}
END_TEST

static void turns(struct world *w, int k, int nr)
{
	while (nr--)
		df_block_turn(&w->d[k], w->blk[k]);
}

/* Returns the bytes that a full slice adds to the block's account of its share. */
static uint64_t slice_work(const struct rank_coll *rc)
{
	return rc->k.tile_elems * 4 + 512;
}

/*
 * Returns the bytes that a rank's only block has moved in a collective, as the block accounts for
 * them. The last slice of an instance may be short.
 */
static uint64_t moved(const struct rank_coll *rc)
{
	uint64_t each = rc->k.loops * rc->k.ctx[0].nr_inst;
	uint64_t slices = rc->k.ctx[0].k - rc->past * each;

	return slices / each * rc->k.ctx[0].nr_inst * (rc->k.count * 4 + rc->k.loops * 512) +
	       slices % each * slice_work(rc);
}

/*
 * Two collectives of one rank, so no slice ever waits. All instances of one are urgent, none of the
 * other. While urgent ones remain, the bulk must get exactly its share. It may differ by one
 * distribution, one slice of its own, and its share for one urgent slice.
 */
START_TEST(test_share)
{
	static const uint32_t shares[] = {0, 20, 50, 80};
	static struct world w;
	struct df_rng r;
	uint64_t bulk, urgent, due, more, less;
	uint32_t share = shares[_i];
	int m, c;

	df_rng_init(&r, df_test_seed());
	for (;;) {
		young = 1;
		setup(&w, &r, 1, 1, 2, MAX_INST);
		for (c = 0; c < 2 && w.kind[c] == DF_COLL_ALLREDUCE && w.count[c] >= 1000; c++)
			;
		if (c == 2)
			break;
		clear(&w, 0);
	}
	w.d[0].policy.order = 1;
	w.d[0].policy.share = share;
	for (m = 0; m < MAX_INST; m++)
		for (c = 0; c < 2; c++) {
			submit(&w, 0, c, m, 0);
			w.rc[c][0].inst[m].priority = c;
		}
	do {
		turns(&w, 0, 1);
		SETTLE(w.blk[0]);
	} while (w.rc[1][0].done != MAX_INST && w.rc[0][0].done != MAX_INST);
	bulk = moved(&w.rc[0][0]);
	urgent = moved(&w.rc[1][0]);
	due = share ? urgent * share / (100 - share) : 0;
	more = 65536 * (share != 0) + slice_work(&w.rc[0][0]);
	less = 65536 + slice_work(&w.rc[0][0]) + slice_work(&w.rc[1][0]) * share / (100 - share);
	if (w.rc[0][0].done != MAX_INST)
		ck_assert_msg(bulk <= due + more && bulk + less >= due,
			      "share %u: %llu bytes beside %llu urgent ones", share,
			      (unsigned long long)bulk, (unsigned long long)urgent);
	if (share >= 50)
		ck_assert_msg(bulk > 0, "share %u: nothing has moved", share);
	turns(&w, 0, 100000);
	for (m = 0; m < MAX_INST; m++)
		for (c = 0; c < 2; c++)
			result(&w, c, 0, m, df_test_seed());
	clear(&w, df_test_seed());
}
END_TEST

/* A root whose receiver is late sends as much as there are slots, and the rest afterwards. */
START_TEST(test_slots)
{
	static const struct shape small = {DF_COLL_BROADCAST, 8, DF_PROTO_LL, DF_ALGO_AUTO};
	static struct world w;
	uint64_t seed = df_test_seed() * 1000 + (uint64_t)_i;
	const struct df_kconn *tx;
	struct df_rng r;
	int m, root;

	df_rng_init(&r, seed);
	young = 1;
	shape = &small;
	setup(&w, &r, 2, 1, 1, MAX_INST);
	shape = NULL;
	root = w.root[0];
	tx = &w.rc[0][root].conns[0];
	ck_assert_uint_lt(tx->nr_slots, MAX_INST);
	for (m = 0; m < MAX_INST; m++)
		submit(&w, root, 0, m, 0);
	turns(&w, root, 1000);
	SETTLE(w.blk[root]);
	ck_assert_msg(w.hdrs[0]->tail == tx->nr_slots, "seed %llu: %llu slices in %u slots",
		      (unsigned long long)seed, (unsigned long long)w.hdrs[0]->tail, tx->nr_slots);
	for (m = 0; m < MAX_INST; m++)
		submit(&w, !root, 0, m, 0);
	for (m = 0; m < 2000; m++)
		turns(&w, m % 2, 1);
	for (m = 0; m < MAX_INST; m++)
		result(&w, 0, !root, m, seed);
	clear(&w, seed);
}
END_TEST

static void finish_round(struct world *w, int m)
{
	int i;

	for (i = 0; i < 100000; i++)
		turns(w, i % 2, 1);
	for (i = 0; i < 4; i++)
		ck_assert_uint_eq(w->rc[i / 2][i % 2].done, (uint64_t)m + 1);
}

static int begins_with_sending(const struct rank_coll *rc)
{
	const struct df_inst *first = df_prog_inst(rc->prog, rc->k.ctx[0].first_inst);

	return rc->k.ctx[0].nr_inst && first->send_conn != DF_NO_CONN &&
	       first->recv_conn == DF_NO_CONN;
}

START_TEST(test_common_order)
{
	static struct world w;
	struct df_rng r;
	int m, k, low, late;

	df_rng_init(&r, df_test_seed() + (uint64_t)_i);
	for (;;) {
		young = 1;
		setup(&w, &r, 2, 1, 2, MAX_INST);
		for (k = 0; k < 4 && begins_with_sending(&w.rc[k / 2][k % 2]); k++)
			;
		if (k == 4 && w.kind[0] == DF_COLL_ALLREDUCE && w.kind[1] == DF_COLL_ALLREDUCE)
			break;
		clear(&w, 0);
	}
	low = w.rc[0][0].k.id > w.rc[1][0].k.id; /* the first in the common order */
	for (k = 0; k < 2; k++) {
		w.d[k].policy.order = 0;
		w.d[k].policy.gang = 4;
	}
	for (m = 0; m < MAX_INST; m++) {
		/*
		 * In rounds 1 and 2 the ranks submit in different orders. In the other rounds one
		 * rank is late.
		 */
		int disagree = m == 1 || m == 2;

		submit(&w, 1, disagree ? low : !low, m, 0);
		submit(&w, 1, disagree ? !low : low, m, 0);
		late = m != 1 && below(&r, 2);
		if (!late)
			turns(&w, 1, 1); /* starts its first operation */
		submit(&w, 0, !low, m, 0);
		submit(&w, 0, low, m, 0);
		turns(&w, 0, 100);
		SETTLE(w.blk[0]);
		/*
		 * The share is measured from the first operation that shows the priority until an
		 * operation of round 3 has finished. One may already have finished here, so round 3
		 * is not checked. Queued operations keep their places.
		 */
		if (m != 3)
			ck_assert_uint_eq(w.blk[0]->gang, m == 1 || m == 2);
		if (m != 3 && w.blk[0]->nr_tasks == 2)
			ck_assert_ptr_eq(w.blk[0]->first, w.rc[m == 2 ? low : !low][0].k.ctx);
		finish_round(&w, m);
		SETTLE(w.blk[0]);
		SETTLE(w.blk[1]);
		ck_assert_uint_eq(w.blk[0]->gang, m == 1 || m == 2);
		ck_assert(m < 3 || !w.blk[1]->gang);
	}
	clear(&w, df_test_seed() + (uint64_t)_i);
}
END_TEST

int main(void)
{
	/* The same worlds in every run of the test. */
	setenv("SEED", "1", 0);
	return DF_TESTS("daemon", {test_random, NR_WORLDS / df_test_slow()},
			{test_priorities, NR_WORLDS / df_test_slow()}, {test_share, 4},
			{test_slots, 20}, {test_common_order, 20});
}
