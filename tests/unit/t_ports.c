/*
 * Description: which of several RDMA ports takes a slice (df_verbs_pair_choose()): idle ones in turn, a slow one little, one that has had small slices alone
 * as much as before, a spare one nothing. Time is counted, not measured.
 */
#include <string.h>
#include "runtime/transport/net/net.h"
#include "runtime/transport/net/verbs/rdma.h"
#include "tests/lib/test.h"

#define PORTS 3

static struct verbs verbs;
static struct df_net_ep ep;
static struct df_net_link l;
static struct path path;
static struct pair pairs[PORTS];
static uint64_t wrote[PORTS];	/* slices */
static uint64_t byte_ns[PORTS]; /* what a port takes for a byte, */
static uint64_t late_ns[PORTS]; /* and until its completion is seen */

static void begin(void)
{
	int i;

	memset(pairs, 0, sizeof(pairs));
	memset(wrote, 0, sizeof(wrote));
	memset(&verbs, 0, sizeof(verbs));
	ep.medium[__builtin_ctz(DF_NET_BIT_VERBS)] = &verbs;
	l = (struct df_net_link){.ep = &ep, .path = &path};
	path = (struct path){.nr = PORTS};
	verbs.nr = PORTS;
	for (i = 0; i < PORTS; i++) {
		path.pair[i] = &pairs[i];
		pairs[i].rail = (uint8_t)i;
		pairs[i].usable = 1;
		byte_ns[i] = 1;
		late_ns[i] = 20 * DF_NS_PER_US;
	}
}

/* n slices, one under way at a time. */
static void slices(int n, uint32_t bytes)
{
	static uint64_t now;
	const struct df_net_frame f = {.type = DF_NET_DATA, .bytes = bytes};
	struct pair *q;
	int i;

	for (i = 0; i < n; i++) {
		q = df_verbs_pair_choose(&l, &path, bytes);
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
	/* Whatever their size, and when another one has more under way. */
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
	/* It is tried again by and by. */
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

	/* Eight bytes take as long as a completion may be seen late. */
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
	verbs.rail[0].spare = 1;
	slices(100, 65536);
	ck_assert_uint_eq(wrote[0], 0);
	ck_assert_uint_eq(wrote[1], 50);
	pairs[1].usable = 0;
	pairs[2].broken = -5;
	slices(100, 65536);
	ck_assert_uint_eq(wrote[0], 100);
}
END_TEST

int main(void)
{
	return DF_TESTS("ports", {equal}, {slow, PORTS}, {small}, {spare});
}
