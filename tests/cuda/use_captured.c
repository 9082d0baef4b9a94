/*
 * A plain program of the driver and NCCL with one rank. It captures two operations and launches the
 * graph three times. Driver and NCCL are the tests' libraries. Prints the number of launched
 * operations.
 */
#define _GNU_SOURCE
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <stdio.h>
#include "interpose/nccl/nccl_types.h"

#define NCCL_FN(since, kind, result, name, params, args) result name params;
#include "interpose/nccl/nccl_api.def"
#undef NCCL_FN

#define MUST(call)                                                                                 \
	do {                                                                                       \
		if ((int)(call) != 0) {                                                            \
			fprintf(stderr, "%s failed\n", #call);                                     \
			return 1;                                                                  \
		}                                                                                  \
	} while (0)

int main(void)
{
	CUgraphExec exec;
	CUdeviceptr p;
	ncclUniqueId id;
	CUcontext ctx;
	CUgraph graph;
	ncclComm_t comm;
	CUstream s;
	int i;

	MUST(cuInit(0));
	MUST(cuDevicePrimaryCtxRetain(&ctx, 0));
	MUST(cuCtxSetCurrent(ctx));
	MUST(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	MUST(cuMemAlloc_v2(&p, 4096));
	MUST(ncclGetUniqueId(&id));
	MUST(ncclCommInitRank(&comm, 1, id, 0));
	MUST(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	for (i = 0; i < 2; i++)
		MUST(ncclAllReduce((void *)p, (void *)p, 100, ncclFloat32, ncclSum, comm,
				   (cudaStream_t)s));
	MUST(cuStreamEndCapture(s, &graph));
	MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
	for (i = 0; i < 3; i++)
		MUST(cuGraphLaunch(exec, s));
	MUST(cuStreamSynchronize(s));
	MUST(cuGraphExecDestroy(exec));
	MUST(cuGraphDestroy(graph));
	MUST(ncclCommDestroy(comm));
	printf("%d\n", 2 * 3);
	return 0;
}
