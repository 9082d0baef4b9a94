/*
 * `dfshim run`: its command line (cmd_run.c), and the job's environment made from it (run_env.c).
 * Other subcommands use only df_run_library(), df_run_is_split() and df_run_set().
 */
#ifndef DF_TRACE_CLI_RUN_RUN_H
#define DF_TRACE_CLI_RUN_RUN_H

#include <limits.h>
#include <stddef.h>

extern struct df_run_opts {
	int host, devices, nr_procs, set_ranks, tag, no_fork, stub, dry_run;
	/* number of ranks that the program (torchrun) starts itself; 0 if it does not */
	int workers;
	int nccl;  /* whether NCCL's rules apply */
	int lanes; /* whether dfshim orders the operations and NCCL executes them */
	const char *mode, *rules, *executor;
	char trace[PATH_MAX]; /* the value of DFSHIM_TRACE: a pattern */
	double timeout, limit, grace;
	char **app;
} df_run;

/* Sets the environment in this process. Returns 0, or the exit status after a message. */
int df_run_environment(void);
void df_run_print_environment(void);
/*
 * Finds a library beside this program, or in ../lib: its path in a form for LD_PRELOAD. Returns 0,
 * or the exit status after a message.
 */
int df_run_library(const char *sub, const char *name, char *path, size_t size);
/* Whether LD_PRELOAD would split this path, because it has a blank or a colon. */
int df_run_is_split(const char *path);
/* Sets a variable to a number. */
void df_run_set(const char *name, long value);

#endif
