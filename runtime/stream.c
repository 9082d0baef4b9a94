/*
 * What the user's streams and events know of operations in flight, and the hooks by which CUDA calls meet them
 * (design section 8). Late waits: a stream is made to wait for an operation only when something that
 * could tell the difference is put on it. An event recorded behind operations stays virtual: it is recorded
 * natively at the stream's position and carries the set of operations; whoever waits for it inherits the set.
 *
 * All state hangs on df_stream_info.user and df_event_info.user and is guarded by the device's lock.
 */
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/rt.h"
#include "trace/writer.h"

static struct df_dev *dev_of(int device)
{
	if (device < 0 || device >= df_rt.nr_devs ||
	    !__atomic_load_n(&df_rt.devs[device].used, __ATOMIC_RELAXED))
		return NULL;
	return &df_rt.devs[device];
}

struct df_stream *df_stream_get(struct df_dev *dev, const struct df_stream_info *info)
{
	struct df_stream *s = *info->user;

	if (s)
		return s;
	s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	s->ready = df_word_get();
	if (!s->ready) {
		free(s);
		return NULL;
	}
	/* ours alone now */
	s->ready_seq = __atomic_load_n(s->ready, __ATOMIC_RELAXED);
	s->dev = dev;
	s->info = *info;
	df_list_add_tail(&dev->streams, &s->node);
	/*
	 * RELEASE pairs with the ACQUIRE in stream_of(): hooks look at the word without the lock to see
	 * whether the stream concerns us at all.
	 */
	__atomic_store_n((struct df_stream **)info->user, s, __ATOMIC_RELEASE);
	return s;
}

static struct df_stream *stream_of(const struct df_stream_info *info)
{
	/* ACQUIRE pairs with the RELEASE in df_stream_get(): the stream is filled. */
	return info->user ? __atomic_load_n((struct df_stream **)info->user, __ATOMIC_ACQUIRE)
			  : NULL;
}

static struct df_event *event_of(const struct df_event_info *info)
{
	/* ACQUIRE pairs with the RELEASE in event_get(): the event is filled. */
	return info->user ? __atomic_load_n((struct df_event **)info->user, __ATOMIC_ACQUIRE)
			  : NULL;
}

/* ---- waits of the host -------------------------------------------------------------------------------------- */

/* The wait that this thread is in: opened by a hook, closed by sync_done when CUDA's own part is over too. */
static __thread struct {
	uint64_t serial;
	uint32_t call;
} waiting;

static void sync_enter(uint32_t call, int device, uint64_t object)
{
	waiting.call = call;
	waiting.serial = df_call_enter(call, device, object, 0);
}

static void hook_sync_done(int device)
{
	if (!waiting.serial)
		return;
	df_call_exit(waiting.serial, waiting.call, device, 0);
	waiting.serial = 0;
}

/* ---- fences --------------------------------------------------------------------------------------------------- */

/* There are operations that the stream does not wait for yet. dev->lock held. */
static int unfenced(struct df_stream *s)
{
	df_flights_prune(&s->pending);
	return s->pending.nr && s->pending.v[s->pending.nr - 1].at > s->fenced;
}

#define FENCE_AT_ONCE 32

/*
 * Up to FENCE_AT_ONCE of the operations behind *at that the stream has to wait for, in out; *at moves on.
 * Instances of one collective finish in order: the last one stands for all. dev->lock held.
 */
static uint32_t next_waits(const struct df_stream *s, uint64_t *at, uint64_t upto,
			   struct df_flight *out)
{
	const struct df_flights *set = &s->pending;
	uint32_t i, j, n = 0;

