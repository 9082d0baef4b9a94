/*
 * Streams: their objects, the meaning of a cudaStream_t for a thread, and the functions of the API
 * that create, query and wait. engine.c executes their operations. Any thread.
 */
#include "interpose/hostcuda/code.h"
#include "interpose/hostcuda/internal.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* -- objects ----------------------------------------------------------------------------------- */

static struct df_hstream *slot_get(struct df_hdev *dev)
{
	struct df_hstream *s;

	df_mutex_lock(&dev->lock);
	s = dev->free;
	if (s)
		dev->free = (struct df_hstream *)s->slot.next_free;
	df_mutex_unlock(&dev->lock);
	return s ? s : df_hslab_get(&df_h.streams);
}

void df_hstream_retire(struct df_hdev *dev, struct df_hstream *s)
{
	df_list_del(&s->all);
	s->slot.next_free = (struct df_hslot *)dev->free;
	dev->free = s;
}

/* maximum number of hardware queues that a test can request (code.h) */
#define QUEUES 32u

int df_hstream_queues(struct df_hstream *s)
{
	return s->internal || !df_hcode || !df_hcode->queues
		       ? 0
		       : (int)DF_MIN(df_hcode->queues(), QUEUES);
}

/* RELAXED pairs with stream_idle() in table.c, which reads it without the lock. */
static void set_queue(struct df_hstream *s, struct df_hqueue *q)
{
	__atomic_store_n(&s->queue, q, __ATOMIC_RELAXED);
}

void df_hstream_queue(struct df_hdev *dev, struct df_hstream *s, int works)
{
	struct df_hqueue *q;
	int nr, i;

	if (!works && s->queue && df_hcode && df_hcode->queues) {
		s->queue->users--;
		set_queue(s, NULL);
	}
	nr = works && !s->queue ? df_hstream_queues(s) : 0;
	if (!nr)
		return;
	if (!dev->queues)
		dev->queues = calloc(QUEUES, sizeof(*dev->queues));
	if (!dev->queues)
		return;
	q = &dev->queues[0];
	for (i = 1; i < nr; i++)
		if (dev->queues[i].users < q->users)
			q = &dev->queues[i];
	q->users++;
	set_queue(s, q);
}

/*
 * Returns the next id that belongs to the queue: the judge of a trace computes the queue as the id
 * modulo the number of queues.
 */
static uint64_t id_in(uint64_t queue, uint64_t nr)
{
	uint64_t last = __atomic_load_n(&df_h.next_id, __ATOMIC_RELAXED), id;

	/* RELAXED: the id only has to be unique, as in df_hid(). */
	do
		id = last + 1 + (queue + nr - (last + 1) % nr) % nr;
	while (!__atomic_compare_exchange_n(&df_h.next_id, &last, id, 0, __ATOMIC_RELAXED,
					    __ATOMIC_RELAXED));
	return id;
}

int df_hstream_new(struct df_hdev *dev, int priority, int blocking, int internal,
		   struct df_hstream **out)
{
	uint64_t nr = (uint64_t)df_env()->host_queues, queue;
	struct df_hstream *s = slot_get(dev);

	if (!s)
		return -ENOMEM;
	df_mutex_lock(&dev->lock);
	/* A slot stays with its device: threads that wait for an old point of it may read this. */
	if (!s->id)
		s->device = dev->index;
	s->priority = priority;
	s->legacy = s->per_thread = 0;
	s->blocking = (uint8_t)blocking;
	s->internal = (uint8_t)internal;
	s->user = NULL;
	s->head = s->tail = NULL;
	s->busy = s->dying = 0;
	s->legacy_seen = 0;
	/* Internal streams use no hardware queue. A test's queues are assigned with the work. */
	if (dev->queues && !internal && !(df_hcode && df_hcode->queues)) {
		queue = dev->nr_created++ % nr;
		s->queue = &dev->queues[queue];
		s->id = id_in(queue, nr);
	} else {
		s->queue = NULL;
		s->id = df_hid();
	}
	/* RELAXED: no other thread knows the stream yet. */
	__atomic_store_n(&s->capture, NULL, __ATOMIC_RELAXED);
	s->frontier.nr = 0;
	df_list_init(&s->members);
	df_list_init(&s->active);
	df_list_add_tail(&dev->streams, &s->all);
	df_mutex_unlock(&dev->lock);
	df_hslot_publish(&s->slot);
	*out = s;
	return 0;
}

