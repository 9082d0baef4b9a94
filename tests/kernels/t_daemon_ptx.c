/*
 * Description: the daemon's kernel as nvcc compiles it, with all its threads, on the PTX emulator,
 * in the worlds of t_daemon.c (which executes the source with one CPU thread). Each rank is a GPU
 * with one to three blocks of 32 to 512 threads. Submissions and inputs arrive while they run, in
 * another order on each rank. Blocks quit by their clock and on request, and are launched again.
 * Results are exact, counters have their final values, and there is no race between the threads of
 * a block, no misaligned access, and no barrier that threads of a warp miss. The seed is printed on
 * failure.
 *
 * An operation that is submitted when no other is in progress costs one read of its slot in the
 * host's ring, and no read of its instance: each dependent read takes a microsecond on a GPU. The
 * words that an operation writes to the host and its fences are counted, and must not exceed the
 * figures in docs/kernels.md.
 *
 * The test uses each $B/kernels/daemon.TARGET.ptx. Without nvcc there is none, and the test is
 * skipped.
 */
#define _GNU_SOURCE
#include <glob.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "runtime/base/time.h"
#include "runtime/device/cuda/launch.h"
#include "tests/cuda/ptx/ptx.h"
#define LINE_WORDS 16
#include "tests/kernels/world.h"
#include "tests/lib/test.h"

static glob_t files;

struct gpu {
	pthread_t thread;
	struct world *w;
	int rank;
	uint64_t seed;
	unsigned int threads;
	const struct ptx_kernel *kernel;
	uint32_t launches;
	/* number of words of 8 bytes, or less, read from rings and from instances */
	uint32_t slot_reads, inst_reads, taking;
	/*
	 * Numbers of words written to the host: the first counts ends of operations and
	 * completions, the second statistics. Atomic.
	 */
	uint32_t told, counted;
	uint32_t fences; /* atomic */
	/*
	 * paced: kernels are launched as the poller does. given: number of operations submitted.
	 * gone: no kernel is running. `given` and `gone` are atomic.
	 */
	int paced, gone;
	uint32_t given;
	struct df_launch life;
	uint64_t copied; /* bytes copied into slots; atomic */
	/* Ended instances of the first collective, reads of their inputs after that; atomic. */
	uint32_t ended, late;
	int faults;
	char fault[1500];
};

static void fault(void *arg, const char *text)
{
	struct gpu *g = arg;

	if (!g->faults++)
		snprintf(g->fault, sizeof(g->fault), "%s", text);
}

static int within(uintptr_t at, const void *of, size_t bytes)
{
	return at - (uintptr_t)of < bytes;
}

static void touched(void *arg, uintptr_t at, unsigned int bytes, int writes)
{
	struct gpu *g = arg;
	const struct rank_coll *rc = &g->w->rc[0][g->rank];
	const void *slots = g->w->blk[g->rank]->sq.slots;
	uint32_t i;

	if (writes) {
		for (i = 0; i < g->w->nr_hdrs; i++)
			if (within(at, g->w->hdrs[i], g->w->bytes[i]) &&
			    at - (uintptr_t)g->w->hdrs[i] >= DF_CONN_SLOTS)
				__atomic_add_fetch(&g->copied, bytes, __ATOMIC_RELAXED);
	}
	if (writes) {
		const struct df_kblock *blk = g->w->blk[g->rank];

		if (within(at, &rc->done, 8))
			__atomic_add_fetch(&g->ended, 1, __ATOMIC_RELAXED);
		if (within(at, &rc->done, 8) ||
		    (rc->gate && within(at, rc->gate, sizeof(*rc->gate))) ||
		    within(at, blk->cq.slots, 8 * sizeof(struct df_cqe)) ||
		    within(at, &blk->cq.tail, 4) || within(at, &blk->sq.head, 4))
			__atomic_add_fetch(&g->told, 1, __ATOMIC_RELAXED);
		if (within(at, &blk->stats, sizeof(blk->stats)))
			__atomic_add_fetch(&g->counted, 1, __ATOMIC_RELAXED);
		return;
	}
	for (i = 0; i < __atomic_load_n(&g->ended, __ATOMIC_RELAXED); i++)
		if (within(at, rc->in[i], 4 * rc->in_elems))
			__atomic_add_fetch(&g->late, 1, __ATOMIC_RELAXED);
	g->inst_reads += within(at, rc->inst, sizeof(rc->inst));
	/* Its words are read in their order; the first one shows whether there is a submission. */
	if (within(at, slots, 64 * sizeof(struct df_sq_slot))) {
		if ((at - (uintptr_t)slots) % sizeof(struct df_sq_slot) == 0)
			/* RELAXED: the block's own load orders it. */
			g->taking = __atomic_load_n((const uint64_t *)at, __ATOMIC_RELAXED) >> 63;
		g->slot_reads += g->taking;
	}
}

