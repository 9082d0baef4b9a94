/*
 * Bells (struct df_bell, kernels/abi.h) wake a sleeping process when a peer has moved a slice. Any
 * thread; no function holds a lock.
 */
#ifndef DFK_BELL_H
#define DFK_BELL_H

#include <stdint.h>
#include "kernels/abi.h"

/*
 * Adds the caller to the sleepers until df_bell_disarm(). Returns the number to pass to
 * df_bell_sleep(). Check for work once more between the two.
 */
uint32_t df_bell_arm(struct df_bell *bell);
/* Sleeps until the bell rings or the time-out. */
void df_bell_sleep(struct df_bell *bell, uint32_t seen, int64_t timeout_ns);
void df_bell_disarm(struct df_bell *bell);
/* Wakes sleepers. Call it after publishing. */
void df_bell_ring(struct df_bell *bell);

#endif
