/*
 * DFSHIM_METRICS: this process's counters as OpenMetrics text, in a file or over HTTP. The thread
 * of ras_server.c writes and answers; no call of the application waits for it.
 */
#ifndef DF_RUNTIME_WATCH_METRICS_H
#define DF_RUNTIME_WATCH_METRICS_H

/*
 * Reads the setting. Returns whether there is something to do; *listener: the socket for HTTP, or
 * -1; *bell: readable when df_metrics_turn() should be called soon.
 */
int df_metrics_start(int *listener, int *bell);

/* The rest is for that thread. */

/*
 * Writes the file if it is due. Returns the time in milliseconds until it is due again; -1: there
 * is none.
 */
int df_metrics_turn(void);
/* Returns the text, from malloc(), or NULL. */
char *df_metrics_text(void);

/* These two for any thread, also in a handler of a signal. */

/* Something has happened that a reader should see soon: a verdict. */
void df_metrics_soon(void);
/* The process exits: has the file written for the last time, and waits for that for 5 s at most. */
void df_metrics_stop(void);

#endif