static void fenced(void *arg)
{
	struct gpu *g = arg;

	__atomic_add_fetch(&g->fences, 1, __ATOMIC_RELAXED);
}

static int all_done(const struct world *w, int k)
{
	int c, left = 0;

	for (c = 0; c < w->nc; c++)
		/* ACQUIRE pairs with the RELEASE of done in dfk_finish(). */
		left += __atomic_load_n(&w->rc[c][k].done, __ATOMIC_ACQUIRE) != (uint64_t)w->ni;
	return !left;
}

/* Decides about a launch with launch.c, as a process's poller does. */
static int is_due(struct gpu *g)
{
	/* ACQUIRE pairs with the RELEASE of done in dfk_finish(). */
	uint64_t done = __atomic_load_n(&g->w->rc[0][g->rank].done, __ATOMIC_ACQUIRE), sleep_ns;
	/* RELAXED: the launching thread reads it again later. */
	uint32_t given = __atomic_load_n(&g->given, __ATOMIC_RELAXED);
	struct df_launch_in in = {.now_ns = df_now_ns(),
				  .progress = given + done,
				  .outstanding = given != done,
				  .width = 1,
				  .exited = 1};

	return df_launch_step(&g->life, &in, &sleep_ns) == DF_LAUNCH_LAUNCH;
}

/*
 * Runs the daemon of one GPU: launches it again while operations are unfinished, and if `paced`
 * only when launch.c decides so.
 */
static void *daemon_of(void *arg)
{
	struct gpu *g = arg;
	struct df_kdaemon *d = &g->w->d[g->rank];

	while (!all_done(g->w, g->rank) && !g->faults) {
		if (g->paced && !is_due(g)) {
			/* RELAXED: no data depends on the flag. */
			__atomic_store_n(&g->gone, 1, __ATOMIC_RELAXED);
			usleep(100);
			continue;
		}
		__atomic_store_n(&g->gone, 0, __ATOMIC_RELAXED);
		struct ptx_launch l = {
			.kernel = g->kernel,
			.grid = {(unsigned int)g->w->nb, 1, 1},
			.block = {g->threads, 1, 1},
			.params = &d,
			.seed = g->seed + g->launches,
			.weak = g->launches++ % 4 != 3,
			.fault = fault,
			.touched = touched,
			.fenced = fenced,
			.arg = g,
		};

		/* RELAXED: no data depends on these flags; the kernel reads them relaxed too. */
		__atomic_store_n(&d->quit, 0, __ATOMIC_RELAXED);
		__atomic_store_n(&d->leave, 0, __ATOMIC_RELAXED);
		ptx_run(&l);
	}
	return NULL;
}

/* Starts a GPU's thread. *g must be zero except for `paced`. */
static void gpu_start(struct gpu *g, struct world *w, int rank, uint64_t seed, unsigned int threads,
		      const struct ptx_module *m)
{
	g->w = w;
	g->rank = rank;
	g->seed = seed + (uint64_t)rank;
	g->threads = threads;
	g->kernel = ptx_kernel(m, "dfk_daemon");
	pthread_create(&g->thread, NULL, daemon_of, g);
}

static void gpu_quit(const struct gpu *g)
{
	/* RELAXED: no data depends on the flag. */
	__atomic_store_n(&g->w->d[g->rank].quit, 1, __ATOMIC_RELAXED);
}

static void gpu_end(const struct gpu *g, uint64_t seed)
{
	gpu_quit(g);
	pthread_join(g->thread, NULL);
	ck_assert_msg(!g->faults, "seed %llu, rank %d, %u threads: %s", (unsigned long long)seed,
		      g->rank, g->threads, g->fault);
	ck_assert_msg(!g->late, "seed %llu, rank %d, %u threads: %u reads of inputs after the end",
		      (unsigned long long)seed, g->rank, g->threads, g->late);
}

static struct ptx_module *module(const char *path)
{
	FILE *f = fopen(path, "r");
	struct ptx_module *m;
	char *text;
	long len;

