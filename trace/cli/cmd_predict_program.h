/* Makes the model's program from recorded steps, for `dfshim predict`. One thread. */
#ifndef DF_TRACE_CLI_CMD_PREDICT_PROGRAM_H
#define DF_TRACE_CLI_CMD_PREDICT_PROGRAM_H

#include "trace/cli/run/recorded.h"
#include "trace/predict/predict.h"

struct df_predict_program {
	struct df_mprog prog;
	struct df_predict_order order; /* the recorded order */
	const struct df_program_steps *steps;
	/* The recorded step of each step of the program. */
	uint32_t *step[DF_MODEL_RANKS][DF_MODEL_THREADS];
	size_t nr_ops; /* number of collectives and messages of all ranks */
};

/*
 * Makes a program. The steps must exist as long as the program. Returns 0, or -ENOMEM; then there
 * is nothing to free.
 */
int df_predict_program_make(struct df_predict_program *w, struct df_program_steps *p);
void df_predict_program_fini(struct df_predict_program *w);
const struct df_step_of *df_predict_program_step(const struct df_predict_program *w, int rank,
						 int thread, size_t op);

#endif
