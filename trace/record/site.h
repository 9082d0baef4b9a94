/*
 * Call sites of the application: a small table from return addresses to a hash that is equal in all
 * processes that run the same binaries. Part of the writer.
 */
#ifndef DF_TRACE_RECORD_SITE_H
#define DF_TRACE_RECORD_SITE_H

#include <stddef.h>
#include <stdint.h>

/* Separates the frames of a stack that is shown as text, innermost first. */
#define DF_STACK_SEP " <- "

/*
 * Loads the library that backtrace() needs. This may allocate, so it is done when the trace is
 * opened.
 */
void df_site_preload(void);

/*
 * Returns the hash of the caller's call site. The first call from a site also records its stack
 * (SITE records and module strings). `pc` is the return address of the hooked function.
 */
uint32_t df_trace_site(const void *pc);

/*
 * As df_trace_site(), for hooks that are called from inside libraries, as all hooks of CUDA are:
 * the site is the place where the application, or a library of it, called CUDA or NCCL. May take
 * the loader's lock, so no lock of ours may be held. Returns 0 if the site is unknown.
 */
uint32_t df_trace_caller(void);

/*
 * As df_trace_site(), for a stack given by the texts of its frames, innermost first, such as a
 * script's. Returns 0 if the table is full. One thread at a time.
 */
uint32_t df_trace_site_text(const char *const *frames, size_t nr);

/* Returns df_trace_site_text() of a stack in one text, with DF_STACK_SEP. */
uint32_t df_trace_site_stack(const char *stack);

/*
 * Until the next call, df_trace_site() and df_trace_caller() return this site in the calling
 * thread; 0: they look at its stack again. For a program that repeats calls of another one.
 */
void df_trace_site_pretend(uint32_t site);

#endif
