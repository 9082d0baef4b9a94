/*
 * Collectives captured into CUDA graphs. One graph contains several collectives with copies between
 * them. It is replayed many times with new inputs, alternating with ordinary collectives of the
 * same communicator. Graphs are replayed in different orders on different ranks (each graph has a
 * communicator of its own).
 */
#include "../client.h"

#define N     5000
#define TIMES 30

static int capture(struct client_rank *me, cudaStream_t s, ncclComm_t comm, float *buf,
		   cudaGraphExec_t *exec)
{
	cudaGraph_t graph;

	(void)me;
	CUDA(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
	NCCL(ncclAllReduce(buf, buf + N, N, ncclFloat, ncclSum, comm, s));
	CUDA(cudaMemcpyAsync(buf, buf + N, N * sizeof(float), cudaMemcpyDeviceToDevice, s));
	NCCL(ncclAllReduce(buf, buf + N, N, ncclFloat, ncclMax, comm, s));
	CUDA(cudaStreamEndCapture(s, &graph));
	CUDA(cudaGraphInstantiate(exec, graph, 0));
	CUDA(cudaGraphDestroy(graph));
	return 0;
}

static int set(float *buf, float *host, float value)
{
	int i;

	for (i = 0; i < N; i++)
		host[i] = value + (float)(i % 100);
	CUDA(client_upload(buf, host, N * sizeof(float)));
	return 0;
}

static int check(float *buf, float *host, float value, float scale, const char *what)
{
	int i;

	CUDA(cudaMemcpy(host, buf + N, N * sizeof(float), cudaMemcpyDeviceToHost));
	for (i = 0; i < N; i++)
		EXPECT(host[i] == value + scale * (float)(i % 100), "%s: element %d is %g, not %g",
		       what, i, host[i], value + scale * (float)(i % 100));
	return 0;
}

static int run(struct client_rank *me)
{
	cudaGraphExec_t exec[2];
	cudaStream_t s[2];
	float *buf[2], host[N], base, total;
	int t, g, k, n = me->nr_ranks;

	CUDA(cudaSetDevice(me->device));
	for (g = 0; g < 2; g++) {
		CUDA(cudaStreamCreateWithFlags(&s[g], cudaStreamNonBlocking));
		CUDA(cudaMalloc((void **)&buf[g], 2 * N * sizeof(float)));
		NCCL(ncclCommInitRank(&me->comms[g], n, client_ids[g], me->rank));
		if (capture(me, s[g], me->comms[g], buf[g], &exec[g]))
			return -1;
	}
	for (t = 0; t < TIMES; t++) {
		/* Ranks replay the two graphs in different orders. */
		for (k = 0; k < 2; k++) {
			g = k ^ (me->rank & 1);
			base = (float)(me->rank + t + g);
			if (set(buf[g], host, base))
				return -1;
			CUDA(cudaGraphLaunch(exec[g], s[g]));
		}
		for (g = 0; g < 2; g++) {
			total = (float)(n * (n - 1) / 2 + n * (t + g));
			if (client_wait(s[g], me->comms, 2) ||
			    check(buf[g], host, total, (float)n, "replay"))
				return -1;
			/* An ordinary call in between. */
			if (set(buf[g], host, (float)me->rank))
				return -1;
			NCCL(ncclAllReduce(buf[g], buf[g] + N, N, ncclFloat, ncclMax, me->comms[g],
					   s[g]));
			if (client_wait(s[g], me->comms, 2) ||
			    check(buf[g], host, (float)(n - 1), 1, "eager"))
				return -1;
		}
	}
	for (g = 0; g < 2; g++) {
		if (!g)
			CUDA(cudaGraphExecDestroy(exec[g]));
		NCCL(ncclCommDestroy(me->comms[g]));
		me->comms[g] = NULL;
		/*
		 * A graph that outlives its communicator cannot be launched, and can be destroyed.
		 */
		if (g) {
			EXPECT(cudaGraphLaunch(exec[g], s[g]) != cudaSuccess,
			       "a graph was launched without its communicator");
			(void)cudaGetLastError();
			CUDA(cudaGraphExecDestroy(exec[g]));
		}
		CUDA(cudaFree(buf[g]));
		CUDA(cudaStreamDestroy(s[g]));
	}
	return 0;
}

int main(int argc, char **argv)
{
	return client_main(argc, argv, 4, 1, "Checks collectives in CUDA graphs.", run);
}
