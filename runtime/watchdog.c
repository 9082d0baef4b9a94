/*
 * The watchdog: one thread a process, asleep except for a look every quarter of DFSHIM_TIMEOUT_MS. When something
 * is unfinished and nothing has moved for the whole time, it gathers what every process knows, lets the checker
 * judge, and prints the verdict once per job. It judges twice with unchanged progress before it believes
 * (deadlock is stable). With DFSHIM_TIMEOUT_ACTION=abort it then ends the stuck communicators.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/base/futex.h"
#include "runtime/rt.h"
#include "trace/check.h"
#include "trace/writer.h"

#define SUSPECT_MIN_NS                                                                             \
	(DF_NS_PER_MS / 2)	   /* no progress for so long, and a device sync waits: look */
#define SUSPECT_MAX_NS DF_NS_PER_S /* looks that found nothing become this rare */
#define STALE_NS       (5 * DF_NS_PER_S) /* the checker's own idea of a suspicious silence */
#define GATHER_NS      (2 * DF_NS_PER_S) /* how long the others have to answer */

struct snapshot {
	struct df_list node;
	uint64_t proc;
	void *image;
	size_t bytes;
};

static struct {
	struct df_mutex lock;
	int started;
	uint32_t asks; /* processes that want our snapshot: see message() */
	uint32_t wake; /* futex word */
	struct df_list snapshots;
	uint64_t reported; /* progress at the last report: one report per hang */
	int ended;
} dog = {.lock = DF_MUTEX_INIT(DF_RANK_WATCHDOG, "watchdog"),
	 .snapshots = DF_LIST_INIT(dog.snapshots),
	 .reported = UINT64_MAX};

void df_watchdog_wake(void)
{
	__atomic_add_fetch(&dog.wake, 1, __ATOMIC_RELAXED);
	df_futex_wake(&dog.wake, 1, 0);
}

/* On the control thread: only takes note. */
void df_watchdog_message(uint64_t from, uint32_t kind, const void *data, size_t bytes)
{
	struct snapshot *s;

	if (kind == DF_MSG_SNAPSHOT_ASK) {
		__atomic_add_fetch(&dog.asks, 1, __ATOMIC_RELAXED);
		df_watchdog_wake();
	} else if (kind == DF_MSG_SNAPSHOT) {
		s = malloc(sizeof(*s));
		if (!s)
			return;
		s->proc = from;
		s->bytes = bytes;
		s->image = malloc(bytes + 1);
		if (!s->image) {
			free(s);
			return;
		}
		memcpy(s->image, data, bytes);
		df_mutex_lock(&dog.lock);
		df_list_add_tail(&dog.snapshots, &s->node);
		df_mutex_unlock(&dog.lock);
		df_watchdog_wake();
	}
}

/* Its members and its way to them may be looked at. */
static int is_open(const struct df_comm *comm)
{
	/* ACQUIRE pairs with the RELEASE in ready() (comm.c): the members come first. */
	return __atomic_load_n(&comm->open, __ATOMIC_ACQUIRE);
}

/* Sends what this process knows to all others of every communicator; duplicates are dropped there. */
static void answer(void)
{
	struct df_comm *comm;
	size_t bytes;
	void *image;

	if (!df_trace_ring() || df_trace_compact(df_trace_ring(), &image, &bytes))
		return;
	df_mutex_lock(&df_rt.lock);
	df_list_each(comm, &df_rt.comms, node) if (is_open(comm))
		df_ctl_send(comm->ctl, 0, DF_MSG_SNAPSHOT, image, bytes);
	df_mutex_unlock(&df_rt.lock);
	free(image);
}

static void drop_snapshots(void)
{
	struct snapshot *s, *tmp;

	df_mutex_lock(&dog.lock);
	df_list_each_safe(s, tmp, &dog.snapshots, node)
	{
		df_list_del(&s->node);
		free(s->image);
		free(s);
	}
	df_mutex_unlock(&dog.lock);
}

/* Asks all processes that share a communicator with us. Returns how many there are. */
static unsigned ask(uint64_t *leader)
{
	uint64_t seen[1024];
	struct df_comm *comm;
	unsigned nr = 0, j;
	int i;

	*leader = df_rt.self.proc;
	df_mutex_lock(&df_rt.lock);
	df_list_each(comm, &df_rt.comms, node)
	{
		if (!is_open(comm))
			continue;
		for (i = 0; i < comm->nranks; i++) {
			uint64_t proc = comm->members[i].proc;

			for (j = 0; j < nr && seen[j] != proc; j++)
				;
			if (proc == df_rt.self.proc || j < nr || nr == DF_ARRAY_LEN(seen))
				continue;
			seen[nr++] = proc;
			if (df_ctl_send(comm->ctl, proc, DF_MSG_SNAPSHOT_ASK, "", 0) == 0 &&
			    proc < *leader)
				*leader = proc;
		}
	}
	df_mutex_unlock(&df_rt.lock);
	return nr;
}

