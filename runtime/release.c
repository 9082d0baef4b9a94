/*
 * Waits of the host, and their release. A host thread that waits for operations (a synchronising CUDA call) drives
 * the daemon meanwhile. When it has waited for a while without anything moving, the watchdog is told; if the
 * checker proves a deadlock whose cycle goes through the wait, and DFSHIM_RELEASE allows it, the wait returns
 * although operations are pending (design section 8, law L3b).
 *
 * safe: only a device-wide wait, and only if nothing that the host could observe is queued behind the pending
 * operations: no work on any stream of the device, no destination in memory that the host can read. The
 * operations become a *debt* of the device: whatever is put on any of its streams later, and every later
 * operation that touches their buffers, waits for them first. So no program can tell the difference except by
 * the return itself.
 */
#include <stdlib.h>
#include "runtime/rt.h"
#include "trace/check.h"
#include "trace/writer.h"

#define SUSPECT_NS (DF_NS_PER_MS / 2)

static struct {
	struct df_mutex lock;
	struct df_list waits;
	uint32_t suspects;
} rel = {.lock = DF_MUTEX_INIT(DF_RANK_LEAF, "host waits"), .waits = DF_LIST_INIT(rel.waits)};

uint32_t df_release_suspects(void)
{
	return __atomic_load_n(&rel.suspects, __ATOMIC_RELAXED);
}

static int wait_over(void *arg)
{
	struct df_host_wait *w = arg;

	if (w->ready(w->arg))
		return 1;
	/* ACQUIRE pairs with the RELEASE in release(): the debt is there before we return. */
	if (__atomic_load_n(&w->released, __ATOMIC_ACQUIRE))
		return 1;
	if (!w->told && df_now_ns() - w->since > SUSPECT_NS) {
		w->told = 1;
		__atomic_add_fetch(&rel.suspects, 1, __ATOMIC_RELAXED);
		df_watchdog_wake();
	}
	return 0;
}

int df_host_wait(struct df_dev *dev, uint32_t what, uint64_t call, int (*ready)(void *arg),
		 void *arg)
{
	struct df_host_wait w = {
		.dev = dev, .ready = ready, .arg = arg, .call = call, .what = what};
	int policy = df_env()->release;

	if (ready(arg))
		return 0;
	if (df_rt.rules == DF_RULES_NCCL || policy == DF_RELEASE_NONE ||
	    (what != DF_CALL_DEVICE_SYNC && policy != DF_RELEASE_ALL)) {
		df_engine_wait(dev, ready, arg);
		return 0;
	}
	w.since = df_now_ns();
	df_mutex_lock(&rel.lock);
	df_list_add_tail(&rel.waits, &w.node);
	df_mutex_unlock(&rel.lock);
	df_engine_wait(dev, wait_over, &w);
	df_mutex_lock(&rel.lock);
	df_list_del(&w.node);
	df_mutex_unlock(&rel.lock);
	if (w.told)
		__atomic_sub_fetch(&rel.suspects, 1, __ATOMIC_RELAXED);
	return w.released && !ready(arg);
}

static void look(const struct df_stream_info *s, void *arg)
{
	int *busy = arg;

	*busy |= !df_rt.cu->stream_idle(s->stream);
}

/* The host can see memory of this kind without a CUDA call that we would notice. */
static int host_visible(uintptr_t at, uintptr_t end)
{
	struct df_mem_info info;

	if (at == end)
		return 0;
	return df_rt.cu->mem_info((const void *)at, &info) || info.kind != DF_MEM_DEVICE;
}

static int observable(struct df_dev *dev)
{
	struct df_comm *comm;
	uint32_t i;
	int busy = 0;

	df_rt.cu->stream_each(dev->index, look, &busy);
	df_mutex_lock(&df_rt.lock);
	df_list_each(comm, &df_rt.comms, node)
	{
		if (comm->dev != dev)
			continue;
		df_mutex_lock(&dev->lock);
		df_flights_prune(&comm->pending);
		for (i = 0; i < comm->pending.nr && !busy; i++)
			busy |= host_visible(comm->pending.v[i].out, comm->pending.v[i].out_end);
		df_mutex_unlock(&dev->lock);
	}
	df_mutex_unlock(&df_rt.lock);
	return busy;
}

/* Everything in flight on the device becomes its debt. */
static void owe(struct df_dev *dev)
{
	struct df_comm *comm;

	df_mutex_lock(&df_rt.lock);
	df_list_each(comm, &df_rt.comms, node)
	{
		if (comm->dev != dev)
			continue;
		df_mutex_lock(&dev->lock);
		df_flights_join(&dev->debt, &comm->pending);
		/* RELEASE pairs with the ACQUIRE in hook_before_work() (runtime/stream.c). */
		__atomic_store_n(&dev->nr_debt, dev->debt.nr, __ATOMIC_RELEASE);
		df_mutex_unlock(&dev->lock);
	}
	df_mutex_unlock(&df_rt.lock);
}

/* The device of one of our waits that is on the list and may be released; NULL none. */
static struct df_dev *eligible(const struct df_check_sync *s)
{
	struct df_host_wait *w;
	struct df_dev *dev = NULL;

	df_mutex_lock(&rel.lock);
	df_list_each(w, &rel.waits, node) if (w->call == s->call && !w->released) dev = w->dev;
	df_mutex_unlock(&rel.lock);
	if (!dev || (df_env()->release == DF_RELEASE_SAFE && observable(dev)))
		return NULL;
	return dev;
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
		/* RELEASE pairs with the ACQUIRE in wait_over(). */
		__atomic_store_n(&w->released, 1, __ATOMIC_RELEASE);
		done = 1;
	}
	df_mutex_unlock(&rel.lock);
	return done;
}

unsigned df_release_by(const struct df_check_result *r)
{
	struct df_check_sync s[256];
	size_t i, nr = df_check_syncs(r, s, DF_ARRAY_LEN(s));
	unsigned done = 0;

	for (i = 0; i < nr && i < DF_ARRAY_LEN(s); i++) {
		struct df_dev *dev;

		if (s[i].pid != df_rt.self.pid)
			continue;
		dev = eligible(&s[i]);
		if (!dev)
			continue;
		owe(dev);
		if (!release(s[i].call))
			continue;
		done++;
		df_warn_once(
			"released a device synchronisation that was part of a deadlock; its "
			"operations finish later, in stream order (DFSHIM_RELEASE=none forbids "
			"this; further releases are counted, not logged): %s",
			df_check_line(r));
	}
	if (done)
		df_bell_ring(df_tl_bell());
	return done;
}
