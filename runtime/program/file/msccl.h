/*
 * MSCCL's XML files, both dialects (microsoft/msccl, and RCCL or Azure's executor, which have outofplace,
 * minBytes and maxBytes and spell reducescatter in one word), and our extra attribute `root`.
 *
 * What the file says is taken as MSCCL's runtime would execute it: every operand is local. On import
 *  - nops become dependencies of the step behind them;
 *  - a program written for one buffer (inplace="1") is rewritten so that it is right for two as well: what
 *    still holds the caller's data is read from the input, everything else lives in the output, or in scratch
 *    where the output does not reach. So ranks may differ in whether they call in place.
 */
#ifndef DF_RUNTIME_PROGRAM_FILE_MSCCL_H
#define DF_RUNTIME_PROGRAM_FILE_MSCCL_H

#include <stdio.h>
#include "runtime/program/verify/verify.h"

struct df_msccl_facts {
	int rccl;	    /* dialect */
	int64_t slots_step; /* fewest slots when a step is one transfer; 0 none up to DF_MAX_SLOTS */
	int64_t slots_chunk; /* when every chunk is one */
	uint64_t
		max_bytes; /* largest buffer MSCCL could run it with; 0 no limit, UINT64_MAX never */
	uint32_t total_chunks; /* nchunksperloop */
	uint32_t split;	       /* 1: steps had to be split into single chunks */
};

/*
 * Reads a file in memory. *plan and *expect (known custom collectives; may stay empty) are the caller's.
 * -EPROTO with *err; facts may be NULL.
 */
int df_msccl_parse(const char *text, size_t size, struct df_plan **plan, struct df_expects *expect,
		   struct df_msccl_facts *facts, struct df_perr *err);

/*
 * *err says why the plan was refused: if a step shows the public compiler's known defect, it says that step
 * instead, with what came of it.
 */
void df_msccl_blame(const struct df_plan *plan, struct df_perr *err);

/*
 * Writes a plan. -EOPNOTSUPP with *err where MSCCL cannot express it (a block with two peers in one
 * direction); rccl: that dialect, in_place: the program is right in place too.
 */
int df_msccl_write(FILE *f, const struct df_plan *plan, int rccl, int in_place,
		   struct df_perr *err);

#endif
