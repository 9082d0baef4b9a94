/*
 * Records of links between nodes (DF_REC_NET). A broken link explains silent ranks and operations
 * that do not end. A link that has been restored, or whose other end has died, explains nothing. A
 * function of the network library that does not return also explains operations that do not start.
 */
#include <stdlib.h>
#include <string.h>
#include "tests/lib/test.h"
#include "tests/lib/trace_build.h"
#include "trace/record/names.h"

/* The control plane's number of a host differs from the hash in a trace's header. */
#define HOST 70000

enum { BROKEN, RESTORED, GONE, HELD, RETURNED, UNMAPPED };

static void net(struct tb_image *im, const struct tb_image *far, int what, uint64_t ms)
{
	tb_rec(im, DF_REC_NET, (uint64_t)what | 110u << 8 | ms << 32, HOST + far->h->host_hash,
	       (uint64_t)far->h->pid | 7ull << 48, 0)
		->device = 0;
}

/* Two ranks on two nodes. With `both` the second rank has issued the collective too. */
static void two(struct tb_image im[2], int both)
{
	struct df_rec *rec;

	for (int i = 0; i < 2; i++) {
		tb_image_init(&im[i], i, 2, 256);
		im[i].h->host_hash = 1000 + (uint64_t)i;
		tb_comm(&im[i], 0xabc, 2, i, 0);
		for (int k = 0; k < 2; k++) {
			rec = tb_rec(&im[i], DF_REC_COMM_MEMBER, (uint64_t)k,
				     HOST + 1000 + (uint64_t)k,
				     (uint64_t)(im[i].h->pid) + (uint64_t)k - (uint64_t)i, 0);
			rec->comm = 1;
			rec->rank = i;
		}
		if (i <= both)
			tb_op(&im[i], 1, DF_REC_OP_START,
			      tb_issue(&im[i], 1, i, DF_KIND_ALLREDUCE, 8, -1, 0));
	}
}

static void says(struct tb_image im[2], int nr, const char *line, const char *note)
{
	struct df_check_set *set;
	struct df_check_result *r = tb_check(im, nr, &set);
	char *text = tb_printed(r, 0);

	ck_assert_msg(!strncmp(text, line, strlen(line)), "not '%s': %s", line, text);
	ck_assert_msg(!note || strstr(text, note), "'%s' not in: %s", note, text);
	free(text);
	df_check_result_free(r);
	df_check_set_free(set);
	tb_images_fini(im, 2);
}

/* Bits of _i: the other rank has issued the collective; it reports the broken link too. */
START_TEST(test_gone)
{
	struct tb_image im[2];

	two(im, _i & 1);
	tb_quiet(&im[1], 20000);
	net(&im[0], &im[1], BROKEN, 1000);
	tb_quiet(&im[0], 40000);
	net(&im[0], &im[1], GONE, 30000);
	if (_i & 2)
		net(&im[1], &im[0], BROKEN, 5000);
	tb_rec(&im[0], DF_REC_COMM_ABORT, 0, 2, 0, 0)->comm = 1;
	says(im, 2,
	     "NET_STALL: r0 has received nothing from r1 for 30.0 s over the network: the link "
	     "broke (Connection timed out), and 7 attempts to restore it failed\n",
	     _i & 2 ? "r1 reports about its link to r0: the link broke"
		    : "the last progress of r0 was");
}
END_TEST

START_TEST(test_gone_without_the_other_trace)
{
	struct tb_image im[2];

	two(im, 0);
	net(&im[0], &im[1], GONE, 30000);
	tb_quiet(&im[0], 1000);
	says(im, 1, "NET_STALL: r0 has received nothing from r1 for 30.0 s",
	     "r1 left no trace, so the state of the link at its end is unknown");
}
END_TEST

/*
 * With _i the other rank's trace is missing. Operations that have not started on the rank that
 * cannot map memory wait for nothing else.
 */
START_TEST(test_unmapped)
{
	struct tb_image im[2];

	two(im, 0);
	tb_issue(&im[1], 1, 1, DF_KIND_ALLREDUCE, 8, -1, 0);
	net(&im[1], &im[0], UNMAPPED, 0);
	tb_rec(&im[1], DF_REC_COMM_ABORT, 0, 2, 0, 0)->comm = 1;
	tb_quiet(&im[0], 60000);
	if (_i) {
		struct tb_image t = im[0];

		im[0] = im[1];
		im[1] = t;
	}
	says(im, 2 - _i, "NET_STALL: r1 cannot map the memory of r0: Connection timed out\n",
	     "Fix: let the process that cannot map it have more file descriptors (`ulimit -n`)");
}
END_TEST

START_TEST(test_broken)
{
	struct tb_image im[2];

	two(im, _i);
	net(&im[0], &im[1], BROKEN, 1000);
	tb_quiet(&im[0], 60000);
	tb_quiet(&im[1], 60000);
	says(im, 2, "NET_STALL: the link between r0 and r1 has been broken for 61.0 s", NULL);
}
END_TEST

START_TEST(test_restored)
{
	struct tb_image im[2];

	two(im, 0);
	net(&im[0], &im[1], BROKEN, 1000);
	net(&im[0], &im[1], RESTORED, 2000);
	tb_quiet(&im[0], 60000);
	tb_quiet(&im[1], 60000);
	says(im, 2, "MISSING: ", NULL);
}
END_TEST

