/*
 * Mode trace: operations that all ranks have issued and that do not end. The records do not show
 * whether NCCL's kernels got room (catalogue RD-03, RD-06). So the verdict is NET_STALL, and a note
 * names signs of a lack of room, if there are any.
 */
#include <stdlib.h>
#include <string.h>
#include "tests/lib/test.h"
#include "tests/lib/trace_build.h"
#include "trace/judge/result.h"
#include "trace/record/names.h"

#define BY_NCCL ((uint64_t)(DF_OP_BY_NCCL | DF_OP_END_SEEN) << 24)

/* Two ranks that wait for operations of `comms` communicators, in the same order. */
static void stall(struct tb_image im[2], int comms, const int devices[2], uint64_t flags)
{
	for (int i = 0; i < 2; i++) {
		tb_image_init(&im[i], i, 2, 256);
		im[i].h->mode = flags != 0;
		im[i].h->rules = !flags;
		for (int c = 0; c < comms; c++) {
			uint32_t comm = tb_comm(&im[i], 0xabc + (uint64_t)c, 2, i, devices[i]);
			uint64_t first = im[i].h->next;
			uint64_t op = tb_issue(&im[i], comm, i, DF_KIND_ALLREDUCE, 8, -1, 0);

			tb_at(&im[i], first)->a |= flags;
			for (; first < im[i].h->next; first++) {
				tb_at(&im[i], first)->device = (uint16_t)devices[i];
				if (tb_at(&im[i], first)->type == DF_REC_OP_ISSUE)
					tb_at(&im[i], first)->c = (uint64_t)c + 1;
			}
			tb_op(&im[i], comm, DF_REC_OP_START, op);
		}
		tb_quiet(&im[i], 60000);
	}
}

static void said(struct tb_image im[2], const char *has, const char *hasnt)
{
	struct df_check_set *set;
	struct df_check_result *r = tb_check(im, 2, &set);
	char *text = tb_printed(r, 0);

	ck_assert_msg(df_check_verdict(r) == DF_V_NET_STALL, "%s", df_check_line(r));
	ck_assert_msg(!has || strstr(text, has), "'%s' not in: %s", has, text);
	ck_assert_msg(!strstr(text, hasnt), "'%s' in: %s", hasnt, text);
	free(text);
	df_check_result_free(r);
	df_check_set_free(set);
	tb_images_fini(im, 2);
}

START_TEST(test_shared_device)
{
	struct tb_image im[2];

	stall(im, 1, (const int[2]){0, 0}, BY_NCCL);
	said(im, "r0 and r1 both use device 0 of", "starve");
	/* Two machines. */
	stall(im, 1, (const int[2]){0, 0}, BY_NCCL);
	im[1].h->host_hash++;
	said(im, NULL, "RESOURCE");
}
END_TEST

START_TEST(test_starved)
{
	struct tb_image im[2];

	stall(im, 3, (const int[2]){0, 1}, BY_NCCL);
	said(im, "2 operations of other communicators have also reached all their ranks",
	     "both use");
}
END_TEST

START_TEST(test_nothing_speaks_for_it)
{
	struct tb_image im[2];

	stall(im, 1, (const int[2]){0, 1}, BY_NCCL);
	said(im, NULL, "RESOURCE");
	/* The CPU backend records which operation has room. */
	stall(im, 3, (const int[2]){0, 0}, 0);
	said(im, NULL, "RESOURCE");
}
END_TEST

/* Records an operation in the process's only group. */
static uint64_t grouped(struct tb_image *im, int kind, int rank, int peer, uint64_t index)
{
	uint64_t first = im->h->next, op = tb_issue(im, 1, rank, kind, 8, peer, index);

	for (; first < im->h->next; first++) {
		struct df_rec *rec = tb_at(im, first);

		if (rec->type == DF_REC_OP_ISSUE)
			rec->a |= BY_NCCL;
		if (rec->type == DF_REC_OP_ARGS)
			rec->c |= 77ull << 32; /* the group */
	}
	tb_op(im, 1, DF_REC_OP_START, op);
	return op;
}

