/*
 * Description: when blocks quit: all together after a time without progress, later if a block only
 * waits for a peer, at once on request. The test controls the clock. Also what a block reports to
 * the host: the end of an operation at once; other completions and its counters together with it,
 * or when the ring is full, or at the latest when the block quits.
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

#define BLOCKS	 3
#define NR_SLOTS 4

static struct df_kdaemon d;
/* local: of block 0; others[i]: of block i (others[0] is unused) */
static struct dfk_local local, others[BLOCKS];
static struct df_kblock homes[BLOCKS], *const home = homes;
static struct df_cqe slots[BLOCKS][NR_SLOTS];
static struct dfk_heed heeds[BLOCKS];

static int leaves(struct dfk_local *l, enum df_turn turn)
{
	return dfk_leaves(l, turn, &heeds[l->home - homes]);
}

static void come(struct dfk_local *l, uint32_t block)
{
	/* A GPU does not clear shared memory. */
	memset(l, 0x5a, sizeof(*l));
	memset(&heeds[block], 0, sizeof(heeds[block]));
	dfk_block_enter(l, &d, block);
}

/* Sets up a daemon of `blocks` blocks. Only block 0 has started. */
static void enter(uint32_t blocks)
{
	uint32_t i;

	memset(homes, 0, sizeof(homes));
	memset(&d, 0, sizeof(d));
	for (i = 0; i < BLOCKS; i++) {
		homes[i].cq.slots = slots[i];
		homes[i].cq.mask = NR_SLOTS - 1;
	}
	d.blocks = homes;
	d.nr_blocks = blocks;
	d.policy.quit_ns = QUIT_NS;
	now = 123456789;
	come(&local, 0);
}

/*
 * Gives turns of this kind, each `ns` long, until the block quits. Returns how long it stayed, or 0
 * if it did not quit in 100,000 turns.
 */
static uint64_t stays(enum df_turn turn, uint64_t ns)
{
	uint64_t from = now;
	int i;

	for (i = 0; i < 100000; i++, now += ns)
		if (leaves(&local, turn))
			return now - from;
	return 0;
}

/*
 * Gives turns until the block has looked once; with progress, it uses what it has read one turn
 * later. Returns whether it quits.
 */
static int looks(struct dfk_local *l, enum df_turn turn)
{
	int i;

	for (i = 0; i < DFK_LOOK_EVERY + (turn == DF_TURN_PROGRESS); i++)
		if (leaves(l, turn))
			return 1;
	return 0;
}

START_TEST(idle)
{
	enum df_turn turn = _i ? DF_TURN_SPIN : DF_TURN_EMPTY;
	/* A block without any task quits earlier. */
	uint64_t ns, time = _i ? QUIT_NS : QUIT_NS / DFK_HASTE;

	enter(1);
	ns = stays(turn, 7);
	ck_assert_uint_ge(ns, time);
	ck_assert_uint_le(ns, time + 2 * DFK_LOOK_EVERY * 7);
	ck_assert_uint_eq(local.blk.stats.quits, 1);
}
END_TEST

START_TEST(patient)
{
	uint64_t ns;

	enter(1);
	dfk_able(&local.blk);
	ns = stays(DF_TURN_SPIN, 7);
	ck_assert_uint_ge(ns, DFK_PATIENCE * QUIT_NS);
	ck_assert_uint_le(ns, DFK_PATIENCE * QUIT_NS + 2 * DFK_LOOK_EVERY * 7);
	/* A peer's earlier progress does not make the block wait longer for the next one. */
	enter(1);
	dfk_able(&local.blk);
	ck_assert_int_eq(leaves(&local, DF_TURN_PROGRESS), 0);
	ck_assert_uint_le(stays(DF_TURN_SPIN, 7), QUIT_NS + 2 * DFK_LOOK_EVERY * 7);
}
END_TEST

/* With progress from time to time the block stays for any length of time. */
START_TEST(busy)
{
	int i, k;

	enter(1);
	ck_assert_uint_eq(stays(DF_TURN_PROGRESS, QUIT_NS), 0);
	for (i = 0; i < 1000; i++) {
		for (k = 0; k < 90; k++, now += 10)
			ck_assert_int_eq(leaves(&local, DF_TURN_SPIN), 0);
		ck_assert_int_eq(leaves(&local, DF_TURN_PROGRESS), 0);
	}
	ck_assert_uint_eq(local.blk.stats.quits, 0);
}
END_TEST

