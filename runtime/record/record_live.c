/*
 * The verdict of mode trace where the processes of a job are connected (record_peers.c). Nothing
 * travels while operations end. A process that has made no progress for DFSHIM_PROVED_MS, or for
 * longer and longer times after that, reports that to the *leader*: the living process with the
 * lowest process id. The leader asks all processes for what is unfinished there (snapshot.h),
 * twice, and judges. It reports what both looks show, and rest on the same facts: then these held
 * together at one time, whatever else has moved. Before DFSHIM_TIMEOUT_MS it reports only what is
 * proved. Then it sends the sentence to all processes.
 *
 * A leader that does not answer is replaced: each process waits longer the more others precede it.
 *
 * Everything belongs to the thread of record_watch.c, except what says otherwise.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/abi.h"
#include "runtime/base/clean_text.h"
#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/list.h"
#include "runtime/base/log.h"
#include "runtime/base/time.h"
#include "runtime/comm/process.h"
#include "runtime/ctl/ctl.h"
#include "runtime/record/record.h"
#include "runtime/watch/look.h"
#include "runtime/watch/metrics.h"
#include "runtime/watch/part.h"
#include "runtime/watch/snapshot.h"
#include "runtime/watch/tied.h"
#include "trace/check.h"
#include "trace/record/writer.h"

/* The checker then assumes nothing of silent threads. */
#define NEVER_STALE_NS (UINT64_MAX / 2)
#define BETWEEN_NS     (300 * DF_NS_PER_MS) /* between two looks */
#define LOST_NS	       (300 * DF_NS_PER_MS) /* between a death and the look: all learn of it */
/* The pause after a look that shows nothing, as a multiple of its duration. */
#define PAUSE	    4
#define AGAIN_NS    (DF_NS_PER_S / 2) /* and more, if it shows that something has moved */
#define SILENT_MS   10000
#define TAKEOVER_NS (10 * DF_NS_PER_S)
/*
 * Looks that are repeated at once for one suspicion. More would be a load where a rank is stopped.
 */
#define REPEATS	   3
#define LINE_BYTES 512

/* The body of DF_MSG_TOLD in this mode. */
struct told {
	uint64_t host; /* of the process that has judged */
	uint64_t facts;
	uint32_t pid, verdict;
	char hostname[64], line[LINE_BYTES];
};

static struct {
	uint32_t told;	   /* a verdict is known; atomic */
	uint64_t progress; /* ours when it arrived */
	struct told what;
	uint64_t suspected;  /* ms, plus 1; 0: nothing is suspected */
	uint64_t not_before; /* the next look */
	unsigned repeats;    /* of the last look */
	uint64_t asked;	     /* when a suspicion was sent to the leader; 0: none */
	uint64_t lost_at;    /* time of a death that no look has considered; 0: none; atomic */
	uint32_t stalled_ms; /* of this process; atomic */
} live;

/* One look at the whole job. */
struct look {
	struct df_check_result *r;
	uint32_t stalled_ms; /* the longest standstill of a process */
	int silent;	     /* a living process has not answered */
};

int df_record_told(void)
{
	return __atomic_load_n(&live.told, __ATOMIC_RELAXED) != 0;
}

void df_record_lost(void)
{
	__atomic_store_n(&live.lost_at, df_now_ns(), __ATOMIC_RELAXED);
	df_record_wake();
}

static void look(uint64_t stale, uint64_t aged, struct look *l)
{
	struct df_check_opts opts = {.live = 1, .stale_ns = stale, .aged_ns = aged};
	struct df_snapshots g = {.answers = DF_LIST_INIT(g.answers)};
	struct df_check_set *set = df_check_set_new();
	struct df_snapshot *s;
	int certain;

	*l = (struct look){0};
	if (set && !df_snapshot_gather(&g, DF_ASK_LOOK)) {
		opts.now_ns = df_now_ns();
		df_list_each(s, &g.answers, node)
		{
			if (s->image &&
			    !df_check_add_image(set, s->image, s->bytes,
						s->proc == df_rt.self.proc ? "this process"
									   : "peer"))
				df_check_add_progress(set, s->progress);
			l->silent |= !s->fresh && !df_ctl_is_dead(s->proc);
			if (df_snapshot_is_silent(&g, s, &certain))
				df_record_add_silent(set, s->proc, certain);
			l->stalled_ms = DF_MAX(l->stalled_ms, s->stalled_ms);
		}
		l->stalled_ms = DF_MAX(l->stalled_ms, live.stalled_ms);
		df_look_add_left(set);
		if (df_check_run(set, &opts, &l->r))
			l->r = NULL;
	}
	df_snapshot_done(&g);
	df_check_set_free(set);
}

