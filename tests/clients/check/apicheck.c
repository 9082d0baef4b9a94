/*
 * The rest of NCCL's host API as programs use it: several ids for one communicator, communicators
 * created and destroyed in one group, nested groups, groups that fail and simulated groups, NCCL's
 * memory and windows, operators that are destroyed at once, the special streams, shared children,
 * an abort by another thread.
 */
#include "../client.h"

#define N 3000

struct parts {
	float *in, *out, *host;
	cudaStream_t s, other;
};

static int expect_out(struct parts *p, float value, const char *what)
{
	int i;

	CUDA(cudaMemcpy(p->host, p->out, N * sizeof(float), cudaMemcpyDeviceToHost));
	for (i = 0; i < N; i++)
		EXPECT(p->host[i] == value, "%s: element %d is %g, not %g", what, i,
		       (double)p->host[i], (double)value);
	return 0;
}

/* Sets `in` to the rank's number and `out` to -1. */
static int reset(struct client_rank *me, struct parts *p)
{
	int i;

	for (i = 0; i < N; i++)
		p->host[i] = (float)me->rank;
	CUDA(client_upload(p->in, p->host, N * sizeof(float)));
	for (i = 0; i < N; i++)
		p->host[i] = -1;
	CUDA(client_upload(p->out, p->host, N * sizeof(float)));
	return 0;
}

static float all(const struct client_rank *me)
{
	return (float)(me->nr_ranks * (me->nr_ranks - 1) / 2);
}

/* A communicator with several ids, then two communicators created in one group. */
static int inits(struct client_rank *me, struct parts *p)
{
	int nr_ids = me->nr_ranks < 3 ? me->nr_ranks : 3, n = 0, i;

	NCCL(ncclCommInitRankScalable(&me->comms[0], me->nr_ranks, me->rank, nr_ids, client_ids,
				      NULL));
	NCCL(ncclCommCount(me->comms[0], &n));
	EXPECT(n == me->nr_ranks, "%d ranks", n);
	NCCL(ncclGroupStart());
	/* The order differs between ranks, because both are created at the same time. */
	for (i = 0; i < 2; i++) {
		int k = 1 + ((i + me->rank) & 1);

		NCCL(ncclCommInitRank(&me->comms[k], me->nr_ranks, client_ids[2 + k], me->rank));
	}
	NCCL(ncclGroupEnd());
	for (i = 0; i < 3; i++) {
		if (reset(me, p))
			return -1;
		NCCL(ncclAllReduce(p->in, p->out, N, ncclFloat, ncclSum, me->comms[i], p->s));
		if (client_wait(p->s, &me->comms[i], 1) || expect_out(p, all(me), "after init"))
			return -1;
	}
	return 0;
}

