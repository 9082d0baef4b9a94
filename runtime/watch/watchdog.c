/*
 * The watchdog: one thread per process. It wakes every quarter of DFSHIM_TIMEOUT_MS, at least each
 * 1.25 s, and when a wait that could be released lasts long (proof.c). When operations or calls are
 * unfinished and nothing has made progress for DFSHIM_TIMEOUT_MS, it collects what every process
 * knows (snapshot.c), lets the checker judge, and prints the verdict once per job. It judges twice,
 * with the same progress, before it reports, because a deadlock is stable. docs/verdicts.md says
 * which process reports. With DFSHIM_TIMEOUT_ACTION=abort it then ends the stuck operations, with
 * exit the job (ending.h).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "kernels/abi.h"
#include "runtime/executor.h"
#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/exit_status.h"
#include "runtime/base/futex.h"
#include "runtime/base/list.h"
#include "runtime/base/lock.h"
#include "runtime/base/log.h"
#include "runtime/base/thread.h"
#include "runtime/base/time.h"
#include "runtime/comm/comm.h"
#include "runtime/comm/joining.h"
#include "runtime/comm/process.h"
#include "runtime/ctl/ctl.h"
#include "runtime/dfshim.h"
#include "runtime/watch/ending.h"
#include "runtime/watch/hardware.h"
#include "runtime/watch/hosts.h"
#include "runtime/watch/look.h"
#include "runtime/watch/metrics.h"
#include "runtime/watch/part.h"
#include "runtime/watch/proof.h"
#include "runtime/watch/ras_server.h"
#include "runtime/watch/release.h"
#include "runtime/watch/snapshot.h"
#include "runtime/watch/tied.h"
#include "runtime/watch/watchdog.h"
#include "trace/check.h"
#include "trace/record/writer.h"

_Static_assert(DF_EXIT_MISSING == (int)DF_V_MISSING && DF_EXIT_MISMATCH == (int)DF_V_MISMATCH &&
		       DF_EXIT_CRASH == (int)DF_V_CRASH,
	       "a process exits with the status that `dfshim check` has for the verdict");

/* time for which the search for cycles is left to each process with a lower id */
#define PATIENCE_NS (300 * DF_NS_PER_MS)
/* Time for which the other ranks may proceed without a rank that has left. */
#define LEFT_NS	  (500 * DF_NS_PER_MS)
#define SILENT_MS 10000 /* additional time to wait for a process that does not answer */
/* The shortest pause between searches that find nothing. */
#define LOOK_MIN_NS (DF_NS_PER_MS / 2)
#define LOOK_MAX_NS (32 * DF_NS_PER_MS) /* longest pause between requested searches */
/* from this pause on, a search also finds out where threads are */
#define HOSTS_NS (4 * DF_NS_PER_MS)

static struct {
	int started;
	int speaker; /* this process must report the effect of a rank that has left */
	/*
	 * `last` is the progress at the last look. `since` is when it changed or when all was
	 * finished. `reported` is the progress at the last report, so that there is one report per
	 * hang. Only the watchdog writes these, atomically, because any thread may call
	 * stalled_ms().
	 */
	uint64_t last, since, reported;
	uint64_t told; /* when this process or another one reported a verdict */
	/*
	 * `asked`: a search for cycles is wanted. `not_before`: its earliest time. `pause`: the
	 * pause after a search that found nothing. `again`: when a likely cycle has lasted long
	 * enough.
	 */
	int asked;
	uint64_t not_before, pause, again;
	/*
	 * Hash of a communicator whose ranks have made calls that never meet; 0 if there is none;
	 * atomic. `mismatch_since` is when it was noticed, `mismatch_at` the earliest time to
	 * report it, `mismatch_to` the process that was asked to report it, `mismatch_over` the
	 * last one that this process has ended.
	 */
	uint64_t mismatch, mismatch_since, mismatch_at, mismatch_to, mismatch_over;
	int pid;       /* id of the process that has the thread */
	uint32_t stop; /* STAYS, ASKED_TO_STOP, STOPPING, STOPPED; a futex */
} dog = {.reported = UINT64_MAX, .again = UINT64_MAX};

static void set(uint64_t *word, uint64_t value)
{
	__atomic_store_n(word, value, __ATOMIC_RELAXED);
}

