/*
 * Translates the application's calls of the CUDA driver: from the hook's functions (cuda_front.h)
 * to the runtime's hooks (struct df_hooks), with handles replaced by the backend's state of them.
 * Runs on the application's threads; holds no lock.
 */
#if __has_include(<cuda.h>)
#include "runtime/base/err.h"
#include "runtime/device/cuda/cuda_daemon.h"
#include "runtime/device/cuda/cuda_far.h"
#include "runtime/device/cuda/cuda_int.h"
#include "runtime/device/cuda/front/cuda_front.h"
#include "runtime/recorded.h"

static __thread int sync_device;
static __thread int sync_quiet; /* whether this thread is in a quiet time of that device */

static int info_of(void *stream, int ptds, struct df_stream_info *out)
{
	struct df_mstream *s = df_cuda_stream(stream, ptds);

	if (!s || s->own)
		return -1;
	df_cuda_stream_describe(s, out);
	return 0;
}

static void work(void *stream, int ptds, enum df_work kind)
{
	struct df_stream_info info;

	if (!info_of(stream, ptds, &info))
		df_cuda_hooks->before_work(&info, kind, NULL);
}

static void kernel(void *stream, int ptds, const void *fn)
{
	struct df_stream_info info;

	if (info_of(stream, ptds, &info))
		return;
	df_cuda_hooks->before_work(&info, DF_WORK_KERNEL, NULL);
	if (df_cuda_hooks->before_kernel)
		df_cuda_hooks->before_kernel(&info,
					     df_cuda_hook ? df_cuda_hook->name_of(fn) : NULL);
}

static void work_range(void *stream, struct df_touch touch, int ptds, enum df_work kind)
{
	struct df_stream_info info;

	if (!info_of(stream, ptds, &info))
		df_cuda_hooks->before_work(&info, kind, &touch);
}

/*
 * On the legacy stream the copy would wait for the blocking streams' work. The calling thread, not
 * the stream, waits for our operations among it, because that wait can be released.
 */
static void sync_copy(const struct df_touch *t, int ptds)
{
	struct df_stream_info info;

	if (info_of(NULL, ptds, &info))
		return;
	sync_device = info.device;
	if (!info.legacy) {
		df_cuda_hooks->before_work(&info, DF_WORK_MEMCPY, t);
		df_cuda_hooks->stream_sync(&info);
		return;
	}
	if (!df_cuda_hooks->sync_copy || !df_cuda_hooks->sync_copy(&info, t))
		df_cuda_hooks->before_work(&info, DF_WORK_MEMCPY, t);
	df_cuda_hooks->device_sync(info.device, DF_SYNC_MEMCPY, NULL);
}

static void stream_sync(void *stream, int ptds)
{
	struct df_stream_info info;

	if (info_of(stream, ptds, &info))
		return;
	sync_device = info.device;
	df_cuda_hooks->stream_sync(&info);
}

static void event_sync(void *event)
{
	struct df_event_info info;

	if (df_cuda_event(event, &info))
		return;
	sync_device = info.device;
	df_cuda_hooks->event_sync(&info);
}

static int device_of_ctx(void *ctx)
{
	int in, device;

	if (!ctx)
		return df_cuda_api.get_device();
	in = df_cuda_enter(ctx);
	if (in < 0)
		return -1;
	device = df_cuda_api.get_device();
	df_cuda_leave(in);
	return device;
}

/*
 * The driver would wait for the daemon's kernel as for any other, so the daemon is asked to leave.
 */
static int device_sync(void *ctx)
{
	int device = device_of_ctx(ctx);

	if (device < 0)
		return 0;
	sync_device = device;
	if (df_cuda_hooks->device_sync(device, DF_SYNC_DEVICE, NULL))
		return 1;
	if (!df_cuda_recording) {
		df_cuda_quiet(device, 1);
		sync_quiet = 1;
	}
	return 0;
}

static void sync_done(void)
{
	if (sync_quiet)
		df_cuda_quiet(sync_device, 0);
	sync_quiet = 0;
	df_cuda_hooks->sync_done(sync_device);
}

static int stream_query(void *stream, int ptds)
{
	struct df_stream_info info;

	return info_of(stream, ptds, &info) ? 0 : df_cuda_hooks->stream_query(&info);
}

static int event_query(void *event)
{
	struct df_event_info info;

	return df_cuda_event(event, &info) ? 0 : df_cuda_hooks->event_query(&info);
}

static void queried(int done)
{
	df_cuda_hooks->queried(done);
}

static int event_time(void **event)
{
	struct df_event_info info;

	return df_cuda_event(*event, &info) ? 0 : df_cuda_hooks->event_time(&info, event);
}

static int event_record(void *event, void *stream, int ptds)
{
	struct df_stream_info s;
	struct df_event_info e;

	if (info_of(stream, ptds, &s) || df_cuda_event(event, &e))
		return 0;
	return df_cuda_hooks->event_record(&e, &s);
}

static void strict_each(const struct df_stream_info *info, void *arg)
{
	(void)arg;
	df_cuda_hooks->before_work(info, DF_WORK_MEMOP, NULL);
}

