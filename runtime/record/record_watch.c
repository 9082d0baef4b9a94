/*
 * The thread of mode trace. It records when operations start and end (record.c). When an operation
 * is unfinished and there is no progress for DFSHIM_TIMEOUT_MS, it explains why. There is no
 * control plane in this mode, because NCCL makes the communicators. So the records of other
 * processes are read from their files in the folder of DFSHIM_TRACE. Every process that notices the
 * hang judges; the first of them prints, and another one only if the first does not.
 *
 * A process that is quiet for that long also records where its threads are, because no other
 * process can.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "kernels/abi.h"
#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/exit_status.h"
#include "runtime/base/futex.h"
#include "runtime/base/log.h"
#include "runtime/base/thread.h"
#include "runtime/base/time.h"
#include "runtime/comm/process.h"
#include "runtime/record/record.h"
#include "runtime/watch/hardware.h"
#include "runtime/watch/hosts.h"
#include "runtime/watch/metrics.h"
#include "runtime/watch/ras_server.h"
#include "runtime/dfshim.h"
#include "trace/check.h"
#include "trace/record/writer.h"

#define NAP_MIN_NS (50 * 1000)
#define NAP_MAX_NS (2 * DF_NS_PER_MS)
#define STALE_NS   (5 * DF_NS_PER_S) /* silence that the checker itself finds suspicious */
/* for the other processes to record where their threads are */
#define NOTES_NS (300 * DF_NS_PER_MS)
/* each process waits this much longer than the one before it */
#define TURN_NS	  (400 * DF_NS_PER_MS)
#define EXIT_NS	  (500 * DF_NS_PER_MS) /* between verdict and exit */
#define MAX_TURNS 8
#define MAX_GONE  64

static struct {
	uint32_t wake, sleeping; /* futex word; whether the thread sleeps until woken */
	char dir[4096];		 /* "": judges this process alone */
	uint64_t began;
	const struct df_record_nccl *nccl;
} watch;

void df_record_wake(void)
{
	/*
	 * SEQ_CST pairs with sleep_until_woken(): either this thread sees that the watcher sleeps,
	 * or the watcher sees that the word has changed and does not sleep. Without it the watcher
	 * could sleep through the end of an operation.
	 */
	__atomic_add_fetch(&watch.wake, 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&watch.sleeping, __ATOMIC_SEQ_CST))
		df_futex_wake(&watch.wake, 1, 0);
}

static void sleep_until_woken(uint32_t seen, uint64_t ns)
{
	/* SEQ_CST pairs with df_record_wake(), which says why. */
	__atomic_store_n(&watch.sleeping, 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&watch.wake, __ATOMIC_SEQ_CST) == seen)
		df_futex_wait(&watch.wake, seen, (int64_t)ns, 0);
	__atomic_store_n(&watch.sleeping, 0, __ATOMIC_RELAXED);
}

static uint64_t real_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return (uint64_t)ts.tv_sec * DF_NS_PER_S + (uint64_t)ts.tv_nsec;
}

/* Reads all traces that can be read. Returns NULL if there are none. */
static struct df_check_set *gather(void)
{
	struct df_check_set *set = df_check_set_new();
	int rc = -ENOENT;

	if (set && watch.dir[0])
		rc = df_check_add_dir(set, watch.dir);
	if (set && rc)
		rc = df_check_add_ring(set, df_trace_ring(), "this process");
	if (rc) {
		df_check_set_free(set);
		set = NULL;
	}
	return set;
}

/*
 * Records which processes have ended, for a checker that reads the traces after all have ended: it
 * could not find out which ended first.
 */
static void note_gone(const struct df_check_set *set)
{
	static uint32_t known[MAX_GONE];
	static size_t nr_known;
	uint64_t hosts[MAX_GONE];
	uint32_t pids[MAX_GONE];
	size_t nr = df_check_gone(set, watch.began, hosts, pids, MAX_GONE), i, k;

	for (i = 0; i < nr; i++) {
		for (k = 0; k < nr_known && known[k] != pids[i]; k++)
			;
		if (k < nr_known || nr_known == MAX_GONE)
			continue;
		known[nr_known++] = pids[i];
		df_trace(DF_REC_PEER_DEAD, -1, 0, -1, 0, hosts[i], pids[i], 0, 0);
	}
}

static struct df_check_result *judge(uint64_t stale, unsigned *turn, uint64_t *told)
{
	/* The checker must consider suspicious any silence that was long enough to ask it. */
	struct df_check_opts opts = {.live = 1,
				     .stale_ns = DF_MIN(stale, STALE_NS),
				     .now_ns = df_now_ns(),
				     .alive = df_check_alive};
	struct df_check_set *set = gather();
	struct df_check_result *r = NULL;

	*turn = 0;
	*told = 0;
	if (set) {
		*turn = df_check_before(set, df_trace_ring(), told);
		if (df_check_run(set, &opts, &r))
			r = NULL;
		if (r && df_check_verdict(r) == DF_V_CRASH)
			note_gone(set);
	}
	df_check_set_free(set);
	return r;
}

