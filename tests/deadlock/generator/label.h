/*
 * Translates a script (script.h) into a program of the model (trace/predict/model.h), and makes the
 * schedules by which the model runs it.
 */
#ifndef DEADLOCK_LABEL_H
#define DEADLOCK_LABEL_H

#include "tests/deadlock/interpreter/script.h"
#include "trace/predict/model.h"

#define SLOT_KB 64 /* DFSHIM_SLOT_KB for all programs */
/* elements of a large message, which does not fit into a connector's eight slots */
#define LARGE	      UNBUFFERED
#define UNBUFFERED    140000 /* elements from which on a message does not fit there */
#define MODEL_STEPS   256
#define MODEL_THREADS 2

/* For each operation of the model, the number of the script's step. */
struct model_map {
	int step[DF_MODEL_RANKS][MODEL_THREADS][MODEL_STEPS], nr[DF_MODEL_RANKS][MODEL_THREADS];
};

/*
 * The model matches collectives by communicator. For dfshim's matching each signature of a
 * communicator becomes a communicator `number` of its own.
 */
struct sigs {
	struct {
		int comm;
		uint64_t sig;
		int number;
	} v[128];
	int nr;
};

/* State of a random schedule. A program whose end depends on timing runs by several schedules. */
struct dice {
	uint64_t state;
	/* ranks whose thread starts only when no other thread can move */
	uint64_t held[MODEL_THREADS];
};

void model_add(struct df_mprog *p, int r, int t, const struct df_mop *op);

/*
 * Translates `s` into `p`. With `ours` collectives match by signature. Otherwise they match by
 * their order of issue in the communicator, and NCCL executes them in that order over all streams.
 * The model has no such order, so each operation records an event, and the next operation of the
 * communicator on another stream waits for this event. `map` may be null.
 */
void to_model_mapped(const struct script *s, int ours, struct df_mprog *p, struct model_map *map);

void to_model(const struct script *s, int ours, struct df_mprog *p);

/*
 * Returns the i-th schedule. `d` must live as long as the schedule. In schedules with odd `i` one
 * thread of each rank starts only when nothing else can move. It is the same thread on all ranks or
 * on most, because random choices alone seldom let a thread finish before another begins.
 */
struct df_model_schedule dice_schedule(struct dice *d, int i, int nr_ranks);

#endif
