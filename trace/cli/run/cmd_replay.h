/*
 * The two sides of `dfshim replay`. The command (cmd_replay.c) starts a process for each rank. Each
 * is a worker (replay_worker.c), which finds its task in its environment (REPLAY_*). Private to the
 * two.
 */
#ifndef DF_TRACE_CLI_RUN_CMD_REPLAY_H
#define DF_TRACE_CLI_RUN_CMD_REPLAY_H

#include "trace/cli/run/recorded.h"

/*
 * The lines of a witness that begin with '@', except the turns. `found`: whether the file has
 * them.
 */
struct df_replay_witness {
	int slots, queues, unbuffered, found;
};

#endif
