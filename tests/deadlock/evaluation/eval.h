/*
 * The evaluation of the checker (eval.c). eval_jobs.c makes the jobs. eval_label.c derives the
 * right classes of a hang: from the program alone, and from executions.
 */
#ifndef DEADLOCK_EVAL_H
#define DEADLOCK_EVAL_H

#include "tests/deadlock/generator/drive.h"
#include "tests/deadlock/generator/label.h"
#include "runtime/base/rng.h"
#include "trace/check.h"

#define EV_RANKS 8
#define EV_BIG	 UNBUFFERED

enum ev_unit_kind { EU_COLL, EU_P2P, EU_JOIN, EU_WORK, EU_SSYNC, EU_DSYNC, EU_ISYNC };

struct ev_unit {
	enum ev_unit_kind kind;
	int site, comm, coll, stream, blocking, grouped, nr;
	uint64_t n;
	struct {
		int send, peer;
		uint64_t n;
	} m[8];
};

enum ev_change {
	EV_NONE,
	/* exchange two units of different communicators, on one rank or on every second rank */
	EV_SWAP,
	EV_SWAP_SAME, /* exchange two units of one communicator, on one rank */
	EV_SWAP_SYNC, /* as EV_SWAP, and synchronise the device between the two on all ranks */
	EV_SWAP_ALL,  /* exchange two units on all ranks; no hang */
	EV_DROP,
	EV_REPEAT,
	EV_COUNT,
	EV_KIND,
	EV_STOP, /* a rank's program ends early */
	EV_UNGROUP,
	EV_SYNC, /* three synchronisations on one rank; no hang */
	EV_NR
};

#define EV_MODELS      5
#define EV_COLLECTIVES 5

struct ev_job {
	struct script s;
	struct df_rng rng;
	struct ev_unit *u[EV_RANKS];
	int nr[EV_RANKS], ranks, tp, dp, site;
	/* -1 if the rank has none; in the composed collectives inside a node and across nodes */
	int tp_comm[EV_RANKS], dp_comm[EV_RANKS];
	int tp_stream, dp_stream, world_stream;
	uint64_t message;
	enum ev_change change;
};

enum et_phase { ET_STAND, ET_ROOMY, ET_OURS, ET_RELEASED, ET_NR };

struct et_truth {
	int completes[ET_NR];
	int at[EV_RANKS]; /* the step of each rank's thread */
	int known;	  /* whether `at` was read */
};

extern const char *const ev_changes[EV_NR], *const ev_shapes[];

/*
 * Makes job `number` of a shape. The number of ranks is 2, 4, 6 and 8 in turn. About a fifth of the
 * jobs is unchanged.
 */
void ev_make(struct ev_job *j, int shape, int number, uint64_t seed);

void ev_free(struct ev_job *j);

uint64_t ec_bit(enum df_verdict v);

/* Returns the set of verdicts that are right for a program; DF_V_OK alone if it does not hang. */
uint64_t ec_class(const struct script *s);

void et_read(struct et_truth *t, const char *log);

/* Whether the threads' steps alone decide the class, so that no further execution is needed. */
int et_is_decided(const struct script *s, const struct et_truth *t);

enum df_verdict et_label(const struct script *s, const struct et_truth *t);

#endif
