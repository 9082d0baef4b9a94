/*
 * Tests the checker with the catalogue. The model runs each scenario, the run is recorded, and the
 * checker judges it. The verdict word must be the catalogue's, and the model's label that of the
 * independent model. Then the parts of every report, and verdicts that need other traces.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include "tests/lib/test.h"
#include "tests/lib/trace_build.h"
#include "trace/record/names.h"
#include "trace/read/set.h"

START_TEST(test_scenarios)
{
	struct tb_image im[DF_MODEL_RANKS];
	FILE *f = tb_open("scenarios.txt");
	struct tb_prog p;
	int nr = 0;

	for (; tb_read(f, &p); nr++) {
		struct tb_opts opts = {.crash = !strcmp(p.verdict, "CRASH")};
		struct df_check_set *set;
		struct df_check_result *r;
		char *text;

		ck_assert_msg(!strcmp(df_model_classify(&p.p), p.label),
			      "%s: model says %s, expected %s", p.name, df_model_classify(&p.p),
			      p.label);
		tb_run(&p.p, &opts, im);
		r = tb_check(im, p.p.nr_ranks, &set);
		ck_assert_msg(!strcmp(df_verdict_word(df_check_verdict(r)), p.verdict),
			      "%s: expected %s, got %s", p.name, p.verdict, df_check_line(r));
		/* The report says how prevention could help, as the model found. */
		text = tb_printed(r, 0);
		if (!strcmp(p.label, "P") || !strcmp(p.label, "Si"))
			ck_assert_msg(strstr(text, "preventable") != NULL, "%s:\n%s", p.name, text);
		if (!strcmp(p.label, "Se"))
			ck_assert_msg(strstr(text, "can be released") != NULL, "%s:\n%s", p.name,
				      text);
		if (!strcmp(p.label, "D"))
			ck_assert_msg(strstr(text, "Remedy: preventable") == NULL, "%s:\n%s",
				      p.name, text);
		free(text);
		df_check_result_free(r);
		df_check_set_free(set);
		tb_images_fini(im, p.p.nr_ranks);
		df_mprog_fini(&p.p);
	}
	fclose(f);
	ck_assert_int_ge(nr, 60);
}
END_TEST

/* The checker must give the same verdict for reduced rings, which the watchdog collects. */
START_TEST(test_compact)
{
	struct tb_image im[DF_MODEL_RANKS];
	FILE *f = tb_open("scenarios.txt");
	struct tb_prog p;

	while (tb_read(f, &p)) {
		struct tb_opts opts = {.crash = !strcmp(p.verdict, "CRASH")};
		struct df_check_set *set = df_check_set_new();
		struct df_check_result *r;

		tb_run(&p.p, &opts, im);
		for (int i = 0; i < p.p.nr_ranks; i++) {
			void *image;
			size_t bytes;

			ck_assert_int_eq(df_trace_compact(im[i].h, &image, &bytes), 0);
			ck_assert_uint_lt(bytes, im[i].bytes);
			ck_assert_int_eq(df_check_add_image(set, image, bytes, "compact"), 0);
			free(image);
		}
		ck_assert_int_eq(df_check_run(set, NULL, &r), 0);
		ck_assert_msg(!strcmp(df_verdict_word(df_check_verdict(r)), p.verdict),
			      "%s: expected %s, got %s", p.name, p.verdict, df_check_line(r));
		df_check_result_free(r);
		df_check_set_free(set);
		tb_images_fini(im, p.p.nr_ranks);
		df_mprog_fini(&p.p);
	}
	fclose(f);
}
END_TEST

/* Every cycle of a report is closed, and each of its edges names the record that proves it. */
START_TEST(test_evidence)
{
	struct tb_image im[DF_MODEL_RANKS];
	FILE *f = tb_open("scenarios.txt");
	struct tb_prog p;

	while (tb_read(f, &p)) {
		struct df_check_set *set;
		struct df_check_result *r;
		char *json;

		tb_run(&p.p, NULL, im);
		r = tb_check(im, p.p.nr_ranks, &set);
		json = tb_printed(r, 1);
		if (!strcmp(p.verdict, "ORDER") || !strcmp(p.verdict, "RESOURCE") ||
		    !strcmp(p.verdict, "SYNC")) {
			ck_assert_msg(strstr(json, "\"cycle\":[{") != NULL, "%s: %s", p.name, json);
			ck_assert_msg(strstr(json, "\"record\":") != NULL, "%s: %s", p.name, json);
		}
		free(json);
		df_check_result_free(r);
		df_check_set_free(set);
		tb_images_fini(im, p.p.nr_ranks);
		df_mprog_fini(&p.p);
	}
	fclose(f);
}
END_TEST

