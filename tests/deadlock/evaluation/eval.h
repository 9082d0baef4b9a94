/*
 * The evaluation of the checker (eval.c): its jobs, which eval_jobs.c makes, and what each hangs
 * of, which eval_label.c says: from the program alone, and from executions.
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
	EV_SWAP,      /* two units of different communicators, on one rank or every second */
	EV_SWAP_SAME, /* two of one communicator */
	EV_SWAP_SYNC, /* with a synchronisation of the device between them on all ranks */
	EV_SWAP_ALL,  /* on all ranks: no harm */
	EV_DROP,
	EV_REPEAT,
	EV_COUNT,
	EV_KIND,
	EV_STOP, /* a rank's program ends early */
	EV_UNGROUP,
	EV_SYNC, /* synchronisations on one rank: no harm */
	EV_NR
};

#define EV_MODELS      5
#define EV_COLLECTIVES 5

struct ev_job {
	struct script s;
	struct df_rng rng;
	struct ev_unit *u[EV_RANKS];
	int nr[EV_RANKS], ranks, tp, dp, site;
	int tp_comm[EV_RANKS], dp_comm[EV_RANKS]; /* -1 none; hierarchies: node and across */
	int tp_stream, dp_stream, world_stream;
	uint64_t message;
	enum ev_change change;
};

enum et_phase { ET_STAND, ET_ROOMY, ET_OURS, ET_RELEASED, ET_NR };

struct et_truth {
	int completes[ET_NR];
	int at[EV_RANKS]; /* the step of each rank's host */
	int known;	  /* they have been said */
};

extern const char *const ev_changes[EV_NR], *const ev_shapes[];

/* Number `number` of a shape: group sizes 2, 4, 6 and 8 in turn; a fifth is left unchanged. */
void ev_make(struct ev_job *j, int shape, int number, uint64_t seed);

void ev_free(struct ev_job *j);

uint64_t ec_bit(enum df_verdict v);

/* A set of verdicts; that of OK alone if it does not hang. */
uint64_t ec_class(const struct script *s);

void et_read(struct et_truth *t, const char *log);

/* The places of the threads say it already. */
int et_is_decided(const struct script *s, const struct et_truth *t);

enum df_verdict et_label(const struct script *s, const struct et_truth *t);

#endif
