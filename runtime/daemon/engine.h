/*
 * The runtime's side of executing blocks, whoever does it. Any thread, no lock of ours held unless said.
 */
#ifndef DF_RUNTIME_DAEMON_ENGINE_H
#define DF_RUNTIME_DAEMON_ENGINE_H

#include <stdint.h>

struct df_block_hooks;
struct df_dev;
struct df_executor;

void df_engine_start(void);
/* An operation of no more bytes is begun by the thread that submits it (first_turns()). */
#define DF_FIRST_TURNS_BYTES 4096
extern const struct df_block_hooks df_engine_hooks;
extern const struct df_executor df_daemon_executor; /* executor.c */
/* Waits until ready(arg); drives the daemons meanwhile. call: what the trace and the watchdog see. */
void df_engine_wait(struct df_dev *dev, int (*ready)(void *arg), void *arg);
/* Returns when no thread executes an aborted collective of the device any more. */
void df_engine_purge(struct df_dev *dev);
/* A number that changes when anything moves on the device; dev NULL: on any device. */
uint64_t df_engine_progress(const struct df_dev *dev);

#endif
