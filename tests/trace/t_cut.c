/*
 * Compares the choice of waits to release with the scenarios. A device synchronisation is released
 * exactly if the model says that this helps, no more of them are released than necessary, and none
 * on the evidence of a part of the traces. Also tests traces that are reduced step by step while
 * they grow, from which proofs are made.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "tests/lib/test.h"
#include "tests/lib/trace_build.h"
#include "trace/record/trace_hash.h"
#include "trace/read/load.h"
#include "trace/record/names.h"

#define MAX_HOLDS 64

/* Finds the device-wide synchronisations in progress. Returns their number. */
static size_t device_syncs(const struct tb_image *im, int nr, struct df_check_hold *may)
{
	struct df_reader r;
	struct df_load l;
	size_t n = 0;

	df_load_init(&l);
	for (int i = 0; i < nr; i++) {
		ck_assert_int_eq(df_reader_open_image(&r, im[i].h, im[i].bytes, NULL), 0);
		ck_assert_int_eq(df_load_trace(&l, &r), 0);
		for (size_t k = 0; k < l.nr_calls; k++) {
			if (!l.calls[k].open || l.calls[k].call != DF_CALL_DEVICE_SYNC)
				continue;
			ck_assert_uint_lt(n, MAX_HOLDS);
			may[n++] = (struct df_check_hold){im[i].h->pid, im[i].h->host_hash,
							  l.calls[k].serial};
		}
		df_reader_close(&r);
	}
	df_load_fini(&l);
	return n;
}

/*
 * Returns the number of chosen waits. Stores their places, the core of all, and whether more
 * knowledge about threads would help.
 */
static int cut_set(struct df_check_set *set, const struct df_check_hold *may, size_t nr_may,
		   size_t *chosen, uint64_t *core, int *hosts)
{
	struct df_check_chosen room[MAX_HOLDS];
	struct df_check_cut cut = {.may = may, .nr_may = nr_may, .chosen = room};
	struct df_check_opts opts = {.live = 1};

	ck_assert_int_eq(df_check_cut(set, &opts, &cut), 0);
	ck_assert(!cut.likely);
	for (size_t i = 0; i < cut.nr; i++)
		chosen[i] = room[i].place;
	*core = cut.core;
	if (hosts)
		*hosts = cut.hosts;
	return (int)cut.nr;
}

static int cut_hosts(const struct tb_image *im, int nr, const struct df_check_hold *may,
		     size_t nr_may, size_t *chosen, uint64_t *core, int *hosts)
{
	struct df_check_set *set = df_check_set_new();
	int ret;

	for (int i = 0; i < nr; i++)
		ck_assert_int_eq(df_check_add_image(set, im[i].h, im[i].bytes, "t"), 0);
	ret = cut_set(set, may, nr_may, chosen, core, hosts);
	df_check_set_free(set);
	return ret;
}

static int cut(const struct tb_image *im, int nr, const struct df_check_hold *may, size_t nr_may,
	       size_t *chosen, uint64_t *core)
{
	return cut_hosts(im, nr, may, nr_may, chosen, core, NULL);
}

START_TEST(test_scenarios)
{
	struct df_check_hold may[MAX_HOLDS], few[MAX_HOLDS];
	struct tb_image im[DF_MODEL_RANKS];
	size_t chosen[MAX_HOLDS], nr_may;
	FILE *f = tb_open("scenarios.txt");
	int nr_cut = 0;
	uint64_t core, again;
	struct tb_prog p;

	while (tb_read(f, &p)) {
		struct tb_opts opts = {.crash = !strcmp(p.verdict, "CRASH")};
		int helps = !strcmp(p.label, "Se"), nr;

		tb_run(&p.p, &opts, im);
		nr_may = device_syncs(im, p.p.nr_ranks, may);
		nr = cut(im, p.p.nr_ranks, may, nr_may, chosen, &core);
		/*
		 * Some scenarios labelled Se use the legacy stream. They have no wait that could be
		 * released.
		 */
		if (!helps || !nr_may)
			ck_assert_msg(nr == 0, "%s (%s): %d waits let go", p.name, p.label, nr);
		else
			ck_assert_msg(nr > 0, "%s: nothing let go", p.name);
		for (int i = 0; i < nr; i++)
			few[i] = may[chosen[i]];
		if (nr) {
			size_t dummy[MAX_HOLDS];

			nr_cut++;
			/*
			 * The same result if no other wait may be released. One wait fewer does not
			 * suffice.
			 */
			ck_assert_int_eq(cut(im, p.p.nr_ranks, few, (size_t)nr, dummy, &again), nr);
			ck_assert_uint_eq(core, again);
			ck_assert_int_eq(cut(im, p.p.nr_ranks, few, (size_t)nr - 1, dummy, &again),
					 0);
			/* A rank without a trace may still issue any operation. */
			ck_assert_int_eq(cut(im, p.p.nr_ranks - 1, may, nr_may, dummy, &again), 0);
		}
		tb_images_fini(im, p.p.nr_ranks);
		df_mprog_fini(&p.p);
	}
	fclose(f);
	ck_assert_int_ge(nr_cut, 2);
}
END_TEST

