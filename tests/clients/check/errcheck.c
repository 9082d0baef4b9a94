/*
 * NCCL's argument errors: the code and, where NCCL has a text, a part of ncclGetLastError()'s. The
 * expected values are those of NCCL 2.28.
 */
#include "../client.h"

static __attribute__((noinline)) int contains(const char *text, const char *part)
{
	return text && strstr(text, part);
}

#define FAILS(call, code, text)                                                                    \
	do {                                                                                       \
		ncclResult_t r_ = (call);                                                          \
		const char *last_ = ncclGetLastError(NULL);                                        \
		EXPECT(r_ == (code), "%s gives %d, not %d", #call, (int)r_, (int)(code));          \
		EXPECT(contains(last_, text), "last error is '%.120s', not '%.80s'", last_, text); \
	} while (0)

static int without_comm(void)
{
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER, bad = NCCL_CONFIG_INITIALIZER;
	ncclUniqueId id;
	ncclComm_t comm = NULL, comms[2];
	int devices[2] = {0, 99999}, version = 0, n;

	FAILS(ncclGetVersion(NULL), ncclInvalidArgument, "");
	NCCL(ncclGetVersion(&version));
	EXPECT(version >= 20000, "version %d", version);
	FAILS(ncclGetUniqueId(NULL), ncclInvalidArgument, "");
	NCCL(ncclGetUniqueId(&id));
	FAILS(ncclCommInitRank(NULL, 1, id, 0), ncclInvalidArgument, "");
	FAILS(ncclCommInitRank(&comm, 0, id, 0), ncclInvalidArgument,
	      "improper usage of ncclCommInitRank: nId = 1, nranks=0");
	FAILS(ncclCommInitRank(&comm, 2, id, 2), ncclInvalidArgument,
	      "Invalid rank requested : 2/2");
	FAILS(ncclCommInitRank(&comm, 2, id, -1), ncclInvalidArgument,
	      "Invalid rank requested : -1/2");
	EXPECT(!comm, "a failed init leaves %p", (void *)comm);
	bad.magic = 1;
	FAILS(ncclCommInitRankConfig(&comm, 1, id, 0, &bad), ncclInvalidArgument,
	      "ncclConfig_t argument not initialized via NCCL_CONFIG_INITIALIZER");
	config.blocking = 7;
	FAILS(ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclInvalidArgument,
	      "Invalid config blocking attribute value 7");
	FAILS(ncclCommInitAll(NULL, 1, NULL), ncclInvalidArgument, "");
	FAILS(ncclCommInitAll(comms, -1, NULL), ncclInvalidArgument,
	      "Invalid device count requested : -1");
	FAILS(ncclCommInitAll(comms, 2, devices), ncclInvalidArgument, "Invalid device 99999");
	CUDA(cudaGetDeviceCount(&n));
	devices[1] = 0;
	FAILS(ncclCommInitAll(comms, 2, devices), ncclInvalidUsage, "");
	FAILS(ncclGroupEnd(), ncclInvalidUsage, "ncclGroupEnd: not in a group call.");
	FAILS(ncclAllReduce(NULL, NULL, 1, ncclFloat, ncclSum, NULL, NULL), ncclInvalidArgument,
	      "");
	NCCL(ncclCommDestroy(NULL));
	NCCL(ncclCommAbort(NULL));
	NCCL(ncclCommFinalize(NULL));
	NCCL(ncclMemFree(NULL));
	FAILS(ncclCommCount(NULL, &n), ncclInvalidArgument, "");
	return 0;
}

static int strings(void)
{
	static const struct {
		ncclResult_t code;
		const char *text;
	} rows[] = {
		{ncclSuccess, "no error"},
		{ncclUnhandledCudaError,
		 "unhandled cuda error (run with NCCL_DEBUG=INFO for details)"},
		{ncclSystemError, "unhandled system error (run with NCCL_DEBUG=INFO for details)"},
		{ncclInternalError,
		 "internal error - please report this issue to the NCCL developers"},
		{ncclInvalidArgument, "invalid argument (run with NCCL_DEBUG=WARN for details)"},
		{ncclInvalidUsage, "invalid usage (run with NCCL_DEBUG=WARN for details)"},
		{ncclRemoteError, "remote process exited or there was a network error"},
		{ncclInProgress, "NCCL operation in progress"},
		{(ncclResult_t)1000, "unknown result code"},
	};
	size_t i;

	for (i = 0; i < ARRAY_LEN(rows); i++)
		EXPECT(!strcmp(ncclGetErrorString(rows[i].code), rows[i].text), "%d: '%s'",
		       (int)rows[i].code, ncclGetErrorString(rows[i].code));
	return 0;
}

static int errors(struct client_rank *me, ncclComm_t c, cudaStream_t s, float *buf)
{
	ncclRedOp_t op, other;
	float in = 1;

	FAILS(ncclCommCount(c, NULL), ncclInvalidArgument, "");

	FAILS(ncclBroadcast(buf, buf, 1, ncclFloat, me->nr_ranks, c, s), ncclInvalidArgument,
	      "invalid root");
	FAILS(ncclReduce(buf, buf, 1, ncclFloat, ncclSum, -1, c, s), ncclInvalidArgument,
	      "invalid root -1");
	FAILS(ncclSend(buf, 1, ncclFloat, me->nr_ranks, c, s), ncclInvalidArgument, "invalid root");
	FAILS(ncclAllReduce(buf, buf, 1, (ncclDataType_t)55, ncclSum, c, s), ncclInvalidArgument,
	      "AllReduce : invalid type 55");
	FAILS(ncclAllReduce(buf, buf, 1, (ncclDataType_t)-1, ncclSum, c, s), ncclInvalidArgument,
	      "AllReduce : invalid type -1");
	FAILS(ncclAllReduce(buf, buf, 1, ncclFloat, (ncclRedOp_t)-1, c, s), ncclInvalidArgument,
	      "AllReduce : invalid reduction operation -1");
	FAILS(ncclAllReduce(buf, buf, 1, ncclFloat, (ncclRedOp_t)777, c, s), ncclInvalidArgument,
	      "reduction operation 777 unknown to this communicator");

	/* A collective of zero elements does nothing on any rank. */
	NCCL(ncclAllReduce(buf, buf, 0, ncclFloat, ncclSum, c, s));

	NCCL(ncclRedOpCreatePreMulSum(&op, &in, ncclFloat, ncclScalarHostImmediate, c));
	FAILS(ncclAllReduce(buf, buf, 1, ncclDouble, op, c, s), ncclInvalidArgument,
	      "Data type supplied to user-created ncclRedOp_t does not match type");
	NCCL(ncclRedOpDestroy(op, c));
	FAILS(ncclRedOpDestroy(op, c), ncclInvalidArgument,
	      "operator unknown to this communicator");
	FAILS(ncclRedOpDestroy(ncclSum, c), ncclInvalidArgument, "operator is a NCCL builtin");
	FAILS(ncclRedOpDestroy((ncclRedOp_t)-5, c), ncclInvalidArgument, "operator");
	NCCL(ncclRedOpCreatePreMulSum(&other, &in, ncclFloat, ncclScalarHostImmediate, c));
	FAILS(ncclRedOpDestroy(other, NULL), ncclInvalidArgument, "invalid communicator passed");
	NCCL(ncclRedOpDestroy(other, c));

	/*
	 * If a call inside a group fails, the whole group is discarded, and ncclGroupEnd() returns
	 * the reason.
	 */
	NCCL(ncclGroupStart());
	NCCL(ncclAllReduce(buf, buf, 1, ncclFloat, ncclSum, c, s));
	FAILS(ncclBroadcast(buf, buf, 1, ncclFloat, 12345, c, s), ncclInvalidArgument,
	      "invalid root 12345");
	FAILS(ncclGroupEnd(), ncclInvalidArgument, "invalid root 12345");

	/* A message to the rank itself without the other half. */
	NCCL(ncclGroupStart());
	NCCL(ncclSend(buf, 1, ncclFloat, me->rank, c, s));
	FAILS(ncclGroupEnd(), ncclInvalidUsage, "Trying to send to self without a matching recv");

	FAILS(ncclCommDeregister(c, (void *)0x1234), ncclInvalidUsage,
	      "Deregister: Could not find handle");
	NCCL(ncclCommDeregister(c, NULL));
	return 0;
}

/*
 * Errors with a valid communicator. None may damage the communicator, as the last AllReduce shows.
 */
static int with_comm(struct client_rank *me)
{
	ncclComm_t c = me->comms[0];
	cudaStream_t s;
	float *buf, in = 1, out = 0;
	int n, r, d, turn;

	CUDA(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
	CUDA(cudaMalloc((void **)&buf, 4096));
	NCCL(ncclCommCount(c, &n));
	NCCL(ncclCommUserRank(c, &r));
	NCCL(ncclCommCuDevice(c, &d));
	EXPECT(n == me->nr_ranks && r == me->rank && d == me->device, "%d %d %d", n, r, d);
	/* The last error belongs to the process, so the ranks take turns. */
	for (turn = 0; turn < client_job.nr_local_ranks; turn++) {
		if (client_barrier_wait(&client_ranks_barrier))
			return -1;
		if (turn == me->index && errors(me, c, s, buf))
			return -1;
	}
	if (client_barrier_wait(&client_ranks_barrier))
		return -1;
	CUDA(client_upload(buf, &in, sizeof(in)));
	NCCL(ncclAllReduce(buf, buf + 1, 1, ncclFloat, ncclSum, c, s));
	if (client_wait(s, &c, 1))
		return -1;
	CUDA(cudaMemcpy(&out, buf + 1, sizeof(out), cudaMemcpyDeviceToHost));
	EXPECT(out == (float)me->nr_ranks, "after the errors AllReduce gives %g", out);

	NCCL(ncclCommFinalize(c));
	FAILS(ncclCommFinalize(c), ncclInvalidArgument, "");
	NCCL(ncclCommDestroy(c));
	me->comms[0] = NULL;
	CUDA(cudaFree(buf));
	CUDA(cudaStreamDestroy(s));
	return 0;
}

static int run(struct client_rank *me)
{
	CUDA(cudaSetDevice(me->device));
	/* The last error belongs to the process, so the ranks take turns. */
	if (!me->index && (strings() || without_comm()))
		return -1;
	if (client_barrier_wait(&client_ranks_barrier))
		return -1;
	NCCL(ncclCommInitRank(&me->comms[0], me->nr_ranks, client_ids[0], me->rank));
	return with_comm(me);
}

int main(int argc, char **argv)
{
	return client_main(argc, argv, 1, 1,
			   "Checks the codes and texts of NCCL's argument errors.", run);
}
