/*
 * Looks for communicators that stand still while the process goes on (part.h).
 */
#include "kernels/abi.h"
#include "runtime/base/err.h"
#include "runtime/base/list.h"
#include "runtime/base/lock.h"
#include "runtime/comm/comm.h"
#include "runtime/comm/process.h"
#include "runtime/watch/part.h"
#include "runtime/watch/tied.h"

#define MAX_TURNS 16

/* The longest wait of the last check, and how long it must be for another look. */
static uint64_t longest, least;

/* Returns since when the communicator stands still with unfinished operations; 0: it does not. */
static uint64_t stands_since(struct df_comm *comm, uint64_t now)
{
	uint64_t retired = __atomic_load_n(&comm->retired, __ATOMIC_RELAXED);
	struct df_watch_comm *w = &comm->watch;

	if (!df_comm_pending(comm) || df_comm_state(comm) != DF_COMM_READY) {
		w->part_since = 0;
	} else if (!w->part_since || w->part_retired != retired) {
		w->part_since = now;
		w->part_retired = retired;
	}
	return w->part_since;
}

int df_part_due(uint64_t now, uint64_t timeout, uint64_t told_ns)
{
	struct df_comm *comm;
	uint64_t due = DF_PART_PATIENCE * timeout;

	longest = 0;
	df_mutex_lock(&df_rt.lock);
	df_list_each(comm, &df_rt.comms, node)
	{
		uint64_t since = stands_since(comm, now);

		if (since && told_ns < since)
			longest = DF_MAX(longest, now - since);
	}
	df_mutex_unlock(&df_rt.lock);
	if (longest < due) {
		least = 0;
		return 0;
	}
	due += DF_MIN(df_tied_before(), MAX_TURNS) * timeout / 2;
	return longest >= DF_MAX(due, least);
}

void df_part_looked(void)
{
	least = 2 * longest;
}
