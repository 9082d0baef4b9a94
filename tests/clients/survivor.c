/*
 * A job in which one process ends or stops at some moment, and the fate of the others. All ranks
 * execute collectives with known results, each in its own order, on four communicators, two of them
 * splits. SURVIVOR_HOW is what happens in process SURVIVOR_PROC after SURVIVOR_US microseconds
 * (with SURVIVOR_MADE=1 they start when all ranks have used all communicators):
 *
 *   none               nothing: the job ends by itself
 *   kill exit exec     SIGKILL; exit(0) with everything open; another program replaces it
 *   stop               SIGSTOP, for SURVIVOR_STOP ms; the job then ends by itself
 *   thread             its first rank stops issuing, and stays
 *   fork               a child runs another program, another child exits with destructors; the job
 *                      ends by itself
 *
 * Ranks that are left behind must see ncclRemoteError on each communicator that they use, and their
 * streams must become idle. When they have aborted everything, the process must have as many
 * descriptors and threads as without any communicator. Each process prints its result in one line:
 * "survivor: process 1: ended: ..." or "finished".
 */
#include "client.h"

#define NR_COMMS  4
#define MAX_COUNT 4000
#define REST_S	  30 /* longest time for cleaning up, including a time-out of the checker */

struct work {
	struct client_rank *me;
	ncclComm_t comms[NR_COMMS];
	cudaStream_t streams[NR_COMMS];
	float *bufs[NR_COMMS];
	/* states of random numbers: of this rank, and the same on all ranks */
	uint64_t order, counts;
	float *host;
};

static struct {
	const char *how;
	long us, stop_ms, rounds;
	int here;	  /* it happens in this process */
	int made;	  /* only after all communicators were used */
	int idle;	  /* its first rank must stop issuing */
	pthread_t thread; /* the thread in which it happens */
	int fds, threads; /* numbers of this process without a communicator; 0: not known yet */
} plan;

/* the result of this process: "finished" or "ended: why" */
static const char *_Atomic said = "finished";

static void out_of_memory(void)
{
	fprintf(stderr, "survivor: out of memory\n");
	exit(EXIT_NCCL);
}

static void fork_both(void)
{
	char *const args[] = {"sh", "-c", "exit 0", NULL};
	int status;

	for (int i = 0; i < 2; i++) {
		pid_t pid = fork();

		if (!pid) {
			if (i)
				exit(0);
			execv("/bin/sh", args);
			_exit(1);
		}
		if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
			client_fail(EXIT_WRONG, "a child ended with %#x", status);
	}
}

static void *happen(void *arg)
{
	char *const args[] = {"sh", "-c", "exit 0", NULL};
	pid_t self = getpid();

	(void)arg;
	usleep((useconds_t)plan.us);
	if (!strcmp(plan.how, "kill"))
		raise(SIGKILL);
	else if (!strcmp(plan.how, "exit"))
		exit(0);
	else if (!strcmp(plan.how, "exec"))
		execv("/bin/sh", args);
	else if (!strcmp(plan.how, "thread"))
		__atomic_store_n(&plan.idle, 1, __ATOMIC_RELEASE);
	else if (!strcmp(plan.how, "fork"))
		fork_both();
	else if (!strcmp(plan.how, "stop") && !fork()) {
		/* The child sleeps and then continues its parent. */
		usleep((useconds_t)plan.stop_ms * 1000);
		kill(self, SIGCONT);
		_exit(0);
	} else if (!strcmp(plan.how, "stop")) {
		kill(self, SIGSTOP);
	}
	return NULL;
}

/* A call was refused because a rank has left. Any other error is a failure. */
static int gone(ncclResult_t r, const char *what)
{
	EXPECT(r == ncclRemoteError, "%s: %d, %s (%s)", what, (int)r, ncclGetErrorString(r),
	       ncclGetLastError(NULL));
	EXPECT(strcmp(plan.how, "none"), "%s: nothing has happened to a rank, but: %s", what,
	       ncclGetLastError(NULL));
	said = "ended: ncclRemoteError";
	return 1;
}

