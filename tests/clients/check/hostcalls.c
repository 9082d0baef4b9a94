/*
 * NCCL's calls that are no operations, each on a communicator that the ranks then use in opposite
 * orders with another one, with a device synchronisation after each operation. By NCCL's rules the
 * first such round hangs. A call that the libraries do not have must say so; "absent NAME" is then
 * printed, and the communicators go on.
 *
 * CALLS="NAME ..." selects cases; the default is all.
 */
#define _GNU_SOURCE
#include "../client.h"

#include <dlfcn.h>

#define N 1000 /* elements of an operation */

struct place {
	struct client_rank *me;
	cudaStream_t s;
	ncclComm_t other; /* of all ranks, used beside the communicator of the case */
	float *a, *b, *host;
	unsigned all; /* a bit for each rank */
};

/* Functions that are newer than the headers may be. */
static struct {
	ncclResult_t (*get_id)(ncclComm_t, ncclUniqueId *);
	ncclResult_t (*grow)(ncclComm_t, int, const ncclUniqueId *, int, ncclComm_t *,
			     ncclConfig_t *);
	ncclResult_t (*device)(ncclComm_t, const void *, void *);
	ncclResult_t (*suspend)(ncclComm_t, int);
	ncclResult_t (*resume)(ncclComm_t);
} call;

/* A communicator that does not block may answer that the call is under way. */
#define BEGIN(call)                                                                                \
	do {                                                                                       \
		ncclResult_t begun_ = (call);                                                      \
		NCCL(begun_ == ncclInProgress ? ncclSuccess : begun_);                             \
	} while (0)

static int reduce(struct place *p, ncclComm_t comm, float *buf)
{
	if (!comm)
		return 0;
	BEGIN(ncclAllReduce(buf, buf + N, N, ncclFloat, ncclSum, comm, p->s));
	if (client_settle(comm))
		return -1;
	CUDA(cudaDeviceSynchronize());
	return 0;
}

/* Checks the sum of the ranks in `members`. Each has sent its bit, and 1000 for each past round. */
static int check(struct place *p, const float *buf, unsigned members, int round, const char *what)
{
	float want = (float)members + (float)(1000 * round * __builtin_popcount(members));
	int i;

	CUDA(cudaMemcpy(p->host, buf + N, N * sizeof(float), cudaMemcpyDeviceToHost));
	for (i = 0; i < N; i++)
		EXPECT(p->host[i] == want, "%s, round %d, element %d: %g, not %g", what, round, i,
		       p->host[i], want);
	return 0;
}

/*
 * Uses `comm`, whose ranks are `members`, and the other communicator in opposite orders. `comm` may
 * be NULL on a rank outside it.
 */
static int opposite(struct place *p, ncclComm_t comm, unsigned members, const char *what)
{
	struct client_rank *me = p->me;
	int round, i, ret;

	for (round = 0; round < 4; round++) {
		for (i = 0; i < N; i++)
			p->host[i] = (float)(1u << me->rank) + 1000 * (float)round;
		CUDA(client_upload(p->a, p->host, N * sizeof(float)));
		CUDA(client_upload(p->b, p->host, N * sizeof(float)));
		if ((me->rank + round) % 2)
			ret = reduce(p, p->other, p->b) || reduce(p, comm, p->a);
		else
			ret = reduce(p, comm, p->a) || reduce(p, p->other, p->b);
		if (ret || client_wait(p->s, &p->other, 1) ||
		    (comm && client_async_error(&comm, 1)))
			return -1;
		if ((comm && check(p, p->a, members, round, what)) ||
		    check(p, p->b, p->all, round, "the other communicator"))
			return -1;
	}
	return 0;
}

/* Prints that the call is absent, and returns 1, if it has failed. */
static int absent(struct place *p, ncclResult_t res, const char *name)
{
	if (res == ncclSuccess)
		return 0;
	if (!p->me->rank)
		printf("absent %s: %s\n", name, ncclGetLastError(NULL));
	EXPECT(*ncclGetLastError(NULL), "%s: no text for error %d", name, (int)res);
	return 1;
}