/*
 * _i: 0 nothing more, 1 the other side sees the link break, 2 the function has returned, 3 the link
 * has been restored.
 */
START_TEST(test_held)
{
	struct tb_image im[2];

	two(im, 1);
	if (_i == 3)
		net(&im[0], &im[1], BROKEN, 1000);
	net(&im[0], &im[1], HELD, 15000);
	if (_i == 1)
		net(&im[1], &im[0], GONE, 30000);
	if (_i == 2)
		net(&im[0], &im[1], RETURNED, 16000);
	if (_i == 3)
		net(&im[0], &im[1], RESTORED, 16000);
	tb_quiet(&im[0], 60000);
	tb_quiet(&im[1], 60000);
	says(im, 2,
	     _i == 2 ? "NET_STALL: A#1 runs on all of its 2 ranks"
		     : "NET_STALL: the network's library does not return for 75.0 s on r0, which "
		       "called it for its link to r1\n",
	     _i == 2 ? NULL : "Fix: look where this function waits");
}
END_TEST

/*
 * _i: 0 no broken link, 1 the link to the other rank, 2 the link to a process that is no rank. A
 * rank whose program starts with a receive waits for that link.
 */
START_TEST(test_broken_before)
{
	struct tb_image im[2], other;

	two(im, 0);
	tb_image_init(&other, 2, 2, 16);
	other.h->host_hash = 1002;
	tb_issue(&im[1], 1, 1, DF_KIND_ALLREDUCE, 8, -1, 0);
	if (_i)
		net(&im[1], _i == 1 ? &im[0] : &other, GONE, 30000);
	tb_images_fini(&other, 1);
	tb_quiet(&im[0], 60000);
	tb_quiet(&im[1], 60000);
	says(im, 2,
	     _i == 1 ? "NET_STALL: r1 has received nothing from r0 for 30.0 s" : "GPU_STUCK: ",
	     NULL);
}
END_TEST

/* Operations that have not started do not start because of a function that does not return. */
START_TEST(test_held_before)
{
	struct tb_image im[2];

	two(im, -1);
	for (int i = 0; i < 2; i++)
		tb_issue(&im[i], 1, i, DF_KIND_ALLREDUCE, 8, -1, 0);
	if (_i)
		net(&im[1], &im[0], HELD, 15000);
	tb_quiet(&im[0], 60000);
	tb_quiet(&im[1], 60000);
	says(im, 2,
	     _i ? "NET_STALL: the network's library does not return for 75.0 s on r1"
		: "GPU_STUCK: ",
	     NULL);
}
END_TEST

/* The link broke because the process died. */
START_TEST(test_crash)
{
	struct tb_image im[2];
	struct df_rec *rec;

	two(im, 1);
	net(&im[0], &im[1], BROKEN, 1000);
	rec = tb_rec(&im[0], DF_REC_PEER_DEAD, 1, HOST + im[1].h->host_hash, im[1].h->pid, 0);
	rec->comm = 1;
	rec->rank = 0;
	tb_quiet(&im[0], 60000);
	says(im, 2, "CRASH: ", NULL);
}
END_TEST

/*
 * A rank that exited while the link was broken may have given up because of it, unless its trace
 * says otherwise.
 */
START_TEST(test_exited)
{
	struct tb_image im[2];
	struct df_rec *rec;

	two(im, 0);
	net(&im[0], &im[1], BROKEN, 1000);
	rec = tb_rec(&im[0], DF_REC_PEER_DEAD, 1, HOST + im[1].h->host_hash, im[1].h->pid, 1);
	rec->comm = 1;
	rec->rank = 0;
	tb_quiet(&im[0], 60000);
	if (_i == 1)
		net(&im[1], &im[0], BROKEN, 1000);
	says(im, _i == 2 ? 1 : 2,
	     _i ? "NET_STALL: the link between r"
		: "MISSING: A#1 waits for r1, whose process exited",
	     NULL);
}
END_TEST

/* A rank that gives up exits, and other ranks see its connection close. This is no crash. */
START_TEST(test_end_of_who_gave_up)
{
	struct tb_image im[2];
	struct df_rec *rec;

	two(im, 1);
	net(&im[0], &im[1], GONE, 30000);
	tb_rec(&im[0], DF_REC_COMM_ABORT, 0, 2, 0, 0)->comm = 1;
	tb_quiet(&im[1], 1);
	rec = tb_rec(&im[1], DF_REC_PEER_DEAD, 0, HOST + im[0].h->host_hash, im[0].h->pid, 0);
	rec->comm = 1;
	rec->rank = 1;
	tb_rec(&im[1], DF_REC_COMM_ABORT, 0, 2, 0, 0)->comm = 1;
	says(im, 2, "NET_STALL: r0 has received nothing from r1", NULL);
}
END_TEST

int main(void)
{
	return DF_TESTS("link", {test_gone, 4}, {test_gone_without_the_other_trace},
			{test_broken, 2}, {test_unmapped, 2}, {test_restored}, {test_held, 4},
			{test_held_before, 2}, {test_broken_before, 3}, {test_crash},
			{test_exited, 3}, {test_end_of_who_gave_up});
}
