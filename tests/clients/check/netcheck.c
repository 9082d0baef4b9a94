/*
 * Communicators that ask for a network by name (ncclConfig_t's netName). NET_NAMES: comma-separated
 * names; an empty one means any network. For each name there is a communicator of all ranks, and
 * one that is split from the first communicator and asks for the network itself. Collectives use
 * all of them in turn. Both communicators of the first name are called "net0" (commName), those of
 * the second "net1", and so on, for rules of DFSHIM_NET.
 */
#include "../client.h"

enum { MOST = CLIENT_IDS / 2, LOOPS = 20, COUNT = 1000 };

static char names[MOST][32];
static int nr;

static int turn(struct client_rank *me, cudaStream_t s, float *buf, ncclComm_t comm, float value)
{
	float out[COUNT], want = 0;
	int i;

	for (i = 0; i < COUNT; i++)
		out[i] = value + (float)me->rank;
	for (i = 0; i < me->nr_ranks; i++)
		want += value + (float)i;
	CUDA(client_upload(buf, out, sizeof(out)));
	NCCL(ncclAllReduce(buf, buf, COUNT, ncclFloat, ncclSum, comm, s));
	if (client_wait(s, &comm, 1))
		return -1;
	CUDA(cudaMemcpy(out, buf, sizeof(out), cudaMemcpyDeviceToHost));
	for (i = 0; i < COUNT; i++)
		EXPECT(out[i] == want, "element %d is %g, not %g", i, out[i], want);
	client_tick();
	return 0;
}

static int run(struct client_rank *me)
{
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	ncclComm_t *comms = me->comms;
	cudaStream_t s;
	float *buf;
	int i, k;

	CUDA(cudaSetDevice(me->device));
	CUDA(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
	CUDA(cudaMalloc((void **)&buf, COUNT * sizeof(*buf)));
	for (i = 0; i < nr; i++) {
		char called[16];

		snprintf(called, sizeof(called), "net%d", i);
		config.commName = called;
		config.netName = names[i][0] ? names[i] : NULL;
		NCCL(ncclCommInitRankConfig(&comms[i], me->nr_ranks, client_ids[i], me->rank,
					    &config));
		NCCL(ncclCommSplit(comms[0], 0, me->rank, &comms[nr + i], &config));
	}
	for (k = 0; k < LOOPS; k++)
		for (i = 0; i < 2 * nr; i++)
			if (turn(me, s, buf, comms[i], (float)(k + i)))
				return -1;
	for (i = 0; i < 2 * nr; i++) {
		NCCL(ncclCommDestroy(comms[i]));
		comms[i] = NULL;
	}
	CUDA(cudaFree(buf));
	CUDA(cudaStreamDestroy(s));
	return 0;
}

int main(int argc, char **argv)
{
	const char *at = getenv("NET_NAMES");

	for (nr = 0; at && nr < MOST; at = *at ? at + 1 : NULL) {
		size_t len = strcspn(at, ",");

		snprintf(names[nr++], sizeof(names[0]), "%.*s", (int)len, at);
		at += len;
	}
	if (!nr)
		nr = 1;
	return client_main(argc, argv, 2, 2,
			   "Communicators that ask for networks by name (NET_NAMES=A,B).", run);
}
