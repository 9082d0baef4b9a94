/*
 * The interface between the rest of the runtime and the watchdog (watchdog.c), the thread that
 * explains hangs. Any thread may call these functions, without holding locks.
 */
#ifndef DF_RUNTIME_WATCH_WATCHDOG_H
#define DF_RUNTIME_WATCH_WATCHDOG_H

#include <stddef.h>
#include <stdint.h>

/* For each communicator: whether operations wait for members that exited normally. */
struct df_watch_comm {
	uint64_t left_retired; /* operations retired at the last look; only the watchdog uses it */
	uint64_t left_since;   /* when that number changed; only the watchdog uses it */
	/* As these two, for operations that are unfinished while the process goes on (part.h). */
	uint64_t part_retired, part_since;
	uint64_t peer_left; /* when a member's process exited normally; 0 if none did; atomic */
};

/*
 * Call if this process has to report the end of a peer. A death is reported now, from what this
 * process alone knows. A normal exit is reported once operations turn out to wait for that peer.
 */
void df_watchdog_tell_death(int in_order);
/*
 * Call if ranks of the communicator with this hash have made calls that can never meet: reports
 * that at once, and ends the communicator.
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