static int is_hang(const struct look *l, int late)
{
	enum df_verdict v = l->r ? df_check_verdict(l->r) : DF_V_OK;

	return late ? v != DF_V_OK : l->r && df_check_is_settled(l->r);
}

/* Both looks show the same hang. A dead rank stays dead, whatever the others do meanwhile. */
static int same(const struct look *a, const struct look *b, int late)
{
	if (df_check_verdict(a->r) != df_check_verdict(b->r))
		return 0;
	if (df_check_verdict(a->r) == DF_V_CRASH)
		return 1;
	return df_check_facts(a->r) == df_check_facts(b->r) &&
	       (late || !strcmp(df_check_line(a->r), df_check_line(b->r)));
}

/*
 * Prints what the rendezvous reports about ranks that have not joined (`missing`). If that is "",
 * prints the verdict `r`, or only its first line if another process has judged and `r` is NULL.
 */
static void print(const struct df_check_result *r, const char *missing, const char *line)
{
	char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);

	if (!f)
		return;
	if (missing[0])
		fputs(missing, f);
	else if (r)
		df_check_print(r, f);
	else
		fprintf(f, "%s\nThe whole report is in the log of process %u on %s.\n", line,
			live.what.pid, live.what.hostname);
	fclose(f);
	df_log_raw(text, len);
	free(text);
}

static int same_hang(const struct told *a, const struct told *b)
{
	/* The line may say how long a rank has been silent; calls that differ have no facts. */
	return a->verdict == b->verdict && a->facts == b->facts &&
	       (a->facts || !strncmp(a->line, b->line, LINE_BYTES));
}

/*
 * The verdict is known. r: NULL if another process has judged. missing: as in print(). A process
 * that still ran when it learned of the hang may stop later because of it, and asks again: one
 * report is enough.
 */
static void take(const struct told *t, const struct df_check_result *r, const char *missing)
{
	int again = same_hang(t, &live.what);

	live.what = *t;
	live.what.line[LINE_BYTES - 1] = live.what.hostname[63] = 0;
	df_text_clean(live.what.line, strlen(live.what.line));
	df_text_clean(live.what.hostname, strlen(live.what.hostname));
	live.progress = df_record_progress();
	live.suspected = live.asked = 0;
	__atomic_store_n(&live.told, 1, __ATOMIC_RELAXED);
	if (again)
		return;
	if (r || df_record_speaks_here(t->host))
		print(r, missing, live.what.line);
	else
		df_info("%s", live.what.line);
	df_trace_told(live.what.verdict, live.what.line);
	df_metrics_soon();
}

/*
 * A verdict arrives. Its sender may have died before it reached all processes. So a process that
 * was going to judge because others suspected a hang sends the verdict again.
 */
static void hear(uint32_t kind, const void *data, size_t bytes)
{
	uint64_t suspected = live.suspected;

	if (kind != DF_MSG_TOLD || bytes != sizeof(struct told) || df_record_told())
		return;
	take(data, NULL, "");
	if (suspected)
		df_tied_tell(data, bytes);
}

static void tell(const struct df_check_result *r)
{
	struct told t = {.host = df_rt.self.host,
			 .pid = df_rt.self.pid,
			 .verdict = (uint32_t)df_check_verdict(r),
			 .facts = df_check_facts(r)};
	char missing[1280] = "";

	memcpy(t.hostname, df_rt.self.hostname, sizeof(t.hostname));
	snprintf(t.line, sizeof(t.line), "%s", df_check_line(r));
	/* The rendezvous knows who has joined. Ranks that are not connected have no trace here. */
	if (t.verdict == DF_V_INIT && df_record_missing(missing, sizeof(missing)))
		snprintf(t.line, sizeof(t.line), "%.*s", (int)strcspn(missing, "\n"), missing);
	df_text_clean(t.line, strlen(t.line));
	/* Announce first, because another process may be about to report. */
	df_tied_tell(&t, sizeof(t));
	take(&t, r, missing);
}

/*
 * As the leader: looks twice, and reports what both looks show. A process that lives but does not
 * answer may only be slow: it is asked again until the time-out has passed by SILENT_MS.
 */