/* Gives all ranks the data of rank 0. Its process has the first thread. */
static int share(struct client_rank *me, void *data, size_t len)
{
	static char box[NCCL_UNIQUE_ID_BYTES];

	if (!me->index) {
		if (client_broadcast(&client_job, data, len))
			return -1;
		memcpy(box, data, len);
	}
	if (client_barrier_wait(&client_ranks_barrier))
		return -1;
	memcpy(data, box, len);
	return client_barrier_wait(&client_ranks_barrier);
}

static int make(struct place *p, ncclConfig_t *config)
{
	struct client_rank *me = p->me;
	ncclUniqueId id;

	if (!me->rank)
		NCCL(ncclGetUniqueId(&id));
	if (share(me, &id, sizeof(id)))
		return -1;
	BEGIN(config ? ncclCommInitRankConfig(&me->comms[0], me->nr_ranks, id, me->rank, config)
		     : ncclCommInitRank(&me->comms[0], me->nr_ranks, id, me->rank));
	return 0;
}

static int end(struct place *p, int i)
{
	ncclComm_t comm = p->me->comms[i];

	p->me->comms[i] = NULL;
	if (comm)
		BEGIN(ncclCommDestroy(comm));
	return 0;
}

static int plain(struct place *p)
{
	return make(p, NULL) || opposite(p, p->me->comms[0], p->all, "plain");
}

static int config(struct place *p)
{
	ncclConfig_t c = NCCL_CONFIG_INITIALIZER;

	c.minCTAs = 2;
	c.maxCTAs = 4;
	c.cgaClusterSize = 2;
	c.blocking = 0;
	c.splitShare = 1;
	if (make(p, &c) || client_settle(p->me->comms[0]))
		return -1;
	return opposite(p, p->me->comms[0], p->all, "a configuration");
}

static int registered(struct place *p)
{
	float *a = p->a;
	void *handle;
	int ret;

	if (make(p, NULL))
		return -1;
	NCCL(ncclMemAlloc((void **)&p->a, 2 * N * sizeof(float)));
	NCCL(ncclCommRegister(p->me->comms[0], p->a, 2 * N * sizeof(float), &handle));
	ret = opposite(p, p->me->comms[0], p->all, "registered memory");
	NCCL(ncclCommDeregister(p->me->comms[0], handle));
	NCCL(ncclMemFree(p->a));
	p->a = a;
	return ret;
}

static int window(struct place *p)
{
	ncclComm_t comm;
	float *a = p->a;
	ncclWindow_t win = NULL;
	int ret;

	if (make(p, NULL))
		return -1;
	comm = p->me->comms[0];
	NCCL(ncclMemAlloc((void **)&p->a, 2 * N * sizeof(float)));
	NCCL(ncclCommWindowRegister(comm, p->a, 2 * N * sizeof(float), &win,
				    NCCL_WIN_COLL_SYMMETRIC));
	ret = opposite(p, comm, p->all, "a window");
	NCCL(ncclCommWindowDeregister(comm, win));
	NCCL(ncclMemFree(p->a));
	p->a = a;
	return ret;
}

static int split(struct place *p)
{
	struct client_rank *me = p->me;
	unsigned members = 0;
	int r;

	for (r = me->rank % 2; r < me->nr_ranks; r += 2)
		members |= 1u << r;
	if (make(p, NULL))
		return -1;
	NCCL(ncclCommSplit(me->comms[0], me->rank % 2, -me->rank, &me->comms[1], NULL));
	return opposite(p, me->comms[1], members, "a half") ||
	       opposite(p, me->comms[0], p->all, "the parent of halves");
}

/* Leaves the last rank out of the case's communicator. */
static int without_last(struct place *p, int flags, const char *what)
{
	struct client_rank *me = p->me;
	int last = me->nr_ranks - 1;

	if (me->rank != last)
		NCCL(ncclCommShrink(me->comms[0], &last, 1, &me->comms[1], NULL, flags));
	return opposite(p, me->comms[1], p->all & ~(1u << last), what);
}

static int shrink(struct place *p)
{
	return make(p, NULL) || without_last(p, NCCL_SHRINK_DEFAULT, "a shrunk communicator") ||
	       opposite(p, p->me->comms[0], p->all, "the parent of a shrunk one");
}

/* The others wait for the last rank, and go on without it. */
static int shrink_abort(struct place *p)
{
	struct client_rank *me = p->me;

	if (make(p, NULL))
		return -1;
	if (me->rank != me->nr_ranks - 1)
		NCCL(ncclAllReduce(p->a, p->a, N, ncclFloat, ncclSum, me->comms[0], p->s));
	return without_last(p, NCCL_SHRINK_ABORT, "a communicator shrunk by an abort");
}

