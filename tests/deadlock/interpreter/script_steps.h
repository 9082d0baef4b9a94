/*
 * Executes the steps of a script as calls of NCCL and the CUDA runtime, and declares the objects of
 * a rank. Part of the interpreter (script.c).
 */
#ifndef DEADLOCK_SCRIPT_STEPS_H
#define DEADLOCK_SCRIPT_STEPS_H

#include "../../clients/client.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include "oracle.h"
#include "script_threads.h"

#define NR_WORDS 256

struct shared {
	uint32_t failed, arrived[4];
	uint32_t flags[NR_WORDS];
	uint32_t turn; /* futex word; every change of flags or bars increments it */
	uint64_t bars[NR_WORDS];
};

struct rank {
	struct script *s;
	struct oracle *o;
	int rank, device;
	ncclComm_t *comms;
	cudaStream_t *streams, warm, far;
	cudaEvent_t *events;
	cudaGraph_t *graphs;
	cudaGraphExec_t *execs;
	uint32_t **bufs;
	size_t *sizes; /* in elements */
	void *scratch[2], *pinned[16], *registered;
	int nr_pinned, gone, returned;
	pthread_t thread;
	struct thread_arg *args; /* one for each thread of the rank */
};

struct thread_arg {
	struct rank *me;
	int thread, started;
	pthread_t id;
};

static struct shared *shared;
static struct client_job job;
static ncclUniqueId *ids;
static uint32_t over; /* the program is over: host functions that are stuck return */
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

/*
 * Sleeps. `turns` counts the naps of this wait. Later naps are longer, so that a job that hangs
 * uses little CPU.
 */
static void nap(unsigned *turns)
{
	struct timespec pause = {0, 100000L << (*turns < 8 ? *turns : 8)};

	++*turns;
	nanosleep(&pause, NULL);
}

/*
 * A barrier of all ranks. Arrives, and if `wait` is set waits for the others. Returns -1 if the job
 * has failed.
 */
