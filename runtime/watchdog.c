/*
 * The watchdog: one thread a process, asleep except for a look every quarter of DFSHIM_TIMEOUT_MS, and when a wait
 * that might be released lasts (proof.c). When something is unfinished and nothing has moved for the whole time,
 * it gathers what every process knows (snapshot.c), lets the checker judge, and prints the verdict once per job. It
 * judges twice with unchanged progress before it believes (deadlock is stable). With DFSHIM_TIMEOUT_ACTION=abort
 * it then ends the stuck communicators, and tells the processes of their other ranks to do so too.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/ras.h"
#include "runtime/rt.h"
#include "runtime/snapshot.h"
#include "trace/check.h"
#include "trace/writer.h"

#define STALE_NS    (5 * DF_NS_PER_S)	 /* the checker's own idea of a suspicious silence */
#define PATIENCE_NS (300 * DF_NS_PER_MS) /* for whose task it is to look for circles */
#define LEFT_NS                                                                                    \
	(500 * DF_NS_PER_MS) /* for so long the others may go on without a rank that has left */
#define SILENT_MS   10000    /* who does not answer is waited for */
#define LOOK_MIN_NS (DF_NS_PER_MS / 2)	/* looks that find nothing are so far apart at least */
#define LOOK_MAX_NS (32 * DF_NS_PER_MS) /* and at most, while they are asked for */
#define HOSTS_NS                                                                                   \
	(4 * DF_NS_PER_MS) /* from such a pause on, where host threads are is looked at too */

static struct {
	int started;
	int speaker;	   /* it is for us to say what a rank that has left means */
	uint64_t reported; /* progress at the last report: one report per hang */
	/* Circles: somebody asked to look; not before then; the pause after a look that found none. */
	int asked;
	uint64_t not_before, pause;
} dog = {.reported = UINT64_MAX};

/* Processes that were asked, and those of them that live and have not answered. */
struct asked {
	unsigned others, silent;
};

/* What all processes know, judged. stale: for how long nothing has moved. NULL: nothing to judge by. */
static struct df_check_result *judge(uint64_t stale, struct asked *asked)
{
	/* Who asks for an analysis after a shorter silence than the checker's own takes that for suspicious. */
	struct df_check_opts opts = {.live = 1, .stale_ns = DF_MIN(stale, STALE_NS)};
	struct df_gather g = {.answers = DF_LIST_INIT(g.answers)};
	struct df_check_set *set = df_check_set_new();
	struct df_check_result *r = NULL;
	struct df_snapshot *s;

	opts.now_ns = df_now_ns();
	*asked = (struct asked){0};
	if (set && !df_snapshot_gather(&g, DF_ASK_LOOK)) {
		df_list_each(s, &g.answers, node)
		{
			if (s->image)
				df_check_add_image(set, s->image, s->bytes,
						   s->proc == df_rt.self.proc ? "this process"
									      : "peer");
			else if (s->proc != df_rt.self.proc)
				asked->silent += !df_ctl_is_dead(s->proc);
		}
		asked->others = g.nr_procs - 1;
		if (df_check_run(set, &opts, &r))
			r = NULL;
	}
	df_snapshot_done(&g);
	df_check_set_free(set);
	return r;
}

/* The verdict for people; malloc'ed. */
static char *text_of(const struct df_check_result *r)
{
	char *text = NULL;
	size_t len = 0;
	FILE *f = r ? open_memstream(&text, &len) : NULL;

	if (!f)
		return NULL;
	df_check_print(r, f);
	fclose(f);
	return text;
}

static void print(const struct df_check_result *r)
{
	char *text = text_of(r);

	if (!text)
		return;
	df_log_raw(text, strlen(text));
	df_trace_told(df_check_verdict(r));
	free(text);
}

/* Somebody has asked over NCCL's RAS protocol how the job is (ras.c). */
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
		*ops += __atomic_load_n(&df_rt.devs[i].issued, __ATOMIC_RELAXED) -
			__atomic_load_n(&df_rt.devs[i].retired, __ATOMIC_RELAXED);
	return *ops || __atomic_load_n(&df_rt.blocked, __ATOMIC_RELAXED);
}

static int by_value(const void *pa, const void *pb)
{
	uint64_t a = *(const uint64_t *)pa, b = *(const uint64_t *)pb;

	return a < b ? -1 : a > b;
}

