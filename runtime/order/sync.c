/*
 * Waits of the application's threads for streams, devices and copies. A thread waits here for our
 * operations, while driving the daemon, before CUDA waits for the rest.
 */
#include <stdlib.h>
#include <string.h>
#include "runtime/backend.h"
#include "runtime/executor.h"
#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/list.h"
#include "runtime/base/lock.h"
#include "runtime/base/log.h"
#include "runtime/comm/flights.h"
#include "runtime/comm/polls.h"
#include "runtime/comm/process.h"
#include "runtime/devs.h"
#include "runtime/dfshim.h"
#include "runtime/order/frees.h"
#include "runtime/order/stream.h"
#include "runtime/order/sync.h"
#include "runtime/watch/debt.h"
#include "runtime/watch/release.h"
#include "trace/record/format.h"
#include "trace/record/site.h"
#include "trace/record/writer.h"

/*
 * The wait that this thread is in. A hook opens it. df_hook_sync_done() closes it when CUDA's own
 * part is over, too.
 */
static __thread struct {
	uint64_t serial;
	uint32_t call;
} waiting;

void df_sync_enter(uint32_t call, int device, uint64_t object, uint32_t site)
{
	waiting.call = call;
	waiting.serial = df_call_enter(call, device, object, 0, site);
}

void df_hook_sync_done(int device)
{
	if (!waiting.serial)
		return;
	df_call_exit(waiting.serial, waiting.call, device, 0);
	waiting.serial = 0;
}

int df_sync_ready(void *arg)
{
	return df_flights_done(arg);
}

struct shared_set {
	struct df_dev *dev;
	struct df_flights *set;
};

static int shared_ready(void *arg)
{
	const struct shared_set *w = arg;
	int ready;

	df_mutex_lock(&w->dev->lock);
	ready = df_flights_done(w->set);
	df_mutex_unlock(&w->dev->lock);
	return ready;
}

void df_sync_wait(struct df_dev *dev, struct df_flights *from)
{
	struct df_flight few[8];
	struct df_flights copy = {.v = few};
	struct shared_set shared = {dev, from};

	df_mutex_lock(&dev->lock);
	df_flights_prune(from);
	copy.nr = from->nr;
	if (copy.nr > DF_ARRAY_LEN(few))
		copy.v = malloc(copy.nr * sizeof(*copy.v));
	if (copy.v && copy.nr)
		memcpy(copy.v, from->v, copy.nr * sizeof(*copy.v));
	df_mutex_unlock(&dev->lock);
	if (copy.v)
		df_host_wait(dev, waiting.call, waiting.serial, df_sync_ready, &copy);
	else
		df_host_wait(dev, waiting.call, waiting.serial, shared_ready, &shared);
	if (copy.v != few)
		free(copy.v);
}

void df_sync_set(struct df_dev *dev, struct df_flights *set)
{
	df_host_wait(dev, waiting.call, waiting.serial, df_sync_ready, set);
}

/*
 * Waits for the operations that the stream itself waits for. This wait is never released, because
 * the driver would block instead.
 */
static void wait_fenced(struct df_stream *s)
{
	struct df_flights set = {0};
	int ret;

	df_mutex_lock(&s->dev->lock);
	df_flights_prune(&s->pending);
	ret = df_flights_join_part(&set, &s->pending, 0, s->fenced);
	df_mutex_unlock(&s->dev->lock);
	if (ret)
		df_warn_once(
			"out of memory: the driver may block while streams wait for collectives");
	df_sync_set(s->dev, &set);
	df_flights_free(&set);
}

/*
 * Waits until a stream that waits for operations has fewer entries queued after them. If more
 * entries were enqueued, the driver would block, perhaps while holding a lock that the daemon's
 * launch needs. The watchdog sees this wait.
 */
void df_sync_room(struct df_stream *s)
{
	/* This thread may be in a wait that is already recorded. */
	int nested = waiting.serial != 0;

	if (!nested)
		df_sync_enter(DF_CALL_STREAM_SYNC, s->dev->index, s->info.id, df_trace_caller());
	wait_fenced(s);
	if (!nested)
		df_hook_sync_done(s->dev->index);
}

/* ---- streams --------------------------------------------------------------------------------- */

void df_hook_stream_sync(const struct df_stream_info *info)
{
	struct df_stream *s = df_stream_of(info);
	struct df_dev *dev = df_stream_dev(info->device);

	if (df_unlikely(df_record_inside))
		return;
	/* After a released wait, any stream may be waiting for skipped operations (debt.h). */
	if ((!dev || (!s && !info->legacy)) && !df_debt_any())
		return;
	df_sync_enter(DF_CALL_STREAM_SYNC, info->device, info->id, df_trace_caller());
	if (info->legacy && dev)
		s = df_stream_behind(dev, info);
	if (s)
		/* The call of CUDA that follows waits for the rest of the stream's work. */
		df_sync_wait(dev, &s->pending);
}