/* Logs the output of `part` in one piece. */
static void into_log(const struct df_check_result *r,
		     void (*part)(const struct df_check_result *r, FILE *out))
{
	char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);

	if (!f)
		return;
	part(r, f);
	fclose(f);
	df_log_raw(text, len);
	free(text);
}

/* Notices progress since the last look. */
static void note_progress(void)
{
	if (df_executor->progress(NULL) == dog.last)
		return;
	set(&dog.last, df_executor->progress(NULL));
	set(&dog.since, df_now_ns());
}

/* Whether a hang that has lasted since then is part of one that was reported. */
static int is_told(uint64_t since)
{
	return dog.told >= since || df_ending_explains(since);
}

/*
 * Takes the report of a hang that has lasted since then: returns 0 if it was reported already.
 * Otherwise the caller prints the verdict. Informs the other processes first, because another one
 * may be about to report it.
 */
static int claim(uint64_t since)
{
	df_snapshot_serve();
	if (is_told(since))
		return 0;
	dog.told = df_now_ns();
	set(&dog.last, df_executor->progress(NULL));
	set(&dog.reported, dog.last);
	df_tied_tell(NULL, 0);
	return 1;
}

/* Prints the verdict. */
static void print(const struct df_check_result *r)
{
	into_log(r, df_check_print);
	df_trace_told(df_check_verdict(r), df_check_line(r));
	df_metrics_soon();
}

/* Answers a client of NCCL's RAS protocol that asks for the job's state (ras_server.c). */
static void answer_ras(void)
{
	uint64_t since = df_now_ns();
	struct df_check_result *r = NULL;
	char *text = NULL;
	struct df_asked asked;
	size_t len = 0;
	FILE *f = NULL;
	int json;

	if (!df_ras_asked(&json))
		return;
	r = df_look(DF_CHECK_STALE_NS, 0, &asked);
	f = r ? open_memstream(&text, &len) : NULL;
	if (f) {
		df_check_print_ras(r, f, json, asked.others + 1,
				   (double)(df_now_ns() - since) / (double)DF_NS_PER_S);
		fclose(f);
	}
	df_check_result_free(r);
	df_ras_answer(text);
}

void df_watchdog_tell_death(int in_order)
{
	const struct df_check_opts opts = {.live = 1, .now_ns = df_now_ns()};
	struct df_check_set *set = df_check_set_new();
	struct df_check_result *r = NULL;
	void *image = NULL;
	size_t bytes;

	if (in_order)
		__atomic_store_n(&dog.speaker, 1, __ATOMIC_RELAXED);
	else if (set && df_trace_ring() && !df_trace_compact(df_trace_ring(), &image, &bytes) &&
		 !df_check_add_image(set, image, bytes, "this process") &&
		 !df_check_run(set, &opts, &r) && df_check_verdict(r) == DF_V_CRASH)
		print(r);
	df_check_result_free(r);
	df_check_set_free(set);
	free(image);
}

/* Whether an operation is in flight or a thread is inside one of our calls. */
static int unfinished(uint64_t *ops)
{
	int i;

	*ops = 0;
	for (i = 0; i < df_rt.nr_devs; i++)
		*ops += __atomic_load_n(&df_rt.devs[i].exec.issued, __ATOMIC_RELAXED) -
			__atomic_load_n(&df_rt.devs[i].exec.retired, __ATOMIC_RELAXED);
	return *ops || __atomic_load_n(&df_rt.blocked, __ATOMIC_RELAXED);
}

static uint32_t stalled_ms(void)
{
	uint64_t last = __atomic_load_n(&dog.last, __ATOMIC_RELAXED);
	uint64_t since = __atomic_load_n(&dog.since, __ATOMIC_RELAXED), now = df_now_ns(), ops;

	/* 0 also after a report, because no process reports a hang twice. */
	if (df_executor->progress(NULL) != last || !since || !unfinished(&ops) ||
	    __atomic_load_n(&dog.reported, __ATOMIC_RELAXED) == last)
		return 0;
	return (uint32_t)DF_MIN((now - since) / DF_NS_PER_MS, UINT32_MAX);
}

/*
 * Handles a message that another process has reported a verdict. With DF_MSG_END, also ends the
 * stuck operations.
 */
