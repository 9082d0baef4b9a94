#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/base/env.h"
#include "runtime/base/exit_status.h"
#include "runtime/base/list.h"
#include "runtime/base/lock.h"
#include "runtime/base/time.h"
#include "runtime/comm/comm.h"
#include "runtime/comm/process.h"
#include "runtime/ctl/ctl.h"
#include "runtime/dfshim.h"
#include "runtime/executor.h"
#include "runtime/watch/ending.h"
#include "runtime/watch/metrics.h"
#include "runtime/watch/tied.h"

/*
 * Time between the message to the other processes and the exit, so that their control threads can
 * forward the message.
 */
#define EXIT_NS (200 * DF_NS_PER_MS)

static uint32_t exits;

static int wants_exit(int at_once)
{
	return df_env()->timeout_action == DF_TIMEOUT_EXIT ||
	       (at_once && df_env()->timeout_action != DF_TIMEOUT_ABORT);
}

void df_ending_arrived(const void *data, size_t bytes)
{
	const struct df_ending *e = df_ending_read(data, bytes);

	/*
	 * RELAXED: a reader that misses it reports a death that is a consequence. Nothing else
	 * depends on it.
	 */
	if (e && wants_exit(e->at_once != 0))
		__atomic_store_n(&exits, 1, __ATOMIC_RELAXED);
}

int df_ending_exits(void)
{
	return (int)__atomic_load_n(&exits, __ATOMIC_RELAXED);
}

/*
 * Exits if the setting or `at_once` asks for it. The communicators are left as they are: if a
 * thread were released with an error, it would begin to end the program in its own way while others
 * still wait, and its messages would hide the verdict.
 */
static void exit_if_wanted(int status, int at_once)
{
	if (!wants_exit(at_once))
		return;
	/* RELAXED for the reason given in df_ending_arrived(). */
	__atomic_store_n(&exits, 1, __ATOMIC_RELAXED);
	df_sleep_ns(EXIT_NS);
	df_metrics_stop();
	df_exit_now(status);
}

/* When communicators ended here because of a report; 0: never. For the watchdog's thread only. */
static uint64_t ended_at;

void df_ending_done(int nr)
{
	if (nr)
		ended_at = df_now_ns();
}

int df_ending_explains(uint64_t since)
{
	struct df_comm *comm;
	int again = 0;

	if (!ended_at || since > ended_at + (uint64_t)df_env()->timeout_ms * DF_NS_PER_MS)
		return 0;
	df_mutex_lock(&df_rt.lock);
	df_list_each(comm, &df_rt.comms, node) again |= comm->join.since > ended_at;
	df_mutex_unlock(&df_rt.lock);
	return !again;
}

static int by_value(const void *pa, const void *pb)
{
	uint64_t a = *(const uint64_t *)pa, b = *(const uint64_t *)pb;

	return a < b ? -1 : a > b;
}

/*
 * Returns the sorted names of the communicators with unfinished operations, or NULL if memory is
 * short. The caller holds df_rt.lock.
 */
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

/*
 * Sends the decision to the other processes: all other ranks of these communicators end, too.
 * Without a communicator (threads hang in calls), the message lets the others know that what they
 * see next is a consequence.
 */
static void tell(const uint64_t *procs, uint32_t nr_procs, const uint64_t *names, size_t nr,
		 int status, int at_once, const char *line)
{
	size_t bytes = sizeof(struct df_ending) + nr * sizeof(*names);
	struct df_ending *e = calloc(1, bytes);

	if (!e)
		return;
	e->nr = nr;
	e->status = (uint64_t)status;
	e->at_once = (uint64_t)at_once;
	snprintf(e->line, sizeof(e->line), "%s", line);
	if (nr)
		memcpy(e->names, names, nr * sizeof(*names));
	for (uint32_t i = 0; i < nr_procs; i++)
		df_ctl_send(NULL, procs[i], DF_MSG_END, e, bytes);
	free(e);
}