/*
 * A cycle of n ranks. Each waits in cudaDeviceSynchronize for an operation that only the next rank
 * has not issued.
 */
static void ring(struct tb_image *im, int n)
{
	for (int i = 0; i < n; i++) {
		struct df_rec *r;

		tb_image_init(&im[i], i, n, 256);
		im[i].h->rules = 0;
		tb_rec(&im[i], DF_REC_PROC_START, 0, 0, 0, 0);
		for (int k = 0; k < 2; k++) {
			/* communicator k is shared by ranks k and k + 1 */
			int with = k ? (i + n - 1) % n : i;

			tb_comm(&im[i], 0x100 + (uint64_t)with, 2, k, 0);
		}
		r = tb_rec(&im[i], DF_REC_OP_ISSUE, 1, DF_KIND_ALLREDUCE | 7 << 8, 16, 1);
		r->comm = 1;
		r->rank = 0;
		r = tb_rec(&im[i], DF_REC_OP_MATCH, 1, 0x77, 0, 0);
		r->comm = 1;
		r->rank = 0;
		r = tb_rec(&im[i], DF_REC_CALL_ENTER, 2, DF_CALL_DEVICE_SYNC, 0, 0);
		r->device = 0;
	}
}

/*
 * Releasing one wait of a cycle suffices, whichever waits may be released and however many
 * processes the cycle has.
 */
START_TEST(test_one_of_a_ring)
{
	int n = 2 + _i;
	struct tb_image im[16];
	struct df_check_hold may[16];
	size_t chosen[16];
	uint64_t core;

	ring(im, n);
	ck_assert_uint_eq(device_syncs(im, n, may), (size_t)n);
	ck_assert_int_eq(cut(im, n, may, (size_t)n, chosen, &core), 1);
	for (int i = 0; i < n; i++) {
		ck_assert_int_eq(cut(im, n, &may[i], 1, chosen, &core), 1);
		ck_assert_uint_eq(chosen[0], 0);
		ck_assert_uint_ne(core, 0);
	}
	/* A second thread of a rank that has used the communicator might issue the operation. */
	tb_rec(&im[0], DF_REC_COMM_INIT, 3, 0, 2, 0)->comm = 2;
	tb_at(&im[0], im[0].h->next - 1)->thread = 999;
	ck_assert_int_eq(cut(im, n, may, (size_t)n, chosen, &core), 0);
	tb_images_fini(im, n);
}
END_TEST

/* The checker gives the same verdict whether a trace is reduced in one step or in several. */
START_TEST(test_steps)
{
	uint64_t state = df_test_seed() + (uint64_t)_i;
	struct tb_image im[DF_MODEL_RANKS];
	FILE *f = tb_open("scenarios.txt");
	struct tb_prog p;

	while (tb_read(f, &p)) {
		struct tb_opts opts = {.crash = !strcmp(p.verdict, "CRASH"), .quiet_ms = -1};
		struct df_check_set *one = df_check_set_new(), *many = df_check_set_new();
		struct df_check_hold may[MAX_HOLDS];
		size_t chosen[2][MAX_HOLDS], nr;
		uint64_t core[2];
		int ret[2];

		tb_run(&p.p, &opts, im);
		nr = device_syncs(im, p.p.nr_ranks, may);
		for (int i = 0; i < p.p.nr_ranks; i++) {
			struct df_compact c = {0};
			uint64_t all = im[i].h->next, at = 0;

			while (at < all) {
				at += 1 + (state >> 33) % 5;
				state = state * 6364136223846793005u + 1442695040888963407u;
				im[i].h->next = at < all ? at : all;
				ck_assert_int_eq(df_trace_compact_step(&c, im[i].h), 0);
				ck_assert_uint_eq(c.next, im[i].h->next);
			}
			im[i].h->next = all;
			ck_assert_int_eq(df_check_add_image(many, c.image, c.bytes, "many"), 0);
			free(c.image);
			c = (struct df_compact){0};
			ck_assert_int_eq(df_trace_compact_step(&c, im[i].h), 0);
			ck_assert_int_eq(df_check_add_image(one, c.image, c.bytes, "one"), 0);
			free(c.image);
			c = (struct df_compact){0};
		}
		ret[0] = cut_set(one, may, nr, chosen[0], &core[0], NULL);
		ret[1] = cut_set(many, may, nr, chosen[1], &core[1], NULL);
		ck_assert_msg(ret[0] == ret[1] && core[0] == core[1],
			      "%s: %d waits at once, %d step by step (seed %llu)", p.name, ret[0],
			      ret[1], (unsigned long long)df_test_seed());
		df_check_set_free(one);
		df_check_set_free(many);
		tb_images_fini(im, p.p.nr_ranks);
		df_mprog_fini(&p.p);
	}
	fclose(f);
}
END_TEST

