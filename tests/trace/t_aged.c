/*
 * A part of the job stands still while other threads of the same processes go on. Only waits that
 * are old count (df_check_opts.aged_ns), and the verdict names the thread that does not issue.
 */
#include <stdlib.h>
#include <string.h>
#include "tests/lib/test.h"
#include "tests/lib/trace_build.h"
#include "trace/record/names.h"

#define RANKS	 3
#define TRAINS	 1 /* communicators */
#define BEATS	 2
#define STUCK	 2   /* the rank that does not train */
#define BEATER	 600 /* the thread that beats, of each process */
#define S	 1000000000ULL
#define NR_BEATS 20

/* Each rank issues; the operation ends if `ends`. */
static void issue(struct tb_image *im, int rank, uint32_t comm, uint32_t thread, uint64_t index,
		  int ends)
{
	uint64_t first = im->h->next;
	uint64_t serial = tb_issue(im, comm, rank, DF_KIND_ALLREDUCE, 8, -1, index);

	tb_at(im, im->h->next - 1)->b = index; /* one signature, so the instance is the index */
	tb_op(im, comm, DF_REC_OP_START, serial);
	if (ends)
		tb_op(im, comm, DF_REC_OP_DONE, serial);
	for (; first < im->h->next; first++)
		tb_at(im, first)->thread = thread;
}

/*
 * All ranks but STUCK wait in the second operation of TRAINS, for `waits` s. Meanwhile all beat; in
 * the last beat all ranks but `late` have issued, a short time ago.
 */
static void job(struct tb_image *im, uint64_t waits, uint64_t index, int late)
{
	for (int r = 0; r < RANKS; r++) {
		uint32_t pid;

		tb_image_init(&im[r], r, RANKS, 1024);
		pid = im[r].h->pid;
		tb_comm(&im[r], 0x1, RANKS, r, 0);
		tb_comm(&im[r], 0x2, RANKS, r, 0);
		for (uint64_t i = 0; i < index; i++)
			issue(&im[r], r, TRAINS, pid, i, 1);
		if (r != STUCK) {
			issue(&im[r], r, TRAINS, pid, index, 0);
			tb_rec(&im[r], DF_REC_CALL_ENTER, 500, DF_CALL_STREAM_SYNC, 0, 0)->thread =
				pid;
		}
		for (uint64_t i = 0; i < NR_BEATS; i++) {
			im[r].clock += waits * S / NR_BEATS;
			issue(&im[r], r, BEATS, BEATER, i, 1);
		}
		im[r].clock += S / 2;
		if (r != late)
			issue(&im[r], r, BEATS, BEATER, NR_BEATS, 0);
		im[r].clock += S / 2;
		tb_rec(&im[r], DF_REC_MARK, 0, 0, 0, 0)->thread = BEATER;
	}
}

static enum df_verdict judge(struct tb_image *im, uint64_t aged, uint64_t *facts, char line[600])
{
	struct df_check_opts opts = {.live = 1, .aged_ns = aged, .stale_ns = 3600 * S};
	struct df_check_set *set = df_check_set_new();
	struct df_check_result *r;
	enum df_verdict v;

	for (int i = 0; i < RANKS; i++) {
		void *image;
		size_t bytes;

		ck_assert_int_eq(df_trace_compact(im[i].h, &image, &bytes), 0);
		ck_assert_int_eq(df_check_add_image(set, image, bytes, "x"), 0);
		df_check_add_progress(set, im[i].h->next);
		free(image);
	}
	ck_assert_int_eq(df_check_run(set, &opts, &r), 0);
	v = df_check_verdict(r);
	*facts = df_check_facts(r);
	snprintf(line, 600, "%s", df_check_line(r));
	df_check_result_free(r);
	df_check_set_free(set);
	tb_images_fini(im, RANKS);
	return v;
}

/* The rank whose beat is late is not the cause, whichever it is. */
START_TEST(test_thread)
{
	struct tb_image im[RANKS];
	char line[600];
	uint64_t facts;

	job(im, 20, 3, _i);
	ck_assert_msg(judge(im, 10 * S, &facts, line) == DF_V_SLOW, "%s", line);
	ck_assert_msg(strstr(line, "A#4 waits for r2, which has not issued it: thread ") &&
			      strstr(line, " has issued nothing for 21.0 s, while another thread "
					   "of r2 goes on") &&
			      strstr(line, "(its last call on A is #3)"),
		      "%s", line);
}
END_TEST

/* All waits are too short, or age does not count. */
START_TEST(test_nothing)
{
	struct tb_image im[RANKS];
	char line[600];
	uint64_t facts;

	job(im, 20, 3, 0);
	ck_assert_msg(judge(im, 30 * S, &facts, line) == DF_V_OK, "%s", line);
	job(im, 20, 3, 0);
	ck_assert_msg(judge(im, 0, &facts, line) == DF_V_OK, "%s", line);
}
END_TEST

/* The same wait has the same facts later, whatever went on. The next step's wait has others. */
START_TEST(test_facts)
{
	uint64_t first, later, next;
	struct tb_image im[RANKS];
	char line[600];

	job(im, 20, 3, 0);
	judge(im, 10 * S, &first, line);
	job(im, 40, 3, 1);
	judge(im, 10 * S, &later, line);
	job(im, 20, 4, 0);
	judge(im, 10 * S, &next, line);
	ck_assert_uint_ne(first, 0);
	ck_assert_uint_eq(first, later);
	ck_assert_uint_ne(first, next);
}
END_TEST

int main(void)
{
	return DF_TESTS("aged", {test_thread, RANKS}, {test_nothing, 1}, {test_facts, 1});
}
