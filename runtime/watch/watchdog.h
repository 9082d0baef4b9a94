/*
 * What the rest of the runtime tells the watchdog (watchdog.c), the thread that explains what has come to a
 * standstill. Any thread may call all of it, with nothing locked.
 */
#ifndef DF_RUNTIME_WATCH_WATCHDOG_H
#define DF_RUNTIME_WATCH_WATCHDOG_H

#include <stddef.h>
#include <stdint.h>

struct df_comm;

/* Of a communicator: whether those that have left in order are missed. */
struct df_watch_comm {
	uint64_t left_retired; /* operations retired at the last look, */
	uint64_t left_since;   /* and when that number was new; both are the watchdog's */
	uint64_t peer_left;    /* when a member's process ended in order; 0 none; atomic */
};

/* Has it look now (snapshot.c). */
void df_snapshot_wake(void);
/*
 * It is for us to say that a peer has died: now, from what this process alone knows; or that it has left
 * in order: when that turns out to matter. Any thread, nothing locked.
 */
void df_watchdog_tell_death(int in_order);
/* What another process says; on the control thread (snapshot.c). */
void df_snapshot_message(uint64_t from, uint32_t kind, const void *data, size_t bytes);

/* joining.c: communicators whose rendezvous is not complete. */
void df_joining(struct df_comm *comm, uint64_t id, int nranks, int rank);
/* A number for what is missing at all of them, 0 if nothing. Changes when a rank arrives or a rendezvous ends. */
uint64_t df_joining_missing(void);
/*
 * Says which ranks are missing: INIT and a sentence, for the first communicator that lacks some. 0: none
 * does. Every process of the communicator comes to the same text; only the one with the lowest rank that has
 * arrived prints it, the others get -EAGAIN unless they want to print it anyhow. 1: printed, its first line is in `line`.
 */
int df_joining_explain(int anyhow, char *line, size_t size);

/* Once a process; further calls do nothing. */
void df_watchdog_start(void);

/*
 * df_stop() for _exit(), which runs no destructors: by the watchdog's thread, as the caller may be the handler of a signal
 * that came while its thread had any of our locks. Returns when that is done, or at a bound. Async-signal-safe.
 */
void df_watchdog_stop(void);

#endif