static void judge(uint64_t ms)
{
	uint64_t timeout = (uint64_t)df_env()->timeout_ms, began = df_now_ns(), took, until;
	int late = ms >= timeout;
	uint64_t stale = late ? DF_MIN(ms * DF_NS_PER_MS, DF_CHECK_STALE_NS) : NEVER_STALE_NS;
	uint64_t aged = ms >= DF_PART_PATIENCE * timeout ? timeout * DF_NS_PER_MS : 0;
	struct look a, b = {0};
	unsigned left;

	df_info("mode trace: looks at the job, where nothing has moved for %llu ms",
		(unsigned long long)ms);
	look(stale, aged, &a);
	took = df_now_ns() - began;
	if (is_hang(&a, late)) {
		for (until = df_now_ns() + BETWEEN_NS;
		     df_now_ns() < until && !df_record_stopping();) {
			df_sleep_ns(20 * DF_NS_PER_MS);
			df_record_poll(&left);
			df_snapshot_serve();
		}
		look(stale, aged, &b);
	}
	ms += (df_now_ns() - began) / DF_NS_PER_MS;
	live.not_before = df_now_ns() + PAUSE * took;
	if (df_record_told() || df_record_stopping()) {
		; /* another process was faster, or nothing matters any more */
	} else if (late && is_hang(&b, late) && b.silent && ms < timeout + SILENT_MS) {
		live.suspected = ms + 1;
	} else if (is_hang(&b, late) && (same(&a, &b, late) || ms >= DF_PART_PATIENCE * timeout)) {
		tell(b.r);
	} else if ((is_hang(&b, late) || a.silent || b.silent) && live.repeats < REPEATS) {
		/* Something has moved in between, or was not seen: look again. */
		live.repeats++;
		live.suspected = DF_MAX(live.suspected, ms + 1);
		live.not_before = df_now_ns() + took +
				  (late ? timeout * DF_NS_PER_MS / DF_PART_PATIENCE : AGAIN_NS);
	}
	df_check_result_free(a.r);
	df_check_result_free(b.r);
}

void df_record_suspect(uint64_t ms)
{
	uint64_t leader = df_tied_leader();

	if (leader == df_rt.self.proc) {
		live.repeats = 0;
		live.suspected = DF_MAX(live.suspected, ms + 1);
		return;
	}
	df_snapshot_suspect(leader, (uint32_t)DF_MIN(ms, UINT32_MAX));
	live.asked = live.asked ?: df_now_ns();
}

void df_record_serve(int unfinished, uint64_t quiet)
{
	uint64_t now = df_now_ns(), lost = __atomic_load_n(&live.lost_at, __ATOMIC_RELAXED), ms;

	__atomic_store_n(&live.stalled_ms,
			 unfinished ? (uint32_t)DF_MIN(quiet / DF_NS_PER_MS, UINT32_MAX) : 0,
			 __ATOMIC_RELAXED);
	df_snapshot_serve();
	ms = df_snapshot_suspected();
	if (ms)
		live.repeats = 0;
	live.suspected = DF_MAX(live.suspected, ms);
	if (df_record_told() && df_record_progress() == live.progress) {
		if (live.suspected)
			df_tied_tell(&live.what, sizeof(live.what));
		live.suspected = 0;
		return;
	}
	/* A hang after progress is another hang. */
	__atomic_store_n(&live.told, 0, __ATOMIC_RELAXED);
	if (!unfinished || quiet < BETWEEN_NS)
		live.asked = 0;
	/* Another process has taken over, or the leader works. */
	if (live.asked)
		live.asked = DF_MAX(live.asked, df_snapshot_answered());
	if (lost && now - lost >= LOST_NS) {
		__atomic_store_n(&live.lost_at, 0, __ATOMIC_RELAXED);
		if (unfinished)
			df_record_suspect(DF_MAX(quiet / DF_NS_PER_MS, 1));
	}
	/* The leader has not answered: it may be stopped, or cut off. */
	if (live.asked && now > live.asked + TAKEOVER_NS * df_tied_before()) {
		live.asked = 0;
		live.suspected = DF_MAX(live.suspected, quiet / DF_NS_PER_MS + 1);
	}
	if (live.suspected && now >= live.not_before) {
		ms = live.suspected - 1;
		live.suspected = 0;
		judge(ms);
	}
}

const char *df_record_verdict(unsigned *verdict)
{
	*verdict = live.what.verdict;
	return live.what.line;
}

static uint32_t stalled_ms(void)
{
	return __atomic_load_n(&live.stalled_ms, __ATOMIC_RELAXED);
}

static int meanwhile(void)
{
	unsigned left;

	df_record_poll(&left);
	return df_record_stopping();
}

void df_record_live(void)
{
	static const struct df_snapshot_owner owner = {df_record_progress, stalled_ms, hear,
						       df_record_wake, meanwhile};

	df_snapshot_owned_by(&owner);
}
