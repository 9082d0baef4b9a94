/*
 * Reads ncclConfig_t by the size and version that the caller's macro wrote, never by the size of
 * our struct alone. Fields newer than that version count as unset, whatever their bytes are. No
 * state except the log.
 */
#include <stdio.h>
#include <string.h>
#include "interpose/real/nccl_config.h"
#include "runtime/base/env.h"
#include "runtime/base/log.h"

#define UNDEF		NCCL_CONFIG_UNDEF_INT
#define V(minor, patch) (20000u + (minor)*100u + (patch))

/* Every integer field, with the version that introduced it and its range. */
static const struct field {
	size_t offset;
	unsigned since;
	int min, max;
	const char *text; /* NCCL's message for a bad value */
} fields[] = {
#define F(name, since, min, max, text)                                                             \
	{                                                                                          \
		offsetof(ncclConfig_t, name), since, min, max, text                                \
	}
	F(blocking, V(14, 0), 0, 1, "Invalid config blocking attribute value %d"),
	F(cgaClusterSize, V(17, 0), 0, INT_MAX, "Invalid config cgaClusterSize attribute value %d"),
	F(minCTAs, V(17, 0), 1, INT_MAX, NULL),
	F(maxCTAs, V(17, 0), 1, INT_MAX, NULL),
	F(splitShare, 0, 0, 1, "Invalid config splitShare attribute value %d"),
	F(trafficClass, V(25, 0), INT_MIN, INT_MAX, NULL),
	F(collnetEnable, V(27, 0), 0, 1, "Invalid config collnetEnable attribute value %d"),
	F(CTAPolicy, V(27, 0), 0, 2, "Invalid config policy attribute value %d"),
	F(shrinkShare, V(27, 0), 0, 1, "Invalid config shrinkShare attribute value %d"),
	F(nvlsCTAs, V(27, 0), 1, INT_MAX, "Invalid config nvlsCTAs attribute value %d"),
	F(nChannelsPerNetPeer, V(28, 0), 1, 64,
	  "Invalid config nChannelsPerNetPeer attribute value %d"),
	F(nvlinkCentricSched, V(28, 0), 0, 1,
	  "Invalid config nvlinkCentricSched attribute value %d"),
	F(graphUsageMode, V(29, 0), 0, 2, "Invalid config graphUsageMode attribute value %d"),
	F(numRmaCtx, V(29, 0), 0, INT_MAX, "Invalid config numRmaCtx attribute value %d"),
	F(maxP2pPeers, V(30, 0), 1, INT_MAX, "Invalid config maxP2pPeers attribute value %d"),
	F(graphStreamOrdering, V(30, 5), 0, 1,
	  "Invalid config graphStreamOrdering attribute value %d"),
	F(launchOrderImplicit, V(31, 0), 0, 1,
	  "Invalid config launchOrderImplicit attribute value %d"),
	F(numRmaSig, V(31, 0), 0, INT_MAX, "Invalid config numRmaSig attribute value %d"),
	F(rmaEagerInit, V(31, 0), 0, 1, "Invalid config rmaEagerInit attribute value %d"),
	F(hostCftMode, V(31, 0), 1, 3, "Invalid config hostCftMode attribute value %d"),
	F(nvlsHostMode, V(32, 0), 0, INT_MAX, "Invalid config nvlsHostMode attribute value %d"),
#undef F
};

void df_config_default(struct df_config *out)
{
	memset(out, 0, sizeof(*out));
	out->blocking = 1;
	out->min_ctas = 1;
}

