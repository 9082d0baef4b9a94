/*
 * Between stream.c, event.c and sync.c: the hooks by which CUDA calls meet operations in flight. Private to
 * them.
 */
#ifndef DF_RUNTIME_ORDER_STREAM_H
#define DF_RUNTIME_ORDER_STREAM_H

#include "runtime/rt.h"

/* NULL: a device without communicators. */
struct df_dev *df_stream_dev(int device);
/* What we know of a stream; NULL: nothing. */
struct df_stream *df_stream_of(const struct df_stream_info *info);
/*
 * The same, before something is put on it: with what the legacy default stream made it come after; the legacy
 * stream itself with what the blocking streams did. Takes dev->lock.
 */
struct df_stream *df_stream_behind(struct df_dev *dev, const struct df_stream_info *info);
/* Puts waits for what s must not run ahead of on its stream aside. dev->lock held, dropped meanwhile. */
int df_stream_follow_aside(struct df_stream *s);
/* There are operations that the stream does not wait for yet. dev->lock held. */
int df_stream_unfenced(struct df_stream *s);

/* Something is in flight on the device. */
static inline int df_dev_busy(const struct df_dev *dev)
{
	/* RELAXED: what another thread submits at the same time has no order with this. */
	return __atomic_load_n(&dev->exec.issued, __ATOMIC_RELAXED) !=
	       __atomic_load_n(&dev->exec.retired, __ATOMIC_RELAXED);
}

/* event.c */
int df_hook_event_record(const struct df_event_info *info, const struct df_stream_info *si);
void df_hook_event_wait(const struct df_stream_info *si, const struct df_event_info *info);
int df_hook_event_time(const struct df_event_info *info, void **event);
int df_hook_event_query(const struct df_event_info *info);
void df_hook_event_sync(const struct df_event_info *info);
void df_hook_event_destroy(const struct df_event_info *info);

/*
 * sync.c: a thread is in one wait at most; opened by a hook, closed by sync_done. site: df_trace_caller(), asked with no
 * lock held.
 */
void df_sync_enter(uint32_t call, int device, uint64_t object, uint32_t site);
/*
 * Waits for what is in the set now, with the daemon's help; the lock is not held meanwhile. It polls a copy:
 * the lock in every look would cost more than the look.
 */
void df_sync_wait(struct df_dev *dev, struct df_flights *from);
int df_sync_ready(void *set); /* for df_host_wait(): a struct df_flights */
void df_hook_sync_done(int device);
void df_hook_stream_sync(const struct df_stream_info *info);
int df_hook_stream_query(const struct df_stream_info *info);
int df_hook_device_sync(int device, enum df_sync_kind kind, const void *ptr);
int df_hook_sync_copy(const struct df_stream_info *info, const struct df_touch *t);

#endif
