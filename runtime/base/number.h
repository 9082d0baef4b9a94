/* Numbers as text, whatever locale the application has chosen. Any thread. */
#ifndef DF_RUNTIME_BASE_NUMBER_H
#define DF_RUNTIME_BASE_NUMBER_H

/* As strtod() in the locale C. */
double df_strtod(const char *text, char **end);

#endif
