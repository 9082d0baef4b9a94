/*
 * `dfshim run`: what its command line asks for (cmd_run.c), and the environment that the job gets for it (run_env.c). Private
 * to the two, but for the place of the libraries.
 */
#ifndef DF_TRACE_CLI_RUN_CMD_RUN_H
#define DF_TRACE_CLI_RUN_CMD_RUN_H

#include <limits.h>
#include <stddef.h>

extern struct df_run_opts {
	int host, devices, nr_procs, set_ranks, tag, no_fork, dry_run;
	int nccl;  /* by NCCL's rules */
	int lanes; /* the executor is NCCL, behind dfshim */
	const char *mode, *rules, *executor;
	char trace[PATH_MAX];
	double timeout, limit, grace;
	char **app;
} df_run;

/* Sets the environment, in this process. 0, or the status to exit with, which has been explained. */
int df_run_environment(void);
void df_run_print_environment(void);
/* A library beside this program, or in ../lib: its path, as LD_PRELOAD can hold it. Not 0: the status to exit with; the user has been told. */
int df_run_library(const char *sub, const char *name, char *path, size_t size);
/* Whether LD_PRELOAD would take this path apart, because it has a blank or a colon. */
int df_run_is_split(const char *path);
/* A variable that is a number. */
void df_run_set(const char *name, long value);

#endif
