/*
 * The streams of the stand-in driver: a list of operations and a thread that executes them in order; a wait for a memory
 * word blocks the stream. Kernels are in kernel.c.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "tests/cuda/fake/internal.h"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t fake_moved = PTHREAD_COND_INITIALIZER;
uint64_t fake_next_id = 1;
static struct CUstream_st *streams;
static __thread CUstream per_thread;

static void rows(const struct op *op)
{
	for (size_t r = 0; r < op->rows; r++) {
		char *to = (char *)op->to + r * op->to_pitch;

		if (op->kind == OP_COPY)
			memmove(to, (const char *)op->from + r * op->from_pitch, op->bytes);
		for (size_t i = 0; op->kind == OP_FILL && i < op->bytes; i += op->width)
			memcpy(to + i, &op->value, op->width);
	}
}

static int how_many_wait(void)
{
	struct CUstream_st *s;
	int nr = 0;

	pthread_mutex_lock(&fake_lock);
	for (s = streams; s; s = s->next)
		nr += s->head && s->head->kind == OP_WAIT;
	pthread_mutex_unlock(&fake_lock);
	return nr;
}

void fake_run_op(struct CUstream_st *s, CUcontext ctx, struct op *op)
{
	/* Behind a fault nothing is executed; events are reached, so that who waits for one comes to know. */
	if (fake_ctx_error(ctx) && op->kind != OP_RECORD)
		return;
	switch (op->kind) {
	case OP_WRITE:
		/* RELEASE pairs with whoever polls the word: the stream's earlier work is seen. */
		__atomic_store_n(op->addr, op->value, __ATOMIC_RELEASE);
		break;
	case OP_WAIT:
		/* ACQUIRE pairs with the writer's release: later operations see what came before it. */
		while (__atomic_load_n(op->addr, __ATOMIC_ACQUIRE) < op->value &&
		       !(s && __atomic_load_n(&s->stop, __ATOMIC_RELAXED)) && !fake_ctx_error(ctx))
			usleep(50);
		break;
	case OP_HOST:
		fake_limit_host(1);
		op->fn(op->data);
		fake_limit_host(0);
		break;
	case OP_KERNEL:
		fake_fault_kernel(op, how_many_wait);
		fake_kernel_run(op);
		break;
	case OP_RECORD:
		pthread_mutex_lock(&fake_lock);
		if (op->event->reached < op->point)
			op->event->reached = op->point;
		clock_gettime(CLOCK_MONOTONIC, &op->event->when);
		pthread_mutex_unlock(&fake_lock);
		break;
	case OP_AFTER:
		pthread_mutex_lock(&fake_lock);
		while (op->event->reached < op->point && !fake_ctx_error(ctx))
			pthread_cond_wait(&fake_moved, &fake_lock);
		pthread_mutex_unlock(&fake_lock);
		break;
	case OP_CALLBACK:
		fake_limit_host(1);
		op->callback(s, CUDA_SUCCESS, op->data);
		fake_limit_host(0);
		break;
	case OP_COPY:
	case OP_FILL:
		if (!fake_fault_skips(op))
			rows(op);
		fake_fault_copied(op);
		break;
	case OP_GRAPH:
		fake_graph_run(ctx, op->graph);
		break;
	case OP_EMPTY:
		break;
	}
}

static void *run_stream(void *arg)
{
	struct CUstream_st *s = arg;

	pthread_mutex_lock(&fake_lock);
	for (;;) {
		struct op *op = s->head;

		if (!op) {
			if (s->stop) {
				s->gone = 1;
				break;
			}
			pthread_cond_wait(&fake_moved, &fake_lock);
			continue;
		}
		for (size_t i = 0; i < op->nr_after; i++)
			while (op->after[i].s->done < op->after[i].nr && !op->after[i].s->gone)
				pthread_cond_wait(&fake_moved, &fake_lock);
		while (fake_limit_behind(streams, s, op) && !s->stop) {
			pthread_mutex_unlock(&fake_lock);
			usleep(50);
			pthread_mutex_lock(&fake_lock);
		}
		pthread_mutex_unlock(&fake_lock);
		fake_run_op(s, s->ctx, op);
		pthread_mutex_lock(&fake_lock);
		if (op->kind == OP_GRAPH)
			fake_graph_put(op->graph);
		s->head = op->next;
		s->done++;
		if (!s->head)
			s->tail = &s->head;
		s->nr--;
		free(op->after);
		free(op->own);
		free(op);
		pthread_cond_broadcast(&fake_moved);
	}
	pthread_mutex_unlock(&fake_lock);
	return NULL;
}

