#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>
#include "runtime/base/demangle.h"
#include "trace/read/stacks.h"
#include "runtime/base/vec.h"

#define FRAMES_MAX 32

struct df_stack {
	uint64_t key; /* trace and site */
	UT_hash_handle hh;
	char text[]; /* allocated at its length, because a job may have many */
};

int df_stack_frame(const struct df_lnote *notes, size_t nr_notes, const struct df_reader *r,
		   uint32_t site, uint64_t nr, char *buf, size_t size)
{
	const char *text;
	uint32_t bytes;

	for (size_t i = 0; i < nr_notes; i++) {
		const struct df_rec *rec = &notes[i].rec;

		if (rec->type != DF_REC_SITE || rec->op != site || rec->a != nr)
			continue;
		text = df_reader_string(r, rec->c, &bytes);
		snprintf(buf, size, "%.*s", text ? (int)bytes : 0, text);
		return text != NULL;
	}
	return 0;
}

/*
 * Writes frame number `nr` of a call site: "module!function+0x12", the module without its folder.
 * Returns 1 if it was found.
 */
static int put_frame(const struct df_lnote *notes, size_t nr_notes, const struct df_reader *r,
		     uint32_t site, uint64_t nr, char *buf, size_t size)
{
	char text[1024];
	const char *slash;

	if (!df_stack_frame(notes, nr_notes, r, site, nr, text, sizeof(text)))
		return 0;
	slash = strrchr(text, '/');
	snprintf(buf, size, "%s", slash ? slash + 1 : text);
	df_demangle_frame(buf, size);
	return 1;
}

/*
 * Writes "module!function+0x12 <- ...", at most FRAMES_MAX frames, the modules without their
 * folders. "" if none are known, as for a site that the ring has lost.
 */
static void stack_text(const struct df_lnote *notes, size_t nr_notes, const struct df_reader *r,
		       uint32_t site, char *buf, size_t size)
{
	size_t at = 0;

	buf[0] = 0;
	for (unsigned nr = 0; nr < FRAMES_MAX && at + 8 < size; nr++) {
		const char *sep = nr ? DF_STACK_SEP : "";

		if (!put_frame(notes, nr_notes, r, site, nr, buf + at + strlen(sep),
			       size - at - strlen(sep))) {
			buf[at] = 0;
			break;
		}
		memcpy(buf + at, sep, strlen(sep));
		at += strlen(buf + at);
	}
}

int df_stack_line(const char *text, struct df_stack_line *line)
{
	const char *end = strstr(text, DF_STACK_SEP), *at, *digits;

	end = end ? end : text + strlen(text);
	for (at = text + strcspn(text, ":"); at < end; at += 1 + strcspn(at + 1, ":")) {
		digits = at + 1;
		line->line = atoi(digits);
		line->name = digits + strspn(digits, "0123456789");
		if (line->name > digits && (*line->name == ' ' || *line->name == '!')) {
			line->name++;
			line->file_bytes = (int)(at - text);
			line->name_bytes = (int)(end - line->name);
			return 1;
		}
	}
	return 0;
}

int df_stack_notes(struct df_reader *r, struct df_lnote **notes, size_t *nr_notes)
{
	const struct df_rec *rec;
	struct df_lnote *all = NULL, *n;
	size_t nr = 0, cap = 0;
	uint64_t index;

	df_reader_rewind(r);
	while ((rec = df_reader_next(r, &index))) {
		if (rec->type != DF_REC_SITE)
			continue;
		n = DF_VEC_PUSH(all, nr, cap);
		if (!n) {
			free(all);
			return -ENOMEM;
		}
		*n = (struct df_lnote){.rec = *rec, .index = index};
	}
	df_reader_rewind(r);
	*notes = all;
	*nr_notes = nr;
	return 0;
}

static struct df_stack *find(const struct df_stacks *stacks, uint64_t key)
{
	struct df_stack *s;

	HASH_FIND(hh, stacks->all, &key, sizeof(key), s);
	return s;
}

static uint64_t key_of(uint32_t trace, uint32_t site)
{
	return (uint64_t)trace << 32 | site;
}

const char *df_stacks_find(const struct df_stacks *stacks, uint32_t trace, uint32_t site)
{
	struct df_stack *s = find(stacks, key_of(trace, site));

	return s ? s->text : NULL;
}

const char *df_stacks_get(struct df_stacks *stacks, uint32_t trace, const struct df_lnote *notes,
			  size_t nr_notes, const struct df_reader *r, uint32_t site)
{
	uint64_t key = key_of(trace, site);
	struct df_stack *s;
	char text[2048];
	size_t bytes;

	if (!site)
		return "";
	s = find(stacks, key);
	if (!s) {
		stack_text(notes, nr_notes, r, site, text, sizeof(text));
		bytes = strlen(text) + 1;
		s = malloc(sizeof(*s) + bytes);
		if (!s)
			return "";
		s->key = key;
		memcpy(s->text, text, bytes);
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
