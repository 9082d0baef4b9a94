/*
 * A rank's thread has ended without a call for which others wait, in processes with several ranks.
 * The verdict is MISSING, whichever other thread of the process waits for the stuck ranks. If a
 * thread could still issue the call, the verdict is another one.
 */
#include <stdlib.h>
#include <string.h>
#include "tests/lib/test.h"
#include "tests/lib/trace_build.h"
#include "trace/record/names.h"

#define MAIN   1000 /* the thread number of the main thread: the first image's process id */
#define T(r)   (10 + (uint32_t)(r))
#define WATCH  99
#define MINUTE 60000

/* Traces of dfshim, of libdfnccl.so with NCCL's rules, and of NVIDIA's NCCL in mode trace. */
static const struct {
	uint32_t rules, mode;
} ways[] = {{0, 0}, {1, 0}, {0, 1}};

#define NR_WAYS ((int)(sizeof(ways) / sizeof(*ways)))

/*
 * A process whose main thread makes the communicators of nr ranks. Each rank has a device and a
 * thread of its own.
 */
static void process(struct tb_image *im, int way, int nr, int nr_comms)
{
	tb_image_init(im, 0, 1, 1024);
	im->h->rules = ways[way].rules;
	im->h->mode = ways[way].mode;
	tb_rec(im, DF_REC_PROC_START, 0, 0, 0, 0);
	for (int c = 0; c < nr_comms; c++)
		for (int r = 0; r < nr; r++)
			tb_rec(im, DF_REC_COMM_INIT, 0, 0, 0, 0)->comm =
				tb_comm(im, 0xabc + (uint64_t)c, nr, r, r);
}

static uint64_t issue(struct tb_image *im, uint32_t thread, int nr, int comm, int rank,
		      uint64_t index)
{
	uint64_t serial = tb_issue(im, (uint32_t)(comm * nr + rank + 1), rank, DF_KIND_ALLREDUCE, 8,
				   -1, index);

	for (uint64_t i = im->h->next - 3; i < im->h->next; i++) {
		tb_at(im, i)->thread = thread;
		tb_at(im, i)->device = (uint16_t)rank;
	}
	tb_at(im, im->h->next - 3)->c = (uint64_t)rank + 1; /* the rank's stream */
	tb_at(im, im->h->next - 1)->b = index; /* one signature, so the instance is the index */
	return serial;
}

/* All ranks issue the operation, and it ends. */
static void together(struct tb_image *im, int nr, int comm, uint64_t index)
{
	for (int r = 0; r < nr; r++) {
		uint64_t serial = issue(im, T(r), nr, comm, r, index);

		tb_op(im, (uint32_t)(comm * nr + r + 1), DF_REC_OP_START, serial)->thread = WATCH;
		tb_op(im, (uint32_t)(comm * nr + r + 1), DF_REC_OP_DONE, serial)->thread = WATCH;
	}
}

static void enters(struct tb_image *im, uint32_t thread, enum df_call call, uint64_t object,
		   int device)
{
	struct df_rec *r = tb_rec(im, DF_REC_CALL_ENTER, 500 + thread, call, object, 0);

	r->thread = thread;
	r->device = (uint16_t)device;
}

static void is_at(struct tb_image *im, uint32_t thread, enum df_host_at at)
{
	tb_rec(im, DF_REC_HOST_AT, 0, thread, at, 0)->thread = WATCH;
}

/* Rank 0 waits for its operation `index`, which no other rank has issued. */
static void first_waits(struct tb_image *im, int nr, int comm, uint64_t index)
{
	issue(im, T(0), nr, comm, 0, index);
	enters(im, T(0), DF_CALL_STREAM_SYNC, 1, 0);
}

static struct df_check_result *judge(const struct tb_image *im, int nr, int live, int compact,
				     struct df_check_set **set)
{
	struct df_check_opts opts = {.live = live};
	struct df_check_result *r;

	*set = df_check_set_new();
	for (int i = 0; i < nr; i++) {
		void *image = im[i].h;
		size_t bytes = im[i].bytes;

		if (compact)
			ck_assert_int_eq(df_trace_compact(im[i].h, &image, &bytes), 0);
		ck_assert_int_eq(df_check_add_image(*set, image, bytes, "x"), 0);
		if (compact)
			free(image);
	}
	ck_assert_int_eq(df_check_run(*set, &opts, &r), 0);
	return r;
}

