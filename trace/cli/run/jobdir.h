/*
 * A job that a subcommand starts with `dfshim run`, and its folder. A signal that ends the
 * subcommand is forwarded to the job, and takes effect after the folder has been removed. The
 * folder of a killed subcommand is removed when the next one begins.
 *
 * One at a time in a process, which has one thread.
 */
#ifndef DF_TRACE_CLI_RUN_JOBDIR_H
#define DF_TRACE_CLI_RUN_JOBDIR_H

#include <signal.h>

struct df_jobdir {
	char path[64];
	int lock;     /* descriptor of the folder, which is locked while its owner lives */
	sigset_t old; /* SIGINT, SIGTERM, SIGHUP and SIGCHLD are blocked until it is removed */
};

/* Makes the folder "/tmp/dfshim-SUB-XXXXXX". Fails with -errno after a message. */
int df_jobdir_create(struct df_jobdir *d, const char *sub);
/* Removes the folder. Ends the process if a signal has arrived since df_jobdir_create(). */
void df_jobdir_remove(struct df_jobdir *d);

/*
 * Runs args[0] with its standard output on standard error, after prepare(arg) in the child.
 * Forwards SIGINT, SIGTERM and SIGHUP. Returns its wait status, or -errno.
 */
int df_jobdir_run(struct df_jobdir *d, char *const *args, void (*prepare)(void *arg), void *arg);

#endif
