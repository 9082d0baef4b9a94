/*
 * Communicators made from communicators: ncclCommSplit with colours and keys, without a colour,
 * shrink, revoke, finalize, destroy, and abort while an operation waits for a rank that never
 * arrives.
 */
#include "../client.h"

/*
 * Computes the sum of `value` over the members of the communicator. Returns 0 and sets *out on
 * success.
 */
static int sum(ncclComm_t comm, cudaStream_t s, float value, float *out)
{
	float *buf;

	CUDA(cudaMalloc((void **)&buf, 2 * sizeof(float)));
	CUDA(client_upload(buf, &value, sizeof(value)));
	NCCL(ncclAllReduce(buf, buf + 1, 1, ncclFloat, ncclSum, comm, s));
	if (client_wait(s, &comm, 1))
		return -1;
	CUDA(cudaMemcpy(out, buf + 1, sizeof(*out), cudaMemcpyDeviceToHost));
	CUDA(cudaFree(buf));
	return 0;
}

static int place(ncclComm_t comm, int nr, int rank)
{
	int n, r;

	NCCL(ncclCommCount(comm, &n));
	NCCL(ncclCommUserRank(comm, &r));
	EXPECT(n == nr && r == rank, "rank %d of %d, not %d of %d", r, n, rank, nr);
	return 0;
}

static int split(struct client_rank *me, cudaStream_t s)
{
	ncclComm_t child = NULL;
	int nr = me->nr_ranks, parity = me->rank % 2, members = (nr + !parity) / 2, r;
	float want = 0, got;

	/* Two halves, in the reverse order of ranks. */
	NCCL(ncclCommSplit(me->comms[0], parity, -me->rank, &child, NULL));
	me->comms[1] = child;
	if (place(child, members, members - 1 - me->rank / 2))
		return -1;
	for (r = parity; r < nr; r += 2)
		want += (float)(r + 1);
	if (sum(child, s, (float)(me->rank + 1), &got))
		return -1;
	EXPECT(got == want, "sum of a half is %g, not %g", got, want);

	/* A child of the child; some ranks get none. */
	NCCL(ncclCommSplit(child, me->rank < 2 ? 0 : NCCL_SPLIT_NOCOLOR, 0, &me->comms[2], NULL));
	EXPECT(!me->comms[2] == (me->rank >= 2), "no colour gives %p", (void *)me->comms[2]);
	if (me->comms[2]) {
		if (place(me->comms[2], 1, 0) || sum(me->comms[2], s, 5, &got))
			return -1;
		EXPECT(got == 5, "sum of one is %g", got);
		NCCL(ncclCommDestroy(me->comms[2]));
		me->comms[2] = NULL;
	}
	NCCL(ncclCommDestroy(child));
	me->comms[1] = NULL;

	/* With equal keys the parent's order stays. */
	NCCL(ncclCommSplit(me->comms[0], 7, 0, &me->comms[1], NULL));
	if (place(me->comms[1], nr, me->rank) || sum(me->comms[1], s, 1, &got))
		return -1;
	EXPECT(got == (float)nr, "sum of all is %g", got);
	NCCL(ncclCommFinalize(me->comms[1]));
	NCCL(ncclCommDestroy(me->comms[1]));
	me->comms[1] = NULL;
	return 0;
}

/* Leaves the last rank out. */
static int shrink(struct client_rank *me, cudaStream_t s)
{
	int gone[1] = {me->nr_ranks - 1};
	float got;

	if (me->rank == gone[0])
		return 0;
	NCCL(ncclCommShrink(me->comms[0], gone, 1, &me->comms[1], NULL, NCCL_SHRINK_DEFAULT));
	if (place(me->comms[1], me->nr_ranks - 1, me->rank) || sum(me->comms[1], s, 2, &got))
		return -1;
	EXPECT(got == 2 * (float)(me->nr_ranks - 1), "sum of the shrunk is %g", got);
	NCCL(ncclCommDestroy(me->comms[1]));
	me->comms[1] = NULL;
	return 0;
}

/* All ranks but one wait in an AllReduce. The abort must end their streams' wait. */
static int abort_waiting(struct client_rank *me, cudaStream_t s)
{
	struct timespec pause = {0, 20000000};
	ncclResult_t state;
	float *buf;

	CUDA(cudaMalloc((void **)&buf, 1 << 20));
	NCCL(ncclCommInitRank(&me->comms[3], me->nr_ranks, client_ids[3], me->rank));
	if (me->rank) {
		NCCL(ncclAllReduce(buf, buf, 1 << 18, ncclFloat, ncclSum, me->comms[3], s));
		nanosleep(&pause, NULL);
		EXPECT(cudaStreamQuery(s) == cudaErrorNotReady,
		       "an all-reduce without rank 0 is done");
		NCCL(ncclCommGetAsyncError(me->comms[3], &state));
	} else {
		nanosleep(&pause, NULL);
	}
	NCCL(ncclCommAbort(me->comms[3]));
	me->comms[3] = NULL;
	if (client_wait(s, NULL, 0))
		return -1;
	CUDA(cudaFree(buf));
	return 0;
}

/* After a revoke, waiting operations end, new ones are refused, and a shrunk communicator works. */
static int revoke_and_shrink(struct client_rank *me, cudaStream_t s)
{
	int gone[1] = {me->nr_ranks - 1};
	ncclResult_t ret;
	float *buf, got;

	CUDA(cudaMalloc((void **)&buf, 4096));
	NCCL(ncclCommInitRank(&me->comms[4], me->nr_ranks, client_ids[4], me->rank));
	NCCL(ncclCommRevoke(me->comms[4], NCCL_REVOKE_DEFAULT));
	ret = ncclAllReduce(buf, buf, 1, ncclFloat, ncclSum, me->comms[4], s);
	EXPECT(ret == ncclInvalidUsage, "after revoke AllReduce gives %d", (int)ret);
	ret = ncclCommRevoke(me->comms[4], NCCL_REVOKE_DEFAULT);
	EXPECT(ret == ncclInvalidArgument, "a second revoke gives %d", (int)ret);
	ret = ncclCommFinalize(me->comms[4]);
	EXPECT(ret == ncclInvalidArgument, "finalize after revoke gives %d", (int)ret);
	if (me->rank != gone[0]) {
		NCCL(ncclCommShrink(me->comms[4], gone, 1, &me->comms[5], NULL,
				    NCCL_SHRINK_DEFAULT));
		if (sum(me->comms[5], s, 3, &got))
			return -1;
		EXPECT(got == 3 * (float)(me->nr_ranks - 1), "sum after revoke and shrink is %g",
		       got);
		NCCL(ncclCommDestroy(me->comms[5]));
		me->comms[5] = NULL;
	}
	NCCL(ncclCommDestroy(me->comms[4]));
	me->comms[4] = NULL;
	CUDA(cudaFree(buf));
	return 0;
}

static int run(struct client_rank *me)
{
	cudaStream_t s;

	CUDA(cudaSetDevice(me->device));
	CUDA(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
	NCCL(ncclCommInitRank(&me->comms[0], me->nr_ranks, client_ids[0], me->rank));
	if (split(me, s) || shrink(me, s) || abort_waiting(me, s) || revoke_and_shrink(me, s))
		return -1;
	NCCL(ncclCommDestroy(me->comms[0]));
	me->comms[0] = NULL;
	CUDA(cudaStreamDestroy(s));
	return 0;
}

int main(int argc, char **argv)
{
	return client_main(argc, argv, 4, 2,
			   "Checks ncclCommSplit, Shrink, Finalize, Destroy, Abort and Revoke.",
			   run);
}