/* ---- traces of other forms ------------------------------------------------------------------- */

static void pair(struct tb_image im[2], uint32_t rules)
{
	for (int i = 0; i < 2; i++) {
		tb_image_init(&im[i], i, 2, 256);
		im[i].h->rules = rules;
		tb_rec(&im[i], DF_REC_PROC_START, 0, 0, 0, 0);
		tb_comm(&im[i], 0xabc, 2, i, 0);
	}
}

static void expect(struct tb_image *im, int nr, const char *word, const char *has)
{
	struct df_check_set *set;
	struct df_check_result *r = tb_check(im, nr, &set);

	ck_assert_msg(!strcmp(df_verdict_word(df_check_verdict(r)), word), "expected %s, got %s",
		      word, df_check_line(r));
	ck_assert_msg(!has || strstr(df_check_line(r), has), "'%s' not in: %s", has,
		      df_check_line(r));
	df_check_result_free(r);
	df_check_set_free(set);
	tb_images_fini(im, nr);
}

START_TEST(test_net_stall)
{
	struct tb_image im[2];

	pair(im, 1);
	for (int i = 0; i < 2; i++) {
		tb_op(&im[i], 1, DF_REC_OP_START,
		      tb_issue(&im[i], 1, i, DF_KIND_ALLREDUCE, 8, -1, 0));
		tb_quiet(&im[i], 60000);
	}
	expect(im, 2, "NET_STALL", "A#1 runs on all of its 2 ranks");
}
END_TEST

/* By NCCL's rules an operation with a slot has started, even if it has not moved data. */
START_TEST(test_slot_is_start)
{
	struct tb_image im[2];

	pair(im, 1);
	for (int i = 0; i < 2; i++) {
		uint64_t s = tb_issue(&im[i], 1, i, DF_KIND_ALLREDUCE, 8, -1, 0);

		tb_op(&im[i], 1, DF_REC_OP_SLOT, s);
		tb_op(&im[i], 1, DF_REC_OP_SLOT, s)->a = 1;
		if (i)
			tb_op(&im[i], 1, DF_REC_OP_START, s);
		tb_quiet(&im[i], 60000);
	}
	expect(im, 2, "NET_STALL", "A#1 runs on all of its 2 ranks");
}
END_TEST

START_TEST(test_in_flight_is_ok)
{
	struct tb_image im[2];

	/* A healthy job in which one rank is ahead of the other. */
	pair(im, 1);
	for (uint64_t k = 0; k < 5; k++)
		tb_issue(&im[0], 1, 0, DF_KIND_ALLREDUCE, 8, -1, k);
	tb_issue(&im[1], 1, 1, DF_KIND_ALLREDUCE, 8, -1, 0);
	expect(im, 2, "OK", "in flight");
}
END_TEST

/*
 * On another node the clock has drifted since the trace began. The last pair of clocks in the trace
 * counts.
 */
START_TEST(test_drifting_clocks)
{
	struct tb_image im[2];
	struct df_check_set *set;
	struct df_check_result *r;

	pair(im, 1);
	im[0].h->boot_hash = 1;
	im[1].h->boot_hash = 2;
	im[0].h->mono_ns = im[1].h->mono_ns = 1000;
	im[0].h->real_ns = im[1].h->real_ns = 5000;
	tb_rec(&im[0], DF_REC_CLOCK, 0, 8000, 4000, 0);
	tb_rec(&im[1], DF_REC_CLOCK, 0, 8700, 4000, 0);
	r = tb_check(im, 2, &set);
	ck_assert_int_eq((int)set->traces[0].skew_ns, 0);
	ck_assert_int_eq((int)set->traces[1].skew_ns, 700);
	df_check_result_free(r);
	df_check_set_free(set);
	tb_image_fini(&im[0]);
	tb_image_fini(&im[1]);
}
END_TEST