	ck_assert_msg(f && fseek(f, 0, SEEK_END) == 0, "can't read %s", path);
	len = ftell(f);
	rewind(f);
	text = malloc((size_t)len + 1);
	ck_assert_uint_eq(fread(text, 1, (size_t)len, f), (size_t)len);
	fclose(f);
	m = ptx_load(text, (size_t)len, path);
	free(text);
	ck_assert_msg(m != NULL, "%s can't be read as PTX", path);
	return m;
}

static void run(struct ptx_module *m, uint64_t seed)
{
	static struct world w;
	struct df_rng r;
	int order[MAX_RANKS][MAX_COLLS * MAX_INST], at[MAX_RANKS] = {0};
	struct gpu g[MAX_RANKS] = {0};
	int seen[MAX_RANKS][MAX_COLLS] = {0};
	int n, nb, nc, ni, k, i, c, inst, left;

	df_rng_init(&r, seed);
	n = 1 + (int)below(&r, 4);
	nb = 1 + (int)below(&r, 3);
	nc = 1 + (int)below(&r, 4);
	ni = 1 + (int)below(&r, 3);
	w.by_ref = 80;
	setup(&w, &r, n, nb, nc, ni);
	for (k = 0; k < n; k++) {
		for (i = 0; i < nc * ni; i++)
			order[k][i] = i % nc;
		for (i = nc * ni - 1; i > 0; i--) {
			int j = (int)below(&r, (uint64_t)i + 1), t = order[k][i];

			order[k][i] = order[k][j];
			order[k][j] = t;
		}
		w.d[k].policy.quit_ns = 200000 + below(&r, 5000000);
		w.d[k].nr_lines = below(&r, 2) ? 2 : 64;
		w.d[k].lines =
			below(&r, 4) ? calloc((size_t)nb * w.d[k].nr_lines, DF_LINE_BYTES) : NULL;
		gpu_start(&g[k], &w, k, seed * 1000, 32u << below(&r, 5), m);
	}
	do {
		k = (int)below(&r, (uint64_t)n);
		if (at[k] < nc * ni) {
			c = order[k][at[k]];
			for (inst = i = 0; i < at[k]; i++)
				inst += order[k][i] == c;
			submit(&w, k, c, inst, below(&r, 2) == 0);
			at[k]++;
		}
		ring(&w.rc[below(&r, (uint64_t)nc)][k], (int)below(&r, (uint64_t)ni));
		/* RELAXED: no data depends on the flag. */
		if (below(&r, 20) == 0)
			__atomic_store_n(&w.d[k].quit, 1, __ATOMIC_RELAXED);
		usleep((useconds_t)below(&r, 2000));
		for (left = k = 0; k < n; k++) {
			left += !all_done(&w, k);
			look(&w, k, seen[k], seed);
			ck_assert_msg(!g[k].faults, "seed %llu, rank %d of %d, %u threads: %s",
				      (unsigned long long)seed, k, n, g[k].threads, g[k].fault);
		}
	} while (left);
	for (k = 0; k < n; k++) {
		gpu_end(&g[k], seed);
		free(w.d[k].lines);
	}
	for (k = 0; k < n; k++)
		for (c = 0; c < nc; c++)
			ck_assert_int_eq(seen[k][c], ni);
	clear(&w, seed);
}

START_TEST(random_worlds)
{
	uint64_t seed = df_test_seed() * 1000 + (uint64_t)_i;
	struct ptx_module *m = module(files.gl_pathv[(size_t)_i % files.gl_pathc]);

	run(m, seed);
	ptx_unload(m);
}
END_TEST

/* One block on each rank, one operation after the other. */
START_TEST(looks)
{
	static struct world w;
	struct df_rng r;
	struct gpu g[2] = {0};
	struct ptx_module *m = module(files.gl_pathv[(size_t)_i % files.gl_pathc]);
	uint64_t seed = df_test_seed() * 1000 + (uint64_t)_i;
	uint32_t words = sizeof(struct df_sq_slot) / 8;
	int k, i;

	df_rng_init(&r, seed);
	young = 1;
	setup(&w, &r, 2, 1, 1, MAX_INST);
	young = 0;
	for (k = 0; k < 2; k++) {
		w.d[k].policy.quit_ns = 100000000000;
		w.d[k].policy.order = 0;
		gpu_start(&g[k], &w, k, seed, 64, m);
	}
	for (i = 0; i < MAX_INST; i++)
		for (k = 0; k < 4; k++)
			if (k < 2)
				submit(&w, k, 0, i, 0);
			else
				/* ACQUIRE pairs with the RELEASE of done in dfk_finish(). */
				while (__atomic_load_n(&w.rc[0][k - 2].done, __ATOMIC_ACQUIRE) <=
				       (uint64_t)i)
					usleep(100);
	for (k = 0; k < 2; k++) {
		int has = w.rc[0][k].k.nr_blocks != 0;

		gpu_end(&g[k], seed);
		ck_assert_uint_le(g[k].launches, 1);
		ck_assert_uint_le(g[k].slot_reads, has ? MAX_INST * words : 0);
		/*
		 * The first operation reads its instance, because its context is not in shared
		 * memory yet.
		 */
		ck_assert_uint_le(g[k].inst_reads, DF_KINST_FIXED / 8);
		for (i = 0; i < MAX_INST; i++)
			result(&w, 0, k, i, seed);
	}
	clear(&w, seed);
	ptx_unload(m);
}
END_TEST