/* The event stands for all streams of a context: all of them take strict order. */
static void event_record_ctx(void *event, void *ctx)
{
	(void)event;
	df_cuda_stream_each(device_of_ctx(ctx), strict_each, NULL);
}

static void event_wait(void *event, void *stream, int ptds)
{
	struct df_stream_info s;
	struct df_event_info e;

	if (!info_of(stream, ptds, &s) && !df_cuda_event(event, &e))
		df_cuda_hooks->event_wait(&s, &e);
}

static void wait_each(const struct df_stream_info *info, void *arg)
{
	df_cuda_hooks->event_wait(info, arg);
}

static void event_wait_ctx(void *event, void *ctx)
{
	struct df_event_info e;
	int device = device_of_ctx(ctx);

	if (df_cuda_event(event, &e))
		return;
	/* First for future streams, so that a stream made meanwhile is not missed. */
	df_cuda_gate_wait(device, &e);
	df_cuda_stream_each(device, wait_each, &e);
}

/* Asks the driver for the context of a green context; drivers before 12.4 cannot do that. */
static void *green_ctx(void *green)
{
	CUresult (*convert)(CUcontext * ctx, CUgreenCtx green);
	CUcontext ctx = NULL;

	*(void **)&convert = df_drv_find("cuCtxFromGreenCtx", 12040);
	return convert && convert(&ctx, green) == CUDA_SUCCESS ? ctx : NULL;
}

static int free_mem(void *ptr)
{
	struct df_mem_info info;

	if (!ptr || df_cuda_api.mem_info(ptr, &info) || info.kind == DF_MEM_UNKNOWN ||
	    info.base != ptr)
		return 0;
	if (df_cuda_hooks->free(ptr, &info))
		return 1;
	/*
	 * No operation touches it, but a stream of some device may have been made to wait since,
	 * and the driver may wait for all streams. Then a thread of its own frees it.
	 */
	return !df_cuda_alone_enter(-1, 0) && !df_cuda_mem_free(ptr);
}

static void unmap(uintptr_t at, size_t bytes)
{
	if (df_cuda_hooks->unmap)
		df_cuda_hooks->unmap(df_cuda_api.get_device(), at, bytes);
}

static void peer_context(void *ctx)
{
	df_cuda_peers_note(df_cuda_api.get_device(), device_of_ctx(ctx));
}