START_TEST(test_live_straggler_is_slow)
{
	struct df_check_opts opts = {.live = 1};
	struct tb_image im[2];
	struct df_check_set *set = df_check_set_new();
	struct df_check_result *r;

	pair(im, 1);
	tb_issue(&im[0], 1, 0, DF_KIND_ALLREDUCE, 8, -1, 0);
	tb_quiet(&im[0], 40000);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(df_check_add_image(set, im[i].h, im[i].bytes, "x"), 0);
	ck_assert_int_eq(df_check_run(set, &opts, &r), 0);
	ck_assert_msg(df_check_verdict(r) == DF_V_SLOW, "%s", df_check_line(r));
	ck_assert_int_eq(df_verdict_exit(df_check_verdict(r)), 0);
	df_check_result_free(r);
	df_check_set_free(set);
	tb_images_fini(im, 2);
}
END_TEST

START_TEST(test_silent_mismatch)
{
	struct tb_image im[2];

	pair(im, 1);
	for (int i = 0; i < 2; i++) {
		uint64_t s = tb_issue(&im[i], 1, i, DF_KIND_ALLREDUCE, i ? 20 : 10, -1, 0);

		tb_op(&im[i], 1, DF_REC_OP_START, s);
		tb_op(&im[i], 1, DF_REC_OP_DONE, s);
	}
	expect(im, 2, "MISMATCH", "it completed");
}
END_TEST

START_TEST(test_ours_disorder_is_ok)
{
	struct tb_image im[2];

	/* dfshim matches by signature, so different orders on one communicator complete. */
	pair(im, 0);
	tb_issue(&im[0], 1, 0, DF_KIND_ALLREDUCE, 8, -1, 0);
	tb_issue(&im[0], 1, 0, DF_KIND_ALLREDUCE, 16, -1, 1);
	tb_issue(&im[1], 1, 1, DF_KIND_ALLREDUCE, 16, -1, 0);
	tb_issue(&im[1], 1, 1, DF_KIND_ALLREDUCE, 8, -1, 1);
	expect(im, 2, "OK", NULL);
}
END_TEST

/*
 * A rank's process starts another process, which inherits the rank and ends last. Both belong to
 * one run.
 */
START_TEST(test_same_rank)
{
	struct tb_image im[3];

	pair(im, 0);
	tb_image_init(&im[2], 1, 2, 64);
	im[2].h->pid = im[1].h->pid + 1;
	im[2].h->mono_ns = im[2].clock;
	tb_issue(&im[0], 1, 0, DF_KIND_ALLREDUCE, 10, -1, 0);
	tb_issue(&im[1], 1, 1, DF_KIND_ALLREDUCE, 20, -1, 0);
	tb_quiet(&im[0], 60000);
	tb_quiet(&im[1], 60000);
	im[2].clock = im[1].clock + 1000;
	tb_rec(&im[2], DF_REC_CLOCK, 0, im[2].clock, im[2].clock, 0);
	expect(im, 3, "MISMATCH", "count");
}
END_TEST

START_TEST(test_ours_mismatch)
{
	struct tb_image im[2];

	pair(im, 0);
	tb_issue(&im[0], 1, 0, DF_KIND_ALLREDUCE, 10, -1, 0);
	tb_issue(&im[1], 1, 1, DF_KIND_ALLREDUCE, 20, -1, 0);
	tb_quiet(&im[0], 60000);
	tb_quiet(&im[1], 60000);
	expect(im, 2, "MISMATCH", "count");
}
END_TEST

/* _i is the exit status. The process's own trace records it, or the other rank's trace does. */
START_TEST(test_ours_missing)
{
	static const char *const line[] = {"whose process exited normally",
					   "whose process exited with status 1"},
				 *const fix[] = {"Fix: give all ranks the same number",
						 "Fix: look for the error in that process's log"};

	for (int told = 0; told < 2; told++) {
		struct df_check_set *set;
		struct df_check_result *r;
		struct tb_image im[2];
		char *text;

		pair(im, 0);
		tb_issue(&im[0], 1, 0, DF_KIND_ALLREDUCE, 10, -1, 0);
		im[1].h->closed = told ? 0 : 1 + (uint32_t)_i;
		tb_rec(&im[0], DF_REC_PEER_DEAD, 1, im[1].h->host_hash, im[1].h->pid,
		       told ? 1 + (uint64_t)_i : 1)
			->comm = 1;
		tb_quiet(&im[0], 60000);
		r = tb_check(im, 2, &set);
		text = tb_printed(r, 0);
		ck_assert_msg(!strncmp(text, "MISSING: ", 9) && strstr(text, line[_i]) &&
				      strstr(text, fix[_i]),
			      "reported %d, status %d: %s", told, _i, text);
		free(text);
		df_check_result_free(r);
		df_check_set_free(set);
		tb_images_fini(im, 2);
	}
}
END_TEST

