/*
 * The watchdog: one thread a process, asleep except for a look every quarter of DFSHIM_TIMEOUT_MS, and when a wait
 * that might be released lasts (proof.c). When something is unfinished and nothing has moved for the whole time,
 * it gathers what every process knows (snapshot.c), lets the checker judge, and prints the verdict once per job. It
 * judges twice with unchanged progress before it believes (deadlock is stable). Whose word it is: docs/verdicts.md.
 * With DFSHIM_TIMEOUT_ACTION=abort it then ends what is stuck, with exit the job (ending.h).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
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
#include "runtime/base/time.h"
#include "runtime/comm/comm.h"
#include "runtime/comm/ending.h"
#include "runtime/comm/process.h"
#include "runtime/ctl/ctl.h"
#include "runtime/dfshim.h"
#include "runtime/watch/ras_server.h"
#include "runtime/watch/release.h"
#include "runtime/watch/snapshot.h"
#include "runtime/watch/watchdog.h"
#include "trace/check.h"
#include "trace/record/writer.h"

_Static_assert(DF_EXIT_MISSING == (int)DF_V_MISSING && DF_EXIT_MISMATCH == (int)DF_V_MISMATCH &&
		       DF_EXIT_CRASH == (int)DF_V_CRASH,
	       "a process exits with the status that `dfshim check` has for the verdict");

#define STALE_NS    (5 * DF_NS_PER_S)	 /* the checker's own idea of a suspicious silence */
#define PATIENCE_NS (300 * DF_NS_PER_MS) /* for whose task it is to look for circles */
#define LEFT_NS                                                                                    \
	(500 * DF_NS_PER_MS) /* for so long the others may go on without a rank that has left */
#define SILENT_MS      10000 /* who does not answer is waited for */
#define RELEASE_LOG_NS DF_NS_PER_S	  /* a release is logged later than it happens by no more */
#define LOOK_MIN_NS    (DF_NS_PER_MS / 2) /* looks that find nothing are so far apart at least */
#define LOOK_MAX_NS    (32 * DF_NS_PER_MS) /* and at most, while they are asked for */
#define HOSTS_NS                                                                                   \
	(4 * DF_NS_PER_MS) /* from such a pause on, where host threads are is looked at too */

static struct {
	int started;
	int speaker; /* it is for us to say what a rank that has left means */
	uint64_t last,
		since; /* progress, and since when there has been none, or nothing was unfinished */
	uint64_t reported; /* progress at the last report: one report per hang */
	uint64_t told;	   /* when another process has told a verdict */
	/* Cycles: a look is wanted; not before then; the pause after a look that found none; the time of one that is due. */
	int asked;
	uint64_t not_before, pause, again;
	int pid;       /* of the process that has the thread */
	uint32_t stop; /* STAYS, ASKED_TO_STOP, STOPPING, STOPPED; a futex */
} dog = {.reported = UINT64_MAX, .again = UINT64_MAX};

/*
 * Processes that were asked, and those of them that live and have not answered; one of these. speaker: whose word the
 * verdict is, of those that have stood still for nearly as long as this one and so come to it too.
 */
struct asked {
	unsigned others, silent;
	uint64_t mute, speaker;
};

/* Of a process that has exited there is no trace any more, but what it left. */
static void add_left(void *set, const void *words, size_t bytes)
{
	df_check_add_left(set, words, bytes / sizeof(struct df_left_row));
}

/* What all processes know, judged. stale: for how long nothing has moved. NULL: nothing to judge by. */
static struct df_check_result *judge(uint64_t stale, struct asked *asked)
{
	/* Who asks for an analysis after a shorter silence than the checker's own takes that for suspicious. */
	struct df_check_opts opts = {.live = 1, .stale_ns = DF_MIN(stale, STALE_NS)};
	struct df_snapshots g = {.answers = DF_LIST_INIT(g.answers)};
	struct df_check_set *set = df_check_set_new();
	struct df_check_result *r = NULL;
	struct df_snapshot *s;