static int revoked(struct place *p)
{
	struct client_rank *me = p->me;

	if (make(p, NULL))
		return -1;
	if (me->rank != me->nr_ranks - 1)
		NCCL(ncclAllReduce(p->a, p->a, N, ncclFloat, ncclSum, me->comms[0], p->s));
	NCCL(ncclCommRevoke(me->comms[0], NCCL_REVOKE_DEFAULT));
	return without_last(p, NCCL_SHRINK_DEFAULT, "a communicator shrunk after a revoke");
}

static int abort_waiting(struct place *p)
{
	struct client_rank *me = p->me;

	if (make(p, NULL))
		return -1;
	if (me->rank)
		NCCL(ncclAllReduce(p->a, p->a, N, ncclFloat, ncclSum, me->comms[0], p->s));
	NCCL(ncclCommAbort(me->comms[0]));
	me->comms[0] = NULL;
	return make(p, NULL) || opposite(p, me->comms[0], p->all, "after an abort");
}

/* The last rank joins a communicator of the others. */
static int grow(struct place *p)
{
	struct client_rank *me = p->me;
	int n = me->nr_ranks, last = me->rank == n - 1;
	ncclUniqueId id;

	if (make(p, NULL))
		return -1;
	NCCL(ncclCommSplit(me->comms[0], last, 0, &me->comms[1], NULL));
	if (!me->rank)
		NCCL(call.get_id(me->comms[1], &id));
	if (share(me, &id, sizeof(id)))
		return -1;
	EXPECT(last || call.grow(me->comms[1], n - 1, NULL, -1, &me->comms[2], NULL) ==
			       ncclInvalidArgument,
	       "growth by no rank is not refused");
	NCCL(call.grow(last ? NULL : me->comms[1], n, me->rank && !last ? NULL : &id,
		       last ? me->rank : -1, &me->comms[2], NULL));
	return opposite(p, me->comms[2], p->all, "a grown communicator");
}

/* A communicator for device code is refused where there is no symmetric memory. */
static int device(struct place *p)
{
	char out[4096], requirements[4096] = {0};
	int i;

	if (make(p, NULL))
		return -1;
	if (absent(p, call.device(p->me->comms[0], requirements, out), "ncclDevCommCreate") < 0)
		return -1;
	for (i = 0; i < 2; i++)
		if (opposite(p, p->me->comms[0], p->all, "a communicator for device code"))
			return -1;
	return 0;
}

static int suspend(struct place *p)
{
	if (make(p, NULL))
		return -1;
	if (opposite(p, p->me->comms[0], p->all, "before it is suspended"))
		return -1;
	NCCL(call.suspend(p->me->comms[0], 0));
	NCCL(call.resume(p->me->comms[0]));
	return opposite(p, p->me->comms[0], p->all, "a resumed communicator");
}

static int finalize(struct place *p)
{
	if (make(p, NULL) || opposite(p, p->me->comms[0], p->all, "before its end"))
		return -1;
	NCCL(ncclCommFinalize(p->me->comms[0]));
	return 0;
}

/*
 * Waits until the operation on `comm` has ended or its communicator has an error. Returns 1 for an
 * error, which ends the communicator here, 0, or -1.
 */
static int outcome(struct place *p, ncclResult_t res, const char *name)
{
	ncclComm_t *comm = &p->me->comms[0];
	struct timespec pause = {0, 100000};
	ncclResult_t state = res;

	while (state == ncclSuccess && cudaStreamQuery(p->s) == cudaErrorNotReady) {
		NCCL(ncclCommGetAsyncError(*comm, &state));
		nanosleep(&pause, NULL);
	}
	if (state == ncclSuccess)
		NCCL(ncclCommGetAsyncError(*comm, &state));
	client_tick();
	if (state == ncclSuccess)
		return 0;
	if (!p->me->rank)
		printf("absent %s: error %d\n", name, (int)state);
	NCCL(ncclCommAbort(*comm));
	*comm = NULL;
	return 1;
}