/*
 * r1 has done its part of the first operation. Before r1 starts the second operation it may have to
 * receive from r0, which has not finished the first.
 */
START_TEST(test_ours_peer_not_free)
{
	struct tb_image im[2];

	pair(im, 0);
	for (int i = 0; i < 2; i++) {
		uint64_t second, first = tb_issue(&im[i], 1, i, DF_KIND_ALLREDUCE, 8, -1, 0);

		tb_op(&im[i], 1, DF_REC_OP_START, first);
		if (i)
			tb_op(&im[i], 1, DF_REC_OP_DONE, first);
		second = tb_issue(&im[i], 1, i, DF_KIND_ALLREDUCE, 16, -1, 1);
		if (!i)
			tb_rec(&im[i], DF_REC_OP_DEP, second, first, 0, 0);
		tb_quiet(&im[i], 60000);
	}
	expect(im, 2, "NET_STALL", "A#1");
}
END_TEST

START_TEST(test_missing_trace)
{
	struct tb_image im[2];

	pair(im, 1);
	tb_issue(&im[0], 1, 0, DF_KIND_ALLREDUCE, 10, -1, 0);
	tb_quiet(&im[0], 60000);
	tb_image_fini(&im[1]);
	expect(im, 1, "UNKNOWN", "no trace");
}
END_TEST

/* r1's ring has lost its issues, so the report cannot say that r1 did not issue the operation. */
START_TEST(test_lost_record)
{
	struct df_trace_comm *c;
	struct tb_image im[2];

	for (int lost = 0; lost < 2; lost++) {
		pair(im, 1);
		tb_issue(&im[0], 1, 0, DF_KIND_ALLREDUCE, 10, -1, 0);
		c = tb_comm_at(&im[1], 1);
		c->drops = 3;
		c->issued = 5;
		c->done = lost ? 4 : 5;
		tb_quiet(&im[0], 60000);
		tb_quiet(&im[1], 60000);
		expect(im, 2, lost ? "UNKNOWN" : "MISSING",
		       lost ? "the records of 1 of its unfinished operations were overwritten"
			    : "has not issued it");
	}
}
END_TEST

/*
 * Two runs wrote into one folder, without ranks of a launcher. Only the later run counts. A rank
 * that starts late belongs to the same run.
 */
START_TEST(test_earlier_run)
{
	for (int late = 0; late < 2; late++) {
		struct tb_image im[3];
		struct df_check_set *set;
		struct df_check_result *r;
		char *text;

		for (int i = 0; i < 3; i++) {
			tb_image_init(&im[i], -1, 0, 64);
			im[i].h->pid = 100 + (uint32_t)i;
			if (i == 2)
				im[i].clock += 100000000000;
			im[i].h->mono_ns = im[i].clock;
			tb_comm(&im[i], i == 2 && !late ? 8 : 7, late ? 3 : 2,
				i % 2 + late * (i / 2) * 2, i);
		}
		tb_issue(&im[0], 1, 0, DF_KIND_ALLREDUCE, 10, -1, 0);
		for (int i = 0; i < 3; i++)
			tb_quiet(&im[i], 60000);
		r = tb_check(im, 3, &set);
		text = tb_printed(r, 0);
		ck_assert_int_eq(df_check_verdict(r), late ? DF_V_MISSING : DF_V_OK);
		ck_assert_msg((strstr(text, "2 traces of an earlier run were ignored") != NULL) !=
				      late,
			      "%s", text);
		free(text);
		df_check_result_free(r);
		df_check_set_free(set);
		tb_images_fini(im, 3);
	}
}
END_TEST

/*
 * Records that the rings have overwritten are reported for each communicator, summed over all
 * ranks, in descending order.
 */
