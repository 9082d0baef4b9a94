/*
 * Keeps track of the operations in flight that the application's streams must not overtake. A
 * stream is made to wait for an operation only when work is enqueued on it that could notice that
 * the operation is unfinished.
 *
 * All state is reached by df_stream_info.user and guarded by the device's lock.
 */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include "kernels/abi.h"
#include "runtime/backend.h"
#include "runtime/executor.h"
#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/list.h"
#include "runtime/base/lock.h"
#include "runtime/base/log.h"
#include "runtime/comm/comm.h"
#include "runtime/comm/flights.h"
#include "runtime/comm/polls.h"
#include "runtime/comm/process.h"
#include "runtime/devs.h"
#include "runtime/dfshim.h"
#include "runtime/order/event.h"
#include "runtime/order/frees.h"
#include "runtime/order/order.h"
#include "runtime/order/stream.h"
#include "runtime/order/sync.h"
#include "runtime/order/waits.h"
#include "runtime/watch/debt.h"
#include "runtime/watch/release.h"
#include "trace/record/writer.h"

struct df_dev *df_stream_dev(int device)
{
	if (device < 0 || device >= df_rt.nr_devs || !df_dev_used(&df_rt.devs[device]))
		return NULL;
	return &df_rt.devs[device];
}

/*
 * Makes a blocking stream take over the operations that the legacy stream must not overtake. The
 * caller holds dev->lock.
 */
static void catch_up(struct df_stream *s)
{
	struct df_stream *from = s->dev->legacy;

	if (!from || from == s || !s->info.blocking || from->pending.added == s->legacy_seen)
		return;
	if (df_flights_join_part(&s->pending, &from->pending, s->legacy_seen, UINT64_MAX)) {
		df_warn_once("out of memory: cannot keep the order of the legacy default stream");
		return;
	}
	/* RELAXED: df_stream_behind() only decides by it whether to take the lock. */
	__atomic_store_n(&s->legacy_seen, from->pending.added, __ATOMIC_RELAXED);
}

struct df_stream *df_stream_get(struct df_dev *dev, const struct df_stream_info *info)
{
	struct df_stream *s = *info->user;

	if (s) {
		catch_up(s);
		return s;
	}
	s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	if (df_executor->mark_init(&s->ready, info->stream)) {
		free(s);
		return NULL;
	}
	s->dev = dev;
	s->info = *info;
	df_list_add_tail(&dev->streams, &s->node);
	/*
	 * RELEASE pairs with the ACQUIRE in df_stream_of(): hooks read this pointer without the
	 * lock to see whether we have state of the stream. Without it they could read a stream that
	 * is not initialised.
	 */
	__atomic_store_n((struct df_stream **)info->user, s, __ATOMIC_RELEASE);
	catch_up(s);
	/*
	 * The application does not create the legacy stream, and a copy may wait for it before any
	 * work on it is traced.
	 */
	if (info->legacy)
		df_trace(DF_REC_STREAM_CREATE, info->device, 0, -1, 0, info->id,
			 (uint64_t)info->device | (uint64_t)df_stream_flags(info) << 32, 0, 0);
	return s;
}

struct df_stream *df_stream_of(const struct df_stream_info *info)
{
	/*
	 * ACQUIRE pairs with the RELEASE in df_stream_get(): without it the stream could be read
	 * before it is initialised.
	 */
	return info->user ? __atomic_load_n((struct df_stream **)info->user, __ATOMIC_ACQUIRE)
			  : NULL;
}

/* ---- marks and fences ------------------------------------------------------------------------ */

int df_stream_wait(struct df_dev *dev, struct df_mstream *on, const struct df_stream *of,
		   const uint64_t *word, uint64_t value)
{
	const struct df_mstream *writer = of ? of->info.stream : NULL;
	struct df_flights held = {0};
	int ret;

	df_mutex_unlock(&dev->lock);
	df_waits_collect(dev->index, writer, &held);
	ret = df_waits_word(dev->index, on, &held, word, value);
	df_flights_free(&held);
	df_mutex_lock(&dev->lock);
	return ret;
}

int df_stream_unfenced(struct df_stream *s)
{
	df_flights_prune(&s->pending);
	return s->pending.nr && s->pending.v[s->pending.nr - 1].at > s->fenced;
}

#define FENCE_AT_ONCE 32

/*
 * The waits to enqueue: those for operations in the set of s whose df_flight.at is greater than
 * `at` and at most `upto`.
 */
struct fence {
	struct df_stream *s;
	/* the stream that is made to wait: s->info.stream or the side stream of s */
	struct df_mstream *on;
	/* if not NULL, only operations that touch these bytes count */
	const struct df_touch *touch;
	uint64_t at, upto;
};

static int is_wanted(const struct fence *w, const struct df_flight *f)
{
	return f->at > w->at && f->at <= w->upto && (!w->touch || df_touch_concerns(w->touch, f));
}

