/*
 * Description: ncclConfig_t is read by its size and version. Newer or unset fields have no effect.
 */
#include "tests/lib/test.h"

#include <stdio.h>
#include <string.h>

#include "interpose/real/nccl_config.h"
#include "runtime/base/log.h"
#include "runtime/base/rng.h"

#define UNDEF NCCL_CONFIG_UNDEF_INT

static ncclConfig_t fresh(unsigned version)
{
	ncclConfig_t c;

	memset(&c, 0, sizeof(c));
	c.size = sizeof(c);
	c.magic = DF_NCCL_API_MAGIC;
	c.version = version;
	c.blocking = c.cgaClusterSize = c.minCTAs = c.maxCTAs = c.splitShare = c.trafficClass =
		UNDEF;
	c.collnetEnable = c.CTAPolicy = c.shrinkShare = c.nvlsCTAs = c.nChannelsPerNetPeer = UNDEF;
	c.nvlinkCentricSched = c.graphUsageMode = c.numRmaCtx = c.maxP2pPeers = UNDEF;
	c.graphStreamOrdering = c.launchOrderImplicit = c.numRmaSig = c.rmaEagerInit = UNDEF;
	c.hostCftMode = c.nvlsHostMode = UNDEF;
	return c;
}

START_TEST(t_defaults)
{
	ncclConfig_t c = fresh(23007);
	struct df_config out;

	ck_assert_int_eq(df_config_parse(&c, &out), ncclSuccess);
	ck_assert(out.blocking == 1 && !out.split_share && !out.shrink_share && !out.max_ctas);
	ck_assert_str_eq(out.name, "");
	c.blocking = 0;
	c.splitShare = c.shrinkShare = 1;
	c.minCTAs = 2;
	c.maxCTAs = 8;
	c.commName = "a name that is a good deal longer than the sixty-four bytes we keep of it";
	ck_assert_int_eq(df_config_parse(&c, &out), ncclSuccess);
	ck_assert(!out.blocking && out.split_share == 1 && out.shrink_share == 1 &&
		  out.max_ctas == 8);
	ck_assert_uint_eq(strlen(out.name), 63);
}
END_TEST

static const struct {
	size_t offset;
	unsigned since;
	int bad;
	const char *text;
} rows[] = {
	{offsetof(ncclConfig_t, blocking), 21400, 2, "Invalid config blocking attribute value 2"},
	{offsetof(ncclConfig_t, cgaClusterSize), 21700, -1,
	 "Invalid config cgaClusterSize attribute value -1"},
	{offsetof(ncclConfig_t, maxCTAs), 21700, 0,
	 "Invalid config min/max channels attribute value"},
	{offsetof(ncclConfig_t, splitShare), 0, 5, "Invalid config splitShare attribute value 5"},
	{offsetof(ncclConfig_t, collnetEnable), 22700, 2,
	 "Invalid config collnetEnable attribute value 2"},
	{offsetof(ncclConfig_t, CTAPolicy), 22700, 3, "Invalid config policy attribute value 3"},
	{offsetof(ncclConfig_t, shrinkShare), 22700, 7,
	 "Invalid config shrinkShare attribute value 7"},
	{offsetof(ncclConfig_t, nvlsCTAs), 22700, 0, "Invalid config nvlsCTAs attribute value 0"},
	{offsetof(ncclConfig_t, nChannelsPerNetPeer), 22800, 65,
	 "Invalid config nChannelsPerNetPeer attribute value 65"},
	{offsetof(ncclConfig_t, nvlinkCentricSched), 22800, 2,
	 "Invalid config nvlinkCentricSched attribute value 2"},
	{offsetof(ncclConfig_t, graphUsageMode), 22900, 3,
	 "Invalid config graphUsageMode attribute value 3"},
	{offsetof(ncclConfig_t, maxP2pPeers), 23000, 0,
	 "Invalid config maxP2pPeers attribute value 0"},
	{offsetof(ncclConfig_t, launchOrderImplicit), 23100, 2,
	 "Invalid config launchOrderImplicit attribute value 2"},
	{offsetof(ncclConfig_t, hostCftMode), 23100, 4,
	 "Invalid config hostCftMode attribute value 4"},
	{offsetof(ncclConfig_t, nvlsHostMode), 23200, -1,
	 "Invalid config nvlsHostMode attribute value -1"},
};
#define NR_ROWS (int)(sizeof(rows) / sizeof(rows[0]))

/* A bad value counts only if version and size of the caller's struct include the field. */
START_TEST(t_range)
{
	static const unsigned versions[] = {21304, 21400, 21802, 22702, 22809,
					    22907, 23007, 23102, 23203, 99999};
	size_t v, size = rows[_i].offset + sizeof(int);
	struct df_config out, same;

	for (v = 0; v < sizeof(versions) / sizeof(versions[0]); v++) {
		ncclConfig_t c = fresh(versions[v]);
		int bad = versions[v] >= rows[_i].since;

		*(int *)((char *)&c + rows[_i].offset) = rows[_i].bad;
		memset(&out, 0x5a, sizeof(out));
		same = out;
		ck_assert_int_eq(df_config_parse(&c, &out),
				 bad ? ncclInvalidArgument : ncclSuccess);
		if (bad) {
			ck_assert_msg(strstr(df_nccl_last_error(), rows[_i].text) != NULL, "%s",
				      df_nccl_last_error());
			ck_assert_mem_eq(&out, &same, sizeof(out));
		}
		c.size = size; /* just long enough */
		ck_assert_int_eq(df_config_parse(&c, &out),
				 bad ? ncclInvalidArgument : ncclSuccess);
		c.size = size - sizeof(int);
		ck_assert_int_eq(df_config_parse(&c, &out), ncclSuccess);
	}
}
END_TEST

/* Any bytes of any length are read or refused. Bytes after the size are never read. */
START_TEST(t_garbage)
{
	unsigned char bytes[sizeof(ncclConfig_t) + 64];
	const char *name = "name";
	struct df_config out;
	struct df_rng rng;
	size_t i, size;
	int round;

	df_rng_init(&rng, df_test_seed());
	for (round = 0; round < 20000; round++) {
		ncclConfig_t c = fresh((unsigned)df_rng_below(&rng, 30000));

		size = df_rng_below(&rng, sizeof(c));
		for (i = 0; i < sizeof(bytes); i++)
			bytes[i] = (unsigned char)df_rng_below(&rng, 256);
		if (df_rng_below(&rng, 2))
			memcpy(bytes, &c, sizeof(c));
		memcpy(bytes, &size, sizeof(size));
		/* The caller's name is valid, but the size may end inside the pointer. */
		memcpy(bytes + offsetof(ncclConfig_t, commName), &name, sizeof(name));
		if (size < offsetof(ncclConfig_t, blocking))
			ck_assert_int_eq(df_config_parse(bytes, &out), ncclInvalidArgument);
		else
			df_config_parse(bytes, &out);
	}
}
END_TEST

int main(void)
{
	return DF_TESTS("config", {t_defaults}, {t_range, NR_ROWS}, {t_garbage});
}