START_TEST(test_drops)
{
	static const uint64_t drops[2][2] = {{3, 40}, {4, 0}};
	struct df_check_set *set;
	struct df_check_result *r;
	struct tb_image im[2];
	char *text;

	pair(im, 1);
	for (int i = 0; i < 2; i++) {
		uint32_t second = tb_comm(&im[i], 0xbbb, 2, i, i);

		for (uint64_t k = 0; k < im[i].h->nr_recs; k++)
			tb_rec(&im[i], DF_REC_MARK, 0, 0, 0, 0);
		tb_comm_at(&im[i], 1)->drops = drops[i][0];
		tb_comm_at(&im[i], second)->drops = drops[i][1];
	}
	tb_issue(&im[0], 1, 0, DF_KIND_ALLREDUCE, 10, -1, 0);
	tb_quiet(&im[0], 60000);
	r = tb_check(im, 2, &set);
	text = tb_printed(r, 0);
	ck_assert_msg(strstr(text, "older records were overwritten (B 40, A 7);") != NULL, "%s",
		      text);
	free(text);
	df_check_result_free(r);
	df_check_set_free(set);
	tb_images_fini(im, 2);
}
END_TEST

/*
 * A small message whose send has completed, and a receive that waits for a larger one, as other
 * tools record them.
 */
START_TEST(test_unseen_sizes)
{
	struct tb_image im[2];

	for (int same = 0; same < 2; same++) {
		pair(im, 0);
		im[0].h->mode = im[1].h->mode = 1;
		tb_op(&im[0], 1, DF_REC_OP_DONE, tb_issue(&im[0], 1, 0, DF_KIND_SEND, 1, 1, 0));
		tb_issue(&im[1], 1, 1, DF_KIND_RECV, same ? 1 : 3, 0, 0);
		tb_quiet(&im[1], 60000);
		expect(im, 2, same ? "OK" : "MISMATCH",
		       same ? NULL : "r1 expects 12 bytes (3 x float32), r0 sends 4 bytes");
	}
}
END_TEST

/*
 * The other rank's time-out has ended its communicator. This rank has not left; it only has not
 * arrived.
 */
START_TEST(test_ended_from_outside)
{
	struct tb_image im[2];
	struct df_rec *rec;

	pair(im, 1);
	rec = tb_rec(&im[0], DF_REC_CALL_ENTER, 77, DF_CALL_CONNECT, 0xabc, 1);
	rec->comm = 1;
	tb_quiet(&im[0], 60000);
	tb_quiet(&im[1], 60000);
	tb_rec(&im[0], DF_REC_COMM_ABORT, 0, 1, 0, 0)->comm = 1;
	tb_rec(&im[1], DF_REC_COMM_ABORT, 0, 2, 0, 0)->comm = 1;
	expect(im, 2, "MISSING", "which has not issued it");
}
END_TEST

START_TEST(test_failed_call)
{
	struct tb_image im[2];

	pair(im, 1);
	tb_issue(&im[0], 1, 0, DF_KIND_ALLREDUCE, 10, -1, 0);
	tb_rec(&im[1], DF_REC_OP_FAILED, 0, DF_KIND_ALLREDUCE, 5, 0)->comm = 1;
	tb_quiet(&im[0], 60000);
	expect(im, 2, "MISSING", "returned an error");
}
END_TEST

/*
 * Each rank waits for the other to connect. One notices the hang, has the other rank's threads
 * examined, and ends its communicators. The other rank's later calls are consequences, even if it
 * noticed nothing itself.
 */
