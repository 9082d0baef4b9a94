/*
 * Two processes on one GPU: does a kernel of one see words that a kernel of the other writes in
 * device memory shared by CUDA IPC, while both run? (Without MPS the processes alternate in time
 * slices, so an answer takes longer.)
 */
#include "tests/gpu/litmus.h"
#include <sys/wait.h>

#define ROUNDS 50

__global__ void ping(uint64_t *mine, uint64_t *theirs, int first, uint64_t *rounds)
{
	for (uint64_t i = 1; i <= ROUNDS; i++) {
		if (!first && !dev_until(theirs, i))
			return;
		dev_put(mine, i);
		if (first && !dev_until(theirs, i))
			return;
		*rounds = i;
	}
}

int main(int argc, char **argv)
{
	cudaIpcMemHandle_t h;
	uint64_t *shared, *rounds, nr = 0, t;
	int first = argc < 2;

	litmus_start("ipc", 55);
	MUST(cudaMalloc(&rounds, 8));
	MUST(cudaMemset(rounds, 0, 8));
	if (first) {
		char cmd[512], hex[2 * sizeof(h) + 1];

		MUST(cudaMalloc(&shared, 4096));
		MUST(cudaMemset(shared, 0, 4096));
		MUST(cudaDeviceSynchronize());
		MUST(cudaIpcGetMemHandle(&h, shared));
		for (size_t i = 0; i < sizeof(h); i++)
			sprintf(hex + 2 * i, "%02x", ((unsigned char *)&h)[i]);
		snprintf(cmd, sizeof(cmd), "timeout 60 '%s' %s &", argv[0], hex);
		if (system(cmd))
			return 1;
	} else {
		for (size_t i = 0; i < sizeof(h); i++) {
			unsigned v = 0;

			sscanf(argv[1] + 2 * i, "%2x", &v);
			((unsigned char *)&h)[i] = (unsigned char)v;
		}
		MUST(cudaIpcOpenMemHandle((void **)&shared, h, cudaIpcMemLazyEnablePeerAccess));
	}
	/*
	 * The other process needs time to start, so a kernel that gives up is launched several
	 * times.
	 */
	t = now_ns();
	for (int tries = 0; tries < 6 && nr < ROUNDS; tries++) {
		ping<<<1, 1>>>(shared + (first ? 0 : 128), shared + (first ? 128 : 0), first,
			       rounds);
		MUST(cudaDeviceSynchronize());
		MUST(cudaMemcpy(&nr, rounds, 8, cudaMemcpyDeviceToHost));
	}
	t = now_ns() - t;
	result("\"test\":\"ipc\",\"side\":\"%s\",\"rounds\":%llu,\"ns\":%llu",
	       first ? "owner" : "opener", (unsigned long long)nr, (unsigned long long)t);
	if (first)
		sleep(2); /* this process owns the memory, and the other one may still read it */
	return nr != ROUNDS;
}
