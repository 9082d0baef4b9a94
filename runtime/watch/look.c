/*
 * The watchdog's judgement on what all processes know. For the watchdog's thread only.
 */
#include <stdio.h>
#include <string.h>
#include "kernels/abi.h"
#include "runtime/base/clean_text.h"
#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/list.h"
#include "runtime/base/lock.h"
#include "runtime/base/log.h"
#include "runtime/base/time.h"
#include "runtime/comm/comm.h"
#include "runtime/comm/process.h"
#include "runtime/ctl/ctl.h"
#include "runtime/watch/look.h"
#include "runtime/watch/snapshot.h"
#include "trace/check.h"
#include "trace/silent.h"

/* Adds what a process that has exited has sent before: it has no trace any more. */
static void add_left(void *set, const void *words, size_t bytes)
{
	df_check_add_left(set, words, bytes / sizeof(struct df_left_row));
}

void df_look_add_left(struct df_check_set *set)
{
	df_ctl_each_words(add_left, set);
}

void df_look_add_silent(struct df_check_set *set, uint64_t comm, const struct df_member *m,
			int certain)
{
	struct df_check_silent s = {
		.comm = comm, .rank = m->rank, .pid = m->pid, .certain = certain};

	memcpy(s.host, m->hostname, sizeof(s.host));
	s.host[sizeof(s.host) - 1] = 0;
	df_text_clean(s.host, strlen(s.host));
	(void)df_check_add_silent(set, &s);
}

static void add_silent(struct df_check_set *set, uint64_t proc, int certain)
{
	struct df_comm *comm;

	df_mutex_lock(&df_rt.lock);
	df_list_each(comm, &df_rt.comms, node)
	{
		int r = df_comm_is_open(comm) ? df_comm_rank_of(comm, proc) : -1;

		if (r >= 0)
			df_look_add_silent(set, comm->hash, &comm->members[r], certain);
	}
	df_mutex_unlock(&df_rt.lock);
}

struct df_check_result *df_look(uint64_t stale, uint64_t aged, struct df_asked *asked)
{
	/* A caller with a shorter time-out than DF_CHECK_STALE_NS takes that time as suspicious. */
	struct df_check_opts opts = {
		.live = 1, .stale_ns = DF_MIN(stale, DF_CHECK_STALE_NS), .aged_ns = aged};
	struct df_snapshots g = {.answers = DF_LIST_INIT(g.answers)};
	struct df_check_set *set = df_check_set_new();
	struct df_check_result *r = NULL;
	struct df_snapshot *s;
	int certain;

	opts.now_ns = df_now_ns();
	*asked = (struct df_asked){.speaker = df_rt.self.proc};
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
				asked->heard += s->heard != 0;
				asked->mute = s->proc;
			}
			if (df_snapshot_is_silent(&g, s, &certain))
				add_silent(set, s->proc, certain);
			if (s->fresh &&
			    2 * (uint64_t)s->stalled_ms >= (uint64_t)df_env()->timeout_ms)
				asked->speaker = DF_MIN(asked->speaker, s->proc);
		}
		asked->others = g.nr_procs - 1;
		df_look_add_left(set);
		if (df_check_run(set, &opts, &r))
			r = NULL;
	}
	df_snapshot_done(&g);
	df_check_set_free(set);
	return r;
}

void df_look_tell_silent(const struct df_asked *asked)
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
			"report lacks its data",
			rank, pid, others);
}
