/*
 * Description: which of several RDMA ports takes a slice (df_verbs_pair_choose()): idle ones in turn, a slow one little, one that has had small slices alone
 * as much as before, one over spare ports nothing, while there is another. Time is counted, not measured.
 */
#include <string.h>
#include "runtime/transport/net/net.h"
#include "runtime/transport/net/verbs/rdma.h"
#include "tests/lib/test.h"

#define PORTS 3

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
	path = (struct path){.nr = PORTS};
	for (i = 0; i < PORTS; i++) {
		path.pair[i] = &pairs[i];
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
	pairs[0].far = 1;
	slices(100, 65536);
	ck_assert_uint_eq(wrote[0], 0);
	ck_assert_uint_eq(wrote[1], 50);
	/* With one spare port rather than with two. */
	pairs[1].usable = 0;
	pairs[2].far = 2;
	slices(100, 65536);
	ck_assert_uint_eq(wrote[0], 100);
	pairs[0].broken = -5;
	slices(100, 65536);
	ck_assert_uint_eq(wrote[2], 150);
}
END_TEST

int main(void)
{
	return DF_TESTS("ports", {equal}, {slow, PORTS}, {small}, {spare});
}
