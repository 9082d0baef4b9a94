/*
 * Makes text that another program wrote safe to print on a terminal, in a log or in a line of a
 * report. Names in traces are cleaned when they are read (trace/read/reader.c), paths of files when
 * they are printed. No state.
 */
#ifndef DF_BASE_CLEAN_TEXT_H
#define DF_BASE_CLEAN_TEXT_H

#include <stddef.h>

/*
 * Returns the number of bytes of the UTF-8 character at s, which has at most `max` bytes left, or 0
 * if they are not valid UTF-8.
 */
size_t df_utf8_bytes(const unsigned char *s, size_t max);

/*
 * Replaces each byte that a terminal could take for a command or a new line by '?': control
 * characters (C0, DEL, C1), line and paragraph separators, marks that change the direction of
 * writing, and bytes that are not UTF-8.
 */
void df_text_clean(char *s, size_t bytes);

/* Copies s into buf, cut to its size and cleaned. Returns buf. */
const char *df_text_cleaned(const char *s, char *buf, size_t size);

#endif