/*
 * r1 sends and receives in one group. r0 has received, and waits for r1 outside CUDA and NCCL
 * before it sends. r1's send does not end, but this is no stall of a link.
 */
START_TEST(test_ends_with_its_group)
{
	struct tb_image im[2];
	struct df_check_set *set;
	struct df_check_result *r;
	uint64_t op;

	for (int i = 0; i < 2; i++) {
		tb_image_init(&im[i], i, 2, 256);
		im[i].h->mode = 1;
		tb_comm(&im[i], 0xabc, 2, i, i);
	}
	op = grouped(&im[0], DF_KIND_RECV, 0, 1, 0);
	tb_op(&im[0], 1, DF_REC_OP_DONE, op);
	tb_rec(&im[0], DF_REC_HOST_AT, 0, im[0].h->pid, DF_AT_IO, 0)->thread = 99;
	grouped(&im[1], DF_KIND_SEND, 1, 0, 0);
	grouped(&im[1], DF_KIND_RECV, 1, 0, 0);
	tb_rec(&im[1], DF_REC_CALL_ENTER, 500, DF_CALL_STREAM_SYNC, 1, 0);
	for (int i = 0; i < 2; i++)
		tb_quiet(&im[i], 60000);
	r = tb_check(im, 2, &set);
	ck_assert_msg(df_check_verdict(r) == DF_V_HOST, "%s", df_check_line(r));
	df_check_result_free(r);
	df_check_set_free(set);
	tb_images_fini(im, 2);
}
END_TEST

/* ---- streams of two threads share a hardware queue ------------------------------------------- */

/*
 * Records an operation. Communicator 1 and stream 1 belong to the first thread, 2 and 2 to the
 * second. `state` is the operation's last record; 0 means only its issue.
 */
static void put(struct tb_image *im, uint32_t comm, uint64_t index, int state)
{
	uint64_t first = im->h->next;
	int rank = im->h->rank;
	uint64_t op = tb_issue(im, comm, rank, DF_KIND_ALLREDUCE, 8, -1, index);

	tb_at(im, first)->a |= BY_NCCL;
	if (state)
		tb_op(im, comm, DF_REC_OP_START, op);
	if (state == DF_REC_OP_DONE)
		tb_op(im, comm, DF_REC_OP_DONE, op);
	for (; first < im->h->next; first++) {
		tb_at(im, first)->device = (uint16_t)rank;
		tb_at(im, first)->thread += comm - 1;
		if (tb_at(im, first)->type == DF_REC_OP_ISSUE)
			tb_at(im, first)->c = comm;
	}
}

static void two_ranks(struct tb_image im[2], uint32_t queues)
{
	for (int i = 0; i < 2; i++) {
		tb_image_init(&im[i], i, 2, 256);
		im[i].h->mode = 1;
		im[i].h->queues = queues;
		tb_comm(&im[i], 0xabc, 2, i, i);
		tb_comm(&im[i], 0xdef, 2, i, i);
	}
}

static void judged(struct tb_image im[2], enum df_verdict expect)
{
	struct df_check_set *set;
	struct df_check_result *r;

	for (int i = 0; i < 2; i++)
		tb_quiet(&im[i], 60000);
	r = tb_check(im, 2, &set);
	ck_assert_msg(df_check_verdict(r) == expect, "%s", df_check_line(r));
	df_check_result_free(r);
	df_check_set_free(set);
	tb_images_fini(im, 2);
}

/*
 * B seems to run on both ranks. But on r1 A may precede B, because A's begin was seen too. A needs
 * r0, which waits for B before it issues A. If each stream has a queue, or only B's begin was seen,
 * B is the operation that does not end.
 */
START_TEST(test_first_in_queue)
{
	struct tb_image im[2];
	struct df_rec *call;

	two_ranks(im, _i != 1);
	put(&im[0], 2, 0, DF_REC_OP_START);
	put(&im[1], 2, 0, DF_REC_OP_START);
	put(&im[1], 1, 0, _i == 2 ? 0 : DF_REC_OP_START);
	call = tb_rec(&im[0], DF_REC_CALL_ENTER, 500, DF_CALL_STREAM_SYNC, 2, 0);
	call->device = 0;
	judged(im, _i ? DF_V_NET_STALL : DF_V_RESOURCE);
}
END_TEST

