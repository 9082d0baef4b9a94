/*
 * Description: when a block leaves a GPU by itself: after a time without progress, later if it only waits for a peer,
 * at once if it is asked to. The clock is the test's.
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

static void enter(void)
{
	static struct df_kblock home;
	static struct df_kblock *blocks = &home;

	memset(&home, 0, sizeof(home));
	/* Shared memory is not cleared. */
	memset(&local, 0x5a, sizeof(local));
	memset(&d, 0, sizeof(d));
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

int main(void)
{
	Suite *s = suite_create("leave");
	TCase *t = tcase_create("all");

	tcase_add_loop_test(t, idle, 0, 2);
	tcase_add_test(t, patient);
	tcase_add_test(t, busy);
	tcase_add_loop_test(t, asked, 0, 2);
	suite_add_tcase(s, t);
	return df_test_run(s);
}
