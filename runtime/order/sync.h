/*
 * Waits of the application's threads for streams, devices and copies. A thread is in at most one
 * wait: df_sync_enter() opens it in a hook, df_hook_sync_done() closes it.
 */
#ifndef DF_RUNTIME_ORDER_SYNC_H
#define DF_RUNTIME_ORDER_SYNC_H

#include <stdint.h>

#include "runtime/backend.h"

struct df_dev;
struct df_flights;
struct df_stream;

/* Opens a wait. `site` is from df_trace_caller(), which was called with no lock held. */
void df_sync_enter(uint32_t call, int device, uint64_t object, uint32_t site);

/*
 * Waits, while driving the daemon, for the operations that are in the set now. Polls a copy of the
 * set without the lock, because taking the lock for each poll would cost more than the poll.
 */
void df_sync_wait(struct df_dev *dev, struct df_flights *from);

/*
 * Waits until all operations of the set are done. The watchdog sees this wait. The set belongs to
 * the caller, so no lock is needed.
 */
void df_sync_set(struct df_dev *dev, struct df_flights *set);
/* Condition for df_host_wait(): whether all operations of a struct df_flights are done. */
int df_sync_ready(void *set);
void df_hook_sync_done(int device);
/* Waits until a full stream (df_stream_filled()) has space for more entries. */
void df_sync_room(struct df_stream *s);
void df_hook_stream_sync(const struct df_stream_info *info);
int df_hook_stream_query(const struct df_stream_info *info);
int df_hook_device_sync(int device, enum df_sync_kind kind, const void *ptr);
int df_hook_sync_copy(const struct df_stream_info *info, const struct df_touch *t);

#endif
