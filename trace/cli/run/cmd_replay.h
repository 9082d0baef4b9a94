/*
 * The two sides of `dfshim replay`: the command starts a process for each rank (cmd_replay.c), and each is a worker
 * (replay_worker.c), which finds what the command wants of it in its environment (REPLAY_*). Private to the two.
 */
#ifndef DF_TRACE_CLI_RUN_CMD_REPLAY_H
#define DF_TRACE_CLI_RUN_CMD_REPLAY_H

#include "trace/cli/run/recorded.h"

/* The lines of a witness that begin with '@', but for the turns. */
struct df_replay_witness {
	int slots, queues, unbuffered, found;
};

/* Reads it, and keeps the turns of a rank (-1: of none) for the worker. 0, or -EINVAL. */
int df_replay_witness(const char *path, int rank, struct df_replay_witness *x);

/* What the traces of these paths hold. 0, or the status to exit with, which has been explained. */
int df_replay_steps(struct df_program_steps *p, int argc, char **argv, int flags);

/* The status of the process. */
int df_replay_worker(int argc, char **argv);

#endif
