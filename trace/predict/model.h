/*
 * Executes small programs by the ordering rules of NCCL and CUDA, to a fixpoint: everything that
 * can proceed does so, until nothing more can. This labels programs (they finish, or hang, and
 * which change would help), makes traces for tests, and is the basis of the search of `dfshim
 * predict`.
 *
 * The modes are the same rule changes as the worlds of trace/graph. BASE: as NCCL runs. P:
 * collectives may leave their issue order where no program can notice. SI: also, implicit
 * synchronisation does not wait for stuck collectives. SE: also, explicit device synchronisation
 * and the legacy stream do not either. LANES: the rules of runtime/exec/nccl, with room for all.
 *
 * A program (struct df_mprog), and a run of one, belongs to one thread.
 */
#ifndef DF_TRACE_PREDICT_MODEL_H
#define DF_TRACE_PREDICT_MODEL_H

#include <stddef.h>
#include <stdint.h>
#include "trace/predict/ranks.h"
#include "trace/read/load.h"

enum df_model_mode { DF_MODEL_BASE, DF_MODEL_P, DF_MODEL_SI, DF_MODEL_SE, DF_MODEL_LANES };

enum df_mop_kind {
	DF_MOP_KERNEL,
	DF_MOP_STUCK,
	DF_MOP_LEGACY,
	DF_MOP_COLL,
	DF_MOP_P2P,
	DF_MOP_RECORD,
	DF_MOP_WAIT,
	DF_MOP_SSYNC,
	DF_MOP_ESYNC,
	DF_MOP_DSYNC,
	DF_MOP_ISYNC,
	DF_MOP_HBAR,
	DF_MOP_CONN,
	DF_MOP_INIT,
	DF_MOP_HWAIT,
	DF_MOP_HSIGNAL,
	DF_MOP_EXIT,
	DF_MOP_SPIN
};

#define DF_MOP_MAX_P2P 32

struct df_mp2p {
	unsigned send : 1; /* 1 for a send, 0 for a receive */
	unsigned comm : 31;
	int peer; /* the peer's rank in the job */
	uint64_t count;
	struct df_range buffer; /* the message's memory, for mode LANES */
};

struct df_mop {
	enum df_mop_kind kind;
	int comm;		 /* COLL */
	int stream;		 /* from 0 */
	int object;		 /* event, flag, or name of a barrier or init */
	uint64_t sig;		 /* COLL: kind | count << 8 */
	uint64_t reads, writes;	 /* COLL: sets of buffers */
	struct df_range in, out; /* COLL, mode LANES: its buffers */
	struct df_ranks members; /* HBAR, CONN, INIT */
	int nr_p2p;		 /* P2P: more than one are a group */
	/*
	 * COLL, P2P: the thread's next step belongs to the same group, so no other thread takes a
	 * step in between
	 */
	int goes_on;
	struct df_mp2p p2p[DF_MOP_MAX_P2P];
};

struct df_mthread {
	struct df_mop *ops;
	size_t nr_ops, cap_ops;
};

#define DF_MODEL_THREADS 64

struct df_mprog {
	int nr_ranks;
	struct df_mthread threads[DF_MODEL_RANKS][DF_MODEL_THREADS];
	int nr_threads[DF_MODEL_RANKS];
	struct df_ranks *comms;
	int nr_comms;
	int cap;	  /* limit of resident collectives of a rank; 0: none */
	int one_queue;	  /* all streams of a rank share one hardware queue */
	int launch_queue; /* limit of unfinished tasks of a rank; 0: none */
	int buffered;	  /* sends end without their receive */
	/*
	 * The operations of a communicator run in the order in which its rank issued them, on all
	 * streams, as NCCL's do
	 */
	int in_order;
	/*
	 * Mode LANES: the k-th collectives of a signature meet, in whatever order a communicator's
	 * operations were issued (DFSHIM_NCCL_ORDER=agree)
	 */
	int agreed;
	/*
	 * As in the reference's model.py: if a task has finished out of order, its unfinished
	 * predecessors are forgotten. So modes P, SI and SE call some programs preventable that are
	 * not. For comparisons only.
	 */
	int as_reference;
};

