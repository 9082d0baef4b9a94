/*
 * Description: with order by priority, a large slice moves without its block's lock
 * (df_policy.let). Meanwhile another thread executes more urgent operations, and no others. Here
 * several threads execute each block, with the lock released in any slice. Meanwhile operations are
 * submitted and become more urgent, and a thread takes the block from all of them, as an abort
 * does. Results must be exact. ThreadSanitizer reports accesses that the lock does not order. The
 * seed is printed on failure.
 */
#include <check.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>
#include "runtime/base/lock.h"
#include "tests/kernels/world.h"
#include "tests/lib/test.h"

#ifndef NR_WORLDS
#define NR_WORLDS 60 /* smaller in a sanitizer's build */
#endif
#define NR_THREADS 3 /* for each block */

static const struct shape one = {DF_COLL_ALLREDUCE, 64, DF_PROTO_SIMPLE, DF_ALGO_AUTO};
static struct world w;
static uint64_t seed;
static uint32_t over, stuck, go;
static void *page;

/* Takes the lock. Returns 0 if it was not free for 10 s. */
static int take(struct df_kblock *blk)
{
	int i;

	for (i = 0; i < 10000; i++) {
		if (df_trylock_try((struct df_trylock *)&blk->lock))
			return 1;
		usleep(1000);
	}
	return 0;
}

/*
 * Handles the fault of a slice that reads protected memory: the slice moves until the test sets
 * `go`.
 */
static void hold(int sig)
{
	(void)sig;
	/* RELEASE and ACQUIRE pair with those in test_beside(). */
	__atomic_store_n(&stuck, 1, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&go, __ATOMIC_ACQUIRE))
		;
	mprotect(page, 4096, PROT_READ | PROT_WRITE);
}

static void *mover(void *arg)
{
	int i;

	(void)arg;
	df_block_take(w.blk[0]);
	for (i = 0; i < 1000 && !w.rc[0][0].done; i++)
		df_block_turn(&w.d[0], w.blk[0]);
	df_block_let(w.blk[0]);
	return NULL;
}

START_TEST(test_beside)
{
	struct sigaction act = {.sa_handler = hold};
	struct df_rng r;
	pthread_t t;
	int i;

	df_rng_init(&r, 1);
	young = 1;
	shape = &one;
	setup(&w, &r, 1, 1, 3, 1);
	w.d[0].policy.order = 1;
	w.d[0].policy.share = 5;
	w.d[0].policy.let = 64;
	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(page, MAP_FAILED);
	memcpy(page, w.rc[0][0].in[0], w.rc[0][0].in_elems * 4);
	w.rc[0][0].in[0] = page;
	ck_assert_int_eq(mprotect(page, 4096, PROT_NONE), 0);
	sigaction(SIGSEGV, &act, NULL);
	submit(&w, 0, 0, 0, 0);
	w.rc[0][0].inst[0].priority = 0;
	pthread_create(&t, NULL, mover, NULL);
	while (!__atomic_load_n(&stuck, __ATOMIC_ACQUIRE))
		usleep(100);
	ck_assert_msg(take(w.blk[0]), "the lock is held while the slice moves");
	/* Another operation of the same priority must not start meanwhile. */
	submit(&w, 0, 1, 0, 0);
	w.rc[1][0].inst[0].priority = 0;
	for (i = 0; i < 100; i++)
		ck_assert_int_eq(df_block_turn(&w.d[0], w.blk[0]), DF_TURN_TAKEN);
	submit(&w, 0, 2, 0, 0);
	w.rc[2][0].inst[0].priority = 1;
	for (i = 0; i < 100 && !w.rc[2][0].done; i++)
		df_block_turn(&w.d[0], w.blk[0]);
	ck_assert_uint_eq(w.rc[2][0].done, 1);
	ck_assert_uint_eq(w.rc[1][0].done, 0);
	ck_assert_uint_eq(w.blk[0]->moving, 1);
	df_block_let(w.blk[0]);
	__atomic_store_n(&go, 1, __ATOMIC_RELEASE);
	pthread_join(t, NULL);
	df_block_take(w.blk[0]);
	for (i = 0; i < 100; i++)
		df_block_turn(&w.d[0], w.blk[0]);
	for (i = 0; i < 3; i++)
		result(&w, i, 0, 0, 0);
	ck_assert_uint_eq(w.blk[0]->moving, 0);
	clear(&w, 0);
	munmap(page, 4096);
}
END_TEST