/*
 * A block that makes progress begins to read the host's words in one turn and uses them in the
 * next, so it notices a submission without waiting for the bus.
 */
START_TEST(notices)
{
	int i;

	enter(1);
	ck_assert_int_eq(leaves(&local, DF_TURN_PROGRESS), 0);
	home->sq.tail = 1;
	for (i = 0; !heeds[0].begun; i++) {
		ck_assert_int_lt(i, DFK_LOOK_EVERY);
		local.blk.task = (struct df_kctx *)(void *)&d; /* it has work */
		ck_assert_int_eq(dfk_look(&local.blk), 0);
		ck_assert_int_eq(leaves(&local, DF_TURN_PROGRESS), 0);
	}
	ck_assert_uint_eq(heeds[0].tail, 1);
	ck_assert_int_eq(dfk_look(&local.blk), 0);
	ck_assert_int_eq(leaves(&local, DF_TURN_PROGRESS), 0);
	ck_assert_int_eq(dfk_look(&local.blk), 1);
}
END_TEST

START_TEST(asked)
{
	enum df_turn turn = _i ? DF_TURN_PROGRESS : DF_TURN_SPIN;
	int i;

	enter(1);
	for (i = 0; i < 3; i++)
		ck_assert_int_eq(leaves(&local, turn), 0);
	d.quit = 1;
	ck_assert_int_eq(looks(&local, turn), 1);
	/* A quit on request is not counted as the block's own. */
	ck_assert_uint_eq(local.blk.stats.quits, 0);
}
END_TEST

/* No block quits while another has work. When the last one is idle, all quit. */
START_TEST(together)
{
	struct dfk_local *o1 = &others[1], *o2 = &others[2];

	enter(BLOCKS);
	come(o1, 1);
	come(o2, 2);
	now += 2 * QUIT_NS;
	ck_assert_int_eq(looks(o1, DF_TURN_PROGRESS) | looks(o2, DF_TURN_SPIN), 0);
	ck_assert_uint_eq(stays(DF_TURN_EMPTY, 7), 0);
	ck_assert_int_eq(looks(o2, DF_TURN_SPIN), 0);
	/* Block 1 becomes idle; then block 2 gets work. */
	ck_assert_int_eq(looks(o1, DF_TURN_SPIN), 0);
	now += QUIT_NS;
	ck_assert_int_eq(looks(o2, DF_TURN_PROGRESS) | looks(o1, DF_TURN_SPIN) |
				 looks(&local, DF_TURN_EMPTY),
			 0);
	ck_assert_uint_eq(d.leave, 0);
	ck_assert_int_eq(looks(o2, DF_TURN_EMPTY), 0);
	now += QUIT_NS;
	ck_assert_int_eq(looks(o2, DF_TURN_EMPTY), 1);
	dfk_block_leave(o2);
	/*
	 * A block quits even if it has work by now, because the host cannot launch a single block.
	 */
	ck_assert_int_eq(looks(&local, DF_TURN_PROGRESS), 1);
	ck_assert_int_eq(looks(o1, DF_TURN_SPIN), 1);
	ck_assert_uint_eq(local.blk.stats.quits + o1->blk.stats.quits + o2->blk.stats.quits, 1);
}
END_TEST

/*
 * A block that starts after the others have quit runs for QUIT_NS before it follows them, even with
 * progress.
 */
START_TEST(late)
{
	struct dfk_local *o = &others[1];

	enter(2);
	ck_assert_uint_ge(stays(DF_TURN_SPIN, 7), QUIT_NS);
	dfk_block_leave(&local);
	now += 5 * QUIT_NS;
	come(o, 1);
	ck_assert_int_eq(looks(o, DF_TURN_PROGRESS) | looks(o, DF_TURN_PROGRESS), 0);
	now += QUIT_NS - 1;
	ck_assert_int_eq(looks(o, DF_TURN_PROGRESS), 0);
	now++;
	ck_assert_int_eq(looks(o, DF_TURN_PROGRESS), 1);
	/* A request to quit is followed at once, also by a block that has just started. */
	come(o, 1);
	d.quit = 1;
	ck_assert_int_eq(looks(o, DF_TURN_PROGRESS), 1);
}
END_TEST

