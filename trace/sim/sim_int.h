/*
 * Inside the simulator: the layout of an independent part of a workload, the random program of its
 * GPUs, and the engines that decide whether a round of it deadlocks.
 *
 * A `part` is a connected component of the workload, for example a pipeline stage. Parts share no
 * collective, so a round deadlocks exactly when one of its parts does. Equal parts share one
 * object. Collectives are numbered in dispatch order, so every GPU's expected list is ascending.
 * All GPUs agree on this total order, and the proofs of the short cuts depend on that.
 *
 * A `program` is all that is random in a round of a part: for each GPU the turns that do not issue
 * the first of its remaining collectives. The turns of a GPU depend only on its own draws, not on
 * timing.
 *
 * Parts are read-only once built and shared by all threads; programs and engines belong to one.
 */
#ifndef DF_TRACE_SIM_SIM_INT_H
#define DF_TRACE_SIM_SIM_INT_H

#include "trace/sim/sim_rng.h"
#include "trace/sim/sim.h"

/* Limits, so that every index fits an int. */
#define DF_SIM_MAX_GPUS	  1000000
#define DF_SIM_MAX_EVENTS 400000000

struct df_sim_part {
	int nr_gpus, nr_groups, nr_colls;
	int nr_events;	  /* pairs (GPU, collective) */
	int *list_start;  /* nr_gpus + 1: GPU g expects list[list_start[g]..list_start[g+1]-1] */
	int *list;	  /* collectives, ascending for each GPU */
	int *group_start; /* nr_groups + 1 */
	int *members;	  /* GPUs, ascending in each group */
	int *coll_group;  /* by collective */
	/* by collective: at[at_start[c] + i] is the position of c in member i's list */
	int *at_start;
	int *at;
};

struct df_sim_system {
	int nr_parts; /* number of parts in a round */
	int *part_of; /* nr_parts: index into parts */
	int nr_kinds; /* different parts */
	struct df_sim_part *parts;
};

/*
 * If `split`, makes one part of each connected component of the workload, else one part of the
 * whole workload. Fails with -ENOMEM.
 */
int df_sim_system_init(struct df_sim_system *sys, const struct df_sim_workload *load,
		       enum df_sim_dispatch dispatch, int split);
void df_sim_system_fini(struct df_sim_system *sys);

static inline int df_sim_list_len(const struct df_sim_part *p, int gpu)
{
	return p->list_start[gpu + 1] - p->list_start[gpu];
}

