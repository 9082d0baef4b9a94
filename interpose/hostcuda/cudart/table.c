/*
 * The interface to libdfshim.so (hostcuda.h): our part of its machine, and the hooks that it sets.
 * Any thread.
 */
#include "interpose/hostcuda/code.h"
#include "interpose/hostcuda/fault.h"
#include "interpose/hostcuda/internal.h"
#include "runtime/base/env.h"

#include <pthread.h>
#include <stdlib.h>

/*
 * The limits up to which data is moved with DFSHIM_HOST_STUB: STUB_BYTES of floating-point values
 * in a collective, STUB_MESSAGE of any type in a message. Not smaller than the results that are
 * computed (SMALL in dfshim/host/stub.py).
 */
#define STUB_BYTES   (64u << 10)
#define STUB_MESSAGE (1u << 20)

static void set_hooks(const struct df_hooks *hooks)
{
	/*
	 * RELEASE pairs with the ACQUIRE in df_hhooks(): without it the table could be seen before
	 * it is filled.
	 */
	__atomic_store_n(&df_h.hooks, hooks, __ATOMIC_RELEASE);
}

static int device_count(void)
{
	return df_henter() ? 0 : df_h.nr_devices;
}

static int get_device(void)
{
	return df_htls.device;
}

static int set_device(int device)
{
	if (df_henter() || !df_hdevice_ok(device))
		return -EINVAL;
	df_htls.device = device;
	return 0;
}

static int stream_info(const void *stream, struct df_stream_info *out)
{
	struct df_hstream *s;

	if (df_henter())
		return -EINVAL;
	s = df_hstream_find((cudaStream_t)(uintptr_t)stream);
	if (!s)
		return -EINVAL;
	df_hstream_describe(s, out);
	return 0;
}

static int stream_new(int device, struct df_stream_info *out)
{
	struct df_hdev *dev;
	struct df_hstream *s;

	if (df_henter() || !df_hdevice_ok(device))
		return -EINVAL;
	dev = df_hdev_get(device);
	if (!dev || df_hstream_new(dev, 0, 0, 1, &s))
		return -ENOMEM;
	df_hstream_describe(s, out);
	return 0;
}

/* Converts a stream of the interface. */
static struct df_hstream *of(struct df_mstream *s)
{
	return (struct df_hstream *)s;
}

static void stream_delete(struct df_mstream *s)
{
	df_hstream_delete(of(s));
}

static const void *stream_handle(struct df_mstream *s)
{
	return s;
}

static int capture_nodes(struct df_mstream *const *s, const struct df_capture_ops *ops,
			 void *const *args, uint32_t nr)
{
	uint32_t i;
	int ret = 0;

	for (i = 0; i < nr; i++) {
		if (!ret)
			ret = df_hcapture_coll(of(s[i]), ops, args[i]);
		if (ret)
			ops->destroy(args[i]);
	}
	return ret;
}

static int put(struct df_hstream *s, const struct df_hop *op)
{
	int captured = df_hcapture_add(s, op);

	return captured ? DF_MIN(captured, 0) : df_hstream_put(s, op, NULL);
}

static int stream_write(struct df_mstream *s, uint64_t *addr, uint64_t *near, uint64_t value)
{
	struct df_hop op = {.kind = DF_HOP_WRITE, .word = {.addr = addr, .value = value}};

	(void)near;
	return put(of(s), &op);
}

static int stream_wait(struct df_mstream *s, const uint64_t *addr, uint64_t value)
{
	struct df_hop op = {.kind = DF_HOP_WAIT,
			    .word = {.addr = (uint64_t *)(uintptr_t)addr, .value = value}};

	return put(of(s), &op);
}

static int event_record(void *event, struct df_mstream *s)
{
	struct df_hevent *e = df_hevent_find(event);

	return e ? df_hevent_record(e, of(s)) : -EINVAL;
}

static int event_wait(struct df_mstream *s, void *event)
{
	struct df_hevent *e = df_hevent_find(event);

	return e ? df_hevent_wait(of(s), e) : -EINVAL;
}

static int kick(int device)
{
	struct df_hdev *dev;

	if (df_henter() || !df_hdevice_ok(device))
		return 0;
	dev = df_hdev(device);
	if (dev)
		df_hdev_kick(dev);
	return 0;
}

