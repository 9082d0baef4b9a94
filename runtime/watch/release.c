/*
 * Waits of the application's threads, and their release. A thread in a synchronizing CUDA call that
 * waits for operations drives the daemon meanwhile. When it has waited for a while without
 * progress, it wakes the watchdog. If the checker proves a deadlock whose cycle contains the wait,
 * and DFSHIM_RELEASE allows it, the wait returns although operations are pending.
 *
 * With DFSHIM_RELEASE=safe, only a device-wide wait is released, and only if the application cannot
 * observe that the operations are late: no stream of the device has work queued behind them, and
 * none of their buffers is in memory that the host can access. The operations are recorded as
 * skipped (debt.c): anything that could observe their delay first waits for them. So a program sees
 * no difference except the return itself. A copy from or to host memory through the legacy stream
 * waits for all blocking streams. It is released under the same conditions, if it touches nothing
 * that a pending operation touches.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/abi.h"
#include "runtime/backend.h"
#include "runtime/executor.h"
#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/launcher.h"
#include "runtime/base/list.h"
#include "runtime/base/lock.h"
#include "runtime/base/log.h"
#include "runtime/base/time.h"
#include "runtime/comm/comm.h"
#include "runtime/comm/flights.h"
#include "runtime/comm/process.h"
#include "runtime/devs.h"
#include "runtime/watch/debt.h"
#include "runtime/watch/release.h"
#include "runtime/watch/snapshot.h"
#include "trace/read/live/call_place.h"
#include "trace/record/names.h"
#include "trace/record/writer.h"

/* a wait is checked when its device has made no progress for this time */
#define SUSPECT_NS  (DF_NS_PER_MS / 2)
#define PAUSE_MAX   (128 * DF_NS_PER_MS) /* longest pause between checks that find nothing */
#define RESTLESS_NS (64 * DF_NS_PER_MS)	 /* pause between checks if the device makes progress */
/* interval of the checks whether a release can be logged */
#define LOG_LOOK_NS (20 * DF_NS_PER_MS)

static struct {
	struct df_mutex lock;
	struct df_list waits;
	/*
	 * The release to log: its time (0 if there is none), whether its cycle was only likely, the
	 * call that waited, and the report's line.
	 */
	uint64_t unlogged;
	int likely;
	char call[512];
	char *line;
	int logged[2]; /* by `likely`: only the first of each kind is logged */
} rel = {.lock = DF_MUTEX_INIT(DF_RANK_LEAF, "host waits"), .waits = DF_LIST_INIT(rel.waits)};

/*
 * A wait is checked when its device has made no progress for a while, then at growing intervals.
 * The operation that completes a cycle is the newest one, so the check of that operation's wait
 * finds the cycle soon. A wait can be stuck for ever while other operations progress on its device,
 * so such a wait is checked as well, but rarely.
 */
int df_release_due(uint64_t now, uint64_t *next, uint64_t *age)
{
	struct df_host_wait *w;
	int due = 0;

	*next = UINT64_MAX;
	*age = 0;
	df_mutex_lock(&rel.lock);
	df_list_each(w, &rel.waits, node)
	{
		uint64_t moved;

		/* RELAXED is enough: the waiting thread wakes the watchdog after its store. */
		if (!__atomic_load_n(&w->told, __ATOMIC_RELAXED) || w->released)
			continue;
		moved = df_executor->progress(w->dev);
		if (moved != w->moved) {
			w->moved = moved;
			w->quiet = now;
			w->pause = SUSPECT_NS;
			w->look = DF_MIN(now + SUSPECT_NS, w->last_look + RESTLESS_NS);
		}
		*age = DF_MAX(*age, now - w->quiet);
		if (now >= w->look) {
			due = 1;
			w->last_look = now;
			w->look = now + w->pause;
			w->pause = DF_MIN(w->pause * 2, PAUSE_MAX);
		}
		*next = DF_MIN(*next, w->look);
	}
	df_mutex_unlock(&rel.lock);
	return due;
}

static int wait_over(void *arg)
{
	struct df_host_wait *w = arg;

	if (w->ready(w->arg))
		return 1;
	/*
	 * ACQUIRE pairs with the RELEASE in release(): without it the application could continue
	 * before the operations are recorded as skipped.
	 */
	if (__atomic_load_n(&w->released, __ATOMIC_ACQUIRE))
		return 1;
	if (!__atomic_load_n(&w->told, __ATOMIC_RELAXED) && df_now_ns() - w->since > SUSPECT_NS) {
		__atomic_store_n(&w->told, 1, __ATOMIC_RELAXED);
		df_snapshot_wake();
	}
	return 0;
}

