/*
 * Unplanned behaviour of jobs, one case at a time: ranks that never arrive or leave early, an id
 * used twice, fork, exit in the middle, communicators that are ended while other threads use them.
 * A case passes if every call returns, with an error that names the reason or with right results.
 */
#include "client.h"

#include <sys/prctl.h>

static const char *wanted;

struct place {
	struct client_rank *me;
	cudaStream_t s;
	float *buf;
};

static int place_open(struct place *p, struct client_rank *me)
{
	p->me = me;
	CUDA(cudaSetDevice(me->device));
	CUDA(cudaStreamCreateWithFlags(&p->s, cudaStreamNonBlocking));
	CUDA(cudaMalloc((void **)&p->buf, 1 << 20));
	return 0;
}

static int place_close(struct place *p)
{
	CUDA(cudaFree(p->buf));
	CUDA(cudaStreamDestroy(p->s));
	return 0;
}

static int meet(void)
{
	return client_barrier_wait(&client_ranks_barrier);
}

/* Executes a collective and checks its result. */
static int sum(struct place *p, ncclComm_t comm)
{
	float in = (float)(p->me->rank + 1), out = 0;
	int n = p->me->nr_ranks;

	CUDA(cudaMemcpyAsync(p->buf, &in, sizeof(in), cudaMemcpyHostToDevice, p->s));
	CUDA(cudaStreamSynchronize(p->s));
	NCCL(ncclAllReduce(p->buf, p->buf + 1, 1, ncclFloat, ncclSum, comm, p->s));
	if (client_wait(p->s, &comm, 1))
		return -1;
	CUDA(cudaMemcpy(&out, p->buf + 1, sizeof(out), cudaMemcpyDeviceToHost));
	EXPECT(out == (float)(n * (n + 1) / 2), "%g", out);
	client_tick();
	return 0;
}

/* Waits until the communicator has an asynchronous error and its stream is idle. */
static int wait_ended(struct place *p, ncclComm_t comm, double limit)
{
	double since = client_now();
	ncclResult_t state = ncclSuccess;

	while (client_now() - since < limit) {
		NCCL(ncclCommGetAsyncError(comm, &state));
		if (state != ncclSuccess && cudaStreamQuery(p->s) == cudaSuccess)
			break;
		usleep(1000);
	}
	EXPECT(state == ncclRemoteError, "state %d after %g s", (int)state, client_now() - since);
	CUDA(cudaStreamQuery(p->s));
	return 0;
}

/* ---- ranks that never arrive, or too often --------------------------------------------------- */

/* One rank never arrives: the time-out's action ends the others' init. */
static int missing(struct place *p)
{
	struct client_rank *me = p->me;
	ncclResult_t r = ncclCommInitRank(&me->comms[0], me->nr_ranks + 1, client_ids[0], me->rank);

	EXPECT(r != ncclSuccess && r != ncclInProgress, "init of %d ranks of %d: %d", me->nr_ranks,
	       me->nr_ranks + 1, (int)r);
	EXPECT(*ncclGetLastError(NULL), "no text for error %d", (int)r);
	me->comms[0] = NULL;
	if (meet())
		return -1;
	NCCL(ncclCommInitRank(&me->comms[0], me->nr_ranks, client_ids[1], me->rank));
	return sum(p, me->comms[0]);
}

/* Waits until the file that RUDE_UNTIL names contains the word, for at most half a minute. */
static void wait_for_word(const char *word)
{
	const char *path = getenv("RUDE_UNTIL");
	char text[4096];
	int turns;

	for (turns = 0; path && turns < 300; turns++) {
		FILE *f = fopen(path, "r");
		size_t n = f ? fread(text, 1, sizeof(text) - 1, f) : 0;

		if (f)
			fclose(f);
		text[n] = 0;
		if (strstr(text, word))
			return;
		usleep(100000);
	}
}

