/*
 * Runs the plugin's thread. It notices that nothing moves that NCCL has begun, and records where
 * NCCL's proxies are. Then `dfshim check` knows that the job stands still and is not in the middle
 * of its work. If libdfshim.so is in the process, it judges; the proxies are recorded before that.
 *
 * The thread wakes some times in DFSHIM_TIMEOUT_MS, but at least once a second.
 */
#include <errno.h>
#include <limits.h>
#include "interpose/profiler/profiler.h"
#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/log.h"
#include "runtime/base/thread.h"
#include "runtime/base/time.h"
#include "trace/check.h"
#include "trace/record/writer.h"

static int stalled; /* guarded by df_profiler_lock */

int df_profiler_watch_stalled(void)
{
	return stalled;
}

static void *run(void *arg)
{
	uint64_t timeout = (uint64_t)df_env()->timeout_ms * DF_NS_PER_MS, since = df_now_ns();
	uint64_t tick = DF_MIN(DF_MAX(timeout / 8, 20 * DF_NS_PER_MS), DF_NS_PER_S), last = 0;
	uint64_t noted = 0, noted_since = 0, now, moves, quiet = DF_CHECK_STALE_NS;
	struct df_profiler_left left;
	char dir[PATH_MAX];
	unsigned proxies, nr_noted = 0;
	uint32_t batch = 0;
	int before;

	(void)arg;
	for (;;) {
		df_sleep_ns(tick);
		df_mutex_lock(&df_profiler_lock);
		df_profiler_look(&left);
		moves = left.moves + df_profiler_proxy_moves(&proxies);
		now = df_now_ns();
		before = stalled;
		if (moves != last) {
			last = moves;
			since = now;
			stalled = 0;
			quiet = DF_CHECK_STALE_NS;
		}
		/* If the job is killed now, the trace shows for how long nothing has moved. */
		if (now - since >= quiet && (left.ops || left.calls || proxies)) {
			df_trace_clocks();
			quiet = (now - since) * 3 / 2;
		}
		if (now - since >= timeout / 2 && proxies && noted != last) {
			noted = last;
			noted_since = since;
			nr_noted = df_profiler_proxy_note(since, ++batch);
		} else if (nr_noted && df_profiler_proxy_note(noted_since, 0) < nr_noted) {
			/* Some proxies have moved, so the records of them are stale. */
			nr_noted = df_profiler_proxy_note(noted_since, ++batch);
		}
		if (now - since >= timeout && !before && (left.ops || left.calls || proxies)) {
			stalled = 1;
			df_trace_clocks();
			df_profiler_put(DF_REC_STALL, 0, -1, 0, (now - since) / DF_NS_PER_MS,
					left.ops, 0, 0);
		}
		before |= !stalled || df_profiler_ring_shared();
		df_mutex_unlock(&df_profiler_lock);
		if (!before && !df_env_expand_shared(dir, sizeof(dir), df_env()->trace))
			df_warn("NCCL has done nothing for %.1f s, with %u unfinished operations: "
				"`dfshim check %s` says why, when all ranks' traces are there",
				(double)(now - since) / 1e9, left.ops, dir);
	}
	return NULL;
}

int df_profiler_watch_start(void)
{
	static int rc = -EAGAIN; /* guarded by the lock, until it is 0 or an error */
	int now;

	df_mutex_lock(&df_profiler_lock);
	if (rc == -EAGAIN) {
		rc = df_thread_start("dfshim-profiler", 0, run, NULL);
		if (rc)
			df_warn("cannot start a thread: NCCL's events are not recorded");
	}
	now = rc;
	df_mutex_unlock(&df_profiler_lock);
	return now;
}