void df_hstream_delete(struct df_hstream *s)
{
	struct df_hdev *dev = df_hdev(s->device);

	if (!df_hslot_retire(&s->slot))
		return;
	df_mutex_lock(&dev->lock);
	s->dying = 1;
	if (!s->head && !s->busy)
		df_hstream_retire(dev, s);
	df_mutex_unlock(&dev->lock);
}

/* -- per-thread default streams ---------------------------------------------------------------- */

static pthread_key_t thread_key;
static pthread_once_t thread_once = PTHREAD_ONCE_INIT;

static void thread_end(void *arg)
{
	struct df_hstream **streams = arg;
	struct df_stream_info info;
	int i;

	for (i = 0; i < df_h.nr_devices; i++) {
		if (!streams[i])
			continue;
		df_hstream_describe(streams[i], &info);
		if (DF_H_HOOK(stream_destroy))
			df_hhooks()->stream_destroy(&info);
		df_hcapture_stream_gone(streams[i]);
		df_hstream_delete(streams[i]);
	}
	free(streams);
	df_htls.per_thread = NULL;
}

static void make_key(void)
{
	pthread_key_create(&thread_key, thread_end);
}

static struct df_hstream *per_thread(void)
{
	struct df_hstream *s;
	struct df_stream_info info;
	struct df_hdev *dev;
	int device = df_htls.device;

	if (df_htls.per_thread && df_htls.per_thread[device])
		return df_htls.per_thread[device];
	pthread_once(&thread_once, make_key);
	if (!df_htls.per_thread) {
		df_htls.per_thread = calloc((size_t)df_h.nr_devices, sizeof(s));
		if (!df_htls.per_thread)
			return NULL;
		pthread_setspecific(thread_key, df_htls.per_thread);
	}
	dev = df_hdev_current();
	if (!dev || df_hstream_new(dev, 0, 1, 0, &s))
		return NULL;
	s->per_thread = 1;
	df_htls.per_thread[device] = s;
	df_hstream_describe(s, &info);
	if (DF_H_HOOK(stream_create))
		df_hhooks()->stream_create(&info);
	return s;
}

/* -- lookup ------------------------------------------------------------------------------------ */

struct df_hstream *df_hstream_find(cudaStream_t stream)
{
	struct df_hdev *dev;

	if ((uintptr_t)stream > 2)
		return df_hslab_find(&df_h.streams, stream);
	if (stream == cudaStreamPerThread)
		return per_thread();
	dev = df_hdev_current();
	return dev ? dev->legacy : NULL;
}

cudaError_t df_hstream_enter(cudaStream_t stream, struct df_hstream **out)
{
	cudaError_t err = df_henter();

	if (err)
		return err;
	if (df_unlikely(df_htls.in_host_fn))
		return cudaErrorNotPermitted;
	*out = df_hstream_find(stream);
	return *out ? cudaSuccess : cudaErrorInvalidResourceHandle;
}

void df_hstream_describe(struct df_hstream *s, struct df_stream_info *out)
{
	out->stream = (struct df_mstream *)s;
	out->id = s->id;
	out->device = s->device;
	out->priority = s->priority;
	out->legacy = s->legacy;
	out->blocking = s->blocking;
	out->per_thread = s->per_thread;
	out->capturing = (uint8_t)df_hstream_capturing(s);
	out->user = &s->user;
}

void df_hbefore_work(struct df_hstream *s, enum df_work kind, const struct df_touch *touch)
{
	struct df_stream_info info;

	if (!DF_H_HOOK(before_work) || s->internal)
		return;
	df_hstream_describe(s, &info);
	df_hhooks()->before_work(&info, kind, touch);
}

void df_hafter_graph(struct df_hstream *s, int launched)
{
	struct df_stream_info info;

	if (!DF_H_HOOK(after_graph) || s->internal)
		return;
	df_hstream_describe(s, &info);
	df_hhooks()->after_graph(&info, launched);
}

