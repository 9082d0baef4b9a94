/*
 * Our own readable form of programs, version 1; docs/programs.md has the grammar. A plan that is
 * written and read again is the same plan, hash included.
 */
#ifndef DF_RUNTIME_PROGRAM_FILE_TEXT_H
#define DF_RUNTIME_PROGRAM_FILE_TEXT_H

#include <stdio.h>
#include "runtime/program/verify/verify.h"

#define DF_TEXT_VERSION 1

int df_text_write(FILE *f, const struct df_plan *plan, const struct df_expects *expect);
/*
 * Reads a plan; the caller owns *plan and *expect. Fails with -EPROTO and *err (line and reason).
 */
int df_text_parse(const char *text, size_t size, struct df_plan **plan, struct df_expects *expect,
		  struct df_perr *err);

/* Makes a plan that finishes into these programs of all ranks. NULL: no memory. */
struct df_plan *df_plan_from_programs(struct df_program *const *progs, int nranks,
				      enum df_coll_kind kind, int root);

#endif