static int host_wait(struct df_host_wait *w)
{
	int policy = df_env()->release;

	if (w->ready(w->arg))
		return 0;
	if (policy == DF_RELEASE_NONE ||
	    (w->what != DF_CALL_DEVICE_SYNC && !w->touch && policy != DF_RELEASE_ALL)) {
		df_executor->wait(w->dev, w->ready, w->arg);
		return 0;
	}
	w->since = w->quiet = w->last_look = df_now_ns();
	w->look = w->since + SUSPECT_NS;
	w->pause = SUSPECT_NS;
	w->moved = df_executor->progress(w->dev);
	df_mutex_lock(&rel.lock);
	df_list_add_tail(&rel.waits, &w->node);
	df_mutex_unlock(&rel.lock);
	df_executor->wait(w->dev, wait_over, w);
	df_mutex_lock(&rel.lock);
	df_list_del(&w->node);
	df_mutex_unlock(&rel.lock);
	return w->released && !w->ready(w->arg);
}

int df_host_wait(struct df_dev *dev, uint32_t what, uint64_t call, int (*ready)(void *arg),
		 void *arg)
{
	struct df_host_wait w = {
		.dev = dev, .ready = ready, .arg = arg, .call = call, .what = what};

	return host_wait(&w);
}

int df_host_wait_copy(struct df_dev *dev, uint64_t call, const struct df_touch *touch,
		      int (*ready)(void *arg), void *arg)
{
	struct df_host_wait w = {.dev = dev,
				 .ready = ready,
				 .arg = arg,
				 .call = call,
				 .what = DF_CALL_MEMCPY,
				 .touch = touch};

	return host_wait(&w);
}

int df_host_visible(uintptr_t at, uintptr_t end)
{
	struct df_mem_info info;

	if (at == end)
		return 0;
	return df_backend->mem_info((const void *)at, &info) || info.kind != DF_MEM_DEVICE;
}

/*
 * Whether the application can observe that the operation is pending. It can if the operation is on
 * the device of the wait (`own`) and its source or destination is memory that the host can access.
 * It also can if a copy (`touch`) touches the operation's buffers, on any device.
 */
static int tells(const struct df_flight *f, int own, const struct df_touch *touch)
{
	return (own &&
		(df_host_visible(f->in, f->in_end) || df_host_visible(f->out, f->out_end))) ||
	       (touch && df_touch_concerns(touch, f));
}

/*
 * Whether the application can observe that operations on the device are pending. The backend is
 * queried with no lock held, about copies of the operations.
 */
static int observable(struct df_dev *dev, const struct df_touch *touch)
{
	struct df_flights own = {0}, others = {0};
	struct df_comm *comm;
	int busy = !df_backend->streams_idle(dev->index);
	uint32_t i;

	df_mutex_lock(&df_rt.lock);
	df_list_each(comm, &df_rt.comms, node)
	{
		df_mutex_lock(&comm->dev->lock);
		df_flights_prune(&comm->order.pending);
		/* Without memory for the check, assume that the operations are observable. */
		busy |= df_flights_join(comm->dev == dev ? &own : &others, &comm->order.pending) !=
			0;
		df_mutex_unlock(&comm->dev->lock);
	}
	df_mutex_unlock(&df_rt.lock);
	for (i = 0; i < own.nr && !busy; i++)
		busy |= tells(&own.v[i], 1, touch);
	for (i = 0; i < others.nr && !busy; i++)
		busy |= tells(&others.v[i], 0, touch);
	df_flights_free(&own);
	df_flights_free(&others);
	return busy;
}

/* Records all operations in flight on the device as skipped. Returns 0 or -ENOMEM. */
static int owe(struct df_dev *dev)
{
	struct df_comm *comm;
	int ret = 0;

	df_mutex_lock(&df_rt.lock);
	df_list_each(comm, &df_rt.comms, node)
	{
		if (comm->dev != dev)
			continue;
		df_mutex_lock(&dev->lock);
		ret |= df_debt_owe(dev, &comm->order.pending);
		df_mutex_unlock(&dev->lock);
	}
	df_mutex_unlock(&df_rt.lock);
	return ret;
}

/*
 * Whether the policy allows this device's operations to be left pending. A copy is released, under
 * any policy, only if that is not observable, because a release must not cause a wrong value.
 */
static int allowed(const struct df_host_wait *w)
{
	return (!w->touch && df_env()->release != DF_RELEASE_SAFE) || !observable(w->dev, w->touch);
}

/*
 * Finds a wait that is listed and not released. Copies its device and its `touch` into *out, which
 * do not change any more. `touch` is memory for that copy. Returns 0 if there is no such wait.
 */
static int find(uint64_t call, struct df_host_wait *out, struct df_touch *touch)
{
	struct df_host_wait *w;
	int found = 0;

	df_mutex_lock(&rel.lock);
	df_list_each(w, &rel.waits, node)
	{
		if (w->call != call || w->released || found)
			continue;
		found = 1;
		*out = (struct df_host_wait){.dev = w->dev, .call = call, .what = w->what};
		if (w->touch) {
			*touch = *w->touch;
			out->touch = touch;
		}
	}
	df_mutex_unlock(&rel.lock);
	return found;
}

