/*
 * Defers frees of memory that operations in flight may touch. In CUDA the free would implicitly
 * wait for the device, and that wait could be part of a deadlock. So the memory is freed when all
 * operations that were in flight then, on all devices, are done. All devices: pinned memory belongs
 * to none, and a communicator may use another device's memory.
 *
 * Called by threads that free, by threads that allocate and find no memory, and by the threads that
 * retire operations. Below it, the allocations that are made through the runtime itself.
 */
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
#include "runtime/comm/process.h"
#include "runtime/devs.h"
#include "runtime/dfshim.h"
#include "runtime/order/frees.h"
#include "runtime/order/stream.h"
#include "runtime/order/sync.h"
#include "runtime/watch/debt.h"
#include "trace/record/site.h"
#include "trace/record/writer.h"

struct df_free {
	struct df_list node;
	void *ptr;
	struct df_flights pending;
};

static struct {
	struct df_mutex lock;
	struct df_list list;
	uint32_t nr; /* number of entries on the list or being freed; read without the lock */
	/* number of entries that are off the list but not freed yet; read without the lock */
	uint32_t leaving;
} frees = {.lock = DF_MUTEX_INIT(DF_RANK_LEAF, "frees"), .list = DF_LIST_INIT(frees.list)};

static int all_flights(struct df_flights *set)
{
	int i, ret = 0;

	for (i = 0; i < df_rt.nr_devs; i++) {
		struct df_dev *dev = &df_rt.devs[i];

		if (!df_dev_used(dev))
			continue;
		df_mutex_lock(&dev->lock);
		ret |= df_executor->in_flight(dev, set);
		df_mutex_unlock(&dev->lock);
	}
	return ret;
}

int df_free_defer(void *ptr, const struct df_mem_info *info)
{
	struct df_free *f;

	if (!info)
		return 0;
	f = calloc(1, sizeof(*f));
	if (!f)
		return 0;
	f->ptr = ptr;
	if (all_flights(&f->pending) || !f->pending.nr) {
		df_flights_free(&f->pending);
		free(f);
		return 0;
	}
	df_trace(DF_REC_MEM_FREE, info->device, 0, -1, 0, (uintptr_t)ptr, 1, (uint64_t)info->device,
		 0);
	df_mutex_lock(&frees.lock);
	df_list_add_tail(&frees.list, &f->node);
	/*
	 * SEQ_CST pairs with df_frees_look(): either the thread that retires the last of the
	 * operations sees the count, or this thread sees the operation done. Without it the memory
	 * could stay until the next operation ends.
	 */
	__atomic_add_fetch(&frees.nr, 1, __ATOMIC_SEQ_CST);
	df_mutex_unlock(&frees.lock);
	df_frees_look();
	return 1;
}

/* Takes an entry that no operation uses any more off the list. Returns NULL if there is none. */
static struct df_free *take(void)
{
	struct df_free *f, *found = NULL;

	df_mutex_lock(&frees.lock);
	df_list_each(f, &frees.list, node)
	{
		if (!df_flights_done(&f->pending))
			continue;
		found = f;
		df_list_del(&f->node);
		__atomic_add_fetch(&frees.leaving, 1, __ATOMIC_RELAXED);
		break;
	}
	df_mutex_unlock(&frees.lock);
	return found;
}

void df_frees_look(void)
{
	struct df_free *f;

	/* SEQ_CST pairs with the addition in df_free_defer(), which says why. */
	if (!__atomic_add_fetch(&frees.nr, 0, __ATOMIC_SEQ_CST))
		return;
	while ((f = take())) {
		df_backend->mem_free(f->ptr);
		df_flights_free(&f->pending);
		free(f);
		/*
		 * RELEASE pairs with the ACQUIRE in df_free_flush(): without it that thread could
		 * see the lower count before the memory is free.
		 */
		__atomic_sub_fetch(&frees.leaving, 1, __ATOMIC_RELEASE);
		__atomic_sub_fetch(&frees.nr, 1, __ATOMIC_RELEASE);
	}
}

/* ---- memory that is unmapped ----------------------------------------------------------------- */

