/*
 * Threads that wait for a point of a stream, for streams, or for a device. While they wait they do
 * the engine's work (engine.c), and drive the daemon through the hooks.
 */
#include "interpose/hostcuda/internal.h"

#include <stdlib.h>

#define SPINS 32

static int help(void)
{
	const struct df_hooks *hooks = df_hhooks();

	return hooks && hooks->help ? hooks->help() : 0;
}

/*
 * Waits until ready(arg). Executes operations meanwhile: of any size on the stream `own`, if it is
 * not NULL, and small ones on the others.
 */
static void wait_until(struct df_hdev *dev, struct df_hstream *own, int (*ready)(void *arg),
		       void *arg, int64_t most_ns)
{
	int64_t sleep_ns = DF_MIN((int64_t)DF_H_SLEEP_MIN_NS, most_ns);
	unsigned spins = 0;
	uint32_t gen;
	int word;

	for (;;) {
		/*
		 * ACQUIRE pairs with wake_waiters(): without it data that was written before the
		 * change could be missed below.
		 */
		gen = __atomic_load_n(&dev->done, __ATOMIC_ACQUIRE);
		if (ready(arg))
			break;
		if ((own && df_hrun_stream(dev, own, SIZE_MAX)) ||
		    df_hrun_device(dev, DF_H_HELP_BYTES, 0, &word) || help()) {
			spins = 0;
			sleep_ns = DF_MIN((int64_t)DF_H_SLEEP_MIN_NS, most_ns);
			continue;
		}
		/*
		 * Yielding could cost a time slice of a thread that only spins; sleeping does not.
		 */
		if (spins++ < SPINS) {
			df_relax();
			continue;
		}
		/* SEQ_CST pairs with wake_waiters(), for the reason given in engine(). */
		__atomic_fetch_add(&dev->sleepers, 1, __ATOMIC_SEQ_CST);
		if (__atomic_load_n(&dev->done, __ATOMIC_SEQ_CST) == gen && !ready(arg))
			df_futex_wait(&dev->done, gen, sleep_ns, 0);
		__atomic_fetch_sub(&dev->sleepers, 1, __ATOMIC_RELAXED);
		sleep_ns = DF_MIN(2 * sleep_ns, most_ns);
	}
	/* Wake the engine for work of other streams. */
	if (__atomic_load_n(&dev->nr_active, __ATOMIC_RELAXED))
		df_hwake_engine(dev);
}

static int is_done(void *point)
{
	return df_hpoint_done(*(df_hpoint *)point);
}

void df_hwait_point(df_hpoint p)
{
	struct df_hstream *s = df_hpoint_stream(p);

	if (!df_hpoint_done(p))
		wait_until(df_hdev(s->device), s, is_done, &p, DF_H_SLEEP_MAX_NS);
}

void df_hwait_for(struct df_hdev *dev, int (*ready)(void *arg), void *arg, int64_t most_ns)
{
	wait_until(dev, NULL, ready, arg, most_ns);
}

void df_hwait_slice(struct df_hdev *dev)
{
	/* ACQUIRE pairs with wake_waiters(), for the reason given in wait_until(). */
	uint32_t gen = __atomic_load_n(&dev->done, __ATOMIC_ACQUIRE);
	int word;

	if (df_hrun_device(dev, SIZE_MAX, 0, &word) || help())
		return;
	/* SEQ_CST pairs with wake_waiters(), for the reason given in engine(). */
	__atomic_fetch_add(&dev->sleepers, 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&dev->done, __ATOMIC_SEQ_CST) == gen)
		df_futex_wait(&dev->done, gen, DF_H_SLEEP_MIN_NS, 0);
	__atomic_fetch_sub(&dev->sleepers, 1, __ATOMIC_RELAXED);
}

/*
 * Stores the present ends of the device's streams. If `blocking_only`, only of the legacy stream
 * and the streams that synchronise with it. Fails with -ENOMEM if it stored only some.
 */
static int take_ends(struct df_hdev *dev, int blocking_only, struct df_hends *e)
{
	struct df_hstream *s;
	size_t nr = 0, cap = DF_ARRAY_LEN(e->few);

	e->points = e->few;
	e->nr = 0;
	df_mutex_lock(&dev->lock);
	df_list_each(s, &dev->streams, all) nr++;
	if (nr > cap) {
		df_hpoint *more = malloc(nr * sizeof(*more));

		cap = more ? nr : cap;
		e->points = more ? more : e->few;
	}
	df_list_each(s, &dev->streams, all)
	{
		if (blocking_only && !s->blocking && !s->legacy)
			continue;
		/* Do not wait for frees: a free of pinned memory waits for other devices. */
		if (s == __atomic_load_n(&dev->reaper, __ATOMIC_RELAXED))
			continue;
		if (e->nr < cap && !df_hpoint_done(df_hstream_tail(s)))
			e->points[e->nr++] = df_hstream_tail(s);
	}
	df_mutex_unlock(&dev->lock);
	return e->points == e->few && e->nr == cap ? -ENOMEM : 0;
}

static void wait_ends(struct df_hends *e)
{
	for (size_t i = 0; i < e->nr; i++)
		df_hwait_point(e->points[i]);
	if (e->points != e->few)
		free(e->points);
}

static void wait_streams(struct df_hdev *dev, int blocking_only)
{
	struct df_hends e;
	int ret;

	do {
		ret = take_ends(dev, blocking_only, &e);
		wait_ends(&e);
		/* There is no memory for all of them: wait for some at a time. */
	} while (ret);
}

void df_hwait_stream(struct df_hstream *s)
{
	if (s->legacy)
		wait_streams(df_hdev(s->device), 1);
	else
		df_hwait_point(df_hstream_tail(s));
}

static int has_work(struct df_hdev *dev)
{
	/*
	 * ACQUIRE pairs with the RELEASE in complete(): without it a thread that finds the device
	 * idle might not see what the last operations wrote.
	 */
	return __atomic_load_n(&dev->nr_active, __ATOMIC_ACQUIRE) != 0;
}

void df_hwait_device(struct df_hdev *dev)
{
	if (has_work(dev))
		wait_streams(dev, 0);
}

int df_hsync_device(struct df_hdev *dev, enum df_sync_kind kind)
{
	struct df_hends e = {.points = e.few};
	int ret = has_work(dev) ? take_ends(dev, 0, &e) : 0, released = 0;

	if (DF_H_HOOK(device_sync))
		released = df_hhooks()->device_sync(dev->index, kind, NULL);
	if (released)
		e.nr = 0;
	wait_ends(&e);
	/* A reset ends the streams: they must have no work left. */
	if (!released && (ret || kind == DF_SYNC_RESET))
		df_hwait_device(dev);
	df_hsync_done(dev->index);
	return released;
}
