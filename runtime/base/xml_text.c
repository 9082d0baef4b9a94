/* See xml_text.h. */
#include "runtime/base/xml_text.h"

/* Bytes of the character at s, which is not ASCII; 0: it is none. */
static size_t utf8_bytes(const unsigned char *s)
{
	size_t n = *s >= 0xf0 && *s < 0xf5   ? 4
		   : *s >= 0xe0 && *s < 0xf0 ? 3
		   : *s >= 0xc2 && *s < 0xe0 ? 2
					     : 0;

	for (size_t i = 1; i < n; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	return n;
}

void df_xml_text(FILE *out, const char *s, size_t max)
{
	size_t n = 0, bytes;

	for (; *s && (!max || n < max); s += bytes, n++) {
		unsigned char c = (unsigned char)*s;

		bytes = c > 127 ? utf8_bytes((const unsigned char *)s) : 1;
		if (c == '<' || c == '>' || c == '&' || c == '"')
			fputs(c == '<'	 ? "&lt;"
			      : c == '>' ? "&gt;"
			      : c == '&' ? "&amp;"
					 : "&quot;",
			      out);
		else if (!bytes || (c < 32 && c != '\n' && c != '\t') || c == 127)
			fputc('?', out);
		else
			fwrite(s, 1, bytes, out);
		bytes = bytes ? bytes : 1;
	}
	if (*s)
		fputs("...", out);
}