/* ---- hosts outside all calls ----------------------------------------------------------------- */

#define HOSTS 6
#define FIRST 1000 /* thread that synchronises, as in tests/lib/trace_build.c */

/*
 * Two ranks in a ring, each in a process of its own. The first thread of each rank is in a device
 * synchronisation. Any of the threads in `users` may issue the operation that rank 0 lacks. The
 * waits of all threads are known, or not. Threads join only earlier ones, because threads that join
 * one another are stuck in any case.
 */
struct hosts {
	struct df_check_host h[HOSTS];
	unsigned users; /* set of threads that have used the communicator */
	unsigned ended; /* set of threads that have ended */
};

static void random_hosts(struct hosts *x, uint64_t *state)
{
	memset(x, 0, sizeof(*x));
	for (uint32_t i = 0; i < HOSTS; i++) {
		uint32_t way = (uint32_t)df_mix64(++*state) % 10;

		x->h[i].tid = FIRST + i;
		x->h[i].stamp = 1 + df_mix64(++*state) % 3;
		x->h[i].nr_calls = df_mix64(++*state) % 2;
		x->h[i].kind = way < 3	 ? DF_HOST_JOIN
			       : way < 6 ? DF_HOST_BLOCKED
			       : way < 8 ? DF_HOST_SERVES
					 : DF_HOST_FREE;
		if (x->h[i].kind == DF_HOST_JOIN)
			x->h[i].whom = FIRST + (i ? (uint32_t)df_mix64(++*state) % i : 1);
		if (i && df_mix64(++*state) % 5 == 0)
			x->ended |= 1u << i;
		if (df_mix64(++*state) % 3 == 0)
			x->users |= 1u << i;
	}
	x->users |= 1;
}

/*
 * Whether a thread that may issue the operation can still run although the synchronisations do not
 * return. Follows from the definitions alone.
 */
static int may_come(const struct hosts *x)
{
	unsigned moves = 0, callers = 1, was = ~0u;

	for (unsigned i = 1; i < HOSTS; i++)
		callers |= (unsigned)(x->h[i].nr_calls != 0) << i;
	for (unsigned i = 1; i < HOSTS; i++)
		if (x->h[i].kind == DF_HOST_FREE && !(x->ended & 1u << i))
			moves |= 1u << i;
	while (moves != was) {
		was = moves;
		for (unsigned i = 1; i < HOSTS; i++) {
			const struct df_check_host *h = &x->h[i];
			unsigned whom = h->whom ? 1u << (h->whom - FIRST) : 0;

			if (x->ended & 1u << i)
				continue;
			if (h->kind == DF_HOST_JOIN && (x->ended | moves) & whom)
				moves |= 1u << i;
			if (h->kind == DF_HOST_BLOCKED && moves & ~(1u << i))
				moves |= 1u << i;
			if (h->kind == DF_HOST_SERVES && moves & callers & ~(1u << i))
				moves |= 1u << i;
		}
	}
	/* A user that has ended may have handed its part over to any other thread. */
	return x->users & x->ended ? moves != 0 : (moves & x->users) != 0;
}

/* Adds a record for each thread of `users`, so that the trace names them. */
static void users(struct tb_image *im, const struct hosts *x)
{
	for (uint32_t i = 0; i < HOSTS; i++) {
		if (!(x->users & 1u << i))
			continue;
		tb_rec(im, DF_REC_COMM_READY, 0, 0, 2, 0)->thread = FIRST + i;
		tb_at(im, im->h->next - 1)->comm = 2;
	}
}

