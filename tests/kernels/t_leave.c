/*
 * Description: when a block leaves a GPU by itself: after a time without progress, later if it only waits for a peer,
 * at once if it is asked to. The clock is the test's. And what it tells the host before: the end of an operation at once, what
 * else there is with it, with its counters, when the ring is full, at the latest when it leaves.
 */
#include <check.h>
#include <string.h>
#include "kernels/port.h"
#define DFK_WAYS       2
#define DFK_LOOK_EVERY 4
#include "kernels/abi.h"
#include "kernels/reduce.h"
#include "kernels/daemon.inl"
#include "tests/lib/test.h"

#define QUIT_NS 1000

static uint64_t now;

uint64_t dfk_now_ns(void)
{
	return now;
}

static struct df_kdaemon d;
static struct dfk_local local;

#define NR_SLOTS 4

static struct df_kblock home;
static struct df_cqe slots[NR_SLOTS];

static void enter(void)
{
	static struct df_kblock *blocks = &home;

	memset(&home, 0, sizeof(home));
	/* Shared memory is not cleared. */
	memset(&local, 0x5a, sizeof(local));
	memset(&d, 0, sizeof(d));
	home.cq.slots = slots;
	home.cq.mask = NR_SLOTS - 1;
	d.blocks = blocks;
	d.policy.quit_ns = QUIT_NS;
	now = 123456789;
	dfk_block_enter(&local, &d, 0);
}

/* Turns of that kind, each of so many ns, until the block leaves; the time that it took, or 0: never within many. */
static uint64_t stays(enum df_turn turn, uint64_t ns)
{
	uint64_t from = now;
	int i;

	for (i = 0; i < 100000; i++, now += ns)
		if (dfk_leaves(&local, turn))
			return now - from;
	return 0;
}

START_TEST(idle)
{
	enum df_turn turn = _i ? DF_TURN_SPIN : DF_TURN_EMPTY;
	uint64_t ns;

	enter();
	ns = stays(turn, 7);
	ck_assert_uint_ge(ns, QUIT_NS);
	ck_assert_uint_le(ns, QUIT_NS + 5 * 7);
	ck_assert_uint_eq(local.blk.stats.quits, 1);
}
END_TEST

START_TEST(patient)
{
	uint64_t ns;

	enter();
	dfk_able(&local.blk);
	ns = stays(DF_TURN_SPIN, 7);
	ck_assert_uint_ge(ns, DFK_PATIENCE * QUIT_NS);
	ck_assert_uint_le(ns, DFK_PATIENCE * QUIT_NS + 5 * 7);
	/* What a peer has done by now is no reason to be patient with the next one. */
	enter();
	dfk_able(&local.blk);
	ck_assert_int_eq(dfk_leaves(&local, DF_TURN_PROGRESS), 0);
	ck_assert_uint_le(stays(DF_TURN_SPIN, 7), QUIT_NS + 5 * 7);
}
END_TEST

/* Something moves now and then: it stays, however long that goes on, and whatever the clock does in between. */
START_TEST(busy)
{
	int i, k;

	enter();
	ck_assert_uint_eq(stays(DF_TURN_PROGRESS, QUIT_NS), 0);
	for (i = 0; i < 1000; i++) {
		for (k = 0; k < 90; k++, now += 10)
			ck_assert_int_eq(dfk_leaves(&local, DF_TURN_SPIN), 0);
		ck_assert_int_eq(dfk_leaves(&local, DF_TURN_PROGRESS), 0);
	}
	ck_assert_uint_eq(local.blk.stats.quits, 0);
}
END_TEST

START_TEST(asked)
{
	enum df_turn turn = _i ? DF_TURN_PROGRESS : DF_TURN_SPIN;
	int i, left = 0;

	enter();
	for (i = 0; i < 3; i++)
		ck_assert_int_eq(dfk_leaves(&local, turn), 0);
	d.quit = 1;
	for (i = 0; i < DFK_LOOK_EVERY && !left; i++)
		left = dfk_leaves(&local, turn);
	ck_assert_int_eq(left, 1);
	/* That was not its own decision. */
	ck_assert_uint_eq(local.blk.stats.quits, 0);
}
END_TEST

START_TEST(tells)
{
	struct df_kinst inst = {.op = 7};
	struct df_kcoll coll = {0};
	struct dfk_hot original = {.ctx = {.coll = &coll, .cur = &inst}}; /* home NULL: it is one */
	uint32_t i;

	enter();
	dfk_cq_push(&local.blk, DF_CQE_START, &original.ctx);
	ck_assert_uint_eq(home.cq.tail, 0);
	dfk_cq_push(&local.blk, DF_CQE_DONE, &original.ctx);
	ck_assert_uint_eq(home.cq.tail, 2);
	ck_assert_uint_eq(slots[0].kind, DF_CQE_START);
	ck_assert_uint_eq(slots[1].kind, DF_CQE_DONE);
	dfk_cq_push(&local.blk, DF_CQE_PREEMPT, &original.ctx);
	ck_assert_uint_eq(home.cq.tail, 2);
	dfk_publish(&local.blk);
	ck_assert_uint_eq(home.cq.tail, 3);
	/* The host takes nothing: the ring fills up, and what is in it can be taken. */
	for (i = 0; i < 3; i++)
		dfk_cq_push(&local.blk, DF_CQE_RESUME, &original.ctx);
	ck_assert_uint_eq(home.cq.tail, NR_SLOTS);
	ck_assert_uint_eq(home.cq.lost, 0);
	home.cq.head = 2;
	dfk_cq_push(&local.blk, DF_CQE_START, &original.ctx);
	ck_assert_uint_eq(home.cq.tail, NR_SLOTS);
	dfk_block_leave(&local);
	ck_assert_uint_eq(home.cq.tail, NR_SLOTS + 1);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("leave");
	TCase *t = tcase_create("all");

	tcase_add_loop_test(t, idle, 0, 2);
	tcase_add_test(t, patient);
	tcase_add_test(t, busy);
	tcase_add_loop_test(t, asked, 0, 2);
	tcase_add_test(t, tells);
	suite_add_tcase(s, t);
	return df_test_run(s);
}
