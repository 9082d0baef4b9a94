/*
 * Communicators that still wait for ranks. There are no operations to judge, and no way yet to ask
 * the other processes. But the rendezvous knows which ranks have joined, and sends that to all that
 * wait.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "kernels/abi.h"
#include "runtime/base/err.h"
#include "runtime/base/hash.h"
#include "runtime/base/list.h"
#include "runtime/base/lock.h"
#include "runtime/base/log.h"
#include "runtime/base/time.h"
#include "runtime/comm/comm.h"
#include "runtime/comm/joining.h"
#include "runtime/comm/process.h"
#include "runtime/ctl/ctl.h"
#include "runtime/base/number.h"

#define MISSING_MAX 64

void df_joining(struct df_comm *comm, uint64_t id, int nranks, int rank)
{
	df_mutex_lock(&df_rt.lock);
	comm->join.id = id;
	comm->join.since = df_now_ns();
	comm->join.nranks = nranks;
	comm->join.rank = rank;
	df_mutex_unlock(&df_rt.lock);
}

uint64_t df_joining_missing(void)
{
	int ranks[MISSING_MAX], nr;
	struct df_comm *comm;
	uint64_t sum = 0;

	df_mutex_lock(&df_rt.lock);
	df_list_each(comm, &df_rt.comms, node)
	{
		if (!comm->join.id)
			continue;
		nr = df_ctl_missing(comm->join.id, ranks, MISSING_MAX);
		if (nr > 0)
			sum += df_hash_u64(comm->join.id, (uint64_t)nr);
	}
	df_mutex_unlock(&df_rt.lock);
	return sum;
}

/*
 * Writes "1, 4-7": the ranks in the list, or, if invert is set, those that are not. Returns their
 * number.
 */
static int say_ranks(char *buf, size_t bytes, const int *ranks, int nr, int nranks, int invert)
{
	int r, first, i = 0, count = 0;
	size_t at = 0;

	for (r = 0; r < nranks;) {
		for (first = r; r < nranks; r++) {
			while (i < nr && ranks[i] < r)
				i++;
			if ((i < nr && ranks[i] == r) == invert)
				break;
		}
		if (r > first && at < bytes) {
			at += (size_t)snprintf(buf + at, bytes - at,
					       r > first + 1 ? "%s%d-%d" : "%s%d",
					       count ? ", " : "", first, r - 1);
			count += r - first;
		}
		r += r == first;
	}
	return count;
}

int df_joining_say(char *text, size_t size, const char *call, uint64_t id, int nranks,
		   const int *missing, int nr, uint64_t ms, const char *note)
{
	DF_DECIMAL_POINT;
	char gone[256] = "", there[256] = "", at[72];
	int absent = say_ranks(gone, sizeof(gone), missing, nr, nranks, 0);
	int here = say_ranks(there, sizeof(there), missing, nr, nranks, 1);

	df_ctl_rendezvous_at(id, at, sizeof(at));
	return snprintf(text, size,
			"INIT: rank%s %s of %d %s not called %s%s; rank%s %s %s waited for "
			"%.1f s\n\n"
			"Fix: let every member of the communicator call %s with the same id "
			"(hash %016llx).%s%s%s\n"
			"%sConfidence: proved, as the rendezvous knows which ranks have joined.\n",
			absent == 1 ? "" : "s", gone, nranks, absent == 1 ? "has" : "have", call,
			nr == MISSING_MAX ? " (and perhaps more)" : "", here == 1 ? "" : "s", there,
			here == 1 ? "has" : "have", (double)ms / 1000, call, (unsigned long long)id,
			at[0] ? " From other machines they connect to " : "", at,
			at[0] ? ": no firewall may drop that." : "", note);
}

int df_joining_explain(int anyhow, char *line, size_t size)
{
	int ranks[MISSING_MAX], nr = 0, lowest, i;
	char text[1280];
	struct df_comm *comm;
	uint64_t id = 0, ms = 0;
	int nranks = 0, rank = 0, grows = 0, len;

	df_mutex_lock(&df_rt.lock);
	df_list_each(comm, &df_rt.comms, node)
	{
		if (!comm->join.id || (id && comm->join.id != id))
			continue;
		if (!id)
			nr = df_ctl_missing(comm->join.id, ranks, MISSING_MAX);
		if (nr <= 0)
			continue;
		if (!id || comm->join.rank < rank)
			rank = comm->join.rank;
		id = comm->join.id;
		nranks = comm->join.nranks;
		grows = comm->config.grows;
		ms = DF_MAX(ms, (df_now_ns() - comm->join.since) / DF_NS_PER_MS);
	}
	df_mutex_unlock(&df_rt.lock);
	if (!id)
		return 0;
	for (lowest = 0, i = 0; i < nr && ranks[i] == lowest; i++)
		lowest++;
	if (rank != lowest && !anyhow)
		return -EAGAIN;
	len = df_joining_say(text, sizeof(text), grows ? "ncclCommGrow" : "ncclCommInitRank", id,
			     nranks, ranks, nr, ms, "");
	df_log_raw(text, (size_t)len);
	snprintf(line, size, "%.*s", (int)strcspn(text, "\n"), text);
	return 1;
}
