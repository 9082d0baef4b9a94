/*
 * ncclConfig_t as callers of any version pass it.
 */
#ifndef DF_INTERPOSE_NCCL_NCCL_CONFIG_H
#define DF_INTERPOSE_NCCL_NCCL_CONFIG_H

#include "interpose/nccl/nccl_types.h"

/* What of a configuration matters to us, defaults filled in. */
struct df_config {
	int blocking;
	int split_share, shrink_share;
	int min_ctas, max_ctas; /* max_ctas 0: no limit */
	char name[64], net[64]; /* commName, netName */
	ncclConfig_t raw;	/* what the caller gave, without its strings; size 0: nothing */
};

/* The defaults, as the environment overrides them. */
void df_config_default(struct df_config *out);

/*
 * Reads a caller's configuration by its size and version. ncclInvalidArgument with NCCL's text when it was
 * not initialised by NCCL's macro or holds a value out of range; *out is then untouched.
 */
ncclResult_t df_config_parse(const void *config, struct df_config *out);

#endif