static int meet(struct rank *me, int which, int wait)
{
	unsigned turns = 0;

	__atomic_add_fetch(&shared->arrived[which], 1, __ATOMIC_ACQ_REL);
	while (wait && __atomic_load_n(&shared->arrived[which], __ATOMIC_ACQUIRE) <
			       (uint32_t)me->s->nr_ranks) {
		if (failed())
			return -1;
		sched_yield();
		nap(&turns);
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
	unsigned turns = 0;
	cudaError_t err;
	int spins = 0;

	while ((err = cudaStreamQuery(stream)) == cudaErrorNotReady) {
		if (failed())
			return -1;
		if (++spins < 8) {
			sched_yield();
			continue;
		}
		nap(&turns);
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

static int poll_any(cudaStream_t a, cudaStream_t b)
{
	unsigned turns = 0;
	cudaError_t err;

	while ((err = cudaStreamQuery(a)) == cudaErrorNotReady &&
	       (err = cudaStreamQuery(b)) == cudaErrorNotReady) {
		if (failed())
			return -1;
		nap(&turns);
	}
	CUDA(err);
	client_tick();
	return 0;
}

static int poll_event(struct rank *me, cudaEvent_t event)
{
	unsigned turns = 0;
	cudaError_t err;

	while ((err = cudaEventQuery(event)) == cudaErrorNotReady) {
		if (failed() || async_errors(me))
			return -1;
		nap(&turns);
	}
	CUDA(err);
	client_tick();
	return async_errors(me);
}

/* A call on a non-blocking communicator may return ncclInProgress. */
#define STARTED(call)                                                                              \
	do {                                                                                       \
		ncclResult_t s_ = (call);                                                          \
		if (s_ != ncclSuccess && s_ != ncclInProgress)                                     \
			NCCL(s_);                                                                  \
	} while (0)

/* ---- steps ----------------------------------------------------------------------------------- */

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
		STARTED(ncclAllReduce(in, out, st->count, type, op, comm, stream));
		break;
	case SC_BC:
		STARTED(ncclBroadcast(in, out, st->count, type, 0, comm, stream));
		break;
	case SC_RED:
		STARTED(ncclReduce(in, out, st->count, type, op, 0, comm, stream));
		break;
	case SC_AG:
		STARTED(ncclAllGather(in, out, st->count, type, comm, stream));
		break;
	case SC_RS:
		STARTED(ncclReduceScatter(in, out, st->count, type, op, comm, stream));
		break;
	default:
		STARTED(ncclAlltoAll(in, out, st->count, type, comm, stream));
	}
	return 0;
}

static int point_to_point(struct rank *me, const struct sc_step *st)
{
	int peer = sc_comm_rank(&me->s->comms[st->comm], st->peer);

	if (st->kind == SC_SEND)
		STARTED(ncclSend(me->bufs[st->in], st->count, types[st->type], peer,
				 me->comms[st->comm], me->streams[st->stream]));
	else
		STARTED(ncclRecv(me->bufs[st->in], st->count, types[st->type], peer,
				 me->comms[st->comm], me->streams[st->stream]));
	return 0;
}

static void CUDART_CB host_nothing(void *arg)
{
	(void)arg;
}

static void CUDART_CB host_stuck(void *arg)
{
	unsigned turns = 0;

	(void)arg;
	while (!__atomic_load_n(&over, __ATOMIC_ACQUIRE) && !client_failed())
		nap(&turns);
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
		client_fail(EXIT_WRONG,
			    "rank %d thread %d step %d, %s of buffer %s: element %zu of %zu is "
			    "%#x, not %#x",
			    me->rank, thread, step, what, me->s->buf.v[buf], i, n, have[i],
			    want[i]);
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
	/* Data is not compared after the communicator has failed. */
	ret = async_errors(me);
	if (!ret)
		ret = compare(me, thread, step, st->in, host, n,
			      st->kind == SC_PEEK ? "peek" : "read");
	free(host);
	return ret;
}

struct look_arg {
	struct rank *me;
	int thread, step, ret;
};

static void *look_thread(void *arg)
{
	struct look_arg *a = arg;

	if (cudaSetDevice(a->me->device) != cudaSuccess)
		client_fail(EXIT_NCCL, "cudaSetDevice(%d)", a->me->device);
	a->ret = look(a->me, a->thread, a->step);
	return NULL;
}

/* Calls look() on a new thread, and waits for it. */
static int look_elsewhere(struct rank *me, int thread, int step)
{
	struct look_arg a = {me, thread, step, 0};
	pthread_t id;

	if (pthread_create(&id, NULL, look_thread, &a))
		return -1;
	pthread_join(id, NULL);
	return a.ret;
}

/*
 * Writes a value from the CPU. Earlier operations must not see the value; the script has
 * synchronised with them.
 */
static int poke(struct rank *me, const struct sc_step *st, int step)
{
	for (size_t k = 0; k < st->count; k++)
		me->bufs[st->out][k] = or_poked(me->rank, st->out, step, k);
	return 0;
}

/*
 * Copies on a stream of the last device, which no rank uses if there are more devices than ranks.
 */
static int far_copy(struct rank *me, const struct sc_step *st)
{
	int nr = 0, ret;

	CUDA(cudaGetDeviceCount(&nr));
	CUDA(cudaSetDevice(nr - 1));
	if (!me->far)
		CUDA(cudaStreamCreateWithFlags(&me->far, cudaStreamNonBlocking));
	CUDA(cudaMemcpyAsync(me->bufs[st->out], me->bufs[st->in], st->count * 4, cudaMemcpyDefault,
			     me->far));
	CUDA(cudaStreamSynchronize(me->far));
	ret = async_errors(me);
	CUDA(cudaSetDevice(me->device));
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
		if (me->registered)
			CUDA(cudaHostUnregister(me->registered));
		else
			me->registered = aligned_alloc(4096, 8192);
		CUDA(cudaHostRegister(me->registered, 8192, 0));
		break;
	default:
		CUDA(cudaMemcpy(me->scratch[0], page, sizeof(page), cudaMemcpyHostToDevice));
	}
	return async_errors(me);
}

