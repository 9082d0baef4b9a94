/*
 * Text that another program wrote, as it may be printed: on a terminal, in a log, in a line of a report. Names in traces are
 * cleaned where they are read (trace/read/reader.c), paths of files where they are printed. No state.
 */
#ifndef DF_BASE_CLEAN_TEXT_H
#define DF_BASE_CLEAN_TEXT_H

#include <stddef.h>

/* Bytes of the UTF-8 character at s, of which `max` bytes are there; 0: it is none. */
size_t df_utf8_bytes(const unsigned char *s, size_t max);

/*
 * Replaces by '?', byte by byte, what a terminal could take for a command or a new line: control characters (C0, DEL, C1), the
 * separators of lines and paragraphs, marks that change the direction of writing, and bytes that are not UTF-8.
 */
void df_text_clean(char *s, size_t bytes);

/* A clean copy in the buffer, cut to its size; returns buf. */
const char *df_text_cleaned(const char *s, char *buf, size_t size);

#endif