static void *block(void *arg)
{
	int k = (int)(intptr_t)arg, i, moved;

	/* RELAXED: no data depends on the flag. */
	while (!__atomic_load_n(&over, __ATOMIC_RELAXED)) {
		df_block_take(w.blk[k]);
		for (i = moved = 0; i < 8; i++)
			moved |= df_block_turn(&w.d[k], w.blk[k]) == DF_TURN_PROGRESS;
		df_block_let(w.blk[k]);
		if (!moved)
			sched_yield();
	}
	return NULL;
}

/* Takes the block as df_engine_purge() does: afterwards no other thread executes it. */
static void own(int k)
{
	__atomic_add_fetch(&w.d[k].quit, 1, __ATOMIC_RELAXED);
	for (;; sched_yield()) {
		df_block_take(w.blk[k]);
		if (!w.blk[k]->moving)
			break;
		df_block_let(w.blk[k]);
	}
	df_block_purge(&w.d[k], w.blk[k]);
	ck_assert_uint_eq(w.blk[k]->moving, 0);
	df_block_let(w.blk[k]);
	__atomic_sub_fetch(&w.d[k].quit, 1, __ATOMIC_RELAXED);
}

START_TEST(test_threads)
{
	pthread_t threads[MAX_RANKS][NR_THREADS];
	int seen[MAX_RANKS][MAX_COLLS] = {0}, at[MAX_RANKS] = {0};
	struct df_rng r;
	int n, nc, k, i, left;

	seed = df_test_seed() * 1000 + (uint64_t)_i;
	df_rng_init(&r, seed ^ 0x1e7);
	over = 0;
	young = 0;
	shape = NULL;
	w.by_ref = below(&r, 4) ? 80 : 0;
	n = 1 + (int)below(&r, 3);
	nc = 2 + (int)below(&r, 4);
	setup(&w, &r, n, 1, nc, MAX_INST);
	for (k = 0; k < n; k++) {
		w.d[k].policy.order = 1;
		w.d[k].policy.let = 1;
		for (i = 0; i < NR_THREADS; i++)
			pthread_create(&threads[k][i], NULL, block, (void *)(intptr_t)k);
	}
	do {
		k = (int)below(&r, (uint64_t)n);
		if (at[k] < nc * MAX_INST && below(&r, 3) == 0 && room(&w, k, 8)) {
			submit(&w, k, at[k] % nc, at[k] / nc, below(&r, 2) == 0);
			at[k]++;
		}
		if (below(&r, 8) == 0 && room(&w, k, 8))
			lend(&w, k, (int)below(&r, (uint64_t)nc), (int)below(&r, MAX_INST),
			     (int32_t)below(&r, 6) - 1);
		if (below(&r, 64) == 0)
			own(k);
		ring(&w.rc[below(&r, (uint64_t)nc)][k], (int)below(&r, MAX_INST));
		look(&w, k, seen[k], seed);
		left = 0;
		for (i = 0; i < n * nc; i++)
			left += seen[i % n][i / n] != MAX_INST;
	} while (left);
	__atomic_store_n(&over, 1, __ATOMIC_RELAXED);
	for (k = 0; k < n; k++)
		for (i = 0; i < NR_THREADS; i++)
			pthread_join(threads[k][i], NULL);
	clear(&w, seed);
}
END_TEST

int main(void)
{
	return DF_TESTS("let", {test_beside, 1}, {test_threads, NR_WORLDS / df_test_slow()});
}
