/* Parts of a verdict on paper, for print.c alone. They write to `out` and change nothing. */
#ifndef DF_TRACE_PRINT_H
#define DF_TRACE_PRINT_H

#include <stdio.h>

#include "trace/result.h"

/* Of a circle: in which order each rank issued what is unfinished, a line for each order that occurs. */
void df_print_orders(const struct df_check_result *r, FILE *out);
/* Operations that were issued and are not over, a line for each call of the job. */
void df_print_pending(const struct df_check_result *r, FILE *out);
/* What hosts were about to issue when they came to wait before it. */
void df_print_intents(const struct df_check_result *r, FILE *out);
/* What a host was about to issue when it came to wait before it; 0: the note is none such. */
int df_print_intent(const struct df_check_set *set, const struct df_trc *trc, size_t note,
		    struct df_lop *op, const struct df_entry **entry);

#endif