/* One rank arrives after it was reported missing. Then everything works. */
static int late(struct place *p)
{
	struct client_rank *me = p->me;

	if (me->rank == me->nr_ranks - 1)
		wait_for_word("INIT");
	NCCL(ncclCommInitRank(&me->comms[0], me->nr_ranks, client_ids[0], me->rank));
	return sum(p, me->comms[0]);
}

/* An id belongs to one communicator. */
static int twice(struct place *p)
{
	struct client_rank *me = p->me;
	ncclResult_t r;

	NCCL(ncclCommInitRank(&me->comms[0], me->nr_ranks, client_ids[0], me->rank));
	if (sum(p, me->comms[0]) || meet())
		return -1;
	r = ncclCommInitRank(&me->comms[1], me->nr_ranks, client_ids[0], me->rank);
	if (r == ncclSuccess)
		return sum(p, me->comms[1]) || sum(p, me->comms[0]);
	me->comms[1] = NULL;
	EXPECT(*ncclGetLastError(NULL), "no text for error %d", (int)r);
	return sum(p, me->comms[0]);
}

/* Two processes use the same rank number. */
static int same_rank(struct place *p)
{
	struct client_rank *me = p->me;
	int rank = me->rank == me->nr_ranks - 1 ? 0 : me->rank;
	ncclResult_t r = ncclCommInitRank(&me->comms[0], me->nr_ranks, client_ids[0], rank);

	EXPECT(r != ncclSuccess, "two ranks 0 of %d", me->nr_ranks);
	EXPECT(*ncclGetLastError(NULL), "no text for error %d", (int)r);
	me->comms[0] = NULL;
	return 0;
}

/*
 * Issues an AllReduce. ncclRemoteError is accepted, because the communicator may end at any time.
 */
static int issue_until_ended(struct place *p, ncclComm_t comm, size_t count)
{
	ncclResult_t r = ncclAllReduce(p->buf, p->buf + 1, count, ncclFloat, ncclSum, comm, p->s);

	if (r != ncclRemoteError)
		NCCL(r);
	return 0;
}

/* ---- leaving --------------------------------------------------------------------------------- */

/* The last process exits normally although the others still need it. */
static int early(struct place *p)
{
	struct client_rank *me = p->me;
	double since;
	int i;

	NCCL(ncclCommInitRank(&me->comms[0], me->nr_ranks, client_ids[0], me->rank));
	for (i = 0; i < 5; i++)
		if (sum(p, me->comms[0]))
			return -1;
	if (me->rank == me->nr_ranks - 1) {
		NCCL(ncclCommDestroy(me->comms[0]));
		me->comms[0] = NULL;
		return 0;
	}
	since = client_now();
	for (i = 0; i < 3; i++)
		if (issue_until_ended(p, me->comms[0], 100))
			return -1;
	if (wait_ended(p, me->comms[0], 5))
		return -1;
	printf("rude: rank %d: noticed after %.3f s\n", me->rank, client_now() - since);
	NCCL(ncclCommAbort(me->comms[0]));
	me->comms[0] = NULL;
	return 0;
}

/* The process ends with open communicators and unfinished collectives. */
static int leave(struct place *p)
{
	struct client_rank *me = p->me;
	int i;

	for (i = 0; i < 4; i++)
		NCCL(ncclCommInitRank(&me->comms[i], me->nr_ranks, client_ids[i], me->rank));
	if (sum(p, me->comms[0]))
		return -1;
	for (i = 1; i < 4; i++)
		if (issue_until_ended(p, me->comms[1 + (i + me->rank) % 2], 1000))
			return -1;
	if (meet())
		return -1;
	if (!me->index)
		exit(0);
	pause();
	return 0;
}

/* ---- fork ------------------------------------------------------------------------------------ */

static int reap(pid_t pid, int want)
{
	double since = client_now();
	int status = 0;
	pid_t got;

	while (!(got = waitpid(pid, &status, WNOHANG)) && client_now() - since < 10)
		usleep(1000);
	if (!got)
		kill(pid, SIGKILL);
	EXPECT(got == pid, "the child hangs");
	EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == want, "the child's status is %#x",
	       status);
	return 0;
}