static void wait(int device, int (*ready)(void *arg), void *arg, int64_t ns)
{
	df_hwait_for(df_hdev(device), ready, arg, ns);
}

static int mem_alloc(int device, size_t bytes, void **out)
{
	if (df_henter() || !df_hdevice_ok(device) || !bytes)
		return -EINVAL;
	return df_hmem_alloc(device, DF_MEM_DEVICE, 0, bytes, 1, out);
}

/* Frees memory that work enqueued earlier may still touch, without waiting for that work. */
static int mem_free(void *ptr)
{
	struct df_mem_info info;

	if (df_henter())
		return -EINVAL;
	df_hmem_look(ptr, 1, &info, NULL);
	if (info.kind == DF_MEM_UNKNOWN || info.base != ptr)
		return -EINVAL;
	return df_hreap(ptr, info.device);
}

static int mem_info(const void *ptr, struct df_mem_info *out)
{
	if (df_henter())
		return -EINVAL;
	df_hmem_look(ptr, 1, out, NULL);
	return 0;
}

/* Whether the stream is idle. Does not consider its hardware queue. */
static int is_idle(struct df_hstream *s)
{
	return !df_hstream_capturing(s) && df_hstream_idle(s) &&
	       (!s->blocking || df_hpoint_done(df_hstream_tail(df_hdev(s->device)->legacy)));
}

static int stream_idle(struct df_mstream *stream)
{
	struct df_hstream *s = of(stream);
	struct df_hdev *dev = df_hdev(s->device);
	struct df_hqueue *q;
	int free_queue;

	if (!is_idle(s))
		return 0;
	/*
	 * RELAXED: queues are never freed, and the contents of this one are read while the lock is
	 * held.
	 */
	q = __atomic_load_n(&s->queue, __ATOMIC_RELAXED);
	if (!q)
		return 1;
	df_mutex_lock(&dev->lock);
	free_queue = q->next == q->started;
	df_mutex_unlock(&dev->lock);
	return free_queue;
}

static int streams_idle(int device)
{
	struct df_hdev *dev;
	struct df_hstream *s;
	int idle = 1;

	if (df_henter() || !df_hdevice_ok(device) || !(dev = df_hdev(device)))
		return 1;
	df_mutex_lock(&dev->lock);
	df_list_each(s, &dev->streams, all) idle &=
		s->internal || s->dying ||
		(is_idle(s) && (!s->queue || s->queue->next == s->queue->started));
	df_mutex_unlock(&dev->lock);
	return idle;
}

/*
 * Whether a collective need not move its data: under DFSHIM_HOST_STUB, large floating-point values
 * are meaningless, because the operators that would have computed them were skipped. This does not
 * apply if a test executes kernels here (code.h). Integers are moved, because they may be sizes, or
 * objects that a program has pickled.
 */
static int skips_data(int type, uint64_t bytes)
{
	if (type < 0)
		return bytes > STUB_MESSAGE;
	return type >= DF_FLOAT16 && bytes > STUB_BYTES;
}

static struct df_backend api = {
	.version = DF_BACKEND_VERSION,
	.set_hooks = set_hooks,
	.device_count = device_count,
	.get_device = get_device,
	.set_device = set_device,
	.stream_info = stream_info,
	.stream_new = stream_new,
	.stream_delete = stream_delete,
	.stream_handle = stream_handle,
	.stream_write = stream_write,
	.stream_wait = stream_wait,
	/* Stricter than cudaStreamQuery(): also means that the next operation can start at once. */
	.stream_idle = stream_idle,
	.event_record = event_record,
	.event_wait = event_wait,
	.event_new = df_hevent_new,
	.event_delete = df_hevent_delete,
	.streams_idle = streams_idle,
	.capture_nodes = capture_nodes,
	.kick = kick,
	.wait = wait,
	.mem_alloc = mem_alloc,
	.mem_free = mem_free,
	.mem_info = mem_info,
};

static void configure(void)
{
	/* libdfshim.so leaves the warnings about the environment to us: print them by now. */
	api.submitting = df_hfault();
	if (df_env()->host_stub && !df_hcode)
		api.skips_data = skips_data;
}

DF_H_API const struct df_backend *df_hostcuda(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, configure);
	return &api;
}
