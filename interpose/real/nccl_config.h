/* Reads the ncclConfig_t of callers of any version. */
#ifndef DF_INTERPOSE_REAL_NCCL_CONFIG_H
#define DF_INTERPOSE_REAL_NCCL_CONFIG_H

#include "interpose/nccl/nccl_types.h"

/* The settings that dfshim uses, with defaults filled in. */
struct df_config {
	int blocking;
	int split_share, shrink_share;
	int min_ctas, max_ctas; /* max_ctas 0 means no limit */
	char name[64], net[64]; /* commName, netName */
	/* the caller's configuration, without its strings; size is 0 if there is none */
	ncclConfig_t raw;
};

/* Fills in the defaults, overridden by the environment. */
void df_config_default(struct df_config *out);

/*
 * Reads a caller's configuration by its size and version. Returns ncclInvalidArgument, with NCCL's
 * text, if NCCL's macro did not initialize it or a value is out of range; *out is then unchanged.
 */
ncclResult_t df_config_parse(const void *config, struct df_config *out);

/*
 * Fills *out with the configuration for the real library's communicator behind one of ours: a
 * blocking one, with maxCTAs at most most_ctas. Its strings are those of c.
 */
void df_config_for_lane(const struct df_config *c, int most_ctas, ncclConfig_t *out);

/*
 * Returns the name in a caller's configuration, which may be NULL. Returns "" if there is no
 * name.
 */
const char *df_config_name(const void *config);

#endif
