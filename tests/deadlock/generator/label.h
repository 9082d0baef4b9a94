/*
 * A script (script.h) as a program of the model (trace/predict/model.h), which says how it ends.
 */
#ifndef DEADLOCK_LABEL_H
#define DEADLOCK_LABEL_H

#include "tests/deadlock/interpreter/script.h"
#include "trace/predict/model.h"

#define SLOT_KB	      64	 /* DFSHIM_SLOT_KB for all programs */
#define LARGE	      UNBUFFERED /* elements: more than the eight slots of a connector buffer */
#define UNBUFFERED    140000	 /* as much as that is not */
#define MODEL_STEPS   256
#define MODEL_THREADS 2

/* The script's steps that the model's are made of. */
struct model_map {
	int step[DF_MODEL_RANKS][MODEL_THREADS][MODEL_STEPS], nr[DF_MODEL_RANKS][MODEL_THREADS];
};

/* A set of ranks for each signature of a communicator: what our matching makes of it. */
struct sigs {
	struct {
		int comm;
		uint64_t sig;
		int number;
	} v[128];
	int nr;
};

/* The schedules by which a program is run where its end is a matter of time. */
struct dice {
	uint64_t state;
	uint64_t held[MODEL_THREADS]; /* ranks whose thread sets out only when all else stands */
};

void model_add(struct df_mprog *p, int r, int t, const struct df_mop *op);

/*
 * ours: collectives match by signature. Otherwise by their order of issue in the communicator,
 * which is also an order over streams: it is written as an event that each operation records, and
 * the next on another stream waits for.
 */
void to_model_mapped(const struct script *s, int ours, struct df_mprog *p, struct model_map *map);

void to_model(const struct script *s, int ours, struct df_mprog *p);

/*
 * The i-th of them. In every other one the steps of a rank's threads are not mixed by chance:
 * threads start one after the other, and one is often through before the next begins, on all ranks
 * or on most.
 */
struct df_model_schedule dice_schedule(struct dice *d, int i, int nr_ranks);

#endif
