/*
 * Ends in the hang that HANGS names, after WARM collectives (20) that are right. The times are on
 * the system's clock, in seconds; each rank prints "rank R stands at TIME" before the call that it
 * does not return from.
 *
 *	mismatch	the last rank's AllReduce has another count
 *	cycle		even and odd ranks use two communicators in opposite orders, with
 *			cudaStreamSynchronize in between
 *	dead		the last rank is killed before its call
 *	left		the last rank exits with status 0 before its call
 *	missing		the last rank does not create the second communicator
 *	sleeps		the last rank sleeps for ever instead of making its call
 *	slow		the last rank makes its call LATE seconds (6) later than the others: no hang
 *	none		no hang
 */
#include "client.h"

#include <signal.h>

static const char *what = "none";
static int warm = 20, late = 6;

static int wait_for(struct client_rank *me, cudaStream_t s)
{
	(void)me;
	CUDA(cudaStreamSynchronize(s));
	client_tick();
	return 0;
}

static void stands(const struct client_rank *me)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	fprintf(stderr, "rank %d stands at %lld.%03ld\n", me->rank, (long long)ts.tv_sec,
		ts.tv_nsec / 1000000);
}

static int hang(struct client_rank *me, cudaStream_t s, float *buf)
{
	int last = me->rank == me->nr_ranks - 1, first = 0;
	size_t n = 1000;

	if (!strcmp(what, "missing")) {
		stands(me);
		while (last)
			pause();
		NCCL(ncclCommInitRank(&me->comms[1], me->nr_ranks, client_ids[1], me->rank));
		return 0;
	}
	NCCL(ncclCommInitRank(&me->comms[1], me->nr_ranks, client_ids[1], me->rank));
	NCCL(ncclAllReduce(buf, buf + n, n, ncclFloat, ncclSum, me->comms[1], s));
	if (wait_for(me, s))
		return -1;
	if (last && !strcmp(what, "slow"))
		sleep((unsigned)late);
	stands(me);
	if (last && !strcmp(what, "dead"))
		raise(SIGKILL);
	if (last && !strcmp(what, "left"))
		exit(0);
	while (last && !strcmp(what, "sleeps"))
		pause();
	if (last && !strcmp(what, "mismatch"))
		n /= 2;
	if (!strcmp(what, "cycle"))
		first = me->rank % 2;
	NCCL(ncclAllReduce(buf, buf + n, n, ncclFloat, ncclSum, me->comms[first], s));
	if (wait_for(me, s))
		return -1;
	NCCL(ncclAllReduce(buf, buf + n, n, ncclFloat, ncclSum, me->comms[!first], s));
	return wait_for(me, s);
}

static int run(struct client_rank *me)
{
	cudaStream_t s;
	float *buf;

	CUDA(cudaSetDevice(me->device));
	CUDA(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
	CUDA(cudaMalloc((void **)&buf, 2000 * sizeof(*buf)));
	NCCL(ncclCommInitRank(&me->comms[0], me->nr_ranks, client_ids[0], me->rank));
	for (int i = 0; i < warm; i++) {
		NCCL(ncclAllReduce(buf, buf + 1000, 1000, ncclFloat, ncclSum, me->comms[0], s));
		if (wait_for(me, s))
			return -1;
	}
	if (hang(me, s, buf))
		return -1;
	for (int i = 0; i < 2; i++) {
		NCCL(ncclCommDestroy(me->comms[i]));
		me->comms[i] = NULL;
	}
	CUDA(cudaFree(buf));
	CUDA(cudaStreamDestroy(s));
	return 0;
}

int main(int argc, char **argv)
{
	if (getenv("HANGS"))
		what = getenv("HANGS");
	if (getenv("WARM"))
		warm = atoi(getenv("WARM"));
	if (getenv("LATE"))
		late = atoi(getenv("LATE"));
	return client_main(argc, argv, 2, 2, "Ends in a hang.", run);
}