/*
 * Finds up to FENCE_AT_ONCE operations to wait for, and advances w->at. Instances of one collective
 * finish in order, so only the last one is needed. Returns the number of operations. The caller
 * holds dev->lock.
 */
static uint32_t next_waits(struct fence *w, struct df_flight *out)
{
	const struct df_flights *set = &w->s->pending;
	uint32_t i, j, n = 0;

	for (i = 0; i < set->nr && set->v[i].at <= w->upto && n < FENCE_AT_ONCE; i++) {
		const struct df_flight *f = &set->v[i];

		if (!is_wanted(w, f))
			continue;
		w->at = f->at;
		if (w->on == w->s->info.stream)
			df_trace(DF_REC_STREAM_FENCE, w->s->dev->index, 0, -1, f->op, 0, 0,
				 w->s->info.id, 0);
		for (j = i + 1; j < set->nr && set->v[j].at <= w->upto; j++)
			if (set->v[j].done == f->done && set->v[j].value >= f->value &&
			    is_wanted(w, &set->v[j]))
				break;
		if (j == set->nr || set->v[j].at > w->upto)
			out[n++] = *f;
	}
	if (n < FENCE_AT_ONCE)
		w->at = w->upto;
	return n;
}

/*
 * Enqueues the waits without the lock, because the driver may block on a full stream. The
 * operations stay in the set until they are done, because another thread may meanwhile enqueue on
 * the stream or query it. Then both threads enqueue the waits, which is harmless. Returns 0 or
 * -errno. The caller holds dev->lock, which is dropped meanwhile.
 */
static int put_waits(struct fence *w)
{
	struct df_flight some[FENCE_AT_ONCE];
	uint32_t n;
	int ret = 0;

	while (w->at < w->upto) {
		n = next_waits(w, some);
		df_mutex_unlock(&w->s->dev->lock);
		ret |= df_waits_put(w->s->dev->index, w->on, some, n);
		df_mutex_lock(&w->s->dev->lock);
	}
	return ret ? -ENOMEM : 0;
}

int df_stream_follow_aside(struct df_stream *s)
{
	struct fence w = {.s = s, .on = s->aside, .at = s->fenced, .upto = s->pending.added};

	return df_stream_unfenced(s) ? put_waits(&w) : 0;
}

int df_stream_filled(struct df_stream *s)
{
	df_flights_prune(&s->pending);
	/*
	 * A stream that waits for no operation of ours will drain, so its entries do not count.
	 * RELAXED: make_room() reads the count without the lock.
	 */
	__atomic_store_n(&s->behind,
			 s->pending.nr && s->pending.v[0].at <= s->fenced ? s->behind + 1 : 0,
			 __ATOMIC_RELAXED);
	return s->behind >= DF_STREAM_ROOM;
}

/*
 * Makes the stream wait for its pending operations: if `touch` is not NULL, only for those that
 * touch these bytes.
 */
static void fence_some(struct df_stream *s, const struct df_touch *touch)
{
	struct fence w = {.s = s, .on = s->info.stream, .touch = touch};
	int full;

	df_mutex_lock(&s->dev->lock);
	w.at = s->fenced;
	if (df_stream_unfenced(s)) {
		w.upto = s->pending.added;
		put_waits(&w);
		if (!touch)
			s->fenced = DF_MAX(s->fenced, w.upto);
	}
	full = df_stream_filled(s);
	df_mutex_unlock(&s->dev->lock);
	if (full)
		df_sync_room(s);
}

void df_stream_fence(struct df_stream *s)
{
	fence_some(s, NULL);
}

/* ---- the legacy default stream --------------------------------------------------------------- */

void df_stream_legacy_note(struct df_stream *s)
{
	if (s->dev->legacy == s)
		/*
		 * RELAXED: a thread that depends on this store is ordered after it by the
		 * application itself.
		 */
		__atomic_store_n(&s->dev->legacy_added, s->pending.nr ? s->pending.added : 0,
				 __ATOMIC_RELAXED);
}

int df_stream_meet(struct df_stream *s)
{
	struct df_dev *dev = s->dev;
	struct df_stream *t;
	int ret = 0;

	if (!dev->legacy)
		dev->legacy = s;
	if (dev->legacy != s)
		return -EINVAL;
	df_flights_prune(&s->pending);
	df_list_each(t, &dev->streams, node)
	{
		if (t == s || !t->info.blocking || t->info.legacy)
			continue;
		if (df_flights_join_part(&s->pending, &t->pending, DF_MAX(t->fenced, t->met),
					 UINT64_MAX))
			ret = -ENOMEM;
		else
			t->met = t->pending.added;
	}
	df_stream_legacy_note(s);
	return ret;
}

