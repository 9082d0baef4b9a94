/*
 * Bells (struct df_bell, kernels/abi.h): how a process that sleeps learns that a peer has moved something. Any thread;
 * none of these holds a lock.
 */
#ifndef DF_RUNTIME_TRANSPORT_BELL_H
#define DF_RUNTIME_TRANSPORT_BELL_H

#include <stdint.h>
#include "kernels/abi.h"

/* Counts the caller among the sleepers until disarm; what df_bell_sleep() takes as seen. Look once more after it. */
uint32_t df_bell_arm(struct df_bell *bell);
/* Until it rings, or the time-out. */
void df_bell_sleep(struct df_bell *bell, uint32_t seen, int64_t timeout_ns);
void df_bell_disarm(struct df_bell *bell);
/* After something was published: wakes who sleeps. */
void df_bell_ring(struct df_bell *bell);

#endif
