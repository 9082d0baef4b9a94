/*
 * Ends in the hang that HANGS names, after WARM collectives (20) with right results. Times are on
 * the system's clock, in seconds. Each rank prints "rank R stands at TIME" before the call that
 * does not return.
 *
 *   mismatch    the last rank's AllReduce has another count
 *   cycle       even and odd ranks use two communicators in opposite orders, with
 *               cudaStreamSynchronize in between
 *   dead        the last rank is killed before its call
 *   left        the last rank exits with status 0 before its call
 *   missing     the last rank does not create the second communicator
 *   sleeps      the last rank sleeps forever instead of making its call
 *   slow        the last rank makes its call LATE seconds (6) after the others: no hang
 *   busy        as slow, and that rank synchronises streams meanwhile
 *   part        the lower half of the ranks is in a cycle; the others continue for LATE seconds
 *   none        no hang
 *
 * SPLIT=1: the odd ranks hang in communicators that are split from the first one in the opposite
 * order of ranks, and the even ones sleep. With "missing" the last rank does not call
 * ncclCommSplit. SPLIT=alone: the first communicator has been destroyed before. SPLIT=exits: the
 * same, and the even ranks exit with status 0 instead of sleeping.
 *
 * GROW=1: the first communicator has grown (ncclCommGrow) from one of the lower half of the ranks,
 * and the second one is split from it. With "missing" the last rank does not call ncclCommGrow.
 * GROW=alone: the smaller one has been destroyed before. GROW=no-id: no rank has made an id. Exits
 * with 77 if NCCL cannot grow.
 *
 * GO=FILE: the last rank waits until the file exists before it prints its line; with "missing" it
 * then continues, and there is no hang.
 */
#include "client.h"

#include <dlfcn.h>
#include <signal.h>

static const char *what = "none";
static int warm = 20, late = 6, split, exits, grow, alone;

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

static double seconds_since(const struct timespec *begin)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)(now.tv_sec - begin->tv_sec) + 1e-9 * (double)(now.tv_nsec - begin->tv_nsec);
}