int df_stream_is_legacy(struct df_dev *dev, const struct df_stream_info *info)
{
	struct df_stream *s;
	int ret;

	df_mutex_lock(&dev->lock);
	s = df_stream_get(dev, info);
	if (!dev->legacy)
		dev->legacy = s;
	ret = s && dev->legacy == s;
	df_mutex_unlock(&dev->lock);
	return ret;
}

/*
 * Called when the context of the legacy stream has ended. The next legacy stream numbers its
 * operations from the beginning. The caller holds dev->lock.
 */
static void legacy_gone(struct df_dev *dev)
{
	struct df_stream *t;

	dev->legacy = NULL;
	__atomic_store_n(&dev->legacy_added, 0, __ATOMIC_RELAXED);
	df_list_each(t, &dev->streams, node)
	{
		t->met = 0;
		__atomic_store_n(&t->legacy_seen, 0, __ATOMIC_RELAXED);
	}
}

static struct df_stream *legacy_behind(struct df_dev *dev, const struct df_stream_info *info)
{
	struct df_stream *s;
	int strict = df_rt.strict;

	df_mutex_lock(&dev->lock);
	s = df_stream_get(dev, info);
	if (!s || strict || df_stream_meet(s))
		strict = 1;
	df_mutex_unlock(&dev->lock);
	if (strict)
		df_stream_fence_blocking(dev);
	return s;
}

struct df_stream *df_stream_behind(struct df_dev *dev, const struct df_stream_info *info)
{
	struct df_stream *s = df_stream_of(info);
	uint64_t legacy;

	if (info->legacy)
		return legacy_behind(dev, info);
	/*
	 * Both loads are RELAXED for the reasons given in df_stream_legacy_note() and
	 * catch_up().
	 */
	legacy = info->blocking ? __atomic_load_n(&dev->legacy_added, __ATOMIC_RELAXED) : 0;
	if (legacy && (!s || __atomic_load_n(&s->legacy_seen, __ATOMIC_RELAXED) != legacy)) {
		df_mutex_lock(&dev->lock);
		s = df_stream_get(dev, info);
		df_mutex_unlock(&dev->lock);
	}
	return s;
}

void df_stream_fence_blocking(struct df_dev *dev)
{
	struct df_stream *s, *found;

	do {
		found = NULL;
		df_mutex_lock(&dev->lock);
		df_list_each(s, &dev->streams, node)
		{
			if (s->info.blocking && df_stream_unfenced(s)) {
				found = s;
				s->users++;
				break;
			}
		}
		df_mutex_unlock(&dev->lock);
		if (!found)
			break;
		df_stream_fence(found);
		df_mutex_lock(&dev->lock);
		found->users--;
		df_mutex_unlock(&dev->lock);
	} while (1);
}

/*
 * Orders work after the skipped operations (debt.c) whose absence it could notice. Returns 1 if the
 * stream now has to wait for some.
 */
static int pay(struct df_dev *dev, const struct df_stream_info *info, enum df_work kind,
	       const struct df_touch *touch)
{
	const struct df_payer who = {info->device, kind, touch};
	struct df_flight some[FENCE_AT_ONCE];
	struct df_stream *s;
	uint64_t at = 0;
	uint32_t i, n;
	int ret = -ENODEV, paid = 0;

	n = df_debt_next(&at, &who, some, 1);
	if (!n)
		return 0;
	if (dev) {
		df_mutex_lock(&dev->lock);
		s = df_stream_get(dev, info);
		ret = s ? df_debt_join(&s->pending, &who) : -ENOMEM;
		paid = s != NULL;
		df_mutex_unlock(&dev->lock);
	}
	/*
	 * Without our streams on the device, or without memory to remember the operations, the
	 * stream waits at once.
	 */
	for (at = 0; ret && (n = df_debt_next(&at, &who, some, DF_ARRAY_LEN(some))); paid = 1) {
		df_waits_put(info->device, info->stream, some, n);
		for (i = 0; i < n; i++)
			df_trace(DF_REC_STREAM_FENCE, info->device, 0, -1, some[i].op, 0, 0,
				 info->id, 0);
	}
	return paid;
}

/* The graph launch that this thread is in. The launch submits its collectives one by one. */
static _Thread_local struct launching {
	struct df_mstream *on;
	uint64_t stream, group;
} launching;

struct df_mstream *df_stream_launching(uint64_t *stream, uint64_t *group)
{
	*stream = launching.stream;
	*group = launching.group;
	return launching.on;
}

/*
 * Whether a copy on the legacy stream waits only for the operations that touch its bytes. This
 * suffices if the bytes are known, because the legacy stream orders streams that are unrelated to
 * each other. But if the host can see the destination, it could notice that the copy is early: then
 * the copy waits for all operations.
 */
