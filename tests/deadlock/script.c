/*
 * Executes scripts (script.h): a plain NCCL and CUDA runtime program, with nothing of dfshim in it. Ranks are
 * threads of one process, or with `procs` a process each; every rank has a device. Streams, events, graphs and
 * buffers are a rank's own. A file may hold many programs; they are executed one after the other.
 *
 * What is not a wait in the script is not one here: the end of the program polls the streams and the
 * communicators' asynchronous errors; `hw` and `hbar` are locks between processes. Those that are waits there are the real calls.
 *
 * On standard error: "=== NAME" before a program and "--- NAME completes|hung|wrong|error TEXT" after it.
 * Exit status: that of the worst program (0 completes, 1 wrong, 2 usage, 3 NCCL or CUDA error: what a hang
 * that was broken off looks like, 4 no progress).
 */
#define _GNU_SOURCE
#include "../clients/client.h"
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include "oracle.h"

#define NR_WORDS 256

struct shared {
	uint32_t failed, arrived[4];
	uint32_t flags[NR_WORDS];
	uint32_t turn; /* futex word: flags or bars have changed */
	uint64_t bars[NR_WORDS];
};

struct rank {
	struct script *s;
	struct oracle *o;
	int rank, device;
	ncclComm_t *comms;
	cudaStream_t *streams, warm;
	cudaEvent_t *events;
	cudaGraph_t *graphs;
	cudaGraphExec_t *execs;
	uint32_t **bufs;
	size_t *sizes; /* elements */
	void *scratch[2], *pinned[16], *registered;
	int nr_pinned, gone;
	pthread_t thread;
};

struct thread_arg {
	struct rank *me;
	int thread;
	pthread_t id;
};

static struct shared *shared;
static struct client_job job;
static ncclUniqueId *ids;
static uint32_t over; /* the program is over: what was stuck ends */
static int max_status;
static pthread_mutex_t oracle_lock = PTHREAD_MUTEX_INITIALIZER;

static int failed(void)
{
	if (client_failed())
		__atomic_store_n(&shared->failed, 1, __ATOMIC_RELAXED);
	else if (__atomic_load_n(&shared->failed, __ATOMIC_RELAXED))
		client_fail(EXIT_NCCL, "another process has failed");
	return client_failed();
}

static void nap(void)
{
	struct timespec pause = {0, 100000};

	nanosleep(&pause, NULL);
}

/* All ranks; leaves when the job has failed. */
static int meet(struct rank *me, int which, int wait)
{
	__atomic_add_fetch(&shared->arrived[which], 1, __ATOMIC_ACQ_REL);
	while (wait && __atomic_load_n(&shared->arrived[which], __ATOMIC_ACQUIRE) <
			       (uint32_t)me->s->nr_ranks) {
		if (failed())
			return -1;
		sched_yield();
		nap();
	}
	client_tick();
	return 0;
}

static int async_errors(struct rank *me)
{
	ncclResult_t state;
	int i;

	for (i = 0; i < me->s->comm.nr; i++) {
		ncclComm_t comm = __atomic_load_n(&me->comms[i], __ATOMIC_ACQUIRE);

		if (!comm)
			continue;
		NCCL(ncclCommGetAsyncError(comm, &state));
		if (state != ncclSuccess && state != ncclInProgress) {
			client_fail(EXIT_NCCL,
				    "rank %d communicator %s: asynchronous NCCL error %d: %s",
				    me->rank, me->s->comm.v[i], (int)state,
				    ncclGetErrorString(state));
			return -1;
		}
	}
	return 0;
}

static int poll_stream(struct rank *me, cudaStream_t stream)
{
	double next = client_now() + 0.01;
	cudaError_t err;
	int spins = 0;

	while ((err = cudaStreamQuery(stream)) == cudaErrorNotReady) {
		if (failed())
			return -1;
		if (++spins < 64) {
			sched_yield();
			continue;
		}
		nap();
		if (client_now() >= next) {
			if (async_errors(me))
				return -1;
			next = client_now() + 0.01;
		}
	}
	CUDA(err);
	client_tick();
	return async_errors(me);
}

