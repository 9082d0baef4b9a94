/*
 * Where to cut, against the scenarios of the judge: a device synchronisation is let go exactly where the model
 * says that this helps, never more of them than are needed, and never on the word of a part of the traces. And
 * traces that are reduced step by step while they grow, which is what proofs are made of.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "tests/lib/test.h"
#include "tests/lib/trace_build.h"
#include "trace/load.h"
#include "trace/names.h"

#define MAX_HOLDS 64

static FILE *open_data(const char *name)
{
	char path[512];
	FILE *f;

	snprintf(path, sizeof(path), "%s/tests/trace/%s", getenv("SRC") ? getenv("SRC") : ".",
		 name);
	f = fopen(path, "r");
	ck_assert_msg(f != NULL, "%s: not found; run from the root of the source, or set SRC",
		      path);
	return f;
}

/* The device-wide synchronisations that are in progress. */
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

static int cut(const struct tb_image *im, int nr, const struct df_check_hold *may, size_t nr_may,
	       size_t *chosen, uint64_t *core)
{
	struct df_check_set *set = df_check_set_new();
	struct df_check_opts opts = {.live = 1};
	int ret;

	for (int i = 0; i < nr; i++)
		ck_assert_int_eq(df_check_add_image(set, im[i].h, im[i].bytes, "t"), 0);
	ret = df_check_cut(set, &opts, may, nr_may, chosen, core);
	df_check_set_free(set);
	return ret;
}

START_TEST(test_scenarios)
{
	struct df_check_hold may[MAX_HOLDS], few[MAX_HOLDS];
	struct tb_image im[DF_MODEL_RANKS];
	size_t chosen[MAX_HOLDS], nr_may;
	FILE *f = open_data("scenarios.txt");
	int nr_cut = 0;
	uint64_t core, again;
	struct tb_prog p;

	while (tb_read(f, &p)) {
		struct tb_opts opts = {.crash = !strcmp(p.verdict, "CRASH")};
		int helps = !strcmp(p.label, "Se"), nr;

		tb_run(&p.p, &opts, im);
		nr_may = device_syncs(im, p.p.nr_ranks, may);
		nr = cut(im, p.p.nr_ranks, may, nr_may, chosen, &core);
		/* Of what is labelled Se some go through the legacy stream; those have nothing to let go. */
		if (!helps || !nr_may)
			ck_assert_msg(nr == 0, "%s (%s): %d waits let go", p.name, p.label, nr);
		else
			ck_assert_msg(nr > 0, "%s: nothing let go", p.name);
		for (int i = 0; i < nr; i++)
			few[i] = may[chosen[i]];
		if (nr) {
			size_t dummy[MAX_HOLDS];

			nr_cut++;
			/* The same again, also if nothing else may be let go; one less does not do. */
			ck_assert_int_eq(cut(im, p.p.nr_ranks, few, (size_t)nr, dummy, &again), nr);
			ck_assert_uint_eq(core, again);
			ck_assert_int_eq(cut(im, p.p.nr_ranks, few, (size_t)nr - 1, dummy, &again),
					 0);
			/* Of a rank without a trace anything may come. */
			ck_assert_int_eq(cut(im, p.p.nr_ranks - 1, may, nr_may, dummy, &again), 0);
		}
		for (int i = 0; i < p.p.nr_ranks; i++)
			tb_image_fini(&im[i]);
		df_mprog_fini(&p.p);
	}
	fclose(f);
	ck_assert_int_ge(nr_cut, 2);
}
END_TEST

/* A circle of n ranks, each of which waits in cudaDeviceSynchronize for what only the next has not issued. */
static void ring(struct tb_image *im, int n)
{
	for (int i = 0; i < n; i++) {
		struct df_rec *r;

		tb_image_init(&im[i], i, n, 256);
		im[i].h->rules = 0;
		tb_rec(&im[i], DF_REC_PROC_START, 0, 0, 0, 0);
		for (int k = 0; k < 2; k++) {
			int with = k ? (i + n - 1) % n : i; /* communicator k of ranks k, k + 1 */

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

/* One wait of a circle is enough, whichever may be let go, and however many processes it goes through. */
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
	/* A second thread of one rank that has used the communicator might go on with it. */
	tb_rec(&im[0], DF_REC_COMM_INIT, 3, 0, 2, 0)->comm = 2;
	((struct df_rec *)((char *)im[0].h + im[0].h->off_recs))[im[0].h->next - 1].thread = 999;
	ck_assert_int_eq(cut(im, n, may, (size_t)n, chosen, &core), 0);
	for (int i = 0; i < n; i++)
		tb_image_fini(&im[i]);
}
END_TEST

/* Reduced in one step or in many: the judge says the same. */
START_TEST(test_steps)
{
	uint64_t state = df_test_seed() + (uint64_t)_i;
	struct tb_image im[DF_MODEL_RANKS];
	FILE *f = open_data("scenarios.txt");
	struct tb_prog p;

	while (tb_read(f, &p)) {
		struct tb_opts opts = {.crash = !strcmp(p.verdict, "CRASH"), .quiet_ms = -1};
		struct df_check_set *one = df_check_set_new(), *many = df_check_set_new();
		struct df_check_opts live = {.live = 1};
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
			df_trace_compact_fini(&c);
			ck_assert_int_eq(df_trace_compact_step(&c, im[i].h), 0);
			ck_assert_int_eq(df_check_add_image(one, c.image, c.bytes, "one"), 0);
			df_trace_compact_fini(&c);
		}
		ret[0] = df_check_cut(one, &live, may, nr, chosen[0], &core[0]);
		ret[1] = df_check_cut(many, &live, may, nr, chosen[1], &core[1]);
		ck_assert_msg(ret[0] == ret[1] && core[0] == core[1],
			      "%s: %d waits at once, %d step by step (seed %llu)", p.name, ret[0],
			      ret[1], (unsigned long long)df_test_seed());
		df_check_set_free(one);
		df_check_set_free(many);
		for (int i = 0; i < p.p.nr_ranks; i++)
			tb_image_fini(&im[i]);
		df_mprog_fini(&p.p);
	}
	fclose(f);
}
END_TEST

/* A record that is not whole yet is waited for. */
START_TEST(test_half_written)
{
	struct df_compact c = {0};
	struct tb_image im[2];
	struct df_rec *last;
	uint32_t commit;

	ring(im, 2);
	last = (struct df_rec *)((char *)im[0].h + im[0].h->off_recs) + im[0].h->next - 1;
	commit = last->commit;
	last->commit = 0;
	ck_assert_int_eq(df_trace_compact_step(&c, im[0].h), -EAGAIN);
	ck_assert_ptr_null(c.image);
	last->commit = commit;
	ck_assert_int_eq(df_trace_compact_step(&c, im[0].h), 0);
	ck_assert_uint_eq(c.next, im[0].h->next);
	df_trace_compact_fini(&c);
	for (int i = 0; i < 2; i++)
		tb_image_fini(&im[i]);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cut");
	TCase *t = tcase_create("cut");

	df_test_seed();
	tcase_set_timeout(t, 60);
	tcase_add_test(t, test_scenarios);
	tcase_add_loop_test(t, test_one_of_a_ring, 0, 8);
	tcase_add_loop_test(t, test_steps, 0, 5);
	tcase_add_test(t, test_half_written);
	suite_add_tcase(s, t);
	return df_test_run(s);
}
