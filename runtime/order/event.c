/*
 * Implements the hooks for events. An event that is recorded after operations in flight stays
 * virtual: it is recorded natively at the stream's position and carries the set of operations. A
 * stream or thread that waits for it inherits the set.
 *
 * The time of such an event is the end of its last operation. It is measured by an event of ours on
 * a side stream, which waits for the stream's position and for the operations;
 * cudaEventElapsedTime() is given our event. While the side stream is behind, later events of the
 * stream get their times there too, so that times on one stream never decrease.
 *
 * All state is reached by df_event_info.user and guarded by the device's lock.
 */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include "runtime/backend.h"
#include "runtime/executor.h"
#include "runtime/base/env.h"
#include "runtime/base/list.h"
#include "runtime/base/lock.h"
#include "runtime/base/log.h"
#include "runtime/base/time.h"
#include "runtime/comm/flights.h"
#include "runtime/comm/polls.h"
#include "runtime/comm/process.h"
#include "runtime/devs.h"
#include "runtime/dfshim.h"
#include "runtime/order/event.h"
#include "runtime/order/stream.h"
#include "runtime/order/sync.h"
#include "runtime/order/waits.h"
#include "trace/record/format.h"
#include "trace/record/site.h"
#include "trace/record/writer.h"

static struct df_event *event_of(const struct df_event_info *info)
{
	/*
	 * ACQUIRE pairs with the RELEASE in event_get(): without it the event could be read before
	 * it is initialised.
	 */
	return info->user ? __atomic_load_n((struct df_event **)info->user, __ATOMIC_ACQUIRE)
			  : NULL;
}

static struct df_event *event_get(struct df_dev *dev, const struct df_event_info *info)
{
	struct df_event *e = *info->user;

	if (e)
		return e;
	e = calloc(1, sizeof(*e));
	if (!e)
		return NULL;
	e->dev = dev;
	df_list_add_tail(&dev->events, &e->node);
	/*
	 * RELEASE pairs with the ACQUIRE in event_of(): without it another thread could read the
	 * event before it is initialised.
	 */
	__atomic_store_n((struct df_event **)info->user, e, __ATOMIC_RELEASE);
	return e;
}

/* Whether the word has been written, or there is no word to wait for. */
static int is_past(const uint64_t *word, uint64_t value)
{
	/*
	 * ACQUIRE pairs with the stream's write: without it the event recorded before the write
	 * could seem to have no time.
	 */
	return !word || __atomic_load_n(word, __ATOMIC_ACQUIRE) >= value;
}

/*
 * Makes the stream's side stream and our event, unless they exist. Called without the lock, because
 * the driver may take long. Returns 0 or -errno.
 */
static int have_aside(struct df_stream *s, struct df_event *e)
{
	struct df_dev *dev = s->dev;
	struct df_stream_info aside;
	void *timed = NULL;
	int ret = 0;

	if (!e->timed) {
		ret = df_backend->event_new(dev->index, &timed);
		if (ret)
			return ret;
	}
	if (!s->aside)
		ret = df_backend->stream_new(dev->index, &aside);
	df_mutex_lock(&dev->lock);
	if (timed && !e->timed) {
		e->timed = timed;
		timed = NULL;
	}
	if (!ret && !s->aside) {
		ret = df_executor->mark_init(&s->aside_mark, NULL);
		if (!ret) {
			s->aside = aside.stream;
			aside.stream = NULL;
		}
	} else {
		aside.stream = NULL;
	}
	df_mutex_unlock(&dev->lock);
	if (timed)
		df_backend->event_delete(timed);
	if (aside.stream)
		df_backend->stream_delete(aside.stream);
	return ret;
}

/*
 * Records our event on the side stream, after the stream's position and its pending operations.
 * Returns 0 or -errno.
 */
static int record_aside(struct df_stream *s, struct df_event *e)
{
	struct df_dev *dev = s->dev;
	int ret = have_aside(s, e), idle;
	uint64_t value;

	if (ret)
		return ret;
	idle = df_backend->stream_idle(s->info.stream);
	df_mutex_lock(&dev->lock);
	if (!idle) {
		ret = df_executor->mark(&dev->lock, &s->ready, s->info.stream, &value);
		if (!ret)
			ret = df_stream_wait(dev, s->aside, s, s->ready.word, value);
	}
	if (!ret)
		ret = df_stream_follow_aside(s);
	df_mutex_unlock(&dev->lock);
	if (!ret)
		ret = df_backend->event_record(e->timed, s->aside);
	df_mutex_lock(&dev->lock);
	if (!ret)
		ret = df_executor->mark(&dev->lock, &s->aside_mark, s->aside, &value);
	if (!ret) {
		e->word = s->aside_mark.word;
		e->value = value;
	}
	df_mutex_unlock(&dev->lock);
	return ret;
}

