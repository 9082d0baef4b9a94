/*
 * What streams of a device have been made to wait for, and not yet finished: while there is any, a call of the driver that waits
 * for all the device's streams, with a lock that others need, must not be made. cuMemFree(), cuMemFreeHost(), cuMemHostUnregister() and a
 * kernel's first launch are such calls (tests/gpu/litmus_sync.cu). Any thread.
 */
#ifndef DF_RUNTIME_ORDER_WAITS_H
#define DF_RUNTIME_ORDER_WAITS_H

#include <stdint.h>

struct df_flight;
struct df_mstream;

/*
 * The device's stream waits for the operations; with no lock held. Of a GPU 31 streams may wait at a time, because the daemon needs the
 * last hardware queue: for one more the call waits, a second at most after there was room last. 0 or -errno of the machine.
 */
int df_waits_put(int device, struct df_mstream *on, const struct df_flight *v, uint32_t nr);
/* A graph that is being launched on the device waits for the operation. */
void df_waits_note(int device, const struct df_flight *f);
/*
 * For struct df_hooks, around such a call: from begin to end none of the device's streams is made to wait; -1: of all devices'. wait: first until
 * none does; else 0 if one does, at once.
 */
int df_waits_stop(int device, int wait);
void df_waits_go(int device);

#endif
