/*
 * Calls that are newer than NCCL headers this may be built with (2.31, 2.32). They are looked up by
 * name, and their structs are declared here. Tests collectives with a configuration: values, the
 * event of the launch, alone and in groups, invalid configurations; and encryption. Exits with 77
 * if the library does not have these calls.
 */
#define _GNU_SOURCE
#include "client.h"

#include <dlfcn.h>
#include <limits.h>

#define N 1000

struct coll_config {
	size_t size;
	unsigned magic, version;
	void *ext;
	int min_ctas, max_ctas, nvls_ctas, cga;
	const char *alg;
	int force, policy;
	unsigned long long tag;
	cudaEvent_t event;
};
static const struct coll_config fresh = {sizeof(fresh), 0xcafebeefu, 23203,   NULL, INT_MIN,
					 INT_MIN,	INT_MIN,     INT_MIN, NULL, 1,
					 INT_MIN,	0,	     NULL};

struct encryption {
	size_t size;
	unsigned magic, version;
	int mode;
	const char *psk;
};

#define REDUCED const void *, void *, size_t, ncclDataType_t, ncclRedOp_t
#define TAIL	ncclComm_t, cudaStream_t, const struct coll_config *
static struct {
	ncclResult_t (*all_reduce)(REDUCED, TAIL);
	ncclResult_t (*reduce)(REDUCED, int, TAIL);
	ncclResult_t (*reduce_scatter)(REDUCED, TAIL);
	ncclResult_t (*broadcast)(const void *, void *, size_t, ncclDataType_t, int, TAIL);
	ncclResult_t (*gather)(const void *, void *, size_t, ncclDataType_t, int, TAIL);
	ncclResult_t (*scatter)(const void *, void *, size_t, ncclDataType_t, int, TAIL);
	ncclResult_t (*all_gather)(const void *, void *, size_t, ncclDataType_t, TAIL);
	ncclResult_t (*all_to_all)(const void *, void *, size_t, ncclDataType_t, TAIL);
	ncclResult_t (*encryption)(const struct encryption *);
} call;

/* Returns the value of block k of rank r; total() returns the sum over n ranks. */
static float value(int r, int k)
{
	return (float)(r * 100 + k);
}
static float total(int n, int k)
{
	return (float)(100 * n * (n - 1) / 2 + n * k);
}

/* Makes each call once, with and without a configuration, and checks blocks of N values each. */
static int values(struct client_rank *me, cudaStream_t s, float *in, float *out)
{
	struct coll_config config = fresh;
	int n = me->nr_ranks, which, k, i, blocks;
	ncclComm_t c = me->comms[0];
	float *host = malloc(sizeof(float) * N * (size_t)n), want;

	config.min_ctas = 1;
	config.max_ctas = 4;
	config.policy = 1;
	config.tag = 7;
	for (which = 0; which < 8; which++) {
		const struct coll_config *how = which % 3 ? &config : NULL;

		for (i = 0; i < N * n; i++)
			host[i] = value(me->rank, i / N);
		CUDA(cudaMemcpy(in, host, sizeof(float) * N * (size_t)n, cudaMemcpyHostToDevice));
		CUDA(cudaMemset(out, 0, sizeof(float) * N * (size_t)n));
		blocks = 1;
		switch (which) {
		case 0:
			NCCL(call.all_reduce(in, out, N, ncclFloat, ncclSum, c, s, how));
			break;
		case 1:
			NCCL(call.reduce(in, out, N, ncclFloat, ncclSum, 1, c, s, how));
			break;
		case 2:
			NCCL(call.reduce_scatter(in, out, N, ncclFloat, ncclSum, c, s, how));
			break;
		case 3:
			NCCL(call.broadcast(in, out, N, ncclFloat, 1, c, s, how));
			break;
		case 4:
			NCCL(call.gather(in, out, N, ncclFloat, 1, c, s, how));
			blocks = n;
			break;
		case 5:
			NCCL(call.scatter(in, out, N, ncclFloat, 1, c, s, how));
			break;
		case 6:
			NCCL(call.all_gather(in, out, N, ncclFloat, c, s, how));
			blocks = n;
			break;
		default:
			NCCL(call.all_to_all(in, out, N, ncclFloat, c, s, how));
			blocks = n;
		}
		if (client_wait(s, me->comms, 1))
			return -1;
		CUDA(cudaMemcpy(host, out, sizeof(float) * N * (size_t)n, cudaMemcpyDeviceToHost));
		for (k = 0; k < blocks; k++) {
			want = which == 0   ? total(n, 0)
			       : which == 1 ? total(n, 0)
			       : which == 2 ? total(n, me->rank)
			       : which == 3 ? value(1, 0)
			       : which == 5 ? value(1, me->rank)
			       : which == 7 ? value(k, me->rank)
					    : value(k, 0);
			if ((which == 1 || which == 4) && me->rank != 1)
				continue;
			for (i = k * N; i < (k + 1) * N; i++)
				EXPECT(host[i] == want, "call %d, element %d: %g, expected %g",
				       which, i, host[i], want);
		}
	}
	free(host);
	return 0;
}

static void CUDART_CB hold(void *flag)
{
	struct timespec t = {0, 100000};

	while (!__atomic_load_n((int *)flag, __ATOMIC_ACQUIRE))
		nanosleep(&t, NULL);
}

