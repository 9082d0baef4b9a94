/*
 * Mode trace: operations to which all ranks came and that do not end. Whether NCCL's kernels got room is not in the records
 * (catalogue RD-03, RD-06), so the word is NET_STALL, and a note says what speaks for a lack of room; where nothing does,
 * there is none.
 */
#include <stdlib.h>
#include <string.h>
#include "tests/lib/test.h"
#include "tests/lib/trace_build.h"
#include "trace/record/names.h"

#define BY_NCCL ((uint64_t)(DF_OP_BY_NCCL | DF_OP_END_SEEN) << 24)

/* Two ranks that wait in one order for operations of so many communicators. */
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
	/* Of the host backend it is known who has room. */
	stall(im, 3, (const int[2]){0, 0}, 0);
	said(im, NULL, "RESOURCE");
}
END_TEST

/* Puts it into the process's only group. */
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
 * r1 sends and receives in one group; r0 has received, and waits for r1 outside CUDA and NCCL before it sends. That r1's send
 * does not end is no stall of a link.
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

/*
 * Streams share a hardware queue. A has ended on r0, so it ran on r1, too: what shows its end there is behind B, which
 * another thread has put into the queue in between. That a broadcast has ended on its root says nothing of that kind.
 */
START_TEST(test_end_behind_another)
{
	struct tb_image im[2];
	struct df_check_set *set;
	struct df_check_result *r;
	int kind = _i == 2 ? DF_KIND_BROADCAST : DF_KIND_ALLREDUCE;

	for (int i = 0; i < 2; i++) {
		tb_image_init(&im[i], i, 2, 256);
		im[i].h->mode = 1;
		im[i].h->queues = _i != 0;
		for (int c = 0; c < 2; c++) {
			uint32_t comm = tb_comm(&im[i], 0xabc + (uint64_t)c, 2, i, i);
			uint64_t first = im[i].h->next;
			uint64_t op = tb_issue(&im[i], comm, i, kind, 8,
					       kind == DF_KIND_BROADCAST ? 0 : -1, 0);

			tb_at(&im[i], first)->a |= BY_NCCL;
			tb_op(&im[i], comm, DF_REC_OP_START, op);
			if (!i && !c)
				tb_op(&im[i], comm, DF_REC_OP_DONE, op);
			for (; first < im[i].h->next; first++) {
				tb_at(&im[i], first)->device = (uint16_t)i;
				tb_at(&im[i], first)->thread += (uint32_t)c;
				if (tb_at(&im[i], first)->type == DF_REC_OP_ISSUE)
					tb_at(&im[i], first)->c = (uint64_t)c + 1;
			}
		}
		tb_quiet(&im[i], 60000);
	}
	r = tb_check(im, 2, &set);
	ck_assert_msg(df_check_verdict(r) == (_i == 1 ? DF_V_RESOURCE : DF_V_NET_STALL), "%s",
		      df_check_line(r));
	df_check_result_free(r);
	df_check_set_free(set);
	tb_images_fini(im, 2);
}
END_TEST

int main(void)
{
	return DF_TESTS("room", {test_shared_device}, {test_starved}, {test_nothing_speaks_for_it},
			{test_ends_with_its_group}, {test_end_behind_another, 3});
}
