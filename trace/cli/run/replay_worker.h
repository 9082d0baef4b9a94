/* The process of one rank of a replay. */
#ifndef DF_TRACE_CLI_RUN_REPLAY_WORKER_H
#define DF_TRACE_CLI_RUN_REPLAY_WORKER_H

struct df_program_steps;
struct df_replay_witness;

/*
 * Reads a witness, and keeps the turns of a rank for the worker (rank -1: of none). Fails with
 * -EINVAL.
 */
int df_replay_witness(const char *path, int rank, struct df_replay_witness *x);
/* Reads the traces at these paths. Returns 0, or the exit status after a message. */
int df_replay_steps(struct df_program_steps *p, int argc, char **argv, int flags);
/* Runs the worker. Returns the exit status of the process. */
int df_replay_worker(int argc, char **argv);

#endif
