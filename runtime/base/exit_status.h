/*
 * The status with which this process exits. The trace and the other ranks use it to distinguish an
 * error from a normal end. df_trace_open() starts watching; df_trace_close() and the last message
 * of the control plane read the status. Threads: any.
 */
#ifndef DF_BASE_EXIT_STATUS_H
#define DF_BASE_EXIT_STATUS_H

/* Verdicts that replace an exit status of 0; the values are those of trace/check.h. */
enum { DF_EXIT_MISSING = 20, DF_EXIT_MISMATCH = 21, DF_EXIT_CRASH = 30 };

/* Records the status of each exit() from now on. */
void df_exit_status_watch(void);
/* Records the status just before _exit(). Async-signal-safe. */
void df_exit_status_is(int status);
/*
 * From now on the process exits with this status instead of 0, because an operation has failed and
 * the program does not know. Later calls have no effect. If it exits with a status of its own that
 * is not 0, only those exit handlers run that were registered after the first call.
 */
void df_exit_status_failed(int status);
/*
 * Like df_exit_status_failed(), until df_exit_status_heard() reports that the program has seen the
 * error.
 */
void df_exit_status_unheard(int status);
void df_exit_status_heard(void);
/* Returns the status to exit with when the program asks for `status`. Async-signal-safe. */
int df_exit_status_instead(int status);
/* Called last in exit(): ends the process if its status has to be replaced. */
void df_exit_status_enforce(void);
/* Returns the status, 0 to 255. Returns 0 also if neither exit() nor _exit() was called. */
int df_exit_status(void);

/*
 * Ends the process at once with this status. No destructor runs, and no thread sees an error before
 * the end. Flushes stdout and stderr, except a stream that another thread has locked or whose file
 * accepts no more data.
 */
__attribute__((noreturn)) void df_exit_now(int status);

#endif