	opts.now_ns = df_now_ns();
	*asked = (struct asked){.speaker = df_rt.self.proc};
	if (set && !df_snapshot_gather(&g, DF_ASK_LOOK)) {
		df_list_each(s, &g.answers, node)
		{
			if (s->image)
				df_check_add_image(set, s->image, s->bytes,
						   s->proc == df_rt.self.proc ? "this process"
									      : "peer");
			if (s->proc == df_rt.self.proc)
				continue;
			if (!s->fresh && !df_ctl_is_dead(s->proc)) {
				asked->silent++;
				asked->mute = s->proc;
			}
			if (s->fresh &&
			    2 * (uint64_t)s->stalled_ms >= (uint64_t)df_env()->timeout_ms)
				asked->speaker = DF_MIN(asked->speaker, s->proc);
		}
		asked->others = g.nr_procs - 1;
		df_ctl_each_words(add_left, set);
		if (df_check_run(set, &opts, &r))
			r = NULL;
	}
	df_snapshot_done(&g);
	df_check_set_free(set);
	return r;
}

/* What the part writes, in one piece. */
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

/* The verdict for people. */
static void print(const struct df_check_result *r)
{
	into_log(r, df_check_print);
	df_trace_told(df_check_verdict(r), df_check_line(r));
}

/* What the report lacks, it lacks because of a process that the user can look at. */
static void tell_silent(const struct asked *asked)
{
	struct df_comm *comm;
	char others[48] = "";
	int rank = -1;
	uint32_t pid = 0;

	if (!asked->silent)
		return;
	df_mutex_lock(&df_rt.lock);
	df_list_each(comm, &df_rt.comms, node)
	{
		int r = rank < 0 && df_comm_is_open(comm) ? df_comm_rank_of(comm, asked->mute) : -1;

		if (r >= 0) {
			rank = r;
			pid = comm->members[r].pid;
		}
	}
	df_mutex_unlock(&df_rt.lock);
	if (asked->silent > 1)
		snprintf(others, sizeof(others), ", and of %u others", asked->silent - 1);
	if (rank >= 0)
		df_warn("the process of rank %d (pid %u)%s is alive, but does not answer: it may "
			"be stopped by a signal or a debugger, or get no processor time. This "
			"report lacks what it knows",
			rank, pid, others);
}

