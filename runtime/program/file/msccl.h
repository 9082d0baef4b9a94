/*
 * MSCCL's XML files in both dialects (microsoft/msccl; and RCCL's or Azure's executor, which have
 * outofplace, minBytes and maxBytes and spell reducescatter in one word), and our additional
 * attribute `root`.
 *
 * The file means what MSCCL's runtime would execute: every operand is local. On import
 *   - nops become dependencies of the step after them;
 *   - a program written for one buffer (inplace="1") is rewritten to be right for two as well. The
 *     caller's data is read from the input; all else is in the output, or in scratch where the
 *     output does not reach. So some ranks may call in place and others not.
 */
#ifndef DF_RUNTIME_PROGRAM_FILE_MSCCL_H
#define DF_RUNTIME_PROGRAM_FILE_MSCCL_H

#include <stdio.h>
#include "runtime/program/verify/verify.h"

struct df_msccl_facts {
	int rccl; /* dialect */
	/* Fewest slots if a step is one transfer; 0: none up to DF_MAX_SLOTS. */
	int64_t slots_step;
	int64_t slots_chunk; /* the same if every chunk is one transfer */
	/* Largest buffer with which MSCCL could run it; 0: any; UINT64_MAX: it cannot run it. */
	uint64_t max_bytes;
	uint32_t total_chunks; /* nchunksperloop */
	uint32_t split;	       /* steps had to be split into single chunks */
};

/*
 * Reads a file in memory. The caller owns *plan and *expect (for known custom collectives; may stay
 * empty). Fails with -EPROTO and *err. facts may be NULL.
 */
int df_msccl_parse(const char *text, size_t size, struct df_plan **plan, struct df_expects *expect,
		   struct df_msccl_facts *facts, struct df_perr *err);

/*
 * *err says why the plan was refused. If a step shows the known defect of the public compiler, *err
 * names that step and its consequence instead.
 */
void df_msccl_blame(const struct df_plan *plan, struct df_perr *err);

/*
 * Writes a plan. rccl: in that dialect. in_place: the program is right in place too. Fails with
 * -EOPNOTSUPP and *err if MSCCL cannot express it (a block with two peers in one direction).
 */
int df_msccl_write(FILE *f, const struct df_plan *plan, int rccl, int in_place,
		   struct df_perr *err);

#endif
