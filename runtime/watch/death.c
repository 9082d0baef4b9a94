/*
 * Handles the death of a process for its communicators here: they end at once. If the process
 * exited normally, its own operations are finished, and the communicators end only if that matters
 * (watchdog.c).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/base/err.h"
#include "runtime/base/exit_status.h"
#include "runtime/base/list.h"
#include "runtime/base/lock.h"
#include "runtime/base/log.h"
#include "runtime/base/thread.h"
#include "runtime/base/time.h"
#include "runtime/comm/comm.h"
#include "runtime/comm/process.h"
#include "runtime/ctl/ctl.h"
#include "runtime/devs.h"
#include "runtime/dfshim.h"
#include "runtime/transport/transport.h"
#include "runtime/watch/death.h"
#include "runtime/watch/ending.h"
#include "runtime/watch/snapshot.h"
#include "runtime/watch/watchdog.h"
#include "trace/record/trace_hash.h"
#include "trace/record/writer.h"
#include "runtime/base/number.h"

/* Whether the communicator is open and has not ended, so that the death of a member concerns it. */
static int is_alive(const struct df_comm *comm)
{
	uint32_t state = __atomic_load_n(&comm->state, __ATOMIC_RELAXED);

	return df_comm_is_open(comm) && (state == DF_COMM_READY || state == DF_COMM_REVOKED);
}

/*
 * Records the death for every communicator with that process. Returns 1 if in one of them no member
 * had left before, and our rank is the lowest that remains.
 */
static int note_death(uint64_t proc, int in_order)
{
	struct df_comm *comm;
	int i, lowest, ret = 0;

	df_mutex_lock(&df_rt.lock);
	df_list_each(comm, &df_rt.comms, node)
	{
		if (!is_alive(comm))
			continue;
		for (i = 0, lowest = -1; i < comm->nranks; i++) {
			if (comm->members[i].proc == proc)
				df_trace(DF_REC_PEER_DEAD, comm->dev->index, comm->trace,
					 comm->rank, (uint64_t)i, comm->members[i].host,
					 comm->members[i].pid, (uint64_t)in_order, 0);
			else if (lowest < 0 && !df_ctl_is_dead(comm->members[i].proc))
				lowest = i;
		}
		ret |= lowest == comm->rank &&
		       !__atomic_load_n(&comm->watch.peer_left, __ATOMIC_RELAXED);
	}
	df_mutex_unlock(&df_rt.lock);
	return ret;
}

/*
 * Returns the largest living communicator with the process, or NULL: users know the process by its
 * rank there.
 */
static struct df_comm *largest_with(uint64_t proc)
{
	struct df_comm *comm, *found = NULL;

	df_list_each(comm, &df_rt.comms, node)
	{
		if (is_alive(comm) && df_comm_rank_of(comm, proc) >= 0 &&
		    (!found || comm->nranks > found->nranks))
			found = comm;
	}
	return found;
}

static int is_with(struct df_comm *comm, void *proc)
{
	if (!is_alive(comm) || df_comm_rank_of(comm, *(const uint64_t *)proc) < 0)
		return 0;
	if (df_comm_pending(comm))
		df_comm_unheard(comm, DF_EXIT_CRASH);
	return 1;
}

/* Ends the communicators with that process. Logs one line for all of them. */
static void end_with(uint64_t proc, const char *how)
{
	struct df_comm *comm;
	int i;

	df_mutex_lock(&df_rt.lock);
	comm = largest_with(proc);
	if (comm) {
		i = df_comm_rank_of(comm, proc);
		df_warn("rank %d (%s, pid %u) %s: its communicators end with ncclRemoteError", i,
			comm->members[i].hostname, comm->members[i].pid, how);
	}
	df_mutex_unlock(&df_rt.lock);
	(void)df_comm_end_all(is_with, &proc, -ECONNRESET, 2);
}

/*
 * Notes that a process has exited normally. Its communicators end only if that matters
 * (watchdog.c).
 */
static void note_left(uint64_t proc)
{
	struct df_comm *comm;

	df_mutex_lock(&df_rt.lock);
	df_list_each(comm, &df_rt.comms, node)
	{
		if (is_alive(comm) && df_comm_rank_of(comm, proc) >= 0)
			__atomic_store_n(&comm->watch.peer_left, df_now_ns(), __ATOMIC_RELAXED);
	}
	df_mutex_unlock(&df_rt.lock);
	/*
	 * A wait for a process that has exited is examined soon, not at the watchdog's next look
	 * (peers_that_left()).
	 */
	df_snapshot_wake();
}

void df_death(uint64_t proc, int in_order)
{
	if (df_ending_exits())
		return;
	if (note_death(proc, in_order))
		df_watchdog_tell_death(in_order);
	if (in_order)
		note_left(proc);
	else
		end_with(proc, "has died");
}

/* ---- the network ----------------------------------------------------------------------------- */

/* Returns the name of a link, for the verdict and the trace. */
static const char *link_text(const struct df_net_event *e, char *text, size_t bytes)
{
	if (e->what >= DF_NET_HELD)
		return e->why;
	snprintf(text, bytes, "from device %d (%s; %s) to device %d there (%s) over %s", e->device,
		 e->from, e->port, e->peer_device, e->to, e->over);
	return text;
}

