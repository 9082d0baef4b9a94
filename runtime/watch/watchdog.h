/*
 * The interface between the rest of the runtime and the watchdog (watchdog.c), the thread that
 * explains hangs. Any thread may call all of this, without holding locks.
 */
#ifndef DF_RUNTIME_WATCH_WATCHDOG_H
#define DF_RUNTIME_WATCH_WATCHDOG_H

#include <stddef.h>
#include <stdint.h>

struct df_comm;

/* For each communicator: whether operations wait for members that exited normally. */
struct df_watch_comm {
	uint64_t left_retired; /* the watchdog's: operations retired at the last look */
	uint64_t left_since;   /* the watchdog's: when that number changed */
	uint64_t peer_left;    /* when a member's process exited normally; 0: none; atomic */
};

/* Wakes the watchdog (snapshot.c). */
void df_snapshot_wake(void);
/*
 * This process has to report the end of a peer. A death is reported now, from what this process
 * alone knows. A normal exit is reported once operations turn out to wait for that peer.
 */
void df_watchdog_tell_death(int in_order);
/* Accepts a message of another process, on the control thread (snapshot.c). */
void df_snapshot_message(uint64_t from, uint32_t kind, const void *data, size_t bytes);

/* joining.c: a communicator whose rendezvous is not complete. */
void df_joining(struct df_comm *comm, uint64_t id, int nranks, int rank);
/*
 * A number that stands for all ranks that are missing, 0 if none is. Changes when a rank arrives or
 * a rendezvous ends.
 */
uint64_t df_joining_missing(void);
/*
 * Reports which ranks are missing in the first communicator that lacks some: INIT and a sentence.
 * Every process of the communicator arrives at the same text, but only the one with the lowest rank
 * present prints it, unless `anyhow` is set. Returns 0 if no rank is missing, 1 if it printed (the
 * first line is in `line`), -EAGAIN if another process prints.
 */
int df_joining_explain(int anyhow, char *line, size_t size);

/*
 * Ranks of the communicator with this hash have made calls that can never meet: reports that at
 * once, and ends it.
 */
void df_watchdog_mismatch(uint64_t hash);

/* Starts the thread. Further calls do nothing. */
void df_watchdog_start(void);

/*
 * Does df_stop() for _exit(), which runs no destructors. The watchdog's thread does it, because the
 * caller may be the handler of a signal that interrupted a thread of ours with locks held. Returns
 * when that is done, or after a bounded time. Async-signal-safe.
 */
void df_watchdog_stop(void);

#endif