	for (i = 0; i < set->nr && set->v[i].at <= upto && n < FENCE_AT_ONCE; i++) {
		const struct df_flight *f = &set->v[i];

		if (f->at <= *at)
			continue;
		*at = f->at;
		df_trace(DF_REC_STREAM_FENCE, s->dev->index, 0, -1, f->op, 0, 0, s->info.id, 0);
		for (j = i + 1; j < set->nr && set->v[j].at <= upto; j++)
			if (set->v[j].done == f->done && set->v[j].value >= f->value)
				break;
		if (j == set->nr || set->v[j].at > upto)
			out[n++] = *f;
	}
	if (n < FENCE_AT_ONCE)
		*at = upto;
	return n;
}

/*
 * The waits are enqueued without the lock, because enqueueing may block on a full stream. The operations stay in
 * the set until they are done: another thread may put something on the stream, or ask for it, while this one (for
 * the legacy stream's sake) is still enqueueing. Then both enqueue the waits, which does no harm.
 */
void df_stream_fence(struct df_stream *s)
{
	struct df_flight some[FENCE_AT_ONCE];
	uint64_t at, upto;
	uint32_t i, n;

	df_mutex_lock(&s->dev->lock);
	upto = unfenced(s) ? s->pending.added : 0;
	at = s->fenced;
	while (at < upto) {
		n = next_waits(s, &at, upto, some);
		df_mutex_unlock(&s->dev->lock);
		for (i = 0; i < n; i++)
			df_rt.cu->stream_wait(s->info.stream, some[i].done, some[i].value);
		df_mutex_lock(&s->dev->lock);
	}
	s->fenced = DF_MAX(s->fenced, upto);
	df_mutex_unlock(&s->dev->lock);
}