/* Also judges the trace live, and as a reduced one. */
static void expect_of(struct tb_image *im, int nr, const char *word, const char *live_word,
		      const char *has)
{
	for (int k = 0; k < 4; k++) {
		const char *want = k & 1 ? live_word : word;
		struct df_check_set *set;
		struct df_check_result *r = judge(im, nr, k & 1, k & 2, &set);

		ck_assert_msg(!strcmp(df_verdict_word(df_check_verdict(r)), want) &&
				      strstr(df_check_line(r), has),
			      "%s%s: %s with '%s' expected, not %s", k & 1 ? "live" : "files",
			      k & 2 ? ", compacted" : "", want, has, df_check_line(r));
		df_check_result_free(r);
		df_check_set_free(set);
	}
	tb_images_fini(im, nr);
}

static void expect(struct tb_image *im, const char *word, const char *has)
{
	expect_of(im, 1, word, word, has);
}

#define ENDED "waits for r1, whose thread has ended without issuing it"

/*
 * The main thread joins both threads. The verdict is the same wherever the main thread was seen
 * waiting, and also if it was only seen in no call.
 */
START_TEST(test_joined)
{
	struct tb_image im;

	process(&im, _i, 2, 1);
	together(&im, 2, 0, 0);
	together(&im, 2, 0, 1);
	first_waits(&im, 2, 0, 2);
	is_at(&im, MAIN, DF_AT_LOCK);
	is_at(&im, T(1), DF_AT_GONE);
	tb_quiet(&im, MINUTE);
	expect(&im, "MISSING", "A#3 " ENDED " (its last call on A is #2)");
}
END_TEST

/* A thread that could still issue the operation waits for a lock. The report names it. */
START_TEST(test_lives)
{
	struct tb_image im;

	process(&im, _i, 2, 1);
	together(&im, 2, 0, 0);
	first_waits(&im, 2, 0, 1);
	is_at(&im, MAIN, DF_AT_LOCK);
	is_at(&im, T(1), DF_AT_LOCK);
	tb_quiet(&im, MINUTE);
	expect_of(&im, 1, "HOST", "SLOW", "");

	process(&im, _i, 2, 1);
	together(&im, 2, 0, 0);
	first_waits(&im, 2, 0, 1);
	is_at(&im, MAIN, DF_AT_LOCK);
	is_at(&im, T(1), DF_AT_SLEEPS);
	tb_quiet(&im, MINUTE);
	expect_of(&im, 1, "MISSING", "SLOW", "A#2 waits for r1, which has not issued it");

	/* The thread that made the communicators runs, so it may make any call. */
	process(&im, _i, 2, 1);
	together(&im, 2, 0, 0);
	first_waits(&im, 2, 0, 1);
	is_at(&im, MAIN, DF_AT_RUNS);
	is_at(&im, T(1), DF_AT_GONE);
	tb_quiet(&im, MINUTE);
	expect_of(&im, 1, "MISSING", "SLOW", "A#2 " ENDED);

	/* A new thread has the number of the thread that has ended. */
	process(&im, _i, 2, 1);
	together(&im, 2, 0, 0);
	first_waits(&im, 2, 0, 1);
	is_at(&im, MAIN, DF_AT_LOCK);
	is_at(&im, T(1), DF_AT_GONE);
	tb_rec(&im, DF_REC_MARK, 0, 0, 0, 0)->thread = T(1);
	is_at(&im, T(1), DF_AT_SLEEPS);
	tb_quiet(&im, MINUTE);
	expect_of(&im, 1, "MISSING", "SLOW", "A#2 waits for r1, which has not issued it");
}
END_TEST

/*
 * The main thread does not join. It waits for the other rank's device, or is the other rank's
 * thread.
 */
