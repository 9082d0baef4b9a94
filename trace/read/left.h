/*
 * The operations that exited processes had finished, as they reported when they exited
 * (df_trace_left()). The judge uses this for ranks without a trace. Private to the judge.
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
	DF_LEFT_UNTOLD,	  /* the rank reported nothing */
	DF_LEFT_LACKS,	  /* it has not finished the operation */
	DF_LEFT_FINISHED, /* it has finished it */
	DF_LEFT_PERHAPS,  /* its report is incomplete and does not contain the answer */
};

#define DF_AHEAD 8 /* messages that NCCL's buffer of a pair holds */

/* Makes the report of a loaded trace (df_trace_left()). The caller frees *out. */
int df_left_rows(const struct df_load *l, const struct df_reader *r, struct df_left_row **out,
		 size_t *nr);
void df_left_sort(struct df_lefts *l);
/* Whether the rank had finished operation number `want` among those with this key. */
enum df_left df_left_of(const struct df_lefts *l, uint64_t comm_hash, int rank, uint64_t seen,
			uint64_t want);
/*
 * Returns the number of collectives that the rank had issued and finished; 0 if it is unknown or if
 * some are unfinished.
 */
uint64_t df_left_issued(const struct df_lefts *l, uint64_t comm_hash, int rank);

/*
 * Fills in count and type of the rank's finished message number op->index, with the peer and kind
 * of `op`. Only by NCCL's rules. Returns 0 if the rank did not report it.
 */
int df_left_message(const struct df_lefts *l, uint64_t comm_hash, int rank, struct df_lop *op);

#endif
