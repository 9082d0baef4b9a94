/*
 * Starts one Python interpreter, which imports torch once and forks the ranks of `dfshim run --host
 * -n N`. Its other side is interpose/python/dfshim/host/forks.py. Private to `dfshim run`, whose
 * one thread calls all of it.
 */
#ifndef DF_TRACE_CLI_RUN_RUN_FORK_H
#define DF_TRACE_CLI_RUN_RUN_FORK_H

#include <stdint.h>
#include <sys/types.h>

/*
 * Starts the interpreter, and waits for its import until until_ns (df_now_ns(); 0: without a
 * bound). first() prepares the process as for rank 0. `signals` is a signalfd with SIGCHLD and the
 * signals that end the job. Returns 0 if ranks can be forked, 1 if each needs its own interpreter,
 * or minus the exit status after a message.
 */
int df_run_fork_open(int signals, uint64_t until_ns, void (*first)(void *), void *arg);
int df_run_fork_is_open(void);
/*
 * Forks the process of a rank, which becomes a child of this process. Fails with -errno. `out` is
 * its standard output and error, or NULL.
 */
pid_t df_run_fork_rank(int rank, const int out[2]);
/* Ends the interpreter. */
void df_run_fork_close(void);

#endif