START_TEST(test_broken_off_by_others)
{
	struct tb_image im[2];
	struct df_rec *rec;

	pair(im, 1);
	for (int i = 0; i < 2; i++) {
		tb_comm(&im[i], 0xdef, 2, i, 0);
		rec = tb_rec(&im[i], DF_REC_CALL_ENTER, 77, DF_CALL_CONNECT, i ? 0xdef : 0xabc, 1);
		rec->comm = i ? 2 : 1;
		rec->rank = i;
	}
	im[0].clock += 60000000000;
	tb_rec(&im[0], DF_REC_HOST_AT, 0, im[0].h->pid, DF_AT_LOCK, 0)->thread = 99;
	if (_i)
		tb_quiet(&im[0], 1);
	tb_quiet(&im[1], 60000);
	for (uint32_t comm = 1; comm <= 2; comm++)
		tb_rec(&im[1], DF_REC_COMM_ABORT, 0, 1, 0, 0)->comm = comm;
	tb_rec(&im[0], DF_REC_PEER_DEAD, 1, im[1].h->host_hash, im[1].h->pid, 1)->comm = 1;
	tb_rec(&im[0], DF_REC_CALL_EXIT, 77, DF_CALL_CONNECT, 104, 0);
	for (uint32_t comm = 1; comm <= 2; comm++) {
		tb_rec(&im[0], DF_REC_COMM_ABORT, 0, 0, 0, 0)->comm = comm;
		tb_rec(&im[0], DF_REC_COMM_DESTROY, 0, 0, 0, 0)->comm = comm;
	}
	expect(im, 2, "ORDER", "each waits in its first call for the other to connect");
}
END_TEST

/*
 * Rank 1 waits outside NCCL for rank 0, which waits for the collective that rank 1 has not issued.
 * Rank 0's time-out ends its communicator. Then rank 0 goes on and wakes rank 1, which issues the
 * collective. This call is too late, so rank 1 is missing.
 */
START_TEST(test_released_by_the_end)
{
	struct tb_image im[2];

	pair(im, 1);
	tb_issue(&im[0], 1, 0, DF_KIND_ALLREDUCE, 10, -1, 0);
	tb_rec(&im[0], DF_REC_CALL_ENTER, 77, DF_CALL_STREAM_SYNC, 1, 0);
	im[1].clock = im[0].clock + 59000000000;
	tb_rec(&im[1], DF_REC_HOST_AT, 0, im[1].h->pid, DF_AT_IO, 0)->thread = 99;
	tb_quiet(&im[0], 60000);
	tb_rec(&im[0], DF_REC_COMM_ABORT, 0, 1, 0, 0)->comm = 1;
	tb_rec(&im[0], DF_REC_CALL_EXIT, 77, DF_CALL_STREAM_SYNC, 0, 0);
	im[1].clock = im[0].clock;
	tb_issue(&im[1], 1, 1, DF_KIND_ALLREDUCE, 10, -1, 0);
	tb_rec(&im[1], DF_REC_OP_FAILED, 0, DF_KIND_ALLREDUCE, 6, 0)->comm = 1;
	expect(im, 2, "HOST", "outside NCCL and CUDA");
}
END_TEST

START_TEST(test_init)
{
	struct tb_image im[2];

	pair(im, 1);
	tb_rec(&im[0], DF_REC_CALL_ENTER, 77, DF_CALL_COMM_INIT, 0x9f3a, 2);
	tb_quiet(&im[0], 60000);
	tb_quiet(&im[1], 60000);
	expect(im, 2, "INIT", "1 of 2 ranks");
	/* The ranks that have joined are recorded, so the report names the ranks that have not. */
	pair(im, 1);
	tb_rec(&im[0], DF_REC_CALL_ENTER, 77, DF_CALL_COMM_INIT, 0x9f3a, 2);
	tb_rec(&im[0], DF_REC_COMM_INIT, 77, 0x9f3a, 2, 0)->rank = 0;
	tb_quiet(&im[0], 60000);
	tb_quiet(&im[1], 60000);
	expect(im, 2, "INIT", "rank 1 of 2 has not called ncclCommInitRank");
}
END_TEST

/*
 * One of three ranks inside ncclCommInitRank exits or dies, so the others never get the
 * communicator.
 */
