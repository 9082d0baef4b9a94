/*
 * The verdict depends on the contents of the traces and not on their order. Added in any order,
 * they give the same text with the same cycle. Reduced rings, which the watchdog judges, give the
 * text of the whole rings, including the records that are named.
 */
#include <stdlib.h>
#include <string.h>
#include "tests/lib/test.h"
#include "tests/lib/trace_build.h"
#include "trace/record/names.h"

#define PROGRAMS (600 / df_test_slow())
#define SHUFFLES 4

static uint64_t state;

static size_t below(size_t n)
{
	state = state * 6364136223846793005ULL + 1442695040888963407ULL;
	return (size_t)((state >> 33) % n);
}

/* Each image keeps its name, as a file would. */
static char *judged(const struct tb_image *im, int nr, const int *order, int json, int reduced)
{
	struct df_check_set *set = df_check_set_new();
	struct df_check_result *r;
	char name[32], *text;

	for (int i = 0; i < nr; i++) {
		const struct tb_image *x = &im[order[i]];
		void *image = x->h;
		size_t bytes = x->bytes;

		snprintf(name, sizeof(name), "rank%d", order[i]);
		if (reduced)
			ck_assert_int_eq(df_trace_compact(x->h, &image, &bytes), 0);
		ck_assert_int_eq(df_check_add_image(set, image, bytes, name), 0);
		if (reduced)
			free(image);
	}
	ck_assert_int_eq(df_check_run(set, NULL, &r), 0);
	text = tb_printed(r, json);
	df_check_result_free(r);
	df_check_set_free(set);
	return text;
}

/*
 * The last line counts records, and a reduced ring has fewer. (The line of an OK counts them too.)
 */
static void drop_last_line(char *text)
{
	size_t n = strlen(text);

	ck_assert(n && text[n - 1] == '\n');
	text[n - 1] = 0;
	*(strrchr(text, '\n') + 1) = 0;
}

static void same(const char *name, const char *a, const char *b, const char *what)
{
	ck_assert_msg(!strcmp(a, b),
		      "%s (SEED=%llu), %s:\n%.2000s\nand in the order of ranks:\n%.2000s", name,
		      (unsigned long long)df_test_seed(), what, a, b);
}

static void shuffle(int *order, int nr)
{
	for (int i = nr - 1; i > 0; i--) {
		int k = (int)below((size_t)i + 1), t = order[i];

		order[i] = order[k];
		order[k] = t;
	}
}

/* Some ranks have other names for a communicator than the rest. One name must win. */
static void name_comms(struct tb_image *im, int nr)
{
	for (int i = 0; i < nr; i++)
		for (uint32_t c = 1; c <= im[i].h->comms_used; c++)
			if (!below(4))
				snprintf(tb_comm_at(&im[i], c)->name, 32, "n%zu", below(3));
}

static void check_program(const struct tb_prog *p, const struct tb_opts *opts)
{
	int order[DF_MODEL_RANKS], nr = p->p.nr_ranks, ended = 0;
	struct tb_image im[DF_MODEL_RANKS];
	char *whole[2], *text;

	tb_run(&p->p, opts, im);
	if (!below(3))
		name_comms(im, nr);
	for (int i = 0; i < nr; i++)
		order[i] = i;
	for (int json = 0; json < 2; json++)
		whole[json] = judged(im, nr, order, json, 0);
	for (int k = 0; k < SHUFFLES; k++) {
		shuffle(order, nr);
		for (int json = 0; json < 2; json++) {
			text = judged(im, nr, order, json, 0);
			same(p->name, text, whole[json], "in another order");
			free(text);
		}
	}
	/*
	 * A process that has ended does not answer a watchdog, so only its file contains its last
	 * calls.
	 */
	for (int i = 0; i < nr; i++)
		ended |= im[i].h->closed != 0;
	text = judged(im, nr, order, 0, !ended);
	if (!strncmp(whole[0], "OK: ", 4))
		text[3] = whole[0][3] = 0;
	else
		drop_last_line(text), drop_last_line(whole[0]);
	same(p->name, text, whole[0], "reduced");
	free(text);
	free(whole[0]);
	free(whole[1]);
	tb_images_fini(im, nr);
}

static void check_programs(FILE *f, int least)
{
	struct tb_prog p;
	int nr = 0;

	state = df_test_seed();
	for (; tb_read(f, &p); nr++) {
		struct tb_opts opts = {.crash = !strcmp(p.verdict, "CRASH")};

		check_program(&p, &opts);
		df_mprog_fini(&p.p);
	}
	ck_assert_int_ge(nr, least);
}

START_TEST(test_scenarios)
{
	FILE *f = tb_open("scenarios.txt");

	check_programs(f, 60);
	fclose(f);
}
END_TEST

START_TEST(test_random)
{
	FILE *f = tb_random(df_test_seed(), PROGRAMS);

	check_programs(f, PROGRAMS);
	ck_assert_int_eq(pclose(f), 0);
}
END_TEST

/*
 * Many cycles of one length. In a ring of 2n ranks each rank issues its collective with the next
 * rank before the one with the previous rank. Two collectives that are over had different counts;
 * of four ranks two had the same.
 */