/* The event waits for work that precedes the collective on its stream, not for the collective. */
static int events(struct client_rank *me, cudaStream_t s, float *in, float *out)
{
	struct coll_config config = fresh;
	ncclComm_t c = me->comms[0];
	int go = 0, grouped;

	CUDA(cudaEventCreateWithFlags(&config.event, cudaEventDisableTiming));
	for (grouped = 0; grouped < 2; grouped++) {
		go = 0;
		if (me->rank == 0) {
			CUDA(cudaLaunchHostFunc(s, hold, &go));
			if (grouped)
				NCCL(ncclGroupStart());
			NCCL(call.all_reduce(in, out, N, ncclFloat, ncclSum, c, s, &config));
			if (grouped)
				NCCL(ncclGroupEnd());
			EXPECT(cudaEventQuery(config.event) == cudaErrorNotReady,
			       "the event did not wait for what was before it, grouped %d",
			       grouped);
			__atomic_store_n(&go, 1, __ATOMIC_RELEASE);
			/*
			 * The others have not called yet: this would hang if the event waited for
			 * them.
			 */
			CUDA(cudaEventSynchronize(config.event));
		}
		if (client_barrier_wait(&client_ranks_barrier))
			return -1;
		if (me->rank != 0)
			NCCL(call.all_reduce(in, out, N, ncclFloat, ncclSum, c, s, &config));
		if (client_wait(s, me->comms, 1))
			return -1;
		CUDA(cudaEventSynchronize(config.event));
	}
	/* A collective without elements needs no other rank. */
	NCCL(call.all_reduce(in, out, 0, ncclFloat, ncclSum, c, s, &config));
	CUDA(cudaEventSynchronize(config.event));

	NCCL(ncclGroupStart());
	NCCL(call.all_reduce(in, out, N, ncclFloat, ncclSum, c, s, &config));
	EXPECT(call.all_reduce(in, out, N, ncclFloat, ncclSum, c, s, &config) == ncclInvalidUsage,
	       "two events in one group");
	EXPECT(ncclGroupEnd() == ncclInvalidUsage, "a group with two events");
	CUDA(cudaEventDestroy(config.event));
	return 0;
}

static int refused(struct client_rank *me, cudaStream_t s, float *in, float *out)
{
	struct coll_config config;
	ncclComm_t c = me->comms[0];

#define REFUSED(field, v, what)                                                                    \
	do {                                                                                       \
		config = fresh;                                                                    \
		config.field = v;                                                                  \
		EXPECT(call.all_reduce(in, out, N, ncclFloat, ncclSum, c, s, &config) ==           \
			       ncclInvalidArgument,                                                \
		       what);                                                                      \
		EXPECT(strstr(ncclGetLastError(c), what), "%s", ncclGetLastError(c));              \
	} while (0)
	REFUSED(magic, 1, "magic mismatch (got 0x1");
	REFUSED(size, 4, "magic mismatch");
	REFUSED(force, 2, "forceAlgSelection=2");
	REFUSED(policy, 9, "CTAPolicy=9");
	return 0;
}

static int bad(struct client_rank *me, cudaStream_t s, float *in, float *out)
{
	struct coll_config config;
	ncclComm_t c = me->comms[0];
	struct encryption e = {sizeof(e), 0xcafebeefu, 23203, 0, NULL};
	int turn;

	/* The last error's text belongs to the process, so ranks take turns. */
	for (turn = 0; turn < me->nr_ranks; turn++) {
		if (client_barrier_wait(&client_ranks_barrier))
			return -1;
		if (turn == me->rank && refused(me, s, in, out))
			return -1;
	}
	/* A longer struct, of a future version. */
	config = fresh;
	config.size = sizeof(config) + 64;
	struct {
		struct coll_config c;
		char more[64];
	} longer = {config, {0}};
	NCCL(call.all_reduce(in, out, N, ncclFloat, ncclSum, c, s, &longer.c));
	if (client_wait(s, me->comms, 1))
		return -1;
	NCCL(call.encryption(&e));
	e.mode = 1;
	e.psk = "0123456789abcdef";
	EXPECT(call.encryption(&e) == ncclInvalidUsage, "a key without a user");
	e.magic = 0;
	EXPECT(call.encryption(&e) == ncclInvalidArgument, "no magic");
	EXPECT(call.encryption(NULL) == ncclInvalidArgument, "no configuration");
	return 0;
}

static int run(struct client_rank *me)
{
	size_t bytes = sizeof(float) * N * (size_t)me->nr_ranks;
	cudaStream_t s;
	float *in, *out;

	CUDA(cudaSetDevice(me->device));
	CUDA(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
	CUDA(cudaMalloc((void **)&in, bytes));
	CUDA(cudaMalloc((void **)&out, bytes));
	NCCL(ncclCommInitRank(&me->comms[0], me->nr_ranks, client_ids[0], me->rank));
	if (values(me, s, in, out) || events(me, s, in, out) || bad(me, s, in, out))
		return -1;
	NCCL(ncclCommDestroy(me->comms[0]));
	me->comms[0] = NULL;
	CUDA(cudaFree(in));
	CUDA(cudaFree(out));
	CUDA(cudaStreamDestroy(s));
	return 0;
}

int main(int argc, char **argv)
{
	static const struct {
		void *at;
		const char *name;
	} names[] = {
		{&call.all_reduce, "ncclAllReduceConfig"},
		{&call.reduce, "ncclReduceConfig"},
		{&call.reduce_scatter, "ncclReduceScatterConfig"},
		{&call.broadcast, "ncclBroadcastConfig"},
		{&call.gather, "ncclGatherConfig"},
		{&call.scatter, "ncclScatterConfig"},
		{&call.all_gather, "ncclAllGatherConfig"},
		{&call.all_to_all, "ncclAlltoAllConfig"},
		{&call.encryption, "ncclSetEncryption"},
	};
	size_t i;

	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		*(void **)names[i].at = dlsym(RTLD_DEFAULT, names[i].name);
		if (!*(void **)names[i].at) {
			printf("no %s here\n", names[i].name);
			return 77;
		}
	}
	return client_main(argc, argv, 3, 1, "Calls of NCCL 2.31 and 2.32.", run);
}
