/*
 * A plain program of the driver and NCCL: a kernel that waits for a peer that never arrives, as a
 * server's own all-reduce does, then an operation of NCCL. One rank; driver and NCCL are those of
 * the tests. "front": on one stream, "event": the operation's stream waits for the kernel's by an
 * event, "alone": without the operation, "passed": the kernel's peer was there.
 */
#define _GNU_SOURCE
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <stdio.h>
#include <string.h>
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

static const char code[] =
	"//\n.version 8.0\n.target sm_80\n.address_size 64\n"
	".visible .entry _Z8rms_normPf()\n{\nret;\n}\n"
	/* Until the word is not 0. */
	".visible .entry _ZN4vllm26cross_device_reduce_1stageEPj(.param .u64 p_word)\n{\n"
	".reg .b64 %rd<3>;\n.reg .pred %p<2>;\n"
	"ld.param.u64 %rd1, [p_word];\n"
	"L: ld.acquire.sys.u64 %rd2, [%rd1];\nsetp.eq.s64 %p1, %rd2, 0;\n@%p1 bra L;\nret;\n}\n";

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "front";
	CUfunction norm, reduce;
	CUstream s, own;
	CUdeviceptr p;
	ncclUniqueId id;
	CUcontext ctx;
	CUmodule module;
	CUevent event;
	ncclComm_t comm;
	void *args[] = {&p};
	int i;

	MUST(cuInit(0));
	MUST(cuDevicePrimaryCtxRetain(&ctx, 0));
	MUST(cuCtxSetCurrent(ctx));
	MUST(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	MUST(cuStreamCreate(&own, CU_STREAM_NON_BLOCKING));
	MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	MUST(cuMemAlloc_v2(&p, 4096));
	MUST(cuMemsetD8_v2(p, !strcmp(how, "passed"), 4096));
	/* The names are known although the handles are older than the communicator. */
	MUST(cuModuleLoadData(&module, code));
	MUST(cuModuleGetFunction(&norm, module, "_Z8rms_normPf"));
	MUST(cuModuleGetFunction(&reduce, module, "_ZN4vllm26cross_device_reduce_1stageEPj"));
	MUST(ncclGetUniqueId(&id));
	MUST(ncclCommInitRank(&comm, 1, id, 0));
	MUST(ncclAllReduce((void *)p, (void *)p, 1, ncclFloat32, ncclSum, comm, (cudaStream_t)s));
	for (i = 0; i < 3 && strcmp(how, "front"); i++)
		MUST(cuLaunchKernel(norm, 1, 1, 1, 1, 1, 1, 0, s, NULL, NULL));
	MUST(cuLaunchKernel(reduce, 1, 1, 1, 1, 1, 1, 0, s, args, NULL));
	if (!strcmp(how, "event")) {
		MUST(cuEventRecord(event, s));
		MUST(cuStreamWaitEvent(own, event, 0));
		/* This one is not in front of the operation. */
		MUST(cuMemsetD8Async(p, 1, 4, s));
	}
	if (strcmp(how, "alone"))
		MUST(ncclAllReduce((void *)p, (void *)p, 1, ncclFloat32, ncclSum, comm,
				   (cudaStream_t)(!strcmp(how, "event") ? own : s)));
	MUST(cuStreamSynchronize(s));
	MUST(ncclCommDestroy(comm));
	return 0;
}