START_TEST(test_in_cuda)
{
	struct tb_image im;

	process(&im, _i, 2, 1);
	together(&im, 2, 0, 0);
	first_waits(&im, 2, 0, 1);
	enters(&im, MAIN, DF_CALL_DEVICE_SYNC, 0, 0);
	is_at(&im, T(1), DF_AT_GONE);
	tb_quiet(&im, MINUTE);
	expect(&im, "MISSING", "A#2 " ENDED);

	process(&im, _i, 2, 1);
	issue(&im, MAIN, 2, 0, 0, 0);
	enters(&im, MAIN, DF_CALL_STREAM_SYNC, 1, 0);
	issue(&im, T(1), 2, 0, 1, 0);
	for (uint64_t s = 1; s <= 2; s++)
		tb_op(&im, (uint32_t)s, DF_REC_OP_DONE, s)->thread = WATCH;
	tb_rec(&im, DF_REC_CALL_EXIT, 500 + MAIN, DF_CALL_STREAM_SYNC, 0, 0);
	issue(&im, MAIN, 2, 0, 0, 1);
	enters(&im, MAIN, DF_CALL_DEVICE_SYNC, 0, 0);
	is_at(&im, T(1), DF_AT_GONE);
	tb_quiet(&im, MINUTE);
	expect(&im, "MISSING", "A#2 " ENDED " (its last call on A is #1)");
}
END_TEST

/*
 * The main thread made the communicators and joins the others. Each rank's thread waits for its
 * first operation, each on another communicator.
 */
START_TEST(test_stuck_elsewhere)
{
	struct tb_image im;

	process(&im, _i, 2, 2);
	for (int r = 0; r < 2; r++) {
		issue(&im, T(r), 2, r, r, 0);
		enters(&im, T(r), DF_CALL_STREAM_SYNC, (uint64_t)r + 1, r);
	}
	is_at(&im, MAIN, DF_AT_LOCK);
	tb_quiet(&im, MINUTE);
	expect(&im, "DATA", "cycle");
}
END_TEST

/*
 * The rank has issued operations on other communicators only, or no operation at all although each
 * rank has a thread.
 */
START_TEST(test_unused)
{
	struct tb_image im;

	process(&im, _i, 2, 2);
	together(&im, 2, 0, 0);
	first_waits(&im, 2, 1, 0);
	is_at(&im, MAIN, DF_AT_LOCK);
	is_at(&im, T(1), DF_AT_GONE);
	tb_quiet(&im, MINUTE);
	expect(&im, "MISSING", "B#1 " ENDED " (it has issued nothing on B, its last call is A#1)");

	process(&im, _i, 2, 1);
	tb_rec(&im, DF_REC_STREAM_CREATE, 0, 2, 1, 0)->thread = T(1);
	tb_at(&im, im.h->next - 1)->device = 1;
	first_waits(&im, 2, 0, 0);
	is_at(&im, MAIN, DF_AT_LOCK);
	is_at(&im, T(1), DF_AT_GONE);
	tb_quiet(&im, MINUTE);
	expect(&im, "MISSING", "A#1 " ENDED " (it has issued nothing)");

	/* The rank's thread has never made a call, so no record names it. */
	process(&im, _i, 2, 1);
	first_waits(&im, 2, 0, 0);
	is_at(&im, MAIN, DF_AT_LOCK);
	tb_quiet(&im, MINUTE);
	expect_of(&im, 1, "MISSING", "SLOW", "A#1 waits for r1, which has not issued it");
}
END_TEST

/* A thread that serves two ranks may issue operations for both while it lives. */
START_TEST(test_shared_thread)
{
	struct tb_image im;

	process(&im, _i, 2, 1);
	together(&im, 2, 0, 0);
	issue(&im, T(0), 2, 0, 0, 1);
	issue(&im, T(0), 2, 0, 1, 1);
	for (uint32_t r = 1; r <= 2; r++)
		tb_op(&im, r, DF_REC_OP_DONE, 2 + r)->thread = WATCH;
	first_waits(&im, 2, 0, 2);
	is_at(&im, MAIN, DF_AT_LOCK);
	is_at(&im, T(1), DF_AT_GONE);
	tb_quiet(&im, MINUTE);
	expect(&im, "DATA", "r0");

	/* Both of its ranks are missing when the thread ends. */
	process(&im, _i, 3, 1);
	together(&im, 3, 0, 0);
	for (int r = 1; r < 3; r++)
		issue(&im, T(1), 3, 0, r, 1);
	issue(&im, T(0), 3, 0, 0, 1);
	for (uint32_t r = 1; r <= 3; r++)
		tb_op(&im, r, DF_REC_OP_DONE, 3 + (r == 1 ? 3 : r - 1))->thread = WATCH;
	first_waits(&im, 3, 0, 2);
	is_at(&im, MAIN, DF_AT_LOCK);
	is_at(&im, T(1), DF_AT_GONE);
	is_at(&im, T(2), DF_AT_GONE);
	tb_quiet(&im, MINUTE);
	expect(&im, "MISSING", "whose thread has ended without issuing it");
}
END_TEST

