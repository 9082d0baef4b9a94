/*
 * The functions of the stand-in driver that do something. A stream is a list of operations and a thread that
 * executes them in order; a wait for a memory word blocks the stream. Kernels are functions that the test
 * registered by name. One lock for everything but the words and the kernels themselves.
 *
 * FAKE_CUDA_LOG: file to which every call is appended. FAKE_CUDA_NEWER: name of a function of which the driver
 * has a form from 13.1 on that nobody here knows. FAKE_CUDA_DEVICES: 1. What processes share is in share.c.
 */
#define _GNU_SOURCE
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tests/cuda/fake/fake.h"
#include "tests/cuda/fake/internal.h"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#define API	    __attribute__((visibility("default")))
#define MAX_DEVICES 8

enum op_kind { OP_WRITE, OP_WAIT, OP_HOST, OP_KERNEL, OP_RECORD, OP_AFTER, OP_COPY };

struct op {
	enum op_kind kind;
	uint64_t *addr, value;
	CUhostFn fn;
	void *data;
	fake_kernel_fn kernel;
	void *params[4];
	unsigned int grid;
	struct CUevent_st *event;
	uint64_t point; /* of the event */
	void *to;
	const void *from;
	size_t bytes;
	struct op *next;
};

struct CUstream_st {
	struct CUctx_st *ctx;
	uint64_t id;
	int priority;
	unsigned int flags;
	int nr, stop;
	struct op *head, **tail;
	CUgraph capture; /* not NULL: operations go there */
	uint64_t capture_id;
	pthread_t thread;
	struct CUstream_st *next;
};

struct CUevent_st {
	unsigned int flags;
	uint64_t recorded, reached;
	struct timespec when; /* it was reached */
};

struct CUctx_st {
	int device;
	int refs;
	uint64_t id;
	struct CUstream_st *legacy;
};

struct CUgraph_st {
	struct op *head, **tail;
	int nr;
	CUhostFn destroy[16];
	void *destroy_arg[16];
	int nr_destroy;
};

struct CUgraphExec_st {
	struct op *head;
};

struct CUfunc_st {
	char name[64];
};