ncclResult_t df_config_parse(const void *config, struct df_config *out)
{
	ncclConfig_t c;
	size_t size, i;
	int *value;

	memset(&c, 0, sizeof(c));
	for (i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
		*(int *)((char *)&c + fields[i].offset) = UNDEF;
	memcpy(&size, config, sizeof(size));
	if (size > sizeof(c))
		size = sizeof(c);
	memcpy(&c, config, size);
	if (size < offsetof(ncclConfig_t, blocking) || c.magic != DF_NCCL_API_MAGIC) {
		DF_NCCL_WARN("ncclConfig_t argument not initialized via NCCL_CONFIG_INITIALIZER");
		return ncclInvalidArgument;
	}
	if (c.version < V(27, 0) || size < offsetof(ncclConfig_t, commName) + sizeof(c.commName))
		c.commName = NULL;
	if (c.version < V(17, 0) || size < offsetof(ncclConfig_t, netName) + sizeof(c.netName))
		c.netName = NULL;
	for (i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		const struct field *f = &fields[i];

		value = (int *)((char *)&c + f->offset);
		if (c.version < f->since)
			*value = UNDEF;
		if (*value != UNDEF && f->text && (*value < f->min || *value > f->max)) {
			df_nccl_warn(__FILE__, __LINE__, f->text, *value);
			return ncclInvalidArgument;
		}
	}
	if ((c.minCTAs != UNDEF && c.minCTAs <= 0) || (c.maxCTAs != UNDEF && c.maxCTAs <= 0) ||
	    c.minCTAs > c.maxCTAs) {
		DF_NCCL_WARN("Invalid config min/max channels attribute value %d/%d", c.minCTAs,
			     c.maxCTAs);
		return ncclInvalidArgument;
	}
	df_config_default(out);
	if (c.blocking != UNDEF)
		out->blocking = c.blocking;
	if (c.splitShare != UNDEF)
		out->split_share = c.splitShare;
	if (c.shrinkShare != UNDEF)
		out->shrink_share = c.shrinkShare;
	if (c.minCTAs != UNDEF)
		out->min_ctas = c.minCTAs;
	if (c.maxCTAs != UNDEF)
		out->max_ctas = c.maxCTAs;
	out->raw = c;
	out->raw.size = size;
	out->raw.netName = out->raw.commName = NULL; /* the strings are in the caller's memory */
	if (c.commName)
		snprintf(out->name, sizeof(out->name), "%s", c.commName);
	if (c.netName)
		snprintf(out->net, sizeof(out->net), "%s", c.netName);
	return ncclSuccess;
}

void df_config_for_lane(const struct df_config *c, int most_ctas, ncclConfig_t *out)
{
	/* Callers before 2.17 have no CTAs in their configuration, or no configuration. */
	int old = c->raw.size < offsetof(ncclConfig_t, netName);
	size_t i;

	*out = c->raw;
	for (i = 0; old && i < sizeof(fields) / sizeof(fields[0]); i++)
		*(int *)((char *)out + fields[i].offset) = UNDEF;
	if (old) {
		out->size = offsetof(ncclConfig_t, splitShare);
		out->magic = DF_NCCL_API_MAGIC;
		out->version = V(17, 0);
	}
	out->blocking = 1;
	out->commName = c->name[0] ? c->name : NULL;
	out->netName = c->net[0] ? c->net : NULL;
	if (out->maxCTAs != UNDEF && out->maxCTAs > most_ctas)
		df_warn_once("a communicator may have %d CTAs by its configuration; it gets %d "
			     "(DFSHIM_NCCL_CTAS)",
			     out->maxCTAs, most_ctas);
	if (out->maxCTAs == UNDEF || out->maxCTAs > most_ctas)
		out->maxCTAs = most_ctas;
	if (out->minCTAs != UNDEF && out->minCTAs > out->maxCTAs)
		out->minCTAs = out->maxCTAs;
}

const char *df_config_name(const void *config)
{
	const size_t need = offsetof(ncclConfig_t, commName) + sizeof(char *);
	ncclConfig_t c;

	if (!config)
		return "";
	memcpy(&c, config, offsetof(ncclConfig_t, blocking));
	if (c.magic != DF_NCCL_API_MAGIC || c.version < V(27, 0) || c.size < need)
		return "";
	memcpy(&c, config, need);
	return c.commName ? c.commName : "";
}
