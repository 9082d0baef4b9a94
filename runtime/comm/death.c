/*
 * The death of a process, as its communicators here take it: at once, or where it has ended in order (its own
 * operations are over then) only when that turns out to matter (watchdog.c). And the loss of a device.
 */
#include <errno.h>
#include <pthread.h>
#include "runtime/base/list.h"
#include "runtime/base/lock.h"
#include "runtime/base/log.h"
#include "runtime/base/time.h"
#include "runtime/comm/comm.h"
#include "runtime/comm/process.h"
#include "runtime/ctl/ctl.h"
#include "runtime/daemon/dev.h"
#include "runtime/dfshim.h"
#include "runtime/watch/watchdog.h"
#include "trace/record/writer.h"

/* Open, and not over: a death among its members is its business. */
static int is_alive(const struct df_comm *comm)
{
	uint32_t state = __atomic_load_n(&comm->state, __ATOMIC_RELAXED);

	return df_comm_is_open(comm) && (state == DF_COMM_READY || state == DF_COMM_REVOKED);
}

int df_comm_rank_of(const struct df_comm *comm, uint64_t proc)
{
	int i;

	for (i = 0; i < comm->nranks && comm->members[i].proc != proc; i++)
		;
	return i < comm->nranks ? i : -1;
}

/* Records it for every communicator with that process. 1: of one that it is the first to leave, our rank is the lowest left. */
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

void df_comm_death(uint64_t proc, int in_order)
{
	struct df_comm *comm;
	int i, again;

	if (note_death(proc, in_order))
		df_watchdog_tell_death(in_order);
	/* df_comm_end() sets the state, so that every turn of the outer loop ends another one. */
	do {
		again = 0;
		df_mutex_lock(&df_rt.lock);
		df_list_each(comm, &df_rt.comms, node)
		{
			if (!is_alive(comm))
				continue;
			i = df_comm_rank_of(comm, proc);
			if (i < 0)
				continue;
			if (in_order) {
				__atomic_store_n(&comm->watch.peer_left, df_now_ns(),
						 __ATOMIC_RELAXED);
				continue;
			}
			df_warn("rank %d (%s, pid %u) has died: its communicators end with "
				"ncclRemoteError",
				i, comm->members[i].hostname, comm->members[i].pid);
			again = 1;
			break;
		}
		if (again)
			df_comm_end(comm, -ECONNRESET, 2);
		df_mutex_unlock(&df_rt.lock);
	} while (again);
	/* What waits for one that has left is looked at soon, not at the next look (peers_that_left()). */
	if (in_order)
		df_watchdog_wake();
}

static void *end_all_on(void *arg)
{
	struct df_dev *dev = arg;
	struct df_comm *comm, *found;

	do {
		found = NULL;
		df_mutex_lock(&df_rt.lock);
		df_list_each(comm, &df_rt.comms, node)
		{
			if (comm->dev == dev &&
			    __atomic_load_n(&comm->state, __ATOMIC_RELAXED) != DF_COMM_ABORTED)
				found = comm;
		}
		/* Under the lock, so that it can't be destroyed meanwhile; as df_comm_death(). */
		if (found)
			df_comm_end(found, -EIO, 1);
		df_mutex_unlock(&df_rt.lock);
	} while (found);
	return NULL;
}

void df_comm_device_lost(int device)
{
	pthread_t t;

	/* On a thread of its own, because ending waits for the machine's, which has called us. */
	if (pthread_create(&t, NULL, end_all_on, &df_rt.devs[device]) == 0)
		pthread_detach(t);
}