/* Somebody has asked over NCCL's RAS protocol how the job is (ras_server.c). */
static void answer_ras(void)
{
	uint64_t since = df_now_ns();
	struct df_check_result *r = NULL;
	char *text = NULL;
	struct asked asked;
	size_t len = 0;
	FILE *f = NULL;
	int json;

	if (!df_ras_asked(&json))
		return;
	r = judge(STALE_NS, &asked);
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

/* Something is in flight or a host thread is inside a call of ours. */
static int unfinished(uint64_t *ops)
{
	int i;

	*ops = 0;
	for (i = 0; i < df_rt.nr_devs; i++)
		*ops += __atomic_load_n(&df_rt.devs[i].exec.issued, __ATOMIC_RELAXED) -
			__atomic_load_n(&df_rt.devs[i].exec.retired, __ATOMIC_RELAXED);
	return *ops || __atomic_load_n(&df_rt.blocked, __ATOMIC_RELAXED);
}

uint32_t df_watchdog_stalled_ms(void)
{
	uint64_t ops;

	/* Nor does it speak of a standstill twice. */
	if (df_executor->progress(NULL) != dog.last || dog.reported == dog.last ||
	    !unfinished(&ops))
		return 0;
	return (uint32_t)DF_MIN((df_now_ns() - dog.since) / DF_NS_PER_MS, UINT32_MAX);
}

void df_watchdog_told(const void *end, size_t bytes)
{
	const struct df_ending *e = end ? df_ending_read(end, bytes) : NULL;
	uint64_t ops;

	if (end && !e)
		return;
	df_release_forget_log();
	/* Progress that was not noticed yet is older than this word. */
	if (df_executor->progress(NULL) != dog.last) {
		dog.last = df_executor->progress(NULL);
		dog.since = df_now_ns();
	}
	dog.told = df_now_ns();
	if (!e)
		return;
	/* For who reads the traces: what follows is a consequence, also where nobody here has noticed the standstill. */
	if (unfinished(&ops) || e->nr)
		df_trace(DF_REC_STALL, -1, 0, -1, 0, (uint64_t)df_env()->timeout_ms, ops, 0, 0);
	df_ending_obey(e);
}

/* The traces explain it, without what the rendezvous knows. */
static int about_operations(enum df_verdict v)
{
	return v != DF_V_OK && v != DF_V_SLOW && v != DF_V_INIT && v != DF_V_HOST &&
	       v != DF_V_UNKNOWN;
}

/* A rank that has left is waited for; peers_that_left() deals with it. */
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
	struct asked asked;
	uint64_t patience = (uint64_t)env->timeout_ms + SILENT_MS;
	int told = 0, leads, heard;
	int abort = env->timeout_action != DF_TIMEOUT_REPORT;
	enum df_verdict verdict;
	char line[512] = "";

	df_trace_clocks();
	df_trace(DF_REC_STALL, -1, 0, -1, 0, ms, ops, 0, 0);
	df_check_result_free(judge(ms * DF_NS_PER_MS, &asked));
	r = judge(ms * DF_NS_PER_MS, &asked);
	/*
	 * What came in while we gathered may be the end of it: told by somebody who has gone since, so that we would seem
	 * to be the one to tell it.
	 */
	df_snapshot_serve();
	if (!unfinished(&ops) || df_executor->progress(NULL) != before ||
	    df_joining_missing() != missing) {
		df_check_result_free(r);
		return; /* it moved meanwhile: no deadlock */
	}
	/*
	 * One process says what that means (tell_left()), and it may have gone since, so that it would fall to us
	 * to lead. News of it can have come while we gathered.
	 */
	if (somebody_left()) {
		df_check_result_free(r);
		return;
	}
	/*
	 * Who lives and does not answer may only be slow, and know what explains it, or tell it; there is one report for a
	 * hang. So that is looked for again, but not for ever: it may be stopped.
	 */
	if (asked.silent && ms < patience) {
		df_check_result_free(r);
		return;
	}
	/*
	 * Who gives a rendezvous up takes from the others what they would have said of it. So the one whose word it is
	 * goes first; it may have begun to wait later than we, but not for ever.
	 */
	if (missing && (!r || !about_operations(df_check_verdict(r))))
		told = df_joining_explain(abort && ms / 2 >= (uint64_t)env->timeout_ms, line,
					  sizeof(line));
	if (told == -EAGAIN && abort) {
		df_check_result_free(r);
		return;
	}
	/* It is another's word and not told yet: that one may be about to, or move again. */
	heard = dog.told >= dog.since;
	leads = !told && !heard &&
		(asked.speaker == df_rt.self.proc || ms >= patience + 5 * SILENT_MS);
	if (!told && !heard && !leads) {
		df_check_result_free(r);
		return;
	}
	dog.reported = before;
	/* First of all: another may be about to. */
	if (leads || told > 0)
		df_tied_tell();
	if (told > 0)
		df_trace_told(DF_V_INIT, line);
	if (told > 0 && r)
		into_log(r, df_check_print_hosts);
	if (leads && !r)
		df_warn("no progress for %llu ms with %llu unfinished operations, and no trace "
			"that shows the reason",
			(unsigned long long)ms, (unsigned long long)ops);
	else if (leads)
		print(r);
	if (leads)
		tell_silent(&asked);
	if (abort) {
		/* The others judge by our answers: let them do so before we end what they look at. */
		uint64_t until = df_now_ns() + DF_GATHER_NS / 2;

		while (asked.others && df_now_ns() < until) {
			df_snapshot_serve();
			df_sleep_ns(20 * DF_NS_PER_MS);
		}
		verdict = told > 0 ? DF_V_INIT : r ? df_check_verdict(r) : DF_V_UNKNOWN;
		df_ending_decide(seen, df_verdict_stop_exit(verdict));
	}
	df_check_result_free(r);
}

/*
 * A member has left, and something is unfinished here: whether it is time to see if it waits for that one. One process
 * says what it means; it may have nothing unfinished itself, so the others wait for it, but not for ever and not all
 * for the same time.
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
	struct asked asked;
	struct df_check_result *r = judge(LEFT_NS, &asked);
	int status = 0;

	if (r && df_check_is_over(r))
		status = df_check_verdict(r) == DF_V_MISMATCH ? DF_EXIT_MISMATCH : DF_EXIT_MISSING;
	__atomic_store_n(&dog.speaker, 0, __ATOMIC_RELAXED);
	if (status && dog.told < since && dog.reported != df_executor->progress(NULL)) {
		/* One report per hang: this one. */
		dog.reported = df_executor->progress(NULL);
		df_tied_tell();
		print(r);
	}
	df_check_result_free(r);
	return status;
}

/* The next communicator with a member that has left, and with something unfinished for long enough; df_rt.lock held. */
static struct df_comm *next_left(int told)
{
	struct df_comm *comm;