/* A peer that can no longer be reached. A thread of its own handles it. */
struct gone {
	uint64_t proc, ns, attempts;
	char link[256], why[256];
};

/* Prints the verdict at once, as the checker would, without the records of the other side. */
static void tell_gone(const struct gone *e)
{
	DF_DECIMAL_POINT;
	char text[1280], who[160] = "";
	struct df_comm *comm;
	uint64_t issued = 0;
	int i, len;

	df_mutex_lock(&df_rt.lock);
	df_list_each(comm, &df_rt.comms, node)
	{
		i = is_alive(comm) ? df_comm_rank_of(comm, e->proc) : -1;
		if (i < 0)
			continue;
		issued += comm->issued - comm->retired;
		snprintf(who, sizeof(who), "rank %d (%s, pid %u)", i, comm->members[i].hostname,
			 comm->members[i].pid);
	}
	df_mutex_unlock(&df_rt.lock);
	/* No communicator with that process is left, for example at the end of a job. */
	if (!who[0])
		return;
	len = snprintf(text, sizeof(text),
		       "NET_STALL: nothing has been heard of %s for %.1f s over the network\n\n"
		       "The link %s broke (%s). dfshim has tried %llu times to restore it. %llu "
		       "operations on its communicators were unfinished here.\n"
		       "Fix: check the machine, its interface, and what filters between these two "
		       "addresses; a longer DFSHIM_NET_TIMEOUT_MS waits longer.\n"
		       "Confidence: likely. The process may still be alive and cut off.\n",
		       who, (double)e->ns / 1e9, e->link, e->why, (unsigned long long)e->attempts,
		       (unsigned long long)issued);
	df_log_raw(text, (size_t)DF_MIN(len, (int)sizeof(text) - 1));
}

/* Traces what has happened to the connection to another process. */
static void note_link(const struct df_net_event *e, const char *link)
{
	df_trace_text(link);
	df_trace(DF_REC_NET, e->device, 0, -1,
		 (uint64_t)e->what | (uint64_t)(-e->error & 0xffff) << 8 |
			 DF_MIN(e->ns / DF_NS_PER_MS, (uint64_t)UINT32_MAX) << 32,
		 e->host,
		 (uint64_t)e->pid | (uint64_t)(uint16_t)e->peer_device << 32 |
			 DF_MIN(e->attempts, (uint64_t)UINT16_MAX) << 48,
		 df_hash64(link, strlen(link)), 0);
}

static void note_unmapped(uint64_t proc)
{
	struct df_net_event e = {
		.what = DF_NET_UNMAPPED, .error = -EMFILE, .why = strerror(EMFILE)};
	const struct df_comm *comm;

	df_mutex_lock(&df_rt.lock);
	comm = largest_with(proc);
	if (comm) {
		const struct df_member *m = &comm->members[df_comm_rank_of(comm, proc)];

		e.device = comm->dev->index;
		e.host = m->host;
		e.pid = m->pid;
	}
	df_mutex_unlock(&df_rt.lock);
	if (comm)
		note_link(&e, e.why);
}

static void *end_unmapped(void *proc)
{
	note_unmapped(*(uint64_t *)proc);
	/* The message makes that process stop waiting for operations of this one. */
	df_ctl_send(NULL, *(uint64_t *)proc, DF_MSG_UNMAPPED, NULL, 0);
	end_with(*(uint64_t *)proc, "cannot be reached (this process has no file descriptor left "
				    "to map its memory, see `ulimit -n`)");
	free(proc);
	return NULL;
}

static void *end_gone(void *arg)
{
	const struct gone *e = arg;

	tell_gone(e);
	end_with(e->proc, "cannot be reached any more");
	free(arg);
	return NULL;
}

/*
 * Runs `end` on a thread of its own, because the caller's thread must continue, as in
 * df_comm_device_lost(). `end` frees its argument. Does nothing if the argument is NULL, for lack
 * of memory.
 */
static void end_soon(void *arg, void *(*end)(void *arg))
{
	if (arg && df_thread_start("dfshim-end", 0, end, arg))
		free(arg);
}

void df_death_no_file(uint64_t proc)
{
	uint64_t *arg = malloc(sizeof(*arg));

	if (arg)
		*arg = proc;
	end_soon(arg, end_unmapped);
}

void df_death_unmapped(uint64_t proc)
{
	end_with(proc, "cannot map the memory of this process (it has no file descriptor left, see "
		       "`ulimit -n` there)");
}

void df_death_net_event(const struct df_net_event *e)
{
	char buf[256];
	const char *link = link_text(e, buf, sizeof(buf));
	struct gone *gone;

	note_link(e, link);
	if (e->what != DF_NET_GONE)
		return;
	/*
	 * The caller is in a pass over the endpoint. A thread that ends a communicator waits for
	 * the end of that pass (df_tl_withdrawn()), so this thread cannot end one.
	 */
	gone = malloc(sizeof(*gone));
	if (gone) {
		*gone = (struct gone){.proc = e->proc, .ns = e->ns, .attempts = e->attempts};
		snprintf(gone->link, sizeof(gone->link), "%s", link);
		snprintf(gone->why, sizeof(gone->why), "%s", e->why);
	}
	end_soon(gone, end_gone);
}
