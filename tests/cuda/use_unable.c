/*
 * One of two processes; RANK is its number. With the argument "group" the second process has two
 * ranks. Driver and NCCL are the tests' libraries. The id is passed in the file $ID_FILE, or with
 * NCCL_COMM_ID each process makes it itself. DEVICE: the process's device. TURNS: number of
 * communicators, one after the other. Prints the result of each call.
 *
 * With "crossed" each process uses two communicators on one stream, the second process in the
 * opposite order. With "straight" both use the same order.
 */
#define _GNU_SOURCE
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "interpose/nccl/nccl_types.h"
#include "tests/cuda/daemon_kernel.h"

#define NCCL_FN(since, kind, result, name, params, args) result name params;
#include "interpose/nccl/nccl_api.def"
#undef NCCL_FN

/* The other process may run the self-test first. */
static int read_id(ncclUniqueId *id, const char *path)
{
	FILE *f;
	size_t nr;

	while (!(f = fopen(path, "r")))
		usleep(10000);
	nr = fread(id, sizeof(*id), 1, f);
	return fclose(f) || nr != 1;
}

static int write_id(const ncclUniqueId *id, const char *path)
{
	char part[4096];
	FILE *f;

	snprintf(part, sizeof(part), "%s.part", path);
	f = fopen(part, "w");
	if (!f || fwrite(id, sizeof(*id), 1, f) != 1 || fclose(f))
		return -1;
	return rename(part, path);
}

static int get_id(ncclUniqueId *id, int rank, const char *path)
{
	if (getenv("NCCL_COMM_ID"))
		return ncclGetUniqueId(id) != ncclSuccess;
	if (rank)
		return read_id(id, path);
	return ncclGetUniqueId(id) != ncclSuccess || write_id(id, path);
}

static int turn(int rank, int group)
{
	int nranks = group ? 3 : 2, mine = group && rank ? 2 : 1, i, n[2] = {-1, -1},
	    us[2] = {-1, -1};
	ncclResult_t res = ncclSuccess, end;
	static float buf[2][64];
	ncclComm_t comm[2];
	ncclUniqueId id;

	if (get_id(&id, rank, getenv("ID_FILE")))
		return 1;
	ncclGroupStart();
	for (i = 0; i < mine && res == ncclSuccess; i++)
		res = ncclCommInitRank(&comm[i], nranks, id, rank + i);
	end = ncclGroupEnd();
	res = res == ncclSuccess ? end : res;
	printf("init %d\n", res);
	if (res != ncclSuccess) {
		printf("%s\n", ncclGetLastError(NULL));
		return 0;
	}
	ncclGroupStart();
	for (i = 0; i < mine; i++)
		res = ncclAllReduce(buf[i], buf[i], 64, ncclFloat32, ncclSum, comm[i], NULL);
	printf("allreduce %d %d\n", res, ncclGroupEnd());
	for (i = 0; i < mine; i++) {
		ncclCommCount(comm[i], &n[i]);
		ncclCommUserRank(comm[i], &us[i]);
		printf("rank %d of %d, destroy %d\n", us[i], n[i], ncclCommDestroy(comm[i]));
	}
	return 0;
}

/* Uses two communicators; `turned`: the second one first. Returns 0 on success. */
static int two_orders(int rank, int turned)
{
	static float buf[2][64];
	ncclComm_t comm[2];
	ncclUniqueId id;
	char path[4096];
	CUstream s;
	int i, k;

	if (cuStreamCreate(&s, CU_STREAM_NON_BLOCKING))
		return 1;
	for (i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%s.%d", getenv("ID_FILE"), i);
		if (get_id(&id, rank, path) || ncclCommInitRank(&comm[i], 2, id, rank))
			return 1;
	}
	for (i = 0; i < 2; i++) {
		k = turned ? !i : i;
		if (ncclAllReduce(buf[k], buf[k], 64, ncclFloat32, ncclSum, comm[k],
				  (cudaStream_t)s))
			return 1;
	}
	return cuStreamSynchronize(s) != 0;
}

int main(int argc, char **argv)
{
	int turns = getenv("TURNS") ? atoi(getenv("TURNS")) : 1, ret = 0;
	CUcontext ctx;

	fake_cuda()->kernel("dfk_daemon", daemon_kernel);
	if (cuInit(0) ||
	    cuDevicePrimaryCtxRetain(&ctx, getenv("DEVICE") ? atoi(getenv("DEVICE")) : 0) ||
	    cuCtxSetCurrent(ctx))
		return 1;
	if (argc > 1 && !strcmp(argv[1], "straight"))
		return two_orders(atoi(getenv("RANK")), 0);
	if (argc > 1 && !strcmp(argv[1], "crossed"))
		return two_orders(atoi(getenv("RANK")), atoi(getenv("RANK")));
	while (turns-- > 0 && !ret)
		ret = turn(atoi(getenv("RANK")), argc > 1 && !strcmp(argv[1], "group"));
	return ret;
}