static void hear(uint32_t kind, const void *data, size_t bytes)
{
	const struct df_ending *e = kind == DF_MSG_END ? df_ending_read(data, bytes) : NULL;
	uint64_t ops;

	if (kind == DF_MSG_END && !e)
		return;
	/* Progress that was not noticed before is older than this report. */
	note_progress();
	dog.told = df_now_ns();
	if (!e)
		return;
	/*
	 * Readers of the traces need this record even if this process had not noticed the hang:
	 * everything after it is a consequence.
	 */
	if (unfinished(&ops) || e->nr)
		df_trace(DF_REC_STALL, -1, 0, -1, 0, (uint64_t)df_env()->timeout_ms, ops, 0, 0);
	df_ending_obey(e);
}

/* Whether the traces explain the hang without the state of the rendezvous. */
static int about_operations(enum df_verdict v)
{
	return v != DF_V_OK && v != DF_V_SLOW && v != DF_V_INIT && v != DF_V_HOST &&
	       v != DF_V_UNKNOWN;
}

/* Whether operations wait for a rank that has left. peers_that_left() handles that case. */
static int somebody_left(void)
{
	struct df_comm *comm;
	int left = 0;

	df_mutex_lock(&df_rt.lock);
	df_list_each(comm, &df_rt.comms, node) left |=
		__atomic_load_n(&comm->watch.peer_left, __ATOMIC_RELAXED) &&
		df_comm_pending(comm) && df_comm_state(comm) == DF_COMM_READY;
	df_mutex_unlock(&df_rt.lock);
	return left;
}

static void stalled(uint64_t ms, uint64_t ops)
{
	const struct df_env *env = df_env();
	uint64_t before = df_executor->progress(NULL), missing = df_joining_missing(),
		 seen = df_now_ns();
	struct df_check_result *r;
	struct df_asked asked;
	uint64_t patience = (uint64_t)env->timeout_ms + SILENT_MS,
		 longer = patience + 5 * SILENT_MS;
	int told = 0, leads, heard;
	int abort = env->timeout_action != DF_TIMEOUT_REPORT;
	enum df_verdict verdict;
	char line[512] = "";

	df_trace_clocks();
	df_trace(DF_REC_STALL, -1, 0, -1, 0, ms, ops, 0, 0);
	if (!missing && ms < longer && df_snapshot_defers((uint32_t)(env->timeout_ms + 1) / 2))
		return;
	df_check_result_free(df_look(ms * DF_NS_PER_MS, 0, &asked));
	r = df_look(ms * DF_NS_PER_MS, 0, &asked);
	/*
	 * A message that arrived meanwhile may report this hang. Its sender may have ended since,
	 * which could make this process the speaker.
	 */
	df_snapshot_serve();
	if (!unfinished(&ops) || df_executor->progress(NULL) != before ||
	    df_joining_missing() != missing) {
		df_check_result_free(r);
		return; /* there was progress: no deadlock */
	}
	/*
	 * One process reports a rank that has left (status_of_left()). It may have ended since,
	 * which could make this process the leader; the news may have arrived while we collected.
	 */
	if (somebody_left()) {
		df_check_result_free(r);
		return;
	}
	/*
	 * A process that lives but does not answer may only be slow. It may know the reason, or
	 * report it itself, and there is one report per hang. So try again, but not for ever: it
	 * may be stopped. One that confirms the question is not.
	 */
	if (asked.silent && ms < (asked.heard ? longer : patience)) {
		df_check_result_free(r);
		return;
	}
	/*
	 * A process that gives up a rendezvous removes what the others would have reported about
	 * it. So the reporting process goes first. It may have begun to wait later than this one,
	 * so the time is bounded.
	 */
	if (missing && (!r || !about_operations(df_check_verdict(r))))
		told = df_joining_explain(abort && ms / 2 >= (uint64_t)env->timeout_ms, line,
					  sizeof(line));
	if (told == -EAGAIN && abort) {
		df_check_result_free(r);
		return;
	}
	/*
	 * No rank and no operation is stuck: a communicator is made slowly. A hang may follow, so
	 * look again after another time-out.
	 */
	if (!ops && !told && r && df_check_verdict(r) == DF_V_OK) {
		df_warn_once("no progress for %llu ms: a thread is inside a call of NCCL, and no "
			     "operation is in flight",
			     (unsigned long long)ms);
		set(&dog.since, df_now_ns());
		df_check_result_free(r);
		return;
	}
	/*
	 * Another process has to report this hang and has not done so yet: it may be about to, or
	 * it may make progress.
	 */
	heard = is_told(dog.since);
	leads = !told && !heard && (asked.speaker == df_rt.self.proc || ms >= longer);
	if (!told && !heard && !leads) {
		df_check_result_free(r);
		return;
	}
	set(&dog.reported, before);
	if (leads || told > 0)
		(void)claim(dog.since);
	if (told > 0) {
		df_trace_told(DF_V_INIT, line);
		df_metrics_soon();
	}
	if (told > 0 && r)
		into_log(r, df_check_print_hosts);
	if (leads && !r)
		df_warn("no progress for %llu ms with %llu unfinished operations, and no trace "
			"that shows the reason",
			(unsigned long long)ms, (unsigned long long)ops);
	else if (leads)
		print(r);
	if (leads)
		df_look_tell_silent(&asked);
	if (abort) {
		/*
		 * The other processes judge by our answers, so let them finish before ending the
		 * operations.
		 */
		uint64_t until = df_now_ns() + DF_GATHER_NS / 2;

		while (asked.others && df_now_ns() < until) {
			df_snapshot_serve();
			df_sleep_ns(20 * DF_NS_PER_MS);
		}
		verdict = told > 0 ? DF_V_INIT : r ? df_check_verdict(r) : DF_V_UNKNOWN;
		if (told <= 0 && r)
			snprintf(line, sizeof(line), "%s", df_check_line(r));
		df_ending_decide(seen, df_verdict_stop_exit(verdict), line);
	}
	df_check_result_free(r);
}