#define MAY_END(call)                                                                              \
	do {                                                                                       \
		ncclResult_t r_ = (call);                                                          \
		if (r_ != ncclSuccess)                                                             \
			return gone(r_, #call);                                                    \
	} while (0)

/*
 * Waits for the first n streams. Returns 0 if all are idle, 1 if a communicator has ended, -1 on a
 * failure.
 */
static int wait_all(struct work *w, int n)
{
	struct timespec pause = {0, 20000};
	ncclResult_t state;

	for (;;) {
		int busy = 0, i;

		for (i = 0; i < n; i++) {
			cudaError_t e = cudaStreamQuery(w->streams[i]);

			if (e != cudaErrorNotReady)
				CUDA(e);
			busy += e == cudaErrorNotReady;
		}
		for (i = 0; i < n; i++) {
			NCCL(ncclCommGetAsyncError(w->comms[i], &state));
			if (state != ncclSuccess)
				return gone(state, "ncclCommGetAsyncError");
		}
		if (!busy)
			return 0;
		if (client_failed())
			return -1;
		nanosleep(&pause, NULL);
	}
}

/* Returns 0 if the results are right, 1 if a rank has left, -1 on a failure. */
static int one_round(struct work *w)
{
	int order[NR_COMMS], n = w->me->nr_ranks, i, k, err;
	size_t count[NR_COMMS];

	for (i = 0; i < NR_COMMS; i++) {
		order[i] = i;
		count[i] = 1 + client_random(&w->counts) % MAX_COUNT;
	}
	client_shuffle(order, NR_COMMS, &w->order);
	for (k = 0; k < MAX_COUNT; k++)
		w->host[k] = (float)(w->me->rank + 1 + k % 7);
	for (k = 0; k < NR_COMMS; k++) {
		i = order[k];
		CUDA(cudaMemcpyAsync(w->bufs[i], w->host, count[i] * sizeof(float),
				     cudaMemcpyHostToDevice, w->streams[i]));
		MAY_END(ncclAllReduce(w->bufs[i], w->bufs[i], count[i], ncclFloat, ncclSum,
				      w->comms[i], w->streams[i]));
	}
	err = wait_all(w, NR_COMMS);
	if (err)
		return err;
	for (i = 0; i < NR_COMMS; i++) {
		CUDA(cudaMemcpy(w->host, w->bufs[i], count[i] * sizeof(float),
				cudaMemcpyDeviceToHost));
		for (k = 0; k < (int)count[i]; k++)
			EXPECT(w->host[k] == (float)(n * (n + 1) / 2 + n * (k % 7)),
			       "communicator %d, element %d of %zu: %g", i, k, count[i],
			       w->host[k]);
	}
	client_tick();
	return 0;
}

static int open_comms(struct work *w)
{
	struct client_rank *me = w->me;
	int i;

	for (i = 0; i < NR_COMMS / 2; i++) {
		MAY_END(ncclCommInitRank(&w->comms[i], me->nr_ranks, client_ids[1 + i], me->rank));
		MAY_END(ncclCommSplit(w->comms[i], 0, me->rank, &w->comms[NR_COMMS / 2 + i], NULL));
	}
	return 0;
}

/* Checks that each communicator has ended within REST_S, and that its stream is idle. */
static int all_ended(struct work *w)
{
	struct timespec pause = {0, 1000000};
	double end = client_now() + REST_S;
	ncclResult_t state, r;
	int i;

	for (i = 0; i < NR_COMMS; i++) {
		if (!w->comms[i])
			continue;
		/* If a rank has exited normally, only operations that need it end, so issue one. */
		NCCL(ncclCommGetAsyncError(w->comms[i], &state));
		if (strcmp(plan.how, "exit"))
			state = ncclRemoteError;
		r = state != ncclSuccess ? ncclRemoteError
					 : ncclAllReduce(w->bufs[i], w->bufs[i], 1, ncclFloat,
							 ncclSum, w->comms[i], w->streams[i]);
		if (r != ncclRemoteError)
			NCCL(r);
		do {
			NCCL(ncclCommGetAsyncError(w->comms[i], &state));
			nanosleep(&pause, NULL);
		} while (state == ncclSuccess && client_now() < end);
		EXPECT(state == ncclRemoteError, "communicator %d of %d: state %d after %d s", i,
		       NR_COMMS, (int)state, REST_S);
		CUDA(cudaStreamSynchronize(w->streams[i]));
		client_tick();
	}
	return 0;
}

/* Checks that nothing remains after all ranks have freed everything. */
static int nothing_left(void)
{
	struct timespec pause = {0, 10000000};
	double end = client_now() + REST_S;
	int fds, threads;

	do {
		fds = client_descriptors();
		threads = client_count("/proc/self/task");
		/* Processes keep their links to one another, whichever communicator needed them. */
		if (fds < plan.fds + client_job.nr_procs && threads <= plan.threads)
			return 0;
		nanosleep(&pause, NULL);
	} while (client_now() < end);
	client_fail(EXIT_WRONG, "process %d: descriptors %d -> %d, threads %d -> %d",
		    client_job.proc, plan.fds, fds, plan.threads, threads);
	return -1;
}

static int rounds(struct work *w)
{
	long i;
	int err = open_comms(w);

	for (i = 0; !err && i < plan.rounds; i++) {
		if (!w->me->index && __atomic_load_n(&plan.idle, __ATOMIC_ACQUIRE)) {
			/* Its communicators also end when the others' time-out ends them. */
			said = "ended: it stopped issuing";
			return 1;
		}
		err = one_round(w);
		if (!i && !err && plan.made && plan.here && !w->me->index)
			pthread_create(&plan.thread, NULL, happen, NULL);
	}
	return err;
}

/*
 * Uses one communicator, so that the resources can be counted after its end. Another process may
 * already have finished and ended, while this one still waits for its last operation.
 */
static int first(struct work *w)
{
	struct client_rank *me = w->me;

	MAY_END(ncclCommInitRank(&w->comms[0], me->nr_ranks, client_ids[0], me->rank));
	MAY_END(ncclAllReduce(w->bufs[0], w->bufs[0], 1, ncclFloat, ncclSum, w->comms[0],
			      w->streams[0]));
	return wait_all(w, 1);
}

static int run(struct client_rank *me)
{
	struct work w = {.me = me,
			 .order = client_seed(client_seed_value, 1, (uint64_t)me->rank),
			 .counts = client_seed(client_seed_value, 2, 0)};
	int i, err;

	CUDA(cudaSetDevice(me->device));
	w.host = malloc(MAX_COUNT * sizeof(float));
	if (!w.host)
		out_of_memory();
	for (i = 0; i < NR_COMMS; i++) {
		CUDA(cudaStreamCreateWithFlags(&w.streams[i], cudaStreamNonBlocking));
		CUDA(cudaMalloc((void **)&w.bufs[i], MAX_COUNT * sizeof(float)));
	}
	err = first(&w);
	if (err < 0 || (err && all_ended(&w)))
		return -1;
	NCCL(err ? ncclCommAbort(w.comms[0]) : ncclCommDestroy(w.comms[0]));
	w.comms[0] = NULL;
	if (client_barrier_wait(&client_ranks_barrier))
		return -1;
	if (!me->index) {
		plan.fds = client_descriptors();
		plan.threads = client_count("/proc/self/task");
		if (plan.here && !plan.made)
			pthread_create(&plan.thread, NULL, happen, NULL);
	}
	if (!err)
		err = rounds(&w);
	if (err < 0 || (err && all_ended(&w)))
		return -1;
	for (i = NR_COMMS - 1; i >= 0; i--) {
		if (w.comms[i] && err)
			NCCL(ncclCommAbort(w.comms[i]));
		else if (w.comms[i])
			NCCL(ncclCommDestroy(w.comms[i]));
		CUDA(cudaStreamSynchronize(w.streams[i]));
		CUDA(cudaFree(w.bufs[i]));
		CUDA(cudaStreamDestroy(w.streams[i]));
	}
	free(w.host);
	if (client_barrier_wait(&client_ranks_barrier))
		return -1;
	if (me->index)
		return 0;
	if (plan.here && strcmp(plan.how, "thread"))
		pthread_join(plan.thread, NULL);
	if (nothing_left())
		return -1;
	printf("survivor: process %d: %s\n", client_job.proc, said);
	fflush(stdout);
	return 0;
}

int main(int argc, char **argv)
{
	int status;

	plan.how = getenv("SURVIVOR_HOW") ?: "none";
	plan.us = client_env_int("SURVIVOR_US", NULL, 100000);
	plan.stop_ms = client_env_int("SURVIVOR_STOP", NULL, 1000);
	plan.rounds = client_env_int("SURVIVOR_ROUNDS", NULL, 100);
	plan.made = client_env_int("SURVIVOR_MADE", NULL, 0);
	plan.here = strcmp(plan.how, "none") &&
		    client_env_int("SURVIVOR_PROC", NULL, 0) == client_env_int("RANK", NULL, 0);
	status = client_main(
		argc, argv, 4, 2,
		"One process ends or stops (SURVIVOR_HOW, _PROC, _US); the others see it, and keep "
		"nothing.",
		run);
	/* Process 0, which prints failures, may be the one that has ended. */
	if (status && client_job.proc)
		fprintf(stderr, "survivor: process %d: %s\n", client_job.proc, client_text);
	return status;
}
