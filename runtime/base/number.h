/* Numbers as text, whatever locale the application has chosen. Any thread. */
#ifndef DF_RUNTIME_BASE_NUMBER_H
#define DF_RUNTIME_BASE_NUMBER_H

#include <locale.h>

/* As strtod() in the locale C. */
double df_strtod(const char *text, char **end);

/* A declaration: until its block ends, the thread's printf() writes decimal points. */
#define DF_DECIMAL_POINT                                                                           \
	locale_t df_before __attribute__((cleanup(df_decimal_point_end), unused)) =                \
		df_decimal_point_begin()

locale_t df_decimal_point_begin(void);
void df_decimal_point_end(const locale_t *before);

#endif
