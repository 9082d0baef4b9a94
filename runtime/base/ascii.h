/*
 * Words of ASCII, whatever locale the application has chosen: in Turkish, strcasecmp() finds that
 * "INFO" and "info" differ. Any thread.
 */
#ifndef DF_RUNTIME_BASE_ASCII_H
#define DF_RUNTIME_BASE_ASCII_H

#include <stddef.h>

static inline int df_ascii_lower(int c)
{
	return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c;
}

static inline int df_ascii_upper(int c)
{
	return c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c;
}

/* As strncasecmp() in the locale C. */
static inline int df_strncasecmp(const char *a, const char *b, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		int diff =
			df_ascii_lower((unsigned char)a[i]) - df_ascii_lower((unsigned char)b[i]);

		if (diff || !a[i])
			return diff;
	}
	return 0;
}

/* As strcasecmp() in the locale C. */
static inline int df_strcasecmp(const char *a, const char *b)
{
	return df_strncasecmp(a, b, (size_t)-1);
}

#endif