static void print(const struct df_check_result *r)
{
	char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);

	if (!f)
		return;
	df_check_print(r, f);
	if (!watch.dir[0])
		fputs("DFSHIM_TRACE is not set: only this process was looked at.\n", f);
	fclose(f);
	df_log_raw(text, len);
	df_trace_told(df_check_verdict(r), df_check_line(r));
	df_metrics_soon();
	free(text);
}

/* Explains the hang. Returns 1 if it is explained, or if there is progress. */
static int stalled(uint64_t quiet, unsigned left)
{
	uint64_t before = df_record_progress(), began = real_ns() - quiet, told;
	struct df_check_result *r, *again;
	int moved, exits, status, action = df_env()->timeout_action;
	unsigned turn, i;

	df_trace_clocks();
	df_trace(DF_REC_STALL, -1, 0, -1, 0, quiet / DF_NS_PER_MS, left, 0, 0);
	if (watch.dir[0])
		df_sleep_ns(NOTES_NS);
	r = judge(quiet, &turn, &told);
	for (i = 0; i < DF_MIN(turn, MAX_TURNS) && told < began; i++) {
		df_sleep_ns(TURN_NS);
		df_check_result_free(judge(quiet, &turn, &told));
	}
	/*
	 * No other thread records ends meanwhile: without them the second look would see the same
	 * as the first.
	 */
	df_record_poll(&left);
	again = judge(quiet, &turn, &told);
	moved = df_record_progress() != before;
	/* A deadlock is stable: if the two looks differ, or there is progress, there is none. */
	if (told < began && !moved && r && again &&
	    df_check_verdict(r) == df_check_verdict(again) && df_check_verdict(r) != DF_V_OK) {
		print(again);
		told = began;
	}
	status = df_verdict_stop_exit(again ? df_check_verdict(again) : DF_V_UNKNOWN);
	exits = action == DF_TIMEOUT_EXIT;
	if (told >= began && !moved && action == DF_TIMEOUT_ABORT) {
		/*
		 * A program that does not look for errors would otherwise end as if its data were
		 * right.
		 */
		df_exit_status_failed(status);
		exits = !watch.nccl->stop(again ? df_check_line(again) : "the job hangs");
	}
	if (told >= began && !moved && exits) {
		/*
		 * Wait, because another process that judges at the same moment must find this one
		 * alive.
		 */
		df_sleep_ns(EXIT_NS);
		/* Later actions of other processes may be consequences. */
		df_trace(DF_REC_COMM_ABORT, -1, 0, -1, 0, 1, 0, 0, 0);
		df_metrics_stop();
		df_exit_now(status);
	}
	df_check_result_free(r);
	df_check_result_free(again);
	return told >= began || moved;
}

static void *run(void *arg)
{
	uint64_t timeout = (uint64_t)df_env()->timeout_ms * DF_NS_PER_MS;
	uint64_t last = df_record_progress(), since = df_now_ns(), nap = NAP_MIN_NS;
	uint64_t early = UINT64_MAX, noted = UINT64_MAX, due = timeout;

	(void)arg;
	df_hardware_start();
	for (;;) {
		/*
		 * SEQ_CST pairs with df_record_wake(): an operation that is put on a stream after
		 * this wakes the thread.
		 */
		uint32_t seen = __atomic_load_n(&watch.wake, __ATOMIC_SEQ_CST);
		unsigned left, changed = df_record_poll(&left);
		uint64_t now = df_now_ns(), quiet;

		if (df_record_progress() != last) {
			last = df_record_progress();
			since = now;
			due = timeout;
			noted = UINT64_MAX;
		}
		quiet = now - since;
		/*
		 * Record them once at half the time, for the process that judges first: this
		 * process may have nothing unfinished, and then wakes seldom. Record them again for
		 * each judgement, which would otherwise use the places of the previous one.
		 */
		if ((quiet >= timeout / 2 && early != last) || (quiet >= due && noted != due)) {
			early = last;
			noted = quiet >= due ? due : noted;
			if (watch.nccl->slot_waits)
				watch.nccl->slot_waits();
			df_hosts_note();
			df_hardware_note();
		}
		/* If two looks disagree, look again after twice the silence. */
		if (quiet >= due && (left || __atomic_load_n(&df_rt.blocked, __ATOMIC_RELAXED)))
			due = stalled(quiet, left) ? UINT64_MAX : 2 * quiet;
		nap = changed ? NAP_MIN_NS : DF_MIN(nap * 2, NAP_MAX_NS);
		if (left)
			df_sleep_ns(nap);
		else
			sleep_until_woken(seen, DF_MAX(timeout / 4, DF_NS_PER_MS));
	}
	return NULL;
}

int df_record_watch_start(const struct df_record_nccl *nccl)
{
	const char *dir = df_env()->trace;
	int ret;

	watch.began = df_now_ns();
	watch.nccl = nccl;
	if (dir && df_env_expand_shared(watch.dir, sizeof(watch.dir), dir))
		watch.dir[0] = '\0';
	ret = df_thread_start("dfshim-watch", 0, run, NULL);
	if (ret)
		df_warn("cannot start a thread: dfshim does not record when operations end, and "
			"does not explain hangs");
	else
		df_ras_start(0); /* NCCL itself answers ncclras */
	return ret;
}