/* Returns how many of the n ascending numbers are below `limit`. */
static inline int df_sim_nr_below(const int *v, int n, int limit)
{
	int lo = 0, hi = n;

	while (lo < hi) {
		int mid = lo + (hi - lo) / 2;

		if (v[mid] < limit)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static inline int df_sim_group_size(const struct df_sim_part *p, int group)
{
	return p->group_start[group + 1] - p->group_start[group];
}

/* -- programs ---------------------------------------------------------------------------------- */

/*
 * The meaning of df_sim_rare's `skip`. A value > 0: the GPU passes over that number of its
 * remaining collectives and issues the next one. DF_SIM_SYNC_CALM: the GPU synchronises and has no
 * collective passed over. DF_SIM_SYNC_DANGER: the GPU synchronises and has one passed over; only
 * such synchronisations can close a cycle.
 */
#define DF_SIM_SYNC_CALM   0
#define DF_SIM_SYNC_DANGER (-1)

struct df_sim_rare {
	int turn; /* index of the turn among the GPU's turns, from 0 */
	int skip;
};

struct df_sim_program {
	struct df_sim_rare *rare;
	int nr_rare, size;
	int *start; /* nr_gpus + 1 */
	int nr_disorder, nr_sync, nr_danger;
};

struct df_sim_odds {
	double disorder, sync;
	double log_q;	     /* log(1 - P(a turn is rare)) */
	double log_disorder; /* log(disorder) */
	double sync_share;   /* P(sync | rare) */
};

void df_sim_odds_init(struct df_sim_odds *odds, double disorder, double sync);
int df_sim_program_init(struct df_sim_program *prog, const struct df_sim_part *part);
void df_sim_program_fini(struct df_sim_program *prog);

/*
 * Draws the program of a round. Fails with -ENOMEM, or with -E2BIG if a GPU would take more than
 * 2^30 turns.
 */
int df_sim_program_draw(struct df_sim_program *prog, const struct df_sim_part *part,
			const struct df_sim_odds *odds, struct df_rng *rng);

/*
 * An excursion is a maximal stretch of a GPU's expected list that the GPU issues in another order:
 * it issues positions first..first+nr-1 as order[0..nr-1].
 */
struct df_sim_excursion {
	int gpu, first, nr;
	const int *order; /* collectives */
};

struct df_sim_excursions {
	struct df_sim_excursion *v;
	int nr, size;
	int *order; /* storage of nr_events numbers for the `order` of all excursions */
	int *skipped;
};

int df_sim_excursions_init(struct df_sim_excursions *ex, const struct df_sim_part *part);
void df_sim_excursions_fini(struct df_sim_excursions *ex);
/* Finds the excursions of all GPUs, in the order of GPU and position. Fails with -ENOMEM. */
int df_sim_excursions_find(struct df_sim_excursions *ex, const struct df_sim_part *part,
			   const struct df_sim_program *prog);

/* -- engines ----------------------------------------------------------------------------------- */

struct df_sim_outcome {
	int deadlock;
	int64_t releases;
};

/* How a round is decided. This follows from model, semantics, rules and resource_limit. */
enum df_sim_method {
	/* Single model, artifact semantics: by the current collective of each group */
	DF_SIM_BY_GROUP_STATE,
	DF_SIM_BY_GROUP_ORDER, /* Single model, exact semantics: by a queue per GPU and group */
	/*
	 * Fifo semantics, or exact semantics with a limit: `slots` collectives execute, the rest
	 * queue.
	 */
	DF_SIM_BY_SLOTS,
	DF_SIM_BY_INTERSECTION, /* Sync model, artifact semantics */
	DF_SIM_BY_CYCLE,	/* Sync model, exact semantics; also all of dfshim's rules */
};

struct df_sim_setup {
	enum df_sim_method method;
	int slots; /* for DF_SIM_BY_SLOTS */
	int limit; /* for DF_SIM_BY_INTERSECTION: resource_limit; 0 means no limit */
	/*
	 * Turns may be synchronisations. In the published order each turn then takes one more
	 * draw.
	 */
	int with_sync;
	int release; /* for DF_SIM_BY_CYCLE: the synchronisation that closes a cycle returns */
	struct df_sim_odds odds;
};

void df_sim_setup_init(struct df_sim_setup *setup, const struct df_sim_config *cfg);

/*
 * The event-by-event engine. All other engines are checked against it. df_sim_plain_create()
 * returns NULL if memory is short.
 */
struct df_sim_plain;
struct df_sim_plain *df_sim_plain_create(const struct df_sim_part *part);
void df_sim_plain_destroy(struct df_sim_plain *pl);

/*
 * Runs one round. Takes the random draws from `prog`. If `prog` is NULL, takes them from `mt`, in
 * the order of the published program.
 */
void df_sim_plain_round(struct df_sim_plain *pl, const struct df_sim_setup *setup,
			const struct df_sim_program *prog, struct df_mt *mt,
			struct df_sim_outcome *out);

/*
 * An engine for the synchronisation model that skips ordinary turns. It visits only rare turns,
 * suspended GPUs, and turns that issue passed-over collectives. It serves the methods
 * BY_INTERSECTION (without a limit) and BY_CYCLE. Its outcome equals the plain engine's for the
 * same program. df_sim_sparse_create() returns NULL if memory is short.
 */
struct df_sim_sparse;
struct df_sim_sparse *df_sim_sparse_create(const struct df_sim_part *part);
void df_sim_sparse_destroy(struct df_sim_sparse *sp);
void df_sim_sparse_round(struct df_sim_sparse *sp, const struct df_sim_setup *setup,
			 const struct df_sim_program *prog, struct df_sim_outcome *out);

/*
 * An engine for the single-queue models that looks only at excursions and what is near them.
 * df_sim_order_create() returns NULL if memory is short. The other functions return 1 for a
 * deadlock, 0 for none, or -ENOMEM.
 */
struct df_sim_order;
struct df_sim_order *df_sim_order_create(const struct df_sim_part *part);
void df_sim_order_destroy(struct df_sim_order *od);
int df_sim_order_fifo(struct df_sim_order *od, const struct df_sim_program *prog);
int df_sim_order_groups(struct df_sim_order *od, const struct df_sim_program *prog);

#endif
