/*
 * A run of the model: its state, and what model.c (hosts, devices, the fixpoint) asks of model_task.c (what is on
 * streams, what is before what). Private to these two; one thread.
 */
#ifndef DF_TRACE_PREDICT_MODEL_RUN_H
#define DF_TRACE_PREDICT_MODEL_RUN_H

#include "trace/predict/model.h"

#define NOBODY (-1)

struct task {
	int rank, thread, stream;
	size_t step;
	const struct df_mop *op;
	uint64_t index; /* COLL: in its communicator */
	uint64_t p2p_index[DF_MOP_MAX_P2P];
	int *deps;
	size_t nr_deps, cap_deps;
	uint8_t started, done, coll, legacy, told;
	uint8_t settled; /* and so is everything before it */
	uint32_t stamp;
};

struct run {
	const struct df_mprog *p;
	enum df_model_mode mode;
	df_model_event_fn fn;
	void *arg;
	struct task *tasks;
	size_t nr_tasks, cap_tasks;
	struct {
		int rank, stream, task;
	} * tails;
	size_t nr_tails, cap_tails;
	struct {
		int rank, event, task;
	} * events;
	size_t nr_events, cap_events;
	struct {
		uint64_t a, b;
		uint64_t nr;
	} * seqs;
	size_t nr_seqs, cap_seqs;
	struct {
		int kind, object;
		uint64_t here;
	} * bars;
	size_t nr_bars, cap_bars;
	int *flags;
	size_t nr_flags, cap_flags;
	int legacy[DF_MODEL_RANKS], last[DF_MODEL_RANKS];
	uint64_t dead;
	size_t pc[DF_MODEL_RANKS][DF_MODEL_THREADS];
	uint8_t entered[DF_MODEL_RANKS][DF_MODEL_THREADS];
	uint32_t stamp;
	size_t max_resident;
	int failed;
};

void df_mrun_tell(struct run *r, enum df_model_event ev, int rank, int thread, size_t op,
		  const struct df_mop *m, int task);
/* Puts a thing on its stream. */
void df_mrun_make(struct run *r, int rank, int thread, size_t step, const struct df_mop *op);
/* The task of the last record of an event, or NOBODY. */
int df_mrun_event(struct run *r, int rank, int event);
/* Nothing that is before it keeps it, in this mode. */
int df_mrun_ready(struct run *r, struct task *t);
/* Collectives that run on this rank. */
size_t df_mrun_resident(const struct run *r, int rank);
/* Only collectives, or what is queued behind them, are unfinished on this rank. */
int df_mrun_only_collectives(struct run *r, int rank);

#endif
