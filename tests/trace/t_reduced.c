/*
 * Traces of mode trace that are reduced, or whose first records are overwritten. Operations that
 * NCCL matches by their index in the communicator keep their index.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/lib/test.h"
#include "tests/lib/trace_build.h"
#include "trace/read/set.h"
#include "trace/record/names.h"

#define DONE  20 /* collectives that have ended */
#define AHEAD 8	 /* messages of a pair that NCCL sends before they are received */

/*
 * Records an operation as mode trace does. `peer` is that of a message, or -1. Returns the
 * operation's serial.
 */
static uint64_t issue(struct tb_image *im, uint32_t comm, int rank, int kind, uint64_t count,
		      int peer)
{
	const uint64_t what = (uint64_t)kind | 7 << 8 | (uint64_t)DF_OP_END_SEEN << 24;
	struct df_trace_comm *c = tb_comm_at(im, comm);
	struct df_rec *r[2];

	im->serial++;
	r[0] = tb_rec(im, DF_REC_OP_ISSUE, im->serial, what, count, 1);
	r[1] = tb_rec(im, DF_REC_OP_ARGS, im->serial, 0, 0, (uint64_t)(uint32_t)(peer + 1));
	for (int i = 0; i < 2; i++) {
		r[i]->comm = comm;
		r[i]->rank = rank;
	}
	c->issued++;
	c->kinds[kind]++;
	return im->serial;
}

/* Records an operation that has ended. */
static void finish(struct tb_image *im, uint32_t comm, int rank, int kind, uint64_t count, int peer)
{
	tb_op(im, comm, DF_REC_OP_DONE, issue(im, comm, rank, kind, count, peer));
	tb_comm_at(im, comm)->done++;
}

/*
 * A rank that has finished DONE collectives; rank 0 has issued one more. `nr_recs` is the size of
 * the ring.
 */
static void fill(struct tb_image *im, int rank, size_t nr_recs)
{
	uint32_t comm;

	tb_image_init(im, rank, 2, nr_recs);
	im->h->mode = 1;
	comm = tb_comm(im, 0xc0ffee, 2, rank, rank);
	for (int i = 0; i < DONE; i++)
		finish(im, comm, rank, DF_KIND_ALLREDUCE, 1000, -1);
	if (!rank)
		tb_op(im, comm, DF_REC_OP_START,
		      issue(im, comm, rank, DF_KIND_ALLREDUCE, 1000, -1));
	tb_quiet(im, 60000);
	tb_comm_at(im, comm)->drops = im->h->next > im->h->nr_recs ? 1 : 0;
}

/* Judges both ranks, reduced or whole. `line` is a part of the verdict. */
static void judge(const struct tb_image *im, int reduced, const char *line)
{
	struct df_check_set *set = df_check_set_new();
	struct df_check_result *r;

	for (int i = 0; i < 2; i++) {
		void *image = im[i].h;
		size_t bytes = im[i].bytes;

		if (reduced)
			ck_assert_int_eq(df_trace_compact(im[i].h, &image, &bytes), 0);
		ck_assert_int_eq(df_check_add_image(set, image, bytes, "one"), 0);
		if (reduced)
			free(image);
	}
	ck_assert_int_eq(df_check_run(set, NULL, &r), 0);
	ck_assert_msg(strstr(df_check_line(r), line) != NULL, "%s", df_check_line(r));
	/*
	 * A set that was judged accepts no more traces and keeps none. (AddressSanitizer finds
	 * leaks.)
	 */
	ck_assert_int_eq(df_check_add_image(set, im[0].h, im[0].bytes, "late"), -EINVAL);
	df_check_result_free(r);
	df_check_set_free(set);
}

START_TEST(test_reduced)
{
	static const size_t rings[][2] = {{256, 256}, {16, 256}, {256, 16}, {32, 8}};

	for (size_t k = 0; k < sizeof(rings) / sizeof(*rings); k++) {
		struct tb_image im[2];

		for (int i = 0; i < 2; i++)
			fill(&im[i], i, rings[k][i]);
		for (int reduced = 0; reduced < 2; reduced++)
			judge(im, reduced, "A#21 waits for r1");
		tb_images_fini(im, 2);
	}
}
END_TEST

/*
 * Rank 1 waits in a receive of the size of the last message, but it is the turn of one before it.
 * All sends have ended, because NCCL's buffer has room for AHEAD messages.
 */
START_TEST(test_messages)
{
	for (uint64_t taken = 0; taken < 3; taken++) {
		struct tb_image im[2];
		uint32_t comm;
		char line[96];

		for (int i = 0; i < 2; i++) {
			tb_image_init(&im[i], i, 2, 256);
			im[i].h->mode = 1;
			comm = tb_comm(&im[i], 0xc0ffee, 2, i, i);
			for (uint64_t k = 0; k < (i ? taken : taken + AHEAD); k++)
				finish(&im[i], comm, i, i ? DF_KIND_RECV : DF_KIND_SEND, 256 + k,
				       !i);
		}
		tb_op(&im[1], comm, DF_REC_OP_START,
		      issue(&im[1], comm, 1, DF_KIND_RECV, 256 + taken + AHEAD - 1, 0));
		for (int i = 0; i < 2; i++)
			tb_quiet(&im[i], 60000);
		snprintf(line, sizeof(line),
			 "r1 expects %d bytes (%d x float32), r0 sends %d bytes (%d x float32)",
			 (int)(263 + taken) * 4, (int)(263 + taken), (int)(256 + taken) * 4,
			 (int)(256 + taken));
		for (int reduced = 0; reduced < 2; reduced++)
			judge(im, reduced, line);
		tb_images_fini(im, 2);
	}
}
END_TEST

/*
 * A reduced trace keeps the last operation of each key. Messages and collectives have different
 * keys.
 */
START_TEST(test_keys)
{
	const struct df_lop coll = {.kind = DF_KIND_ALLREDUCE};
	uint64_t keys[2 * 64 + 1], nr = 0;

	keys[nr++] = df_seen_key(1, &coll, 1);
	for (int peer = 0; peer < 64; peer++) {
		const struct df_lop send = {.kind = DF_KIND_SEND, .peer = peer},
				    recv = {.kind = DF_KIND_RECV, .peer = peer};

		keys[nr++] = df_seen_key(1, &send, 1);
		keys[nr++] = df_seen_key(1, &recv, 1);
	}
	for (uint64_t i = 0; i < nr; i++)
		for (uint64_t k = 0; k < i; k++)
			ck_assert_uint_ne(keys[i], keys[k]);
}
END_TEST

int main(void)
{
	return DF_TESTS("reduced", {test_reduced}, {test_messages}, {test_keys});
}
