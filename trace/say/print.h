/* Parts of a verdict on paper, for print.c and print_json.c. They write to `out` and change nothing. */
#ifndef DF_TRACE_SAY_PRINT_H
#define DF_TRACE_SAY_PRINT_H

#include <stdio.h>

#include "trace/judge/result.h"

/* Lines of a list; of more the number is told. */
#define DF_PRINT_LINES 32

/* Ranks that stand at one point of one call, and for how long. */
struct df_crowd {
	int32_t *ranks;
	size_t nr, cap;
	double least, most; /* seconds */
};

void df_crowd_join(struct df_crowd *c, int32_t rank, double seconds);
/* what: "running on "; prints "running on r0-r3, r6" and empties the crowd. parts: printed on this line so far. */
void df_crowd_print(struct df_crowd *c, const char *what, int *parts, FILE *out);
void df_print_age(double least, double most, const char *before, const char *after, FILE *out);

/* Of a cycle: in which order each rank issued what is unfinished, a line for each order that occurs. */
void df_print_orders(const struct df_check_result *r, FILE *out);
/* Operations that were issued and are not over, a line for each call of the job. */
void df_print_pending(const struct df_check_result *r, FILE *out);
/* What threads were about to issue when they came to wait before it. */
void df_print_intents(const struct df_check_result *r, FILE *out);
/*
 * Call i of the trace is where its thread waits: not one around another. In JSON all of these are told, on paper those
 * whose call site is known.
 */
int df_print_waits(const struct df_trc *t, size_t i);
/* In which lines of its scripts each thread is, a line for each place; nothing where no interpreter was asked. */
void df_print_scripts(const struct df_check_result *r, FILE *out);
/* What a thread was about to issue when it came to wait before it; 0: the note is none such. */
int df_print_intent(const struct df_check_set *set, const struct df_trc *trc, size_t note,
		    struct df_lop *op, const struct df_trc_comm **entry);

#endif