/*
 * For a communicator that a member has left while operations are unfinished here: returns whether
 * to check now if they wait for that member. One process reports the effect. That process may have
 * nothing unfinished, so the other processes wait for its report, for a bounded time that grows
 * with the rank.
 */
static int left_is_told(const struct df_comm *comm)
{
	uint64_t patience = 4 * LEFT_NS + (uint64_t)DF_MIN(comm->rank, 16) * LEFT_NS / 2;

	return __atomic_load_n(&dog.speaker, __ATOMIC_RELAXED) ||
	       dog.told >= comm->watch.left_since ||
	       df_now_ns() - comm->watch.left_since > patience;
}

/*
 * Judges whether unfinished operations wait for a member that has left, or that gave up because it
 * was cut off. If so, reports it, once for all processes, and returns the status with which a
 * process exits that ignores the error. Returns 0 if the operations may still finish.
 */
static int status_of_left(uint64_t since)
{
	struct df_asked asked;
	struct df_check_result *r = df_look(LEFT_NS, 0, &asked);
	int status = 0;

	if (r && df_check_is_over(r))
		status = df_check_verdict(r) == DF_V_MISMATCH ? DF_EXIT_MISMATCH : DF_EXIT_MISSING;
	__atomic_store_n(&dog.speaker, 0, __ATOMIC_RELAXED);
	if (status && claim(since))
		print(r);
	df_check_result_free(r);
	return status;
}

/*
 * Whether a member has left the communicator, and the communicator's unfinished operations have
 * made no progress for long enough. The caller holds df_rt.lock.
 */
static int is_left(struct df_comm *comm, int told)
{
	uint64_t left = __atomic_load_n(&comm->watch.peer_left, __ATOMIC_RELAXED);
	uint64_t retired = __atomic_load_n(&comm->retired, __ATOMIC_RELAXED);

	/*
	 * The remaining ranks may proceed without that member for as long as they can: each
	 * operation that ends starts the time again.
	 */
	if (left && (!comm->watch.left_since || comm->watch.left_retired != retired)) {
		comm->watch.left_retired = retired;
		comm->watch.left_since = left = df_now_ns();
		__atomic_store_n(&comm->watch.peer_left, left, __ATOMIC_RELAXED);
	}
	return left && df_now_ns() - left > LEFT_NS && df_comm_pending(comm) &&
	       df_comm_state(comm) == DF_COMM_READY && (told || left_is_told(comm));
}

/*
 * Whether the communicator must end with the status. A status of 0 means that its operations may
 * still finish.
 */
static int ends_left(struct df_comm *comm, void *status)
{
	if (!is_left(comm, 1))
		return 0;
	if (!*(const int *)status) {
		/*
		 * The operations wait for a living rank, which may still join: the time-out handles
		 * that.
		 */
		__atomic_store_n(&comm->watch.peer_left, 0, __ATOMIC_RELAXED);
		return 0;
	}
	df_warn("a rank of communicator %016llx has exited with unfinished operations",
		(unsigned long long)comm->hash);
	df_comm_unheard(comm, *(const int *)status);
	return 1;
}

