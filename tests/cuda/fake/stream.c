/*
 * The streams of the stand-in driver: a list of operations and a thread that executes them in order; a wait for a memory
 * word blocks the stream. Kernels are functions that the test registered by name.
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
int fake_launch_error;
static struct CUstream_st *streams;
static struct {
	char name[64];
	fake_kernel_fn fn;
} kernels[16];
static __thread CUstream per_thread;

struct block {
	struct op *op;
	unsigned int index;
	pthread_t thread;
};

static void *run_block(void *arg)
{
	struct block *b = arg;

	b->op->kernel(b->op->params, b->index);
	return NULL;
}

static void run_kernel(struct op *op)
{
	struct block *b = calloc(op->grid, sizeof(*b));
	unsigned int i;

	for (i = 0; i < op->grid; i++) {
		b[i].op = op;
		b[i].index = i;
		pthread_create(&b[i].thread, NULL, run_block, &b[i]);
	}
	for (i = 0; i < op->grid; i++)
		pthread_join(b[i].thread, NULL);
	free(b);
}

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

void fake_run_op(struct CUstream_st *s, struct op *op)
{
	switch (op->kind) {
	case OP_WRITE:
		/* RELEASE pairs with whoever polls the word: the stream's earlier work is seen. */
		__atomic_store_n(op->addr, op->value, __ATOMIC_RELEASE);
		break;
	case OP_WAIT:
		/* ACQUIRE pairs with the writer's release: later operations see what came before it. */
		while (__atomic_load_n(op->addr, __ATOMIC_ACQUIRE) < op->value &&
		       !(s && __atomic_load_n(&s->stop, __ATOMIC_RELAXED)))
			usleep(50);
		break;
	case OP_HOST:
		op->fn(op->data);
		break;
	case OP_KERNEL:
		if (op->kernel)
			run_kernel(op);
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
		while (op->event->reached < op->point)
			pthread_cond_wait(&fake_moved, &fake_lock);
		pthread_mutex_unlock(&fake_lock);
		break;
	case OP_CALLBACK:
		op->callback(s, CUDA_SUCCESS, op->data);
		break;
	case OP_COPY:
	case OP_FILL:
		rows(op);
		break;
	case OP_GRAPH:
		fake_graph_run(op->graph);
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
		pthread_mutex_unlock(&fake_lock);
		fake_run_op(s, op);
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

	s->ctx = ctx;
	s->flags = flags;
	s->priority = priority;
	s->tail = &s->head;
	pthread_mutex_lock(&fake_lock);
	s->id = fake_next_id++;
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
	return query(fake_stream_of(s, 0));
}
API CUresult cuStreamSynchronize(CUstream s)
{
	SEEN();
	fake_stream_drain(fake_stream_of(s, 0));
	return CUDA_SUCCESS;
}
static CUresult drain(CUcontext ctx)
{
	pthread_mutex_lock(&fake_lock);
	while (fake_all_pending(ctx))
		pthread_cond_wait(&fake_moved, &fake_lock);
	pthread_mutex_unlock(&fake_lock);
	return CUDA_SUCCESS;
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

/* ---- kernels ---------------------------------------------------------------------------------------- */

/* Bringing code to the device waits for all that the context has, as a driver may that loads lazily. */
static void load(CUfunction f)
{
	pthread_mutex_lock(&fake_lock);
	while (!f->loaded && fake_all_pending(fake_ctx_now()))
		pthread_cond_wait(&fake_moved, &fake_lock);
	f->loaded = 1;
	pthread_mutex_unlock(&fake_lock);
}

static CUresult launch(CUfunction f, unsigned int grid, CUstream s, void **params)
{
	struct op op = {.kind = OP_KERNEL, .grid = grid};
	int i;

	if (fake_is_over())
		return CUDA_ERROR_DEINITIALIZED;
	if (fake_launch_error)
		return fake_launch_error;
	if (f)
		load(f);
	for (i = 0; i < 16 && f; i++)
		if (kernels[i].fn && strcmp(kernels[i].name, f->name) == 0)
			op.kernel = kernels[i].fn;
	if (op.kernel && params)
		memcpy(&op.params[0], params[0], sizeof(void *));
	fake_put(fake_stream_of(s, 0), &op);
	return CUDA_SUCCESS;
}
API CUresult cuLaunchKernel(CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz,
			    unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared,
			    CUstream s, void **params, void **extra)
{
	(void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, (void)extra;
	SEEN();
	return launch(f, gx, s, params);
}
API CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **params, void **extra)
{
	(void)extra;
	SEEN();
	return launch(f, c->gridDimX, c->hStream, params);
}
API CUresult cuFuncLoad(CUfunction f)
{
	SEEN();
	load(f);
	return CUDA_SUCCESS;
}
API CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
	const char *no = getenv("FAKE_CUDA_NO_CODE");

	SEEN();
	/* Code for another kind of device, or of a newer toolkit. */
	if (no && atoi(no) == fake_ctx_now()->device)
		return CUDA_ERROR_NO_BINARY_FOR_GPU;
	*module = (CUmodule)image;
	return CUDA_SUCCESS;
}
API CUresult cuModuleGetFunction(CUfunction *f, CUmodule module, const char *name)
{
	(void)module;
	SEEN();
	*f = calloc(1, sizeof(**f));
	snprintf((*f)->name, sizeof((*f)->name), "%s", name);
	return CUDA_SUCCESS;
}

void fake_set_kernel(const char *name, fake_kernel_fn fn)
{
	int i;

	for (i = 0; i < 15 && kernels[i].fn && strcmp(kernels[i].name, name) != 0; i++)
		;
	snprintf(kernels[i].name, sizeof(kernels[i].name), "%s", name);
	kernels[i].fn = fn;
}
