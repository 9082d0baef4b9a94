/* Where in the application a call was made, from the ring of the process that made it. */
#ifndef DF_TRACE_READ_LIVE_CALL_PLACE_H
#define DF_TRACE_READ_LIVE_CALL_PLACE_H

#include <stddef.h>
#include <stdint.h>
#include "trace/record/format.h"

/*
 * Writes "cudaDeviceSynchronize at train.py:12 main <- train.py:40 <module>" for the call with this
 * serial, as far as it is known: without the place if the ring has lost the call site, "" if it has
 * lost the call or the call has returned. Copies the ring, so it is for rare events. Any thread.
 */
void df_call_place(const struct df_trace_header *ring, uint64_t serial, char *buf, size_t size);

#endif
