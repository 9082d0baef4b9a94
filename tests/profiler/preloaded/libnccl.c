/*
 * A libnccl for applications (tests/interpose/dl/fake_nccl.c has the other functions). It reports
 * the events of an AllReduce to the profiler plugin. An AllReduce of 666 elements never ends,
 * because rank 1 cannot send.
 */
#include <stdlib.h>
#include "interpose/nccl/nccl_types.h"
#include "tests/profiler/nccl/nccl.h"

struct of_rank {
	struct fake_comm *c;
	int nranks, rank;
};

#define EXPORT(name, params, args)                                                                 \
	ncclResult_t p##name params;                                                               \
	ncclResult_t name params                                                                   \
	{                                                                                          \
		return p##name args;                                                               \
	}                                                                                          \
	ncclResult_t p##name params

EXPORT(ncclGetVersion, (int *version), (version))
{
	*version = 22809;
	return ncclSuccess;
}

EXPORT(ncclCommInitRank, (ncclComm_t * comm, int nranks, ncclUniqueId id, int rank),
       (comm, nranks, id, rank))
{
	struct of_rank *r = calloc(1, sizeof(*r));

	(void)id;
	if (!fake_load(getenv("NCCL_PROFILER_PLUGIN"), 5))
		return ncclSystemError;
	*r = (struct of_rank){fake_comm(0xabc, "preloaded", nranks, rank), nranks, rank};
	*comm = (ncclComm_t)r;
	return ncclSuccess;
}

EXPORT(ncclCommCount, (const ncclComm_t comm, int *count), (comm, count))
{
	*count = ((struct of_rank *)comm)->nranks;
	return ncclSuccess;
}

EXPORT(ncclCommUserRank, (const ncclComm_t comm, int *rank), (comm, rank))
{
	*rank = ((struct of_rank *)comm)->rank;
	return ncclSuccess;
}

EXPORT(ncclAllReduce,
       (const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
	ncclComm_t comm, cudaStream_t stream),
       (send, recv, count, type, op, comm, stream))
{
	const struct of_rank *r = (const struct of_rank *)comm;

	(void)send;
	(void)recv;
	(void)type;
	(void)op;
	(void)stream;
	fake_coll(r->c, "AllReduce", count, 0, 1,
		  count != 666	 ? NO_STALL
		  : r->rank == 1 ? STALL_SEND_NET
				 : STALL_RECV_NET,
		  0);
	return ncclSuccess;
}

EXPORT(ncclCommDestroy, (ncclComm_t comm), (comm))
{
	fake_destroy(((struct of_rank *)comm)->c);
	return ncclSuccess;
}
