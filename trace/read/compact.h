/* Reading records of a ring while they are written. Any thread. */
#ifndef DF_TRACE_READ_COMPACT_H
#define DF_TRACE_READ_COMPACT_H

#include <stdint.h>
#include "trace/record/format.h"

/*
 * Copies a slot of a ring. Returns 1 if the copy is whole and, unless the index is UINT64_MAX, is
 * the record of that index.
 */
int df_compact_record(struct df_rec *to, const struct df_rec *from, uint64_t index);

#endif
