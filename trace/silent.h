/* Processes that live and do not answer, for the judge. */
#ifndef DF_TRACE_SILENT_H
#define DF_TRACE_SILENT_H

#include <stdint.h>

struct df_check_set;

struct df_check_silent {
	uint64_t comm; /* commHash of a communicator, and its rank there */
	int rank;
	uint32_t pid;
	char host[64];
	/*
	 * Whether the process itself is known not to answer. If 0, another process that passes its
	 * messages on may be the silent one.
	 */
	int certain;
};

/* Adds a rank without a trace. Returns 0 or -ENOMEM. */
int df_check_add_silent(struct df_check_set *set, const struct df_check_silent *s);

#endif
