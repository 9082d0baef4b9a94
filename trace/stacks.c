#define _GNU_SOURCE /* memrchr */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>
#include "trace/stacks.h"

#define FRAMES_MAX 32

struct df_stack {
	uint64_t key; /* trace and site */
	UT_hash_handle hh;
	char text[2048];
};

/* Frame `nr` of a call site as a trace records it: "module!function+0x12" without the module's folder. 1 found. */
static int put_frame(const struct df_lnote *notes, size_t nr_notes, const struct df_reader *r,
		     uint32_t site, uint64_t nr, char *buf, size_t size)
{
	const char *text, *slash;
	uint32_t bytes;

	for (size_t i = 0; i < nr_notes; i++) {
		const struct df_rec *rec = &notes[i].rec;

		if (rec->type != DF_REC_SITE || rec->op != site || rec->a != nr)
			continue;
		text = df_reader_string(r, rec->c, &bytes);
		if (!text)
			return 0;
		slash = memrchr(text, '/', bytes);
		if (slash) {
			bytes -= (uint32_t)(slash + 1 - text);
			text = slash + 1;
		}
		snprintf(buf, size, "%.*s", (int)bytes, text);
		/* What comes from a file goes to a terminal: nothing but printable text. */
		for (char *p = buf; *p; p++)
			if ((unsigned char)*p < 32 || *p == 127)
				*p = '?';
		return 1;
	}
	return 0;
}

unsigned df_stack_text(const struct df_lnote *notes, size_t nr_notes, const struct df_reader *r,
		       uint32_t site, unsigned max, char *buf, size_t size)
{
	unsigned nr = 0;
	size_t at = 0;

	buf[0] = 0;
	for (; nr < max && at + 8 < size; nr++) {
		const char *sep = nr ? DF_STACK_SEP : "";

		if (!put_frame(notes, nr_notes, r, site, nr, buf + at + strlen(sep),
			       size - at - strlen(sep))) {
			buf[at] = 0;
			break;
		}
		memcpy(buf + at, sep, strlen(sep));
		at += strlen(buf + at);
	}
	return nr;
}

const char *df_stacks_get(struct df_stacks *stacks, uint32_t trace, const struct df_load *l,
			  const struct df_reader *r, uint32_t site)
{
	uint64_t key = (uint64_t)trace << 32 | site;
	struct df_stack *s;

	if (!site)
		return "";
	HASH_FIND(hh, stacks->all, &key, sizeof(key), s);
	if (!s) {
		s = malloc(sizeof(*s));
		if (!s)
			return "";
		s->key = key;
		df_stack_text(l->notes, l->nr_notes, r, site, FRAMES_MAX, s->text, sizeof(s->text));
		HASH_ADD(hh, stacks->all, key, sizeof(s->key), s);
	}
	return s->text;
}

void df_stacks_fini(struct df_stacks *stacks)
{
	struct df_stack *s, *next;

	HASH_ITER(hh, stacks->all, s, next)
	{
		HASH_DEL(stacks->all, s);
		free(s);
	}
}