#ifdef __SANITIZE_ADDRESS__
int __lsan_is_turned_off(void);

static int in_child;

/*
 * In a forked child the parent's threads are missing, so LeakSanitizer would report memory that
 * only they point to.
 */
int __lsan_is_turned_off(void)
{
	return in_child;
}
#define LEAVE_LEAKS() (in_child = 1)
#else
#define LEAVE_LEAKS() ((void)0)
#endif

static int fork_after(struct place *p)
{
	struct client_rank *me = p->me;
	char *const args[] = {"sh", "-c", "exit 7", NULL};
	ncclUniqueId id;
	ncclResult_t r;
	pid_t pid;
	int i;

	NCCL(ncclCommInitRank(&me->comms[0], me->nr_ranks, client_ids[0], me->rank));
	for (i = 0; i < 3; i++) {
		if (sum(p, me->comms[0]))
			return -1;
		/* An operation is in progress while the process is copied. */
		NCCL(ncclAllReduce(p->buf, p->buf, 1000, ncclFloat, ncclSum, me->comms[0], p->s));
		pid = fork();
		EXPECT(pid >= 0, "fork: %s", strerror(errno));
		if (!pid) {
			LEAVE_LEAKS();
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			if (i == 0) {
				execv("/bin/sh", args);
				_exit(1);
			}
			if (i == 1)
				exit(7); /* runs destructors */
			/*
			 * In the child NCCL calls fail with an error. The parent's objects stay
			 * valid.
			 */
			r = ncclGetUniqueId(&id);
			if (r == ncclSuccess)
				_exit(2);
			r = ncclAllReduce(p->buf, p->buf + 1, 1, ncclFloat, ncclSum, me->comms[0],
					  p->s);
			_exit(r == ncclSuccess ? 3 : 7);
		}
		if (reap(pid, 7))
			return -1;
		CUDA(cudaStreamSynchronize(p->s));
	}
	return sum(p, me->comms[0]);
}

/* ---- other threads --------------------------------------------------------------------------- */

struct worker {
	struct place p;
	ncclComm_t comm;
	int stop;
	ncclResult_t last;
	pthread_t thread;
};

/* Issues collectives until the communicator has ended. */
static void *issue(void *arg)
{
	struct worker *w = arg;
	ncclResult_t r = ncclSuccess;

	cudaSetDevice(w->p.me->device);
	while (r == ncclSuccess && !__atomic_load_n(&w->stop, __ATOMIC_ACQUIRE)) {
		ncclGroupStart();
		r = ncclAllReduce(w->p.buf, w->p.buf + 100, 100, ncclFloat, ncclSum, w->comm,
				  w->p.s);
		if (r == ncclSuccess)
			r = ncclAllReduce(w->p.buf + 200, w->p.buf + 300, 64, ncclFloat, ncclMax,
					  w->comm, w->p.s);
		if (ncclGroupEnd() != ncclSuccess && r == ncclSuccess)
			r = ncclRemoteError;
		usleep(200);
	}
	w->last = r;
	return NULL;
}

/* Creates and destroys other communicators while one is in use. */
static int busy(struct place *p)
{
	struct client_rank *me = p->me;
	struct worker w = {.p = *p};
	struct place mine;
	int i;

	NCCL(ncclCommInitRank(&me->comms[0], me->nr_ranks, client_ids[0], me->rank));
	w.comm = me->comms[0];
	if (place_open(&mine, me) || pthread_create(&w.thread, NULL, issue, &w))
		return -1;
	for (i = 1; i < 6; i++) {
		NCCL(ncclCommInitRank(&me->comms[i], me->nr_ranks, client_ids[i], me->rank));
		if (sum(&mine, me->comms[i]))
			return -1;
		NCCL(ncclCommDestroy(me->comms[i]));
		me->comms[i] = NULL;
	}
	__atomic_store_n(&w.stop, 1, __ATOMIC_RELEASE);
	pthread_join(w.thread, NULL);
	EXPECT(w.last == ncclSuccess, "the busy one ended with %d", (int)w.last);
	/* The ranks stopped at different places, so the communicator can only be aborted. */
	if (meet())
		return -1;
	NCCL(ncclCommAbort(me->comms[0]));
	me->comms[0] = NULL;
	CUDA(cudaStreamSynchronize(p->s));
	return place_close(&mine);
}