/*
 * Waits for another thread as a lock between processes does: the kernel knows that this thread
 * waits, but not for which thread.
 */
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

/* The flag for which each thread waits, plus 1; 0 if it waits for none. */
static int waits_for[SC_RANKS][SC_THREADS];

static int host_step(struct rank *me, int thread, const struct sc_step *st)
{
	uint64_t want = st->members;
	unsigned turns = 0;
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
		__atomic_store_n(&waits_for[me->rank][thread], st->object + 1, __ATOMIC_SEQ_CST);
		for (;;) {
			turn = __atomic_load_n(&shared->turn, __ATOMIC_SEQ_CST);
			if (__atomic_load_n(&shared->flags[st->object], __ATOMIC_ACQUIRE))
				break;
			if (failed() || async_errors(me))
				return -1;
			host_wait(turn);
		}
		__atomic_store_n(&waits_for[me->rank][thread], 0, __ATOMIC_SEQ_CST);
		return 0;
	case SC_NAME:
		pthread_setname_np(pthread_self(), me->s->flag.v[st->object]);
		return 0;
	case SC_SLEEP:
		usleep((useconds_t)st->count * 1000);
		return 0;
	default: /* SC_SPIN */
		while (!failed() && !async_errors(me))
			nap(&turns);
		return -1;
	}
}

/* ---- communicators --------------------------------------------------------------------------- */

static int poll_comm(ncclComm_t comm, int for_ever)
{
	unsigned turns = 0;
	ncclResult_t state;

	do {
		if (failed())
			return -1;
		nap(&turns);
		NCCL(ncclCommGetAsyncError(comm, &state));
	} while (state == ncclInProgress || (for_ever && state == ncclSuccess));
	NCCL(state);
	client_tick();
	return 0;
}

static int comm_init(struct rank *me, int c, int blocking)
{
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	ncclComm_t comm = NULL;
	ncclResult_t res;

	config.blocking = blocking;
	res = ncclCommInitRankConfig(&comm, me->s->comms[c].nr, ids[c],
				     sc_comm_rank(&me->s->comms[c], me->rank), &config);
	if (res != ncclInProgress || blocking)
		NCCL(res);
	__atomic_store_n(&me->comms[c], comm, __ATOMIC_RELEASE);
	return 0;
}

/* Ranks of the old communicator that are not in the new one are excluded. */
static int shrink(struct rank *me, const struct sc_step *st, ncclComm_t comm)
{
	const struct sc_comm *old = &me->s->comms[st->comm];
	int gone[SC_RANKS], nr = 0;

	for (int i = 0; i < old->nr; i++)
		if (sc_comm_rank(&me->s->comms[st->comm2], old->ranks[i]) < 0)
			gone[nr++] = i;
	STARTED(ncclCommShrink(comm, gone, nr, &me->comms[st->comm2], NULL, NCCL_SHRINK_DEFAULT));
	return 0;
}

static int comm_step(struct rank *me, const struct sc_step *st)
{
	ncclComm_t comm = me->comms[st->comm];

	switch (st->kind) {
	case SC_INIT:
	case SC_NINIT:
		return comm_init(me, st->comm, st->kind == SC_INIT);
	case SC_APOLL:
	case SC_AWATCH:
		return poll_comm(comm, st->kind == SC_AWATCH);
	case SC_SPLIT:
		STARTED(ncclCommSplit(comm,
				      sc_comm_rank(&me->s->comms[st->comm2], me->rank) < 0
					      ? NCCL_SPLIT_NOCOLOR
					      : 0,
				      me->rank, &me->comms[st->comm2], NULL));
		return 0;
	case SC_SHRINK:
		return shrink(me, st, comm);
	case SC_FIN:
		STARTED(ncclCommFinalize(comm));
		return 0;
	default:
		__atomic_store_n(&me->comms[st->comm], NULL, __ATOMIC_RELEASE);
		NCCL(ncclCommDestroy(comm));
		return 0;
	}
}