/*
 * Called when the stream waits for an event whose time is not known yet, because it is measured on
 * the side stream of another stream. Makes the stream's own side stream wait for that event, too,
 * so that an event after this wait gets no earlier time. Returns 0 or -errno.
 */
static int follow_time(struct df_stream *s, struct df_event *e)
{
	struct df_flights before = {0};
	struct df_dev *dev = s->dev;
	uint64_t *word, value;
	int ret;

	df_mutex_lock(&e->dev->lock);
	word = e->word;
	value = e->value;
	ret = df_flights_join(&before, &e->held) | df_flights_join(&before, &e->pending);
	df_mutex_unlock(&e->dev->lock);
	if (!ret && !is_past(word, value) && word != s->aside_mark.word) {
		ret = have_aside(s, e);
		if (!ret)
			ret = df_waits_word(dev->index, s->aside, &before, word, value);
	} else {
		word = NULL;
	}
	df_flights_free(&before);
	if (ret || !word)
		return ret;
	df_mutex_lock(&dev->lock);
	/* From here on the side stream is behind. */
	if (!ret)
		ret = df_executor->mark(&dev->lock, &s->aside_mark, s->aside, &value);
	df_mutex_unlock(&dev->lock);
	return ret;
}

/* Clears the state of the event's last record. The caller holds dev->lock. */
static void forget(struct df_event *e)
{
	e->pending.nr = 0;
	e->held.nr = 0;
	e->word = NULL;
}

int df_hook_event_record(const struct df_event_info *info, const struct df_stream_info *si)
{
	struct df_event *e = event_of(info);
	struct df_dev *dev = df_stream_dev(si->device);
	struct df_flights held = {0};
	int plain = df_rt.strict;
	int strict = 0, timed = 0;
	struct df_stream *s;

	if (df_unlikely(df_record_inside))
		return 0;
	df_polls_act();
	if (!dev || si->capturing)
		return 0;
	s = si->legacy && !df_dev_busy(dev) ? df_stream_of(si) : df_stream_behind(dev, si);
	if (!s && !e)
		return 0;
	if (s && (info->ipc || (info->timing && plain) ||
		  (si->legacy && (plain || !df_stream_is_legacy(dev, si)))))
		/*
		 * The native event must be exact if other processes, the times of all events, or
		 * several streams use it. So make the stream wait for its operations first.
		 */
		df_stream_fence(s);
	df_waits_collect(si->device, si->stream, &held);
	df_mutex_lock(&dev->lock);
	if (e)
		forget(e);
	if (s && !plain && info->timing && !info->ipc)
		timed = df_stream_unfenced(s) || !is_past(s->aside_mark.word, s->aside_mark.seq);
	if (s && (timed || df_stream_unfenced(s))) {
		e = event_get(dev, info);
		strict =
			!e || df_flights_join_part(&e->pending, &s->pending, s->fenced, UINT64_MAX);
	}
	/* Without memory for them a stream that waits for the event is not counted. */
	if (held.nr)
		e = event_get(dev, info);
	if (held.nr && e)
		(void)df_flights_join(&e->held, &held);
	df_mutex_unlock(&dev->lock);
	df_flights_free(&held);
	if (timed && !strict)
		strict = record_aside(s, e) != 0;
	if (strict)
		df_stream_fence(
			s); /* no memory to remember the set: strict order is always correct */
	df_trace(DF_REC_EVENT_RECORD, si->device, 0, -1, 0, info->id, df_trace_serial(), si->id, 0);
	return 0;
}