/*
 * Handles a member's process that exited normally while operations with it are unfinished: these
 * cannot finish.
 */
static void peers_that_left(void)
{
	struct df_comm *comm;
	uint64_t since = 0;
	int status;

	df_mutex_lock(&df_rt.lock);
	df_list_each(comm, &df_rt.comms, node) if (!since && is_left(comm, 0)) since =
		comm->watch.left_since;
	df_mutex_unlock(&df_rt.lock);
	if (!since)
		return;
	status = status_of_left(since);
	df_ending_done(df_comm_end_all(ends_left, &status, -ECONNRESET, 2));
}

/*
 * Reports a proved mismatch: ranks of a communicator have issued operations that never meet. They
 * cannot finish, so this is reported at once. The communicator ends on all ranks: its
 * ncclCommGetAsyncError returns ncclRemoteError. Returns 0 if the verdict is another one.
 */
static int tell_mismatch(uint64_t name)
{
	struct df_check_result *r;
	struct df_asked asked;
	uint64_t ops;
	int is;

	unfinished(&ops);
	df_trace_clocks();
	df_trace(DF_REC_STALL, -1, 0, -1, 0, 0, ops, 0, 0);
	r = df_look(DF_CHECK_STALE_NS, 0, &asked);
	is = r && df_check_verdict(r) == DF_V_MISMATCH;
	if (is) {
		dog.mismatch_over = name;
		if (claim(dog.mismatch_since))
			print(r);
		df_ending_mismatch(name, df_check_line(r));
	}
	df_check_result_free(r);
	return is;
}

/*
 * Reports that operations are proved to wait for one another whatever the threads do. They end as
 * stuck operations do after the time-out.
 */
static void tell_settled(void)
{
	uint64_t ops, seen = df_now_ns();
	struct df_check_result *r;
	struct df_asked asked;

	unfinished(&ops);
	df_trace_clocks();
	df_trace(DF_REC_STALL, -1, 0, -1, 0, 0, ops, 0, 0);
	note_progress();
	r = df_look(DF_CHECK_STALE_NS, 0, &asked);
	if (r && df_check_verdict(r) == DF_V_ORDER && claim(dog.since)) {
		df_release_forget_log();
		print(r);
		if (df_env()->timeout_action != DF_TIMEOUT_REPORT)
			df_ending_decide(seen, df_verdict_stop_exit(DF_V_ORDER), df_check_line(r));
	}
	df_check_result_free(r);
}

/*
 * Whether a wait that has made no progress for `age` has been left alone: no other process has
 * asked this one. While another one searches, a search of its own would only stop that search. So
 * the processes take over one after another.
 */
static int is_left_alone(uint64_t now, uint64_t age)
{
	uint64_t alone = DF_MIN(age, now - DF_MIN(now, df_snapshot_answered()));

	return alone > PATIENCE_NS * df_tied_before();
}

/*
 * Checks whether waits that have lasted long, here or in other processes, are part of a cycle. One
 * process searches for all (proof.c). The others notify it, and search themselves only if that has
 * no effect. Returns how long to sleep at most.
 */
static uint64_t circles(void)
{
	uint64_t now = df_now_ns(), next, age, leader;
	int due = df_release_due(now, &next, &age), told = df_snapshot_suspected() > 0;

	dog.asked |= due || told || now >= dog.again;
	if (dog.asked) {
		leader = df_tied_leader();
		if (leader != df_rt.self.proc && due)
			df_snapshot_suspect(leader, 0);
		if (leader != df_rt.self.proc && !(due && is_left_alone(now, age)))
			dog.asked = 0;
	}
	if (dog.asked && now >= dog.not_before) {
		struct df_proof_found proof;
		int ret = df_prove_and_release(dog.pause >= HOSTS_NS, &proof);

		if (proof.mismatch)
			set(&dog.mismatch, proof.mismatch);
		else if (proof.settled)
			tell_settled();
		now = df_now_ns();
		dog.asked = ret == -EAGAIN;
		dog.again = proof.again;
		if (proof.nr)
			dog.pause = 0;
		else
			dog.pause = DF_MAX(DF_MIN(dog.pause * 2, LOOK_MAX_NS), LOOK_MIN_NS);
		/*
		 * An irregular pause, so that two processes that disturb each other do not stay in
		 * step.
		 */
		dog.not_before = now + dog.pause / 2 + now / 1024 % (dog.pause / 2 + 1);
	}
	if (dog.asked)
		next = DF_MIN(next, dog.not_before);
	next = DF_MIN(next, DF_MAX(dog.again, dog.not_before));
	return next > now ? next - now : 0;
}