/*
 * As before, but the thread waits for a copy on the legacy stream, which has a place in the queue
 * as all other work does.
 */
START_TEST(test_copy_in_queue)
{
	struct tb_image im[2];
	struct df_rec *rec;

	two_ranks(im, 1);
	put(&im[0], 2, 0, DF_REC_OP_START);
	put(&im[1], 1, 0, DF_REC_OP_START);
	put(&im[1], 2, 0, 0);
	rec = tb_rec(&im[0], DF_REC_STREAM_WORK, 400, 1, 2ULL << 32, 3);
	rec->device = 0;
	rec = tb_rec(&im[0], DF_REC_CALL_ENTER, 500, DF_CALL_MEMCPY, 0, 0);
	rec->device = 0;
	judged(im, DF_V_RESOURCE);
}
END_TEST

/*
 * A#1 has ended on r0, so it has run on r1 too. The record of its end on r1 waits in the queue
 * after B. B on r0 is after A#2, which r1 does not issue before it sees the end of A#1.
 */
START_TEST(test_end_behind_another)
{
	struct tb_image im[2];
	struct df_rec *call;

	two_ranks(im, 1);
	put(&im[0], 1, 0, DF_REC_OP_DONE);
	put(&im[0], 1, 1, DF_REC_OP_START);
	put(&im[0], 2, 0, 0);
	put(&im[1], 1, 0, DF_REC_OP_START);
	put(&im[1], 2, 0, DF_REC_OP_START);
	call = tb_rec(&im[1], DF_REC_CALL_ENTER, 500, DF_CALL_STREAM_SYNC, 1, 0);
	call->device = 1;
	judged(im, DF_V_RESOURCE);
}
END_TEST

/*
 * The begins of both operations were seen on both ranks, so each may be the first on one rank. If
 * only one rank's streams share a queue, one of the two runs on both ranks.
 */
START_TEST(test_each_first)
{
	struct tb_image im[2];

	two_ranks(im, 1);
	put(&im[0], 1, 0, DF_REC_OP_START);
	put(&im[0], 2, 0, DF_REC_OP_START);
	put(&im[1], 1, 0, DF_REC_OP_START);
	put(&im[1], 2, 0, DF_REC_OP_START);
	im[1].h->queues = !_i;
	judged(im, _i ? DF_V_NET_STALL : DF_V_RESOURCE);
}
END_TEST

/*
 * Two ranks have put A and B into their queues in opposite orders. If two threads did this, the
 * order in the queues may have been another one.
 */
START_TEST(test_order_of_two_threads)
{
	struct tb_image im[2];
	struct df_check_set *set;
	struct df_check_result *r;

	two_ranks(im, 1);
	put(&im[0], 1, 0, DF_REC_OP_START);
	put(&im[0], 2, 0, 0);
	put(&im[1], 2, 0, DF_REC_OP_START);
	put(&im[1], 1, 0, 0);
	for (uint64_t i = 0; _i && i < 2; i++)
		for (uint64_t k = 0; k < im[i].h->next; k++)
			tb_at(&im[i], k)->thread = im[i].h->pid;
	r = tb_check(im, 2, &set);
	ck_assert_msg(df_check_verdict(r) == DF_V_RESOURCE, "%s", df_check_line(r));
	ck_assert_int_eq(r->confidence, _i ? DF_C_PROVED : DF_C_LIKELY);
	df_check_result_free(r);
	df_check_set_free(set);
	tb_images_fini(im, 2);
}
END_TEST

int main(void)
{
	return DF_TESTS("room", {test_shared_device}, {test_starved}, {test_nothing_speaks_for_it},
			{test_ends_with_its_group}, {test_first_in_queue, 3}, {test_copy_in_queue},
			{test_end_behind_another}, {test_each_first, 2},
			{test_order_of_two_threads, 2});
}
