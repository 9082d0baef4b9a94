/*
 * Streams and events of the application that carry or follow collectives, and the hooks by which CUDA calls meet
 * operations in flight (struct df_hooks). Guarded by the lock of their device. The second part is between stream.c,
 * event.c and sync.c.
 */
#ifndef DF_RUNTIME_ORDER_STREAM_H
#define DF_RUNTIME_ORDER_STREAM_H

#include <stdint.h>
#include "runtime/backend.h"
#include "runtime/base/list.h"
#include "runtime/coll/words.h"
#include "runtime/daemon/dev.h"
#include "runtime/order/flights.h"

struct df_comm;

/* A stream that has carried a collective; hangs on df_stream_info.user. */
struct df_stream {
	struct df_list node;
	struct df_dev *dev;
	struct df_stream_info info;
	struct df_flights pending; /* what the stream must not run ahead of */
	uint64_t fenced;	   /* those up to here (df_flight.at) it waits for already */
	uint64_t met;		   /* the legacy stream has taken over those up to here */
	uint64_t
		legacy_seen; /* of the legacy stream's it has taken over those up to here; also read without the lock */
	struct df_mark ready;
	uint32_t users;	 /* other threads that enqueue waits on it */
	uint32_t behind; /* entries that were put on it while it waited for operations */
	/* A stream of our own that is behind this one and what it must not run ahead of: for times of events. */
	struct df_mstream *aside;
	struct df_mark aside_mark; /* written behind each event */
};

/* An event recorded behind operations in flight; hangs on df_event_info.user. */
struct df_event {
	struct df_list node;
	struct df_dev *dev;
	struct df_flights pending;
	uint64_t record; /* serial of the last record */
	/*
	 * An event of our own that is recorded when the operations are done, for its time; that has happened when the
	 * word has the value. word NULL: the application's event has the time.
	 */
	void *timed;
	uint64_t *word, value;
};

extern const struct df_hooks df_stream_hooks;
/* The graph launch that the calling thread is in: its stream, and a serial that all its operations share. */
void df_stream_launching(uint64_t *stream, uint64_t *launch);
struct df_stream *df_stream_get(struct df_dev *dev,
				const struct df_stream_info *info); /* dev->lock */
/* Makes the stream wait now for everything it must not run ahead of. Takes dev->lock. */
void df_stream_fence(struct df_stream *s);
/*
 * Something is about to be put on the legacy default stream s: it takes over what the blocking streams must not
 * run ahead of. A second legacy stream of the device (of another context): -EINVAL. dev->lock
 */
int df_stream_meet(struct df_stream *s);
/* It is the one of its device that df_stream_meet() serves. Takes dev->lock. */
int df_stream_is_legacy(struct df_dev *dev, const struct df_stream_info *info);
/* The legacy stream's set has changed. dev->lock */
void df_stream_legacy_note(struct df_stream *s);
/* Under strict order instead: all streams that the legacy stream waits for are made to wait. Takes dev->lock. */
void df_stream_fence_blocking(struct df_dev *dev);
void df_stream_forget_comm(struct df_comm *comm);

/* ---- between stream.c, event.c and sync.c */

/* NULL: a device without communicators. */
struct df_dev *df_stream_dev(int device);
/* What we know of a stream; NULL: nothing. */
struct df_stream *df_stream_of(const struct df_stream_info *info);
/*
 * The same, before something is put on it: with what the legacy default stream made it come after; the legacy
 * stream itself with what the blocking streams did. Takes dev->lock.
 */
struct df_stream *df_stream_behind(struct df_dev *dev, const struct df_stream_info *info);
/* Lets the stream wait for a word. dev->lock held, dropped meanwhile. */
int df_stream_wait(struct df_dev *dev, struct df_mstream *on, const uint64_t *word, uint64_t value);
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
/* Waits until all of them are done, where it can be seen; a set of the caller's, no lock. */
void df_sync_set(struct df_dev *dev, struct df_flights *set);
int df_sync_ready(void *set); /* for df_host_wait(): a struct df_flights */
void df_hook_sync_done(int device);
/* So many entries of a stream that waits are put there; the driver has room for 1,024 and blocks then. */
#define DF_STREAM_ROOM 512
/* Something was put on it, or will be; dev->lock. 1: it is full: df_sync_room(), without the lock, before more. */
int df_stream_filled(struct df_stream *s);
void df_sync_room(struct df_stream *s);
void df_hook_stream_sync(const struct df_stream_info *info);
int df_hook_stream_query(const struct df_stream_info *info);
int df_hook_device_sync(int device, enum df_sync_kind kind, const void *ptr);
int df_hook_sync_copy(const struct df_stream_info *info, const struct df_touch *t);

#endif
