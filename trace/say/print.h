/* Parts of a printed verdict, for print.c and print_json.c. They only write to `out`. */
#ifndef DF_TRACE_SAY_PRINT_H
#define DF_TRACE_SAY_PRINT_H

#include <stdio.h>

#include "trace/judge/result.h"

/* Limit of the lines of a list. Beyond it, only the number of further lines is printed. */
#define DF_PRINT_LINES	16
#define DF_PRINT_LABELS 8 /* limit of processes or ranges of ranks in a line */

/* Ranks that do the same, and for how long. */
struct df_crowd {
	int32_t *ranks;
	size_t nr, cap;
	double least, most; /* seconds */
};

void df_crowd_join(struct df_crowd *c, int32_t rank, double seconds);
/* Sorts the ranks, each of them once. */
void df_crowd_sort(struct df_crowd *c);
/*
 * Prints "running on r0-r3, r6" (`what` is "running on ") and empties the crowd. parts: number of
 * parts already printed on this line.
 */
void df_crowd_print(struct df_crowd *c, const char *what, int *parts, FILE *out);
/* Prints a number of seconds, or the range of two, between two texts, and ends the line. */
void df_print_age(double least, double most, const char *before, const char *after, FILE *out);

/*
 * For a cycle: prints in which order each rank issued its unfinished operations, with a line for
 * each distinct order.
 */
void df_print_orders(const struct df_check_result *r, FILE *out);
/*
 * Prints the operations that were issued and have not finished, with a line for each call of the
 * job.
 */
void df_print_pending(const struct df_check_result *r, FILE *out);
/* Prints the operations that threads will issue next, once the wait before them is over. */
void df_print_intents(const struct df_check_result *r, FILE *out);
/*
 * Prints the Python stacks of threads, with an output line for each place. Prints nothing if no
 * stacks were recorded.
 */
void df_print_scripts(const struct df_check_result *r, FILE *out);
/*
 * Reads the operation that a thread will issue next, once the wait before it is over. Returns 0 if
 * the note is of another kind.
 */
int df_print_intent(const struct df_check_set *set, const struct df_trc *trc, size_t note,
		    struct df_lop *op, const struct df_trc_comm **entry);

#endif