static int groups(struct client_rank *me, struct parts *p)
{
	ncclResult_t res;
	ncclSimInfo_t sim = NCCL_SIM_INFO_INITIALIZER;
	ncclRedOp_t op;
	float two = 2;
	int last = me->nr_ranks - 1;

	/* Three levels, two communicators, two streams. Only the outermost end submits. */
	if (reset(me, p))
		return -1;
	NCCL(ncclGroupStart());
	NCCL(ncclGroupStart());
	NCCL(ncclAllReduce(p->in, p->out, N / 2, ncclFloat, ncclSum, me->comms[1], p->s));
	NCCL(ncclGroupEnd());
	NCCL(ncclGroupStart());
	NCCL(ncclGroupStart());
	NCCL(ncclAllReduce(p->in + N / 2, p->out + N / 2, N - N / 2, ncclFloat, ncclSum,
			   me->comms[2], p->other));
	NCCL(ncclGroupEnd());
	NCCL(ncclGroupEnd());
	NCCL(ncclGroupEnd());
	if (client_wait(p->s, me->comms, 3) || client_wait(p->other, me->comms, 3) ||
	    expect_out(p, all(me), "nested groups"))
		return -1;

	/* The operator may be destroyed before the group ends. */
	NCCL(ncclGroupStart());
	NCCL(ncclRedOpCreatePreMulSum(&op, &two, ncclFloat, ncclScalarHostImmediate, me->comms[0]));
	NCCL(ncclAllReduce(p->in, p->out, N, ncclFloat, op, me->comms[0], p->s));
	NCCL(ncclRedOpDestroy(op, me->comms[0]));
	NCCL(ncclGroupEnd());
	if (client_wait(p->s, me->comms, 3) ||
	    expect_out(p, 2 * all(me), "an operator destroyed in the group"))
		return -1;

	/*
	 * An error at an inner level, on one communicator: no operation of the whole group is
	 * executed, on any rank.
	 */
	if (reset(me, p))
		return -1;
	NCCL(ncclGroupStart());
	NCCL(ncclAllReduce(p->in, p->out, N, ncclFloat, ncclSum, me->comms[1], p->s));
	NCCL(ncclGroupStart());
	res = ncclReduce(p->in, p->out, N, ncclFloat, ncclSum, me->nr_ranks, me->comms[2], p->s);
	EXPECT(res == ncclInvalidArgument, "a bad root gives %d", (int)res);
	NCCL(ncclGroupEnd());
	NCCL(ncclBroadcast(p->in, p->out, N, ncclFloat, last, me->comms[0], p->s));
	res = ncclGroupEnd();
	EXPECT(res == ncclInvalidArgument, "the end of a bad group gives %d", (int)res);
	if (client_wait(p->s, me->comms, 3) || expect_out(p, -1, "a group that was given up"))
		return -1;

	/* A simulated group is not executed either, and the next group starts empty. */
	NCCL(ncclGroupStart());
	NCCL(ncclAllReduce(p->in, p->out, N, ncclFloat, ncclSum, me->comms[1], p->s));
	NCCL(ncclGroupSimulateEnd(&sim));
	if (client_wait(p->s, me->comms, 3) || expect_out(p, -1, "a simulated group"))
		return -1;
	NCCL(ncclAllReduce(p->in, p->out, N, ncclFloat, ncclMax, me->comms[1], p->s));
	return client_wait(p->s, me->comms, 3) ||
	       expect_out(p, (float)last, "after the bad groups");
}

static int memory(struct client_rank *me, struct parts *p)
{
	float *own = p->in, *mem = NULL;
	ncclWindow_t win = NULL;
	void *handle[2] = {NULL, NULL};
	int i;

	NCCL(ncclMemAlloc((void **)&mem, 1 << 20));
	EXPECT(mem && (uintptr_t)mem % 4096 == 0, "ncclMemAlloc gives %p", (void *)mem);
	NCCL(ncclCommRegister(me->comms[0], mem, 1 << 20, &handle[0]));
	NCCL(ncclCommRegister(me->comms[0], mem, 1 << 20, &handle[1]));
	EXPECT(handle[0] && handle[1], "handles %p %p", handle[0], handle[1]);
	NCCL(ncclCommWindowRegister(me->comms[0], mem, 1 << 20, &win, NCCL_WIN_COLL_SYMMETRIC));
	EXPECT(win, "no window");
	p->in = mem;
	for (i = 0; i < 3; i++) {
		if (reset(me, p))
			return -1;
		NCCL(ncclAllReduce(mem, p->out, N, ncclFloat, ncclSum, me->comms[0], p->s));
		if (client_wait(p->s, me->comms, 1) || expect_out(p, all(me), "in NCCL's memory"))
			return -1;
	}
	p->in = own;
	NCCL(ncclCommWindowDeregister(me->comms[0], win));
	NCCL(ncclCommDeregister(me->comms[0], handle[1]));
	NCCL(ncclCommDeregister(me->comms[0], handle[0]));
	NCCL(ncclMemFree(mem));
	return 0;
}

