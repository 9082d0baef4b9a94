/*
 * The hook in front of the CUDA driver. A user of the driver (both forms of libcudart, libraries
 * that open libcuda themselves) finds its functions by dlsym or by cuGetProcAddress. Both return
 * the wrappers below, one for each DF_CU row of interpose/cuda/cuda_api.def. A program linked with
 * libcuda gets them from the loader, because they are exported under the driver's names. A wrapper
 * reports the call to the backend (runtime/device/cuda/front/cuda_front.h) and then calls the
 * driver. While there is no backend, it only calls the driver.
 *
 * A wrapper is returned only for the function that it was written for: the result of
 * cuGetProcAddress for the requested version must be its result for the version in the row. If the
 * driver has a newer form of a function that is not in the table, that form is not wrapped, and
 * this is logged once.
 *
 * Threads: any. No lock. A call that the driver makes while it is inside one of ours is not hooked.
 */
#define _GNU_SOURCE
#define __CUDA_API_VERSION_INTERNAL /* cuda.h then declares every symbol under its own name */
#include <cuda.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include "interpose/cuda/cuda_hook.h"
#include "interpose/cuda/cuda_names.h"
#include "interpose/cuda/cuda_touch.h"
#include "runtime/base/connections.h"
#include "runtime/base/dlsym.h"
#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/log.h"
#include "runtime/device/cuda/front/cuda_front.h"

enum {
#define DF_CU(symbol, base, since, ptds, class, kind, object, params, args) AT_##symbol,
#include "interpose/cuda/cuda_calls.def"
#undef DF_CU
	NR_ROWS
};

static void *real_fn[NR_ROWS];
static const struct df_cuda_front *front;
static int handed_out;
static int blind;      /* a function was requested in a form that the table does not have */
static int peers_seen; /* see struct df_cuda_hook */
static __thread int inside;

int df_cuda_in_driver(void)
{
	return inside;
}

static const struct df_cuda_front *enter(void)
{
	/*
	 * ACQUIRE pairs with the RELEASE in front_set(): without it, the backend could be
	 * called before the state that it relies on is visible.
	 */
	const struct df_cuda_front *f = __atomic_load_n(&front, __ATOMIC_ACQUIRE);

	if (df_likely(!f) || inside)
		return NULL;
	inside = 1;
	return f;
}

static void proc_answer(const char *symbol, void **pfn, int version, cuuint64_t flags);
static void *driver_fn(int at);

/* Returns the event that an attribute of a launch records, or NULL. */
static CUevent launch_event(const CUlaunchAttribute *a)
{
	switch ((int)a->id) {
	case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
		return a->value.programmaticEvent.event;
#if CUDA_VERSION >= 12030
	case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
		return a->value.launchCompletionEvent.event;
#endif
	default:
		return NULL;
	}
}

static struct df_cuda_launch launch_what(const CUlaunchConfig *c, CUfunction fn)
{
	struct df_cuda_launch l = {
		.fn = fn,
		.threads = c->blockDimX * c->blockDimY * c->blockDimZ,
		.shared = c->sharedMemBytes,
	};

	for (unsigned int i = 0; i < c->numAttrs; i++)
		if (c->attrs[i].id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE &&
		    c->attrs[i].value.cooperative)
			l.together = (uint64_t)c->gridDimX * c->gridDimY * c->gridDimZ;
	return l;
}

/*
 * Whether the call ended a capture. A call on a stream without a capture ends none, but counting
 * one too many is harmless.
 */
static int capture_ended(CUresult ret)
{
	return ret == CUDA_SUCCESS || ret == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED ||
	       ret == CUDA_ERROR_STREAM_CAPTURE_UNMATCHED ||
	       ret == CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
}

static inline struct df_node_set node_set_host(const void *fn, const void *arg)
{
	return (struct df_node_set){.fn = fn, .arg = arg};
}

static inline struct df_node_set node_set_ops(const void *ops, unsigned int nr)
{
	return (struct df_node_set){.ops = ops, .nr_ops = nr};
}

