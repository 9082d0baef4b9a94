/*
 * Faults that tests request with DFSHIM_HOST_FAULT. "kill:rank=R,op=N": the process ends at once
 * when rank R of a communicator submits its N-th operation there. "graphs": no graph can be
 * launched, for want of memory, after its collectives have been submitted.
 *
 * Threads: the setting is read once, at the start, and later only read.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "interpose/hostcuda/fault.h"
#include "runtime/base/env.h"
#include "runtime/base/log.h"

static int at_rank;
static uint64_t at_op;
static int graphs;

static void maybe_kill(int rank, uint64_t nr)
{
	if (rank == at_rank && nr == at_op)
		kill(getpid(), SIGKILL);
}

df_hfault_fn *df_hfault(void)
{
	const char *f = df_env()->host_fault;
	unsigned long op;
	int end = 0;

	if (!f)
		return NULL;
	graphs = !strcmp(f, "graphs");
	if (graphs)
		return NULL;
	if (sscanf(f, "kill:rank=%d,op=%lu%n", &at_rank, &op, &end) != 2 || f[end]) {
		df_warn("DFSHIM_HOST_FAULT=%s: cannot be used; known are kill:rank=R,op=N and "
			"graphs",
			f);
		return NULL;
	}
	at_op = op;
	return maybe_kill;
}

int df_hfault_graphs(void)
{
	return graphs ? -ENOMEM : 0;
}