/* They must hold their waits before the legacy stream waits for them. */
void df_stream_fence_blocking(struct df_dev *dev)
{
	struct df_stream *s, *found;

	do {
		found = NULL;
		df_mutex_lock(&dev->lock);
		df_list_each(s, &dev->streams, node)
		{
			if (s->info.blocking && unfenced(s)) {
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
 * What comes after a released wait must not run ahead of what it can tell from finished operations (debt.c). 1: the
 * stream waits for some.
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
	/* A device that has none of our streams, or no memory to remember them: wait at once. */
	for (at = 0; ret && (n = df_debt_next(&at, &who, some, DF_ARRAY_LEN(some))); paid = 1)
		for (i = 0; i < n; i++) {
			df_rt.cu->stream_wait(info->stream, some[i].done, some[i].value);
			df_trace(DF_REC_STREAM_FENCE, info->device, 0, -1, some[i].op, 0, 0,
				 info->id, 0);
		}
	return paid;
}

/* The graph launch that this thread is in: its collectives are issued one by one. */
static _Thread_local struct launching {
	uint64_t stream, group;
} launching;

void df_stream_launching(uint64_t *stream, uint64_t *group)
{
	*stream = launching.stream;
	*group = launching.group;
}

/* Something is in flight on the device. */
static int is_busy(const struct df_dev *dev)
{
	return __atomic_load_n(&dev->issued, __ATOMIC_RELAXED) !=
	       __atomic_load_n(&dev->retired, __ATOMIC_RELAXED);
}

/* As in STREAM_CREATE records: also with work, for a ring that has lost them, and for the legacy stream. */
static uint32_t stream_flags(const struct df_stream_info *info)
{
	return (uint32_t)(info->blocking | info->legacy << 1 | info->per_thread << 2);
}

static void hook_before_work(const struct df_stream_info *info, enum df_work kind,
			     const struct df_touch *touch)
{
	struct df_dev *dev = dev_of(info->device);
	struct df_stream *s;
	int paid = 0;

	/* An allocation gives out memory that nothing uses: it sees nothing of what is pending. */
	if (kind == DF_WORK_ALLOC)
		return;
	if (df_debt_any() && !info->capturing)
		paid = pay(dev, info, kind, touch);
	s = stream_of(info);
	if (s && !info->capturing)
		df_stream_fence(s);
	if (info->legacy && dev)
		df_stream_fence_blocking(dev);
	/* Of other streams nothing waits, but what a graph replays and what the legacy stream orders does. */
	if (kind == DF_WORK_GRAPH && dev)
		launching = (struct launching){info->id, df_trace_serial()};
	if (s || paid || (dev && (kind == DF_WORK_GRAPH || (info->legacy && is_busy(dev)))))
		df_trace(DF_REC_STREAM_WORK, info->device, 0, -1, df_trace_serial(), kind,
			 (uint64_t)info->device | (uint64_t)stream_flags(info) << 32, info->id, 0);
}

/* ---- events --------------------------------------------------------------------------------------------------- */

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
	/* RELEASE pairs with the ACQUIRE in event_of(). */
	__atomic_store_n((struct df_event **)info->user, e, __ATOMIC_RELEASE);
	return e;
}

static int hook_event_record(const struct df_event_info *info, const struct df_stream_info *si)
{
	struct df_stream *s = stream_of(si);
	struct df_event *e = event_of(info);
	struct df_dev *dev = dev_of(si->device);
	int strict = 0;

	if (!dev || si->capturing)
		return 0;
	if (si->legacy)
		/* An event of the legacy stream comes after all blocking streams. */
		df_stream_fence_blocking(dev);
	if (!s && !e)
		return 0;
	if (s && (info->timing || info->ipc || si->legacy))
		/* Its time, or its meaning elsewhere, is that of the real end: order it strictly. */
		df_stream_fence(s);
	df_mutex_lock(&dev->lock);
	if (e)
		e->pending.nr = 0;
	if (s && unfenced(s)) {
		e = event_get(dev, info);
		strict =
			!e || df_flights_join_part(&e->pending, &s->pending, s->fenced, UINT64_MAX);
	}
	df_mutex_unlock(&dev->lock);
	if (strict)
		df_stream_fence(
			s); /* no memory to remember the set: strict order is always right */
	df_trace(DF_REC_EVENT_RECORD, si->device, 0, -1, 0, info->id, df_trace_serial(), si->id, 0);
	return 0;
}

static void hook_event_wait(const struct df_stream_info *si, const struct df_event_info *info)
{
	struct df_event *e = event_of(info);
	struct df_dev *dev = dev_of(si->device);
	struct df_flights set = {0};
	struct df_stream *s = NULL;
	int ret = 0;

	if (!e) {
		/*
		 * Nothing of ours is behind the event itself; what it orders is part of the picture, and so is what the
		 * stream carries from here on: it may hand the order on to the next one.
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
	df_mutex_unlock(&e->dev->lock);
	if (dev && !ret) {
		df_mutex_lock(&dev->lock);
		s = df_stream_get(dev, si);
		ret = s ? df_flights_join(&s->pending, &set) : -ENOMEM;
		df_mutex_unlock(&dev->lock);
	}
	if (!dev || ret) {
		/* A device without our streams, or no memory: wait for them at once. */
		uint32_t i;

		for (i = 0; i < set.nr; i++)
			df_rt.cu->stream_wait(si->stream, set.v[i].done, set.v[i].value);
	} else if (si->legacy) {
		/* The blocking streams wait for it from now on. */
		df_stream_fence(s);
	}
	df_trace(DF_REC_EVENT_WAIT, si->device, 0, -1, 0, info->id, e->record, si->id, 0);
	df_flights_free(&set);
}

static int flights_ready(void *arg)
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

/*
 * Waits for what is in the set now, with the daemon's help; the lock is not held meanwhile. It polls a copy:
 * the lock in every look would cost more than the look.
 */
static void wait_for(struct df_dev *dev, struct df_flights *from)
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
		df_host_wait(dev, waiting.call, waiting.serial, flights_ready, &copy);
	else
		df_host_wait(dev, waiting.call, waiting.serial, shared_ready, &shared);
	if (copy.v != few)
		free(copy.v);
}

static int hook_event_query(const struct df_event_info *info)
{
	struct df_event *e = event_of(info);
	int ready;

	if (!e)
		return 0;
	df_mutex_lock(&e->dev->lock);
	ready = df_flights_done(&e->pending);
	df_mutex_unlock(&e->dev->lock);
	if (ready)
		return 0;
	df_engine_pass(e->dev);
	return 1;
}

static void hook_event_sync(const struct df_event_info *info)
{
	struct df_event *e = event_of(info);

	if (!dev_of(info->device))
		return;
	sync_enter(DF_CALL_EVENT_SYNC, info->device, info->id);
	if (e)
		wait_for(e->dev, &e->pending);
}

static void hook_event_destroy(const struct df_event_info *info)
{
	struct df_event *e = event_of(info);

	if (!e)
		return;
	df_mutex_lock(&e->dev->lock);
	df_list_del(&e->node);
	df_mutex_unlock(&e->dev->lock);
	df_flights_free(&e->pending);
	free(e);
	*info->user = NULL;
}

/* ---- streams -------------------------------------------------------------------------------------------------- */

static void hook_stream_sync(const struct df_stream_info *info)
{
	struct df_stream *s = stream_of(info);
	struct df_dev *dev = dev_of(info->device);

	/* With a debt any stream may wait for operations. */
	if ((!dev || (!s && !info->legacy)) && !df_debt_any())
		return;
	sync_enter(DF_CALL_STREAM_SYNC, info->device, info->id);
	if (info->legacy && dev)
		df_stream_fence_blocking(dev);
	if (s)
		/* What the stream waits for itself is CUDA's to wait for. */
		wait_for(dev, &s->pending);
}

static int hook_stream_query(const struct df_stream_info *info)
{
	struct df_stream *s = stream_of(info);
	struct df_dev *dev = dev_of(info->device);
	int ready = 1;

	if (!dev || (!s && !info->legacy))
		return 0;
	df_engine_pass(dev);
	df_mutex_lock(&dev->lock);
	if (s)
		ready = df_flights_done(&s->pending);
	/* The legacy stream's end is the end of the blocking ones. */
	if (info->legacy)
		df_list_each(s, &dev->streams, node) ready &=
			!s->info.blocking || df_flights_done(&s->pending);
	df_mutex_unlock(&dev->lock);
	return !ready;
}

static void hook_stream_create(const struct df_stream_info *info)
{
	df_trace(DF_REC_STREAM_CREATE, info->device, 0, -1, 0, info->id,
		 (uint64_t)info->device | (uint64_t)stream_flags(info) << 32,
		 (uint64_t)(int64_t)info->priority, 0);
}

static void hook_stream_destroy(const struct df_stream_info *info)
{
	struct df_stream *s = stream_of(info);

	if (!s)
		return;
	df_stream_fence(s);
	df_order_stream_gone(s);
	df_mutex_lock(&s->dev->lock);
	df_list_del(&s->node);
	/* Bounded: another thread that is about to use the legacy stream enqueues a few waits here. */
	while (s->users) {
		df_mutex_unlock(&s->dev->lock);
		sched_yield();
		df_mutex_lock(&s->dev->lock);
	}
	df_mutex_unlock(&s->dev->lock);
	df_trace(DF_REC_STREAM_DESTROY, info->device, 0, -1, 0, info->id, 0, 0, 0);
	/* Its ready word stays out of use: the stream may still have to write it. */
	free(s->pending.v);
	free(s);
	*info->user = NULL;
}

/* ---- the whole device ------------------------------------------------------------------------------------------ */

static int hook_device_sync(int device, enum df_sync_kind kind, const void *ptr)
{
	static const uint32_t calls[DF_SYNC_NR] = {
		[DF_SYNC_DEVICE] = DF_CALL_DEVICE_SYNC,
		[DF_SYNC_FREE] = DF_CALL_FREE,
		[DF_SYNC_HOST_ALLOC] = DF_CALL_HOST_ALLOC,
		[DF_SYNC_HOST_REGISTER] = DF_CALL_HOST_REGISTER,
		[DF_SYNC_MEMCPY] = DF_CALL_MEMCPY,
		[DF_SYNC_RESET] = DF_CALL_DEVICE_RESET,
	};
	struct df_dev *dev = dev_of(device);
	struct df_flights set = {0};
	int released, implicit = kind != DF_SYNC_DEVICE && kind != DF_SYNC_RESET &&
				 kind != DF_SYNC_MEMCPY;

	if (!dev) {
		if (kind == DF_SYNC_DEVICE && df_debt_any())
			sync_enter(calls[kind], device, 0);
		return 0;
	}
	/*
	 * Implicit synchronisation was never promised: the host backend's memory calls need no idle device.
	 * Under NCCL's rules they wait, as the driver does.
	 */
	if (implicit && df_rt.rules != DF_RULES_NCCL)
		return 1;
	if (kind == DF_SYNC_MEMCPY) {
		/* Unless hook_sync_copy() has begun it: then what is ours has been waited for, or released. */
		if (!waiting.serial) {
			df_stream_fence_blocking(dev);
			sync_enter(DF_CALL_MEMCPY, device, (uintptr_t)ptr);
		}
		return 0;
	}
	df_mutex_lock(&dev->lock);
	df_dev_flights(dev, &set);
	df_mutex_unlock(&dev->lock);
	sync_enter(calls[kind], device, (uintptr_t)ptr);
	released = df_host_wait(dev, calls[kind], waiting.serial, flights_ready, &set);
	df_flights_free(&set);
	if (released)
		hook_sync_done(device);
	return released;
}

/*
 * A copy for which the host waits, on the legacy stream: it waits for all blocking streams. What of that is ours is
 * waited for here, and not by the streams, so that it can be released (runtime/release.c).
 */
static int hook_sync_copy(const struct df_stream_info *info, const struct df_touch *t)
{
	struct df_dev *dev = dev_of(info->device);
	struct df_flights set = {0};
	struct df_stream *s;
	int ret = 0, released = 0;

	if (!dev || df_rt.rules == DF_RULES_NCCL)
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
		sync_enter(DF_CALL_MEMCPY, info->device, t ? t->out : 0);
		released = df_host_wait_copy(dev, waiting.serial, t, flights_ready, &set);
	}
	df_flights_free(&set);
	return released;
}

