/*
 * Python source: any bytes are divided into statements, and what follows a statement is a statement
 * of its function, or the function's end.
 */
#include <stdlib.h>
#include <string.h>

#include "trace/say/source.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_flow(struct df_source *s, uint32_t function)
{
	uint32_t first = function == DF_SOURCE_NONE ? 0 : function + 1,
		 end = df_source_end(s, function);

	df_source_flow(s, function, end);
	for (uint32_t i = first; i < end; i++) {
		const struct df_stmt *x = &s->stmts[i];
		uint32_t to[] = {x->next[0], x->next[1], x->handler};

		if (x->text < s->text || x->last < x->first)
			abort();
		for (int k = 0; k < 3; k++)
			if (to[k] != DF_SOURCE_NONE && (to[k] < first || to[k] > end))
				abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);
	struct df_source s;
	uint32_t at;

	if (!text)
		return 0;
	memcpy(text, data, size);
	if (df_source_parse(&s, text, size))
		return 0;
	check_flow(&s, DF_SOURCE_NONE);
	for (int line = 0; s.nr && line <= 16; line++) {
		at = df_source_at(&s, line);
		if (at != DF_SOURCE_NONE)
			check_flow(&s, df_source_function(&s, at));
	}
	df_source_fini(&s);
	return 0;
}