static void peer_memory(uintptr_t at, const void *descs, size_t nr)
{
	CUpointer_attribute what = CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
	const CUmemAccessDesc *v = descs;
	int device = -1;
	void *data = &device;
	size_t i;

	if (df_drv.pointer(1, &what, &data, at) != CUDA_SUCCESS)
		device = -1;
	for (i = 0; v && i < nr; i++)
		if (v[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE)
			df_cuda_peers_note(v[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE
						   ? v[i].location.id
						   : -1,
					   device);
}

/*
 * Returns 1 to try again. Also if there is nothing to wait for: another thread may have freed
 * memory since the driver looked, or be freeing some now.
 */
static int memory_short(void)
{
	if (!df_cuda_hooks->flush)
		return 0;
	df_cuda_hooks->flush(df_cuda_api.get_device());
	df_cuda_far_spare(df_cuda_api.get_device());
	df_cuda_daemon_frugal();
	df_cuda_frees_settle();
	return 1;
}

static void before_lock(void)
{
	CUdevice dev;

	/*
	 * A thread without a context makes no call that waits. For a call of NCCL no stream can be
	 * waited for: it may wait for the operation that this thread is launching.
	 */
	if (!df_cuda_recording && !df_record_inside && df_drv.ctx_device(&dev) == CUDA_SUCCESS)
		df_cuda_alone_enter(df_cuda_api.get_device(), 1);
}

static int quiet_enter(enum df_sync_kind kind)
{
	CUdevice dev;
	int device;

	/* A thread without a context makes no call that waits. See before_lock(). */
	if (df_drv.ctx_device(&dev) != CUDA_SUCCESS || (df_record_inside && !df_cuda_recording))
		return -1;
	device = df_cuda_api.get_device();
	if (df_cuda_recording) {
		df_cuda_hooks->device_sync(device, kind, NULL);
		return device;
	}
	/* As at a kernel's first launch: see cuda_kernels.c. */
	if (kind == DF_SYNC_LOAD)
		df_cuda_alone_enter(device, 1);
	df_cuda_quiet(device, 1);
	return device;
}

static void quiet_leave(int token)
{
	df_cuda_alone_leave();
	if (token >= 0 && df_cuda_recording)
		df_cuda_hooks->sync_done(token);
	else if (token >= 0)
		df_cuda_quiet(token, 0);
}

static void capture(int begin)
{
	/* If some calls are not seen, captures are not counted: every stream is queried. */
	if (__atomic_load_n(&df_cuda_captures, __ATOMIC_RELAXED) >= 0)
		__atomic_add_fetch(&df_cuda_captures, begin ? 1 : -1, __ATOMIC_RELAXED);
}

static int graph_made(void *exec, void *graph, int fresh)
{
	CUresult (*destroy)(CUgraphExec exec);
	int ret = df_cuda_graph_made(exec, graph);

	if (!ret || !fresh)
		return ret;
	df_cuda_graph_gone(exec);
	*(void **)&destroy = df_drv_find("cuGraphExecDestroy", 10000);
	if (destroy)
		destroy(exec);
	return ret;
}

static int graph_set(void *node, const struct df_node_set *to)
{
	return df_cuda_graph_set(node, to);
}

static void graph_gone(void *exec)
{
	df_cuda_graph_gone(exec);
}

static int graph_launch(void *exec, void *stream, int ptds)
{
	struct df_mstream *s = df_cuda_stream(stream, ptds);
	struct df_stream_info info;
	int ret;

	if (!s)
		return 0;
	df_cuda_stream_describe(s, &info);
	ret = info.capturing ? 0 : df_cuda_graph_issue(exec, &info);
	if (ret)
		return ret;
	df_cuda_hooks->before_work(&info, DF_WORK_GRAPH, NULL);
	/* A captured launch runs nothing: it becomes part of another graph, or is refused. */
	return info.capturing ? 0 : df_cuda_graph_launch(exec, s);
}

static void graph_keeps(void)
{
	df_cuda_graph_kept();
}

static void graph_launched(void *exec, void *stream, int ptds, int launched)
{
	struct df_stream_info info;

	if (info_of(stream, ptds, &info))
		return;
	if (!launched && !info.capturing)
		df_cuda_graph_lost(exec, info.stream);
	if (df_cuda_hooks->after_graph)
		df_cuda_hooks->after_graph(&info, launched > 0);
}

static void event_made(void *event, unsigned int flags)
{
	df_cuda_event_made(event, flags);
}

static void event_gone(void *event)
{
	struct df_event_info info;

	if (!df_cuda_event(event, &info))
		df_cuda_hooks->event_destroy(&info);
	df_cuda_event_forget(event);
}

static void stream_made(void *stream)
{
	struct df_stream_info info;

	if (!info_of(stream, 0, &info))
		df_cuda_hooks->stream_create(&info);
}

static void stream_gone(void *stream)
{
	struct df_mstream *s = df_cuda_stream_known(stream, 0);
	struct df_stream_info info;

	if (!s || s->own)
		return;
	df_cuda_stream_describe(s, &info);
	df_cuda_hooks->stream_destroy(&info);
	df_cuda_stream_forget(s);
}

struct ending {
	CUcontext ctx;
	struct df_mstream *s[256];
	unsigned int nr;
};

static void end_each(const struct df_stream_info *info, void *arg)
{
	struct ending *e = arg;

	if (info->stream->ctx == e->ctx && e->nr < DF_ARRAY_LEN(e->s))
		e->s[e->nr++] = info->stream;
}

static void context_gone(void *ctx, int device)
{
	struct df_stream_info info;
	struct ending e = {.ctx = ctx};
	unsigned int i;

	if (!ctx && device < 0)
		return; /* another user released the primary context; our reference keeps it */
	if (!ctx) {
		df_cuda_hooks->device_sync(device, DF_SYNC_RESET, NULL);
		df_cuda_hooks->sync_done(device);
		e.ctx = df_cuda_ctx(device);
	}
	do {
		e.nr = 0;
		df_cuda_stream_each(-1, end_each, &e);
		for (i = 0; i < e.nr; i++) {
			df_cuda_stream_describe(e.s[i], &info);
			df_cuda_hooks->stream_destroy(&info);
			df_cuda_stream_forget(e.s[i]);
		}
	} while (e.nr);
}

const struct df_cuda_hook *df_cuda_hook;

const struct df_cuda_front df_cuda_front = {
	.blind = df_cuda_strict,
	.work = work,
	.kernel = kernel,
	.work_range = work_range,
	.sync_copy = sync_copy,
	.stream_sync = stream_sync,
	.event_sync = event_sync,
	.device_sync = device_sync,
	.sync_done = sync_done,
	.stream_query = stream_query,
	.event_query = event_query,
	.queried = queried,
	.event_time = event_time,
	.event_record = event_record,
	.event_record_ctx = event_record_ctx,
	.event_wait = event_wait,
	.event_wait_ctx = event_wait_ctx,
	.green_ctx = green_ctx,
	.free = free_mem,
	.unmap = unmap,
	.peer_context = peer_context,
	.peer_memory = peer_memory,
	.memory_short = memory_short,
	.before_lock = before_lock,
	.quiet_enter = quiet_enter,
	.quiet_leave = quiet_leave,
	.launch_enter = df_cuda_launch_enter,
	.launch_leave = df_cuda_launch_leave,
	.capture = capture,
	.graph_made = graph_made,
	.graph_set = graph_set,
	.graph_gone = graph_gone,
	.graph_launch = graph_launch,
	.graph_launched = graph_launched,
	.graph_keeps = graph_keeps,
	.event_made = event_made,
	.event_gone = event_gone,
	.stream_made = stream_made,
	.stream_gone = stream_gone,
	.context_gone = context_gone,
};
#endif
