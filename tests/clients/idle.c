/*
 * Executes some collectives, then nothing for a while, then some more. Prints the processor time
 * that was used in the idle time, so that a runtime that spins without work is detected.
 */
#include "client.h"

#include <sys/resource.h>

static double idle_seconds = 2;
static double cpu_seconds;

static double cpu_now(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static int work(struct client_rank *me, cudaStream_t s, float *buf)
{
	float in = 1, out;
	int i;

	for (i = 0; i < 50; i++) {
		CUDA(client_upload(buf, &in, sizeof(in)));
		NCCL(ncclAllReduce(buf, buf + 1, 1, ncclFloat, ncclSum, me->comms[0], s));
		if (client_wait(s, me->comms, 1))
			return -1;
		CUDA(cudaMemcpy(&out, buf + 1, sizeof(out), cudaMemcpyDeviceToHost));
		EXPECT(out == (float)me->nr_ranks, "%g", out);
	}
	return 0;
}

static int run(struct client_rank *me)
{
	struct timespec settle = {0, 200000000}, pause;
	cudaStream_t s;
	float *buf;
	double cpu, start;

	CUDA(cudaSetDevice(me->device));
	CUDA(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
	CUDA(cudaMalloc((void **)&buf, 4096));
	NCCL(ncclCommInitRank(&me->comms[0], me->nr_ranks, client_ids[0], me->rank));
	if (work(me, s, buf) || client_barrier_wait(&client_ranks_barrier))
		return -1;
	nanosleep(&settle, NULL);
	start = client_now();
	cpu = cpu_now();
	pause.tv_sec = (time_t)idle_seconds;
	pause.tv_nsec = (long)((idle_seconds - (double)pause.tv_sec) * 1e9);
	nanosleep(&pause, NULL);
	if (!me->index) {
		cpu_seconds = cpu_now() - cpu;
		printf("idle: process %d used %.4f s of processor time in %.3f s: %.3f %%\n",
		       client_job.proc, cpu_seconds, client_now() - start,
		       100 * cpu_seconds / (client_now() - start));
		fflush(stdout);
	}
	if (work(me, s, buf))
		return -1;
	NCCL(ncclCommDestroy(me->comms[0]));
	me->comms[0] = NULL;
	CUDA(cudaFree(buf));
	CUDA(cudaStreamDestroy(s));
	return 0;
}

int main(int argc, char **argv)
{
	const char *text = getenv("IDLE_SECONDS");

	if (text)
		idle_seconds = atof(text);
	return client_main(argc, argv, 4, 1, "Works, idles (IDLE_SECONDS, default 2), works again.",
			   run);
}