int df_hstream_idle(struct df_hstream *s)
{
	if (s->legacy)
		/*
		 * ACQUIRE pairs with the RELEASE in complete(): without it a thread that gets
		 * "idle" might not see the last operation's memory.
		 */
		return !__atomic_load_n(&df_hdev(s->device)->nr_blocking, __ATOMIC_ACQUIRE);
	return df_hpoint_done(df_hstream_tail(s));
}

/* -- create, destroy --------------------------------------------------------------------------- */

static cudaError_t create(cudaStream_t *out, unsigned flags, int priority)
{
	struct df_stream_info info;
	struct df_hstream *s;
	struct df_hdev *dev;
	cudaError_t err = df_henter();

	if (err)
		return err;
	if (!out || (flags & ~(unsigned)cudaStreamNonBlocking))
		return cudaErrorInvalidValue;
	if (df_htls.in_host_fn)
		return cudaErrorNotPermitted;
	dev = df_hdev_current();
	priority = DF_MAX(DF_MIN(priority, 0), -5);
	if (!dev || df_hstream_new(dev, priority, !(flags & cudaStreamNonBlocking), 0, &s))
		return cudaErrorMemoryAllocation;
	df_hstream_describe(s, &info);
	if (DF_H_HOOK(stream_create))
		df_hhooks()->stream_create(&info);
	*out = (cudaStream_t)s;
	return cudaSuccess;
}

DF_H_API cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
	return df_hret(create(stream, 0, 0));
}

DF_H_API cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
	return df_hret(create(stream, flags, 0));
}

DF_H_API cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags,
						  int priority)
{
	return df_hret(create(stream, flags, priority));
}

DF_H_API cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
	struct df_stream_info info;
	struct df_hstream *s;
	cudaError_t err = df_hstream_enter(stream, &s);

	if (err)
		return df_hret(err);
	if ((uintptr_t)stream <= 2 || s->per_thread || s->legacy || s->internal)
		return df_hret(cudaErrorInvalidResourceHandle);
	df_hstream_describe(s, &info);
	if (DF_H_HOOK(stream_destroy))
		df_hhooks()->stream_destroy(&info);
	df_hcapture_stream_gone(s);
	df_hstream_delete(s);
	return cudaSuccess;
}

/* -- waiting ----------------------------------------------------------------------------------- */

DF_H_API cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
	struct df_stream_info info;
	struct df_hstream *s;
	cudaError_t err = df_hstream_enter(stream, &s);

	if (!err)
		err = df_hcapture_check_sync(s);
	if (df_unlikely(err))
		return df_hret(err);
	if (DF_H_HOOK(stream_sync)) {
		df_hstream_describe(s, &info);
		df_hhooks()->stream_sync(&info);
	}
	if (!df_hstream_idle(s))
		df_hwait_stream(s);
	df_hsync_done(s->device);
	return cudaSuccess;
}

DF_H_API cudaError_t cudaStreamQuery(cudaStream_t stream)
{
	struct df_stream_info info;
	struct df_hstream *s;
	cudaError_t err = df_hstream_enter(stream, &s);
	int done;

	if (!err)
		err = df_hcapture_check_sync(s);
	if (df_unlikely(err))
		return df_hret(err);
	if (DF_H_HOOK(stream_query)) {
		df_hstream_describe(s, &info);
		done = !df_hhooks()->stream_query(&info) && df_hstream_idle(s);
		df_hhooks()->queried(done);
	} else {
		done = df_hstream_idle(s);
	}
	return df_hret(done ? cudaSuccess : cudaErrorNotReady);
}

DF_H_API cudaError_t cudaDeviceSynchronize(void)
{
	cudaError_t err = df_henter();
	struct df_hdev *dev;

	if (!err && df_htls.in_host_fn)
		err = cudaErrorNotPermitted;
	if (!err)
		err = df_hunsafe();
	if (err)
		return df_hret(err);
	dev = df_hdev_current();
	if (!dev)
		return df_hret(cudaErrorMemoryAllocation);
	df_hsync_device(dev, DF_SYNC_DEVICE);
	return cudaSuccess;
}

/* -- attributes -------------------------------------------------------------------------------- */

