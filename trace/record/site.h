/*
 * Call sites of the application: a small table from return addresses to a hash that is equal in all
 * processes that run the same binaries. Part of the writer.
 */
#ifndef DF_TRACE_RECORD_SITE_H
#define DF_TRACE_RECORD_SITE_H

/* Loads what backtrace() needs. That may allocate, so it is done when the trace is opened. */
void df_site_preload(void);

#endif
