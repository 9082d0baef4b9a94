/*
 * A folder for a job that a subcommand starts (`dfshim run` with workers of its own), and the job. Nothing of
 * either is left behind: a signal that ends the subcommand is passed on to the job and ends it after the folder
 * is gone; what a killed one left is removed when the next one begins.
 *
 * One at a time in a process, which has one thread.
 */
#ifndef DF_TRACE_CLI_RUN_JOBDIR_H
#define DF_TRACE_CLI_RUN_JOBDIR_H

#include <signal.h>

struct df_jobdir {
	char path[64];
	int lock;     /* the folder, locked as long as its owner lives */
	sigset_t old; /* SIGINT, SIGTERM, SIGHUP and SIGCHLD are held back until it is removed */
};

/* "/tmp/dfshim-SUB-XXXXXX". 0 or -errno, which has been said. */
int df_jobdir_create(struct df_jobdir *d, const char *sub);
/* Ends the process if a signal has come since. */
void df_jobdir_remove(struct df_jobdir *d);

/*
 * Runs args[0] with its standard output on standard error, after prepare(arg) in the child; its wait status, or
 * -errno. SIGINT, SIGTERM and SIGHUP go to it.
 */
int df_jobdir_run(struct df_jobdir *d, char *const *args, void (*prepare)(void *arg), void *arg);

#endif