static void *sync_stream(void *arg)
{
	struct worker *w = arg;

	cudaSetDevice(w->p.me->device);
	w->last = cudaStreamSynchronize(w->p.s) == cudaSuccess ? ncclSuccess : ncclSystemError;
	return NULL;
}

static void *sync_device(void *arg)
{
	struct worker *w = arg;

	cudaSetDevice(w->p.me->device);
	w->last = cudaDeviceSynchronize() == cudaSuccess ? ncclSuccess : ncclSystemError;
	return NULL;
}

static void *init_alone(void *arg)
{
	struct worker *w = arg;

	cudaSetDevice(w->p.me->device);
	w->last = ncclCommInitRank(&w->comm, w->p.me->nr_ranks + 1, client_ids[7], w->p.me->rank);
	return NULL;
}

/* Another thread aborts, whatever the first one is doing. */
static int abort_all(struct place *p)
{
	static void *(*const doing[])(void *) = {issue, sync_stream, sync_device};
	struct client_rank *me = p->me;
	unsigned i;

	for (i = 0; i < ARRAY_LEN(doing); i++) {
		struct worker w = {.p = *p};

		NCCL(ncclCommInitRank(&me->comms[i], me->nr_ranks, client_ids[i], me->rank));
		w.comm = me->comms[i];
		if (sum(p, w.comm) || meet())
			return -1;
		if (me->rank) /* rank 0 never issues it, so it cannot finish on any rank */
			NCCL(ncclAllReduce(p->buf, p->buf + 1, 5, ncclFloat, ncclSum, w.comm,
					   p->s));
		if (pthread_create(&w.thread, NULL, doing[i], &w))
			return -1;
		usleep(20000 * (useconds_t)(1 + me->rank % 3));
		/*
		 * As in PyTorch, the thread is stopped after the revoke, because it may still use
		 * the handle.
		 */
		NCCL(ncclCommRevoke(me->comms[i], NCCL_REVOKE_DEFAULT));
		__atomic_store_n(&w.stop, 1, __ATOMIC_RELEASE);
		pthread_join(w.thread, NULL);
		NCCL(ncclCommAbort(me->comms[i]));
		me->comms[i] = NULL;
		CUDA(cudaStreamSynchronize(p->s));
		client_tick();
	}
	return 0;
}

/* As abort_all(), but with ncclCommAbort() itself while a synchronisation waits. */
static int abort_sync(struct place *p)
{
	static void *(*const doing[])(void *) = {sync_stream, sync_device};
	struct client_rank *me = p->me;
	unsigned i;

	for (i = 0; i < ARRAY_LEN(doing); i++) {
		struct worker w = {.p = *p};

		NCCL(ncclCommInitRank(&me->comms[i], me->nr_ranks, client_ids[i], me->rank));
		if (sum(p, me->comms[i]) || meet())
			return -1;
		if (me->rank)
			NCCL(ncclAllReduce(p->buf, p->buf + 1, 5, ncclFloat, ncclSum, me->comms[i],
					   p->s));
		if (pthread_create(&w.thread, NULL, doing[i], &w))
			return -1;
		usleep(20000 * (useconds_t)(1 + me->rank % 3));
		NCCL(ncclCommAbort(me->comms[i]));
		me->comms[i] = NULL;
		pthread_join(w.thread, NULL);
		EXPECT(w.last == ncclSuccess, "the synchronisation failed");
		client_tick();
	}
	return 0;
}

