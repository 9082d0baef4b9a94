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
struct df_mstream;

/*
 * Makes the stream wait for the operations. No lock is held. On a GPU the number of streams that
 * wait at a time is limited (struct df_executor.waiting_streams): when it is reached, this call
 * waits for one of them to end, but at most a second. Returns 0 or -errno of the backend.
 */
int df_waits_put(int device, struct df_mstream *on, const struct df_flight *v, uint32_t nr);
/* A graph that is being launched on the device waits for the operation. */
void df_waits_note(int device, const struct df_flight *f);
/*
 * For struct df_hooks, around such a driver call: between df_waits_stop() and df_waits_go() no
 * stream of the device (-1: of any device) is made to wait. wait: block until no stream waits; else
 * return 0 at once if one does. Returns 1 if no stream waits.
 */
int df_waits_stop(int device, int wait);
void df_waits_go(int device);

#endif
