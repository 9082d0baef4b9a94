/* The functions of the fake NCCL that have to do something. */
#include <stdlib.h>
#include <string.h>
#include "interpose/nccl_types.h"

void fake_nccl_called(const char *name);

struct fake_comm {
	uint64_t magic;
	int nranks, rank;
};

static int nr_ids;

ncclResult_t ncclGetUniqueId(ncclUniqueId *id);

ncclResult_t pncclGetVersion(int *version)
{
	fake_nccl_called("ncclGetVersion");
	*version = 22809;
	return ncclSuccess;
}

ncclResult_t pncclGetUniqueId(ncclUniqueId *id)
{
	fake_nccl_called("ncclGetUniqueId");
	memset(id, 0x11, sizeof(*id));
	nr_ids++;
	memcpy(id->internal + 8, &nr_ids, sizeof(nr_ids));
	return ncclSuccess;
}

static ncclResult_t make(ncclComm_t *comm, int nranks, int rank)
{
	struct fake_comm *c = calloc(1, 4096);

	c->magic = DF_NCCL_COMM_MAGIC;
	c->nranks = nranks;
	c->rank = rank;
	*comm = (ncclComm_t)c;
	return ncclSuccess;
}

ncclResult_t pncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank)
{
	(void)id;
	fake_nccl_called("ncclCommInitRank");
	return make(comm, nranks, rank);
}

ncclResult_t pncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank,
				     ncclConfig_t *config)
{
	(void)id;
	(void)config;
	fake_nccl_called("ncclCommInitRankConfig");
	return make(comm, nranks, rank);
}

/* As the real one, it calls another function of its own by the exported name. */
ncclResult_t pncclCommInitAll(ncclComm_t *comms, int ndev, const int *devlist)
{
	ncclUniqueId id;
	int i;

	(void)devlist;
	fake_nccl_called("ncclCommInitAll");
	ncclGetUniqueId(&id);
	for (i = 0; i < ndev; i++)
		pncclCommInitRank(&comms[i], ndev, id, i);
	return ncclSuccess;
}

ncclResult_t pncclCommCount(const ncclComm_t comm, int *count)
{
	*count = ((struct fake_comm *)comm)->nranks;
	return ncclSuccess;
}

ncclResult_t pncclCommUserRank(const ncclComm_t comm, int *rank)
{
	*rank = ((struct fake_comm *)comm)->rank;
	return ncclSuccess;
}

const char *pncclGetErrorString(ncclResult_t result)
{
	(void)result;
	return "fake";
}
