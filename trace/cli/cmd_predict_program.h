/*
 * From recorded steps to the model's program, for `dfshim predict`. One thread.
 */
#ifndef DF_TRACE_CLI_CMD_PREDICT_PROGRAM_H
#define DF_TRACE_CLI_CMD_PREDICT_PROGRAM_H

#include "trace/cli/run/recorded.h"
#include "trace/predict/predict.h"

struct df_predict_program {
	struct df_mprog prog;
	struct df_predict_order order; /* as recorded */
	const struct df_program_steps *steps;
	/* The recorded step of each of the program's steps. */
	uint32_t *step[DF_MODEL_RANKS][DF_MODEL_THREADS];
	size_t nr_ops; /* collectives and messages, of all ranks */
};

/* The steps must exist as long as it. Fails with -ENOMEM; then there is nothing to free. */
int df_predict_program_make(struct df_predict_program *w, struct df_program_steps *p);
void df_predict_program_fini(struct df_predict_program *w);
const struct df_step_of *df_predict_program_step(const struct df_predict_program *w, int rank,
						 int thread, size_t op);

#endif