/* The communicators with something unfinished by their names, sorted; NULL: none, or no memory. df_rt.lock held. */
static uint64_t *stuck_names(size_t *nr)
{
	uint64_t *names;
	struct df_comm *comm;
	size_t all = 0;

	*nr = 0;
	df_list_each(comm, &df_rt.comms, node) all++;
	names = malloc((all + 1) * sizeof(*names));
	if (!names)
		return NULL;
	df_list_each(comm, &df_rt.comms, node)
	{
		if (__atomic_load_n(&comm->state, __ATOMIC_RELAXED) == DF_COMM_READY &&
		    df_comm_pending(comm))
			names[(*nr)++] = comm->hash;
	}
	qsort(names, *nr, sizeof(*names), by_value);
	return names;
}

struct ended {
	uint64_t nr;
	uint32_t verdict, text_bytes;
	/* 1: its process has printed the text. */
	uint32_t told, pad;
	/* names, text */
};

/*
 * All other ranks of these communicators end too, wherever they are and whatever they do: it is one decision. Without
 * any (hosts hang in calls) the others learn that what they see next is a consequence.
 */
static void tell_ended(const uint64_t *procs, uint32_t nr_procs, const uint64_t *names, size_t nr,
		       const struct df_check_result *r, int told)
{
	char *text = text_of(r);
	size_t text_bytes = text ? strlen(text) + 1 : 0;
	size_t bytes = sizeof(struct ended) + nr * sizeof(*names) + text_bytes;
	struct ended *e = malloc(bytes);

	if (e) {
		*e = (struct ended){.nr = nr,
				    .verdict = r ? (uint32_t)df_check_verdict(r) : 0,
				    .text_bytes = (uint32_t)text_bytes,
				    .told = (uint32_t)told};
		if (nr)
			memcpy(e + 1, names, nr * sizeof(*names));
		if (text)
			memcpy((uint64_t *)(e + 1) + nr, text, text_bytes);
		for (uint32_t i = 0; i < nr_procs; i++)
			df_ctl_send(NULL, procs[i], DF_MSG_END, e, bytes);
	}
	free(e);
	free(text);
}

static int is_named(const struct df_comm *comm, const uint64_t *names, size_t nr)
{
	return names && bsearch(&comm->hash, names, nr, sizeof(*names), by_value);
}

/*
 * Ends the communicators that `wanted` says; how many. First it is to be seen of all of them: what the end of one lets go
 * on may finish operations of another, and a host that waited for these must not take them for right.
 */
static int end_all(int (*wanted)(const struct df_comm *comm, void *arg), void *arg)
{
	struct df_comm *comm;
	int nr = 0;

	df_mutex_lock(&df_rt.lock);
	df_list_each(comm, &df_rt.comms, node)
	{
		comm->condemned = wanted(comm, arg) && df_comm_condemn(comm, -ETIMEDOUT, 1);
		nr += comm->condemned;
	}
	df_list_each(comm, &df_rt.comms, node)
	{
		if (comm->condemned)
			df_comm_end_operations(comm);
		comm->condemned = 0;
	}
	df_mutex_unlock(&df_rt.lock);
	return nr;
}

struct names {
	uint64_t *v;
	size_t nr;
	uint64_t seen;
};

static int is_stuck(const struct df_comm *comm, void *arg)
{
	const struct names *n = arg;
	uint32_t state = __atomic_load_n(&comm->state, __ATOMIC_RELAXED);

	if (comm->join.since > n->seen)
		return 0;
	return state == DF_COMM_JOINING ||
	       (state == DF_COMM_READY && (df_comm_pending(comm) || is_named(comm, n->v, n->nr) ||
					   __atomic_load_n(&df_rt.blocked, __ATOMIC_RELAXED)));
}

static int ended_elsewhere(const struct df_comm *comm, void *arg)
{
	const struct names *n = arg;

	return __atomic_load_n(&comm->state, __ATOMIC_RELAXED) == DF_COMM_READY &&
	       is_named(comm, n->v, n->nr);
}

/*
 * Ends every communicator with something unfinished, all its ranks, and those that are still being joined; but not what
 * the application begins as soon as its first call returns, after `seen`. A rank that has nothing unfinished would go
 * on, when its other wait ends, with peers that have gone.
 */
static void end_stuck(uint64_t seen, const struct df_check_result *r, int told)
{
	struct names n = {.seen = seen};
	uint32_t nr_procs;
	uint64_t *procs = df_snapshot_peers(&nr_procs);

	df_mutex_lock(&df_rt.lock);
	n.v = stuck_names(&n.nr);
	df_mutex_unlock(&df_rt.lock);
	tell_ended(procs, nr_procs, n.v, n.v ? n.nr : 0, r, told);
	end_all(is_stuck, &n);
	free(n.v);
	free(procs);
}

int df_watchdog_end_is_told(const void *data, size_t bytes)
{
	const struct ended *e = data;

	return bytes >= sizeof(*e) && e->told;
}

