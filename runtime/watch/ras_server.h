/*
 * Serves NCCL's RAS text protocol, so that `ncclras` sees our communicators: NCCL's own RAS knows
 * only those that NCCL runs. One process of a node listens: the first that gets the port. When it
 * ends, another takes over. If a process outside the job has the port, the job is not served. The
 * thread that serves clients only talks to them; the watchdog, which collects what all processes
 * know, makes the answer.
 */
#ifndef DF_RUNTIME_WATCH_RAS_SERVER_H
#define DF_RUNTIME_WATCH_RAS_SERVER_H

/*
 * Starts the thread if it is needed: to answer ncclras (if `answers` is set, and not with
 * NCCL_RAS_ENABLE=0), or for metrics.h. Further calls do nothing.
 */
void df_ras_start(int answers);

/*
 * For the watchdog: whether a client waits for an answer. The watchdog must then call
 * df_ras_answer() with text from malloc(), or NULL if it has none.
 */
int df_ras_asked(int *json);
void df_ras_answer(char *text);

#endif
