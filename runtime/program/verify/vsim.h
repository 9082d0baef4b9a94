/*
 * The engine of the verifier: symbolic execution of one loop, or of two instances (see verify.h). A
 * run owns all of its state. Runs differ in `alias` (in place) and `rounds` (2: two consecutive
 * instances, to find conflicts in scratch). Private to this folder.
 */
#ifndef DF_RUNTIME_PROGRAM_VERIFY_VSIM_H
#define DF_RUNTIME_PROGRAM_VERIFY_VSIM_H

#include "runtime/program/verify/wiring.h"
#include "runtime/program/verify/sym.h"

struct df_vval {
	uint32_t expr;
	uint8_t raw, final;
};

struct df_vaccess {
	uint32_t thread, epoch, next; /* next: 1 + index */
};

struct df_vloc {
	struct df_vval v;
	uint32_t round;
	uint32_t w_thread, w_epoch; /* last write; epoch 0: none */
	uint32_t reads;		    /* 1 + index of the first of its reads since then; 0: none */
};

struct df_vslice {
	uint32_t first, cnt; /* values */
	uint32_t *clock;
	uint32_t sent;
};

struct df_vsim {
	const struct df_verify_in *in;
	const struct df_pgraph *g;
	struct df_sym *sym;
	struct df_verify_out *out;
	struct df_perr *err;
	int alias, set_flags;
	uint32_t rounds;
	uint32_t *base;	     /* by rank: first location; input, output, scratch of one round */
	struct df_vloc *loc; /* of round 0, then of round 1; scratch is in round 0 only */
	uint32_t nr_loc;
	struct df_vslice *slice; /* by round, then number among all slices of a loop */
	struct df_vval *val;
	uint32_t nr_val, cap_val;
	struct df_vaccess *acc;
	uint32_t nr_acc, cap_acc;
	uint32_t *pc;
	uint32_t *comp, nr_comp; /* component of a thread in the clocks; NONE: it has none */
	uint32_t *clock;	 /* nr_threads x nr_comp */
	uint64_t clocks_left;	 /* memory left for the clocks of slices and steps */
	/* By round and instruction: clock when it was done, if another thread needs it. */
	uint32_t **step_clock;
	uint32_t *first_step; /* by thread */
	uint8_t *wanted;      /* by instruction: a dependency refers to it */
	uint32_t nr_steps;
	uint64_t *trace; /* by instruction: hash of the expressions that it moved */
	uint32_t *wait_recv, *dep_head, *dep_next, *ready, *waits_for;
	uint32_t nr_ready, done;
};

/* Initialises and executes. Fails with -EPROTO and *s->err. Call df_vsim_fini() in any case. */
int df_vsim_run(struct df_vsim *s);
void df_vsim_fini(struct df_vsim *s);

/* Fills *s->err for a step of a thread; returns -EPROTO. */
int df_vsim_fail(struct df_vsim *s, uint32_t t, uint32_t step, const char *text);

/* Returns the location of a chunk of a buffer. */
struct df_vloc *df_vsim_locate(struct df_vsim *s, int rank, int buf, uint32_t chunk,
			       uint32_t round);

#endif
