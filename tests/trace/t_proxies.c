/*
 * Records of NCCL's proxies that make no progress. The report names the cause and not its
 * consequences. The last batch of records counts, and no record of an operation that has ended. A
 * missing rank explains all of them.
 */
#include <stdlib.h>
#include <string.h>
#include "tests/lib/test.h"
#include "tests/lib/trace_build.h"
#include "trace/record/names.h"
#include "trace/record/proxy.h"

static uint32_t batch;

static void proxy_to(struct tb_image *im, uint64_t peer, enum df_proxy_at at, int sends,
		     uint64_t step)
{
	struct df_rec *r =
		tb_rec(im, DF_REC_PROXY, im->serial,
		       (uint64_t)at | (uint64_t)sends << 8 | 2u << 16 | (uint64_t)batch << 32,
		       peer | step << 32, 8u | 500ull << 32);

	r->comm = 1;
	r->rank = im->h->rank;
}

static void proxy(struct tb_image *im, enum df_proxy_at at, int sends, uint64_t step)
{
	proxy_to(im, im->h->rank == 0, at, sends, step);
}

/* Two ranks. `nr` of them have issued an AllReduce that NCCL executes. */
static void two(struct tb_image im[2], int nr)
{
	for (int i = 0; i < 2; i++) {
		tb_image_init(&im[i], i, 2, 64);
		im[i].h->mode = 1;
		tb_comm(&im[i], 0xabc, 2, i, 0);
		if (i < nr)
			tb_issue(&im[i], 1, i, DF_KIND_ALLREDUCE, 8, -1, 0);
	}
}

static void all_say(struct tb_image *im, int nr, const char *line)
{
	struct df_check_set *set;
	struct df_check_result *r;
	char *text;

	for (int i = 0; i < nr; i++)
		tb_quiet(&im[i], 1000);
	r = tb_check(im, nr, &set);
	text = tb_printed(r, 0);
	ck_assert_msg(!strncmp(text, line, strlen(line)), "not '%s': %s", line, text);
	free(text);
	df_check_result_free(r);
	df_check_set_free(set);
	tb_images_fini(im, nr);
}

static void says(struct tb_image im[2], const char *line)
{
	all_say(im, 2, line);
}

START_TEST(test_network)
{
	struct tb_image im[2];

	two(im, 2);
	proxy(&im[0], DF_PROXY_SEND_NET, 1, 2);
	proxy(&im[1], DF_PROXY_RECV_NET, 0, 2);
	says(im, "NET_STALL: A#1: the network has not reported that data from r0 to r1 was sent "
		 "(step 3 of 8 on channel 2) for 1.5 s\n");
	/* The sender is done. */
	two(im, 2);
	proxy(&im[0], DF_PROXY_RECV_GPU, 0, 2);
	proxy(&im[1], DF_PROXY_RECV_NET, 0, 2);
	says(im, "NET_STALL: A#1: no data from r0 has arrived at r1 (step 3 of 8 on channel 2)");
	two(im, 2);
	proxy(&im[0], DF_PROXY_SEND_PEER, 1, 2);
	proxy(&im[1], DF_PROXY_RECV_NET, 0, 2);
	says(im, "NET_STALL: A#1: r0 cannot send to r1, which has announced no room (step 3 of 8");
}
END_TEST

/* Each rank waits for data of the other. One has not written data for which it has everything. */
START_TEST(test_kernel)
{
	struct tb_image im[2];

	two(im, 2);
	proxy(&im[0], DF_PROXY_SEND_GPU, 1, 0);
	proxy(&im[1], DF_PROXY_RECV_NET, 0, 0);
	proxy(&im[1], DF_PROXY_SEND_GPU, 1, 0);
	says(im,
	     "NCCL_INTERNAL: A#1: the kernel of r0 has not written the data for r1 (step 1 of 8");
	two(im, 2);
	proxy(&im[0], DF_PROXY_SEND_PEER, 1, 7);
	proxy(&im[1], DF_PROXY_RECV_GPU, 0, 0);
	says(im, "NCCL_INTERNAL: A#1: the kernel of r1 has not read data that has arrived from r0 "
		 "(step 1 of 8");
}
END_TEST

START_TEST(test_last)
{
	struct tb_image im[2];

	two(im, 2);
	proxy(&im[0], DF_PROXY_SEND_NET, 1, 2);
	batch = 1;
	proxy(&im[0], DF_PROXY_SEND_GPU, 1, 4);
	batch = 0;
	says(im,
	     "NCCL_INTERNAL: A#1: the kernel of r0 has not written the data for r1 (step 5 of 8");
	two(im, 2);
	for (int i = 0; i < 2; i++) {
		proxy(&im[i], DF_PROXY_SEND_NET, 1, 2);
		tb_op(&im[i], 1, DF_REC_OP_DONE, im[i].serial);
	}
	says(im, "OK: ");
}
END_TEST

/* The proxy has ended since, and nothing else waits. */
START_TEST(test_void)
{
	struct tb_image im[2];

	two(im, 2);
	proxy(&im[0], DF_PROXY_SEND_NET, 1, 2);
	tb_rec(&im[0], DF_REC_PROXY, 0, 1ull << 32, 0, 0);
	proxy(&im[1], DF_PROXY_SEND_GPU, 1, 4);
	says(im,
	     "NCCL_INTERNAL: A#1: the kernel of r1 has not written the data for r0 (step 5 of 8");
}
END_TEST

/*
 * A ring over two machines. r1 gets the data for r2 from r0 over NVLink, and r0 lacks it. r3 has
 * everything that it must send to r0. r1 has waited longer.
 */
START_TEST(test_neighbour)
{
	struct tb_image im[4];

	for (int i = 0; i < 4; i++) {
		tb_image_init(&im[i], i, 4, 64);
		im[i].h->mode = 1;
		im[i].h->host_hash = 7 + (uint64_t)i / 2;
		tb_comm(&im[i], 0xabc, 4, i, 0);
		tb_issue(&im[i], 1, i, DF_KIND_ALLREDUCE, 8, -1, 0);
	}
	proxy_to(&im[1], 2, DF_PROXY_SEND_GPU, 1, 1);
	tb_quiet(&im[3], 100);
	proxy_to(&im[3], 0, DF_PROXY_SEND_GPU, 1, 1);
	proxy_to(&im[0], 3, DF_PROXY_RECV_NET, 0, 1);
	all_say(im, 4,
		"NCCL_INTERNAL: A#1: the kernel of r3 has not written the data for r0 (step 2 of "
		"8");
}
END_TEST

START_TEST(test_missing)
{
	struct tb_image im[2];

	two(im, 1);
	proxy(&im[0], DF_PROXY_RECV_NET, 0, 0);
	says(im, "MISSING: A#1 waits for r1");
}
END_TEST

int main(void)
{
	return DF_TESTS("proxies of NCCL", {test_network}, {test_kernel}, {test_last}, {test_void},
			{test_neighbour}, {test_missing});
}
