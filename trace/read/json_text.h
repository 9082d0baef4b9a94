/*
 * Writes JSON strings with their escapes. For code that libdfshim.so links; tools have
 * trace/say/json.h.
 */
#ifndef DF_TRACE_READ_JSON_TEXT_H
#define DF_TRACE_READ_JSON_TEXT_H

#include <stdio.h>

/* Writes the string in quotes. Escapes control characters and bytes that are not ASCII. */
static inline void df_json_string(FILE *out, const char *s)
{
	fputc('"', out);
	for (; s && *s; s++) {
		unsigned char c = (unsigned char)*s;

		if (c == '"' || c == '\\')
			fprintf(out, "\\%c", c);
		else if (c == '<' || c < 32 || c > 126)
			fprintf(out, "\\u%04x", c);
		else
			fputc(c, out);
	}
	fputc('"', out);
}

#endif
