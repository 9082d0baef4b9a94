/*
 * Predicts whether a program has an execution, other than the recorded one, that deadlocks by the
 * rules of NCCL or of lanes. A program is a struct df_mprog (model.h). Executions differ in the
 * order in which the threads of a rank take their steps, except that no thread takes a step between
 * the operations of another thread's group (df_mop.goes_on). `dfshim predict` uses this; it makes
 * programs from traces.
 *
 * Every execution starts at the first step of the program and follows the model's rules, so a
 * finding can happen by these rules. Only the turns within a window are reordered; before and after
 * the window threads proceed as recorded. Windows overlap by half. If a program has no more orders
 * than there are tries, and fits into one window, the search is complete: a deadlock that is not
 * found cannot happen.
 *
 * Pure functions; a program belongs to one thread.
 */
#ifndef DF_TRACE_PREDICT_PREDICT_H
#define DF_TRACE_PREDICT_PREDICT_H

#include "trace/predict/model.h"

/* By rank: the thread of each turn, in the recorded order. */
struct df_predict_order {
	uint8_t *thread[DF_MODEL_RANKS];
	size_t nr[DF_MODEL_RANKS], cap[DF_MODEL_RANKS];
};

struct df_predict_opts {
	enum df_model_mode mode; /* BASE or LANES */
	size_t tries;
	int slots;     /* for BASE: limit of resident collectives of a rank; 0 means no limit */
	int one_queue; /* for BASE: all streams of a rank share one hardware queue */
	size_t window; /* operations of a rank whose turns are reordered together; 0 means all */
	void (*progress)(size_t windows); /* called with the number of windows; may be NULL */
};

struct df_predict_finding {
	/* description of the finding; NULL if nothing was found */
	const char *what;
	uint64_t schedule;		  /* number of the try; 0 means the recorded order */
	int unbuffered, slots, one_queue; /* conditions of the deadlock; 0 means not needed */
	int complete;			  /* whether all orders have been tried */
	size_t window, nr_windows;	  /* the window that was reordered; number of windows */
	int counted;			  /* whether the orders of this window were enumerated */
	/* maximum number of collectives of one rank that ran at once */
	size_t need_slots;
	struct df_model_result res;
};

/* Whether a step of this kind takes a turn. Waits and signals between threads do not. */
int df_predict_takes_turn(enum df_mop_kind kind);
int df_predict_add(struct df_predict_order *o, int rank, int thread);
void df_predict_order_fini(struct df_predict_order *o);

/* Returns 1 if a deadlock was found, 0 if not, or -ENOMEM. */
int df_predict_search(struct df_mprog *p, const struct df_predict_order *recorded,
		      const struct df_predict_opts *opts, struct df_predict_finding *out);
/*
 * Executes the finding once more and reports its events to fn. Then calls `open` for each
 * unfinished collective and message. Either function may be NULL. Returns 0 or -ENOMEM.
 */
int df_predict_again(struct df_mprog *p, const struct df_predict_order *recorded,
		     const struct df_predict_opts *opts, const struct df_predict_finding *f,
		     df_model_event_fn fn, df_mrun_task_fn open, void *arg);

#endif
