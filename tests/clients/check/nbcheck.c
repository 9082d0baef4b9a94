/*
 * Non-blocking communicators (ncclConfig_t.blocking = 0). No call waits, and polling
 * ncclCommGetAsyncError() ends ncclInProgress: init, collectives, groups, split, finalize; abort
 * while the others never reach the rendezvous.
 */
#include "../client.h"

/* A call on a non-blocking communicator may return ncclInProgress. */
#define STARTED(call)                                                                              \
	do {                                                                                       \
		ncclResult_t s_ = (call);                                                          \
		if (s_ != ncclSuccess && s_ != ncclInProgress)                                     \
			NCCL(s_);                                                                  \
	} while (0)

static int run(struct client_rank *me)
{
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	ncclComm_t child = NULL;
	ncclResult_t state;
	cudaStream_t s;
	float *buf, in, out[2];
	int n, i;

	CUDA(cudaSetDevice(me->device));
	CUDA(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
	CUDA(cudaMalloc((void **)&buf, 4096));
	config.blocking = 0;

	/* The rendezvous never completes: init returns, and abort ends it. */
	STARTED(ncclCommInitRankConfig(&me->comms[1], me->nr_ranks + 1, client_ids[1], me->rank,
				       &config));
	NCCL(ncclCommGetAsyncError(me->comms[1], &state));
	/* Another process may have given up already. */
	EXPECT(state == ncclInProgress || (client_job.nr_procs > 1 && state == ncclRemoteError),
	       "init without one rank is in state %d", (int)state);
	if (client_barrier_wait(&client_ranks_barrier))
		return -1;
	NCCL(ncclCommAbort(me->comms[1]));
	me->comms[1] = NULL;

	STARTED(ncclCommInitRankConfig(&me->comms[0], me->nr_ranks, client_ids[0], me->rank,
				       &config));
	if (client_settle(me->comms[0]))
		return -1;
	NCCL(ncclCommCount(me->comms[0], &n));
	EXPECT(n == me->nr_ranks, "%d ranks", n);
	in = (float)(me->rank + 1);
	CUDA(client_upload(buf, &in, sizeof(in)));
	for (i = 0; i < 20; i++) {
		STARTED(ncclGroupStart());
		STARTED(ncclAllReduce(buf, buf + 1, 1, ncclFloat, ncclSum, me->comms[0], s));
		STARTED(ncclAllReduce(buf, buf + 2, 1, ncclFloat, ncclMax, me->comms[0], s));
		STARTED(ncclGroupEnd());
		if (client_settle(me->comms[0]) || client_wait(s, me->comms, 1))
			return -1;
		CUDA(cudaMemcpy(out, buf + 1, sizeof(out), cudaMemcpyDeviceToHost));
		EXPECT(out[0] == (float)(n * (n + 1) / 2) && out[1] == (float)n, "%g %g", out[0],
		       out[1]);
	}
	/* The state of the parent shows when the child exists. */
	STARTED(ncclCommSplit(me->comms[0], 0, me->rank, &child, &config));
	if (client_settle(me->comms[0]))
		return -1;
	EXPECT(child, "no child");
	if (client_settle(child))
		return -1;
	me->comms[2] = child;
	STARTED(ncclAllReduce(buf, buf + 1, 1, ncclFloat, ncclSum, child, s));
	if (client_settle(child) || client_wait(s, &child, 1))
		return -1;
	STARTED(ncclCommFinalize(child));
	if (client_settle(child))
		return -1;
	NCCL(ncclCommDestroy(child));
	me->comms[2] = NULL;
	STARTED(ncclCommFinalize(me->comms[0]));
	if (client_settle(me->comms[0]))
		return -1;
	NCCL(ncclCommDestroy(me->comms[0]));
	me->comms[0] = NULL;
	CUDA(cudaFree(buf));
	CUDA(cudaStreamDestroy(s));
	return 0;
}

int main(int argc, char **argv)
{
	return client_main(argc, argv, 4, 1, "Checks non-blocking communicators.", run);
}