static CUstream stream_new(CUcontext ctx, unsigned int flags, int priority)
{
	CUstream s = calloc(1, sizeof(*s));

	fake_limit_lock(ctx);
	s->ctx = ctx;
	s->flags = flags;
	s->priority = priority;
	s->tail = &s->head;
	pthread_mutex_lock(&fake_lock);
	s->id = fake_next_id++;
	fake_limit_queue(s);
	s->next = streams;
	streams = s;
	pthread_mutex_unlock(&fake_lock);
	pthread_create(&s->thread, NULL, run_stream, s);
	return s;
}

CUstream fake_stream_of(CUstream s, int ptds)
{
	CUcontext ctx = fake_ctx_now();

	if (s == CU_STREAM_PER_THREAD || (!s && ptds)) {
		if (!per_thread)
			per_thread = stream_new(ctx, 0, 0);
		return per_thread;
	}
	if (!s || s == CU_STREAM_LEGACY) {
		static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;

		/* One for all threads: who waited on a second one would wait for nothing. */
		pthread_mutex_lock(&once);
		if (!ctx->legacy)
			ctx->legacy = stream_new(ctx, 0, 0);
		pthread_mutex_unlock(&once);
		return ctx->legacy;
	}
	return s;
}

static int blocking(const struct CUstream_st *s)
{
	return !(s->flags & CU_STREAM_NON_BLOCKING);
}

/* The legacy stream and the blocking ones of a context wait for one another. */
static void legacy_order(CUstream s, struct op *op)
{
	struct CUstream_st *t;

	for (t = streams; t && blocking(s); t = t->next) {
		if (t == s || !blocking(t) || t->ctx != s->ctx || t->done == t->put ||
		    (s != s->ctx->legacy && t != s->ctx->legacy))
			continue;
		op->after = realloc(op->after, (op->nr_after + 1) * sizeof(*op->after));
		op->after[op->nr_after++] = (struct mark){t, t->put};
	}
}

void fake_put(CUstream s, const struct op *from)
{
	struct op *op = malloc(sizeof(*op));

	*op = *from;
	op->next = NULL;
	pthread_mutex_lock(&fake_lock);
	if (s->capture) {
		CUgraphNode n = fake_graph_add(s->capture, op, s->behind, s->nr_behind);

		s->nr_behind = 0;
		fake_nodes_join(&s->behind, &s->nr_behind, &n, 1);
		free(op);
	} else {
		static uint64_t serial;

		fake_limit_room(s);
		op->serial = ++serial;
		legacy_order(s, op);
		*s->tail = op;
		s->tail = &op->next;
		s->nr++;
		s->put++;
	}
	pthread_cond_broadcast(&fake_moved);
	pthread_mutex_unlock(&fake_lock);
}

static int pending(CUstream s)
{
	struct CUstream_st *t;
	int nr = s->nr;

	for (t = streams; t && s == s->ctx->legacy; t = t->next)
		nr += t != s && t->ctx == s->ctx && blocking(t) ? t->nr : 0;
	return nr;
}

void fake_stream_drain(CUstream s)
{
	pthread_mutex_lock(&fake_lock);
	while (pending(s))
		pthread_cond_wait(&fake_moved, &fake_lock);
	pthread_mutex_unlock(&fake_lock);
}

void fake_stream_leave(CUgraph g)
{
	for (struct CUstream_st *s = streams; s && g; s = s->next)
		if (s->capture == g)
			s->capture = NULL;
}

int fake_all_pending(CUcontext ctx)
{
	struct CUstream_st *s;
	int nr = 0;

	for (s = streams; s; s = s->next)
		if (!ctx || s->ctx == ctx)
			nr += s->nr;
	return nr;
}