/* The events of a run. task: number of the task on a stream, -1 for steps of threads. */
enum df_model_event {
	DF_ME_ENTER, /* a thread's step begins (once, even if it then blocks) */
	DF_ME_LEAVE, /* the step is over */
	DF_ME_ISSUE, /* a task is on its stream */
	DF_ME_START, /* the task runs */
	DF_ME_DONE,
	DF_ME_NO_SLOT /* the task is ready, but all slots are taken (once) */
};

typedef void (*df_model_event_fn)(void *arg, enum df_model_event ev, int rank, int thread,
				  size_t op, const struct df_mop *mop, int task);

struct df_model_result {
	int hung;
	size_t pc[DF_MODEL_RANKS][DF_MODEL_THREADS]; /* first step that is not over */
	size_t nr_tasks, nr_unfinished;
	size_t max_resident; /* most collectives that ran at once on one rank */
};

/*
 * How to run the program. pick: if not NULL, chooses the thread that takes the next step: it is
 * called with the number of threads that could, and returns the index of one. If that one cannot,
 * it is called again. NULL: ranks take turns, and each proceeds as far as it can.
 */
struct df_model_schedule {
	size_t (*pick)(void *arg, size_t nr);
	void *arg;
	/*
	 * If not NULL: threads proceed one step at a time, and this chooses which task starts next,
	 * or none. Returns a number below nr. It decides which task gets a slot if there are too
	 * few.
	 */
	size_t (*device)(void *arg, size_t nr);
	/*
	 * If not NULL: returns 1 while this thread must not try its next step. If nothing else
	 * makes progress, let_go() is called. It returns the rank of a thread that was held and may
	 * now proceed, plus 1; 0: there is none.
	 */
	int (*hold)(void *arg, int rank, int thread, const struct df_mop *next);
	int (*let_go)(void *arg);
};
/* Runs a program from its begin until nothing proceeds. Returns 0 or -ENOMEM. */
int df_model_run(const struct df_mprog *p, enum df_model_mode mode,
		 const struct df_model_schedule *schedule, df_model_event_fn fn, void *arg,
		 struct df_model_result *out);

/*
 * The same run in parts. A run that was held continues with the next df_mrun_go(), and a copy of it
 * can continue in another way. The program must exist longer than the runs.
 */
struct df_mrun;
struct df_mrun *df_mrun_create(const struct df_mprog *p,
			       enum df_model_mode mode); /* NULL: no memory */
struct df_mrun *df_mrun_copy(const struct df_mrun *r);	 /* NULL: no memory */
void df_mrun_destroy(struct df_mrun *r);
/* Runs until nothing proceeds. Returns 0 or -ENOMEM. */
int df_mrun_go(struct df_mrun *r, const struct df_model_schedule *schedule, df_model_event_fn fn,
	       void *arg, struct df_model_result *out);
/* Returns the number of unfinished collectives and messages of a rank. */
size_t df_mrun_open_ops(const struct df_mrun *r, int rank);
/*
 * df_mrun_issued(): number of tasks that have been put on streams. df_mrun_is_open(): whether one
 * of the first `before` of them is unfinished.
 */
int df_mrun_issued(const struct df_mrun *r);
int df_mrun_is_open(const struct df_mrun *r, int before);
/*
 * Calls fn for each unfinished collective and message. here: ranks in which the collective has
 * started; NULL: none.
 */
typedef void (*df_mrun_task_fn)(void *arg, int rank, int thread, size_t op, int started,
				const struct df_ranks *here);
void df_mrun_each(const struct df_mrun *r, df_mrun_task_fn fn, void *arg);

/* Returns the first of the modes "OK", "P", "Si", "Se" in which it finishes; "D": none. */
const char *df_model_classify(const struct df_mprog *p);

/* Appends a step to a thread. Returns 0, -EINVAL if rank or thread is too high, or -ENOMEM. */
int df_mprog_add(struct df_mprog *p, int rank, int thread, const struct df_mop *op);
/* Adds a communicator. Returns its number, or -ENOMEM. */
int df_mprog_comm(struct df_mprog *p, const struct df_ranks *members);
void df_mprog_fini(struct df_mprog *p);

#endif