/*
 * Unmapping cannot be deferred, because the addresses may be mapped again at once. A correct
 * program unmaps memory only when no operation uses it, so there is nothing to wait for, unless the
 * program relies on a wait that was released.
 */
void df_free_unmap(int device, uintptr_t at, size_t bytes)
{
	const struct df_touch range = {at, at + bytes, at, at + bytes};
	/* Device -1 selects, under every policy, only operations that touch the range. */
	const struct df_payer who = {-1, DF_WORK_MEMCPY, &range};
	struct df_flights set = {0};
	struct df_dev *dev = NULL;
	uint64_t call;
	int i;

	if (!df_debt_any())
		return;
	if (df_debt_join(&set, &who))
		df_warn_once("out of memory: cannot wait for the operations that use memory "
			     "before it is unmapped");
	for (i = 0; i < df_rt.nr_devs && !dev; i++)
		if (df_dev_used(&df_rt.devs[i]))
			dev = &df_rt.devs[i];
	if (set.nr && dev) {
		call = df_call_enter(DF_CALL_FREE, device, at, 0, df_trace_caller());
		df_executor->wait(dev, df_sync_ready, &set);
		df_call_exit(call, DF_CALL_FREE, device, 0);
	}
	df_flights_free(&set);
}

/* ---- an allocation that finds no memory ------------------------------------------------------ */

struct wait {
	struct df_flights set;
	uint64_t progress, since;
};

/*
 * Whether the wait is over: all operations are done, or none has progressed for the time-out. In
 * the second case the allocation fails.
 */
static int over(void *arg)
{
	struct wait *w = arg;
	uint64_t now, progress;

	if (df_flights_done(&w->set))
		return 1;
	now = df_now_ns();
	progress = df_executor->progress(NULL);
	if (progress != w->progress) {
		w->progress = progress;
		w->since = now;
	}
	return now - w->since > (uint64_t)df_env()->timeout_ms * DF_NS_PER_MS;
}

int df_free_flush(int device)
{
	struct wait w = {.progress = 0, .since = df_now_ns()};
	struct df_dev *dev = NULL;
	struct df_free *f;
	uint64_t call;
	int i, ret = 0;

	if (!__atomic_load_n(&frees.nr, __ATOMIC_RELAXED))
		return 0;
	df_mutex_lock(&frees.lock);
	df_list_each(f, &frees.list, node) ret |= df_flights_join(&w.set, &f->pending);
	df_mutex_unlock(&frees.lock);
	for (i = 0; i < df_rt.nr_devs && !dev; i++)
		if (df_dev_used(&df_rt.devs[i]))
			dev = &df_rt.devs[i];
	if (!ret && dev) {
		call = df_call_enter(DF_CALL_FREE, device, 0, 0, df_trace_caller());
		df_executor->wait(dev, over, &w);
		df_call_exit(call, DF_CALL_FREE, device, 0);
	}
	df_flights_free(&w.set);
	df_frees_look();
	/*
	 * Another thread may be freeing an entry that it has taken off the list, which it does
	 * without waiting. ACQUIRE pairs with the RELEASE in df_frees_look(): without it the
	 * allocation could still fail.
	 */
	while (__atomic_load_n(&frees.leaving, __ATOMIC_ACQUIRE))
		sched_yield();
	return 1;
}

/* ---- memory ---------------------------------------------------------------------------------- */

int df_mem_alloc(size_t bytes, void **out)
{
	return df_backend->mem_alloc(df_backend->get_device(), bytes, out);
}

int df_mem_free(void *ptr)
{
	struct df_mem_info info;

	if (!ptr)
		return 0;
	if (df_backend->mem_info(ptr, &info) || info.kind == DF_MEM_UNKNOWN)
		return -EINVAL;
	/* As cudaFree() does: deferred while operations are in flight. */
	if (df_free_defer(ptr, &info))
		return 0;
	return df_backend->mem_free(ptr);
}

int df_mem_known(const void *ptr)
{
	struct df_mem_info info;

	return df_backend->mem_info(ptr, &info) == 0 && info.kind != DF_MEM_UNKNOWN;
}