/*
 * The rows of the table in docs/kernels.md: AllReduces of two ranks with one block each. The first
 * operation is not counted.
 */
static const struct cost {
	struct shape shape;
	const char *name;
	enum { AT_ONCE, IN_GRAPH, AFTER_PAUSE } when;
	uint32_t fences, told, reads, launches;
} costs[] = {
#define DF_COST(elements, proto, when, name, fences_before, fences, told_before, told, reads,      \
		launches)                                                                          \
	{{DF_COLL_ALLREDUCE, elements, proto, DF_ALGO_AUTO},                                       \
	 name,                                                                                     \
	 when,                                                                                     \
	 fences,                                                                                   \
	 told,                                                                                     \
	 reads,                                                                                    \
	 launches},
#define DF_COPIES(kind, elements, algo, name, before, now)
#include "tests/kernels/costs.def"
#undef DF_COPIES
#undef DF_COST
};

/*
 * Continues as the graph does after the collective. The block must have cleared `arrived` and
 * opened the gate; this closes the gate for the next replay.
 */
static void pass(struct df_kgate *g, const struct gpu *on, int i, uint64_t seed)
{
	if (!g)
		return;
	/*
	 * ACQUIRE pairs with the RELEASE in dfk_finish(), as the graph's wait does. The counters
	 * may become visible earlier, because the emulator's memory is weakly ordered.
	 */
	while (!__atomic_load_n(&g->open, __ATOMIC_ACQUIRE) && !on->faults)
		usleep(100);
	ck_assert_msg(!g->arrived && g->open == 1 && g->opened == (uint64_t)i + 1,
		      "seed %llu, replay %d: arrived %llu, open %llu, opened %llu",
		      (unsigned long long)seed, i, (unsigned long long)g->arrived,
		      (unsigned long long)g->open, (unsigned long long)g->opened);
	g->open = 0;
}

static void rest(const struct world *w, const struct gpu *g, int i, int pause)
{
	int k;

	/*
	 * The block writes its counters last, when it has no more work. RELAXED: no data depends on
	 * them.
	 */
	for (k = 0; k < w->n; k++)
		while (__atomic_load_n(&w->blk[k]->stats.operations, __ATOMIC_RELAXED) <
			       (uint64_t)i + 1 &&
		       !g[k].faults)
			usleep(100);
	/* A block without work quits. RELAXED, as the store of `gone` is. */
	for (k = 0; pause && k < w->n; k++)
		while (!__atomic_load_n(&g[k].gone, __ATOMIC_RELAXED) && !g[k].faults &&
		       i + 1 < MAX_INST)
			usleep(100);
	usleep(1000);
}