/*
 * Whether the ring contains a completion of this kind and value at `index`, with the lap bit of
 * that index.
 */
static int told(uint32_t index, enum df_cqe_kind kind, uint64_t value)
{
	const struct df_cqe *e = &slots[0][index & (NR_SLOTS - 1)];
	uint64_t lap = index / NR_SLOTS % 2 == 0;

	return (e->coll & 7) == ((uint64_t)kind << 1 | lap) && e->value == (value << 1 | lap);
}

START_TEST(tells)
{
	struct df_kinst inst = {.op = 7, .done_value = 9};
	struct df_kcoll coll = {0};
	struct dfk_hot original = {/* home is NULL: this is the original context, not a copy */
				   .ctx = {.coll = &coll, .cur = &inst, .k = 300}};
	uint32_t i;

	enter(1);
	ck_assert(!told(0, DF_CQE_DONE, 0));
	dfk_cq_push(&local.blk, DF_CQE_START, &original.ctx);
	ck_assert(told(0, DF_CQE_START, 7));
	dfk_cq_push(&local.blk, DF_CQE_DONE, &original.ctx);
	ck_assert(told(1, DF_CQE_DONE, 9));
	ck_assert_uint_eq(slots[0][1].coll & ~7ull, (uintptr_t)&coll);
	dfk_cq_push(&local.blk, DF_CQE_PREEMPT, &original.ctx);
	ck_assert(told(2, DF_CQE_PREEMPT, 7));
	ck_assert_uint_eq(slots[0][2].k, 300);
	ck_assert_uint_eq(slots[0][2].block, 0);
	/* The host reads no entry: the ring fills up, and its entries stay readable. */
	for (i = 3; i < NR_SLOTS + 2; i++)
		dfk_cq_push(&local.blk, DF_CQE_RESUME, &original.ctx);
	ck_assert(told(NR_SLOTS - 1, DF_CQE_RESUME, 7));
	ck_assert(told(0, DF_CQE_START, 7));
	ck_assert_uint_eq(home->cq.lost, 0);
	dfk_cq_push(&local.blk, DF_CQE_DONE, &original.ctx);
	ck_assert_uint_eq(home->cq.lost, 1);
	home->cq.head = 2;
	ck_assert(!told(NR_SLOTS, DF_CQE_DONE, 9));
	dfk_cq_push(&local.blk, DF_CQE_DONE, &original.ctx);
	ck_assert(told(NR_SLOTS, DF_CQE_DONE, 9));
	dfk_block_leave(&local);
	ck_assert_uint_eq(home->cq.tail, NR_SLOTS + 1);
}
END_TEST

/*
 * The start of an operation is reported when the operation has to wait, or with events 2 (trace) at
 * once. It is reported only once.
 */
START_TEST(starts)
{
	struct df_kinst inst = {.op = 7};
	struct df_kcoll coll = {.loops = 1, .nr_blocks = 1};
	struct dfk_hot original = {
		.ctx = {.coll = &coll, .cur = &inst, .lead = 1, .nr_inst = 2, .spin = 1}};
	struct df_kctx *ctx = &original.ctx;
	struct dfk_shared sh = {0};
	int i;

	enter(1);
	local.d.policy.events = 1 + (uint32_t)_i;
	local.blk.first = local.blk.last = local.blk.task = local.blk.running = ctx;
	/* The operation has not moved any data yet. */
	dfk_miss(&local.d, &local.blk, &sh, ctx, 1);
	ck_assert_uint_eq(local.blk.cq.tail, 0);
	dfk_accept(&local.d, &local.blk, ctx);
	ck_assert_uint_eq(local.blk.cq.tail, (uint32_t)_i);
	ctx->k = 1;
	for (i = 0; i < 2; i++) {
		dfk_miss(&local.d, &local.blk, &sh, ctx, 1);
		ck_assert_uint_eq(local.blk.cq.tail, 1);
		ck_assert(told(0, DF_CQE_START, 7));
	}
}
END_TEST

int main(void)
{
	return DF_TESTS("leave", {idle, 2}, {patient}, {busy}, {notices}, {asked, 2}, {together},
			{late}, {tells}, {starts, 2});
}
