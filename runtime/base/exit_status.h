/*
 * The status that this process exits with, so that who reads its trace, and the other ranks, can tell an end with an error from the
 * end of the program. df_trace_open() watches, df_trace_close() and the control plane's good-bye read it. Any thread.
 */
#ifndef DF_BASE_EXIT_STATUS_H
#define DF_BASE_EXIT_STATUS_H

/* Verdicts with which a process ends that would end with 0: as in trace/check.h. */
enum { DF_EXIT_MISSING = 20, DF_EXIT_MISMATCH = 21, DF_EXIT_CRASH = 30 };

/* From now on exit() is seen. */
void df_exit_status_watch(void);
/* _exit() is about to be called. Async-signal-safe. */
void df_exit_status_is(int status);
/*
 * From now on the process ends with this status if it would end with 0: the program does not know that something it
 * relies on has failed. The first one counts.
 */
void df_exit_status_failed(int status);
/* The same until the program shows that it knows, which is the second call. */
void df_exit_status_unheard(int status);
void df_exit_status_heard(void);
/* What it ends with when the program says `status`. Async-signal-safe. */
int df_exit_status_instead(int status);
/* Near the end of exit(), when nothing is left to do: ends the process if its status is to be another one. */
void df_exit_status_enforce(void);
/* 0 to 255; 0 too where the process has not called one of them. */
int df_exit_status(void);

/*
 * Ends the process at once with this status: no destructor runs and no thread sees an error first. What the C library holds of
 * the standard output and error is written, unless a thread is inside the stream or its file takes nothing more.
 */
__attribute__((noreturn)) void df_exit_now(int status);

#endif