/*
 * A new thread for each operation, more than an entry of the communicator table holds. All have
 * ended, or one sleeps.
 */
START_TEST(test_many_threads)
{
	struct tb_image im;

	for (int lives = 0; lives < 2; lives++) {
		process(&im, _i, 2, 1);
		for (uint64_t i = 0; i < 12; i++) {
			issue(&im, T(0), 2, 0, 0, i);
			issue(&im, 100 + (uint32_t)i, 2, 0, 1, i);
			for (uint32_t r = 1; r <= 2; r++)
				tb_op(&im, r, DF_REC_OP_DONE, 2 * i + r)->thread = WATCH;
		}
		first_waits(&im, 2, 0, 12);
		is_at(&im, MAIN, DF_AT_LOCK);
		for (uint32_t i = 0; i < 12; i++)
			is_at(&im, 100 + i, lives && i == 11 ? DF_AT_SLEEPS : DF_AT_GONE);
		tb_quiet(&im, MINUTE);
		if (lives)
			expect_of(&im, 1, "MISSING", "SLOW",
				  "A#13 waits for r1, which has not issued it");
		else
			expect(&im, "MISSING", "A#13 " ENDED " (its last call on A is #12)");
	}
}
END_TEST

/* The waiting thread is in another process, in a call that all ranks make. */
START_TEST(test_processes)
{
	struct tb_image im[2];

	for (int i = 0; i < 2; i++) {
		tb_image_init(&im[i], i, 2, 256);
		im[i].h->rules = ways[_i].rules;
		im[i].h->mode = ways[_i].mode;
		tb_rec(&im[i], DF_REC_COMM_INIT, 0, 0, 0, 0)->comm =
			tb_comm(&im[i], 0xabc, 2, i, 0);
		tb_op(&im[i], 1, DF_REC_OP_DONE, issue(&im[i], T(i), 0, 0, 0, 0))->thread = WATCH;
		for (uint64_t k = 0; k < im[i].h->next; k++)
			if (tb_at(&im[i], k)->rank >= 0)
				tb_at(&im[i], k)->rank = i;
	}
	enters(&im[0], T(0), DF_CALL_COMM_SPLIT, 0xabc, 0);
	tb_at(&im[0], im[0].h->next - 1)->comm = 1;
	is_at(&im[1], im[1].h->pid, DF_AT_LOCK);
	is_at(&im[1], T(1), DF_AT_GONE);
	tb_quiet(&im[0], MINUTE);
	tb_quiet(&im[1], MINUTE);
	expect_of(im, 2, "MISSING", "MISSING",
		  "r0 waits in ncclCommSplit for r1, whose thread has ended without making it");
}
END_TEST

/* Before the time-out in a living job the missing call may still follow. */
START_TEST(test_before_the_time_out)
{
	struct df_check_set *set;
	struct df_check_result *r;
	struct tb_image im;

	process(&im, _i, 2, 1);
	together(&im, 2, 0, 0);
	first_waits(&im, 2, 0, 1);
	im.clock += 10000000000;
	is_at(&im, MAIN, DF_AT_LOCK);
	is_at(&im, T(1), DF_AT_GONE);
	r = judge(&im, 1, 1, 0, &set);
	ck_assert_msg(df_check_verdict(r) == DF_V_SLOW, "%s", df_check_line(r));
	df_check_result_free(r);
	df_check_set_free(set);
	tb_image_fini(&im);
}
END_TEST

int main(void)
{
	return DF_TESTS("ended", {test_joined, NR_WAYS}, {test_lives, NR_WAYS},
			{test_in_cuda, NR_WAYS}, {test_stuck_elsewhere, NR_WAYS},
			{test_unused, NR_WAYS}, {test_shared_thread, NR_WAYS},
			{test_many_threads, NR_WAYS}, {test_processes, NR_WAYS},
			{test_before_the_time_out, NR_WAYS});
}
