/*
 * DFSHIM_METRICS: this process's counters as OpenMetrics text, in a file or over HTTP. The thread
 * of ras_server.c writes and answers; no call of the application waits for it.
 */
#ifndef DF_RUNTIME_WATCH_METRICS_H
#define DF_RUNTIME_WATCH_METRICS_H

/*
 * Reads the setting. Returns whether metrics are wanted. *listener is the socket for HTTP, or -1.
 * *bell is readable when df_metrics_turn() should be called soon; -1 if no file is written.
 */
int df_metrics_start(int *listener, int *bell);

/* Only the thread of ras_server.c calls the next two functions. */

/*
 * Writes the file if it is due. Returns the milliseconds until it is due again, or -1 if no file is
 * written.
 */
int df_metrics_turn(void);
/* Returns the text, from malloc(), or NULL. */
char *df_metrics_text(void);

/* Any thread may call the next two functions, even in a signal handler. */

/* Has the file written soon, because there is a new verdict. */
void df_metrics_soon(void);
/* Call when the process exits: has the file written once more, and waits for that at most 5 s. */
void df_metrics_stop(void);

#endif
