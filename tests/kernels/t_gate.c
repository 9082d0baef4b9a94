/*
 * Description: collectives in graphs, with threads. Each rank's graph announces the arrival of a
 * collective, waits for its gate, reads the result and closes the gate, for each collective of each
 * replay. Meanwhile all replays are submitted, and one thread for each block executes them. Results
 * are read without any other synchronisation, so ThreadSanitizer reports accesses that the gate
 * does not order. The seed is printed on failure.
 */
#include <check.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <unistd.h>
#include "runtime/base/hash.h"
#include "tests/kernels/world.h"
#include "tests/lib/test.h"

#ifndef NR_WORLDS
#define NR_WORLDS 30 /* smaller in a sanitizer's build */
#endif

static const struct shape split = {DF_COLL_ALLREDUCE, 300, DF_PROTO_SIMPLE, DF_ALGO_TREE};
static struct world w;
static struct df_kgate gates[MAX_COLLS][MAX_RANKS];
static uint64_t seed;
static uint32_t over;

struct who {
	pthread_t thread;
	int k, b;
};

static void *block(void *arg)
{
	const struct who *me = arg;
	/* Some blocks are slow, so others finish an instance long before them. */
	int slow = df_hash_u64(seed, (uint64_t)(me->k * 4 + me->b)) % 3 == 0;

	/* RELAXED: no data depends on the flag. */
	while (!__atomic_load_n(&over, __ATOMIC_RELAXED)) {
		if (df_block_turn(&w.d[me->k], &w.blk[me->k][me->b]) != DF_TURN_PROGRESS)
			sched_yield();
		else if (slow)
			usleep(20);
	}
	return NULL;
}

static void *graph(void *arg)
{
	int k = ((const struct who *)arg)->k, m, c;

	for (m = 0; m < w.ni; m++)
		for (c = 0; c < w.nc; c++) {
			struct rank_coll *rc = &w.rc[c][k];
			struct df_kgate *g = rc->gate;

			if (!rc->k.nr_blocks)
				continue;
			ring(rc, m);
			/*
			 * RELEASE pairs with the ACQUIRE of dfk_waits_over(), as a stream's
			 * write does.
			 */
			__atomic_store_n(&g->arrived, 1, __ATOMIC_RELEASE);
			/*
			 * ACQUIRE pairs with the RELEASE of open in dfk_finish(), as a stream's
			 * wait does.
			 */
			while (!__atomic_load_n(&g->open, __ATOMIC_ACQUIRE))
				sched_yield();
			result(&w, c, k, m, seed);
			__atomic_store_n(&g->open, 0, __ATOMIC_RELAXED);
		}
	return NULL;
}

/* Waits until each block's ring has room for the submissions of one instance. */
static void await_room(int k)
{
	int i;

	for (i = 0; i < w.nb; i++) {
		const struct df_ring *sq = &w.blk[k][i].sq;

		/* ACQUIRE pairs with the RELEASE of head in dfk_sq_taken(). */
		while (sq->tail - __atomic_load_n(&sq->head, __ATOMIC_ACQUIRE) + 16 > sq->mask)
			sched_yield();
	}
}

START_TEST(replays)
{
	struct who blocks[MAX_RANKS][4], graphs[MAX_RANKS];
	struct df_rng r;
	int n, k, b, c, m;

	seed = df_test_seed() * 1000 + (uint64_t)_i;
	df_rng_init(&r, seed ^ 0x9a7e);
	over = 0;
	memset(gates, 0, sizeof(gates));
	n = 1 + (int)below(&r, 3);
	young = 1;
	/* In a tree, reduction and broadcast are executed by different blocks. */
	shape = _i % 2 ? &split : NULL;
	setup(&w, &r, n, 1 + (int)below(&r, 3), 1 + (int)below(&r, 3), MAX_INST);
	for (k = 0; k < n; k++) {
		for (c = 0; c < w.nc; c++)
			w.rc[c][k].gate = &gates[c][k];
		for (b = 0; b < w.nb; b++) {
			blocks[k][b] = (struct who){.k = k, .b = b};
			pthread_create(&blocks[k][b].thread, NULL, block, &blocks[k][b]);
		}
	}
	/*
	 * All replays are submitted before the graphs start, so that no graph arrives before its
	 * inputs exist.
	 */
	for (m = 0; m < w.ni; m++) {
		for (k = 0; k < n; k++)
			for (c = 0; c < w.nc; c++) {
				await_room(k);
				submit(&w, k, c, m, 1);
			}
		for (k = 0; m == w.ni - 1 && k < n; k++) {
			graphs[k] = (struct who){.k = k};
			pthread_create(&graphs[k].thread, NULL, graph, &graphs[k]);
		}
	}
	for (k = 0; k < n; k++)
		pthread_join(graphs[k].thread, NULL);
	/* The daemon opens the gate before it writes `done`. */
	for (k = 0; k < n; k++)
		for (c = 0; c < w.nc; c++) {
			/* ACQUIRE pairs with the RELEASE of done in dfk_finish(). */
			while (__atomic_load_n(&w.rc[c][k].done, __ATOMIC_ACQUIRE) !=
			       (uint64_t)w.ni)
				sched_yield();
			if (w.rc[c][k].k.nr_blocks)
				ck_assert_uint_eq(gates[c][k].opened, (uint64_t)w.ni);
			ck_assert_uint_eq(gates[c][k].arrived, 0);
		}
	__atomic_store_n(&over, 1, __ATOMIC_RELAXED);
	for (k = 0; k < n; k++)
		for (b = 0; b < w.nb; b++)
			pthread_join(blocks[k][b].thread, NULL);
	clear(&w, seed);
}
END_TEST

int main(void)
{
	return DF_TESTS("gate", {replays, NR_WORLDS});
}
