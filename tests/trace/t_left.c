/*
 * A process has exited and its trace is missing. The rows that it announced at its exit
 * (df_trace_left()) must give the verdict that its trace would give. The traces are those of random
 * programs in which a rank exits after its last call.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "tests/lib/test.h"
#include "tests/lib/trace_build.h"
#include "trace/read/set.h"
#include "trace/record/names.h"

#define PROGRAMS 600

enum told { TRACE, WORDS, NOTHING };

/*
 * Whether the process may exit: none of its operations is unfinished, none of its threads is in a
 * call, and it has issued an operation.
 */
static int may_exit(const struct tb_image *im)
{
	uint64_t nr = 0;
	int open = 0;

	for (uint64_t i = 0; i < im->h->next; i++) {
		const struct df_rec *r = tb_at(im, i);

		nr += r->type == DF_REC_OP_ISSUE;
		open += (r->type == DF_REC_OP_ISSUE || r->type == DF_REC_CALL_ENTER) -
			(r->type == DF_REC_OP_DONE || r->type == DF_REC_CALL_EXIT);
	}
	return nr && !open;
}

/*
 * Sometimes makes another rank's last operation unfinished. The exiting rank may have finished its
 * part.
 */
static void unfinish(struct tb_image *im, uint64_t *state)
{
	uint64_t last = UINT64_MAX;

	*state = *state * 6364136223846793005ULL + 1442695040888963407ULL;
	for (uint64_t i = 0; i < im->h->next; i++)
		if (tb_at(im, i)->type == DF_REC_OP_DONE)
			last = i;
	if (last != UINT64_MAX && *state >> 63)
		tb_at(im, last)->type = DF_REC_MARK;
}

/* All other ranks record the exit, on each communicator. */
static void exits(struct tb_image *im, int nr, int who)
{
	const struct df_trace_header *h = im[who].h;

	im[who].h->closed = 1;
	for (int k = 0; k < nr; k++) {
		for (uint32_t c = 1; k != who && c <= h->comms_used; c++) {
			const struct df_trace_comm *of = tb_comm_at(&im[who], c);

			for (uint32_t d = 1; d <= im[k].h->comms_used; d++)
				if (tb_comm_at(&im[k], d)->hash == of->hash)
					tb_rec(&im[k], DF_REC_PEER_DEAD, (uint64_t)of->rank,
					       h->host_hash, h->pid, 1)
						->comm = d;
		}
	}
}

static enum df_verdict verdict(const struct tb_image *im, int nr, int who, enum told told,
			       char *line, size_t size)
{
	struct df_check_opts opts = {.live = 1};
	struct df_check_set *set = df_check_set_new();
	struct df_left_row *rows;
	struct df_check_result *r;
	enum df_verdict v;
	size_t nr_rows;

	for (int i = 0; i < nr; i++)
		if (i != who || told == TRACE)
			ck_assert_int_eq(df_check_add_image(set, im[i].h, im[i].bytes, "t"), 0);
	if (told == WORDS) {
		ck_assert_int_eq(df_trace_left(im[who].h, &rows, &nr_rows), 0);
		ck_assert_int_eq(df_check_add_left(set, rows, nr_rows), 0);
		free(rows);
	}
	ck_assert_int_eq(df_check_run(set, &opts, &r), 0);
	v = df_check_verdict(r);
	snprintf(line, size, "%s", df_check_line(r));
	df_check_result_free(r);
	df_check_set_free(set);
	return v;
}

START_TEST(test_random)
{
	struct tb_image im[DF_MODEL_RANKS];
	struct tb_prog p;
	FILE *f = tb_random(df_test_seed(), PROGRAMS);
	/* Records after a hang was noticed may be its consequence, so record no STALL. */
	struct tb_opts opts = {.quiet_ms = -1};
	uint64_t state = df_test_seed();
	int nr = 0, differ = 0;

	while (tb_read(f, &p)) {
		char with[512], words[512], without[512];

		tb_run(&p.p, &opts, im);
		for (int who = 0; who < p.p.nr_ranks; who++) {
			enum df_verdict v;

			if (!may_exit(&im[who]))
				continue;
			for (int k = 0; k < p.p.nr_ranks; k++) {
				im[k].h->rules = (uint32_t)_i;
				if (k != who)
					unfinish(&im[k], &state);
			}
			exits(im, p.p.nr_ranks, who);
			v = verdict(im, p.p.nr_ranks, who, TRACE, with, sizeof(with));
			ck_assert_msg(verdict(im, p.p.nr_ranks, who, WORDS, words, sizeof(words)) ==
					      v,
				      "%s, r%d: %s\nwith its trace: %s", p.name, who, words, with);
			differ += verdict(im, p.p.nr_ranks, who, NOTHING, without,
					  sizeof(without)) != v;
			nr++;
			break;
		}
		tb_images_fini(im, p.p.nr_ranks);
		df_mprog_fini(&p.p);
	}
	pclose(f);
	printf("# %d ranks exited; without their words %d verdicts are others\n", nr, differ);
	ck_assert_int_gt(nr, PROGRAMS / 20);
	ck_assert_int_gt(differ, 0);
}
END_TEST

