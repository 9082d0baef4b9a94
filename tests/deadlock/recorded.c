/*
 * Issues operations whose call does not simply put them on a stream, which mode trace must record
 * nevertheless: on the legacy stream, on non-blocking communicators (alone and in a group), and in
 * graphs (three launches, one of them of a clone). Two ranks with a thread each; a plain NCCL
 * program. Prints the number of operations that NCCL executed; each replay of a graph counts again.
 */
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define RANKS 2
#define COUNT 1000

static ncclUniqueId id[2];
static unsigned nr_ops;

#define MUST(call)                                                                                 \
	do {                                                                                       \
		int r_ = (int)(call);                                                              \
		if (r_ != 0) {                                                                     \
			fprintf(stderr, "%s: %d\n", #call, r_);                                    \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

static int *in, *out;

static void sum(int rank, ncclComm_t comm, cudaStream_t s)
{
	int *a = in + rank * COUNT, *b = out + rank * COUNT;
	ncclResult_t res = ncclAllReduce(a, b, COUNT, ncclInt32, ncclSum, comm, s);

	if (res != ncclSuccess && res != ncclInProgress)
		exit(1);
}

static void ran(unsigned nr)
{
	__atomic_add_fetch(&nr_ops, nr, __ATOMIC_RELAXED);
}

static void ready(ncclComm_t comm)
{
	ncclResult_t state;

	do {
		usleep(1000);
		MUST(ncclCommGetAsyncError(comm, &state));
	} while (state == ncclInProgress);
	MUST(state);
}

static void *run(void *arg)
{
	int rank = (int)(intptr_t)arg;
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	cudaGraph_t graph, copy;
	cudaGraphExec_t exec, exec2;
	ncclComm_t a, b;
	cudaStream_t s;
	ncclResult_t res;

	MUST(cudaSetDevice(rank));
	MUST(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
	MUST(ncclCommInitRank(&a, RANKS, id[0], rank));
	config.blocking = 0;
	res = ncclCommInitRankConfig(&b, RANKS, id[1], rank, &config);
	if (res != ncclSuccess && res != ncclInProgress)
		exit(1);
	ready(b);

	sum(rank, a, NULL);
	sum(rank, a, NULL);
	MUST(cudaStreamSynchronize(NULL));
	ran(2);

	sum(rank, b, s);
	ready(b);
	MUST(ncclGroupStart());
	sum(rank, b, s);
	sum(rank, b, s);
	res = ncclGroupEnd();
	if (res != ncclSuccess && res != ncclInProgress)
		exit(1);
	ready(b);
	MUST(cudaStreamSynchronize(s));
	ran(3);

	MUST(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
	sum(rank, a, s);
	MUST(ncclGroupStart());
	sum(rank, a, s);
	sum(rank, a, s);
	MUST(ncclGroupEnd());
	MUST(cudaStreamEndCapture(s, &graph));
	MUST(cudaGraphClone(&copy, graph));
	MUST(cudaGraphInstantiate(&exec, graph, 0));
	MUST(cudaGraphInstantiate(&exec2, copy, 0));
	MUST(cudaGraphDestroy(graph));
	MUST(cudaGraphDestroy(copy));
	MUST(cudaGraphLaunch(exec, s));
	MUST(cudaGraphLaunch(exec, s));
	MUST(cudaGraphLaunch(exec2, s));
	MUST(cudaStreamSynchronize(s));
	MUST(cudaGraphExecDestroy(exec));
	MUST(cudaGraphExecDestroy(exec2));
	ran(9);
	MUST(ncclCommDestroy(a));
	MUST(ncclCommDestroy(b));
	return NULL;
}

int main(void)
{
	pthread_t t[RANKS];
	intptr_t i;

	MUST(cudaMallocManaged((void **)&in, RANKS * COUNT * sizeof(*in), cudaMemAttachGlobal));
	MUST(cudaMallocManaged((void **)&out, RANKS * COUNT * sizeof(*out), cudaMemAttachGlobal));
	for (i = 0; i < RANKS * COUNT; i++)
		in[i] = (int)i;
	for (i = 0; i < 2; i++)
		MUST(ncclGetUniqueId(&id[i]));
	for (i = 0; i < RANKS; i++)
		pthread_create(&t[i], NULL, run, (void *)i);
	for (i = 0; i < RANKS; i++)
		pthread_join(t[i], NULL);
	for (i = 0; i < RANKS * COUNT; i++)
		if (out[i] != in[i % COUNT] + in[COUNT + i % COUNT])
			return 1;
	printf("%u\n", nr_ops);
	return 0;
}