/* Aborts while the first message of two ranks waits for a receive that is never issued. */
static int abort_message(struct place *p)
{
	struct client_rank *me = p->me;
	const char *rest = getenv("RUDE_REST_MS");

	NCCL(ncclCommInitRank(&me->comms[0], me->nr_ranks, client_ids[0], me->rank));
	if (sum(p, me->comms[0]) || meet())
		return -1;
	NCCL(ncclSend(p->buf, 5, ncclFloat, (me->rank + 1) % me->nr_ranks, me->comms[0], p->s));
	usleep(100000);
	NCCL(ncclCommAbort(me->comms[0]));
	me->comms[0] = NULL;
	CUDA(cudaStreamSynchronize(p->s));
	if (rest)
		usleep(1000 * (useconds_t)atoi(rest));
	return 0;
}

/* ---- graphs ---------------------------------------------------------------------------------- */

/*
 * Captures sums on the communicators with copies around them, so that the graph is launched as a
 * graph.
 */
static int capture(struct place *p, const ncclComm_t *comms, int nr, cudaGraphExec_t *exec)
{
	cudaGraph_t graph;
	int i;

	CUDA(cudaStreamBeginCapture(p->s, cudaStreamCaptureModeThreadLocal));
	for (i = 0; i < nr; i++) {
		CUDA(cudaMemcpyAsync(p->buf, p->buf + 100, 400, cudaMemcpyDeviceToDevice, p->s));
		NCCL(ncclAllReduce(p->buf, p->buf + 100, 100, ncclFloat, ncclSum, comms[i], p->s));
	}
	CUDA(cudaMemcpyAsync(p->buf, p->buf + 100, 400, cudaMemcpyDeviceToDevice, p->s));
	CUDA(cudaStreamEndCapture(p->s, &graph));
	CUDA(cudaGraphInstantiate(exec, graph, 0));
	CUDA(cudaGraphDestroy(graph));
	return 0;
}

static void wait_until_set(void *arg)
{
	while (!__atomic_load_n((int *)arg, __ATOMIC_ACQUIRE))
		usleep(100);
}

/*
 * Aborts while several replays of one graph wait for peers that never launch theirs; and before the
 * first replay has started.
 */
static int abort_graph(struct place *p)
{
	struct client_rank *me = p->me;
	cudaGraphExec_t exec;
	int late, i, go;

	for (late = 0; late < 2; late++) {
		go = 0;
		NCCL(ncclCommInitRank(&me->comms[late], me->nr_ranks, client_ids[late], me->rank));
		if (sum(p, me->comms[late]) || capture(p, &me->comms[late], 1, &exec) || meet())
			return -1;
		if (late)
			CUDA(cudaLaunchHostFunc(p->s, wait_until_set, &go));
		for (i = 0; i < 5 && !me->rank; i++)
			CUDA(cudaGraphLaunch(exec, p->s));
		usleep(50000);
		NCCL(ncclCommAbort(me->comms[late]));
		me->comms[late] = NULL;
		__atomic_store_n(&go, 1, __ATOMIC_RELEASE);
		CUDA(cudaStreamSynchronize(p->s));
		CUDA(cudaDeviceSynchronize());
		EXPECT(cudaGraphLaunch(exec, p->s) != cudaSuccess,
		       "a graph of an aborted communicator is launched");
		(void)cudaGetLastError();
		CUDA(cudaStreamSynchronize(p->s));
		CUDA(cudaGraphExecDestroy(exec));
		client_tick();
	}
	return 0;
}

/* A graph with two communicators, of which one has ended: no part of it is launched. */
static int half_graph(struct place *p)
{
	struct client_rank *me = p->me;
	cudaGraphExec_t exec;
	int i;

	for (i = 0; i < 2; i++) {
		NCCL(ncclCommInitRank(&me->comms[i], me->nr_ranks, client_ids[i], me->rank));
		if (sum(p, me->comms[i]))
			return -1;
	}
	if (capture(p, me->comms, 2, &exec) || meet())
		return -1;
	NCCL(ncclCommAbort(me->comms[1]));
	me->comms[1] = NULL;
	/* Only one rank launches, so on the others no operation matches what it submits. */
	for (i = 0; i < 3 && !me->rank; i++)
		EXPECT(cudaGraphLaunch(exec, p->s) != cudaSuccess,
		       "a graph of an aborted communicator is launched");
	(void)cudaGetLastError();
	if (sum(p, me->comms[0]))
		return -1;
	CUDA(cudaDeviceSynchronize());
	CUDA(cudaGraphExecDestroy(exec));
	return 0;
}