START_TEST(test_hosts)
{
	uint64_t state = df_test_seed();
	int nr_cut = 0, nr_not = 0, nr_asked = 0;

	for (int k = 0; k < 3000; k++) {
		struct df_check_set *set = df_check_set_new();
		struct df_check_host living[HOSTS];
		struct df_check_hold may[4];
		struct tb_image im[2];
		struct hosts x;
		size_t chosen[4], nr = 0, nr_may;
		uint64_t core[2];
		int hosts, ret, want;

		random_hosts(&x, &state);
		ring(im, 2);
		users(&im[0], &x);
		nr_may = device_syncs(im, 2, may);
		for (int i = 0; i < HOSTS; i++)
			if (!(x.ended & 1u << i))
				living[nr++] = x.h[i];
		want = !may_come(&x);
		for (int again = 0; again < 2; again++) {
			df_check_set_free(set);
			set = df_check_set_new();
			for (int i = 0; i < 2; i++) {
				ck_assert_int_eq(df_check_add_image(set, im[i].h, im[i].bytes, "t"),
						 0);
				if (!i)
					ck_assert_int_eq(df_check_add_hosts(set, living, nr), 0);
			}
			ret = cut_set(set, may, nr_may, chosen, &core[again], &hosts);
			ck_assert_msg(ret == want,
				      "program %d: %d waits let go, not %d (seed %llu)", k, ret,
				      want, (unsigned long long)df_test_seed());
			/* The same waits, but each began at another time. */
			for (size_t i = 0; i < nr; i++)
				living[i].stamp += (uint64_t)(living[i].kind != DF_HOST_FREE);
		}
		nr_cut += want;
		nr_not += !want;
		/*
		 * Without knowledge of the threads nothing is released. `hosts` says that more
		 * could be known, if other threads have used the communicator.
		 */
		ret = cut_hosts(im, 2, may, nr_may, chosen, &core[0], &hosts);
		ck_assert_int_eq(ret, x.users == 1);
		ck_assert_int_eq(hosts, x.users != 1);
		nr_asked += hosts;
		df_check_set_free(set);
		tb_images_fini(im, 2);
	}
	ck_assert_int_gt(nr_cut, 100);
	ck_assert_int_gt(nr_not, 100);
	ck_assert_int_gt(nr_asked, 100);
}
END_TEST

/* A wait that ended and began again between two judgements counts as a different wait. */
START_TEST(test_host_stamps)
{
	struct df_check_host h[2] = {
		{.tid = FIRST, .stamp = 0},
		{.tid = FIRST + 1, .kind = DF_HOST_JOIN, .whom = FIRST, .stamp = 5}};
	struct hosts x = {.users = 3};
	struct df_check_hold may[4];
	struct tb_image im[2];
	size_t chosen[4], nr_may;
	uint64_t core[3];

	ring(im, 2);
	users(&im[0], &x);
	nr_may = device_syncs(im, 2, may);
	for (int k = 0; k < 3; k++) {
		struct df_check_set *set = df_check_set_new();

		h[1].stamp = k == 2 ? 6 : 5;
		for (int i = 0; i < 2; i++)
			ck_assert_int_eq(df_check_add_image(set, im[i].h, im[i].bytes, "t"), 0);
		/* Threads can be added once, for the image that was added last. */
		ck_assert_int_eq(df_check_add_hosts(set, NULL, 0), 0);
		ck_assert_int_eq(df_check_add_hosts(set, NULL, 0), -EINVAL);
		df_check_set_free(set);
		set = df_check_set_new();
		ck_assert_int_eq(df_check_add_hosts(set, h, 2), -EINVAL);
		ck_assert_int_eq(df_check_add_image(set, im[0].h, im[0].bytes, "t"), 0);
		ck_assert_int_eq(df_check_add_hosts(set, h, 2), 0);
		ck_assert_int_eq(df_check_add_image(set, im[1].h, im[1].bytes, "t"), 0);
		ck_assert_int_eq(cut_set(set, may, nr_may, chosen, &core[k], NULL), 1);
		df_check_set_free(set);
	}
	ck_assert_uint_eq(core[0], core[1]);
	ck_assert_uint_ne(core[0], core[2]);
	tb_images_fini(im, 2);
}
END_TEST