/* ---- all of them ----------------------------------------------------------------------------- */

static void start_thread(struct rank *me, int thread);

/* Returns 0, -1 on failure, or 1 if the thread ends with this step. */
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
		STARTED(ncclGroupEnd());
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
	case SC_ANYPOLL:
		return poll_any(stream, me->streams[st->object]);
	case SC_DSYNC:
		CUDA(cudaDeviceSynchronize());
		return async_errors(me);
	case SC_FREE:
	case SC_HALLOC:
	case SC_HREG:
	case SC_HCOPY:
		return implicit_sync(me, st);
	case SC_LOCK:
	case SC_UNLOCK:
	case SC_GLOCK:
	case SC_GUNLOCK:
	case SC_CWAIT:
	case SC_CSIG:
	case SC_GET:
	case SC_PUT:
		between_step(&between[me->rank], thread, st);
		return 0;
	case SC_START:
		start_thread(me, (int)st->count);
		return 0;
	case SC_HS:
	case SC_HW:
	case SC_HBAR:
	case SC_NAME:
	case SC_SPIN:
	case SC_SLEEP:
		return host_step(me, thread, st);
	case SC_INIT:
	case SC_NINIT:
	case SC_APOLL:
	case SC_AWATCH:
	case SC_SPLIT:
	case SC_SHRINK:
	case SC_FIN:
	case SC_DESTROY:
		return comm_step(me, st);
	case SC_EXIT:
		if (me->s->procs)
			exit(st->coll); /* `fail` exits with status 1 */
		me->gone = 1;
		return 1;
	case SC_QUIT:
		_exit(0);
	case SC_RETURN:
		me->returned = 1;
		return 1;
	case SC_FORK: {
		pid_t child = fork();

		if (!child)
			exit(0);
		return child < 0 || waitpid(child, NULL, 0) != child ? -1 : 0;
	}
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
	case SC_TREAD:
		return look_elsewhere(me, thread, step);
	case SC_POKE:
		return poke(me, st, step);
	case SC_FAR:
		return far_copy(me, st);
	}
	return -1;
}

/* The step that each thread executes. Printed when the program hangs or is broken off. */
static int stands[SC_RANKS][SC_THREADS];
static int first_stands, nr_stand; /* ranks of this process; the watch may read them at any time */

static void *run_thread(void *arg)
{
	struct thread_arg *a = arg;
	const struct sc_thread *t = &a->me->s->threads[a->me->rank][a->thread];
	int i;

	if (cudaSetDevice(a->me->device) != cudaSuccess)
		client_fail(EXIT_NCCL, "cudaSetDevice(%d)", a->me->device);
	for (i = 0; i < t->nr && !failed(); i++) {
		__atomic_store_n(&stands[a->me->rank][a->thread], i, __ATOMIC_RELAXED);
		if (execute(a->me, a->thread, i))
			break;
		client_tick();
	}
	if (i == t->nr)
		__atomic_store_n(&stands[a->me->rank][a->thread], i, __ATOMIC_RELAXED);
	between_end(&between[a->me->rank], a->thread, i < t->nr || failed());
	return NULL;
}

static void start_thread(struct rank *me, int thread)
{
	struct thread_arg *a = &me->args[thread];

	a->started = !pthread_create(&a->id, NULL, run_thread, a);
}

/* Prints "@ RANK THREAD STEP" for each thread of this process. */
static void say_stands(void)
{
	int first = __atomic_load_n(&first_stands, __ATOMIC_RELAXED),
	    nr = __atomic_load_n(&nr_stand, __ATOMIC_RELAXED);

	for (int r = first; r < first + nr; r++)
		for (int t = 0; t < SC_THREADS; t++)
			dprintf(STDERR_FILENO, "@ %d %d %d\n", r, t,
				__atomic_load_n(&stands[r][t], __ATOMIC_RELAXED));
}

#endif