struct mem {
	uintptr_t at;
	size_t bytes;
	int host, device;
	int fd; /* device memory: a file that other processes can map; -1 none */
	struct mem *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t moved = PTHREAD_COND_INITIALIZER;
static struct CUctx_st primary[MAX_DEVICES];
static struct CUstream_st *streams;
static struct mem *mems;
static uint64_t next_id = 1;
static int launch_error, alloc_waits, alloc_fails;
static struct {
	const char *symbol;
	uint64_t n;
} counts[1024];
static struct {
	char name[64];
	fake_kernel_fn fn;
} kernels[16];
static __thread CUcontext current[16];
static __thread int depth;
static __thread CUstream per_thread;

void fake_count(const char *symbol)
{
	static FILE *log;
	int i;

	pthread_mutex_lock(&lock);
	for (i = 0; i < 1023 && counts[i].symbol && strcmp(counts[i].symbol, symbol) != 0; i++)
		;
	counts[i].symbol = symbol;
	counts[i].n++;
	if (!log && getenv("FAKE_CUDA_LOG"))
		log = fopen(getenv("FAKE_CUDA_LOG"), "ae");
	if (log) {
		fprintf(log, "%s\n", symbol);
		fflush(log);
	}
	pthread_mutex_unlock(&lock);
}
#define SEEN() fake_count(__func__)

/* ---- streams ---------------------------------------------------------------------------------------------- */

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

static void run_op(struct CUstream_st *s, struct op *op)
{
	switch (op->kind) {
	case OP_WRITE:
		/* RELEASE pairs with whoever polls the word: the stream's earlier work is seen. */
		__atomic_store_n(op->addr, op->value, __ATOMIC_RELEASE);
		break;
	case OP_WAIT:
		/* ACQUIRE pairs with the writer's release: later operations see what came before it. */
		while (__atomic_load_n(op->addr, __ATOMIC_ACQUIRE) < op->value &&
		       !__atomic_load_n(&s->stop, __ATOMIC_RELAXED))
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
		pthread_mutex_lock(&lock);
		if (op->event->reached < op->point)
			op->event->reached = op->point;
		clock_gettime(CLOCK_MONOTONIC, &op->event->when);
		pthread_mutex_unlock(&lock);
		break;
	case OP_AFTER:
		pthread_mutex_lock(&lock);
		while (op->event->reached < op->point)
			pthread_cond_wait(&moved, &lock);
		pthread_mutex_unlock(&lock);
		break;
	case OP_COPY:
		memmove(op->to, op->from, op->bytes);
		break;
	}
}

static void *run_stream(void *arg)
{
	struct CUstream_st *s = arg;

	pthread_mutex_lock(&lock);
	for (;;) {
		struct op *op = s->head;

		if (!op) {
			if (s->stop)
				break;
			pthread_cond_wait(&moved, &lock);
			continue;
		}
		pthread_mutex_unlock(&lock);
		run_op(s, op);
		pthread_mutex_lock(&lock);
		s->head = op->next;
		if (!s->head)
			s->tail = &s->head;
		s->nr--;
		free(op);
		pthread_cond_broadcast(&moved);
	}
	pthread_mutex_unlock(&lock);
	return NULL;
}

static CUstream stream_new(CUcontext ctx, unsigned int flags, int priority)
{
	CUstream s = calloc(1, sizeof(*s));

	s->ctx = ctx;
	s->flags = flags;
	s->priority = priority;
	s->tail = &s->head;
	pthread_mutex_lock(&lock);
	s->id = next_id++;
	s->next = streams;
	streams = s;
	pthread_mutex_unlock(&lock);
	pthread_create(&s->thread, NULL, run_stream, s);
	return s;
}

static CUcontext ctx_now(void)
{
	return depth ? current[depth - 1] : NULL;
}

static CUstream stream_of(CUstream s, int ptds)
{
	CUcontext ctx = ctx_now();

	if (s == CU_STREAM_PER_THREAD || (!s && ptds)) {
		if (!per_thread)
			per_thread = stream_new(ctx, 0, 0);
		return per_thread;
	}
	if (!s || s == CU_STREAM_LEGACY) {
		if (!ctx->legacy)
			ctx->legacy = stream_new(ctx, 0, 0);
		return ctx->legacy;
	}
	return s;
}

static void put(CUstream s, const struct op *from)
{
	struct op *op = malloc(sizeof(*op));

	*op = *from;
	op->next = NULL;
	pthread_mutex_lock(&lock);
	if (s->capture) {
		*s->capture->tail = op;
		s->capture->tail = &op->next;
		s->capture->nr++;
	} else {
		*s->tail = op;
		s->tail = &op->next;
		s->nr++;
	}
	pthread_cond_broadcast(&moved);
	pthread_mutex_unlock(&lock);
}

static int all_pending(CUcontext ctx)
{
	struct CUstream_st *s;
	int nr = 0;

	for (s = streams; s; s = s->next)
		if (!ctx || s->ctx == ctx)
			nr += s->nr;
	return nr;
}

static void alloc_wait(void)
{
	pthread_mutex_lock(&lock);
	while (alloc_waits && all_pending(NULL))
		pthread_cond_wait(&moved, &lock);
	pthread_mutex_unlock(&lock);
}

API CUresult cuStreamCreateWithPriority(CUstream *out, unsigned int flags, int priority)
{
	SEEN();
	*out = stream_new(ctx_now(), flags, priority);
	return CUDA_SUCCESS;
}
API CUresult cuStreamCreate(CUstream *out, unsigned int flags)
{
	SEEN();
	*out = stream_new(ctx_now(), flags, 0);
	return CUDA_SUCCESS;
}
API CUresult cuStreamDestroy_v2(CUstream s)
{
	struct CUstream_st **p;

	SEEN();
	pthread_mutex_lock(&lock);
	for (p = &streams; *p && *p != s; p = &(*p)->next)
		;
	if (*p)
		*p = s->next;
	pthread_detach(s->thread);
	s->stop = 1;
	pthread_cond_broadcast(&moved);
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}
static CUresult query(CUstream s)
{
	int nr;

	pthread_mutex_lock(&lock);
	nr = s->nr;
	pthread_mutex_unlock(&lock);
	return nr ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}
API CUresult cuStreamQuery(CUstream s)
{
	SEEN();
	return query(stream_of(s, 0));
}
API CUresult cuStreamSynchronize(CUstream s)
{
	SEEN();
	s = stream_of(s, 0);
	pthread_mutex_lock(&lock);
	while (s->nr)
		pthread_cond_wait(&moved, &lock);
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}
API CUresult cuCtxSynchronize(void)
{
	SEEN();
	pthread_mutex_lock(&lock);
	while (all_pending(ctx_now()))
		pthread_cond_wait(&moved, &lock);
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}
API CUresult cuStreamGetId(CUstream s, unsigned long long *id)
{
	SEEN();
	*id = stream_of(s, 0)->id;
	return CUDA_SUCCESS;
}
API CUresult cuStreamGetCtx(CUstream s, CUcontext *ctx)
{
	SEEN();
	*ctx = stream_of(s, 0)->ctx;
	return CUDA_SUCCESS;
}
API CUresult cuStreamGetFlags(CUstream s, unsigned int *flags)
{
	SEEN();
	*flags = stream_of(s, 0)->flags;
	return CUDA_SUCCESS;
}
API CUresult cuStreamGetPriority(CUstream s, int *priority)
{
	SEEN();
	*priority = stream_of(s, 0)->priority;
	return CUDA_SUCCESS;
}
API CUresult cuStreamIsCapturing(CUstream s, CUstreamCaptureStatus *status)
{
	SEEN();
	*status = stream_of(s, 0)->capture ? CU_STREAM_CAPTURE_STATUS_ACTIVE
					   : CU_STREAM_CAPTURE_STATUS_NONE;
	return CUDA_SUCCESS;
}
API CUresult cuStreamWriteValue64_v2(CUstream s, CUdeviceptr addr, cuuint64_t value,
				     unsigned int flags)
{
	(void)flags;
	SEEN();
	put(stream_of(s, 0),
	    &(struct op){.kind = OP_WRITE, .addr = (uint64_t *)addr, .value = value});
	return CUDA_SUCCESS;
}
API CUresult cuStreamWaitValue64_v2(CUstream s, CUdeviceptr addr, cuuint64_t value,
				    unsigned int flags)
{
	(void)flags;
	SEEN();
	put(stream_of(s, 0),
	    &(struct op){.kind = OP_WAIT, .addr = (uint64_t *)addr, .value = value});
	return CUDA_SUCCESS;
}
API CUresult cuLaunchHostFunc(CUstream s, CUhostFn fn, void *data)
{
	SEEN();
	put(stream_of(s, 0), &(struct op){.kind = OP_HOST, .fn = fn, .data = data});
	return CUDA_SUCCESS;
}
API CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream s)
{
	SEEN();
	put(stream_of(s, 0),
	    &(struct op){.kind = OP_COPY, .to = (void *)to, .from = (void *)from, .bytes = bytes});
	return CUDA_SUCCESS;
}