START_TEST(costs_of)
{
	static struct world w;
	const struct cost *cost = &costs[_i];
	struct df_rng r;
	struct gpu g[2] = {0}, from[2];
	static struct df_kgate gates[2];
	struct ptx_module *m = module(files.gl_pathv[files.gl_pathc - 1]);
	uint64_t seed = df_test_seed() * 1000 + (uint64_t)_i;
	int k, i;

	df_rng_init(&r, seed);
	young = 1;
	shape = &cost->shape;
	setup(&w, &r, 2, 1, 1, MAX_INST);
	for (k = 0; k < 2; k++) {
		/*
		 * In AFTER_PAUSE a block must quit: an idle block does so after a twentieth of
		 * quit_ns. That is long enough for operations that follow at once.
		 */
		w.d[k].policy.quit_ns = cost->when == AFTER_PAUSE ? 2000000000 : 100000000000000;
		w.d[k].policy.order = 0;
		w.d[k].policy.events = 1;
		/* A block that waits for the other rank must not publish its counters meanwhile. */
		w.d[k].policy.front = w.d[k].policy.max = 1ll << 40;
		w.rc[0][k].gate = cost->when == IN_GRAPH ? &gates[k] : NULL;
		g[k].paced = 1;
		gpu_start(&g[k], &w, k, seed, 64, m);
	}
	for (i = 0; i < MAX_INST; i++) {
		for (k = 0; k < 2; k++) {
			submit(&w, k, 0, i, 0);
			/* RELAXED: the launching thread reads it again later. */
			__atomic_add_fetch(&g[k].given, 1, __ATOMIC_RELAXED);
		}
		rest(&w, g, i, cost->when == AFTER_PAUSE);
		for (k = 0; k < 2; k++)
			pass(w.rc[0][k].gate, &g[k], i, seed);
		if (!i)
			memcpy(from, g, sizeof(from));
	}
	for (k = 0; k < 2; k++) {
		double n = MAX_INST - 1, fences = (g[k].fences - from[k].fences) / n;
		double told = (g[k].told - from[k].told) / n;
		double reads = (g[k].slot_reads - from[k].slot_reads + g[k].inst_reads -
				from[k].inst_reads) /
			       n;
		double launches = (g[k].launches - from[k].launches) / n;

		printf("%s: rank %d: %.2f fences, %.2f words to the host, %.2f of counters, %.2f "
		       "read, %.2f launches\n",
		       cost->name, k, fences, told, (g[k].counted - from[k].counted) / n, reads,
		       launches);
		ck_assert_msg(fences <= cost->fences, "%.2f fences, at most %u", fences,
			      cost->fences);
		ck_assert_msg(told <= cost->told, "%.2f words, at most %u", told, cost->told);
		ck_assert_msg(reads <= cost->reads, "%.2f words read, at most %u", reads,
			      cost->reads);
		ck_assert_msg(launches == cost->launches, "%.2f launches, not %u", launches,
			      cost->launches);
	}
	for (k = 0; k < 2; k++) {
		gpu_end(&g[k], seed);
		for (i = 0; i < MAX_INST; i++)
			result(&w, 0, k, i, seed);
	}
	clear(&w, seed);
	ptx_unload(m);
}
END_TEST

/*
 * The last word of a slice has arrived and the others never will, because the sending rank has
 * died. The block must not wait for them, and must quit on request.
 */
START_TEST(half_a_slice)
{
	static const struct shape small = {DF_COLL_ALLREDUCE, 64, DF_PROTO_LL, DF_ALGO_ALLPAIRS};
	static struct world w;
	struct df_rng r;
	struct gpu g = {0};
	struct ptx_module *m = module(files.gl_pathv[(size_t)_i % files.gl_pathc]);
	uint64_t seed = df_test_seed() * 1000 + (uint64_t)_i, *words, *sent;

	df_rng_init(&r, seed);
	young = 1;
	shape = &small;
	setup(&w, &r, 2, 1, 1, 1);
	w.d[0].policy.quit_ns = 100000000000;
	words = (uint64_t *)(void *)receiver(&w, 0, 1, 0, 0)->slots;
	words[62] = words[63] = 1ull << 63; /* a word of lap 0 (kernels/words.inl) */
	submit(&w, 0, 0, 0, 0);
	gpu_start(&g, &w, 0, seed, 64, m);
	sent = (uint64_t *)(void *)receiver(&w, 0, 0, 1, 0)->slots;
	/* RELAXED: when the kernel has sent its own slice, it starts to poll the other one. */
	while (!__atomic_load_n(&sent[63], __ATOMIC_RELAXED) && !g.faults)
		usleep(100);
	usleep(20000);
	/* RELEASE, as in dfk_finish(). The launching thread ends when the kernel has quit. */
	__atomic_store_n(&w.rc[0][0].done, 1, __ATOMIC_RELEASE);
	gpu_end(&g, seed);
	ptx_unload(m);
}
END_TEST

/* Submits the first collective nr times on both ranks, whose kernels execute it to the end. */
static void both_execute(struct world *w, struct gpu g[2], int nr, uint64_t seed,
			 unsigned int threads, const struct ptx_module *m)
{
	int k, i;

	for (k = 0; k < 2; k++) {
		w->d[k].policy.quit_ns = 100000000000;
		for (i = 0; i < nr; i++)
			submit(w, k, 0, i, 0);
		gpu_start(&g[k], w, k, seed, threads, m);
	}
	for (k = 0; k < 2; k++)
		while (!all_done(w, k) && !g[k].faults)
			usleep(100);
}

