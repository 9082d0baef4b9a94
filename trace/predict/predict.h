/*
 * Prediction: is there an execution of a program, other than the recorded one, that deadlocks by NCCL's rules? A program
 * is the model's; what varies is the order in which the threads of a rank take their steps, where no thread comes between
 * the operations of another's group (df_mop.goes_on). Used by
 * `dfshim predict`, which makes programs from traces.
 *
 * Every execution that is looked at is one of the model, from the first step of the program on, so what is found can
 * happen by its rules. Only the turns of a window are taken in another order; before it and after it threads go on as they were
 * recorded, as far as the finding needs. Windows overlap by half. A program whose orders are fewer than the tries, and which
 * fits into one window, is searched whole: then what is not found can't happen.
 *
 * Pure functions; a program belongs to one thread.
 */
#ifndef DF_TRACE_PREDICT_PREDICT_H
#define DF_TRACE_PREDICT_PREDICT_H

#include "trace/predict/model.h"

/* For each rank: whose turn it was, in the recorded order of steps that take one. */
struct df_predict_order {
	uint8_t *thread[DF_MODEL_RANKS];
	size_t nr[DF_MODEL_RANKS], cap[DF_MODEL_RANKS];
};

struct df_predict_opts {
	size_t tries;
	int slots;     /* resident collectives a rank; 0 unlimited */
	int one_queue; /* all streams share one hardware queue */
	size_t window; /* operations of a rank whose turns are reordered together; 0 all */
	void (*progress)(size_t windows); /* or NULL */
};

struct df_predict_finding {
	const char *what;		  /* in words; NULL: nothing found */
	uint64_t schedule;		  /* which of the tries; 0: the recorded order */
	int unbuffered, slots, one_queue; /* what it takes; 0: nothing */
	int complete;			  /* all orders have been tried */
	size_t window, nr_windows;	  /* the one that was reordered, of how many */
	int counted;			  /* its orders are fewer than the tries */
	size_t need_slots;		  /* most collectives of one rank that ran at once */
	struct df_model_result res;
};

/* What stands for a wait of one thread for another does not. */
int df_predict_takes_turn(enum df_mop_kind kind);
int df_predict_add(struct df_predict_order *o, int rank, int thread);
void df_predict_order_fini(struct df_predict_order *o);

/* 1 found, 0 not, -ENOMEM. */
int df_predict_search(struct df_mprog *p, const struct df_predict_order *recorded,
		      const struct df_predict_opts *opts, struct df_predict_finding *out);
/*
 * The execution that was found, once more, told; then what has not finished on the devices (either function may be
 * NULL). 0 or -ENOMEM.
 */
int df_predict_again(struct df_mprog *p, const struct df_predict_order *recorded,
		     const struct df_predict_opts *opts, const struct df_predict_finding *f,
		     df_model_event_fn fn, df_mrun_task_fn open, void *arg);

#endif
