/*
 * Groups of processes that do the same: they have the same innermost frames, wait in the same
 * calls, and have the same first unfinished operation, on any communicator. A thousand hanging
 * ranks form a few groups. The cause is usually in the smallest.
 */
#ifndef DF_TRACE_SAY_ALIKE_H
#define DF_TRACE_SAY_ALIKE_H

#include <stdio.h>
#include "trace/judge/result.h"
#include "trace/say/print.h"

struct df_alike {
	uint32_t *traces; /* by rank */
	size_t nr, cap;
	char *state; /* text of what they do */
};

struct df_alikes {
	struct df_alike *all; /* the smallest first; processes that exited normally are last */
	size_t nr, cap;
};

/* Returns 0 or -ENOMEM. */
int df_alikes_find(struct df_alikes *a, const struct df_check_result *r);
void df_alikes_fini(struct df_alikes *a);

/* Adds the ranks of a group, sorted; the caller frees ranks->ranks. */
void df_alike_ranks(const struct df_alike *g, const struct df_check_set *set,
		    struct df_crowd *ranks);
/* Prints the ranks of a group: "9 ranks, r0-r7, r16". */
void df_alike_print_who(const struct df_alike *g, const struct df_check_set *set, FILE *out);
/* Returns the first device of a process; -1 if it has no communicator. */
int df_alike_device(const struct df_check_set *set, uint32_t trace);
/* Prints the groups, unless all processes do the same or each one does something else. */
void df_print_alikes(const struct df_check_result *r, FILE *out);

#endif
