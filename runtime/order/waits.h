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
 * Makes the stream wait for the operations. The caller holds no lock. On a GPU the number of
 * streams that wait at a time is limited (struct df_executor.waiting_streams). When the limit is
 * reached, this call waits until one of these waits has ended, but at most a second. Returns 0 or
 * -errno of the backend.
 */
int df_waits_put(int device, struct df_mstream *on, const struct df_flight *v, uint32_t nr);
/* Notes that a graph which is being launched on the device waits for the operation. */
void df_waits_note(int device, const struct df_flight *f);
/*
 * For struct df_hooks, around such a driver call. Between df_waits_stop() and df_waits_go() no
 * stream of the device (-1: of any device) is made to wait. If `wait`, blocks until no stream
 * waits, else returns at once. Returns 1 if no stream waits, else 0.
 */
int df_waits_stop(int device, int wait);
void df_waits_go(int device);

#endif
