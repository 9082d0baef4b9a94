/* Reading records of a ring while they are written. Any thread. */
#ifndef DF_TRACE_READ_COMPACT_H
#define DF_TRACE_READ_COMPACT_H

#include <stdint.h>
#include "trace/record/format.h"

/*
 * Copies one slot of a ring. Returns 1 if the copy is a whole record and has this index
 * (UINT64_MAX: any index).
 */
int df_compact_record(struct df_rec *to, const struct df_rec *from, uint64_t index);

#endif
