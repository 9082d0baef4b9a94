/*
 * The life of a rank in the interpreter (script.c): its objects are made, its threads execute their steps, what is
 * left in the buffers is compared with the oracle, and everything is given back.
 */
#ifndef DEADLOCK_SCRIPT_RANK_H
#define DEADLOCK_SCRIPT_RANK_H

#include "script_comm.h"

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
		if (s->kinds[i]) {
			if (s->kinds[i] == SC_PINNED)
				CUDA(cudaHostAlloc((void **)&me->bufs[i], me->sizes[i] * 4, 0));
			else
				CUDA(cudaMallocManaged((void **)&me->bufs[i], me->sizes[i] * 4,
						       cudaMemAttachGlobal));
			memcpy(me->bufs[i], host, me->sizes[i] * 4);
		} else {
			CUDA(cudaMalloc((void **)&me->bufs[i], me->sizes[i] * 4));
			CUDA(client_upload(me->bufs[i], host, me->sizes[i] * 4));
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
	case SC_ANYPOLL:
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

	if (!me->comms)
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
			if (!strcmp(s->stream.v[st->stream], "legacy")) {
				me->streams[st->stream] = cudaStreamLegacy;
				continue;
			}
			CUDA(cudaStreamCreateWithFlags(&me->streams[st->stream],
						       strncmp(s->stream.v[st->stream], "nb", 2)
							       ? cudaStreamDefault
							       : cudaStreamNonBlocking));
		}
	/* Times are never asked for, but whether they could be must make no difference. */
	for (i = 0; i < s->event.nr; i++)
		CUDA(cudaEventCreateWithFlags(&me->events[i],
					      i % 2 || !strncmp(s->event.v[i], "timed", 5)
						      ? cudaEventDefault
						      : cudaEventDisableTiming));
	if (buffers(me))
		return -1;
	for (i = 0; i < s->comm.nr; i++)
		if (!s->comms[i].late && !me->comms[i] &&
		    sc_comm_rank(&s->comms[i], me->rank) >= 0 && comm_init(me, i, 1))
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

/* The rank takes part in it: otherwise nothing of the communicator is stuck there. */
static int takes_part(const struct rank *me, int comm)
{
	const struct sc_thread *t = &me->s->threads[me->rank][0];

	for (int i = 0; i < t->nr; i++)
		if (t->v[i].kind == SC_COLL && t->v[i].comm == comm)
			return 1;
	return 0;
}

/*
 * After the library has ended communicators: those that the script names have an error, all streams come to their
 * end, and go on working. Says so. Waits for it, so who does not get there has made no progress.
 */
static int aftermath(struct rank *me)
{
	struct script *s = me->s;
	ncclResult_t state;
	unsigned turns = 0;
	int i;

	for (i = 0; i < s->comm.nr; i++) {
		state = ncclSuccess;
		while (me->comms[i] && takes_part(me, i) && s->after >> i & 1 &&
		       state == ncclSuccess) {
			if (ncclCommGetAsyncError(me->comms[i], &state) != ncclSuccess)
				return -1;
			nap(&turns);
		}
		dprintf(2, "after: rank %d communicator %s %s\n", me->rank, s->comm.v[i],
			state == ncclRemoteError ? "ncclRemoteError" : ncclGetErrorString(state));
	}
	for (i = 0; i < s->stream.nr; i++) {
		if (!me->streams[i])
			continue;
		while (cudaStreamQuery(me->streams[i]) == cudaErrorNotReady)
			nap(&turns);
		if (cudaMemcpyAsync(me->scratch[1], me->scratch[0], 64, cudaMemcpyDeviceToDevice,
				    me->streams[i]) != cudaSuccess ||
		    cudaStreamSynchronize(me->streams[i]) != cudaSuccess)
			return -1;
		dprintf(2, "after: rank %d stream %s runs\n", me->rank, s->stream.v[i]);
	}
	return 0;
}

static int teardown(struct rank *me)
{
	struct script *s = me->s;
	int i, bad = client_failed() || me->gone || me->returned;

	__atomic_store_n(&over, 1, __ATOMIC_RELEASE);
	if (bad && !me->gone && s->after)
		aftermath(me);
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
		if (me->streams[i] > cudaStreamPerThread)
			CUDA(cudaStreamDestroy(me->streams[i]));
	if (me->warm)
		CUDA(cudaStreamDestroy(me->warm));
	if (me->far)
		CUDA(cudaStreamDestroy(me->far));
	for (i = 0; i < s->event.nr; i++)
		if (me->events[i])
			CUDA(cudaEventDestroy(me->events[i]));
	for (i = 0; i < s->buf.nr; i++)
		if (me->bufs[i])
			CUDA(s->kinds[i] == SC_PINNED ? cudaFreeHost(me->bufs[i])
						      : cudaFree(me->bufs[i]));
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

/* The rank's threads have ended, and its streams too. */
static int through[SC_RANKS];

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
	if (me->returned) {
		meet(me, 1, 0);
		meet(me, 2, 0);
		return NULL;
	}
	if (!me->gone) {
		for (i = 0; i < s->stream.nr && !failed(); i++)
			if (me->streams[i] && poll_stream(me, me->streams[i]))
				break;
	}
	__atomic_store_n(&through[me->rank], 1, __ATOMIC_SEQ_CST);
	/* Nobody leaves before all are through, and nobody is waited for who has gone. */
	if (!meet(me, 1, 1) && !me->gone && !failed())
		verify(me);
	meet(me, 2, !failed());
	teardown(me);
	return NULL;
}

#endif
