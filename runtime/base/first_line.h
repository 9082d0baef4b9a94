/* Reads files of one line, such as those in /sys and /proc. Thread-safe. */
#ifndef DF_BASE_FIRST_LINE_H
#define DF_BASE_FIRST_LINE_H

#include <stdio.h>
#include <string.h>

/* Copies the first line of a file, without its newline; "" if it cannot be read. */
static inline void df_first_line(const char *path, char *to, size_t size)
{
	FILE *f = fopen(path, "re");

	if (!f || !fgets(to, (int)size, f))
		*to = '\0';
	to[strcspn(to, "\n")] = '\0';
	if (f)
		fclose(f);
}

#endif
