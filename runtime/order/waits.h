/*
 * The operations that streams of a device have been made to wait for. While such a wait is
 * unfinished, certain calls of the driver must not be made: those that wait for all streams of the
 * device and hold a lock that other threads need. These are cuMemFree(), cuMemFreeHost(),
 * cuMemHostUnregister() and the first launch of a kernel (tests/gpu/litmus_sync.cu). Any thread.
 */
#ifndef DF_RUNTIME_ORDER_WAITS_H
#define DF_RUNTIME_ORDER_WAITS_H

#include <stdint.h>

struct df_flight;
struct df_flights;
struct df_mstream;

/*
 * Makes the stream wait for the operations. No lock is held. On a GPU the number of streams that
 * wait at a time is limited (struct df_executor.waiting_streams): if one more is too many, this
 * call waits for another wait to end, but at most a second. Returns 0 or -errno of the backend.
 */
int df_waits_put(int device, struct df_mstream *on, const struct df_flight *v, uint32_t nr);
/*
 * Makes the stream wait for a word. held: the operations for which the stream that writes the word
 * waits; before they end, the word is not reached. Otherwise as df_waits_put().
 */
int df_waits_word(int device, struct df_mstream *on, const struct df_flights *held,
		  const uint64_t *word, uint64_t value);
/*
 * Call before the driver itself makes the stream wait for the operations: for an event behind
 * them, or in a graph. May block as df_waits_put(). part: the stream on which that part of the
 * graph was captured; else NULL.
 */
void df_waits_note(int device, const struct df_mstream *on, const struct df_mstream *part,
		   const struct df_flight *v, uint32_t nr);
/* Adds the operations for which the stream waits at present. Any lock. */
void df_waits_collect(int device, const struct df_mstream *on, struct df_flights *out);
/*
 * Whether, after more streams waited than df_executor.waiting_streams() allows, some still wait.
 * Any lock.
 */
int df_waits_crowded(int device);
/*
 * For struct df_hooks, around such a driver call. Between df_waits_stop() and df_waits_go() no
 * stream of the device (-1: of any device) is made to wait. If `wait`, blocks until no stream
 * waits, else returns at once. Returns 1 if no stream waits, else 0.
 */
int df_waits_stop(int device, int wait);
void df_waits_go(int device);

#endif
