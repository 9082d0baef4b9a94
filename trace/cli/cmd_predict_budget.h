/*
 * Whether the communicators of a recorded program can have more CTAs in flight on lanes, or use
 * more hardware queues, than a device has room for (runtime/exec/nccl/budget.h), for
 * `dfshim predict --executor nccl`. One thread.
 */
#ifndef DF_TRACE_CLI_CMD_PREDICT_BUDGET_H
#define DF_TRACE_CLI_CMD_PREDICT_BUDGET_H

#include <jansson.h>
#include <stdio.h>
#include "trace/cli/cmd_predict_program.h"

/* A communicator with unfinished operations on a rank. */
struct df_budget_lane {
	int comm, thread; /* of its first unfinished operation: the thread, ... */
	size_t op;	  /* ... and its step */
	uint64_t since;	  /* ... and when it was issued; 0: no operation is unfinished */
	size_t nr;	  /* operations */
};

struct df_budget {
	long ctas;   /* of a communicator */
	long sms;    /* of a device; 0: unknown */
	long queues; /* hardware queues of a device; 0: streams share none */
	/* The rank with most communicators in flight, and these in their order of issue. */
	int rank;
	struct df_budget_lane *lanes;
	size_t nr_lanes;
	/* ranks with more in flight than there is room for; of either kind */
	int short_sms, short_queues, nr_short;
};

/*
 * Executes the program as recorded, with ranks that issue up to BUDGET_AHEAD operations before the
 * first ends. ctas, sms and queues are set. Returns 0 or -ENOMEM.
 */
int df_predict_budget(struct df_predict_program *w, struct df_budget *b);
void df_predict_budget_fini(struct df_budget *b);

void df_predict_budget_print(FILE *out, const struct df_predict_program *w,
			     const struct df_budget *b);
json_t *df_predict_budget_json(const struct df_predict_program *w, const struct df_budget *b);

#endif
