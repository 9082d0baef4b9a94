/*
 * The thread of mode trace. It records when operations start and end (record.c). When an operation
 * is unfinished and there is no progress, it explains why. Where the processes of the job are
 * connected, one of them judges for all (record_live.c). Else the records of other processes are
 * read from their files in the folder of DFSHIM_TRACE after DFSHIM_TIMEOUT_MS: every process that
 * notices the hang judges; the first of them prints, and another one only if the first does not.
 *
 * A process that is quiet for that long also records where its threads are, because no other
 * process can.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
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
#include "runtime/watch/part.h"
#include "runtime/watch/ras_server.h"
#include "runtime/watch/snapshot.h"
#include "runtime/dfshim.h"
#include "trace/check.h"
#include "trace/record/writer.h"

#define NAP_MIN_NS (50 * 1000)
#define NAP_MAX_NS (2 * DF_NS_PER_MS)
/* for the other processes to record where their threads are */
#define NOTES_NS (300 * DF_NS_PER_MS)
/* each process waits this much longer than the one before it */
#define TURN_NS (400 * DF_NS_PER_MS)
#define CALM_NS (500 * DF_NS_PER_MS) /* between verdict and action */
/* A process acts on the verdict of another one when it has itself stood still for this long. */
#define ACT_NS (500 * DF_NS_PER_MS)
/*
 * The exit of the process waits no longer than this, for this thread and for answers to the
 * goodbye; LAST_NS of it is for the last bytes.
 */
#define LEAVE_NS  DF_NS_PER_S
#define LAST_NS	  (200 * DF_NS_PER_MS)
#define MAX_TURNS 8
#define MAX_GONE  64

enum { STAYS, ASKED_TO_STOP, STOPPING, STOPPED };