/* ---- kernels ------------------------------------------------------------------------------------------------ */

static CUresult launch(CUfunction f, unsigned int grid, CUstream s, void **params)
{
	struct op op = {.kind = OP_KERNEL, .grid = grid};
	int i;

	if (launch_error)
		return launch_error;
	for (i = 0; i < 16 && f; i++)
		if (kernels[i].fn && strcmp(kernels[i].name, f->name) == 0)
			op.kernel = kernels[i].fn;
	if (op.kernel && params)
		memcpy(&op.params[0], params[0], sizeof(void *));
	put(stream_of(s, 0), &op);
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
API CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
	SEEN();
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

/* ---- events --------------------------------------------------------------------------------------------------- */

API CUresult cuEventCreate(CUevent *out, unsigned int flags)
{
	SEEN();
	*out = calloc(1, sizeof(**out));
	(*out)->flags = flags;
	return CUDA_SUCCESS;
}
API CUresult cuEventDestroy_v2(CUevent e)
{
	SEEN();
	(void)e; /* operations may still name it */
	return CUDA_SUCCESS;
}
API CUresult cuEventRecord(CUevent e, CUstream s)
{
	struct op op = {.kind = OP_RECORD, .event = e};

	SEEN();
	pthread_mutex_lock(&lock);
	op.point = ++e->recorded;
	pthread_mutex_unlock(&lock);
	put(stream_of(s, 0), &op);
	return CUDA_SUCCESS;
}
API CUresult cuStreamWaitEvent(CUstream s, CUevent e, unsigned int flags)
{
	(void)flags;
	SEEN();
	put(stream_of(s, 0), &(struct op){.kind = OP_AFTER, .event = e, .point = e->recorded});
	return CUDA_SUCCESS;
}
API CUresult cuEventQuery(CUevent e)
{
	CUresult ret;

	SEEN();
	pthread_mutex_lock(&lock);
	ret = e->reached < e->recorded ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
	pthread_mutex_unlock(&lock);
	return ret;
}
API CUresult cuEventElapsedTime(float *ms, CUevent a, CUevent b)
{
	CUresult ret = CUDA_ERROR_NOT_READY;

	SEEN();
	pthread_mutex_lock(&lock);
	if (!a->recorded || !b->recorded || (a->flags | b->flags) & CU_EVENT_DISABLE_TIMING)
		ret = CUDA_ERROR_INVALID_HANDLE;
	else if (a->reached == a->recorded && b->reached == b->recorded)
		ret = CUDA_SUCCESS;
	if (ret == CUDA_SUCCESS)
		*ms = (float)((double)(b->when.tv_sec - a->when.tv_sec) * 1e3 +
			      (double)(b->when.tv_nsec - a->when.tv_nsec) / 1e6);
	pthread_mutex_unlock(&lock);
	return ret;
}
API CUresult cuEventSynchronize(CUevent e)
{
	SEEN();
	pthread_mutex_lock(&lock);
	while (e->reached < e->recorded)
		pthread_cond_wait(&moved, &lock);
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

/* ---- memory --------------------------------------------------------------------------------------------------- */

static void *mem_new(size_t bytes, int host)
{
	int fd = -1;
	void *p = host ? aligned_alloc(4096, (bytes + 4095) / 4096 * 4096) : fake_pages(bytes, &fd);

	fake_mem_add(p, bytes, host, fd);
	return p;
}
void fake_mem_add(void *p, size_t bytes, int host, int fd)
{
	struct mem *m = calloc(1, sizeof(*m));

	m->at = (uintptr_t)p;
	m->bytes = bytes;
	m->host = host;
	m->fd = fd;
	m->device = ctx_now() ? ctx_now()->device : 0;
	pthread_mutex_lock(&lock);
	m->next = mems;
	mems = m;
	pthread_mutex_unlock(&lock);
}
int fake_mem_fd(uintptr_t at, size_t *bytes)
{
	struct mem *m;
	int fd = -1;

	pthread_mutex_lock(&lock);
	for (m = mems; m && m->at != at; m = m->next)
		;
	if (m && !m->host) {
		fd = m->fd;
		*bytes = m->bytes;
	}
	pthread_mutex_unlock(&lock);
	return fd;
}
void fake_mem_each(void (*fn)(void *at, size_t bytes, int arg), int arg)
{
	struct mem *m;

	pthread_mutex_lock(&lock);
	for (m = mems; m; m = m->next)
		if (!m->host)
			fn((void *)m->at, m->bytes, arg);
	pthread_mutex_unlock(&lock);
}
void fake_mem_gone(uintptr_t at)
{
	struct mem **p, *m;

	pthread_mutex_lock(&lock);
	for (p = &mems; *p && (*p)->at != at; p = &(*p)->next)
		;
	m = *p;
	if (m)
		*p = m->next;
	pthread_mutex_unlock(&lock);
	if (m && m->host)
		free((void *)at);
	else if (m)
		fake_unmap((void *)at, m->bytes, m->fd);
	free(m);
}
API CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t bytes)
{
	SEEN();
	alloc_wait();
	if (__atomic_fetch_sub(&alloc_fails, 1, __ATOMIC_RELAXED) > 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	__atomic_store_n(&alloc_fails, 0, __ATOMIC_RELAXED);
	*out = (CUdeviceptr)mem_new(bytes, 0);
	return CUDA_SUCCESS;
}
API CUresult cuMemFree_v2(CUdeviceptr p)
{
	SEEN();
	alloc_wait();
	fake_mem_gone(p);
	return CUDA_SUCCESS;
}
API CUresult cuMemHostAlloc(void **out, size_t bytes, unsigned int flags)
{
	(void)flags;
	SEEN();
	alloc_wait();
	*out = mem_new(bytes, 1);
	return CUDA_SUCCESS;
}
API CUresult cuMemFreeHost(void *p)
{
	SEEN();
	alloc_wait();
	fake_mem_gone((uintptr_t)p);
	return CUDA_SUCCESS;
}
API CUresult cuPointerGetAttributes(unsigned int nr, CUpointer_attribute *what, void **data,
				    CUdeviceptr at)
{
	struct mem *m;
	unsigned int i;

	SEEN();
	pthread_mutex_lock(&lock);
	for (m = mems; m && (at < m->at || at >= m->at + m->bytes); m = m->next)
		;
	for (i = 0; i < nr; i++)
		switch (what[i]) {
		case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
			*(unsigned int *)data[i] = !m	     ? 0
						   : m->host ? CU_MEMORYTYPE_HOST
							     : CU_MEMORYTYPE_DEVICE;
			break;
		case CU_POINTER_ATTRIBUTE_IS_MANAGED:
			*(unsigned int *)data[i] = 0;
			break;
		case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
			*(int *)data[i] = m ? m->device : -2;
			break;
		case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
			*(CUdeviceptr *)data[i] = m ? m->at : 0;
			break;
		case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
			*(size_t *)data[i] = m ? m->bytes : 0;
			break;
		default:
			break;
		}
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

/* ---- graphs ------------------------------------------------------------------------------------------------------ */

API CUresult cuStreamBeginCapture_v2(CUstream s, CUstreamCaptureMode mode)
{
	(void)mode;
	SEEN();
	s = stream_of(s, 0);
	s->capture = calloc(1, sizeof(*s->capture));
	s->capture->tail = &s->capture->head;
	s->capture_id = next_id++;
	return CUDA_SUCCESS;
}
API CUresult cuStreamEndCapture(CUstream s, CUgraph *out)
{
	SEEN();
	s = stream_of(s, 0);
	*out = s->capture;
	s->capture = NULL;
	return CUDA_SUCCESS;
}
API CUresult cuStreamGetCaptureInfo_v2(CUstream s, CUstreamCaptureStatus *status, cuuint64_t *id,
				       CUgraph *graph, const CUgraphNode **deps, size_t *nr)
{
	SEEN();
	s = stream_of(s, 0);
	*status = s->capture ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
	if (id)
		*id = s->capture_id;
	if (graph)
		*graph = s->capture;
	if (deps)
		*deps = NULL;
	if (nr)
		*nr = 0;
	return CUDA_SUCCESS;
}
API CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *nr)
{
	struct op *op;
	size_t n = 0;

	SEEN();
	for (op = graph->head; op; op = op->next, n++)
		if (nodes && n < *nr)
			nodes[n] = (CUgraphNode)op;
	*nr = n;
	return CUDA_SUCCESS;
}
API CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *type)
{
	const struct op *op = (const struct op *)node;

	SEEN();
	*type = op->kind == OP_HOST ? CU_GRAPH_NODE_TYPE_HOST : CU_GRAPH_NODE_TYPE_EMPTY;
	return CUDA_SUCCESS;
}
API CUresult cuGraphHostNodeGetParams(CUgraphNode node, CUDA_HOST_NODE_PARAMS *out)
{
	const struct op *op = (const struct op *)node;

	SEEN();
	out->fn = op->fn;
	out->userData = op->data;
	return CUDA_SUCCESS;
}
API CUresult cuGraphAddHostNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *deps, size_t nr,
				const CUDA_HOST_NODE_PARAMS *params)
{
	struct op *op = calloc(1, sizeof(*op));

	(void)deps, (void)nr;
	SEEN();
	op->kind = OP_HOST;
	op->fn = params->fn;
	op->data = params->userData;
	*graph->tail = op;
	graph->tail = &op->next;
	graph->nr++;
	*out = (CUgraphNode)op;
	return CUDA_SUCCESS;
}
API CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph graph, unsigned long long flags)
{
	struct op *op, **at;

	(void)flags;
	SEEN();
	*out = calloc(1, sizeof(**out));
	at = &(*out)->head;
	for (op = graph->head; op; op = op->next) {
		*at = malloc(sizeof(*op));
		**at = *op;
		at = &(*at)->next;
	}
	*at = NULL;
	return CUDA_SUCCESS;
}
API CUresult cuGraphLaunch(CUgraphExec exec, CUstream s)
{
	struct op *op;

	SEEN();
	for (op = exec->head; op; op = op->next)
		put(stream_of(s, 0), op);
	return CUDA_SUCCESS;
}
API CUresult cuUserObjectCreate(CUuserObject *out, void *ptr, CUhostFn destroy, unsigned int refs,
				unsigned int flags)
{
	void **o = calloc(2, sizeof(*o));

	(void)refs, (void)flags;
	SEEN();
	o[0] = ptr;
	o[1] = (void *)destroy;
	*out = (CUuserObject)o;
	return CUDA_SUCCESS;
}
API CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int nr,
				     unsigned int flags)
{
	void **o = (void **)object;

	(void)nr, (void)flags;
	SEEN();
	graph->destroy_arg[graph->nr_destroy] = o[0];
	graph->destroy[graph->nr_destroy++] = (CUhostFn)o[1];
	free(o);
	return CUDA_SUCCESS;
}
static void free_ops(struct op *op)
{
	for (struct op *next; op; op = next) {
		next = op->next;
		free(op);
	}
}
API CUresult cuGraphDestroy(CUgraph graph)
{
	int i;

	SEEN();
	for (i = 0; i < graph->nr_destroy; i++)
		graph->destroy[i](graph->destroy_arg[i]);
	free_ops(graph->head);
	free(graph);
	return CUDA_SUCCESS;
}
API CUresult cuGraphExecDestroy(CUgraphExec exec)
{
	SEEN();
	free_ops(exec->head);
	free(exec);
	return CUDA_SUCCESS;
}

