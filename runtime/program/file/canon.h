/*
 * Rewrites files that were written for one buffer into programs that are right for two (see
 * msccl.h). Adds the fence that keeps instances that run back to back from using the same scratch
 * at the same time.
 */
#ifndef DF_RUNTIME_PROGRAM_FILE_CANON_H
#define DF_RUNTIME_PROGRAM_FILE_CANON_H

#include "runtime/program/verify/verify.h"

/*
 * Rewrites the plan (progs: the same, finished). Sets buffer sizes to those of the collective.
 * *split (may be NULL): whether steps had to be split into single chunks. Fails with -EPROTO and
 * *err.
 */
int df_canon(struct df_plan *plan, struct df_program *const *progs, uint32_t *split,
	     struct df_perr *err);

/*
 * Returns the location that an input or output chunk of a rank names in place, in chunks of the
 * larger buffer.
 */
uint32_t df_canon_unify(enum df_coll_kind kind, uint32_t chunks, int rank, int buf, uint32_t chunk);

/*
 * For a plan that is right only out of place, or that writes its input: every rank first copies its
 * input to scratch and works there. The program is then right in place too and does not change the
 * caller's input. Prove it afterwards. Fails with -ENOMEM.
 */
int df_canon_stage(struct df_plan *plan);

/* Whether a step of any rank writes to the input. */
int df_canon_writes_input(const struct df_plan *plan);
/* Returns the number of input chunks that a rank names or that the collective gives it. */
uint32_t df_canon_input_reach(const struct df_prank *r);

/*
 * Finishes a plan for use: programs of all ranks, verified, with flags and min_slots, fenced where
 * needed. The caller owns *progs. Fails with -EPROTO and out->err.
 */
int df_plan_prove(struct df_plan *plan, const struct df_expects *expect, struct df_program ***progs,
		  struct df_verify_out *out);

#endif