#define GETTER(name, type, value)                                                                  \
	DF_H_API cudaError_t name(cudaStream_t stream, type *out)                                  \
	{                                                                                          \
		struct df_hstream *s;                                                              \
		cudaError_t err = df_hstream_enter(stream, &s);                                    \
                                                                                                   \
		if (!err && !out)                                                                  \
			err = cudaErrorInvalidValue;                                               \
		if (!err)                                                                          \
			*out = (value);                                                            \
		return df_hret(err);                                                               \
	}                                                                                          \
	DF_H_API __typeof__(name) name##_ptsz;                                                     \
	DF_H_API cudaError_t name##_ptsz(cudaStream_t stream, type *out)                           \
	{                                                                                          \
		return name(df_hpt(stream), out);                                                  \
	}

GETTER(cudaStreamGetPriority, int, s->priority)
GETTER(cudaStreamGetFlags, unsigned,
       s->blocking || s->legacy ? cudaStreamDefault : cudaStreamNonBlocking)
GETTER(cudaStreamGetId, unsigned long long, s->id)
GETTER(cudaStreamGetDevice, int, s->device)

DF_H_API cudaError_t cudaStreamGetAttribute(cudaStream_t stream, cudaStreamAttrID attr,
					    cudaStreamAttrValue *value)
{
	struct df_hstream *s;
	cudaError_t err = df_hstream_enter(stream, &s);

	if (!err && !value)
		err = cudaErrorInvalidValue;
	if (err)
		return df_hret(err);
	memset(value, 0, sizeof(*value));
	if (attr == cudaLaunchAttributePriority)
		value->priority = s->priority;
	else if (attr == cudaLaunchAttributeSynchronizationPolicy)
		value->syncPolicy = cudaSyncPolicyAuto;
	return cudaSuccess;
}

/* Hints for caches and scheduling, which have no effect here. */
DF_H_API cudaError_t cudaStreamSetAttribute(cudaStream_t stream, cudaStreamAttrID attr,
					    const cudaStreamAttrValue *value)
{
	struct df_hstream *s;
	cudaError_t err = df_hstream_enter(stream, &s);

	if (!err && (!value || (unsigned)attr > 32))
		err = cudaErrorInvalidValue;
	return df_hret(err);
}

DF_H_API cudaError_t cudaStreamCopyAttributes(cudaStream_t dst, cudaStream_t src)
{
	struct df_hstream *s;
	cudaError_t err = df_hstream_enter(dst, &s);

	if (!err)
		err = df_hstream_enter(src, &s);
	return df_hret(err);
}

DF_H_API cudaError_t cudaStreamAttachMemAsync(cudaStream_t stream, void *ptr, size_t length,
					      unsigned flags)
{
	struct df_hop op = {.kind = DF_HOP_MARK};
	struct df_mem_info info;
	struct df_hstream *s;
	cudaError_t err = df_hstream_enter(stream, &s);

	(void)length;
	if (err)
		return df_hret(err);
	df_hmem_info(ptr, &info, NULL);
	if (!ptr || (info.kind != DF_MEM_MANAGED && info.kind != DF_MEM_UNKNOWN) || flags > 4)
		return df_hret(cudaErrorInvalidValue);
	return df_hret(df_hsubmit(s, &op, DF_WORK_MEMOP));
}

/* -- host functions ---------------------------------------------------------------------------- */

DF_H_API cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *arg)
{
	struct df_hop op = {.kind = DF_HOP_HOST, .host = {fn, arg}};
	struct df_hstream *s;
	cudaError_t err = df_hstream_enter(stream, &s);

	if (!err && !fn)
		err = cudaErrorInvalidValue;
	if (!err)
		err = df_hsubmit(s, &op, DF_WORK_HOSTFN);
	return df_hret(err);
}

DF_H_API cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t fn, void *arg,
					   unsigned flags)
{
	struct df_hop op = {.kind = DF_HOP_CALLBACK, .callback = {fn, stream, arg}};
	struct df_hstream *s;
	cudaError_t err = df_hstream_enter(stream, &s);

	if (!err && (!fn || flags))
		err = cudaErrorInvalidValue;
	if (!err && df_hstream_capturing(s))
		err = cudaErrorStreamCaptureUnsupported;
	if (!err)
		err = df_hsubmit(s, &op, DF_WORK_HOSTFN);
	return df_hret(err);
}