	df_list_each(comm, &df_rt.comms, node)
	{
		uint64_t left = __atomic_load_n(&comm->watch.peer_left, __ATOMIC_RELAXED);
		uint64_t retired = __atomic_load_n(&comm->retired, __ATOMIC_RELAXED);

		/* The others may go on without it for as long as they can. */
		if (left && (!comm->watch.left_since || comm->watch.left_retired != retired)) {
			comm->watch.left_retired = retired;
			comm->watch.left_since = left = df_now_ns();
			__atomic_store_n(&comm->watch.peer_left, left, __ATOMIC_RELAXED);
		}
		if (left && df_now_ns() - left > LEFT_NS && df_comm_pending(comm) &&
		    df_comm_state(comm) == DF_COMM_READY && (told || left_is_told(comm)))
			return comm;
	}
	return NULL;
}

/* A member's process has ended in order while operations with it are unfinished: they never will. */
static void peers_that_left(void)
{
	struct df_comm *comm;
	uint64_t since;
	int status;

	df_mutex_lock(&df_rt.lock);
	comm = next_left(0);
	since = comm ? comm->watch.left_since : 0;
	df_mutex_unlock(&df_rt.lock);
	if (!comm)
		return;
	status = status_of_left(since);
	df_mutex_lock(&df_rt.lock);
	while ((comm = next_left(1))) {
		if (!status) {
			/* For a living one, which may come: the time-out's business. */
			__atomic_store_n(&comm->watch.peer_left, 0, __ATOMIC_RELAXED);
			continue;
		}
		df_warn("a rank of communicator %llx has exited with unfinished operations",
			(unsigned long long)comm->hash);
		df_comm_unheard(comm, status);
		df_comm_end(comm, -ECONNRESET, 2);
	}
	df_mutex_unlock(&df_rt.lock);
}

/*
 * It is proved that ranks of a communicator have issued operations that never meet. Nothing can come of it, so it is
 * reported at once, and the communicator ends on all ranks: its ncclCommGetAsyncError gives ncclRemoteError.
 */
static void tell_mismatch(uint64_t name)
{
	struct df_check_result *r;
	struct asked asked;
	uint64_t ops;

	unfinished(&ops);
	df_trace_clocks();
	df_trace(DF_REC_STALL, -1, 0, -1, 0, 0, ops, 0, 0);
	r = judge(STALE_NS, &asked);
	if (r && df_check_verdict(r) == DF_V_MISMATCH) {
		df_tied_tell();
		print(r);
		df_ending_mismatch(name);
	}
	df_check_result_free(r);
}

/*
 * It is proved that operations wait for one another whatever the threads do: reported at once, too. They end as what is stuck
 * does after the time-out.
 */
static void tell_settled(void)
{
	uint64_t ops, seen = df_now_ns();
	struct df_check_result *r;
	struct asked asked;

	unfinished(&ops);
	df_trace_clocks();
	df_trace(DF_REC_STALL, -1, 0, -1, 0, 0, ops, 0, 0);
	r = judge(STALE_NS, &asked);
	if (r && df_check_verdict(r) == DF_V_ORDER) {
		dog.reported = dog.last = df_executor->progress(NULL);
		df_release_forget_log();
		df_tied_tell();
		print(r);
		if (df_env()->timeout_action != DF_TIMEOUT_REPORT)
			df_ending_decide(seen, df_verdict_stop_exit(DF_V_ORDER));
	}
	df_check_result_free(r);
}

/*
 * Waits that have lasted long, here or elsewhere: are they part of a circle? One process looks for all (proof.c);
 * the others tell it, and do it themselves only if nothing comes of that. Returns how long to sleep at most.
 */
static uint64_t circles(void)
{
	uint64_t now = df_now_ns(), next, age, leader;
	int due = df_release_due(now, &next, &age), told = df_snapshot_suspected();

	dog.asked |= due || told || now >= dog.again;
	if (dog.asked) {
		leader = df_tied_leader();
		if (leader != df_rt.self.proc && due)
			df_snapshot_suspect(leader);
		if (leader != df_rt.self.proc && !(due && age > PATIENCE_NS))
			dog.asked = 0;
	}
	if (dog.asked && now >= dog.not_before) {
		struct df_proof_found proof;
		int ret = df_prove_and_release(dog.pause >= HOSTS_NS, &proof);

		if (proof.mismatch)
			tell_mismatch(proof.mismatch);
		else if (proof.settled)
			tell_settled();
		now = df_now_ns();
		dog.asked = ret == -EAGAIN;
		dog.again = proof.again;
		if (proof.nr)
			dog.pause = 0;
		else
			dog.pause = DF_MAX(DF_MIN(dog.pause * 2, LOOK_MAX_NS), LOOK_MIN_NS);
		/* Two that disturb each other must not do so in step. */
		dog.not_before = now + dog.pause / 2 + now / 1024 % (dog.pause / 2 + 1);
	}
	if (dog.asked)
		next = DF_MIN(next, dog.not_before);
	next = DF_MIN(next, DF_MAX(dog.again, dog.not_before));
	return next > now ? next - now : 0;
}

