/*
 * From files written for one buffer to programs that are right for two: see msccl.h. And the fence that
 * keeps instances which run back to back out of each other's scratch.
 */
#ifndef DF_RUNTIME_PROGRAM_FILE_CANON_H
#define DF_RUNTIME_PROGRAM_FILE_CANON_H

#include "runtime/program/verify/verify.h"

/*
 * Rewrites the plan (progs: the same, finished). Sets buffer sizes to those of the collective.
 * *split (may be NULL): 1 if steps had to be split into single chunks. -EPROTO with *err.
 */
int df_canon(struct df_plan *plan, struct df_program *const *progs, uint32_t *split,
	     struct df_perr *err);

/* The location that an input or output chunk of a rank names in place, in chunks of the larger buffer. */
uint32_t df_canon_unify(enum df_coll_kind kind, uint32_t chunks, int rank, int buf, uint32_t chunk);

/*
 * Blocks that share scratch with others of their rank get a last step that waits until those are done
 * with it, so that no instance begins while the one before still uses the scratch.
 */
int df_canon_fence(struct df_plan *plan);

/*
 * For a plan that is right out of place only, or works in its input: every rank copies its input to scratch first and has it
 * there, so that the program is right in place too and leaves to the caller what is the caller's. Prove it afterwards. -ENOMEM.
 */
int df_canon_stage(struct df_plan *plan);

/* Some step of some rank writes to the input. */
int df_canon_writes_input(const struct df_plan *plan);
/* How many chunks of its input a rank names, those it has by the collective among them. */
uint32_t df_canon_input_reach(const struct df_prank *r);

/*
 * Finishes a plan for use: programs of all ranks, verified, with flags and min_slots, fenced where they
 * need it. *progs is the caller's. -EPROTO with out->err.
 */
int df_plan_prove(struct df_plan *plan, const struct df_expects *expect, struct df_program ***progs,
		  struct df_verify_out *out);

#endif
