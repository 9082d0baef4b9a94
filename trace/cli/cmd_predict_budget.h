/*
 * For `dfshim predict --executor nccl`: whether the communicators of a recorded program can need
 * more CTAs or hardware queues on lanes than a device has (runtime/exec/nccl/budget.h). One thread.
 */
#ifndef DF_TRACE_CLI_CMD_PREDICT_BUDGET_H
#define DF_TRACE_CLI_CMD_PREDICT_BUDGET_H

#include <jansson.h>
#include <stdio.h>
#include "trace/cli/cmd_predict_program.h"

/* A communicator with unfinished operations on a rank. */
struct df_budget_lane {
	int comm;
	/*
	 * The operation that made the lane busy: its thread, its step, and its place in the order
	 * of issue.
	 */
	int thread;
	size_t op;
	uint64_t since;
	size_t nr; /* number of unfinished operations */
};

struct df_budget {
	long ctas;   /* CTAs of a communicator */
	long sms;    /* multiprocessors of a device; 0 if unknown */
	long queues; /* hardware queues of a device; 0 if streams share none */
	/*
	 * The rank with most communicators in flight, and these communicators in their order of
	 * issue.
	 */
	int rank;
	struct df_budget_lane *lanes;
	size_t nr_lanes;
	/* Numbers of ranks that need more CTAs than there are, more queues, and more of either. */
	int short_sms, short_queues, nr_short;
};

/*
 * Executes the program as recorded, with ranks that issue as many operations in advance as a stream
 * takes. The caller sets ctas, sms and queues. Returns 0 or -ENOMEM.
 */
int df_predict_budget(struct df_predict_program *w, struct df_budget *b);
void df_predict_budget_fini(struct df_budget *b);

void df_predict_budget_print(FILE *out, const struct df_predict_program *w,
			     const struct df_budget *b);
json_t *df_predict_budget_json(const struct df_predict_program *w, const struct df_budget *b);

#endif
