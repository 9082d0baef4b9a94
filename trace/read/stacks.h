/*
 * The call stacks of call sites, as the tools show them: read from a trace once per site, for any
 * number of operations.
 */
#ifndef DF_TRACE_READ_STACKS_H
#define DF_TRACE_READ_STACKS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include "trace/read/load.h"
#include "trace/read/reader.h"
#include "trace/record/site.h"

/* A frame of a script: "file:line function" as recorded, or "file:line!function" as imported. */
struct df_stack_line {
	const char *name;
	int file_bytes, name_bytes, line;
};

/* Whether the text begins with such a frame. The result refers to the text. */
int df_stack_line(const char *text, struct df_stack_line *line);

/*
 * Collects the SITE records of a trace, in memory from malloc(), and rewinds the reader. Returns 0
 * or -ENOMEM.
 */
int df_stack_notes(struct df_reader *r, struct df_lnote **notes, size_t *nr_notes);

/*
 * Writes frame number `nr` (0: innermost) of a call site as recorded: a script's line with the
 * whole path of its file. Returns 0 if it is unknown.
 */
int df_stack_frame(const struct df_lnote *notes, size_t nr_notes, const struct df_reader *r,
		   uint32_t site, uint64_t nr, char *buf, size_t size);

/* The stacks that were requested; {0} is empty. One thread at a time. */
struct df_stacks {
	struct df_stack *all;
};

/*
 * Returns the frames of a site; "" if unknown. Valid until df_stacks_fini(). trace: any number that
 * identifies the trace.
 */
const char *df_stacks_get(struct df_stacks *stacks, uint32_t trace, const struct df_lnote *notes,
			  size_t nr_notes, const struct df_reader *r, uint32_t site);
/* Returns an earlier result of df_stacks_get(), without a reader. NULL if there is none. */
const char *df_stacks_find(const struct df_stacks *stacks, uint32_t trace, uint32_t site);
void df_stacks_fini(struct df_stacks *stacks);

#endif
