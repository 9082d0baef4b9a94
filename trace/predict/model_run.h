/*
 * A run of the model: its state, and what model.c (hosts, devices, the fixpoint) asks of model_task.c (what is on
 * streams, what is before what). Private to these two; one thread.
 */
#ifndef DF_TRACE_PREDICT_MODEL_RUN_H
#define DF_TRACE_PREDICT_MODEL_RUN_H

#include "trace/predict/model.h"
#include "runtime/base/map.h"

#define NOBODY	 (-1)
#define FINISHED (-2) /* of an event or a stream: what it stands for is over, and forgotten */

struct task {
	int rank, thread, stream;
	int id; /* in order of issue */
	size_t step;
	const struct df_mop *op;
	uint64_t index;	     /* COLL: in its communicator */
	uint64_t *p2p_index; /* P2P: of each message between its two ranks */
	int *deps;
	size_t nr_deps, cap_deps;
	int with; /* P2P: the task of the same group before it, beside which it runs, or NOBODY */
	uint8_t joins; /* and is a part of its kernel */
	uint8_t started, done, coll, legacy, told;
	uint8_t settled; /* and so is everything before it */
	uint32_t stamp;
};

/* A collective by its index, or a message by its index between two ranks: who has started its part. */
struct meeting {
	uint64_t a, b;	   /* its key in run.meetings */
	uint64_t here;	   /* COLL: ranks; P2P: bit 0 its receive, bit 1 its send */
	uint64_t sig;	   /* COLL: of the first that is here */
	uint64_t count[2]; /* P2P */
	uint8_t differs;   /* COLL: not all have one signature */
	uint8_t over;	   /* COLL: 1; P2P: bits as `here` */
};

/* A stream: its last task, and how many tasks on it have not finished. */
struct tail {
	int rank, task;
	size_t nr_open;
};

struct df_mrun {
	const struct df_mprog *p;
	enum df_model_mode mode;
	df_model_event_fn fn;
	void *arg;
	/* In order of issue. In mode BASE what has finished is forgotten from time to time, or a long run would get slow. */
	struct task *tasks;
	size_t nr_tasks, cap_tasks, nr_done, nr_issued;
	struct tail *tails;
	size_t nr_tails, cap_tails;
	struct meeting *meets;
	size_t nr_meets, cap_meets;
	struct df_map streams;	/* (rank, stream): number of its tail, plus one */
	struct df_map events;	/* (rank, event): task of its last record, plus BIAS */
	struct df_map seqs;	/* how many there have been of what has an index */
	struct df_map meetings; /* number of the meeting, plus one */
	struct {
		int kind, object;
		uint64_t here;
	} * bars;
	size_t nr_bars, cap_bars;
	uint8_t *flags;
	size_t nr_flags, cap_flags;
	int legacy[DF_MODEL_RANKS], last[DF_MODEL_RANKS];
	size_t nr_open[DF_MODEL_RANKS];	    /* unfinished tasks */
	size_t nr_resident[DF_MODEL_RANKS]; /* collectives that run */
	uint64_t dead;
	size_t pc[DF_MODEL_RANKS][DF_MODEL_THREADS];
	uint8_t entered[DF_MODEL_RANKS][DF_MODEL_THREADS];
	uint32_t stamp;
	size_t max_resident;
	int failed;
};

#define BIAS 8 /* so that a value of run.events is never 0 */

void df_mrun_tell(struct df_mrun *r, enum df_model_event ev, int rank, int thread, size_t op,
		  const struct df_mop *m, int task);
/* Puts a thing on its stream. */
void df_mrun_make(struct df_mrun *r, int rank, int thread, size_t step, const struct df_mop *op);
/* The task of the last record of an event, or NOBODY. */
int df_mrun_event(struct df_mrun *r, int rank, int event);
/* Nothing that is before it keeps it, in this mode. */
int df_mrun_ready(struct df_mrun *r, struct task *t);
/* The meeting of a collective, or of a task's message; NULL: no memory. */
struct meeting *df_mrun_meet(struct df_mrun *r, const struct task *t, int message);
/* Forgets what has finished. Mode BASE. */
void df_mrun_forget(struct df_mrun *r);
/* Only collectives, or what is queued behind them, are unfinished on this rank. */
int df_mrun_only_collectives(struct df_mrun *r, int rank);

#endif
