/*
 * The two sides of `dfshim replay`. The command (cmd_replay.c) starts a process for each rank. Each
 * is a worker (replay_worker.c), which finds its task in its environment (REPLAY_*). Private to the
 * two.
 */
#ifndef DF_TRACE_CLI_RUN_CMD_REPLAY_H
#define DF_TRACE_CLI_RUN_CMD_REPLAY_H

#include "trace/cli/run/recorded.h"

/* The lines of a witness that begin with '@', except the turns. */
struct df_replay_witness {
	int slots, queues, unbuffered, found;
};

/* Reads it, and keeps the turns of a rank (-1: of none) for the worker. Fails with -EINVAL. */
int df_replay_witness(const char *path, int rank, struct df_replay_witness *x);

/* Reads the traces at these paths. Returns 0, or the exit status after a message. */
int df_replay_steps(struct df_program_steps *p, int argc, char **argv, int flags);

/* Returns the exit status of the process. */
int df_replay_worker(int argc, char **argv);

#endif