/* The driver refuses to launch a graph whose sum was already submitted. */
static int lost_graph(struct place *p)
{
	struct client_rank *me = p->me;
	ncclResult_t state;
	cudaGraphExec_t exec;
	int i;

	for (i = 0; i < 2; i++)
		NCCL(ncclCommInitRank(&me->comms[i], me->nr_ranks, client_ids[i], me->rank));
	/*
	 * The ranks of all processes meet on the second communicator, since the failure ends the
	 * first one on all ranks.
	 */
	if (sum(p, me->comms[0]) || capture(p, &me->comms[0], 1, &exec) || sum(p, me->comms[1]))
		return -1;
	EXPECT(cudaGraphLaunch(exec, p->s) != cudaSuccess, "the driver launches it");
	(void)cudaGetLastError();
	CUDA(cudaStreamSynchronize(p->s));
	/*
	 * Wait for the others: a launch after a member has left would be refused before anything is
	 * submitted.
	 */
	if (sum(p, me->comms[1]))
		return -1;
	NCCL(ncclCommGetAsyncError(me->comms[0], &state));
	EXPECT(state != ncclSuccess, "the communicator has not ended");
	NCCL(ncclCommAbort(me->comms[0]));
	me->comms[0] = NULL;
	CUDA(cudaDeviceSynchronize());
	CUDA(cudaGraphExecDestroy(exec));
	return 0;
}

/* A thread whose rendezvous never completes does not disturb the others. */
static int init_stuck(struct place *p)
{
	struct client_rank *me = p->me;
	struct worker w = {.p = *p};
	int i;

	NCCL(ncclCommInitRank(&me->comms[0], me->nr_ranks, client_ids[0], me->rank));
	if (pthread_create(&w.thread, NULL, init_alone, &w))
		return -1;
	for (i = 0; i < 20; i++)
		if (sum(p, me->comms[0]))
			return -1;
	if (meet())
		return -1;
	NCCL(ncclCommDestroy(me->comms[0]));
	me->comms[0] = NULL;
	pthread_join(w.thread, NULL); /* the time-out ends it */
	EXPECT(w.last != ncclSuccess, "an init without one rank succeeded");
	return 0;
}

static const struct {
	const char *name;
	int (*run)(struct place *p);
} cases[] = {
	{"missing", missing},
	{"late", late},
	{"twice", twice},
	{"same-rank", same_rank},
	{"early", early},
	{"leave", leave},
	{"fork", fork_after},
	{"busy", busy},
	{"abort", abort_all},
	{"abort-sync", abort_sync},
	{"stuck", init_stuck},
	{"abort-message", abort_message},
	{"abort-graph", abort_graph},
	{"half-graph", half_graph},
	{"lost-graph", lost_graph},
};

static int run(struct client_rank *me)
{
	struct place p;
	unsigned c;
	int i;

	for (c = 0; c < ARRAY_LEN(cases); c++) {
		if (strcmp(wanted, cases[c].name))
			continue;
		if (place_open(&p, me) || cases[c].run(&p))
			return -1;
		for (i = 0; i < CLIENT_IDS; i++) {
			if (me->comms[i])
				NCCL(ncclCommDestroy(me->comms[i]));
			me->comms[i] = NULL;
		}
		return place_close(&p);
	}
	client_fail(EXIT_USAGE, "no case '%s'", wanted);
	return -1;
}

int main(int argc, char **argv)
{
	wanted = getenv("RUDE_CASE");
	if (!wanted)
		wanted = "";
	return client_main(
		argc, argv, 3, 1,
		"One case of bad manners, named by RUDE_CASE: missing, late, twice, "
		"same-rank, early,\nleave, fork, busy, abort, abort-sync, abort-message, stuck,\n"
		"abort-graph, half-graph, lost-graph.",
		run);
}
