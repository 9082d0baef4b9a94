#include "trace/read/live/call_place.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "trace/check.h"
#include "trace/read/reader.h"
#include "trace/read/stacks.h"
#include "trace/record/names.h"

#define FRAMES 3

/* Returns how many bytes the innermost frames have; in a script, those that are lines of it. */
static size_t innermost(const char *stack)
{
	struct df_stack_line line;
	int script = df_stack_line(stack, &line);
	const char *at = stack, *end = stack;

	for (int i = 0; i < FRAMES && at && (!script || df_stack_line(at, &line)); i++) {
		at = strstr(at, DF_STACK_SEP);
		end = at ? at : end + strlen(end);
		at = at ? at + strlen(DF_STACK_SEP) : NULL;
	}
	return (size_t)(end - stack);
}

void df_call_place(const struct df_trace_header *ring, uint64_t serial, char *buf, size_t size)
{
	struct df_stacks stacks = {0};
	struct df_lnote *notes = NULL;
	size_t nr_notes = 0;
	const struct df_rec *rec;
	const char *stack;
	struct df_reader r;
	uint64_t index;
	uint32_t site;
	size_t bytes;
	void *image;

	*buf = '\0';
	if (df_trace_compact(ring, &image, &bytes))
		return;
	if (df_reader_open_image(&r, image, bytes, NULL)) {
		free(image);
		return;
	}
	while ((rec = df_reader_next(&r, &index)))
		if (rec->type == DF_REC_CALL_ENTER && rec->op == serial)
			break;
	if (rec) {
		snprintf(buf, size, "%s", df_call_text((uint32_t)rec->a));
		site = rec->site;
		if (!df_stack_notes(&r, &notes, &nr_notes)) {
			stack = df_stacks_get(&stacks, 0, notes, nr_notes, &r, site);
			if (*stack) {
				size_t n = strlen(buf);

				snprintf(buf + n, size - n, " at %.*s", (int)innermost(stack),
					 stack);
			}
			df_stacks_fini(&stacks);
			free(notes);
		}
	}
	df_reader_close(&r);
	free(image);
}
