/*
 * Description: the choice among several RDMA ports. For a slice (df_verbs_pair_choose()) idle ports
 * take turns, a slow port gets few slices, a port that only had small slices gets as many as
 * before, and a spare port gets none while there is another port. Time is counted and not measured.
 * For a port of the other side (df_verbs_rail_with()) the port of this side that is paired with it.
 */
#include <stdlib.h>
#include <string.h>
#include "runtime/transport/net/net.h"
#include "runtime/transport/net/verbs/pair.h"
#include "tests/lib/test.h"

#define PORTS 3

static struct path path;
static struct pair pairs[PORTS];
static uint64_t wrote[PORTS];	/* number of slices */
static uint64_t byte_ns[PORTS]; /* time that a port needs for a byte */
static uint64_t late_ns[PORTS]; /* time until the completion of a slice is seen */

static void begin(void)
{
	int i;

	memset(pairs, 0, sizeof(pairs));
	memset(wrote, 0, sizeof(wrote));
	path = (struct path){.nr = PORTS};
	for (i = 0; i < PORTS; i++) {
		path.pair[i] = &pairs[i];
		pairs[i].usable = 1;
		byte_ns[i] = 1;
		late_ns[i] = 20 * DF_NS_PER_US;
	}
}

/* Writes n slices, one after the other. */
static void slices(int n, uint32_t bytes)
{
	static uint64_t now;
	const struct df_net_frame f = {.type = DF_NET_DATA, .bytes = bytes};
	struct pair *q;
	int i;

	for (i = 0; i < n; i++) {
		q = df_verbs_pair_choose(&path, bytes);
		wrote[q - pairs]++;
		q->moved = now;
		q->queued += df_verbs_weight(bytes);
		now += byte_ns[q - pairs] * bytes + late_ns[q - pairs];
		df_verbs_pair_done(q, &f, now);
	}
}

START_TEST(equal)
{
	int i;

	begin();
	slices(999, 65536);
	for (i = 0; i < PORTS; i++)
		ck_assert_uint_eq(wrote[i], 333);
	/* Slices of any size are distributed evenly; a busier port gets none. */
	slices(999, 8);
	slices(999, 262144);
	for (i = 0; i < PORTS; i++)
		ck_assert_uint_ge(wrote[i], 990);
	memset(wrote, 0, sizeof(wrote));
	pairs[1].queued = 1 << 20;
	slices(100, 65536);
	ck_assert_uint_eq(wrote[1], 0);
	ck_assert_uint_ge(wrote[0], 48);
	ck_assert_uint_ge(wrote[2], 48);
}
END_TEST

START_TEST(slow)
{
	begin();
	byte_ns[_i] = 100;
	slices(1000, 65536);
	/* The port is tried again from time to time. */
	ck_assert_uint_gt(wrote[_i], 8);
	ck_assert_uint_lt(wrote[_i], 200);
	byte_ns[_i] = 1;
	slices(1000, 65536);
	memset(wrote, 0, sizeof(wrote));
	slices(300, 65536);
	ck_assert_uint_gt(wrote[_i], 90);
}
END_TEST

START_TEST(small)
{
	int i;

	/* A completion may be seen so late that it takes longer than the eight bytes. */
	begin();
	for (i = 1; i < PORTS; i++)
		pairs[i].usable = 0;
	late_ns[0] = 150 * DF_NS_PER_US;
	slices(100, 8);
	pairs[0].usable = 0;
	for (i = 1; i < PORTS; i++)
		pairs[i].usable = 1;
	slices(20, 262144);
	pairs[0].usable = 1;
	late_ns[0] = late_ns[1];
	memset(wrote, 0, sizeof(wrote));
	slices(30, 262144);
	ck_assert_uint_ge(wrote[0], 9);
}
END_TEST

START_TEST(spare)
{
	begin();
	pairs[0].far = 1;
	slices(100, 65536);
	ck_assert_uint_eq(wrote[0], 0);
	ck_assert_uint_eq(wrote[1], 50);
	/* One spare port is better than two. */
	pairs[1].usable = 0;
	pairs[2].far = 2;
	slices(100, 65536);
	ck_assert_uint_eq(wrote[0], 100);
	pairs[0].broken = -5;
	slices(100, 65536);
	ck_assert_uint_eq(wrote[2], 150);
}
END_TEST

/*
 * Returns the pair for the other side's k-th of two ports. The ports of this side are 3, 4, 5, and
 * the spare port 2.
 */
static int with(const char *cross_nic, int k, int order, int is_spare)
{
	static const int orders[] = {3, 4, 5, 2};
	static struct device device[4];
	static struct verbs v = {.nr = 4};
	static struct df_net_ep ep;
	struct df_net_link l = {.ep = &ep, .path = &path};
	struct df_net_frame f = {.a = 2u << 16, .rkey[2] = (uint32_t)(order | is_spare << 8)};
	int i;

	setenv("NCCL_CROSS_NIC", cross_nic, 1);
	begin();
	path.nr = 1;
	pairs[0].rail = 0;
	ep.medium[__builtin_ctz(DF_NET_BIT_VERBS)] = &v;
	for (i = 0; i < 4; i++) {
		v.rail[i].port.order = orders[i];
		v.rail[i].device = &device[i];
		v.rail[i].spare = i == 3;
	}
	device[2].dead = 1;
	i = df_verbs_rail_with(&l, k, &f);
	return i < 0 ? i : orders[i];
}

START_TEST(goes_with)
{
	ck_assert_int_eq(with("2", 0, 3, 0), 3);
	ck_assert_int_eq(with("2", 1, 4, 0), 4);
	/*
	 * The near port has no pair: it is spare, has failed, does not exist, or has not been
	 * started.
	 */
	ck_assert_int_eq(with("2", 1, 2, 0), 4);
	ck_assert_int_eq(with("2", 1, 5, 0), 4);
	ck_assert_int_eq(with("2", 1, 9, 0), 4);
	ck_assert_int_eq(with("2", 2, 3, 0), 4);
	ck_assert_int_eq(with("2", 1, 2, 1), 2);
	ck_assert_int_eq(with("2", 1, 9, 1), 2);
}
END_TEST

START_TEST(goes_with_the_same)
{
	ck_assert_int_eq(with("0", 0, 3, 0), 3);
	ck_assert_int_eq(with("0", 1, 2, 0), 2);
	ck_assert_int_eq(with("0", 1, 3, 1), 3);
	ck_assert_int_eq(with("0", 2, 3, 0), 3);
	/* There is no pair for the port. */
	ck_assert_int_eq(with("0", 1, 5, 0), -1);
	ck_assert_int_eq(with("0", 1, 9, 0), -1);
}
END_TEST

int main(void)
{
	return DF_TESTS("ports", {equal}, {slow, PORTS}, {small}, {spare}, {goes_with},
			{goes_with_the_same});
}