/* ---- devices, contexts ------------------------------------------------------------------------------------------- */

static int nr_devices(void)
{
	const char *v = getenv("FAKE_CUDA_DEVICES");
	int n = v ? atoi(v) : 1;

	return n < 1 ? 0 : n > MAX_DEVICES ? MAX_DEVICES : n;
}
API CUresult cuInit(unsigned int flags)
{
	(void)flags;
	SEEN();
	return nr_devices() ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}
API CUresult cuDriverGetVersion(int *version)
{
	SEEN();
	*version = CUDA_VERSION;
	return CUDA_SUCCESS;
}
API CUresult cuDeviceGetCount(int *nr)
{
	SEEN();
	*nr = nr_devices();
	return CUDA_SUCCESS;
}
API CUresult cuDeviceGet(CUdevice *out, int i)
{
	SEEN();
	*out = i;
	return i >= 0 && i < nr_devices() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
API CUresult cuDeviceGetName(char *name, int len, CUdevice dev)
{
	SEEN();
	snprintf(name, (size_t)len, "fake %d", dev);
	return CUDA_SUCCESS;
}
API CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
	(void)dev;
	SEEN();
	*bytes = 1ull << 30;
	return CUDA_SUCCESS;
}
API CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice dev)
{
	SEEN();
	memset(uuid, dev + 1, sizeof(*uuid));
	return CUDA_SUCCESS;
}
API CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute what, CUdevice dev)
{
	(void)dev;
	SEEN();
	switch (what) {
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
		*value = 9;
		break;
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
		*value = 0;
		break;
	case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
		*value = 1024;
		break;
	default:
		*value = 1;
	}
	return CUDA_SUCCESS;
}
API CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice dev)
{
	SEEN();
	pthread_mutex_lock(&lock);
	primary[dev].device = dev;
	primary[dev].refs++;
	if (!primary[dev].id)
		primary[dev].id = next_id++;
	pthread_mutex_unlock(&lock);
	*out = &primary[dev];
	return CUDA_SUCCESS;
}
API CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active)
{
	SEEN();
	*flags = 0;
	*active = primary[dev].refs > 0;
	return CUDA_SUCCESS;
}
API CUresult cuCtxGetId(CUcontext ctx, unsigned long long *id)
{
	SEEN();
	ctx = ctx ? ctx : ctx_now();
	*id = ctx->id;
	return CUDA_SUCCESS;
}
API CUresult cuCtxSetCurrent(CUcontext ctx)
{
	SEEN();
	if (!depth)
		depth = 1;
	current[depth - 1] = ctx;
	return CUDA_SUCCESS;
}
API CUresult cuCtxPushCurrent_v2(CUcontext ctx)
{
	SEEN();
	current[depth++] = ctx;
	return CUDA_SUCCESS;
}
API CUresult cuCtxPopCurrent_v2(CUcontext *ctx)
{
	SEEN();
	depth--;
	if (ctx)
		*ctx = current[depth];
	return CUDA_SUCCESS;
}
API CUresult cuCtxGetCurrent(CUcontext *ctx)
{
	SEEN();
	*ctx = ctx_now();
	return CUDA_SUCCESS;
}
API CUresult cuCtxGetDevice(CUdevice *dev)
{
	SEEN();
	if (!ctx_now())
		return CUDA_ERROR_INVALID_CONTEXT;
	*dev = ctx_now()->device;
	return CUDA_SUCCESS;
}
API CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
	SEEN();
	*least = 0;
	*greatest = -5;
	return CUDA_SUCCESS;
}
API CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
	SEEN();
	(void)mode;
	return CUDA_SUCCESS;
}
API CUresult cuGetErrorName(CUresult error, const char **name)
{
	SEEN();
	(void)error;
	*name = "FAKE";
	return CUDA_SUCCESS;
}