API CUresult cuStreamCreateWithPriority(CUstream *out, unsigned int flags, int priority)
{
	SEEN();
	*out = stream_new(fake_ctx_now(), flags, priority);
	return CUDA_SUCCESS;
}
API CUresult cuStreamCreate(CUstream *out, unsigned int flags)
{
	SEEN();
	*out = stream_new(fake_ctx_now(), flags, 0);
	return CUDA_SUCCESS;
}
API CUresult cuStreamDestroy_v2(CUstream s)
{
	struct CUstream_st **p;

	SEEN();
	pthread_mutex_lock(&fake_lock);
	for (p = &streams; *p && *p != s; p = &(*p)->next)
		;
	if (*p)
		*p = s->next;
	pthread_detach(s->thread);
	s->stop = 1;
	pthread_cond_broadcast(&fake_moved);
	pthread_mutex_unlock(&fake_lock);
	return CUDA_SUCCESS;
}
static CUresult query(CUstream s)
{
	int nr;

	pthread_mutex_lock(&fake_lock);
	nr = pending(s);
	pthread_mutex_unlock(&fake_lock);
	return nr ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}
API CUresult cuStreamQuery(CUstream s)
{
	SEEN();
	if (fake_is_over())
		return CUDA_ERROR_DEINITIALIZED;
	s = fake_stream_of(s, 0);
	return fake_ctx_error(s->ctx) ? fake_ctx_error(s->ctx) : query(s);
}
API CUresult cuStreamSynchronize(CUstream s)
{
	SEEN();
	s = fake_stream_of(s, 0);
	fake_stream_drain(s);
	return fake_ctx_error(s->ctx);
}
static CUresult drain(CUcontext ctx)
{
	pthread_mutex_lock(&fake_lock);
	while (fake_all_pending(ctx))
		pthread_cond_wait(&fake_moved, &fake_lock);
	pthread_mutex_unlock(&fake_lock);
	return fake_ctx_error(ctx);
}
API CUresult cuCtxSynchronize(void)
{
	SEEN();
	return drain(fake_ctx_now());
}
#if CUDA_VERSION >= 13000
API CUresult cuCtxSynchronize_v2(CUcontext ctx)
{
	SEEN();
	return drain(ctx ? ctx : fake_ctx_now());
}
#endif
API CUresult cuStreamGetId(CUstream s, unsigned long long *id)
{
	SEEN();
	*id = fake_stream_of(s, 0)->id;
	return CUDA_SUCCESS;
}
API CUresult cuStreamGetCtx(CUstream s, CUcontext *ctx)
{
	SEEN();
	*ctx = fake_stream_of(s, 0)->ctx;
	return CUDA_SUCCESS;
}
API CUresult cuStreamGetFlags(CUstream s, unsigned int *flags)
{
	SEEN();
	*flags = fake_stream_of(s, 0)->flags;
	return CUDA_SUCCESS;
}
API CUresult cuStreamGetPriority(CUstream s, int *priority)
{
	SEEN();
	*priority = fake_stream_of(s, 0)->priority;
	return CUDA_SUCCESS;
}
API CUresult cuStreamIsCapturing(CUstream s, CUstreamCaptureStatus *status)
{
	SEEN();
	*status = fake_stream_of(s, 0)->capture ? CU_STREAM_CAPTURE_STATUS_ACTIVE
						: CU_STREAM_CAPTURE_STATUS_NONE;
	return CUDA_SUCCESS;
}
API CUresult cuStreamWriteValue64_v2(CUstream s, CUdeviceptr addr, cuuint64_t value,
				     unsigned int flags)
{
	(void)flags;
	SEEN();
	fake_put(fake_stream_of(s, 0),
		 &(struct op){.kind = OP_WRITE, .addr = (uint64_t *)addr, .value = value});
	return CUDA_SUCCESS;
}
API CUresult cuStreamWaitValue64_v2(CUstream s, CUdeviceptr addr, cuuint64_t value,
				    unsigned int flags)
{
	(void)flags;
	SEEN();
	fake_put(fake_stream_of(s, 0),
		 &(struct op){.kind = OP_WAIT, .addr = (uint64_t *)addr, .value = value});
	return CUDA_SUCCESS;
}
API CUresult cuLaunchHostFunc(CUstream s, CUhostFn fn, void *data)
{
	SEEN();
	fake_put(fake_stream_of(s, 0), &(struct op){.kind = OP_HOST, .fn = fn, .data = data});
	return CUDA_SUCCESS;
}
API CUresult cuStreamAddCallback(CUstream s, CUstreamCallback fn, void *data, unsigned int flags)
{
	(void)flags;
	SEEN();
	fake_put(fake_stream_of(s, 0),
		 &(struct op){.kind = OP_CALLBACK, .callback = fn, .data = data});
	return CUDA_SUCCESS;
}
