/*
 * The application's streams and events that carry or follow collectives, and the hooks through
 * which CUDA calls are ordered with operations in flight (struct df_hooks). The state is guarded by
 * the lock of its device. The second part is private to stream.c, event.c and sync.c.
 */
#ifndef DF_RUNTIME_ORDER_STREAM_H
#define DF_RUNTIME_ORDER_STREAM_H

#include <stdint.h>
#include "runtime/backend.h"
#include "runtime/base/list.h"
#include "runtime/devs.h"
#include "runtime/executor.h"
#include "runtime/comm/flights.h"

struct df_comm;

/* A stream that has carried a collective. df_stream_info.user points to it. */
struct df_stream {
	struct df_list node;
	struct df_dev *dev;
	struct df_stream_info info;
	struct df_flights pending; /* operations that the stream must not overtake */
	/* the stream already waits for the operations with df_flight.at up to this value */
	uint64_t fenced;
	/* the legacy stream has taken over the operations up to this one */
	uint64_t met;
	/*
	 * The stream has taken over the legacy stream's operations up to this one. Also read
	 * without the lock.
	 */
	uint64_t legacy_seen;
	struct df_mark ready;
	uint32_t users; /* number of other threads that are enqueueing waits on it */
	/* number of entries enqueued on the stream since it began to wait for operations */
	uint32_t behind;
	/*
	 * The side stream, a stream of ours. It follows this stream and its pending operations, to
	 * give events their times.
	 */
	struct df_mstream *aside;
	struct df_mark aside_mark; /* written on the side stream after each event */
};

/* An event recorded after operations in flight. df_event_info.user points to it. */
struct df_event {
	struct df_list node;
	struct df_dev *dev;
	struct df_flights pending;
	struct df_flights held; /* the operations that its stream waited for when it was recorded */
	uint64_t record;	/* serial of the last record */
	/*
	 * For the event's time: an event of ours, recorded on the side stream when the operations
	 * are done. That has happened once *word has reached `value`. If `word` is NULL, the
	 * application's own event has the time.
	 */
	void *timed;
	uint64_t *word, value;
};

extern const struct df_hooks df_stream_hooks;
/*
 * The graph launch that the calling thread is in: its stream, that stream's number, and the serial
 * that its operations share.
 */
struct df_mstream *df_stream_launching(uint64_t *stream, uint64_t *launch);
struct df_stream *df_stream_get(struct df_dev *dev,
				/*
				 * Returns our state of a stream; creates it if there is none.
				 * Returns NULL if memory is short. The caller holds dev->lock.
				 */
				const struct df_stream_info *info);
/* Makes the stream wait now for all of its pending operations. Takes dev->lock. */
void df_stream_fence(struct df_stream *s);
/*
 * Call before something is enqueued on the legacy default stream s: s takes over the pending
 * operations of the blocking streams. Returns 0, or -EINVAL if the device has another legacy stream
 * (of another context). The caller holds dev->lock.
 */
int df_stream_meet(struct df_stream *s);
/* Whether this is the device's legacy stream, which df_stream_meet() accepts. Takes dev->lock. */
int df_stream_is_legacy(struct df_dev *dev, const struct df_stream_info *info);
/*
 * Call when the pending set of s has changed: publishes the set if s is the legacy stream. The
 * caller holds dev->lock.
 */
void df_stream_legacy_note(struct df_stream *s);
/*
 * Strict order's substitute for df_stream_meet(): makes all blocking streams wait now for their
 * pending operations. Takes dev->lock.
 */
void df_stream_fence_blocking(struct df_dev *dev);

/* ---- between stream.c, event.c and sync.c */

/* Returns our state of a device, or NULL if the device has no communicators. */
struct df_dev *df_stream_dev(int device);
/* Returns our state of a stream, or NULL. */
struct df_stream *df_stream_of(const struct df_stream_info *info);
/*
 * As df_stream_of(), for use before something is enqueued on the stream. A blocking stream first
 * takes over the operations that the legacy stream must not overtake. The legacy stream takes over
 * those of the blocking streams. Takes dev->lock.
 */
struct df_stream *df_stream_behind(struct df_dev *dev, const struct df_stream_info *info);
/*
 * Makes the stream wait for a word. of: the stream that writes it; NULL: that stream is gone. The
 * caller holds dev->lock, which is dropped meanwhile.
 */
int df_stream_wait(struct df_dev *dev, struct df_mstream *on, const struct df_stream *of,
		   const uint64_t *word, uint64_t value);
/*
 * Makes the side stream of s wait for the pending operations of s. Returns 0 or -errno. The caller
 * holds dev->lock, which is dropped meanwhile.
 */
int df_stream_follow_aside(struct df_stream *s);
/*
 * Whether the stream has pending operations that it does not wait for yet. The caller holds
 * dev->lock.
 */
int df_stream_unfenced(struct df_stream *s);

/*
 * Limit of entries on a stream that waits. The driver has space for 1,024 and blocks when they are
 * used up.
 */
#define DF_STREAM_ROOM 512
/*
 * Call when an entry was enqueued on the stream, or is about to be. Returns 1 if the stream is
 * full: the caller then drops the lock and calls df_sync_room() before it enqueues more. The caller
 * holds dev->lock.
 */
int df_stream_filled(struct df_stream *s);

#endif