enum { STAYS, ASKED_TO_STOP, STOPPING, STOPPED };

/* This process ends by _exit(): what its destructor would do. */
static void stop_if_asked(void)
{
	/* ACQUIRE pairs with the exchange in df_watchdog_stop(): what the one that ends had done is to be seen. */
	if (__atomic_load_n(&dog.stop, __ATOMIC_ACQUIRE) != ASKED_TO_STOP)
		return;
	__atomic_store_n(&dog.stop, STOPPING, __ATOMIC_RELAXED);
	df_stop();
	/* RELEASE pairs with the load in df_watchdog_stop(): it ends the process when the last file is written. */
	__atomic_store_n(&dog.stop, STOPPED, __ATOMIC_RELEASE);
	df_futex_wake(&dog.stop, INT_MAX, 0);
}

void df_watchdog_stop(void)
{
	uint32_t stays = STAYS, now;
	/* As long as buffered sends are waited for; a thread that does not even begin is held up by the one that ends. */
	uint64_t begin = df_now_ns() + DF_NS_PER_S;
	uint64_t end = begin + (uint64_t)df_env()->timeout_ms * DF_NS_PER_MS;

	/* Not in a child: it has no such thread, and its parent goes on. */
	if (__atomic_load_n(&dog.pid, __ATOMIC_RELAXED) != getpid())
		return;
	/* RELEASE pairs with stop_if_asked(). */
	__atomic_compare_exchange_n(&dog.stop, &stays, ASKED_TO_STOP, 0, __ATOMIC_RELEASE,
				    __ATOMIC_RELAXED);
	df_snapshot_wake();
	/* ACQUIRE pairs with the RELEASE in stop_if_asked(). */
	while ((now = __atomic_load_n(&dog.stop, __ATOMIC_ACQUIRE)) != STOPPED &&
	       df_now_ns() < (now == STOPPING ? end : begin))
		df_futex_wait(&dog.stop, now, 100 * DF_NS_PER_MS, 0);
}

static void *watch(void *arg)
{
	uint64_t timeout = (uint64_t)df_env()->timeout_ms * DF_NS_PER_MS;
	uint64_t missing = 0, now_missing, ops;

	(void)arg;
	dog.last = df_executor->progress(NULL);
	dog.since = df_now_ns();
	for (;;) {
		uint32_t seen = df_snapshot_seen();
		uint64_t nap = DF_MAX(timeout / 4, DF_NS_PER_MS), rest;

		stop_if_asked();
		df_snapshot_serve();
		answer_ras();
		if (somebody_left()) {
			peers_that_left();
			nap = DF_MIN(nap, 100 * DF_NS_PER_MS);
		}
		rest = circles();
		nap = DF_MIN(nap, rest);
		rest = df_release_log(RELEASE_LOG_NS);
		nap = DF_MIN(nap, rest);
		if (nap)
			df_snapshot_wait(seen, (int64_t)nap);
		/* Before anybody is told what is known here. */
		df_executor->note_held(df_now_ns(), DF_MAX(timeout / 4, DF_NS_PER_MS));
		now_missing = df_joining_missing();
		if (now_missing != missing) {
			/* A hang after this one is another. */
			missing = now_missing;
			dog.reported = UINT64_MAX;
			dog.last = UINT64_MAX;
		}
		if (df_executor->progress(NULL) != dog.last || !unfinished(&ops)) {
			dog.last = df_executor->progress(NULL);
			dog.since = df_now_ns();
			continue;
		}
		if (df_now_ns() - dog.since >= timeout && dog.reported != dog.last)
			stalled((df_now_ns() - dog.since) / DF_NS_PER_MS, ops);
	}
	return NULL;
}

void df_watchdog_start(void)
{
	sigset_t all, old;
	pthread_t t;

	if (__atomic_exchange_n(&dog.started, 1, __ATOMIC_RELAXED))
		return;
	__atomic_store_n(&dog.pid, getpid(), __ATOMIC_RELAXED);
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &old);
	if (pthread_create(&t, NULL, watch, NULL) == 0) {
		pthread_setname_np(t, "dfshim-watchdog");
		pthread_detach(t);
		df_ras_start();
	} else {
		df_warn("cannot start the watchdog's thread: dfshim will not explain hangs");
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
}