void df_watchdog_mismatch(uint64_t hash)
{
	/*
	 * RELEASE pairs with the ACQUIRE in mismatch_seen(): without it the watchdog could miss the
	 * records of both calls.
	 */
	__atomic_store_n(&dog.mismatch, hash, __ATOMIC_RELEASE);
	df_snapshot_wake();
}

/*
 * Reports the mismatch that df_watchdog_mismatch() or a proof announced, or tries again later if
 * another process has not answered. Several processes may know of it, so the leader reports, and
 * the others do so only if it does not for long. Returns how long to sleep at most.
 */
static uint64_t mismatch_seen(void)
{
	/* ACQUIRE pairs with the RELEASE in df_watchdog_mismatch(), which says why. */
	uint64_t name = __atomic_load_n(&dog.mismatch, __ATOMIC_ACQUIRE), now = df_now_ns(), ops;
	uint64_t leader, age, patience = SILENT_MS * DF_NS_PER_MS;
	int done;

	if (!name)
		return UINT64_MAX;
	if (now < dog.mismatch_at)
		return dog.mismatch_at - now;
	if (!dog.mismatch_since)
		dog.mismatch_since = now;
	age = now - dog.mismatch_since;
	leader = df_tied_leader();
	done = name == dog.mismatch_over || (age > patience && !unfinished(&ops));
	if (!done && leader != df_rt.self.proc && age <= patience) {
		if (dog.mismatch_to != leader)
			df_snapshot_suspect_mismatch(leader, name);
		dog.mismatch_to = leader;
	} else if (!done) {
		done = tell_mismatch(name);
	}
	dog.mismatch_at = df_now_ns() + DF_MAX(age / 2, LOOK_MAX_NS);
	if (!done)
		return dog.mismatch_at - now;
	dog.mismatch_since = dog.mismatch_at = dog.mismatch_to = 0;
	__atomic_store_n(&dog.mismatch, 0, __ATOMIC_RELAXED);
	return UINT64_MAX;
}

enum { STAYS, ASKED_TO_STOP, STOPPING, STOPPED };

/* Does the destructor's work if this process ends by _exit(). */
static void stop_if_asked(void)
{
	/*
	 * ACQUIRE pairs with the exchange in df_watchdog_stop(): without it this thread could miss
	 * the work of the caller.
	 */
	if (__atomic_load_n(&dog.stop, __ATOMIC_ACQUIRE) != ASKED_TO_STOP)
		return;
	__atomic_store_n(&dog.stop, STOPPING, __ATOMIC_RELAXED);
	df_stop();
	/*
	 * RELEASE pairs with the load in df_watchdog_stop(): without it the process could end
	 * before the last file is written.
	 */
	__atomic_store_n(&dog.stop, STOPPED, __ATOMIC_RELEASE);
	df_futex_wake(&dog.stop, INT_MAX, 0);
}

void df_watchdog_stop(void)
{
	uint32_t stays = STAYS, now;
	/*
	 * df_stop() waits for buffered sends no longer than the time-out. If the watchdog has not
	 * begun after 1 s, the calling thread holds a lock that it needs.
	 */
	uint64_t begin = df_now_ns() + DF_NS_PER_S;
	uint64_t end = begin + (uint64_t)df_env()->timeout_ms * DF_NS_PER_MS;

	/* A child process has no such thread, and its parent continues. */
	if (__atomic_load_n(&dog.pid, __ATOMIC_RELAXED) != getpid())
		return;
	/* RELEASE pairs with the ACQUIRE in stop_if_asked(), which says why. */
	__atomic_compare_exchange_n(&dog.stop, &stays, ASKED_TO_STOP, 0, __ATOMIC_RELEASE,
				    __ATOMIC_RELAXED);
	df_snapshot_wake();
	/* ACQUIRE pairs with the RELEASE in stop_if_asked(), which says why. */
	while ((now = __atomic_load_n(&dog.stop, __ATOMIC_ACQUIRE)) != STOPPED &&
	       df_now_ns() < (now == STOPPING ? end : begin))
		df_futex_wait(&dog.stop, now, 100 * DF_NS_PER_MS, 0);
}

