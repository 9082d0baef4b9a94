/*
 * Executes small programs by the ordering rules of NCCL and CUDA, to a fixpoint: everything that
 * can proceed does so, until nothing more can. This labels programs (they finish, or hang, and
 * which change would help), makes traces for tests, and is the basis of the search of `dfshim
 * predict`.
 *
 * The modes are the same rule changes as the worlds of trace/graph. BASE: as NCCL runs. P:
 * collectives may leave their issue order where no program can notice. SI: as P, and implicit
 * synchronisation does not wait for stuck collectives. SE: as SI, and neither explicit device
 * synchronisation nor the legacy stream does. LANES: the rules of runtime/exec/nccl, on a device
 * that can hold all operations.
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
	int comm;		 /* for COLL */
	int stream;		 /* numbered from 0 */
	int object;		 /* event, flag, or name of a barrier or init */
	uint64_t sig;		 /* for COLL: kind | count << 8 */
	uint64_t reads, writes;	 /* for COLL: sets of buffers */
	struct df_range in, out; /* for COLL in mode LANES: its buffers */
	struct df_ranks members; /* for HBAR, CONN and INIT */
	int nr_p2p;		 /* for P2P: number of messages; several are a group */
	/*
	 * For COLL and P2P: the thread's next step belongs to the same group, so no other thread
	 * takes a step in between.
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
	int cap;	  /* limit of resident collectives of a rank; 0 means no limit */
	int one_queue;	  /* all streams of a rank share one hardware queue */
	int launch_queue; /* limit of unfinished tasks of a rank; 0 means no limit */
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
	 * predecessors are forgotten. As a result modes P, SI and SE call some programs preventable
	 * that are not. For comparisons only.
	 */
	int as_reference;
};

/* The events of a run. They carry the number of a task on a stream, or -1 for steps of threads. */
enum df_model_event {
	DF_ME_ENTER, /* a step of a thread begins; reported once, even if the step then waits */
	DF_ME_LEAVE, /* a thread has completed its step */
	DF_ME_ISSUE, /* a task is on its stream */
	DF_ME_START, /* the task runs */
	DF_ME_DONE,
	DF_ME_NO_SLOT /* a task is ready, but all slots are taken (reported once) */
};

typedef void (*df_model_event_fn)(void *arg, enum df_model_event ev, int rank, int thread,
				  size_t op, const struct df_mop *mop, int task);

struct df_model_result {
	int hung;
	/* first step that the thread has not completed */
	size_t pc[DF_MODEL_RANKS][DF_MODEL_THREADS];
	size_t nr_tasks, nr_unfinished;
	size_t max_resident; /* maximum number of collectives that ran at once on one rank */
};

/*
 * How to run the program. `pick`, if not NULL, chooses the thread that takes the next step. It is
 * called with the number of threads that may be able to, and returns the index of one of them. If
 * that thread cannot proceed, `pick` is called again. If `pick` is NULL, ranks take turns, and each
 * proceeds as far as it can.
 */
struct df_model_schedule {
	size_t (*pick)(void *arg, size_t nr);
	void *arg;
	/*
	 * If not NULL, threads proceed one step at a time, and this function chooses which task
	 * starts next, or none. It returns a number below nr. So it decides which task gets a slot
	 * if there are too few.
	 */
	size_t (*device)(void *arg, size_t nr);
	/*
	 * If not NULL, hold() returns 1 while this thread must not try its next step. If nothing
	 * else makes progress, let_go() is called. It returns the rank of a thread that was held
	 * and may now proceed, plus 1, or 0 if there is none.
	 */
	int (*hold)(void *arg, int rank, int thread, const struct df_mop *next);
	int (*let_go)(void *arg);
};
/* Runs a program from its beginning until nothing can proceed. Returns 0 or -ENOMEM. */
int df_model_run(const struct df_mprog *p, enum df_model_mode mode,
		 const struct df_model_schedule *schedule, df_model_event_fn fn, void *arg,
		 struct df_model_result *out);

/*
 * As df_model_run(), in parts. A run whose threads were held continues with the next df_mrun_go().
 * A copy of a run can continue in another way. The program must exist longer than the runs.
 */
struct df_mrun;
struct df_mrun *df_mrun_create(const struct df_mprog *p,
			       enum df_model_mode mode); /* returns NULL if memory is short */
struct df_mrun *df_mrun_copy(const struct df_mrun *r);	 /* returns NULL if memory is short */
void df_mrun_destroy(struct df_mrun *r);
/* Runs until nothing can proceed. Returns 0 or -ENOMEM. */
int df_mrun_go(struct df_mrun *r, const struct df_model_schedule *schedule, df_model_event_fn fn,
	       void *arg, struct df_model_result *out);
/* Returns the number of unfinished collectives and messages of a rank. */
size_t df_mrun_open_ops(const struct df_mrun *r, int rank);
/*
 * df_mrun_issued() returns the number of tasks that have been put on streams. df_mrun_is_open()
 * returns whether one of the first `before` of these is unfinished.
 */
int df_mrun_issued(const struct df_mrun *r);
int df_mrun_is_open(const struct df_mrun *r, int before);
/*
 * Calls fn for each unfinished collective and message. `here` is the set of ranks on which the
 * collective has started; it is NULL if it has started on none.
 */
typedef void (*df_mrun_task_fn)(void *arg, int rank, int thread, size_t op, int started,
				const struct df_ranks *here);
void df_mrun_each(const struct df_mrun *r, df_mrun_task_fn fn, void *arg);

/*
 * Returns the first of the modes "OK", "P", "Si", "Se" in which the program finishes, or "D" if
 * there is none.
 */
const char *df_model_classify(const struct df_mprog *p);

/* Appends a step to a thread. Returns 0, -EINVAL if rank or thread is too high, or -ENOMEM. */
int df_mprog_add(struct df_mprog *p, int rank, int thread, const struct df_mop *op);
/* Adds a communicator. Returns its number, or -ENOMEM. */
int df_mprog_comm(struct df_mprog *p, const struct df_ranks *members);
void df_mprog_fini(struct df_mprog *p);

#endif