uint32_t df_release_may(uint64_t *calls, uint32_t max)
{
	struct df_host_wait *w, one;
	struct df_touch touch;
	uint32_t i, n = 0, nr = 0;

	df_mutex_lock(&rel.lock);
	df_list_each(w, &rel.waits, node) if (!w->released && nr < max) calls[nr++] = w->call;
	df_mutex_unlock(&rel.lock);
	for (i = 0; i < nr; i++)
		if (find(calls[i], &one, &touch) && allowed(&one))
			calls[n++] = calls[i];
	return n;
}

static int release(uint64_t call)
{
	struct df_host_wait *w;
	int done = 0;

	df_mutex_lock(&rel.lock);
	df_list_each(w, &rel.waits, node)
	{
		if (w->call != call || w->released)
			continue;
		df_trace(DF_REC_RELEASE, w->dev->index, 0, -1, call, w->what, 0, 0, 0);
		__atomic_add_fetch(&w->dev->released, 1, __ATOMIC_RELAXED);
		/* RELEASE pairs with the ACQUIRE in wait_over(), which says why. */
		__atomic_store_n(&w->released, 1, __ATOMIC_RELEASE);
		done = 1;
	}
	df_mutex_unlock(&rel.lock);
	return done;
}

/* Writes which call waited, where, and on which rank or, if no launcher set one, device. */
static void describe(const struct df_host_wait *w, char *buf, size_t size)
{
	int world, rank = df_launcher_rank(&world);
	char place[400];

	df_call_place(df_trace_ring(), w->call, place, sizeof(place));
	snprintf(buf, size, "%s %d is in %s", rank >= 0 ? "rank" : "device",
		 rank >= 0 ? rank : w->dev->index, *place ? place : df_call_text(w->what));
}

/* Is a release of this kind the first one, and is no other waiting to be logged? */
static int is_first(int likely)
{
	int first;

	df_mutex_lock(&rel.lock);
	first = !rel.logged[likely] && !rel.unlogged;
	df_mutex_unlock(&rel.lock);
	return first;
}

/* Keeps the release of the call `call` for df_release_log(). */
static void keep_log(const char *call, int likely, const char *line)
{
	char *copy = line ? strdup(line) : NULL;

	df_mutex_lock(&rel.lock);
	if (!rel.unlogged) {
		snprintf(rel.call, sizeof(rel.call), "%s", call);
		rel.unlogged = df_now_ns();
		rel.likely = likely;
		rel.line = copy;
		copy = NULL;
	}
	df_mutex_unlock(&rel.lock);
	free(copy);
}

void df_release_forget_log(void)
{
	df_mutex_lock(&rel.lock);
	free(rel.line);
	rel.line = NULL;
	rel.unlogged = 0;
	df_mutex_unlock(&rel.lock);
}

uint64_t df_release_log(uint64_t after)
{
	uint64_t since;
	char call[sizeof(rel.call)];
	int likely;
	char *line;

	df_mutex_lock(&rel.lock);
	since = rel.unlogged;
	df_mutex_unlock(&rel.lock);
	if (!since)
		return UINT64_MAX;
	if (df_now_ns() - since < after && df_debt_count())
		return LOG_LOOK_NS;
	/* An operation has ended without a result, so the release did not help. */
	if (df_debt_broken()) {
		df_release_forget_log();
		return UINT64_MAX;
	}
	df_mutex_lock(&rel.lock);
	memcpy(call, rel.call, sizeof(call));
	line = rel.line;
	likely = rel.likely;
	since = rel.unlogged;
	rel.logged[likely] |= since != 0;
	rel.unlogged = 0;
	rel.line = NULL;
	df_mutex_unlock(&rel.lock);
	if (since && likely)
		df_warn("released a device-wide wait of a cycle that is likely a deadlock: %s. "
			"Nothing of it has moved for %ld ms, and no thread that could end it has "
			"made a call. A rank that was only late loses nothing: work that could "
			"show that the operations are unfinished is executed after them "
			"(DFSHIM_RELEASE_MS=0 forbids this; further releases are counted, not "
			"logged)%s%s",
			call, df_env()->release_ms, line ? ": " : "", line ? line : "");
	else if (since)
		df_warn("released a device-wide wait that was part of a deadlock: %s. Its "
			"operations finish later, in stream order (DFSHIM_RELEASE=none forbids "
			"this; further releases are counted, not logged)%s%s",
			call, line ? ": " : "", line ? line : "");
	free(line);
	return UINT64_MAX;
}

unsigned df_release(const uint64_t *calls, uint32_t nr, int likely, const char *line)
{
	const int logs = is_first(likely != 0);
	char call[sizeof(rel.call)] = "";
	unsigned done = 0;
	uint32_t i;

	for (i = 0; i < nr; i++) {
		struct df_host_wait one;
		struct df_touch touch;

		/* Before the release: a call that has returned has no place any more. */
		if (logs && !done && find(calls[i], &one, &touch))
			describe(&one, call, sizeof(call));
		/* This may have changed since df_release_may(). */
		if (!find(calls[i], &one, &touch) || !allowed(&one) || owe(one.dev))
			continue;
		done += release(calls[i]);
	}
	if (!done)
		return 0;
	df_executor->wake();
	if (logs)
		keep_log(call, likely != 0, line);
	return done;
}
