/*
 * The ranks without a trace of a communicator that was split from another one. Private to the
 * judge.
 */
#ifndef DF_TRACE_READ_KIN_H
#define DF_TRACE_READ_KIN_H

#include <stdint.h>

struct df_check_set;

/* exact: 0: `parent` is one of several ranks of which the same is known. */
struct df_kin {
	uint32_t gcomm;	      /* the parent */
	int32_t rank, parent; /* the rank, and which one it is in the parent */
	int exact;
};

/* Part of df_set_seal(): finds the ranks that have no trace. Returns 0 or -ENOMEM. */
int df_set_kin(struct df_check_set *set);
/* Returns which rank of the parent communicator this rank without a trace is, or NULL. */
const struct df_kin *df_set_kin_of(const struct df_check_set *set, uint32_t gcomm, int rank);

#endif
