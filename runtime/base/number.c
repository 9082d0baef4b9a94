/* Numbers as text (number.h). */
#define _GNU_SOURCE
#include <locale.h>
#include <stdlib.h>
#include "runtime/base/number.h"

double df_strtod(const char *text, char **end)
{
	locale_t c = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
	double value = c ? strtod_l(text, end, c) : strtod(text, end);

	if (c)
		freelocale(c);
	return value;
}
