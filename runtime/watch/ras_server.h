/*
 * NCCL's RAS text protocol, so that `ncclras` sees our communicators: NCCL's own RAS knows only those that NCCL
 * runs. One process of a node listens (the first that gets the port; when it ends, another takes over); where the port
 * belongs to somebody else, a job goes without. The thread that serves it only talks; the watchdog, which gathers
 * what all processes know, makes the answer.
 */
#ifndef DF_RUNTIME_WATCH_RAS_SERVER_H
#define DF_RUNTIME_WATCH_RAS_SERVER_H

/* Starts the thread, unless NCCL_RAS_ENABLE=0. Once a process. */
void df_ras_start(void);

/* For the watchdog: has somebody asked? Then it owes an answer: malloc'ed text, or NULL if there is none. */
int df_ras_asked(int *json);
void df_ras_answer(char *text);

#endif
