/*
 * NCCL on the CPU (libdfnccl.so): functions that it does not implement return NCCL's error, with a
 * text that names them; functions that need no implementation return a result. A simulated group
 * executes nothing.
 */
#include <dlfcn.h>
#include "interpose/nccl/nccl_api.h"
#include "tests/hostcuda/programs/cu.h"

static struct df_nccl_real nccl;

#define OK(call) CHECK((call) == ncclSuccess)

/* Checks that the call was refused with a text that names it. */
static void refused(ncclResult_t got, const char *name)
{
	const char *text = nccl.ncclGetLastError(NULL);

	if (got == ncclInvalidUsage && strstr(text, name))
		return;
	printf("%s gave %d, \"%s\"\n", name, got, text);
	exit(1);
}

int main(void)
{
	ncclSimInfo_t sim = {.size = sizeof(sim), .magic = DF_NCCL_SIM_MAGIC, .estimatedTime = 5};
	ncclUniqueId id;
	ncclWindow_t win = (ncclWindow_t)&id;
	ncclComm_t comm, more = NULL, grown[2];
	int rank;
	uint64_t bytes = 1;
	float *from, *to;
	void *p;

#define NCCL_FN(since, kind, result, name, params, args)                                           \
	CHECK(*(void **)&nccl.name = dlsym(RTLD_DEFAULT, #name));
#include "interpose/nccl/nccl_api.def"
#undef NCCL_FN
	OK(nccl.ncclGetUniqueId(&id));
	OK(nccl.ncclCommInitRank(&comm, 1, id, 0));

	OK(nccl.ncclCommSuspend(comm, 0));
	OK(nccl.ncclCommResume(comm));
	OK(nccl.ncclCommMemStats(comm, ncclStatGpuMemSuspended, &bytes));
	CHECK(bytes == 0);
	CU(cudaMalloc((void **)&from, 4096));
	CU(cudaMalloc((void **)&to, 4096));
	OK(nccl.ncclCommWindowRegister(comm, from, 4096, &win, 0));
	CHECK(!win);
	OK(nccl.ncclCommWindowDeregister(comm, win));
	CHECK(nccl.ncclCommSuspend(NULL, 0) == ncclInvalidArgument);

	CU(cudaMemset(from, 1, 4096));
	CU(cudaMemset(to, 2, 4096));
	OK(nccl.ncclGroupStart());
	OK(nccl.ncclAllReduce(from, to, 1024, ncclFloat32, ncclSum, comm, NULL));
	OK(nccl.ncclGroupSimulateEnd(&sim));
	CU(cudaDeviceSynchronize());
	CHECK(sim.estimatedTime == -1.0f && ((char *)to)[0] == 2);
	OK(nccl.ncclAllReduce(from, to, 1024, ncclFloat32, ncclSum, comm, NULL));
	CU(cudaDeviceSynchronize());
	CHECK(((char *)to)[0] == 1);
	CHECK(nccl.ncclGroupSimulateEnd(NULL) == ncclInvalidUsage);

	CHECK(nccl.ncclCommGrow(comm, 1, NULL, -1, &more, NULL) == ncclInvalidArgument);
	OK(nccl.ncclCommGetUniqueId(comm, &id));
	OK(nccl.ncclGroupStart());
	OK(nccl.ncclCommGrow(comm, 2, &id, -1, &grown[0], NULL));
	CU(cudaSetDevice(1));
	OK(nccl.ncclCommGrow(NULL, 2, &id, 1, &grown[1], NULL));
	OK(nccl.ncclGroupEnd());
	CU(cudaSetDevice(0));
	for (int i = 0; i < 2; i++) {
		OK(nccl.ncclCommUserRank(grown[i], &rank));
		CHECK(rank == i);
	}
	OK(nccl.ncclCommDestroy(grown[0]));
	OK(nccl.ncclCommDestroy(grown[1]));

	refused(nccl.ncclPutSignal(from, 1, ncclFloat32, 0, win, 0, 0, 0, 0, comm, NULL),
		"ncclPutSignal");
	refused(nccl.ncclSignal(0, 0, 0, 0, comm, NULL), "ncclSignal");
	refused(nccl.ncclWaitSignal(0, NULL, comm, NULL), "ncclWaitSignal");
	refused(nccl.ncclWinGetUserPtr(comm, win, &p), "ncclWinGetUserPtr");
	refused(nccl.ncclGetPeerDevicePointer(win, 0, 0, &p), "ncclGetPeerDevicePointer");
	refused(nccl.ncclDevCommDestroy(comm, NULL), "ncclDevCommDestroy");
	refused(nccl.ncclDevCommCreate(comm, NULL, NULL), "does not support symmetric memory");
	CHECK(nccl.ncclTeamWorld(comm).nRanks == 0);

	OK(nccl.ncclCommDestroy(comm));
	return 0;
}