static void many_circles(struct tb_image *im, int nr)
{
	for (int i = 0; i < nr; i++) {
		uint64_t s;
		int pairs = nr / 2;

		tb_image_init(&im[i], i, nr, 256);
		im[i].h->rules = 1;
		for (int c = 0; c < 3; c++)
			tb_comm(&im[i], (uint64_t)(1 + c + 3 * (i % pairs)), 2, i / pairs, 0);
		s = tb_issue(&im[i], 3, i / pairs, DF_KIND_ALLREDUCE, (uint64_t)(8 + i), -1, 0);
		tb_op(&im[i], 3, DF_REC_OP_START, s);
		tb_op(&im[i], 3, DF_REC_OP_DONE, s);
		for (uint32_t k = 0; k < 2; k++)
			tb_issue(&im[i], i < pairs ? 1 + k : 2 - k, i / pairs, DF_KIND_ALLREDUCE, 8,
				 -1, 0);
		tb_quiet(&im[i], 60000);
	}
}

START_TEST(test_many_circles)
{
	enum { RANKS = 16 };
	struct tb_image im[RANKS];
	int order[RANKS];
	char *first = NULL;

	state = df_test_seed();
	many_circles(im, RANKS);
	for (int i = 0; i < RANKS; i++)
		order[i] = i;
	for (int k = 0; k < 50; k++) {
		char *text = judged(im, RANKS, order, 0, 0);

		if (!first) {
			first = text;
			ck_assert_msg(!strncmp(text, "ORDER: ", 7), "%s", text);
		} else {
			same("many circles", text, first, "in another order");
			free(text);
		}
		shuffle(order, RANKS);
	}
	free(first);
	tb_images_fini(im, RANKS);
}
END_TEST

/*
 * Mismatched collectives that are over. All sides are reported, and always for the same one of
 * several communicators.
 */
START_TEST(test_completed)
{
	enum { RANKS = 12 };
	struct tb_image im[RANKS];
	int order[RANKS];
	char *first = NULL;

	state = df_test_seed();
	for (int i = 0; i < RANKS; i++) {
		tb_image_init(&im[i], i, RANKS, 64);
		im[i].h->rules = 1;
		tb_comm(&im[i], (uint64_t)(100 + i % 3), RANKS / 3, i / 3, 0);
		for (uint64_t k = 0; k < 3; k++) {
			uint64_t s = tb_issue(&im[i], 1, i / 3, DF_KIND_ALLREDUCE,
					      k && i % 3 && i >= 6 ? 20 : 10, -1, k);

			tb_op(&im[i], 1, DF_REC_OP_START, s);
			tb_op(&im[i], 1, DF_REC_OP_DONE, s);
		}
		order[i] = i;
	}
	for (int k = 0; k < 50; k++) {
		char *text = judged(im, RANKS, order, 0, 0);

		if (!first) {
			first = text;
			ck_assert_msg(strstr(text, "MISMATCH: B#2 differs in count: ") == text &&
					      strstr(text, "on the 2 others"),
				      "%s", text);
		} else {
			same("completed", text, first, "in another order");
			free(text);
		}
		shuffle(order, RANKS);
	}
	free(first);
	tb_images_fini(im, RANKS);
}
END_TEST

static void issue(struct tb_image *im, uint32_t comm, int rank, uint32_t thread, uint64_t stream,
		  uint64_t index, int over)
{
	uint64_t from = im->h->next, s = tb_issue(im, comm, rank, DF_KIND_ALLREDUCE, 8, -1, index);

	tb_at(im, from)->c = stream;
	for (uint64_t i = from; i < im->h->next; i++)
		tb_at(im, i)->thread = thread;
	for (int k = 0; k < 2 && over; k++)
		tb_op(im, comm, k ? DF_REC_OP_DONE : DF_REC_OP_START, s);
}

static void waits(struct tb_image *im, uint32_t thread, uint64_t stream)
{
	tb_rec(im, DF_REC_CALL_ENTER, 1000 + stream, DF_CALL_STREAM_SYNC, stream, 0)->thread =
		thread;
}

/*
 * Two threads of r1 could each end r0's wait, and each waits for an operation that only r1 could
 * start: two cycles of one length. A reduced ring does not contain which thread was first.
 */
START_TEST(test_threads)
{
	struct tb_image im[2];
	int order[2] = {0, 1};
	char *whole, *text;

	for (int i = 0; i < 2; i++) {
		tb_image_init(&im[i], i, 2, 256);
		im[i].h->rules = 1;
		for (uint64_t c = 1; c <= 3; c++)
			tb_comm(&im[i], c, 2, i, 0);
		for (uint64_t k = 0; k < 3; k++)
			issue(&im[i], 1, i, !i ? 1000 : k & 1 ? 1100 : 1200, 7, k, 1);
	}
	issue(&im[0], 1, 0, 1000, 3, 3, 0);
	waits(&im[0], 1000, 3);
	issue(&im[1], 2, 1, 1200, 1, 0, 0);
	issue(&im[1], 3, 1, 1100, 2, 0, 0);
	waits(&im[1], 1200, 1);
	waits(&im[1], 1100, 2);
	for (int i = 0; i < 2; i++)
		tb_quiet(&im[i], 60000);
	whole = judged(im, 2, order, 0, 0);
	text = judged(im, 2, order, 0, 1);
	ck_assert_msg(strstr(text, "Shortest cycle:") != NULL, "%s", text);
	drop_last_line(text);
	drop_last_line(whole);
	same("threads", text, whole, "reduced");
	free(text);
	free(whole);
	tb_images_fini(im, 2);
}
END_TEST

int main(void)
{
	int python = !system("python3 -c 1 2>/dev/null");

	if (!python)
		printf("no python3 to make random programs: the scenarios alone\n");
	return DF_TESTS("order", {test_scenarios}, {test_many_circles}, {test_completed},
			{test_threads}, {python ? test_random : NULL});
}