/*
 * If more threads use a communicator than its entry has room for, none is forgotten, because any of
 * them may still issue the operation.
 */
START_TEST(test_many_users)
{
	for (uint32_t n = DF_LCOMM_THREADS - 1; n <= DF_LCOMM_THREADS + 1; n++) {
		struct df_check_host h[DF_LCOMM_THREADS + 2];
		struct df_check_set *set = df_check_set_new();
		struct df_check_hold may[4];
		struct tb_image im[2];
		size_t chosen[4], nr_may;
		uint64_t core;

		ring(im, 2);
		nr_may = device_syncs(im, 2, may);
		for (uint32_t i = 0; i <= n; i++) {
			h[i] = (struct df_check_host){
				.tid = FIRST + i, .kind = DF_HOST_JOIN, .whom = FIRST, .stamp = 1};
			if (i == n) /* this thread is in no call and runs */
				h[i].kind = DF_HOST_FREE;
			tb_rec(&im[0], DF_REC_COMM_READY, 0, 0, 2, 0)->thread = FIRST + i;
			tb_at(&im[0], im[0].h->next - 1)->comm = 2;
		}
		ck_assert_int_eq(df_check_add_image(set, im[0].h, im[0].bytes, "t"), 0);
		ck_assert_int_eq(df_check_add_hosts(set, h, n + 1), 0);
		ck_assert_int_eq(df_check_add_image(set, im[1].h, im[1].bytes, "t"), 0);
		ck_assert_int_eq(cut_set(set, may, nr_may, chosen, &core, NULL), 0);
		df_check_set_free(set);
		tb_images_fini(im, 2);
	}
}
END_TEST

/* The reader waits for a record that is not yet complete. */
START_TEST(test_half_written)
{
	struct df_compact c = {0};
	struct tb_image im[2];
	struct df_rec *last;
	uint32_t commit;

	ring(im, 2);
	last = tb_at(&im[0], im[0].h->next - 1);
	commit = last->commit;
	last->commit = 0;
	ck_assert_int_eq(df_trace_compact_step(&c, im[0].h), -EAGAIN);
	ck_assert_ptr_null(c.image);
	last->commit = commit;
	ck_assert_int_eq(df_trace_compact_step(&c, im[0].h), 0);
	ck_assert_uint_eq(c.next, im[0].h->next);
	free(c.image);
	tb_images_fini(im, 2);
}
END_TEST

static void come_and_go(struct tb_image *im, struct df_compact *c, uint64_t id, int nr)
{
	for (int i = 0; i < nr; i++) {
		tb_rec(im, DF_REC_STREAM_CREATE, 0, id + (uint64_t)i, 0, 0);
		tb_rec(im, DF_REC_STREAM_DESTROY, 0, id + (uint64_t)i, 0, 0);
		ck_assert_int_eq(df_trace_compact_step(c, im->h), 0);
	}
}

/*
 * Destroyed streams need no room after all operations that were unfinished in their time have
 * ended.
 */
START_TEST(test_streams_gone)
{
	struct df_compact c = {0};
	struct tb_image im;
	uint64_t op;
	size_t few;
	uint32_t comm;

	tb_image_init(&im, 0, 1, 1024);
	comm = tb_comm(&im, 7, 1, 0, 0);
	tb_op(&im, comm, DF_REC_OP_DONE, tb_issue(&im, comm, 0, DF_KIND_ALLREDUCE, 1, -1, 0));
	tb_rec(&im, DF_REC_STREAM_CREATE, 0, 1, 0, 0);
	come_and_go(&im, &c, 100, 1);
	few = c.bytes;
	come_and_go(&im, &c, 200, 20);
	ck_assert_uint_eq(c.bytes, few);
	op = tb_issue(&im, comm, 0, DF_KIND_ALLREDUCE, 1, -1, 1);
	come_and_go(&im, &c, 300, 20);
	ck_assert_uint_gt(c.bytes, few + 20 * sizeof(struct df_rec));
	tb_op(&im, comm, DF_REC_OP_DONE, op);
	ck_assert_int_eq(df_trace_compact_step(&c, im.h), 0);
	ck_assert_uint_le(c.bytes, few);
	free(c.image);
	tb_image_fini(&im);
}
END_TEST

int main(void)
{
	return DF_TESTS("cut", {test_scenarios}, {test_one_of_a_ring, 8}, {test_steps, 5},
			{test_half_written}, {test_hosts}, {test_host_stamps}, {test_many_users},
			{test_streams_gone});
}