/* df_left_of()'s answers for each operation, with complete and with incomplete rows. */
START_TEST(test_words)
{
	struct df_check_set *set = df_check_set_new();
	struct df_left_row *rows;
	struct tb_image im;
	size_t nr;
	uint32_t a, b;

	tb_image_init(&im, 1, 2, 1 << 14);
	im.h->rules = 1;
	tb_rec(&im, DF_REC_PROC_START, 0, 0, 0, 0);
	a = tb_comm(&im, 0xa, 2, 1, 0);
	b = tb_comm(&im, 0xb, 2, 0, 0);
	/* A has 600 sends to as many peers, more than there are rows. B has one unfinished send. */
	for (int i = 0; i < 600; i++)
		tb_op(&im, a, DF_REC_OP_DONE, tb_issue(&im, a, 1, DF_KIND_SEND, 8, i, (uint64_t)i));
	for (uint64_t i = 0; i < 3; i++) {
		uint64_t serial = tb_issue(&im, b, 0, DF_KIND_SEND, 8, 1, i);

		if (i != 1)
			tb_op(&im, b, DF_REC_OP_DONE, serial);
	}
	ck_assert_int_eq(df_trace_left(im.h, &rows, &nr), 0);
	ck_assert_uint_eq(nr, 4 + 512);
	ck_assert_int_eq(df_check_add_left(set, rows, nr), 0);
	ck_assert_int_eq(df_check_add_left(set, rows, 0), 0);
	free(rows);
	df_left_sort(&set->left);
	for (int i = 0; i < 600; i++) {
		struct df_lop op = {.kind = DF_KIND_SEND, .peer = i};
		uint64_t key = df_seen_key(0, &op, 1);
		/* The 512 rows contain B's send and A's last 511. */
		int told = i >= 600 - 511;

		ck_assert_int_eq((int)df_left_of(&set->left, 0xa, 1, key, 0),
				 told ? DF_LEFT_FINISHED : DF_LEFT_PERHAPS);
		ck_assert_int_eq((int)df_left_of(&set->left, 0xa, 1, key, 1),
				 told ? DF_LEFT_LACKS : DF_LEFT_PERHAPS);
		ck_assert_int_eq((int)df_left_of(&set->left, 0xa, 0, key, 0), DF_LEFT_UNTOLD);
		/* Operations after an unfinished one do not count. */
		ck_assert_int_eq((int)df_left_of(&set->left, 0xb, 0, key, 0),
				 i == 1 ? DF_LEFT_FINISHED : DF_LEFT_LACKS);
		ck_assert_int_eq((int)df_left_of(&set->left, 0xb, 0, key, 1), DF_LEFT_LACKS);
	}
	df_check_set_free(set);
	tb_image_fini(&im);
	ck_assert_int_eq(df_trace_left(NULL, &rows, &nr), -EINVAL);
}
END_TEST

/*
 * By NCCL's rules a message that fits into the buffer has ended when its sender exits, although the
 * receive expects another size. The rows show the size.
 */
START_TEST(test_sizes)
{
	for (int expected = 7; expected <= 8; expected++) {
		char line[512];
		struct tb_image im[2];
		enum df_verdict v;

		for (int i = 0; i < 2; i++) {
			uint32_t c;

			tb_image_init(&im[i], i, 2, 256);
			im[i].h->rules = 1;
			im[i].h->mode = 1;
			c = tb_comm(&im[i], 0xa, 2, i, i);
			for (uint64_t k = 0; i && k < 9; k++)
				tb_op(&im[i], c, DF_REC_OP_DONE,
				      tb_issue(&im[i], c, 1, DF_KIND_SEND, 8 + k, 0, k));
			if (!i)
				tb_op(&im[i], c, DF_REC_OP_START,
				      tb_issue(&im[i], c, 0, DF_KIND_RECV, 16, 1,
					       (uint64_t)expected));
			tb_quiet(&im[i], 60000);
		}
		exits(im, 2, 1);
		v = verdict(im, 2, 1, WORDS, line, sizeof(line));
		if (expected == 7)
			ck_assert_msg(v == DF_V_MISMATCH &&
					      strstr(line, "r0 expects 64 bytes (16 x float32), r1 "
							   "sends 60 bytes (15 x float32)"),
				      "%s", line);
		else
			ck_assert_msg(v != DF_V_MISMATCH, "%s", line);
		for (int i = 0; i < 2; i++)
			tb_image_fini(&im[i]);
	}
}
END_TEST

int main(void)
{
	if (system("python3 -c 1 2>/dev/null")) {
		printf("no python3 to make random programs\n");
		return 77;
	}
	return DF_TESTS("left", {test_words}, {test_sizes}, {test_random, 2});
}