int df_hook_stream_query(const struct df_stream_info *info)
{
	struct df_stream *s = df_stream_of(info);
	struct df_dev *dev = df_stream_dev(info->device);
	int ready = 1;

	if (df_unlikely(df_record_inside))
		return 0;
	if (!dev || (!s && !info->legacy)) {
		df_polls_ask(DF_POLLED_STREAM);
		return 0;
	}
	/*
	 * This is noted even if CUDA does the waiting, because the stream itself may wait for
	 * operations.
	 */
	df_polls_note(DF_POLLED_STREAM, info->id);
	df_executor->pass(dev->index);
	df_mutex_lock(&dev->lock);
	if (s)
		ready = df_flights_done(&s->pending);
	/* The legacy stream is done only when all blocking streams are done. */
	if (info->legacy)
		df_list_each(s, &dev->streams, node) ready &=
			!s->info.blocking || df_flights_done(&s->pending);
	df_mutex_unlock(&dev->lock);
	return !ready;
}

/* ---- the whole device ------------------------------------------------------------------------ */

int df_hook_device_sync(int device, enum df_sync_kind kind, const void *ptr)
{
	static const uint32_t calls[DF_SYNC_NR] = {
		[DF_SYNC_DEVICE] = DF_CALL_DEVICE_SYNC,
		[DF_SYNC_FREE] = DF_CALL_FREE,
		[DF_SYNC_HOST_ALLOC] = DF_CALL_HOST_ALLOC,
		[DF_SYNC_HOST_REGISTER] = DF_CALL_HOST_REGISTER,
		[DF_SYNC_MEMCPY] = DF_CALL_MEMCPY,
		[DF_SYNC_RESET] = DF_CALL_DEVICE_RESET,
	};
	struct df_dev *dev = df_stream_dev(device);
	struct df_flights set = {0};
	uint32_t site;
	int released, implicit = kind != DF_SYNC_DEVICE && kind != DF_SYNC_RESET &&
				 kind != DF_SYNC_MEMCPY;

	if (df_unlikely(df_record_inside))
		return 0;
	if (!dev) {
		if (kind == DF_SYNC_DEVICE && df_debt_any())
			df_sync_enter(calls[kind], device, 0, df_trace_caller());
		return 0;
	}
	/*
	 * CUDA does not promise this implicit synchronisation, and the backend's memory calls need
	 * no idle device.
	 */
	if (implicit)
		return 1;
	if (kind == DF_SYNC_MEMCPY) {
		/*
		 * If df_hook_sync_copy() opened the wait, our operations are already waited for, or
		 * the wait was released.
		 */
		if (!waiting.serial)
			df_sync_enter(DF_CALL_MEMCPY, device, (uintptr_t)ptr, df_trace_caller());
		return 0;
	}
	/*
	 * The record is written while the lock is held, so that the checker takes the wait to be
	 * for exactly this set although other threads keep submitting operations.
	 */
	site = df_trace_caller();
	df_mutex_lock(&dev->lock);
	df_executor->in_flight(dev, &set);
	df_sync_enter(calls[kind], device, (uintptr_t)ptr, site);
	df_mutex_unlock(&dev->lock);
	released = df_host_wait(dev, calls[kind], waiting.serial, df_sync_ready, &set);
	df_flights_free(&set);
	if (released)
		df_hook_sync_done(device);
	return released;
}

/*
 * The hook for a copy on the legacy stream that blocks the caller. CUDA makes such a copy wait for
 * all blocking streams. Here the thread, not the streams, waits for our operations, so that the
 * wait can be released (runtime/watch/release.c).
 */
int df_hook_sync_copy(const struct df_stream_info *info, const struct df_touch *t)
{
	struct df_dev *dev = df_stream_dev(info->device);
	struct df_flights set = {0};
	struct df_stream *s;
	int ret = 0, released = 0;

	if (!dev)
		return 0;
	df_mutex_lock(&dev->lock);
	df_list_each(s, &dev->streams, node)
	{
		if (!s->info.blocking && !s->info.legacy)
			continue;
		df_flights_prune(&s->pending);
		ret |= df_flights_join(&set, &s->pending);
	}
	df_mutex_unlock(&dev->lock);
	if (!ret && set.nr) {
		df_sync_enter(DF_CALL_MEMCPY, info->device, t ? t->out : 0, df_trace_caller());
		released = df_host_wait_copy(dev, waiting.serial, t, df_sync_ready, &set);
	}
	df_flights_free(&set);
	return released;
}
