/*
 * What processes that have exited had finished, as they told the others (df_trace_left()): the judge asks it of ranks
 * whose trace it does not have. Private to the judge.
 */
#ifndef DF_TRACE_READ_LEFT_H
#define DF_TRACE_READ_LEFT_H

#include <stddef.h>
#include <stdint.h>
#include "trace/check.h"
#include "trace/read/load.h"

struct df_lefts {
	struct df_left_row *rows; /* by key, once the set is sealed */
	size_t nr, cap;
};

enum df_left {
	DF_LEFT_UNTOLD,	  /* nothing was told of this rank */
	DF_LEFT_LACKS,	  /* it had not finished it */
	DF_LEFT_FINISHED, /* it had */
	DF_LEFT_PERHAPS,  /* what it told is not all, and does not say */
};

/* Under which key its operations with this key (df_seen_key() with no local number) stand; seen 0: the rank itself. */
uint64_t df_left_key(uint64_t comm_hash, int rank, uint64_t seen);
/* df_trace_left() of a trace that is loaded. */
int df_left_rows(const struct df_load *l, const struct df_reader *r, struct df_left_row **out,
		 size_t *nr);
void df_left_sort(struct df_lefts *l);
/* Whether the rank had finished the operation number `want` of those with this key. */
enum df_left df_left_of(const struct df_lefts *l, uint64_t comm_hash, int rank, uint64_t seen,
			uint64_t want);
/* How many collectives the rank had issued and finished; 0: unknown, or it left some unfinished. */
uint64_t df_left_issued(const struct df_lefts *l, uint64_t comm_hash, int rank);

#endif