START_TEST(test_left_in_init)
{
	static const char *const want[][2] = {
		{"INIT", "rank 1 of 3 (pid %u) exited normally inside ncclCommInitRank"},
		{"CRASH", "a process has died (pid %u)"}};

	for (int died = 0; died < 2; died++) {
		struct tb_image im[3];
		char text[96];

		for (int i = 0; i < 3; i++) {
			tb_image_init(&im[i], i, 3, 256);
			tb_rec(&im[i], DF_REC_PROC_START, 0, 0, 0, 0);
			tb_rec(&im[i], DF_REC_CALL_ENTER, 77, DF_CALL_COMM_INIT, 0x9f3a, 3);
			tb_rec(&im[i], DF_REC_COMM_INIT, 77, 0x9f3a, 3, 0)->rank = i;
			if (!died && i != 1)
				tb_quiet(&im[i], 60000);
		}
		if (died)
			tb_rec(&im[2], DF_REC_PEER_DEAD, 0, im[1].h->host_hash, im[1].h->pid, 0);
		else
			tb_rec(&im[1], DF_REC_PROC_EXIT, 0, 0, 0, 0);
		im[1].h->closed = !died;
		tb_rec(&im[0], DF_REC_CALL_EXIT, 77, DF_CALL_COMM_INIT, 104, 0);
		snprintf(text, sizeof(text), want[died][1], im[1].h->pid);
		expect(im, 3, want[died][0], text);
	}
}
END_TEST

/*
 * dfshim run recorded that a signal ended rank 1. _i: 0 the ranks had finished before, 1 rank 0
 * waits for the communicator, 2 another job began in the same folder afterwards.
 */
START_TEST(test_parent_saw)
{
	struct tb_image im[3];

	pair(im, 1);
	tb_image_init(&im[2], -1, 0, 64);
	if (_i == 1) {
		tb_rec(&im[0], DF_REC_CALL_ENTER, 77, DF_CALL_COMM_INIT, 0x9f3a, 2);
		tb_rec(&im[0], DF_REC_COMM_INIT, 77, 0x9f3a, 2, 0)->rank = 0;
		tb_quiet(&im[0], 60000);
	}
	tb_rec(&im[2], DF_REC_PEER_DEAD, 1, im[1].h->host_hash, 4711, 0 - (uint64_t)SIGKILL);
	if (_i == 2)
		im[0].h->mono_ns = im[2].clock + 1;
	expect(im, 3, _i == 2 ? "OK" : "CRASH",
	       _i == 2 ? NULL : "the process of rank 1 was ended by signal 9 (Killed), pid 4711");
}
END_TEST

/*
 * Rank 1 notices a hang and ends because of it before rank 0 notices the hang. With _i = 1 rank 1
 * had noticed nothing and has died.
 */
START_TEST(test_noticed_first)
{
	struct tb_image im[2];

	pair(im, 1);
	tb_issue(&im[0], 1, 0, DF_KIND_ALLREDUCE, 10, -1, 0);
	tb_rec(&im[0], DF_REC_CALL_ENTER, 77, DF_CALL_STREAM_SYNC, 1, 0);
	tb_rec(&im[1], DF_REC_HOST_AT, 0, im[1].h->pid, DF_AT_IO, 0)->thread = 99;
	if (!_i)
		tb_quiet(&im[1], 30000);
	tb_quiet(&im[0], 60000);
	tb_rec(&im[0], DF_REC_PEER_DEAD, 0, im[1].h->host_hash, im[1].h->pid, 0);
	expect(im, 2, _i ? "CRASH" : "HOST", NULL);
}
END_TEST

START_TEST(test_nccl_internal)
{
	struct tb_image im[2];

	pair(im, 1);
	tb_issue(&im[0], 1, 0, DF_KIND_ALLREDUCE, 10, -1, 0);
	tb_rec(&im[1], DF_REC_CALL_ENTER, 78, DF_CALL_GROUP_END, 0, 0);
	tb_issue(&im[1], 1, 1, DF_KIND_ALLREDUCE, 10, -1, 0);
	im[1].h->next -= 3;
	tb_quiet(&im[0], 60000);
	tb_quiet(&im[1], 60000);
	expect(im, 2, "NCCL_INTERNAL", "ncclGroupEnd");
}
END_TEST

/*
 * A trace that is cut off anywhere, or in which any byte is changed, is refused or judged. The
 * checker does not crash.
 */
