/* Numbers as text (number.h). */
#define _GNU_SOURCE
#include <stdlib.h>
#include "runtime/base/number.h"

/* Made once and never freed, because threads may be using it. (locale_t)0: no memory. */
static locale_t locale_c(void)
{
	static locale_t made;
	/* ACQUIRE pairs with the RELEASE half below: the locale may be another thread's. */
	locale_t c = __atomic_load_n(&made, __ATOMIC_ACQUIRE), none = (locale_t)0;

	if (c)
		return c;
	c = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
	if (c &&
	    !__atomic_compare_exchange_n(&made, &none, c, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
		freelocale(c);
		c = none;
	}
	return c;
}

double df_strtod(const char *text, char **end)
{
	locale_t c = locale_c();

	return c ? strtod_l(text, end, c) : strtod(text, end);
}

locale_t df_decimal_point_begin(void)
{
	locale_t c = locale_c();

	return c ? uselocale(c) : (locale_t)0;
}

void df_decimal_point_end(const locale_t *before)
{
	if (*before)
		uselocale(*before);
}