static int hook_help(void)
{
	return df_engine_pass(NULL);
}

static void forget(struct df_flights *s, const struct df_comm *comm)
{
	uint32_t i, n = 0;

	(void)comm;
	/* All operations of the communicator are done or ended by now: pruning drops them. */
	for (i = 0; i < s->nr; i++)
		if (!df_flight_done(&s->v[i]))
			s->v[n++] = s->v[i];
	s->nr = n;
}

void df_stream_forget_comm(struct df_comm *comm)
{
	struct df_stream *s;
	struct df_event *e;

	df_list_each(s, &comm->dev->streams, node) forget(&s->pending, comm);
	df_list_each(e, &comm->dev->events, node) forget(&e->pending, comm);
}

const struct df_stream_hooks df_stream_hooks = {
	.before_work = hook_before_work,
	.event_record = hook_event_record,
	.event_wait = hook_event_wait,
	.event_query = hook_event_query,
	.event_sync = hook_event_sync,
	.event_destroy = hook_event_destroy,
	.stream_create = hook_stream_create,
	.stream_sync = hook_stream_sync,
	.stream_query = hook_stream_query,
	.stream_destroy = hook_stream_destroy,
	.device_sync = hook_device_sync,
	.sync_copy = hook_sync_copy,
	.free = df_free_defer,
	.help = hook_help,
	.sync_done = hook_sync_done,
	.flush = df_free_flush,
};
