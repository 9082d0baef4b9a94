/*
 * The call stacks of call sites, as the tools show them: read from a trace once for each site, however many operations
 * come from there.
 */
#ifndef DF_TRACE_READ_STACKS_H
#define DF_TRACE_READ_STACKS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include "trace/read/load.h"
#include "trace/read/reader.h"

/* Between the frames of a stack, innermost first. */
#define DF_STACK_SEP " <- "

/*
 * "module!function+0x12 <- ...", without the modules' folders, of at most `max` frames; printable text only. How many;
 * 0, and "" in buf: none are known, as of a site that the ring has lost.
 */
unsigned df_stack_text(const struct df_lnote *notes, size_t nr_notes, const struct df_reader *r,
		       uint32_t site, unsigned max, char *buf, size_t size);

/* A frame "file:line function" of a script, as recorded, or "file:line!function", as imported. */
struct df_stack_line {
	const char *name;
	int file_bytes, name_bytes, line;
};

/* 1: the first frame of the text is one; what is found refers to the text. */
int df_stack_line(const char *text, struct df_stack_line *line);

/* The SITE records of a trace, in malloc'ed memory, for a reader that is rewound then. 0 or -ENOMEM. */
int df_stack_notes(struct df_reader *r, struct df_lnote **notes, size_t *nr_notes);

/* The stacks that were asked for; {0} is empty. Not for several threads at once. */
struct df_stacks {
	struct df_stack *all;
};

/* Valid until df_stacks_fini(); "" if none is known. trace: any number that tells traces apart. */
const char *df_stacks_get(struct df_stacks *stacks, uint32_t trace, const struct df_lnote *notes,
			  size_t nr_notes, const struct df_reader *r, uint32_t site);
/* What df_stacks_get() has found before, without a reader; NULL: it was not asked for. */
const char *df_stacks_find(const struct df_stacks *stacks, uint32_t trace, uint32_t site);
void df_stacks_fini(struct df_stacks *stacks);

#endif
