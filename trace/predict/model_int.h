/*
 * The state of a run of the model, and the functions of model_task.c (tasks on streams, and their
 * order) that model.c (threads, devices, the fixpoint) uses. Private to these two; one thread.
 */
#ifndef DF_TRACE_PREDICT_MODEL_INT_H
#define DF_TRACE_PREDICT_MODEL_INT_H

#include "trace/predict/model.h"
#include "runtime/base/map.h"

#define NOBODY	 (-1)
#define FINISHED (-2) /* for an event or a stream: the task has finished and was forgotten */

struct task {
	int rank, thread, stream;
	int id;	  /* number in the order of issue */
	int next; /* the next task of the rank; negative if there is none */
	size_t step;
	const struct df_mop *op;
	uint64_t index;	     /* for COLL: its number in its communicator */
	uint64_t *p2p_index; /* for P2P: number of each message between its two ranks */
	int *deps;
	size_t nr_deps, cap_deps;
	/* for mode LANES: the preceding operations on its communicators that are not among deps */
	int *after;
	size_t nr_after, cap_after;
	/*
	 * For P2P: the preceding task of the same group, with which this task runs; negative if
	 * there is none.
	 */
	int with;
	uint8_t joins;		       /* whether the task is part of the preceding task's kernel */
	uint8_t started, done, legacy; /* `legacy`: it is work on the legacy stream */
	uint8_t coll;		       /* the task is COLL or P2P */
	uint8_t told;		       /* whether DF_ME_NO_SLOT was reported */
	uint8_t settled;	       /* whether the task and all its predecessors have finished */
	uint32_t stamp;
};

/* A collective, or a message between two ranks, and which of its parts have started. */
struct meeting {
	uint64_t a, b;	      /* key in df_mrun.meetings */
	struct df_ranks here; /* for COLL: ranks whose part has started */
	uint8_t any;	      /* for COLL: whether any rank's part has started */
	uint8_t sides;	      /* for P2P: bit 0 is the receive, bit 1 the send */
	uint64_t sig;	      /* for COLL: signature of the first part */
	uint64_t count[2];    /* for P2P: sizes of both ends */
	uint8_t differs;      /* for COLL: whether signatures differ */
	uint8_t over;	      /* for COLL: 1 when finished; for P2P: bits as in `sides` */
};

/*
 * The last task of a stream or communicator of a rank and, for a stream, the number of its
 * unfinished tasks.
 */
struct tail {
	int rank, task;
	size_t nr_open;
};

struct df_mrun {
	const struct df_mprog *p;
	enum df_model_mode mode;
	df_model_event_fn fn;
	void *arg;
	/*
	 * In order of issue. Modes BASE and LANES forget settled tasks from time to time, because a
	 * long run would become slow otherwise.
	 */
	struct task *tasks;
	size_t nr_tasks, cap_tasks, nr_done, nr_issued;
	struct tail *tails;
	size_t nr_tails, cap_tails;
	struct meeting *meets;
	size_t nr_meets, cap_meets;
	struct df_map streams;	/* (rank, stream or communicator) -> number of its tail, plus 1 */
	struct df_map events;	/* (rank, event) -> task of its last record, plus BIAS */
	struct df_map seqs;	/* next numbers of collectives and messages */
	struct df_map meetings; /* key of a meeting -> number of the meeting, plus 1 */
	struct {
		int kind, object;
		struct df_ranks here;
	} * bars;
	size_t nr_bars, cap_bars;
	/*
	 * 0: no rank waits for the flag. n > 0: rank n - 1 waits. ALL: several ranks wait. SET: the
	 * flag is set.
	 */
	int *flags;
	size_t nr_flags, cap_flags;
	/*
	 * The ranks to be tried again. threads_due: their threads. starts_due: their tasks that
	 * have not started. colls_due and messages_due: their collectives and messages that all
	 * participants have started.
	 */
	struct df_ranks threads_due, starts_due, colls_due, messages_due;
	int first_task[DF_MODEL_RANKS], last_task[DF_MODEL_RANKS]; /* negative if there is none */
	/*
	 * The last task on the legacy stream, and on any other stream. Negative if there is
	 * none.
	 */
	int legacy[DF_MODEL_RANKS], last[DF_MODEL_RANKS];
	size_t nr_open[DF_MODEL_RANKS];	    /* number of unfinished tasks */
	size_t nr_open_ops[DF_MODEL_RANKS]; /* collectives and messages among them */
	size_t nr_resident[DF_MODEL_RANKS]; /* number of running collectives */
	struct df_ranks dead;
	/* By rank. */
	size_t (*pc)[DF_MODEL_THREADS];
	uint8_t (*entered)[DF_MODEL_THREADS];
	/* For run_threads_in_order(): the threads that may proceed, and whether each is listed. */
	int (*choice)[2]; /* rank and thread */
	uint8_t (*listed)[DF_MODEL_THREADS];
	uint32_t stamp;
	size_t max_resident;
	int failed;
};

/* Values of df_mrun.flags other than ranks. */
#define ALL (-1)
#define SET (-2)

#define BIAS 8 /* makes all values of df_mrun.events positive */

void df_mrun_tell(struct df_mrun *r, enum df_model_event ev, int rank, int thread, size_t op,
		  const struct df_mop *m, int task);
/* Puts a task on its stream. */
void df_mrun_make(struct df_mrun *r, int rank, int thread, size_t step, const struct df_mop *op);
/* Returns the task of an event's last record. Negative if there is none. */
int df_mrun_event(struct df_mrun *r, int rank, int event);
/* Whether the task's predecessors let it start in the run's mode. */
int df_mrun_ready(struct df_mrun *r, struct task *t);
/* Returns the meeting of a collective, or of a task's message. Returns NULL if memory is short. */
struct meeting *df_mrun_meet(struct df_mrun *r, const struct task *t, int message);
/* Forgets settled tasks. */
void df_mrun_forget(struct df_mrun *r);
/*
 * Whether each unfinished task of this rank is a collective or message, or waits for one. In mode
 * LANES: whether each is a collective, a message, or a record of or a wait for an event.
 */
int df_mrun_only_collectives(struct df_mrun *r, int rank);

#endif