static unsigned nr_snapshots(void)
{
	struct snapshot *s, *o;
	unsigned nr = 0;

	df_mutex_lock(&dog.lock);
	df_list_each(s, &dog.snapshots, node)
	{
		int dup = 0;

		df_list_each(o, &dog.snapshots, node)
		{
			if (o == s)
				break;
			dup |= o->proc == s->proc;
		}
		nr += !dup;
	}
	df_mutex_unlock(&dog.lock);
	return nr;
}

/* A result speaks of its set: they live and go together. */
struct judgement {
	struct df_check_set *set;
	struct df_check_result *r;
};

static void judgement_free(struct judgement *j)
{
	df_check_result_free(j->r);
	df_check_set_free(j->set);
	j->r = NULL;
	j->set = NULL;
}

/* stale: for how long nothing has moved. */
static void judge(struct judgement *j, uint64_t stale)
{
	struct df_check_opts opts = {.now_ns = df_now_ns(), .live = 1};
	struct df_check_set *set = df_check_set_new();
	struct snapshot *s, *o;
	uint64_t leader, until;
	unsigned want;
	size_t bytes;
	void *image;

	j->r = NULL;
	j->set = set;
	if (!set || !df_trace_ring() || df_trace_compact(df_trace_ring(), &image, &bytes))
		return;
	df_check_add_image(set, image, bytes, "this process");
	free(image);
	drop_snapshots();
	want = ask(&leader);
	until = df_now_ns() + GATHER_NS;
	while (nr_snapshots() < want && df_now_ns() < until) {
		uint32_t seen = __atomic_load_n(&dog.wake, __ATOMIC_RELAXED);

		/* The others may be asking us at the same time. */
		if (__atomic_exchange_n(&dog.asks, 0, __ATOMIC_RELAXED))
			answer();
		if (nr_snapshots() < want)
			df_futex_wait(&dog.wake, seen, 20 * (int64_t)DF_NS_PER_MS, 0);
	}
	df_mutex_lock(&dog.lock);
	df_list_each(s, &dog.snapshots, node)
	{
		int last = 1;
		struct df_list *n;

		/* A process that answered twice: its last word counts. */
		for (n = s->node.next; n != &dog.snapshots; n = n->next) {
			o = df_list_entry(n, struct snapshot, node);
			last &= o->proc != s->proc;
		}
		if (last)
			df_check_add_image(set, s->image, s->bytes, "peer");
	}
	df_mutex_unlock(&dog.lock);
	/* Who asks for an analysis after a shorter silence than the checker's own takes that for suspicious. */
	opts.stale_ns = DF_MIN(stale, STALE_NS);
	if (df_check_run(set, &opts, &j->r))
		j->r = NULL;
}

static void print(const struct df_check_result *r)
{
	char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);

	if (!f)
		return;
	df_check_print(r, f);
	fclose(f);
	df_log_raw(text, len);
	free(text);
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

/*
 * Ends every communicator with something unfinished, and those that are still being joined; but not what the
 * application begins as soon as its first call returns, after `seen`.
 */
static void end_stuck(uint64_t seen)
{
	struct df_comm *comm;
	int again;

	do {
		again = 0;
		df_mutex_lock(&df_rt.lock);
		df_list_each(comm, &df_rt.comms, node)
		{
			uint32_t state = __atomic_load_n(&comm->state, __ATOMIC_RELAXED);

			if (comm->join.since > seen)
				continue;
			if (state == DF_COMM_JOINING ||
			    (state == DF_COMM_READY &&
			     (df_comm_pending(comm) ||
			      __atomic_load_n(&df_rt.blocked, __ATOMIC_RELAXED)))) {
				again = 1;
				df_comm_end(comm, -ETIMEDOUT, 1);
				break;
			}
		}
		df_mutex_unlock(&df_rt.lock);
	} while (again);
}

static uint64_t progress(void)
{
	return df_engine_progress() + __atomic_load_n(&dog.ended, __ATOMIC_RELAXED);
}

/* The traces explain it, without what the rendezvous knows. */
static int about_operations(enum df_verdict v)
{
	return v != DF_V_OK && v != DF_V_SLOW && v != DF_V_INIT && v != DF_V_HOST &&
	       v != DF_V_UNKNOWN;
}