void df_watchdog_ended(const void *data, size_t bytes)
{
	const struct ended *e = data;
	struct names n = {0};
	const char *text;
	uint64_t ops;
	int here, speaks;

	if (bytes < sizeof(*e) || e->nr > (bytes - sizeof(*e)) / sizeof(*n.v) ||
	    bytes != sizeof(*e) + e->nr * sizeof(*n.v) + e->text_bytes)
		return;
	n.nr = (size_t)e->nr;
	n.v = malloc((n.nr + 1) * sizeof(*n.v));
	if (!n.v)
		return;
	memcpy(n.v, e + 1, n.nr * sizeof(*n.v));
	qsort(n.v, n.nr, sizeof(*n.v), by_value);
	/*
	 * Who would have spoken for all may not have come to that. But who has may be gone when its message is read: then
	 * we only seem to be the one.
	 */
	text = (const char *)((const uint64_t *)(e + 1) + n.nr);
	speaks = !e->told && e->text_bytes && !text[e->text_bytes - 1] &&
		 dog.reported != df_engine_progress() && df_snapshot_leader() == df_rt.self.proc;
	/* For who reads the traces: what follows is a consequence, also where nobody here has noticed the standstill. */
	if (unfinished(&ops) || n.nr)
		df_trace(DF_REC_STALL, -1, 0, -1, 0, (uint64_t)df_env()->timeout_ms, ops, 0, 0);
	here = end_all(ended_elsewhere, &n);
	if (here && speaks) {
		df_log_raw(text, e->text_bytes - 1);
		df_trace_told((enum df_verdict)e->verdict);
	}
	free(n.v);
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
		__atomic_load_n(&comm->peer_left, __ATOMIC_RELAXED) && df_comm_pending(comm) &&
		df_comm_state(comm) == DF_COMM_READY;
	df_mutex_unlock(&df_rt.lock);
	return left;
}

