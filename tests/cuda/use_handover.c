/*
 * A program of NCCL's device API. It creates communicators, uses them as usual, and then asks one
 * for a device communicator. Two ranks, each with a thread and a device; driver and NCCL are the
 * tests' libraries. Prints one line for each fact; the test compares them with the calls that the
 * test NCCL received.
 */
#define _GNU_SOURCE
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "interpose/nccl/nccl_types.h"
#include "tests/cuda/daemon_kernel.h"

#define NCCL_FN(since, kind, result, name, params, args) result name params;
#include "interpose/nccl/nccl_api.def"
#undef NCCL_FN

#define RANKS 2
#define COUNT 3000
#define COMMS 4

static ncclUniqueId id[COMMS];
static ncclComm_t comms[COMMS][RANKS];
static pthread_barrier_t both;
static const char *windows;

/* Prints one line with the values of both ranks. */
static void fact(int rank, const char *what, int value)
{
	static int values[RANKS];

	values[rank] = value;
	pthread_barrier_wait(&both);
	if (!rank)
		printf("%s %d %d\n", what, values[0], values[1]);
	pthread_barrier_wait(&both);
}

/*
 * Returns 1 if dfshim computed the sum, 0 if the receive buffer was not written (the test NCCL), -1
 * on an error.
 */
static int added(int rank, ncclComm_t comm, float *in, float *out, CUstream s)
{
	int i, sum = 1;

	for (i = 0; i < COUNT; i++) {
		in[i] = (float)(rank + 1);
		out[i] = -1;
	}
	if (ncclAllReduce(in, out, COUNT, ncclFloat32, ncclSum, comm, (cudaStream_t)s) !=
	    ncclSuccess)
		return -1;
	cuStreamSynchronize(s);
	for (i = 0; i < COUNT; i++)
		sum &= out[i] == 3;
	return sum;
}

static void *run(void *arg)
{
	int rank = (int)(intptr_t)arg, i, n = 0;
	ncclComm_t *c[COMMS];
	CUcontext ctx;
	CUdeviceptr in, out;
	CUstream s;
	ncclWindow_t win = NULL;
	float *a, *b;

	for (i = 0; i < COMMS; i++)
		c[i] = &comms[i][rank];
	cuDevicePrimaryCtxRetain(&ctx, rank);
	cuCtxSetCurrent(ctx);
	cuStreamCreate(&s, CU_STREAM_NON_BLOCKING);
	cuMemAlloc_v2(&in, COUNT * sizeof(float) + 8192);
	cuMemAlloc_v2(&out, COUNT * sizeof(float) + 8192);
	a = (float *)((in + 4095) & ~(CUdeviceptr)4095);
	b = (float *)out;
	for (i = 0; i < COMMS; i++)
		fact(rank, "init", ncclCommInitRank(c[i], RANKS, id[i], rank));
	for (i = 0; i < 3; i++)
		fact(rank, "ours before", added(rank, *c[i], a, b, s));
	fact(rank, "foreign id", added(rank, *c[3], a, b, s));

	fact(rank, "device communicator", ncclDevCommCreate(*c[0], NULL, NULL));
	fact(rank, "ours after", added(rank, *c[0], a, b, s));
	fact(rank, "count", (ncclCommCount(*c[0], &n), n));
	fact(rank, "another", added(rank, *c[1], a, b, s));
	/* A group with one collective on each communicator; then a group with an invalid call. */
	ncclGroupStart();
	ncclAllReduce(a, b, COUNT, ncclFloat32, ncclSum, *c[0], (cudaStream_t)s);
	ncclAllReduce(a, b, COUNT, ncclFloat32, ncclSum, *c[1], (cudaStream_t)s);
	fact(rank, "group", ncclGroupEnd());
	cuStreamSynchronize(s);
	ncclGroupStart();
	ncclAllReduce(a, b, COUNT, ncclFloat32, ncclSum, *c[0], (cudaStream_t)s);
	ncclAllReduce(a, b, COUNT, (ncclDataType_t)99, ncclSum, *c[1], (cudaStream_t)s);
	fact(rank, "group with an error", ncclGroupEnd());
	fact(rank, "another still", added(rank, *c[1], a, b, s));

	/*
	 * Only one rank has a window: all ranks are refused, and the communicator stays dfshim's.
	 */
	if (windows || rank)
		fact(rank, "window",
		     ncclCommWindowRegister(*c[2], a, 4096, &win, NCCL_WIN_COLL_SYMMETRIC));
	else
		fact(rank, "window", 0);
	fact(rank, "device communicator, windows", ncclDevCommCreate(*c[2], NULL, NULL));
	fact(rank, "ours with windows", added(rank, *c[2], a, b, s));

	/* One thread calls for both ranks. */
	if (!rank) {
		ncclGroupStart();
		ncclDevCommCreate(comms[1][0], NULL, NULL);
		ncclDevCommCreate(comms[1][1], NULL, NULL);
	}
	fact(rank, "grouped", rank ? 0 : (int)ncclGroupEnd());
	fact(rank, "ours grouped", added(rank, *c[1], a, b, s));

	fact(rank, "destroy", ncclCommDestroy(*c[0]));
	fact(rank, "destroy again", ncclCommDestroy(*c[0]));
	fact(rank, "abort", ncclCommAbort(*c[1]));
	fact(rank, "abort again", ncclCommAbort(*c[1]));
	fact(rank, "destroy ours", ncclCommDestroy(*c[2]));
	fact(rank, "destroy foreign", ncclCommDestroy(*c[3]));
	return NULL;
}

int main(void)
{
	pthread_t t[RANKS];
	intptr_t i;

	windows = getenv("DFSHIM_HANDOVER");
	fake_cuda()->kernel("dfk_daemon", daemon_kernel);
	for (i = 0; i < 3; i++)
		if (ncclGetUniqueId(&id[i]) != ncclSuccess)
			return 1;
	/* An id as a rank on plain NCCL makes it. */
	memset(&id[3], 0x22, sizeof(id[3]));
	pthread_barrier_init(&both, NULL, RANKS);
	for (i = 0; i < RANKS; i++)
		pthread_create(&t[i], NULL, run, (void *)i);
	for (i = 0; i < RANKS; i++)
		pthread_join(t[i], NULL);
	return 0;
}
