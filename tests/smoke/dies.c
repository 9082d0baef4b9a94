/*
 * Preloaded before libdfnccl.so. Kills the process with RANK=$DIES when NCCL creates a
 * communicator.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* as ncclUniqueId */
struct id {
	char bytes[128];
};

static int make(void *comm, int nranks, struct id id, int rank, void *config)
{
	int (*next)(void *, int, struct id, int, void *);

	if (getenv("DIES") && getenv("RANK") && !strcmp(getenv("RANK"), getenv("DIES")))
		raise(SIGKILL);
	*(void **)&next = dlsym(RTLD_NEXT, "pncclCommInitRankConfig");
	return next(comm, nranks, id, rank, config);
}

int ncclCommInitRankConfig(void *comm, int nranks, struct id id, int rank, void *config)
{
	return make(comm, nranks, id, rank, config);
}

int pncclCommInitRankConfig(void *comm, int nranks, struct id id, int rank, void *config)
{
	return make(comm, nranks, id, rank, config);
}