/*
 * The process makes progress, but a communicator has stood still for long: reports the reason,
 * once. Nothing is ended, because its rank may still make the call.
 */
static void tell_part(uint64_t timeout)
{
	struct df_check_result *r, *first;
	struct df_asked asked;

	if (!df_part_due(df_now_ns(), timeout, dog.told))
		return;
	first = df_look(DF_CHECK_STALE_NS, timeout, &asked);
	r = df_look(DF_CHECK_STALE_NS, timeout, &asked);
	df_snapshot_serve();
	if (first && r && !asked.silent && df_check_verdict(r) != DF_V_OK &&
	    df_check_verdict(r) == df_check_verdict(first) &&
	    df_check_facts(r) == df_check_facts(first) &&
	    df_part_due(df_now_ns(), timeout, dog.told)) {
		df_tied_tell(NULL, 0);
		dog.told = df_now_ns();
		print(r);
	} else {
		df_part_looked();
	}
	df_check_result_free(first);
	df_check_result_free(r);
}

static void *watch(void *arg)
{
	uint64_t timeout = (uint64_t)df_env()->timeout_ms * DF_NS_PER_MS;
	uint64_t missing = 0, now_missing, ops;

	(void)arg;
	df_hardware_start();
	set(&dog.last, df_executor->progress(NULL));
	set(&dog.since, df_now_ns());
	for (;;) {
		uint32_t seen = df_snapshot_seen();
		uint64_t nap = DF_MAX(DF_MIN(timeout, DF_CHECK_STALE_NS) / 4, DF_NS_PER_MS), rest;

		stop_if_asked();
		df_snapshot_serve();
		answer_ras();
		if (somebody_left()) {
			peers_that_left();
			nap = DF_MIN(nap, 100 * DF_NS_PER_MS);
		}
		rest = circles();
		nap = DF_MIN(nap, rest);
		rest = mismatch_seen();
		nap = DF_MIN(nap, rest);
		rest = df_release_log(timeout / 2);
		nap = DF_MIN(nap, rest);
		if (nap)
			df_snapshot_wait(seen, (int64_t)nap);
		if (df_hosts_due(df_executor->progress(NULL), DF_CHECK_STALE_NS)) {
			df_hosts_note();
			df_hardware_note();
			df_trace_clocks();
		}
		/*
		 * This precedes the checks, so that the state that other processes receive
		 * contains it.
		 */
		df_executor->note_held(df_now_ns(), DF_MAX(timeout / 4, DF_NS_PER_MS));
		now_missing = df_joining_missing();
		if (now_missing != missing) {
			/* A hang after this change is another hang. */
			missing = now_missing;
			set(&dog.reported, UINT64_MAX);
			set(&dog.last, UINT64_MAX);
		}
		if (df_executor->progress(NULL) != dog.last || !unfinished(&ops)) {
			set(&dog.last, df_executor->progress(NULL));
			set(&dog.since, df_now_ns());
			tell_part(timeout);
			continue;
		}
		if (df_now_ns() - dog.since >= timeout && dog.reported != dog.last)
			stalled((df_now_ns() - dog.since) / DF_NS_PER_MS, ops);
	}
	return NULL;
}

static uint64_t progress(void)
{
	return df_executor->progress(NULL);
}

static int meanwhile(void)
{
	return __atomic_load_n(&dog.stop, __ATOMIC_RELAXED) == ASKED_TO_STOP;
}

void df_watchdog_start(void)
{
	static const struct df_snapshot_owner owner = {progress, stalled_ms, hear, NULL, meanwhile};

	if (__atomic_exchange_n(&dog.started, 1, __ATOMIC_RELAXED))
		return;
	df_snapshot_owned_by(&owner);
	__atomic_store_n(&dog.pid, getpid(), __ATOMIC_RELAXED);
	if (df_thread_start("dfshim-watchdog", 0, watch, NULL))
		df_warn("cannot start the watchdog's thread: dfshim will not explain hangs");
	else
		df_ras_start(1);
}
