/*
 * Steps of the interpreter (script.c) that make, divide, ask and end communicators: a part of script_steps.h.
 */
#ifndef DEADLOCK_SCRIPT_COMM_H
#define DEADLOCK_SCRIPT_COMM_H

#include "script_steps.h"

static int poll_comm(ncclComm_t comm, int for_ever)
{
	unsigned turns = 0;
	ncclResult_t state;

	do {
		if (failed())
			return -1;
		nap(&turns);
		NCCL(ncclCommGetAsyncError(comm, &state));
	} while (state == ncclInProgress || (for_ever && state == ncclSuccess));
	NCCL(state);
	client_tick();
	return 0;
}

static int comm_init(struct rank *me, int c, int blocking)
{
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	ncclComm_t comm = NULL;
	ncclResult_t res;

	config.blocking = blocking;
	res = ncclCommInitRankConfig(&comm, me->s->comms[c].nr, ids[c],
				     sc_comm_rank(&me->s->comms[c], me->rank), &config);
	if (res != ncclInProgress || blocking)
		NCCL(res);
	__atomic_store_n(&me->comms[c], comm, __ATOMIC_RELEASE);
	return 0;
}

/* The ranks that are not in the new one are left out. */
static int shrink(struct rank *me, const struct sc_step *st, ncclComm_t comm)
{
	const struct sc_comm *old = &me->s->comms[st->comm];
	int gone[SC_RANKS], nr = 0;

	for (int i = 0; i < old->nr; i++)
		if (sc_comm_rank(&me->s->comms[st->comm2], old->ranks[i]) < 0)
			gone[nr++] = i;
	STARTED(ncclCommShrink(comm, gone, nr, &me->comms[st->comm2], NULL, NCCL_SHRINK_DEFAULT));
	return 0;
}

static int comm_step(struct rank *me, const struct sc_step *st)
{
	ncclComm_t comm = me->comms[st->comm];

	switch (st->kind) {
	case SC_INIT:
	case SC_NINIT:
		return comm_init(me, st->comm, st->kind == SC_INIT);
	case SC_APOLL:
	case SC_AWATCH:
		return poll_comm(comm, st->kind == SC_AWATCH);
	case SC_SPLIT:
		STARTED(ncclCommSplit(comm,
				      sc_comm_rank(&me->s->comms[st->comm2], me->rank) < 0
					      ? NCCL_SPLIT_NOCOLOR
					      : 0,
				      me->rank, &me->comms[st->comm2], NULL));
		return 0;
	case SC_SHRINK:
		return shrink(me, st, comm);
	case SC_FIN:
		STARTED(ncclCommFinalize(comm));
		return 0;
	default:
		__atomic_store_n(&me->comms[st->comm], NULL, __ATOMIC_RELEASE);
		NCCL(ncclCommDestroy(comm));
		return 0;
	}
}

#endif