static struct {
	uint32_t wake, sleeping; /* futex word; whether the thread sleeps until woken */
	uint32_t stop;		 /* STAYS to STOPPED; a futex */
	uint64_t until;		 /* the exit waits until then; set before `stop` */
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
				     .stale_ns = DF_MIN(stale, DF_CHECK_STALE_NS),
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

/* The verdict is known, and this process has made no progress: ends what is stuck, if asked to. */
static void act(enum df_verdict v, const char *line)
{
	int action = df_env()->timeout_action, exits = action == DF_TIMEOUT_EXIT;
	int status = df_verdict_stop_exit(v);

	if (action == DF_TIMEOUT_ABORT) {
		/*
		 * A program that does not look for errors would otherwise end as if its data were
		 * right.
		 */
		df_exit_status_failed(status);
		/* The text that the program finds with the error (ncclGetLastError). */
		DF_NCCL_WARN("dfshim ends communicators of this process: %s", line);
		/* The other processes see errors as soon as this one stops, and need the text. */
		df_sleep_ns(CALM_NS);
		exits = !watch.nccl->stop();
	}
	if (!exits)
		return;
	/* Wait, because another process that judges at the same moment must find this one alive. */
	df_sleep_ns(CALM_NS);
	/* Later actions of other processes may be consequences. */
	df_trace(DF_REC_COMM_ABORT, -1, 0, -1, 0, 1, 0, 0, 0);
	df_metrics_stop();
	df_exit_now(status);
}

int df_record_stopping(void)
{
	return __atomic_load_n(&watch.stop, __ATOMIC_RELAXED) == ASKED_TO_STOP;
}

/* Sleeps, unless the process exits. */
static void pause_ns(uint64_t ns)
{
	uint64_t until = df_now_ns() + ns;

	while (!df_record_stopping() && df_now_ns() < until)
		df_sleep_ns(DF_MIN(ns, 20 * DF_NS_PER_MS));
}

static void note_stall(uint64_t quiet, unsigned left)
{
	df_trace_clocks();
	df_trace(DF_REC_STALL, -1, 0, -1, 0, quiet / DF_NS_PER_MS, left, 0, 0);
}

/*
 * The rendezvous knows which ranks of a communicator have not joined. Returns 1 if it has reported
 * that.
 */
static int explain_missing(void)
{
	uint64_t before = df_record_progress();
	char text[1280], line[512];
	int len = df_record_missing(text, sizeof(text));

	if (len <= 0)
		return 0;
	df_log_raw(text, DF_MIN((size_t)len, sizeof(text) - 1));
	snprintf(line, sizeof(line), "%.*s", (int)strcspn(text, "\n"), text);
	df_trace_told(DF_V_INIT, line);
	df_metrics_soon();
	if (df_record_progress() == before)
		act(DF_V_INIT, line);
	return 1;
}

/*
 * Explains the hang by what this process can read: its own trace, and the files of others. Returns
 * 1 if it is explained, or if there is progress.
 */
static int stalled(uint64_t quiet, unsigned left)
{
	uint64_t before = df_record_progress(), began = real_ns() - quiet, told;
	struct df_check_result *r, *again;
	unsigned turn, i;
	int moved;

	note_stall(quiet, left);
	if (!watch.dir[0] && (moved = explain_missing()))
		return moved;
	if (watch.dir[0])
		pause_ns(NOTES_NS);
	r = judge(quiet, &turn, &told);
	for (i = 0; i < DF_MIN(turn, MAX_TURNS) && told < began; i++) {
		pause_ns(TURN_NS);
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
	if (told >= began && !moved)
		act(again ? df_check_verdict(again) : DF_V_UNKNOWN,
		    again ? df_check_line(again) : "the job hangs");
	df_check_result_free(r);
	df_check_result_free(again);
	return told >= began || moved;
}

/* The next time to suspect a hang, after one at `quiet` without a result. */
static uint64_t next_due(uint64_t quiet, uint64_t timeout)
{
	return quiet < timeout ? DF_MIN(2 * quiet, timeout) : 2 * quiet;
}

/* When to suspect a hang first. Without other processes nothing is proved before the time-out. */
static uint64_t first_due(uint64_t timeout)
{
	uint64_t proved = (uint64_t)df_env()->proved_ms * DF_NS_PER_MS;

	return proved && df_record_peers() ? DF_MIN(proved, timeout) : timeout;
}

/*
 * How long the thread sleeps at most while no operation is unfinished. A call that blocks does not
 * wake it: it has to notice the call early enough for a proof.
 */
static uint64_t longest_sleep(uint64_t timeout, uint64_t quiet, uint64_t due, int blocked)
{
	uint64_t most = DF_MIN(timeout, DF_CHECK_STALE_NS) / 4;

	if (df_record_peers())
		most = DF_MIN(most, first_due(timeout) / 2);
	due = due ?: first_due(timeout);
	if (blocked && due > quiet)
		most = DF_MIN(most, due - quiet);
	return DF_MAX(most, DF_NS_PER_MS);
}

/* The process exits: closes the trace, and informs the others. Returns 1 if so. */
static int stop_if_asked(void)
{
	void *words;
	size_t bytes;

	/* ACQUIRE pairs with the exchange in df_record_stop(): what its caller did is seen. */
	if (__atomic_load_n(&watch.stop, __ATOMIC_ACQUIRE) != ASKED_TO_STOP)
		return 0;
	__atomic_store_n(&watch.stop, STOPPING, __ATOMIC_RELAXED);
	words = df_snapshot_words(&bytes);
	df_trace_close();
	df_record_goodbye(words, bytes, watch.until - LAST_NS);
	free(words);
	/* RELEASE pairs with the load in df_record_stop(): what was written before is complete. */
	__atomic_store_n(&watch.stop, STOPPED, __ATOMIC_RELEASE);
	df_futex_wake(&watch.stop, INT_MAX, 0);
	return 1;
}

/*
 * The thread says goodbye, because the caller may be the handler of a signal that interrupted a
 * thread of ours with locks held.
 */
void df_record_stop(void)
{
	uint32_t stays = STAYS, now = STOPPED;

	watch.until = df_now_ns() + LEAVE_NS;
	df_metrics_stop();
	if (df_record_plane()) {
		/* RELEASE pairs with stop_if_asked(). */
		__atomic_compare_exchange_n(&watch.stop, &stays, ASKED_TO_STOP, 0, __ATOMIC_RELEASE,
					    __ATOMIC_RELAXED);
		df_record_wake();
		/* ACQUIRE pairs with the RELEASE in stop_if_asked(). */
		while ((now = __atomic_load_n(&watch.stop, __ATOMIC_ACQUIRE)) != STOPPED &&
		       df_now_ns() < watch.until)
			df_futex_wait(&watch.stop, now, 20 * DF_NS_PER_MS, 0);
	}
	if (now != STOPPED)
		df_info("mode trace: the exit was not announced in time: others may take it for a "
			"death");
	df_trace_close();
}

/*
 * The process makes progress, but a part of it may be stuck: the same operation has been the first
 * of the unfinished ones for long. Asks for a look, after longer and longer times. Until
 * DF_PART_PATIENCE time-outs have passed only what is proved is reported, because threads that
 * are in no call may still act.
 */
static void suspect_part(uint64_t now, uint64_t quiet, uint64_t timeout)
{
	static struct {
		uint64_t op, since, due, next;
	} first;
	uint64_t op, lasts, most = DF_PART_PATIENCE * timeout;

	if (now < first.next)
		return;
	first.next = now + first_due(timeout) / 4;
	op = df_record_first();
	if (op != first.op) {
		first.op = op;
		first.since = now;
		first.due = first_due(timeout);
	}
	lasts = now - first.since;
	if (!op || lasts < first.due || quiet >= first_due(timeout))
		return;
	first.due = lasts < most ? DF_MIN(2 * lasts, most) : 2 * lasts;
	df_record_suspect((lasts < most ? DF_MIN(lasts, timeout - 1) : lasts) / DF_NS_PER_MS);
}

/*
 * How long this process must have stood still before it acts on the verdict. A rank that is only
 * late may be late for a part of the job that has time.
 */
static uint64_t act_after(uint64_t timeout)
{
	unsigned verdict;

	(void)df_record_verdict(&verdict);
	return verdict == DF_V_SLOW ? timeout : ACT_NS;
}

static void *run(void *arg)
{
	uint64_t timeout = (uint64_t)df_env()->timeout_ms * DF_NS_PER_MS;
	uint64_t last = df_record_progress(), since = df_now_ns(), nap = NAP_MIN_NS;
	uint64_t noted = UINT64_MAX, acted = UINT64_MAX, due = 0, doubt = first_due(timeout) / 2;

	const char *line;

	(void)arg;
	df_hardware_start();
	for (;;) {
		/*
		 * SEQ_CST pairs with df_record_wake(): an operation that is put on a stream after
		 * this wakes the thread.
		 */
		uint32_t seen = __atomic_load_n(&watch.wake, __ATOMIC_SEQ_CST);
		unsigned left, changed = df_record_poll(&left), verdict;
		uint64_t now = df_now_ns(), quiet;
		int blocked, soon;

		if (stop_if_asked())
			return NULL;
		if (df_record_progress() != last) {
			last = df_record_progress();
			since = now;
			due = 0;
			noted = UINT64_MAX;
			doubt = first_due(timeout) / 2;
		}
		quiet = now - since;
		blocked = left || __atomic_load_n(&df_rt.blocked, __ATOMIC_RELAXED);
		/*
		 * Record them at half the time at the latest, for the process that judges first:
		 * this process may have nothing unfinished, and then wakes seldom. Record them
		 * again for each judgement, which would otherwise use the places of the previous
		 * one.
		 */
		soon = df_hosts_due(last, DF_MIN(timeout / 2, DF_CHECK_STALE_NS));
		if (soon || (quiet >= DF_MAX(due, timeout) && noted != due && !df_record_told())) {
			noted = quiet >= DF_MAX(due, timeout) ? due : noted;
			if (watch.nccl->slot_waits)
				watch.nccl->slot_waits();
			df_hosts_note();
			df_hardware_note();
			df_record_launches();
			if (soon)
				df_trace_clocks();
			if (!left && noted == due)
				df_record_waits(quiet / DF_NS_PER_MS);
		}
		df_record_serve(blocked, quiet);
		/* Before this process suspects a hang: it must be able to reach the leader. */
		if (df_record_peers() && quiet >= doubt) {
			doubt = 2 * quiet;
			df_ctl_doubt();
		}
		if (df_record_peers()) {
			if (quiet >= (due ?: first_due(timeout)) && blocked && !df_record_told()) {
				if (quiet >= timeout)
					note_stall(quiet, left);
				df_record_suspect(quiet / DF_NS_PER_MS);
				due = next_due(quiet, timeout);
			}
			suspect_part(now, quiet, timeout);
			if (df_record_told() && blocked && quiet >= act_after(timeout) &&
			    acted != last) {
				acted = last;
				if (quiet < timeout)
					note_stall(quiet, left);
				line = df_record_verdict(&verdict);
				act((enum df_verdict)verdict, line);
			}
		} else if (quiet >= (due ?: timeout) && blocked) {
			/* If two looks disagree, look again after twice the silence. */
			due = stalled(quiet, left) ? UINT64_MAX : 2 * quiet;
		}
		nap = changed ? NAP_MIN_NS : DF_MIN(nap * 2, NAP_MAX_NS);
		if (left)
			df_sleep_ns(nap);
		else
			sleep_until_woken(seen, longest_sleep(timeout, quiet, due, blocked));
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