/* ---- asking for functions ------------------------------------------------------------------------------------------ */

static CUresult newer_form(void)
{
	return CUDA_SUCCESS;
}

API CUresult cuGetProcAddress_v2(const char *base, void **out, int version, cuuint64_t flags,
				 CUdriverProcAddressQueryResult *status)
{
	const struct fake_symbol *s;
	const char *newer = getenv("FAKE_CUDA_NEWER");
	void *best = NULL;
	unsigned int nr, i;
	int pass, since = 0;

	SEEN();
	s = fake_symbols(&nr);
	/* First the per-thread form if that is wanted, then the other. */
	for (pass = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM ? 1 : 0;
	     pass >= 0 && !best; pass--)
		for (i = 0; i < nr; i++)
			if (s[i].ptds == pass && strcmp(s[i].base, base) == 0 &&
			    s[i].since <= version && s[i].since > since) {
				best = s[i].fn;
				since = s[i].since;
			}
	*out = NULL;
	if (strcmp(base, "cuGraphInstantiate") == 0 && version >= 12000)
		best = (void *)cuGraphInstantiateWithFlags;
	if (best && newer && strcmp(newer, base) == 0 && version >= 13010)
		*out = (void *)newer_form;
	else if (best)
		*out = best;
	if (status)
		*status = *out ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	return *out ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
API CUresult cuGetProcAddress(const char *base, void **out, int version, cuuint64_t flags)
{
	SEEN();
	return cuGetProcAddress_v2(base, out, version, flags, NULL);
}

/* ---- for tests ------------------------------------------------------------------------------------------------------- */

static uint64_t calls(const char *symbol)
{
	uint64_t n = 0;
	int i;

	pthread_mutex_lock(&lock);
	for (i = 0; i < 1024 && counts[i].symbol; i++)
		if (!symbol || strcmp(counts[i].symbol, symbol) == 0)
			n += counts[i].n;
	pthread_mutex_unlock(&lock);
	return n;
}
static void set_kernel(const char *name, fake_kernel_fn fn)
{
	int i;

	for (i = 0; i < 15 && kernels[i].fn && strcmp(kernels[i].name, name) != 0; i++)
		;
	snprintf(kernels[i].name, sizeof(kernels[i].name), "%s", name);
	kernels[i].fn = fn;
}
static int pending(void)
{
	int n;

	pthread_mutex_lock(&lock);
	n = all_pending(NULL);
	pthread_mutex_unlock(&lock);
	return n;
}
static void fail_launch(int result)
{
	launch_error = result;
}
static void sync_alloc(int on)
{
	alloc_waits = on;
}
static void fail_alloc(int nr)
{
	alloc_fails = nr;
}

API const struct fake_cuda *fake_cuda(void)
{
	static const struct fake_cuda f = {calls,      set_kernel, pending,  fail_launch,
					   sync_alloc, fail_alloc, fake_hide};

	return &f;
}