static int is_exact(struct df_stream *s, const struct df_touch *touch)
{
	return touch && s->info.legacy && !df_rt.strict && df_stream_is_legacy(s->dev, &s->info) &&
	       !df_host_visible(touch->out, touch->out_end);
}

static void hook_before_work(const struct df_stream_info *info, enum df_work kind,
			     const struct df_touch *touch)
{
	struct df_dev *dev = df_stream_dev(info->device);
	struct df_stream *s;
	int paid = 0, exact = 0;

	if (df_unlikely(df_record_inside))
		return; /* this is NCCL's own work, on streams of its own */
	df_polls_act();
	/*
	 * An allocation returns memory that nothing uses, so it cannot notice an unfinished
	 * operation.
	 */
	if (kind == DF_WORK_ALLOC)
		return;
	if ((kind == DF_WORK_HOSTFN || kind == DF_WORK_GRAPH) &&
	    !__atomic_load_n(&df_rt.host_work, __ATOMIC_RELAXED))
		__atomic_store_n(&df_rt.host_work, 1, __ATOMIC_RELAXED);
	if (df_debt_any() && !info->capturing)
		paid = pay(dev, info, kind, touch);
	/* If the device has nothing in flight, there is nothing to order. */
	if (!dev || (info->legacy && !df_dev_busy(dev)))
		s = df_stream_of(info);
	else
		s = df_stream_behind(dev, info);
	if (s && !info->capturing) {
		exact = is_exact(s, touch);
		fence_some(s, exact ? touch : NULL);
	}
	/*
	 * Only a graph's replay and work on the legacy stream make operations wait for work of
	 * other streams. So trace only these, and work on streams that have our state.
	 */
	if (kind == DF_WORK_GRAPH && dev)
		launching = (struct launching){info->stream, info->id, df_trace_serial()};
	if (s || paid || (dev && (kind == DF_WORK_GRAPH || (info->legacy && df_dev_busy(dev)))))
		df_trace(DF_REC_STREAM_WORK, info->device, 0, -1, df_trace_serial(),
			 kind | (touch ? df_rec_reads_from(touch->in, touch->in_end) : 0),
			 (uint64_t)info->device |
				 (uint64_t)(df_stream_flags(info) | (uint32_t)exact << 3) << 32 |
				 (touch ? df_rec_reads_bytes(touch->in, touch->in_end) : 0),
			 info->id, 0);
}

/* ---- streams --------------------------------------------------------------------------------- */

static void hook_stream_create(const struct df_stream_info *info)
{
	df_trace(DF_REC_STREAM_CREATE, info->device, 0, -1, 0, info->id,
		 (uint64_t)info->device | (uint64_t)df_stream_flags(info) << 32,
		 (uint64_t)(int64_t)info->priority, 0);
}

static void hook_stream_destroy(const struct df_stream_info *info)
{
	struct df_stream *s = df_stream_of(info);

	if (!s)
		return;
	df_stream_fence(s);
	df_order_stream_gone(s);
	df_mutex_lock(&s->dev->lock);
	df_list_del(&s->node);
	if (s->dev->legacy == s)
		legacy_gone(s->dev);
	/*
	 * This loop is short: it waits for another thread that is about to use the legacy stream
	 * and is enqueueing a few waits.
	 */
	while (s->users) {
		df_mutex_unlock(&s->dev->lock);
		sched_yield();
		df_mutex_lock(&s->dev->lock);
	}
	df_mutex_unlock(&s->dev->lock);
	df_trace(DF_REC_STREAM_DESTROY, info->device, 0, -1, 0, info->id, 0, 0, 0);
	if (s->aside)
		df_backend->stream_delete(s->aside);
	/*
	 * The words of the stream's marks are not reused, because streams may still have to write
	 * them.
	 */
	free(s->pending.v);
	free(s);
	*info->user = NULL;
}

static int hook_help(void)
{
	return df_executor->pass(-1);
}

static void hook_strict(void)
{
	df_rt.strict = 1;
}

const struct df_hooks df_stream_hooks = {
	.before_work = hook_before_work,
	.waits_stop = df_waits_stop,
	.waits_go = df_waits_go,
	.event_record = df_hook_event_record,
	.event_wait = df_hook_event_wait,
	.event_query = df_hook_event_query,
	.event_time = df_hook_event_time,
	.event_sync = df_hook_event_sync,
	.event_destroy = df_hook_event_destroy,
	.stream_create = hook_stream_create,
	.stream_sync = df_hook_stream_sync,
	.stream_query = df_hook_stream_query,
	.queried = df_polls_answer,
	.stream_destroy = hook_stream_destroy,
	.device_sync = df_hook_device_sync,
	.sync_copy = df_hook_sync_copy,
	.free = df_free_defer,
	.help = hook_help,
	.sync_done = df_hook_sync_done,
	.flush = df_free_flush,
	.unmap = df_free_unmap,
	.strict = hook_strict,
};