static int poll_event(struct rank *me, cudaEvent_t event)
{
	cudaError_t err;

	while ((err = cudaEventQuery(event)) == cudaErrorNotReady) {
		if (failed() || async_errors(me))
			return -1;
		nap();
	}
	CUDA(err);
	client_tick();
	return async_errors(me);
}

/* ---- steps --------------------------------------------------------------------------------------------- */

static const ncclDataType_t types[] = {ncclInt32, ncclFloat32, ncclBfloat16, ncclInt8};
static const ncclRedOp_t redops[] = {ncclSum, ncclMax, ncclAvg};

static int collective(struct rank *me, const struct sc_step *st)
{
	void *in = me->bufs[st->in], *out = me->bufs[st->out];
	ncclComm_t comm = me->comms[st->comm];
	cudaStream_t stream = me->streams[st->stream];
	ncclDataType_t type = types[st->type];
	ncclRedOp_t op = redops[st->redop];

	switch (st->coll) {
	case SC_AR:
		NCCL(ncclAllReduce(in, out, st->count, type, op, comm, stream));
		break;
	case SC_BC:
		NCCL(ncclBroadcast(in, out, st->count, type, 0, comm, stream));
		break;
	case SC_RED:
		NCCL(ncclReduce(in, out, st->count, type, op, 0, comm, stream));
		break;
	case SC_AG:
		NCCL(ncclAllGather(in, out, st->count, type, comm, stream));
		break;
	case SC_RS:
		NCCL(ncclReduceScatter(in, out, st->count, type, op, comm, stream));
		break;
	default:
		NCCL(ncclAlltoAll(in, out, st->count, type, comm, stream));
	}
	return 0;
}

static int point_to_point(struct rank *me, const struct sc_step *st)
{
	int peer = sc_comm_rank(&me->s->comms[st->comm], st->peer);

	if (st->kind == SC_SEND)
		NCCL(ncclSend(me->bufs[st->in], st->count, types[st->type], peer,
			      me->comms[st->comm], me->streams[st->stream]));
	else
		NCCL(ncclRecv(me->bufs[st->in], st->count, types[st->type], peer,
			      me->comms[st->comm], me->streams[st->stream]));
	return 0;
}

static void CUDART_CB host_nothing(void *arg)
{
	(void)arg;
}

static void CUDART_CB host_stuck(void *arg)
{
	(void)arg;
	while (!__atomic_load_n(&over, __ATOMIC_ACQUIRE) && !client_failed())
		nap();
}

static int work(struct rank *me, const struct sc_step *st)
{
	if (st->out >= 0)
		CUDA(cudaMemcpyAsync(me->bufs[st->out], me->bufs[st->in], st->count * 4,
				     cudaMemcpyDefault, me->streams[st->stream]));
	else
		CUDA(cudaMemcpyAsync(me->scratch[1], me->scratch[0], 64, cudaMemcpyDeviceToDevice,
				     me->streams[st->stream]));
	return 0;
}

static int compare(struct rank *me, int thread, int step, int buf, const uint32_t *have, size_t n,
		   const char *what)
{
	uint32_t *want = malloc((n + 1) * 4);
	size_t i;
	int known;

	pthread_mutex_lock(&oracle_lock);
	known = !or_before(me->o, me->rank, thread, step, buf, n, want);
	pthread_mutex_unlock(&oracle_lock);
	for (i = 0; known && i < n && have[i] == want[i]; i++)
		;
	if (known && i < n)
		client_fail(
			EXIT_WRONG,
			"rank %d thread %d step %d, %s of buffer %s: element %zu of %zu is %#x, not %#x",
			me->rank, thread, step, what, me->s->buf.v[buf], i, n, have[i], want[i]);
	free(want);
	return known && i < n ? -1 : 0;
}

static int look(struct rank *me, int thread, int step)
{
	const struct sc_step *st = &me->s->threads[me->rank][thread].v[step];
	size_t n = st->count;
	uint32_t *host = malloc(n * 4);
	int ret;

	if (st->kind == SC_PEEK)
		memcpy(host, me->bufs[st->in], n * 4);
	else
		CUDA(cudaMemcpy(host, me->bufs[st->in], n * 4, cudaMemcpyDeviceToHost));
	/* What an ended communicator leaves behind is not compared. */
	ret = async_errors(me);
	if (!ret)
		ret = compare(me, thread, step, st->in, host, n,
			      st->kind == SC_PEEK ? "peek" : "read");
	free(host);
	return ret;
}