static int is_named(const struct df_comm *comm, const uint64_t *names, size_t nr)
{
	return names && bsearch(&comm->hash, names, nr, sizeof(*names), by_value);
}

struct names {
	uint64_t *v;
	size_t nr;
	uint64_t seen;
	int status; /* with which this process exits instead of 0 */
	int failed; /* even if the program has seen the error */
};

/* Not after the end, because the program may exit as soon as its waits return. */
static void note_status(struct df_comm *comm, const struct names *n)
{
	if (n->failed)
		df_exit_status_failed(n->status);
	else if (df_comm_pending(comm))
		df_comm_unheard(comm, n->status);
}

static int is_stuck(struct df_comm *comm, void *arg)
{
	const struct names *n = arg;
	uint32_t state = __atomic_load_n(&comm->state, __ATOMIC_RELAXED);

	if (comm->join.since > n->seen)
		return 0;
	if (state == DF_COMM_READY)
		note_status(comm, n);
	return state == DF_COMM_JOINING ||
	       (state == DF_COMM_READY && (df_comm_pending(comm) || is_named(comm, n->v, n->nr) ||
					   __atomic_load_n(&df_rt.blocked, __ATOMIC_RELAXED)));
}

static int ended_elsewhere(struct df_comm *comm, void *arg)
{
	const struct names *n = arg;

	if (__atomic_load_n(&comm->state, __ATOMIC_RELAXED) != DF_COMM_READY ||
	    !is_named(comm, n->v, n->nr))
		return 0;
	note_status(comm, n);
	return 1;
}

void df_ending_decide(uint64_t seen, int status, const char *line)
{
	struct names n = {.seen = seen, .status = status};
	uint32_t nr_procs;
	uint64_t *procs = df_tied_processes(&nr_procs);

	df_mutex_lock(&df_rt.lock);
	n.v = stuck_names(&n.nr);
	df_mutex_unlock(&df_rt.lock);
	tell(procs, nr_procs, n.v, n.v ? n.nr : 0, status, 0, line);
	exit_if_wanted(status, 0);
	df_comm_ends_for(line);
	df_ending_done(df_comm_end_all(is_stuck, &n, -ETIMEDOUT, 1));
	free(n.v);
	free(procs);
}

const struct df_ending *df_ending_read(const void *data, size_t bytes)
{
	const struct df_ending *e = data;

	if (bytes < sizeof(*e) || e->nr > (bytes - sizeof(*e)) / sizeof(*e->names) ||
	    bytes != sizeof(*e) + e->nr * sizeof(*e->names) || !memchr(e->line, 0, sizeof(e->line)))
		return NULL;
	return e;
}

void df_ending_obey(const struct df_ending *e)
{
	struct names n = {
		.nr = (size_t)e->nr, .status = (int)(e->status & 0xff), .failed = e->at_once != 0};

	exit_if_wanted((int)(e->status & 0xff), e->at_once != 0);
	n.v = malloc((n.nr + 1) * sizeof(*n.v));
	if (!n.v)
		return;
	memcpy(n.v, e->names, n.nr * sizeof(*n.v));
	qsort(n.v, n.nr, sizeof(*n.v), by_value);
	if (n.nr)
		df_comm_ends_for(e->line);
	df_ending_done(df_comm_end_all(ended_elsewhere, &n, -ETIMEDOUT, 1));
	free(n.v);
}

void df_ending_mismatch(uint64_t name, const char *line)
{
	struct names n = {.v = &name, .nr = 1, .status = DF_EXIT_MISMATCH, .failed = 1};
	struct df_procs p = {0};

	/* This process need not have a rank of that communicator. */
	df_tied_known(&p);
	tell(p.v, p.nr, &name, 1, DF_EXIT_MISMATCH, 1, line);
	exit_if_wanted(DF_EXIT_MISMATCH, 1);
	df_comm_ends_for(line);
	df_ending_done(df_comm_end_all(ended_elsewhere, &n, -ETIMEDOUT, 1));
	free(p.v);
}
