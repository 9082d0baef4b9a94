/*
 * Hardware queues and implicit synchronisation; the rules are the first argument. Under "nccl"
 * streams that share a queue block each other, and pinning memory waits for the device. Under
 * "dfshim" they do not.
 */
#include "tests/hostcuda/programs/cu.h"

static void set(void *arg)
{
	__atomic_store_n((int *)arg, 1, __ATOMIC_RELEASE);
}

static void *later(void *arg)
{
	usleep(30000);
	gate_open(arg);
	return NULL;
}

int main(int argc, char **argv)
{
	const struct df_backend *api = hostcuda();
	int nccl = argc > 1 && !strcmp(argv[1], "nccl"), ran[3] = {0}, done = 0, i;
	struct gate g = {0};
	struct df_stream_info info;
	unsigned long long id;
	cudaStream_t s[3];
	cudaEvent_t e;
	uint64_t *word;
	pthread_t t;
	void *p;

	CU(cudaMallocHost((void **)&word, 8));
	*word = 0;
	/*
	 * There are two queues. The legacy stream is stream 0, so s[0] and s[2] share queue 1. A
	 * trace derives the queue from the stream's number, so events that are created in between
	 * must not change it.
	 */
	for (i = 0; i < 3; i++) {
		CU(cudaEventCreate(&e));
		CU(cudaStreamCreateWithFlags(&s[i], cudaStreamNonBlocking));
		CU(cudaStreamGetId(s[i], &id));
		CHECK(!nccl || id % 2 == (unsigned)(i + 1) % 2);
	}
	CHECK(!api->stream_info(s[0], &info));
	CHECK(!api->stream_wait(info.stream, word, 1));
	CU(cudaLaunchHostFunc(s[1], set, &ran[1]));
	CU(cudaLaunchHostFunc(s[2], set, &ran[2]));
	CU(cudaStreamSynchronize(s[1]));
	CHECK(__atomic_load_n(&ran[1], __ATOMIC_ACQUIRE));
	if (nccl) {
		usleep(10000);
		GIVES(cudaErrorNotReady, cudaStreamQuery(s[2]));
		CHECK(!__atomic_load_n(&ran[2], __ATOMIC_ACQUIRE));
	} else {
		CU(cudaStreamSynchronize(s[2]));
	}
	__atomic_store_n(word, 1, __ATOMIC_RELEASE);
	CU(cudaStreamSynchronize(s[2]));
	CHECK(__atomic_load_n(&ran[2], __ATOMIC_ACQUIRE));

	CU(cudaLaunchHostFunc(s[0], gate_wait, &g));
	CU(cudaLaunchHostFunc(s[0], set, &done));
	CHECK(!pthread_create(&t, NULL, later, &g));
	if (nccl) {
		CU(cudaHostAlloc(&p, 100, cudaHostAllocDefault));
		CHECK(__atomic_load_n(&done, __ATOMIC_ACQUIRE));
		CU(cudaFreeHost(p));
	} else {
		CU(cudaHostAlloc(&p, 100, cudaHostAllocDefault));
		CHECK(!__atomic_load_n(&done, __ATOMIC_ACQUIRE));
		CU(cudaFreeHost(p));
		CHECK(__atomic_load_n(&done, __ATOMIC_ACQUIRE));
	}
	pthread_join(t, NULL);
	return 0;
}