static int implicit_sync(struct rank *me, const struct sc_step *st)
{
	static _Thread_local char page[4096];
	void *p;

	switch (st->kind) {
	case SC_FREE:
		CUDA(cudaMalloc(&p, 4096));
		CUDA(cudaFree(p));
		break;
	case SC_HALLOC:
		CUDA(cudaHostAlloc(&p, 4096, 0));
		if (me->nr_pinned < 16)
			me->pinned[me->nr_pinned++] = p;
		break;
	case SC_HREG:
		if (!me->registered) {
			me->registered = aligned_alloc(4096, 8192);
			CUDA(cudaHostRegister(me->registered, 8192, 0));
		}
		break;
	default:
		CUDA(cudaMemcpy(me->scratch[0], page, sizeof(page), cudaMemcpyHostToDevice));
	}
	return async_errors(me);
}

/* A wait for another host, as a lock between processes is: the kernel knows that we wait, nobody what for. */
static void host_wait(uint32_t seen)
{
	struct timespec pause = {0, 200000000};

	syscall(SYS_futex, &shared->turn, FUTEX_WAIT, seen, &pause, NULL, 0);
}

static void host_wake(void)
{
	__atomic_add_fetch(&shared->turn, 1, __ATOMIC_SEQ_CST);
	syscall(SYS_futex, &shared->turn, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

static int host_step(struct rank *me, const struct sc_step *st)
{
	uint64_t want = st->members;
	uint32_t turn;

	switch (st->kind) {
	case SC_HS:
		__atomic_store_n(&shared->flags[st->object], 1, __ATOMIC_RELEASE);
		host_wake();
		return 0;
	case SC_HBAR:
		__atomic_or_fetch(&shared->bars[st->object], 1ULL << me->rank, __ATOMIC_ACQ_REL);
		host_wake();
		for (;;) {
			turn = __atomic_load_n(&shared->turn, __ATOMIC_SEQ_CST);
			if ((__atomic_load_n(&shared->bars[st->object], __ATOMIC_ACQUIRE) & want) ==
			    want)
				return 0;
			if (failed() || async_errors(me))
				return -1;
			host_wait(turn);
		}
	case SC_HW:
		for (;;) {
			turn = __atomic_load_n(&shared->turn, __ATOMIC_SEQ_CST);
			if (__atomic_load_n(&shared->flags[st->object], __ATOMIC_ACQUIRE))
				return 0;
			if (failed() || async_errors(me))
				return -1;
			host_wait(turn);
		}
	case SC_SLEEP:
		usleep((useconds_t)st->count * 1000);
		return 0;
	default: /* spin */
		while (!failed() && !async_errors(me))
			nap();
		return -1;
	}
}

static int comm_init(struct rank *me, int c)
{
	ncclComm_t comm = NULL;

	NCCL(ncclCommInitRank(&comm, me->s->comms[c].nr, ids[c],
			      sc_comm_rank(&me->s->comms[c], me->rank)));
	__atomic_store_n(&me->comms[c], comm, __ATOMIC_RELEASE);
	return 0;
}

static int comm_step(struct rank *me, const struct sc_step *st)
{
	ncclComm_t comm = me->comms[st->comm];

	switch (st->kind) {
	case SC_INIT:
		return comm_init(me, st->comm);
	case SC_SPLIT:
		NCCL(ncclCommSplit(comm,
				   sc_comm_rank(&me->s->comms[st->comm2], me->rank) < 0
					   ? NCCL_SPLIT_NOCOLOR
					   : 0,
				   me->rank, &comm, NULL));
		__atomic_store_n(&me->comms[st->comm2], comm, __ATOMIC_RELEASE);
		return 0;
	default:
		__atomic_store_n(&me->comms[st->comm], NULL, __ATOMIC_RELEASE);
		NCCL(ncclCommDestroy(comm));
		return 0;
	}
}

/* 0, -1 failed, 1 the thread ends here. */
static int execute(struct rank *me, int thread, int step)
{
	const struct sc_step *st = &me->s->threads[me->rank][thread].v[step];
	cudaStream_t stream = me->streams[st->stream];

	switch (st->kind) {
	case SC_COLL:
		return collective(me, st);
	case SC_SEND:
	case SC_RECV:
		return point_to_point(me, st);
	case SC_OPEN:
		NCCL(ncclGroupStart());
		return 0;
	case SC_CLOSE:
		NCCL(ncclGroupEnd());
		return 0;
	case SC_WORK:
		return work(me, st);
	case SC_FN:
		CUDA(cudaLaunchHostFunc(stream, host_nothing, NULL));
		return 0;
	case SC_STUCK:
		CUDA(cudaLaunchHostFunc(stream, host_stuck, NULL));
		return 0;
	case SC_LEGACY:
		CUDA(cudaMemcpyAsync(me->scratch[1], me->scratch[0], 64, cudaMemcpyDeviceToDevice,
				     NULL));
		return 0;
	case SC_REC:
		CUDA(cudaEventRecord(me->events[st->object], stream));
		return 0;
	case SC_WAIT:
		CUDA(cudaStreamWaitEvent(stream, me->events[st->object], 0));
		return 0;
	case SC_ESYNC:
		CUDA(cudaEventSynchronize(me->events[st->object]));
		return async_errors(me);
	case SC_EPOLL:
		return poll_event(me, me->events[st->object]);
	case SC_SSYNC:
		CUDA(cudaStreamSynchronize(stream));
		return async_errors(me);
	case SC_SPOLL:
		return poll_stream(me, stream);
	case SC_DSYNC:
		CUDA(cudaDeviceSynchronize());
		return async_errors(me);
	case SC_FREE:
	case SC_HALLOC:
	case SC_HREG:
	case SC_HCOPY:
		return implicit_sync(me, st);
	case SC_HS:
	case SC_HW:
	case SC_HBAR:
	case SC_SPIN:
	case SC_SLEEP:
		return host_step(me, st);
	case SC_INIT:
	case SC_SPLIT:
	case SC_DESTROY:
		return comm_step(me, st);
	case SC_EXIT:
		if (me->s->procs)
			exit(0);
		me->gone = 1;
		return 1;
	case SC_KILL:
		kill(getpid(), SIGKILL);
		return -1;
	case SC_CAP:
		CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
		return 0;
	case SC_ENDCAP:
		CUDA(cudaStreamEndCapture(stream, &me->graphs[st->object]));
		CUDA(cudaGraphInstantiate(&me->execs[st->object], me->graphs[st->object], 0));
		return 0;
	case SC_LAUNCH:
		CUDA(cudaGraphLaunch(me->execs[st->object], stream));
		return 0;
	case SC_READ:
	case SC_PEEK:
		return look(me, thread, step);
	}
	return -1;
}

static void *run_thread(void *arg)
{
	struct thread_arg *a = arg;
	const struct sc_thread *t = &a->me->s->threads[a->me->rank][a->thread];
	int i;

	if (cudaSetDevice(a->me->device) != cudaSuccess)
		client_fail(EXIT_NCCL, "cudaSetDevice(%d)", a->me->device);
	for (i = 0; i < t->nr && !failed(); i++) {
		if (execute(a->me, a->thread, i))
			break;
		client_tick();
	}
	return NULL;
}

/* ---- a rank ------------------------------------------------------------------------------------------------ */

static void sizes(struct rank *me)
{
	struct script *s = me->s;
	int t, i;

	for (t = 0; t < s->nr_threads[me->rank]; t++)
		for (i = 0; i < s->threads[me->rank][t].nr; i++) {
			const struct sc_step *st = &s->threads[me->rank][t].v[i];
			size_t r = or_reads(s, st), w = or_writes(s, st, me->rank);

			if (st->in >= 0 && me->sizes[st->in] < r)
				me->sizes[st->in] = r;
			if (st->out >= 0 && me->sizes[st->out] < w)
				me->sizes[st->out] = w;
			if (st->out >= 0 && st->kind == SC_COLL && me->sizes[st->out] < st->count)
				me->sizes[st->out] = st->count;
		}
}

static int buffers(struct rank *me)
{
	struct script *s = me->s;
	uint32_t *host;
	size_t k, most = 1;
	int i;

	sizes(me);
	for (i = 0; i < s->buf.nr; i++)
		most = me->sizes[i] > most ? me->sizes[i] : most;
	host = malloc(most * 4);
	for (i = 0; i < s->buf.nr; i++) {
		if (!me->sizes[i])
			continue;
		for (k = 0; k < me->sizes[i]; k++)
			host[k] = or_init(me->rank, i, k);
		if (s->pinned[i]) {
			CUDA(cudaHostAlloc((void **)&me->bufs[i], me->sizes[i] * 4, 0));
			memcpy(me->bufs[i], host, me->sizes[i] * 4);
		} else {
			CUDA(cudaMalloc((void **)&me->bufs[i], me->sizes[i] * 4));
			CUDA(cudaMemcpy(me->bufs[i], host, me->sizes[i] * 4,
					cudaMemcpyHostToDevice));
		}
	}
	free(host);
	CUDA(cudaMalloc(&me->scratch[0], 4096));
	CUDA(cudaMalloc(&me->scratch[1], 4096));
	return 0;
}

static int uses_stream(const struct sc_step *st)
{
	switch (st->kind) {
	case SC_COLL:
	case SC_SEND:
	case SC_RECV:
	case SC_WORK:
	case SC_FN:
	case SC_STUCK:
	case SC_REC:
	case SC_WAIT:
	case SC_SSYNC:
	case SC_SPOLL:
	case SC_CAP:
	case SC_ENDCAP:
	case SC_LAUNCH:
		return 1;
	default:
		return 0;
	}
}

static int setup(struct rank *me)
{
	struct script *s = me->s;
	int i, t;

	me->comms = calloc((size_t)s->comm.nr + 1, sizeof(*me->comms));
	me->streams = calloc((size_t)s->stream.nr + 1, sizeof(*me->streams));
	me->events = calloc((size_t)s->event.nr + 1, sizeof(*me->events));
	me->graphs = calloc((size_t)s->graph.nr + 1, sizeof(*me->graphs));
	me->execs = calloc((size_t)s->graph.nr + 1, sizeof(*me->execs));
	me->bufs = calloc((size_t)s->buf.nr + 1, sizeof(*me->bufs));
	me->sizes = calloc((size_t)s->buf.nr + 1, sizeof(*me->sizes));
	CUDA(cudaSetDevice(me->device));
	for (t = 0; t < s->nr_threads[me->rank]; t++)
		for (i = 0; i < s->threads[me->rank][t].nr; i++) {
			const struct sc_step *st = &s->threads[me->rank][t].v[i];

			if (!uses_stream(st) || me->streams[st->stream])
				continue;
			CUDA(cudaStreamCreateWithFlags(&me->streams[st->stream],
						       strncmp(s->stream.v[st->stream], "nb", 2)
							       ? cudaStreamDefault
							       : cudaStreamNonBlocking));
		}
	for (i = 0; i < s->event.nr; i++)
		CUDA(cudaEventCreateWithFlags(&me->events[i], cudaEventDisableTiming));
	if (buffers(me))
		return -1;
	for (i = 0; i < s->comm.nr; i++)
		if (!s->comms[i].late && sc_comm_rank(&s->comms[i], me->rank) >= 0 &&
		    comm_init(me, i))
			return -1;
	/* The set-up of connections is no part of the program. */
	if (!s->cold) {
		CUDA(cudaStreamCreateWithFlags(&me->warm, cudaStreamNonBlocking));
		for (i = 0; i < s->comm.nr; i++) {
			if (!me->comms[i])
				continue;
			NCCL(ncclAllReduce(me->scratch[0], me->scratch[1], 1, ncclInt8, ncclMax,
					   me->comms[i], me->warm));
			if (poll_stream(me, me->warm))
				return -1;
		}
	}
	return 0;
}

/* What the program has left in its buffers. */
static int verify(struct rank *me)
{
	struct script *s = me->s;
	int b, t, i;

	for (b = 0; b < s->buf.nr; b++) {
		int thread = -1;
		size_t n = 0;
		uint32_t *host;
		cudaError_t err;

		for (t = 0; t < s->nr_threads[me->rank]; t++)
			for (i = 0; i < s->threads[me->rank][t].nr; i++) {
				const struct sc_step *st = &s->threads[me->rank][t].v[i];

				if (st->out == b && or_writes(s, st, me->rank)) {
					thread = t;
					n = or_writes(s, st, me->rank);
				}
			}
		if (thread < 0)
			continue;
		host = malloc(n * 4);
		err = cudaMemcpy(host, me->bufs[b], n * 4, cudaMemcpyDefault);
		if (err == cudaSuccess)
			compare(me, thread, s->threads[me->rank][thread].nr, b, host, n, "end");
		free(host);
		CUDA(err);
		if (client_failed())
			return -1;
	}
	return 0;
}

static int teardown(struct rank *me)
{
	struct script *s = me->s;
	int i, bad = client_failed() || me->gone;

	__atomic_store_n(&over, 1, __ATOMIC_RELEASE);
	for (i = 0; i < s->comm.nr; i++) {
		if (!me->comms[i])
			continue;
		if (bad)
			ncclCommAbort(me->comms[i]);
		else
			NCCL(ncclCommDestroy(me->comms[i]));
	}
	for (i = 0; i < s->graph.nr; i++) {
		if (me->execs[i])
			CUDA(cudaGraphExecDestroy(me->execs[i]));
		if (me->graphs[i])
			CUDA(cudaGraphDestroy(me->graphs[i]));
	}
	for (i = 0; i < s->stream.nr; i++)
		if (me->streams[i])
			CUDA(cudaStreamDestroy(me->streams[i]));
	if (me->warm)
		CUDA(cudaStreamDestroy(me->warm));
	for (i = 0; i < s->event.nr; i++)
		if (me->events[i])
			CUDA(cudaEventDestroy(me->events[i]));
	for (i = 0; i < s->buf.nr; i++)
		if (me->bufs[i])
			CUDA(s->pinned[i] ? cudaFreeHost(me->bufs[i]) : cudaFree(me->bufs[i]));
	for (i = 0; i < me->nr_pinned; i++)
		CUDA(cudaFreeHost(me->pinned[i]));
	if (me->registered)
		CUDA(cudaHostUnregister(me->registered));
	free(me->registered);
	CUDA(cudaFree(me->scratch[0]));
	CUDA(cudaFree(me->scratch[1]));
	free(me->comms);
	free(me->streams);
	free(me->events);
	free(me->graphs);
	free(me->execs);
	free(me->bufs);
	free(me->sizes);
	return 0;
}

static void *run_rank(void *arg)
{
	struct rank *me = arg;
	struct script *s = me->s;
	struct thread_arg a[SC_THREADS];
	int t, i, ret = setup(me);

	if (!ret)
		ret = meet(me, 0, 1);
	for (t = 0; t < SC_THREADS; t++) {
		a[t].me = me;
		a[t].thread = t;
	}
	for (t = 1; !ret && t < s->nr_threads[me->rank]; t++)
		pthread_create(&a[t].id, NULL, run_thread, &a[t]);
	if (!ret) {
		run_thread(&a[0]);
		for (t = 1; t < s->nr_threads[me->rank]; t++)
			pthread_join(a[t].id, NULL);
	}
	if (!me->gone) {
		for (i = 0; i < s->stream.nr && !failed(); i++)
			if (me->streams[i] && poll_stream(me, me->streams[i]))
				break;
	}
	/* Nobody leaves before all are through, and nobody is waited for who has gone. */
	if (!meet(me, 1, 1) && !me->gone && !failed())
		verify(me);
	meet(me, 2, !failed());
	teardown(me);
	return NULL;
}

/* ---- a program ----------------------------------------------------------------------------------------------- */

static void run(struct script *s)
{
	struct rank *ranks = calloc((size_t)s->nr_ranks, sizeof(*ranks));
	struct oracle o;
	static const char *const words[] = {"completes", "wrong", "error", "hung", "hung"};
	int i, nr_devices = 0;

	dprintf(2, "=== %s\n", s->name);
	client_status = 0;
	client_text[0] = 0;
	over = 0;
	if (job.nr_procs == 1)
		memset(shared, 0, sizeof(*shared));
	or_open(&o, s);
	if (cudaGetDeviceCount(&nr_devices) != cudaSuccess || !nr_devices)
		client_fail(EXIT_NCCL, "no CUDA device");
	ids = calloc((size_t)s->comm.nr + 1, sizeof(*ids));
	for (i = 0; i < s->comm.nr && !job.proc; i++)
		if (ncclGetUniqueId(&ids[i]) != ncclSuccess)
			client_fail(EXIT_NCCL, "ncclGetUniqueId: %s", ncclGetLastError(NULL));
	client_broadcast(&job, ids, (size_t)s->comm.nr * sizeof(*ids));
	for (i = 0; i < job.nr_local_ranks && !client_failed(); i++) {
		ranks[i].s = s;
		ranks[i].o = &o;
		ranks[i].rank = job.first_rank + i;
		ranks[i].device = ranks[i].rank % nr_devices;
		pthread_create(&ranks[i].thread, NULL, run_rank, &ranks[i]);
	}
	while (i-- > 0)
		pthread_join(ranks[i].thread, NULL);
	failed();
	or_close(&o);
	free(ids);
	free(ranks);
	dprintf(2, "--- %s %s %s\n", s->name, words[client_status > 4 ? 2 : client_status],
		client_text);
	if (client_status > max_status)
		max_status = client_status;
}

/* What hosts tell each other, between processes too. */
static void share(void)
{
	const char *port = getenv("MASTER_PORT");
	char path[64];
	int fd = -1;

	if (job.nr_procs > 1) {
		snprintf(path, sizeof(path), "/dev/shm/script.%d.%s", (int)getuid(),
			 port ? port : "0");
		if (!job.proc) {
			unlink(path);
			fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
			if (fd >= 0 && ftruncate(fd, sizeof(*shared)))
				fd = -1;
		}
		client_broadcast(&job, &max_status, sizeof(max_status));
		if (job.proc)
			fd = open(path, O_RDWR);
		if (fd < 0) {
			perror(path);
			exit(EXIT_NCCL);
		}
	}
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
		      fd >= 0 ? MAP_SHARED : MAP_SHARED | MAP_ANONYMOUS, fd, 0);
	if (shared == MAP_FAILED) {
		perror("mmap");
		exit(EXIT_NCCL);
	}
	if (fd < 0)
		return;
	close(fd);
	__atomic_add_fetch(&shared->arrived[3], 1, __ATOMIC_ACQ_REL);
	while (!job.proc &&
	       __atomic_load_n(&shared->arrived[3], __ATOMIC_ACQUIRE) < (uint32_t)job.nr_procs)
		nap();
	if (!job.proc)
		unlink(path);
}

int main(int argc, char **argv)
{
	struct script s;
	double timeout = 20;
	FILE *f = NULL;
	int ret, opened = 0;

	if (argc > 2 && !strcmp(argv[1], "--timeout")) {
		timeout = atof(argv[2]);
		f = argc > 3 ? fopen(argv[3], "r") : NULL;
	} else if (argc > 1 && strcmp(argv[1], "--help")) {
		f = fopen(argv[1], "r");
	}
	if (!f) {
		fprintf(stderr, "usage: script [--timeout SECONDS] FILE\n");
		return EXIT_USAGE;
	}
	client_timeout(timeout);
	while ((ret = sc_read(f, &s)) > 0) {
		if (!*s.name)
			snprintf(s.name, sizeof(s.name), "program");
		if (s.event.nr + s.flag.nr + s.bar.nr > NR_WORDS || (opened && s.procs)) {
			fprintf(stderr, "%s: too large, or a process each in a file of many\n",
				s.name);
			return EXIT_USAGE;
		}
		if (s.procs || !opened) {
			if (client_job_open(&job, s.nr_ranks, s.procs ? s.nr_ranks : 0, argv)) {
				fprintf(stderr, "script: %s\n", client_text);
				return EXIT_NCCL;
			}
			share();
		}
		opened = 1;
		job.nr_ranks = s.nr_ranks;
		job.nr_local_ranks = s.nr_ranks / job.nr_procs;
		job.first_rank = job.proc * job.nr_local_ranks;
		run(&s);
		sc_free(&s);
	}
	fclose(f);
	if (ret < 0) {
		fprintf(stderr, "script: %s\n", s.error);
		return EXIT_USAGE;
	}
	return max_status;
}
