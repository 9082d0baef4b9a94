#include <string.h>

#include "runtime/base/clean_text.h"
#include "runtime/base/xml_text.h"

void df_xml_text(FILE *out, const char *s, size_t max)
{
	size_t n = 0, bytes;

	for (; *s && (!max || n < max); s += bytes, n++) {
		unsigned char c = (unsigned char)*s;

		bytes = df_utf8_bytes((const unsigned char *)s, strlen(s));
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
