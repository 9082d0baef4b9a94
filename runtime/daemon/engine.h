/*
 * The runtime's side of executing blocks, whatever executes them. Any thread, with no lock of ours
 * held unless stated.
 */
#ifndef DF_RUNTIME_DAEMON_ENGINE_H
#define DF_RUNTIME_DAEMON_ENGINE_H

#include <stdint.h>

struct df_block_hooks;
struct df_dev;
struct df_executor;

void df_engine_start(void);
/* The submitting thread itself begins an operation of at most this many bytes (first_turns()). */
#define DF_FIRST_TURNS_BYTES 4096
extern const struct df_block_hooks df_engine_hooks;
extern const struct df_executor df_daemon_executor; /* engine_executor.c */
/* Waits until ready(arg). Drives the daemons meanwhile. */
void df_engine_wait(struct df_dev *dev, int (*ready)(void *arg), void *arg);
/*
 * Returns when no thread executes an aborted collective of the device any more: 0, or -EBUSY if a
 * kernel did not stop in time and may still access what its collectives use.
 */
int df_engine_purge(struct df_dev *dev);
/*
 * Returns a number that changes when anything makes progress on the device, or on any device if dev
 * is NULL.
 */
uint64_t df_engine_progress(const struct df_dev *dev);

#endif