/* The streams without a handle of their own. Later work on them sees the result. */
static int streams(struct client_rank *me, struct parts *p)
{
	cudaStream_t s[] = {NULL, cudaStreamLegacy, cudaStreamPerThread};
	size_t i;

	for (i = 0; i < ARRAY_LEN(s); i++) {
		if (reset(me, p))
			return -1;
		NCCL(ncclAllReduce(p->in, p->out, N, ncclFloat, ncclSum, me->comms[i], s[i]));
		CUDA(cudaMemcpyAsync(p->host, p->out, N * sizeof(float), cudaMemcpyDeviceToHost,
				     s[i]));
		if (client_wait(s[i], me->comms, 3))
			return -1;
		EXPECT(p->host[N - 1] == all(me), "special stream %zu: %g", i,
		       (double)p->host[N - 1]);
	}
	return 0;
}

struct aborter {
	ncclComm_t comm;
	ncclResult_t res;
};

static void *abort_it(void *arg)
{
	struct aborter *a = arg;
	struct timespec pause = {0, 30000000};

	nanosleep(&pause, NULL);
	a->res = ncclCommAbort(a->comm);
	return NULL;
}

/*
 * A thread waits in cudaStreamSynchronize() for an operation that cannot finish, and another thread
 * aborts.
 */
static int abort_by_other(struct client_rank *me, struct parts *p)
{
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	ncclComm_t parent = NULL, child = NULL;
	struct aborter a;
	pthread_t t;

	/* A shared child ends with its parent. */
	config.splitShare = 1;
	NCCL(ncclCommInitRankConfig(&parent, me->nr_ranks, client_ids[5], me->rank, &config));
	NCCL(ncclCommSplit(parent, 0, me->rank, &child, &config));
	if (me->rank)
		NCCL(ncclAllReduce(p->in, p->out, N, ncclFloat, ncclSum, child, p->s));
	a.comm = parent;
	EXPECT(!pthread_create(&t, NULL, abort_it, &a), "no thread");
	CUDA(cudaStreamSynchronize(p->s));
	pthread_join(t, NULL);
	NCCL(a.res);
	NCCL(ncclCommAbort(child));

	NCCL(ncclCommInitRank(&parent, me->nr_ranks, client_ids[6], me->rank));
	/*
	 * This test is the last one here, because another rank may have aborted, and its process
	 * ended, already.
	 */
	if (me->rank) {
		a.res = ncclAllReduce(p->in, p->out, N, ncclFloat, ncclSum, parent, p->s);
		EXPECT(a.res == ncclSuccess || a.res == ncclRemoteError, "%s",
		       ncclGetErrorString(a.res));
	}
	a.comm = parent;
	EXPECT(!pthread_create(&t, NULL, abort_it, &a), "no thread");
	CUDA(cudaStreamSynchronize(p->s));
	pthread_join(t, NULL);
	NCCL(a.res);
	return 0;
}

static int run(struct client_rank *me)
{
	struct parts p = {.host = malloc(N * sizeof(float))};
	int i;

	CUDA(cudaSetDevice(me->device));
	CUDA(cudaStreamCreateWithFlags(&p.s, cudaStreamNonBlocking));
	CUDA(cudaStreamCreateWithFlags(&p.other, cudaStreamNonBlocking));
	CUDA(cudaMalloc((void **)&p.in, N * sizeof(float)));
	CUDA(cudaMalloc((void **)&p.out, N * sizeof(float)));
	if (inits(me, &p) || groups(me, &p) || memory(me, &p) || streams(me, &p) ||
	    abort_by_other(me, &p))
		return -1;
	NCCL(ncclGroupStart());
	for (i = 0; i < 3; i++)
		NCCL(ncclCommDestroy(me->comms[i]));
	NCCL(ncclGroupEnd());
	memset(me->comms, 0, sizeof(me->comms));
	CUDA(cudaFree(p.in));
	CUDA(cudaFree(p.out));
	CUDA(cudaStreamDestroy(p.s));
	CUDA(cudaStreamDestroy(p.other));
	free(p.host);
	return 0;
}

int main(int argc, char **argv)
{
	return client_main(
		argc, argv, 4, 2,
		"Checks ids, groups, memory, special streams and aborts of other threads.", run);
}
