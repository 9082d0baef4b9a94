#include <stdio.h>
#include <string.h>

#include "runtime/base/clean_text.h"

size_t df_utf8_bytes(const unsigned char *s, size_t max)
{
	size_t n = !max || *s >= 0xf5 ? 0
		   : *s >= 0xf0	      ? 4
		   : *s >= 0xe0	      ? 3
		   : *s >= 0xc2	      ? 2
				      : *s < 0x80;

	if (n > max)
		return 0;
	for (size_t i = 1; i < n; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	return n;
}

/* Whether a terminal acts on this character of n bytes instead of printing it. */
static int is_command(const unsigned char *s, size_t n)
{
	unsigned c;

	if (n == 1)
		return *s < 32 || *s == 127;
	if (n == 2)
		return *s == 0xc2 && s[1] < 0xa0;
	if (n != 3)
		return 0;
	c = (*s & 0xfu) << 12 | (s[1] & 0x3fu) << 6 | (s[2] & 0x3fu);
	return c == 0x200e || c == 0x200f || (c >= 0x2028 && c <= 0x202e) ||
	       (c >= 0x2066 && c <= 0x2069);
}

void df_text_clean(char *text, size_t bytes)
{
	unsigned char *s = (unsigned char *)text;
	size_t n;

	for (; bytes; s += n, bytes -= n) {
		n = df_utf8_bytes(s, bytes);
		if (!n || is_command(s, n)) {
			n = n ? n : 1;
			memset(s, '?', n);
		}
	}
}

const char *df_text_cleaned(const char *s, char *buf, size_t size)
{
	snprintf(buf, size, "%s", s);
	df_text_clean(buf, strlen(buf));
	return buf;
}