#if CUDA_VERSION >= 12020
static struct df_node_set node_set_any(const CUgraphNodeParams *p)
{
	switch (p ? (int)p->type : -1) {
	case CU_GRAPH_NODE_TYPE_HOST:
		return node_set_host((const void *)p->host.fn, p->host.userData);
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		return node_set_ops(p->memOp.paramArray, p->memOp.count);
	case CU_GRAPH_NODE_TYPE_GRAPH:
		return (struct df_node_set){.child = p->graph.graph};
	default:
		return (struct df_node_set){0};
	}
}
#endif

/* ---- the actions of each class -------------------------------------------------------------- */

#define PAIR(a, b)   (a), (b)
#define FIRST(a, b)  (a)
#define SECOND(a, b) (b)

#define DO_WORK(kind, ptds, object, call)                                                          \
	df_f->work(object, ptds, DF_WORK_##kind);                                                  \
	df_ret = call
#define RANGES(stream, out, nr_out, in, nr_in)                                                     \
	(stream), (struct df_touch)                                                                \
	{                                                                                          \
		(uintptr_t)(in), (uintptr_t)(in) + (nr_in), (uintptr_t)(out),                      \
			(uintptr_t)(out) + (nr_out)                                                \
	}
#define DO_WORK_RANGE(kind, ptds, object, call)                                                    \
	df_f->work_range(RANGES object, ptds, DF_WORK_##kind);                                     \
	df_ret = call
/*
 * Finds the memory that the work touches from the call's parameters, if possible, and stores it in
 * df_t.
 */
#define DO_WORK_TOUCH(kind, ptds, object, call)                                                    \
	struct df_touch df_t;                                                                      \
	if (SECOND object)                                                                         \
		df_f->work_range(FIRST object, df_t, ptds, DF_WORK_##kind);                        \
	else                                                                                       \
		df_f->work(FIRST object, ptds, DF_WORK_##kind);                                    \
	df_ret = call
#define LAUNCH_WHAT(stream, fn, together, threads, shared)                                         \
	{                                                                                          \
		(fn), (together), (threads), (shared)                                              \
	}
#define LAUNCH_STREAM(stream, ...) (stream)
#define DO_LAUNCH(kind, ptds, object, call)                                                        \
	const struct df_cuda_launch df_l = LAUNCH_WHAT object;                                     \
	int df_token;                                                                              \
	df_f->kernel(LAUNCH_STREAM object, ptds, df_l.fn);                                         \
	df_token = df_f->launch_enter(&df_l);                                                      \
	df_ret = call;                                                                             \
	df_f->launch_leave(&df_l, df_token, df_ret == CUDA_SUCCESS)
/*
 * A launch can have attributes that record events when it begins. Such a record replaces the
 * event's last one.
 */
#define DO_LAUNCH_EX(kind, ptds, object, call)                                                     \
	const struct df_cuda_launch df_l = launch_what(FIRST object, SECOND object);               \
	int df_token;                                                                              \
	df_f->kernel((FIRST object)->hStream, ptds, df_l.fn);                                      \
	for (unsigned int df_i = 0; df_i < (FIRST object)->numAttrs; df_i++)                       \
		if (launch_event(&(FIRST object)->attrs[df_i]))                                    \
			df_f->event_record(launch_event(&(FIRST object)->attrs[df_i]),             \
					   (FIRST object)->hStream, ptds);                         \
	df_token = df_f->launch_enter(&df_l);                                                      \
	df_ret = call;                                                                             \
	df_f->launch_leave(&df_l, df_token, df_ret == CUDA_SUCCESS)
#define DO_WORK_MULTI(kind, ptds, object, call)                                                    \
	for (unsigned int df_i = 0; df_i < SECOND object; df_i++)                                  \
		df_f->work((FIRST object)[df_i].hStream, ptds, DF_WORK_##kind);                    \
	df_ret = call
#define SYNC_RANGES(out, nr_out, in, nr_in)                                                        \
	(&(struct df_touch){(uintptr_t)(in), (uintptr_t)(in) + (nr_in), (uintptr_t)(out),          \
			    (uintptr_t)(out) + (nr_out)})
#define DO_SYNC_COPY_RANGE(kind, ptds, object, call)                                               \
	df_f->sync_copy(SYNC_RANGES object, ptds);                                                 \
	df_ret = call;                                                                             \
	df_f->sync_done()
#define DO_SYNC_COPY(kind, ptds, object, call)                                                     \
	df_f->sync_copy(NULL, ptds);                                                               \
	df_ret = call;                                                                             \
	df_f->sync_done()
#define DO_SYNC_COPY_TOUCH(kind, ptds, object, call)                                               \
	struct df_touch df_t;                                                                      \
	df_f->sync_copy((object) ? &df_t : NULL, ptds);                                            \
	df_ret = call;                                                                             \
	df_f->sync_done()
#define DO_SYNC_STREAM(kind, ptds, object, call)                                                   \
	df_f->stream_sync(object, ptds);                                                           \
	df_ret = call;                                                                             \
	df_f->sync_done()
#define DO_SYNC_EVENT(kind, ptds, object, call)                                                    \
	df_f->event_sync(object);                                                                  \
	df_ret = call;                                                                             \
	df_f->sync_done()
#define DO_SYNC_DEVICE(kind, ptds, object, call)                                                   \
	if (df_f->device_sync(object)) {                                                           \
		df_ret = CUDA_SUCCESS;                                                             \
	} else {                                                                                   \
		df_ret = call;                                                                     \
		df_f->sync_done();                                                                 \
	}
#define QUERY_EVENT(object, ptds)  df_f->event_query(object)
#define QUERY_STREAM(object, ptds) df_f->stream_query(object, ptds)
#define DO_QUERY(kind, ptds, object, call)                                                         \
	df_ret = QUERY_##kind(object, ptds) ? CUDA_ERROR_NOT_READY : (call);                       \
	df_f->queried(df_ret == CUDA_SUCCESS ? 1 : df_ret == CUDA_ERROR_NOT_READY ? 0 : -1)
#define DO_EVENT_TIME(kind, ptds, object, call)                                                    \
	df_ret = df_f->event_time((void **)&FIRST object) ||                                       \
				 df_f->event_time((void **)&SECOND object)                         \
			 ? CUDA_ERROR_NOT_READY                                                    \
			 : (call)
#define RECORD_STREAM(object, ptds)  df_f->event_record(PAIR object, ptds)
#define RECORD_CONTEXT(object, ptds) (df_f->event_record_ctx(PAIR object), 0)
#define RECORD_GREEN(object, ptds)                                                                 \
	(df_f->event_record_ctx(FIRST object, df_f->green_ctx(SECOND object)), 0)
#define DO_EVENT_RECORD(kind, ptds, object, call)                                                  \
	df_ret = RECORD_##kind(object, ptds) ? CUDA_SUCCESS : (call)
#define WAIT_STREAM(object, ptds)  df_f->event_wait(PAIR object, ptds)
#define WAIT_CONTEXT(object, ptds) df_f->event_wait_ctx(PAIR object)
#define DO_EVENT_WAIT(kind, ptds, object, call)                                                    \
	WAIT_##kind(object, ptds);                                                                 \
	df_ret = call
#define WAIT_GREEN(object, ptds) df_f->event_wait_ctx(FIRST object, df_f->green_ctx(SECOND object))
#define DO_FREE(kind, ptds, object, call)                                                          \
	if (df_f->free(object)) {                                                                  \
		df_ret = CUDA_SUCCESS;                                                             \
	} else {                                                                                   \
		int df_token = df_f->quiet_enter(DF_SYNC_FREE);                                    \
		df_ret = call;                                                                     \
		df_f->quiet_leave(df_token);                                                       \
	}
#define DO_ALLOC_SYNC(kind, ptds, object, call)                                                    \
	int df_token = df_f->quiet_enter(DF_SYNC_##kind);                                          \
	df_ret = call;                                                                             \
	df_f->quiet_leave(df_token);                                                               \
	if (df_unlikely(df_ret == CUDA_ERROR_OUT_OF_MEMORY) && df_f->memory_short()) {             \
		df_token = df_f->quiet_enter(DF_SYNC_##kind);                                      \
		df_ret = call;                                                                     \
		df_f->quiet_leave(df_token);                                                       \
	}
#define DO_UNMAP(kind, ptds, object, call)                                                         \
	df_f->unmap(PAIR object);                                                                  \
	DO_GIVE_BACK(kind, ptds, object, call)
#define DO_GIVE_BACK(kind, ptds, object, call)                                                     \
	df_f->before_lock();                                                                       \
	DO_ALLOC_SYNC(kind, ptds, object, call)
/* Access that already exists counts, too, because it was granted before the hook was active. */
#define PEERS_CONTEXT(object) df_f->peer_context(object)
#define PEERS_MEMORY(object)  df_f->peer_memory(object)
#define PEERS_ANY(object)     __atomic_store_n(&peers_seen, 1, __ATOMIC_RELAXED)
#define BARE(...)	      __VA_ARGS__
#define DO_PEER(kind, ptds, object, call)                                                          \
	DO_ALLOC_SYNC(DRIVER, ptds, object, call)                                                  \
	if (df_ret == CUDA_SUCCESS || df_ret == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)            \
	PEERS_##kind(BARE object)
#define CAPTURE_BEGIN(ret) ((ret) == CUDA_SUCCESS)
#define CAPTURE_END(ret)   (-capture_ended(ret))
#define DO_CAPTURE(kind, ptds, object, call)                                                       \
	df_ret = call;                                                                             \
	if (CAPTURE_##kind(df_ret))                                                                \
	df_f->capture(CAPTURE_##kind(df_ret) > 0)
#define AFTER_INSTANTIATE(exec, graph)                                                             \
	if (df_f->graph_made(*(exec), graph, 1))                                                   \
	*(exec) = NULL, df_ret = CUDA_ERROR_NOT_SUPPORTED
#define AFTER_UPDATE(exec, graph)                                                                  \
	if (df_f->graph_made(*(exec), graph, 0))                                                   \
	df_ret = CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE
#define AFTER_DESTROY(exec, graph) (void)0
#define BEFORE_INSTANTIATE(exec)   (void)0
#define BEFORE_UPDATE(exec)	   (void)0
#define BEFORE_DESTROY(exec)	   df_f->graph_gone(*(exec))
/* Instantiating allocates memory, which may wait for the device. */
#define DO_GRAPH(kind, ptds, object, call)                                                         \
	BEFORE_##kind(FIRST object);                                                               \
	int df_token = df_f->quiet_enter(DF_SYNC_DRIVER);                                          \
	df_ret = call;                                                                             \
	df_f->quiet_leave(df_token);                                                               \
	if (df_ret == CUDA_SUCCESS) {                                                              \
		AFTER_##kind(FIRST object, SECOND object);                                         \
	}
/* The new content of a graph's node. */
#define SET_HOST(p)  node_set_host((p) ? (const void *)(p)->fn : NULL, (p) ? (p)->userData : NULL)
#define SET_MEMOP(p) node_set_ops((p) ? (p)->paramArray : NULL, (p) ? (p)->count : 0)
#define SET_CHILD(g) ((struct df_node_set){.child = (g)})
#define SET_ANY(p)   node_set_any(p)
#define DO_NODE_SET(kind, ptds, object, call)                                                      \
	struct df_node_set df_to = SET_##kind(SECOND object);                                      \
	df_ret = df_f->graph_set(FIRST object, &df_to) ? CUDA_ERROR_NOT_SUPPORTED : (call)
#define DO_GRAPH_LAUNCH(kind, ptds, object, call)                                                  \
	int df_done = df_f->graph_launch(PAIR object, ptds);                                       \
	if (df_done == -EOPNOTSUPP)                                                                \
		df_ret = CUDA_ERROR_NOT_SUPPORTED;                                                 \
	else if (df_done < 0)                                                                      \
		df_ret = CUDA_ERROR_UNKNOWN;                                                       \
	else                                                                                       \
		df_ret = df_done ? CUDA_SUCCESS : (call);                                          \
	if (df_done <= 0)                                                                          \
	df_f->graph_launched(PAIR object, ptds, df_done < 0 ? -1 : df_ret == CUDA_SUCCESS)
#define BEFORE_EVENT_CREATE(where, flags)    (void)0
#define BEFORE_EVENT_DESTROY(where, flags)   df_f->event_gone(*(where))
#define BEFORE_STREAM_CREATE(where, flags)   (void)0
#define BEFORE_STREAM_DESTROY(where, flags)  df_f->stream_gone(*(where))
#define BEFORE_OBJECT_KEEP(where, flags)     (void)0
#define AFTER_OBJECT_KEEP(where, flags)	     df_f->graph_keeps()
#define BEFORE_CTX_DESTROY(where, flags)     df_f->context_gone(*(where), -1)
#define BEFORE_DEVICE_RESET(where, device)   df_f->context_gone(NULL, (int)(device))
#define BEFORE_DEVICE_RELEASE(where, device) (void)0
#define AFTER_EVENT_CREATE(where, flags)     df_f->event_made(*(where), flags)
#define AFTER_EVENT_DESTROY(where, flags)    (void)0
#define AFTER_STREAM_CREATE(where, flags)    df_f->stream_made(*(where))
#define AFTER_STREAM_DESTROY(where, flags)   (void)0
#define AFTER_CTX_DESTROY(where, flags)	     (void)0
#define AFTER_DEVICE_RESET(where, device)    (void)0
#define AFTER_DEVICE_RELEASE(where, device)  df_f->context_gone(NULL, ~(int)(device))
#define DO_CONTEXT(kind, ptds, object, call)                                                       \
	BEFORE_##kind(FIRST object, SECOND object);                                                \
	df_ret = call;                                                                             \
	if (df_ret == CUDA_SUCCESS)                                                                \
	AFTER_##kind(FIRST object, SECOND object)

#define BODY(class, kind, ptds, object, call)                                                      \
	const struct df_cuda_front *df_f = enter();                                                \
	CUresult df_ret;                                                                           \
	if (!df_f)                                                                                 \
		return call;                                                                       \
	DO_##class(kind, ptds, object, call);                                                      \
	inside = 0;                                                                                \
	return df_ret
#define BODY_PROC(class, kind, ptds, object, call)                                                 \
	CUresult df_ret = call;                                                                    \
	if (df_ret == CUDA_SUCCESS && symbol && pfn && *pfn)                                       \
		proc_answer(symbol, pfn, cudaVersion, flags);                                      \
	return df_ret
/*
 * This is recorded even before there is a backend, because the backend could not find it out
 * later.
 */
#define BODY_PEER(class, kind, ptds, object, call)                                                 \
	if (!__atomic_load_n(&front, __ATOMIC_RELAXED))                                            \
		__atomic_store_n(&peers_seen, 1, __ATOMIC_RELAXED);                                \
	BODY(class, kind, ptds, object, call)

/* The name is noted even before there is a backend. */
#define BODY_NAMED(class, kind, ptds, object, call)                                                \
	const struct df_cuda_front *df_f = enter();                                                \
	CUresult df_ret;                                                                           \
	if (df_f) {                                                                                \
		DO_ALLOC_SYNC(kind, ptds, object, call)                                            \
		inside = 0;                                                                        \
	} else {                                                                                   \
		df_ret = call;                                                                     \
	}                                                                                          \
	if (df_ret == CUDA_SUCCESS)                                                                \
		df_cuda_name_put(PAIR object);                                                     \
	return df_ret

/* This works even before there is a backend. */
#define BODY_START(class, kind, ptds, object, call)                                                \
	CUresult df_ret;                                                                           \
	df_connections_begin();                                                                    \
	df_ret = call;                                                                             \
	df_connections_end();                                                                      \
	return df_ret

/* The classes whose wrappers have a body of their own, instead of the kind's. */
#define OWN_NAMED , BODY_NAMED
#define OWN_PROC  , BODY_PROC
#define OWN_PEER  , BODY_PEER
#define OWN_START , BODY_START

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#define DF_CU(symbol, base, since, ptds, class, kind, object, params, args)                        \
	static CUresult wrap_##symbol params                                                       \
	{                                                                                          \
		CUresult(*df_real_call) params;                                                    \
		*(void **)&df_real_call =                                                          \
			__atomic_load_n(&real_fn[AT_##symbol], __ATOMIC_RELAXED);                  \
		if (df_unlikely(!df_real_call))                                                    \
			*(void **)&df_real_call = driver_fn(AT_##symbol);                          \
		if (df_unlikely(!df_real_call))                                                    \
			return CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND;                          \
		DF_DEFINED_OR(OWN_##class, BODY)(class, kind, ptds, object, df_real_call args);    \
	}                                                                                          \
	extern CUresult symbol params                                                              \
		__attribute__((alias("wrap_" #symbol), visibility("default")));
#include "interpose/cuda/cuda_calls.def"
#undef DF_CU

/* ---- returning wrappers --------------------------------------------------------------------- */

static const struct row {
	const char *symbol, *base;
	int since, ptds;
	void *wrap;
} rows[NR_ROWS] = {
#define DF_CU(symbol, base, since, ptds, class, kind, object, params, args)                        \
	[AT_##symbol] = {#symbol, #base, since, ptds, (void *)wrap_##symbol},
#include "interpose/cuda/cuda_calls.def"
#undef DF_CU
};

/* Whether this process may get a GPU backend, or records its calls. */
static int wanted(void)
{
	static int known; /* 0 unknown, 1 no, 2 yes; several threads may compute it */
	int k = __atomic_load_n(&known, __ATOMIC_RELAXED);

	if (!k) {
		const struct df_env *env = df_env();

		k = env->mode == DF_MODE_OFF || env->backend == DF_BACKEND_HOST ||
				    (env->backend == DF_BACKEND_AUTO &&
				     df_dlsym(RTLD_DEFAULT, "df_hostcuda"))
			    ? 1
			    : 2;
		__atomic_store_n(&known, k, __ATOMIC_RELAXED);
	}
	return k == 2;
}

static void *hand_out(int at, void *real)
{
	void *none = NULL;

	if (real == rows[at].wrap)
		return real;
	/*
	 * Keep the first one: dlsym and cuGetProcAddress may have two addresses for one function.
	 */
	__atomic_compare_exchange_n(&real_fn[at], &none, real, 0, __ATOMIC_RELAXED,
				    __ATOMIC_RELAXED);
	__atomic_store_n(&handed_out, 1, __ATOMIC_RELAXED);
	return rows[at].wrap;
}

/*
 * Returns the driver's function for a wrapper that the loader returned without a lookup, or NULL if
 * there is no driver or it lacks the function. Tries the program's own libcuda first. A libcuda
 * that is linked only with a library of the program, in a scope of its own, is found by its name.
 */
static void *driver_fn(int at)
{
	void *fn = df_dlsym(RTLD_NEXT, rows[at].symbol);
	void *lib = fn ? NULL : dlopen("libcuda.so.1", RTLD_NOW);

	if (lib)
		fn = df_dlsym(lib, rows[at].symbol);
	if (!fn || fn == rows[at].wrap)
		return NULL;
	hand_out(at, fn);
	return fn;
}

void *df_cuda_answer(const char *symbol, void *real)
{
	int i;

	if (!wanted())
		return NULL;
	for (i = 0; i < NR_ROWS; i++)
		if (strcmp(rows[i].symbol, symbol) == 0)
			return hand_out(i, real);
	return NULL;
}

/* Returns the driver's own result for another version, or NULL. */
static void *proc_ask(const char *symbol, int version, cuuint64_t flags)
{
	CUresult (*v1)(const char *, void **, int, cuuint64_t);
	CUresult (*v2)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);
	CUdriverProcAddressQueryResult found;
	void *fn = NULL;

	*(void **)&v1 = __atomic_load_n(&real_fn[AT_cuGetProcAddress], __ATOMIC_RELAXED);
	*(void **)&v2 = __atomic_load_n(&real_fn[AT_cuGetProcAddress_v2], __ATOMIC_RELAXED);
	if (v2)
		return v2(symbol, &fn, version, flags, &found) == CUDA_SUCCESS ? fn : NULL;
	return v1 && v1(symbol, &fn, version, flags) == CUDA_SUCCESS ? fn : NULL;
}

/* Returns the row for a version of a base name, or -1. */
static int row_of(const char *base, int version, int ptds)
{
	int i, best = -1;

	for (i = 0; i < NR_ROWS; i++)
		if (rows[i].ptds == ptds && rows[i].since <= version &&
		    strcmp(rows[i].base, base) == 0 &&
		    (best < 0 || rows[i].since > rows[best].since))
			best = i;
	return best;
}

static int known_base(const char *base)
{
	int i;

	for (i = 0; i < NR_ROWS; i++)
		if (strcmp(rows[i].base, base) == 0)
			return 1;
	return 0;
}

static void proc_answer(const char *symbol, void **pfn, int version, cuuint64_t flags)
{
	const struct df_cuda_front *f;
	int at = -1, i;

	if (!df_cuda_is_name(symbol) || !wanted())
		return;
	if (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)
		at = row_of(symbol, version, 1);
	if (at < 0)
		at = row_of(symbol, version, 0);
	if (at >= 0 &&
	    (version == rows[at].since || *pfn == proc_ask(symbol, rows[at].since, flags))) {
		*pfn = hand_out(at, *pfn);
		return;
	}
	/* The function was requested by its exported name. */
	for (i = 0; at < 0 && i < NR_ROWS; i++)
		if (strcmp(rows[i].symbol, symbol) == 0) {
			*pfn = hand_out(i, *pfn);
			return;
		}
	/*
	 * Some functions have two base names: since 12.0, cuGraphInstantiate means
	 * cuGraphInstantiateWithFlags.
	 */
	for (i = 0; i < NR_ROWS; i++)
		if (strncmp(rows[i].base, symbol, strlen(symbol)) == 0 &&
		    strcmp(rows[i].base, symbol) != 0 &&
		    *pfn == proc_ask(rows[i].base, rows[i].since, flags)) {
			*pfn = hand_out(i, *pfn);
			return;
		}
	if (!known_base(symbol))
		return;
	__atomic_store_n(&blind, 1, __ATOMIC_RELAXED);
	/* ACQUIRE pairs with the RELEASE in front_set(), as in enter(). */
	f = __atomic_load_n(&front, __ATOMIC_ACQUIRE);
	if (f)
		f->blind();
	df_warn_once("the CUDA driver has a form of %s (version %d) that this dfshim does not "
		     "know: calls of it are not seen, so collectives keep strict order",
		     symbol, version);
}

static void front_set(const struct df_cuda_front *f)
{
	/* RELEASE pairs with the ACQUIRE in enter(), which says why. */
	__atomic_store_n(&front, f, __ATOMIC_RELEASE);
}

static int front_sees(void)
{
	return __atomic_load_n(&blind, __ATOMIC_RELAXED)
		       ? -1
		       : __atomic_load_n(&handed_out, __ATOMIC_RELAXED);
}

static int peers_any(void)
{
	return __atomic_load_n(&peers_seen, __ATOMIC_RELAXED);
}

/*
 * The driver cannot be used in the child of a fork: calls go directly to the driver, which returns
 * errors.
 */
static void forked(void)
{
	front = NULL;
	inside = 0;
}

static const struct df_cuda_hook hook = {front_set, front_sees, peers_any, df_cuda_name_of};

__attribute__((constructor)) static void hook_loaded(void)
{
	df_cuda_hook = &hook;
	pthread_atfork(NULL, NULL, forked);
}