static void stalled(uint64_t ms, uint64_t ops)
{
	const struct df_env *env = df_env();
	uint64_t before = df_engine_progress(), missing = df_joining_missing(), seen = df_now_ns();
	struct df_check_result *r;
	struct asked asked;
	int told = 0, leads;
	int abort = env->timeout_action == DF_TIMEOUT_ABORT ||
		    (df_rt.rules == DF_RULES_NCCL && !env->set[DF_ENV_ROW_timeout_action]);

	df_trace_clocks();
	df_trace(DF_REC_STALL, -1, 0, -1, 0, ms, ops, 0, 0);
	df_check_result_free(judge(ms * DF_NS_PER_MS, &asked));
	r = judge(ms * DF_NS_PER_MS, &asked);
	/*
	 * What came in while we gathered may be the end of it: told by somebody who has gone since, so that we would seem
	 * to be the one to tell it.
	 */
	df_snapshot_serve();
	if (!unfinished(&ops) || df_engine_progress() != before ||
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
	 * Who lives and does not answer may only be slow, and know what explains it; there is one report for a hang. So
	 * that is looked for again, but not for ever: it may be stopped.
	 */
	if (asked.silent && r && !about_operations(df_check_verdict(r)) &&
	    ms < (uint64_t)env->timeout_ms + SILENT_MS) {
		df_check_result_free(r);
		return;
	}
	/*
	 * Who gives a rendezvous up takes from the others what they would have said of it. So the one whose word it is
	 * goes first; it may have begun to wait later than we, but not for ever.
	 */
	if (missing && (!r || !about_operations(df_check_verdict(r))))
		told = df_joining_explain(abort && ms / 2 >= (uint64_t)env->timeout_ms);
	if (told == -EAGAIN && abort) {
		df_check_result_free(r);
		return;
	}
	dog.reported = before;
	leads = df_snapshot_leader() == df_rt.self.proc;
	if (told)
		;
	else if (!r)
		df_warn("no progress for %llu ms with %llu operations unfinished, and no trace to judge "
			"by",
			(unsigned long long)ms, (unsigned long long)ops);
	else if (leads)
		print(r);
	if (abort) {
		/* The others judge by our answers: let them do so before we end what they look at. */
		uint64_t until = df_now_ns() + DF_GATHER_NS / 2;

		while (asked.others && df_now_ns() < until) {
			df_snapshot_serve();
			df_sleep_ns(20 * DF_NS_PER_MS);
		}
		end_stuck(seen, r, told || leads);
	}
	df_check_result_free(r);
}

/* Says once for all that a member has left, before its communicators end. */
static void tell_left(void)
{
	struct df_check_result *r;
	struct asked asked;

	if (!__atomic_exchange_n(&dog.speaker, 0, __ATOMIC_RELAXED) ||
	    dog.reported == df_engine_progress())
		return;
	/* One report per hang: this one. */
	dog.reported = df_engine_progress();
	r = judge(LEFT_NS, &asked);
	if (r && df_check_verdict(r) != DF_V_OK)
		print(r);
	df_check_result_free(r);
}

/* A member's process has ended in order while operations with it are unfinished: they never will. */
static void peers_that_left(void)
{
	struct df_comm *comm;
	int again, told = 0;

	do {
		again = 0;
		df_mutex_lock(&df_rt.lock);
		df_list_each(comm, &df_rt.comms, node)
		{
			uint64_t left = __atomic_load_n(&comm->peer_left, __ATOMIC_RELAXED);
			uint64_t retired = __atomic_load_n(&comm->retired, __ATOMIC_RELAXED);

			/* The others may go on without it for as long as they can. */
			if (left && comm->left_retired != retired) {
				comm->left_retired = retired;
				left = df_now_ns();
				__atomic_store_n(&comm->peer_left, left, __ATOMIC_RELAXED);
			}
			if (left && df_now_ns() - left > LEFT_NS && df_comm_pending(comm) &&
			    df_comm_state(comm) == DF_COMM_READY) {
				again = 1;
				if (!told)
					break;
				df_warn("a rank of communicator %llx has ended with operations "
					"unfinished",
					(unsigned long long)comm->hash);
				df_comm_end(comm, -ECONNRESET, 2);
				break;
			}
		}
		df_mutex_unlock(&df_rt.lock);
		if (again && !told++)
			tell_left();
	} while (again);
}

/*
 * Waits that have lasted long, here or elsewhere: are they part of a circle? One process looks for all (proof.c);
 * the others tell it, and do it themselves only if nothing comes of that. Returns how long to sleep at most.
 */
static uint64_t circles(void)
{
	uint64_t now = df_now_ns(), next, age, leader;
	int due = df_release_due(now, &next, &age), told = df_snapshot_suspected();

	dog.asked |= due || told;
	if (dog.asked) {
		leader = df_snapshot_leader();
		if (leader != df_rt.self.proc && due)
			df_snapshot_suspect(leader);
		if (leader != df_rt.self.proc && !(due && age > PATIENCE_NS))
			dog.asked = 0;
	}
	if (dog.asked && now >= dog.not_before) {
		int ret = df_prove_and_release(dog.pause >= HOSTS_NS);
		now = df_now_ns();
		dog.asked = ret == -EAGAIN;
		if (ret > 0)
			dog.pause = 0;
		else
			dog.pause = DF_MAX(DF_MIN(dog.pause * 2, LOOK_MAX_NS), LOOK_MIN_NS);
		/* Two that disturb each other must not do so in step. */
		dog.not_before = now + dog.pause / 2 + now / 1024 % (dog.pause / 2 + 1);
	}
	if (dog.asked)
		next = DF_MIN(next, dog.not_before);
	return next > now ? next - now : 0;
}

static void *watch(void *arg)
{
	uint64_t timeout = (uint64_t)df_env()->timeout_ms * DF_NS_PER_MS;
	uint64_t last = df_engine_progress(), since = df_now_ns(), ops;
	uint64_t missing = 0, now_missing;

	(void)arg;
	for (;;) {
		uint32_t seen = df_snapshot_seen();
		uint64_t nap = DF_MAX(timeout / 4, DF_NS_PER_MS), rest;

		df_snapshot_serve();
		answer_ras();
		if (somebody_left()) {
			peers_that_left();
			nap = DF_MIN(nap, 100 * DF_NS_PER_MS);
		}
		rest = circles();
		nap = DF_MIN(nap, rest);
		if (nap)
			df_snapshot_wait(seen, (int64_t)nap);
		now_missing = df_joining_missing();
		if (now_missing != missing) {
			/* A hang after this one is another. */
			missing = now_missing;
			dog.reported = UINT64_MAX;
			last = UINT64_MAX;
		}
		if (df_engine_progress() != last || !unfinished(&ops)) {
			last = df_engine_progress();
			since = df_now_ns();
			continue;
		}
		if (df_now_ns() - since >= timeout && dog.reported != last)
			stalled((df_now_ns() - since) / DF_NS_PER_MS, ops);
	}
	return NULL;
}

void df_watchdog_start(void)
{
	sigset_t all, old;
	pthread_t t;

	if (__atomic_exchange_n(&dog.started, 1, __ATOMIC_RELAXED))
		return;
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &old);
	if (pthread_create(&t, NULL, watch, NULL) == 0) {
		pthread_setname_np(t, "dfshim-watchdog");
		pthread_detach(t);
		df_ras_start();
	} else {
		df_warn("no thread for the watchdog could be started: hangs will not be explained");
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
}