/*
 * Rank 0 or 1 only sends. When its operation ends, all its threads have read their parts of the
 * input: the program may overwrite it then.
 */
START_TEST(only_sends)
{
	static const struct shape small = {DF_COLL_REDUCE, 40, DF_PROTO_LL, DF_ALGO_AUTO};
	static struct world w;
	struct ptx_module *m = module(files.gl_pathv[(size_t)_i % files.gl_pathc]);

	for (int n = 0; n < 20; n++) {
		uint64_t seed = (df_test_seed() * 1000 + (uint64_t)_i) * 100 + (uint64_t)n;
		struct gpu g[2] = {0};
		struct df_rng r;
		int k, i;

		df_rng_init(&r, seed);
		shape = &small;
		setup(&w, &r, 2, 1, 1, MAX_INST);
		shape = NULL;
		w.d[0].policy.order = w.d[1].policy.order = 0;
		both_execute(&w, g, MAX_INST, seed, 256, m);
		for (k = 0; k < 2; k++) {
			gpu_end(&g[k], seed);
			for (i = 0; i < MAX_INST; i++)
				result(&w, 0, k, i, seed);
		}
		clear(&w, seed);
	}
	ptx_unload(m);
}
END_TEST

/*
 * The table of copies in docs/kernels.md: two ranks with one block each, two slots for each
 * connector.
 */
static const struct copies {
	struct shape shape;
	const char *name;
	uint64_t before, now;
} copies[] = {
#define DF_COPIES(kind, elements, algo, name, before, now)                                         \
	{{kind, elements, DF_PROTO_SIMPLE, algo}, name, before, now},
#define DF_COST(elements, proto, when, name, fences_before, fences, told_before, told, reads,      \
		launches)
#include "tests/kernels/costs.def"
#undef DF_COST
#undef DF_COPIES
};

/* Returns the bytes that both ranks copied into slots for one operation. */
static uint64_t copied(const struct copies *what, int by_ref, uint64_t seed)
{
	static struct world w;
	struct df_rng r;
	struct gpu g[2] = {0};
	int seen[2][MAX_COLLS] = {0}, k;
	struct ptx_module *m = module(files.gl_pathv[files.gl_pathc - 1]);

	df_rng_init(&r, seed);
	shape = &what->shape;
	w.by_ref = by_ref;
	setup(&w, &r, 2, 1, 1, 3);
	both_execute(&w, g, w.ni, seed, 64, m);
	for (k = 0; k < 2; k++)
		gpu_quit(&g[k]);
	for (k = 0; k < 2; k++) {
		gpu_end(&g[k], seed);
		look(&w, k, seen[k], seed);
	}
	clear(&w, seed);
	ptx_unload(m);
	return (g[0].copied + g[1].copied) / (uint64_t)w.ni;
}

START_TEST(copies_of)
{
	const struct copies *c = &copies[_i];
	uint64_t seed = df_test_seed() * 1000 + (uint64_t)_i;
	uint64_t before = copied(c, 0, seed), now = copied(c, 100, seed);

	printf("%s: %llu bytes copied into slots, by reference %llu\n", c->name,
	       (unsigned long long)before, (unsigned long long)now);
	ck_assert_uint_eq(before, c->before);
	ck_assert_uint_eq(now, c->now);
}
END_TEST

int main(void)
{
	const char *b = getenv("B"), *nr = getenv("NR");
	char pattern[4096];

	if (getenv("QEMU_LD_PREFIX")) {
		puts("skipped: it is about code of GPUs, and an emulator in an emulator is slow");
		return 77;
	}
	/* The same worlds in every run of the test. */
	setenv("SEED", "1", 0);
	snprintf(pattern, sizeof(pattern), "%s/kernels/daemon.*.ptx", b ? b : "build");
	if (glob(pattern, 0, NULL, &files) != 0) {
		puts("skipped: no daemon.*.ptx: built without nvcc");
		return 77;
	}
	return DF_TESTS("daemon_ptx", {random_worlds, nr ? atoi(nr) : 12}, {looks, 6},
			{half_a_slice, 2}, {only_sends, 2},
			{costs_of, sizeof(costs) / sizeof(costs[0])},
			{copies_of, sizeof(copies) / sizeof(copies[0])});
}