static int idle_stream(const struct client_rank *me)
{
	struct timespec begin;
	cudaStream_t other;

	(void)me;
	CUDA(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
	clock_gettime(CLOCK_MONOTONIC, &begin);
	while (seconds_since(&begin) < late) {
		CUDA(cudaStreamSynchronize(other));
		usleep(20000);
	}
	CUDA(cudaStreamDestroy(other));
	return 0;
}

/* One half of the ranks is in a cycle, the other one makes collectives of its own. */
static int part(struct client_rank *me, cudaStream_t s, float *buf)
{
	int upper = me->rank >= me->nr_ranks / 2, first = upper ? 0 : me->rank % 2;
	ncclComm_t c[2];

	for (int i = 0; i < 2; i++)
		NCCL(ncclCommSplit(me->comms[0], upper, me->rank, &c[i], NULL));
	if (!upper)
		stands(me);
	for (int i = 0; upper && i < late * 50; i++) {
		NCCL(ncclAllReduce(buf, buf + 1000, 1000, ncclFloat, ncclSum, c[0], s));
		if (wait_for(me, s))
			return -1;
		usleep(20000);
	}
	if (upper)
		fprintf(stderr, "rank %d has gone on\n", me->rank);
	for (int i = 0; i < 2; i++) {
		NCCL(ncclAllReduce(buf, buf + 1000, 1000, ncclFloat, ncclSum, c[first ^ i], s));
		if (wait_for(me, s))
			return -1;
	}
	return 0;
}

/* Makes the communicators, of which the first one exists. */
static int make(struct client_rank *me)
{
	ncclComm_t parent = me->comms[0];
	int n = split ? 2 : 1;

	for (int i = 2 - n; i < 2; i++)
		if (split)
			NCCL(ncclCommSplit(parent, me->rank % 2, -me->rank, &me->comms[i], NULL));
		else if (grow)
			NCCL(ncclCommSplit(parent, 0, me->rank, &me->comms[i], NULL));
		else
			NCCL(ncclCommInitRank(&me->comms[i], me->nr_ranks, client_ids[i],
					      me->rank));
	if (split && alone)
		NCCL(ncclCommDestroy(parent));
	return 0;
}

/* Makes the first communicator: the upper half of the ranks joins the lower one. */
static int grown(struct client_rank *me)
{
	/* The headers may be older than the functions. */
	ncclResult_t (*get_id)(ncclComm_t, ncclUniqueId *) =
		(ncclResult_t(*)(ncclComm_t, ncclUniqueId *))dlsym(RTLD_DEFAULT,
								   "ncclCommGetUniqueId");
	ncclResult_t (*join)(ncclComm_t, int, const ncclUniqueId *, int, ncclComm_t *,
			     ncclConfig_t *) =
		(ncclResult_t(*)(ncclComm_t, int, const ncclUniqueId *, int, ncclComm_t *,
				 ncclConfig_t *))dlsym(RTLD_DEFAULT, "ncclCommGrow");
	int lower = me->rank < me->nr_ranks / 2, last = me->rank == me->nr_ranks - 1;
	ncclComm_t parent = NULL;
	ncclUniqueId id = {{0}};

	if (!get_id || !join)
		exit(EXIT_SKIP);
	if (lower)
		NCCL(ncclCommInitRank(&parent, me->nr_ranks / 2, client_ids[0], me->rank));
	if (!me->rank && strcmp(getenv("GROW"), "no-id"))
		NCCL(get_id(parent, &id));
	if (client_broadcast(&client_job, &id, sizeof(id)))
		return -1;
	if (!strcmp(what, "missing")) {
		stands(me);
		while (last && (!getenv("GO") || access(getenv("GO"), F_OK)))
			usleep(1000);
	}
	NCCL(join(parent, me->nr_ranks, me->rank && lower ? NULL : &id, lower ? -1 : me->rank,
		  &me->comms[0], NULL));
	if (lower && alone)
		NCCL(ncclCommDestroy(parent));
	return 0;
}

static int hang(struct client_rank *me, cudaStream_t s, float *buf)
{
	int last = me->rank == me->nr_ranks - 1, first = 0;
	size_t n = 1000;

	if (!strcmp(what, "missing")) {
		stands(me);
		while (last && (!getenv("GO") || access(getenv("GO"), F_OK)))
			usleep(1000);
		return make(me);
	}
	if (make(me))
		return -1;
	for (int i = split ? 0 : 1; i < 2; i++) {
		NCCL(ncclAllReduce(buf, buf + n, n, ncclFloat, ncclSum, me->comms[i], s));
		if (wait_for(me, s))
			return -1;
	}
	if (last && !strcmp(what, "slow"))
		sleep((unsigned)late);
	if (!strcmp(what, "part"))
		return part(me, s, buf);
	while (last && getenv("GO") && access(getenv("GO"), F_OK))
		usleep(1000);
	stands(me);
	if (last && !strcmp(what, "busy") && idle_stream(me))
		return -1;
	if (last && !strcmp(what, "dead"))
		raise(SIGKILL);
	if (last && !strcmp(what, "left"))
		exit(0);
	if (exits && me->rank % 2 == 0)
		exit(0);
	while ((last && !strcmp(what, "sleeps")) || (split && me->rank % 2 == 0))
		pause();
	if (last && !strcmp(what, "mismatch"))
		n /= 2;
	if (!strcmp(what, "cycle"))
		first = (split ? me->rank / 2 : me->rank) % 2;
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
	if (!grow)
		NCCL(ncclCommInitRank(&me->comms[0], me->nr_ranks, client_ids[0], me->rank));
	else if (grown(me))
		return -1;
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
	split = getenv("SPLIT") != NULL;
	grow = getenv("GROW") != NULL;
	exits = split && !strcmp(getenv("SPLIT"), "exits");
	alone = exits || (split && !strcmp(getenv("SPLIT"), "alone")) ||
		(grow && !strcmp(getenv("GROW"), "alone"));
	return client_main(argc, argv, 2, 2, "Ends in a hang.", run);
}
