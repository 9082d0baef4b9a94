/*
 * Description: threads that submit do not wait for a submission queue that no block drains; its
 * entries are read in order.
 */
#include <stdlib.h>
#include "runtime/base/rng.h"
#include "runtime/coll/dev.h"
#include "tests/lib/test.h"

#define NR_BLOCKS 2

/*
 * Reads at most `max` entries of the ring, as dfk_sq_drain() does. They must continue from *next.
 */
static uint32_t drain(struct df_ring *sq, uintptr_t *next, uint32_t max)
{
	const struct df_sq_slot *slots = sq->slots;
	uint32_t head = sq->head, n = 0;

	/* ACQUIRE pairs with the RELEASE in df_sq_put(), as the block's load does. */
	while (n < max && head != __atomic_load_n(&sq->tail, __ATOMIC_ACQUIRE)) {
		const struct df_sqe *e = &slots[head & sq->mask].e;

		ck_assert_uint_eq((uintptr_t)e->inst, (*next)++);
		n++;
		__atomic_store_n(&sq->head, ++head, __ATOMIC_RELEASE); /* pairs with ring_push() */
	}
	return n;
}

START_TEST(t_full)
{
	uintptr_t given[NR_BLOCKS] = {0}, got[NR_BLOCKS] = {0};
	struct df_sqe e = {0};
	struct df_rng r;
	struct df_dev *dev = calloc(1, sizeof(*dev));
	uint32_t b, i, n, left;
	int turn;

	df_rng_init(&r, df_test_seed());
	df_dev_begin(dev, 0);
	ck_assert_int_eq(df_dev_init(dev, NR_BLOCKS), 0);
	df_mutex_lock(&dev->lock);
	for (turn = 0; turn < 200; turn++) {
		b = (uint32_t)df_rng_below(&r, NR_BLOCKS);
		/* No block runs, so a call that waited for one would never return. */
		n = turn ? (uint32_t)df_rng_below(&r, 3000) : 10 * dev->exec.blocks[b].sq.mask;
		for (i = 0; i < n; i++) {
			e.inst = (void *)given[b]++;
			df_sq_push(dev, b, &e);
		}
		b = (uint32_t)df_rng_below(&r, NR_BLOCKS);
		n = (uint32_t)df_rng_below(&r, 4000);
		drain(&dev->exec.blocks[b].sq, &got[b], n);
		if (df_rng_below(&r, 2))
			df_sq_flush(dev);
	}
	do {
		df_sq_flush(dev);
		for (b = left = 0; b < NR_BLOCKS; b++)
			left += drain(&dev->exec.blocks[b].sq, &got[b], ~0u);
	} while (left);
	for (b = 0; b < NR_BLOCKS; b++)
		ck_assert_uint_eq(got[b], given[b]);
	ck_assert_uint_eq(dev->nr_overflow, 0);
	df_mutex_unlock(&dev->lock);
}
END_TEST

int main(void)
{
	return DF_TESTS("submission queue", {t_full});
}