static void stalled(uint64_t ms, uint64_t ops)
{
	const struct df_env *env = df_env();
	uint64_t before = progress(), missing = df_joining_missing(), seen = df_now_ns(), leader;
	unsigned others;
	struct judgement j;
	int abort = env->timeout_action == DF_TIMEOUT_ABORT ||
		    (df_rt.rules == DF_RULES_NCCL && !env->set[DF_ENV_ROW_timeout_action]);

	df_trace(DF_REC_STALL, -1, 0, -1, 0, ms, ops, 0, 0);
	judge(&j, ms * DF_NS_PER_MS);
	judgement_free(&j);
	judge(&j, ms * DF_NS_PER_MS);
	if (progress() != before || df_joining_missing() != missing) {
		judgement_free(&j);
		return; /* it moved meanwhile: no deadlock */
	}
	dog.reported = before;
	others = ask(&leader);
	if (missing && (!j.r || !about_operations(df_check_verdict(j.r))) && df_joining_explain())
		;
	else if (!j.r)
		df_warn("no progress for %llu ms with %llu operations unfinished, and no trace to judge "
			"by",
			(unsigned long long)ms, (unsigned long long)ops);
	else if (leader == df_rt.self.proc)
		print(j.r);
	judgement_free(&j);
	if (abort) {
		/* The others judge by our answers: let them do so before we end what they look at. */
		uint64_t until = df_now_ns() + GATHER_NS / 2;

		while (others && df_now_ns() < until) {
			if (__atomic_exchange_n(&dog.asks, 0, __ATOMIC_RELAXED))
				answer();
			df_sleep_ns(20 * DF_NS_PER_MS);
		}
		end_stuck(seen);
	}
}

/* A member's process has ended in order while operations with it are unfinished: they never will. */
static void peers_that_left(void)
{
	struct df_comm *comm;
	int again;

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
			if (left && df_now_ns() - left > 500 * DF_NS_PER_MS &&
			    df_comm_pending(comm) && df_comm_state(comm) == DF_COMM_READY) {
				df_warn("a rank of communicator %llx has ended with operations "
					"unfinished",
					(unsigned long long)comm->hash);
				df_comm_end(comm, -ECONNRESET, 2);
				again = 1;
				break;
			}
		}
		df_mutex_unlock(&df_rt.lock);
	} while (again);
}

static int somebody_left(void)
{
	struct df_comm *comm;
	int left = 0;

	df_mutex_lock(&df_rt.lock);
	df_list_each(comm, &df_rt.comms, node) left |=
		__atomic_load_n(&comm->peer_left, __ATOMIC_RELAXED) != 0 && df_comm_pending(comm);
	df_mutex_unlock(&df_rt.lock);
	return left;
}

/*
 * A synchronising call has waited for some milliseconds with nothing moving: is it part of a deadlock? Two
 * judgements with the same progress are the proof; then it may be released.
 */
static int try_release(void)
{
	uint64_t before = progress();
	struct judgement j;
	unsigned done = 0;

	judge(&j, SUSPECT_MIN_NS);
	if (j.r && df_check_verdict(j.r) == DF_V_SYNC && progress() == before) {
		judgement_free(&j);
		judge(&j, SUSPECT_MIN_NS);
		if (j.r && df_check_verdict(j.r) == DF_V_SYNC && progress() == before)
			done = df_release_by(j.r);
	}
	judgement_free(&j);
	return done != 0;
}

static void *watch(void *arg)
{
	uint64_t timeout = (uint64_t)df_env()->timeout_ms * DF_NS_PER_MS;
	uint64_t last = progress(), since = df_now_ns(), ops, again = 0, pause = SUSPECT_MIN_NS;
	uint64_t missing = 0, now_missing;

	(void)arg;
	for (;;) {
		uint32_t seen = __atomic_load_n(&dog.wake, __ATOMIC_RELAXED);
		int64_t nap = (int64_t)DF_MAX(timeout / 4, DF_NS_PER_MS);

		if (__atomic_exchange_n(&dog.asks, 0, __ATOMIC_RELAXED))
			answer();
		if (somebody_left()) {
			peers_that_left();
			nap = DF_MIN(nap, 100 * (int64_t)DF_NS_PER_MS);
		}
		if (df_release_suspects())
			nap = DF_MIN(nap, (int64_t)SUSPECT_MIN_NS);
		df_futex_wait(&dog.wake, seen, nap, 0);
		now_missing = df_joining_missing();
		if (now_missing != missing) {
			/* A hang after this one is another. */
			missing = now_missing;
			dog.reported = UINT64_MAX;
			last = UINT64_MAX;
		}
		if (progress() != last || !unfinished(&ops)) {
			last = progress();
			since = df_now_ns();
			pause = SUSPECT_MIN_NS;
			again = 0;
			continue;
		}
		if (df_release_suspects() && df_now_ns() - since >= SUSPECT_MIN_NS &&
		    df_now_ns() >= again) {
			if (try_release())
				since = df_now_ns();
			else
				pause = DF_MIN(pause * 2, SUSPECT_MAX_NS);
			again = df_now_ns() + pause;
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
	} else {
		df_warn("no thread for the watchdog could be started: hangs will not be explained");
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
}