/* Operations that older versions do not have, or not of this type. */
static int operations(struct place *p)
{
	struct client_rank *me = p->me;
	int n = me->nr_ranks, k, gone;
	float *in, *out;

	CUDA(cudaMalloc((void **)&in, (size_t)n * N * sizeof(float)));
	CUDA(cudaMalloc((void **)&out, (size_t)n * N * sizeof(float)));
	if (make(p, NULL))
		return -1;
	for (k = 0; k < N; k++)
		p->host[k] = (float)(me->rank + 1);
	for (k = 0; k < n; k++)
		CUDA(client_upload(in + k * N, p->host, N * sizeof(float)));
	gone = outcome(p, ncclAlltoAll(in, out, N, ncclFloat, me->comms[0], p->s), "ncclAlltoAll");
	for (k = 0; !gone && k < n; k++) {
		CUDA(cudaMemcpy(p->host, out + k * N, N * sizeof(float), cudaMemcpyDeviceToHost));
		EXPECT(p->host[0] == (float)(k + 1) && p->host[N - 1] == (float)(k + 1),
		       "AlltoAll from rank %d: %g", k, p->host[0]);
	}
	if (gone < 0 || (gone && make(p, NULL)) ||
	    opposite(p, me->comms[0], p->all, "beside AlltoAll"))
		return -1;
	gone = outcome(p, ncclAllGather(in, out, 8, ncclFloat8e4m3, me->comms[0], p->s), "float8");
	if (gone < 0 || (gone && make(p, NULL)) ||
	    opposite(p, me->comms[0], p->all, "beside 8-bit numbers"))
		return -1;
	CUDA(cudaFree(in));
	CUDA(cudaFree(out));
	return 0;
}

static const struct {
	const char *name;
	int (*fn)(struct place *p);
} cases[] = {
	{"plain", plain},
	{"config", config},
	{"registered", registered},
	{"window", window},
	{"split", split},
	{"shrink", shrink},
	{"shrink-abort", shrink_abort},
	{"revoke", revoked},
	{"abort", abort_waiting},
	{"grow", grow},
	{"device", device},
	{"suspend", suspend},
	{"finalize", finalize},
	{"operations", operations},
};

/* Whether the list, a blank between two names, has the name. */
static int listed(const char *list, const char *name)
{
	size_t n = strlen(name);
	const char *at;

	for (at = list; (at = strstr(at, name)); at += n)
		if ((at == list || at[-1] == ' ') && (!at[n] || at[n] == ' '))
			return 1;
	return 0;
}

static int run(struct client_rank *me)
{
	struct place p = {.me = me, .all = (1u << me->nr_ranks) - 1, .host = malloc(N * 4)};
	const char *list = getenv("CALLS");
	size_t i;
	int k;

	CUDA(cudaSetDevice(me->device));
	CUDA(cudaStreamCreateWithFlags(&p.s, cudaStreamNonBlocking));
	CUDA(cudaMalloc((void **)&p.a, 2 * N * sizeof(float)));
	CUDA(cudaMalloc((void **)&p.b, 2 * N * sizeof(float)));
	NCCL(ncclCommInitRank(&me->comms[7], me->nr_ranks, client_ids[7], me->rank));
	p.other = me->comms[7];
	for (i = 0; i < ARRAY_LEN(cases); i++) {
		if (list && !listed(list, cases[i].name))
			continue;
		if (cases[i].fn(&p))
			return -1;
		for (k = 2; k >= 0; k--)
			if (end(&p, k))
				return -1;
		if (!me->rank) {
			printf("did %s\n", cases[i].name);
			fflush(stdout);
		}
	}
	end(&p, 7);
	CUDA(cudaFree(p.a));
	CUDA(cudaFree(p.b));
	CUDA(cudaStreamDestroy(p.s));
	free(p.host);
	return 0;
}

int main(int argc, char **argv)
{
#define FIND(member, name) *(void **)&call.member = dlsym(RTLD_DEFAULT, name)
	FIND(get_id, "ncclCommGetUniqueId");
	FIND(grow, "ncclCommGrow");
	FIND(device, "ncclDevCommCreate");
	FIND(suspend, "ncclCommSuspend");
	FIND(resume, "ncclCommResume");
	if (!call.get_id || !call.grow || !call.device || !call.suspend || !call.resume)
		return EXIT_SKIP;
	return client_main(argc, argv, 4, 3,
			   "Calls NCCL's host API beside communicators in opposite orders.", run);
}