void df_hook_event_wait(const struct df_stream_info *si, const struct df_event_info *info)
{
	struct df_event *e = event_of(info);
	struct df_dev *dev = df_stream_dev(si->device);
	struct df_flights set = {0}, held = {0};
	struct df_stream *s = NULL;
	int ret = 0, plain = df_rt.strict;

	if (df_unlikely(df_record_inside))
		return;
	df_polls_act();
	if (!e) {
		/*
		 * No operation of ours precedes the event, but the checker needs to know what it
		 * orders; and other streams may follow this stream, so its later work is traced
		 * too.
		 */
		if (dev && !si->capturing) {
			df_mutex_lock(&dev->lock);
			df_stream_get(dev, si);
			df_mutex_unlock(&dev->lock);
			df_trace(DF_REC_EVENT_WAIT, si->device, 0, -1, 0, info->id, 0, si->id, 0);
		}
		return;
	}
	df_mutex_lock(&e->dev->lock);
	df_flights_prune(&e->pending);
	ret = df_flights_join(&set, &e->pending);
	if (!si->capturing)
		(void)df_flights_join(&held, &e->held);
	df_mutex_unlock(&e->dev->lock);
	if (dev && !ret) {
		df_mutex_lock(&dev->lock);
		s = df_stream_get(dev, si);
		ret = s ? df_flights_join(&s->pending, &set) : -ENOMEM;
		if (!ret)
			df_stream_legacy_note(s);
		df_mutex_unlock(&dev->lock);
	}
	if (!dev || ret) {
		/*
		 * Without our streams on the device, or without memory, the stream waits for the
		 * operations at once.
		 */
		df_waits_put(si->device, si->stream, set.v, set.nr);
	} else if (si->legacy && (plain || !df_stream_is_legacy(dev, si))) {
		/* From now on the blocking streams wait for the event. */
		df_stream_fence(s);
	} else if (!plain && follow_time(s, e)) {
		df_warn_once("the time of an event may be earlier than that of an event that it "
			     "waits for");
	}
	df_trace(DF_REC_EVENT_WAIT, si->device, 0, -1, 0, info->id, e->record, si->id, 0);
	/* The driver makes the stream wait for the event, and so for what the event is behind. */
	df_waits_note(si->device, si->stream, NULL, held.v, held.nr);
	df_flights_free(&held);
	df_flights_free(&set);
}

int df_hook_event_query(const struct df_event_info *info)
{
	struct df_event *e = event_of(info);
	int ready;

	if (df_unlikely(df_record_inside))
		return 0;
	/*
	 * This is noted even if CUDA does the waiting, because the stream itself may wait for
	 * operations.
	 */
	if (df_stream_dev(info->device))
		df_polls_note(DF_POLLED_EVENT, info->id);
	else
		df_polls_ask(DF_POLLED_EVENT);
	if (!e)
		return 0;
	df_mutex_lock(&e->dev->lock);
	ready = df_flights_done(&e->pending);
	df_mutex_unlock(&e->dev->lock);
	if (ready)
		return 0;
	df_executor->pass(e->dev->index);
	return 1;
}

/*
 * Limit of the wait for the side stream, which has nothing left to wait for and gets there in a
 * moment unless a hardware queue blocks it. The limit is far longer than a busy machine needs,
 * because "not ready" is a wrong answer for an event that has been waited for.
 */
#define ASIDE_NS (10000 * DF_NS_PER_MS)

int df_hook_event_time(const struct df_event_info *info, void **event)
{
	struct df_event *e = event_of(info);
	uint64_t value, since;
	uint64_t *word;

	*event = info->event;
	if (!e)
		return 0;
	if (df_hook_event_query(info))
		return 1;
	df_mutex_lock(&e->dev->lock);
	word = e->word;
	value = e->value;
	if (word)
		*event = e->timed;
	df_mutex_unlock(&e->dev->lock);
	for (since = df_now_ns(); !is_past(word, value); sched_yield()) {
		if (df_now_ns() - since > ASIDE_NS)
			return 1;
		df_executor->pass(e->dev->index);
	}
	return 0;
}

void df_hook_event_sync(const struct df_event_info *info)
{
	struct df_event *e = event_of(info);

	if (df_unlikely(df_record_inside))
		return;
	if (!df_stream_dev(info->device))
		return;
	df_sync_enter(DF_CALL_EVENT_SYNC, info->device, info->id, df_trace_caller());
	if (e)
		df_sync_wait(e->dev, &e->pending);
}

void df_hook_event_destroy(const struct df_event_info *info)
{
	struct df_event *e = event_of(info);

	if (!e)
		return;
	df_mutex_lock(&e->dev->lock);
	df_list_del(&e->node);
	df_mutex_unlock(&e->dev->lock);
	if (e->timed)
		df_backend->event_delete(e->timed);
	df_flights_free(&e->pending);
	df_flights_free(&e->held);
	free(e);
	*info->user = NULL;
}