START_TEST(test_damage)
{
	uint64_t x = df_test_seed() + (uint64_t)_i * 7919;
	struct tb_image im[DF_MODEL_RANKS];
	FILE *f = tb_open("scenarios.txt");
	struct tb_prog p;

	while (tb_read(f, &p)) {
		struct df_check_set *set = df_check_set_new();
		struct df_check_result *r;

		tb_run(&p.p, NULL, im);
		for (int i = 0; i < p.p.nr_ranks; i++) {
			size_t bytes = im[i].bytes, nr;

			x = x * 6364136223846793005ULL + 1442695040888963407ULL;
			nr = (x >> 33) % 40;
			for (size_t k = 0; k < nr; k++) {
				size_t at;

				x = x * 6364136223846793005ULL + 1442695040888963407ULL;
				/* Mostly in the parts that are used: the header and the records. */
				at = (x >> 20) % 3
					     ? im[i].h->off_recs +
						       (x >> 33) % (im[i].bytes - im[i].h->off_recs)
					     : 48 + (x >> 33) % 200;
				if (at >= im[i].bytes)
					continue;
				((unsigned char *)im[i].h)[at] = (unsigned char)(x >> 56);
				if (im[i].h->off_recs >= im[i].bytes)
					im[i].h->off_recs = 4096;
			}
			if (x >> 60 & 1)
				bytes = (x >> 30) % im[i].bytes;
			df_check_add_image(set, im[i].h, bytes, "damaged");
		}
		if (!df_check_run(set, NULL, &r)) {
			free(tb_printed(r, 0));
			free(tb_printed(r, 1));
			df_check_result_free(r);
		}
		df_check_set_free(set);
		tb_images_fini(im, p.p.nr_ranks);
		df_mprog_fini(&p.p);
	}
	fclose(f);
}
END_TEST

/*
 * A file may contain any indices. Here they are as far apart as possible, surrounded by others, and
 * repeated on the other rank. They are compared nevertheless, with memory in proportion to the
 * number of records.
 */
START_TEST(test_forged_indices)
{
	enum { OPS = 1000 };
	struct df_check_set *set;
	struct df_check_result *r;
	struct tb_image im[2];
	size_t held = 0, given = 0;

	for (int i = 0; i < 2; i++) {
		tb_image_init(&im[i], i, 2, 8 * OPS);
		im[i].h->rules = 1;
		tb_comm(&im[i], 0xabc, 2, i, 0);
		given += im[i].bytes;
		for (uint64_t k = 0; k < OPS; k++) {
			uint64_t at = k % 4 == 0   ? k * ((1u << 24) / OPS)
				      : k % 4 == 1 ? k << 20
				      : k % 4 == 2 ? UINT64_MAX - 1 - k * 100
						   : k << 48;
			uint64_t s = tb_issue(&im[i], 1, i, DF_KIND_ALLREDUCE,
					      i && k == OPS - 2 ? 20 : 10, -1, at);

			tb_op(&im[i], 1, DF_REC_OP_START, s);
			tb_op(&im[i], 1, DF_REC_OP_DONE, s);
		}
	}
	r = tb_check(im, 2, &set);
	ck_assert_msg(df_check_verdict(r) == DF_V_MISMATCH, "%s", df_check_line(r));
	ck_assert_uint_eq(set->gcomms[0].mismatch, UINT64_MAX - 1 - (OPS - 2) * 100);
	for (size_t i = 0; i < set->nr_gcomms; i++)
		held += set->gcomms[i].cap_rows * sizeof(*set->gcomms[i].rows) +
			set->gcomms[i].rows_at.cap * sizeof(*set->gcomms[i].rows_at.slots);
	ck_assert_uint_gt(held, 0);
	ck_assert_msg(held < 2 * given, "%zu bytes held for traces of %zu", held, given);
	df_check_result_free(r);
	df_check_set_free(set);
	tb_images_fini(im, 2);
}
END_TEST

int main(void)
{
	return DF_TESTS("check", {test_scenarios}, {test_compact}, {test_evidence},
			{test_net_stall}, {test_slot_is_start}, {test_in_flight_is_ok},
			{test_drifting_clocks}, {test_live_straggler_is_slow},
			{test_silent_mismatch}, {test_ours_disorder_is_ok}, {test_ours_mismatch},
			{test_same_rank}, {test_ours_missing, 2}, {test_ours_peer_not_free},
			{test_missing_trace}, {test_lost_record}, {test_earlier_run}, {test_drops},
			{test_unseen_sizes}, {test_ended_from_outside}, {test_failed_call},
			{test_released_by_the_end}, {test_broken_off_by_others, 2}, {test_init},
			{test_left_in_init}, {test_parent_saw, .times = 3},
			{test_noticed_first, .times = 2}, {test_nccl_internal},
			{test_forged_indices}, {test_damage, 20});
}
