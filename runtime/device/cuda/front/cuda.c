/*
 * The GPU backend: struct df_backend and struct df_blocks, on the CUDA driver. Streams belong to
 * the application; our state of each is in a table, by handle (for events: cuda_event.c). Words
 * that streams write or wait for are in pinned memory, and are accessed by the driver's stream
 * memory operations.
 *
 * The table's lock is a leaf and never held across a call of the driver. Any thread.
 */
#if __has_include(<cuda.h>)
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/base/err.h"
#include "runtime/base/log.h"
#include "runtime/base/time.h"
#include "runtime/device/cuda/cuda_int.h"
#include "runtime/device/cuda/front/cuda_front.h"
#include "runtime/device/cuda/cuda_daemon.h"
#include "runtime/device/cuda/cuda_far.h"
#include "runtime/device/cuda/cuda_meet.h"
#include "runtime/device/cuda/cuda_near.h"
#include "runtime/device/device.h"

/* ---- devices --------------------------------------------------------------------------------- */

static int device_of(CUcontext ctx)
{
	CUdevice dev = -1;
	int i, in = df_cuda_enter(ctx);

	if (in < 0)
		return -1;
	if (df_drv.ctx_device(&dev) != CUDA_SUCCESS)
		dev = -1;
	df_cuda_leave(in);
	for (i = 0; i < df_nr_cudevs; i++)
		if (df_cudevs[i].device == dev)
			return i;
	return -1;
}

static int device_count(void)
{
	return df_nr_cudevs;
}

static const char *pci(int device)
{
	return df_cudevs[device].pci;
}

static int set_device(int device)
{
	CUcontext ctx = df_cuda_ctx(device);

	if (!ctx)
		return -EINVAL;
	return df_drv_errno(df_drv.ctx_set(ctx));
}

/* ---- streams --------------------------------------------------------------------------------- */

static pthread_rwlock_t streams_lock = PTHREAD_RWLOCK_INITIALIZER;
static struct df_mstream *streams;

static int is_special(CUstream s)
{
	return s == NULL || s == CU_STREAM_LEGACY || s == CU_STREAM_PER_THREAD;
}

/* Makes the key of a stream. handle: set to the driver's handle for it. Returns 0 or -EINVAL. */
static int key_of(CUstream s, int ptds, struct df_mstream_key *key, CUstream *handle)
{
	unsigned long long id = 0;

	*handle = s ? s : ptds ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
	memset(key, 0, sizeof(*key));
	key->handle = (uintptr_t)*handle;
	/* These handles name several streams: one of each context, or of each thread. */
	if ((is_special(s) || df_cuda_captures < 0) &&
	    df_drv.stream_id(*handle, &id) != CUDA_SUCCESS)
		return -EINVAL;
	key->id = id;
	return 0;
}

static struct df_mstream *find(const struct df_mstream_key *key)
{
	struct df_mstream *s;

	pthread_rwlock_rdlock(&streams_lock);
	HASH_FIND(hh, streams, key, sizeof(*key), s);
	pthread_rwlock_unlock(&streams_lock);
	return s;
}

struct df_mstream *df_cuda_stream_known(CUstream handle, int ptds)
{
	struct df_mstream_key key;
	CUstream h;

	return key_of(handle, ptds, &key, &h) ? NULL : find(&key);
}

static struct df_mstream *stream_of(CUstream handle, int ptds, uint8_t own)
{
	struct df_mstream_key key;
	struct df_mstream *s, *other;
	unsigned long long id;
	CUstream h;

	if (key_of(handle, ptds, &key, &h))
		return NULL;
	s = find(&key);
	if (s)
		return s;
	s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	s->key = key;
	s->handle = h;
	s->own = own;
	if (df_drv.stream_ctx(h, &s->ctx) != CUDA_SUCCESS ||
	    df_drv.stream_id(h, &id) != CUDA_SUCCESS ||
	    df_drv.stream_flags(h, &s->flags) != CUDA_SUCCESS ||
	    df_drv.stream_priority(h, &s->priority) != CUDA_SUCCESS ||
	    (s->device = device_of(s->ctx)) < 0) {
		free(s);
		return NULL;
	}
	/* Never 0, which the runtime takes for "none". */
	s->id = id + 1;
	pthread_rwlock_wrlock(&streams_lock);
	HASH_FIND(hh, streams, &key, sizeof(key), other);
	if (!other)
		HASH_ADD(hh, streams, key, sizeof(s->key), s);
	pthread_rwlock_unlock(&streams_lock);
	if (other) {
		free(s);
		return other;
	}
	if (!own)
		df_cuda_gate_follow(s);
	return s;
}

struct df_mstream *df_cuda_stream(CUstream handle, int ptds)
{
	return stream_of(handle, ptds, 0);
}

void df_cuda_stream_forget(struct df_mstream *s)
{
	pthread_rwlock_wrlock(&streams_lock);
	HASH_DEL(streams, s);
	pthread_rwlock_unlock(&streams_lock);
	free(s);
}

void df_cuda_stream_describe(struct df_mstream *s, struct df_stream_info *out)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

	memset(out, 0, sizeof(*out));
	out->stream = s;
	out->id = s->id;
	out->device = s->device;
	out->priority = s->priority;
	out->legacy = s->handle == CU_STREAM_LEGACY;
	out->per_thread = s->handle == CU_STREAM_PER_THREAD;
	out->blocking = !(s->flags & CU_STREAM_NON_BLOCKING);
	out->user = &s->user;
	if (__atomic_load_n(&df_cuda_captures, __ATOMIC_RELAXED) != 0 && !out->legacy)
		df_drv.stream_capturing(s->handle, &status);
	out->capturing = status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/*
 * A program may call NCCL before CUDA, for example if its rank 0 first makes the unique id. Whether
 * the application uses the driver through the hook is known at the latest when the first stream is
 * given to NCCL, because the application must have created it.
 */
static int undecided;

void df_cuda_strict(void)
{
	if (df_cuda_hooks && df_cuda_hooks->strict)
		df_cuda_hooks->strict();
}

static void unseen(void)
{
	__atomic_store_n(&df_cuda_captures, -1, __ATOMIC_RELAXED);
	if (df_cuda_recording) {
		df_warn_once(
			"some calls of the CUDA driver bypass dfshim's hook: the trace has gaps");
		return;
	}
	df_cuda_strict();
	df_warn_once("some calls of the CUDA driver bypass dfshim's hook: collectives keep strict "
		     "order");
}

static int stream_info(const void *stream, struct df_stream_info *out)
{
	struct df_mstream *s;

	if (__atomic_load_n(&undecided, __ATOMIC_RELAXED) &&
	    __atomic_exchange_n(&undecided, 0, __ATOMIC_RELAXED) && df_cuda_hook->sees() <= 0)
		unseen();
	s = df_cuda_stream((CUstream)stream, 0);

	if (!s)
		return -EINVAL;
	df_cuda_stream_describe(s, out);
	return 0;
}

void df_cuda_stream_each(int device, void (*fn)(const struct df_stream_info *s, void *arg),
			 void *arg)
{
	struct df_mstream *s, **all;
	unsigned int nr = 0, i;

	pthread_rwlock_rdlock(&streams_lock);
	all = malloc((HASH_COUNT(streams) + 1) * sizeof(struct df_mstream *));
	for (s = streams; s && all; s = s->hh.next)
		if ((device < 0 || s->device == device) && !s->own)
			all[nr++] = s;
	pthread_rwlock_unlock(&streams_lock);
	for (i = 0; i < nr; i++) {
		struct df_stream_info info;

		df_cuda_stream_describe(all[i], &info);
		fn(&info, arg);
	}
	free(all);
}

/*
 * Makes a stream of our own. It has the highest priority: NCCL's kernels run on such streams
 * (runtime/exec/nccl), and others of ours have only waits and records. Returns 0 or -errno.
 */
static int stream_make(int device, struct df_mstream **out)
{
	int in = df_cuda_enter(df_cuda_ctx(device)), least, greatest;
	struct df_mstream *s;
	CUstream h;
	CUresult r;

	if (in < 0)
		return in;
	if (df_drv.ctx_priorities(&least, &greatest) != CUDA_SUCCESS)
		greatest = 0;
	r = df_drv.stream_create(&h, CU_STREAM_NON_BLOCKING, greatest);
	/* Queried while its context is current, because a driver may require that. */
	s = r == CUDA_SUCCESS ? stream_of(h, 0, 1) : NULL;
	if (r == CUDA_SUCCESS && !s)
		df_drv.stream_destroy(h);
	df_cuda_leave(in);
	*out = s;
	return s ? 0 : r == CUDA_SUCCESS ? -ENOMEM : df_drv_errno(r);
}

static const void *stream_handle(struct df_mstream *s)
{
	return s->handle;
}

static void stream_delete(struct df_mstream *s)
{
	df_drv.stream_destroy(s->handle);
	df_cuda_stream_forget(s);
}

/*
 * One unused stream for each device. A driver may delay the creation of a stream until running work
 * ends (pmodels/yaksa issue 228). So it is made before there is any work to wait for, and the next
 * one on a thread that may wait.
 */
static struct df_mstream *spares[DF_CUDA_DEVICES_MAX];

static void spare_make(void *device)
{
	struct df_mstream **spare = &spares[(intptr_t)device], *s, *none = NULL;

	/* RELEASE pairs with the ACQUIRE in stream_new(): the stream is initialised. */
	if (!stream_make((int)(intptr_t)device, &s) &&
	    !__atomic_compare_exchange_n(spare, &none, s, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
		stream_delete(s);
}

/*
 * Makes sure that a stream of our own is ready for stream_new() of struct df_backend. May wait for
 * the device.
 */
static void make_spare_stream(int device)
{
	if (!__atomic_load_n(&spares[device], __ATOMIC_RELAXED))
		spare_make((void *)(intptr_t)device);
}

static int open_device(int device, char *reason, size_t reason_bytes)
{
	if (df_cudevs[device].lacks)
		snprintf(reason, reason_bytes, "GPU %d has no %s", device, df_cudevs[device].lacks);
	else if (!df_cuda_ctx(device))
		snprintf(reason, reason_bytes, "GPU %d: the driver refuses a context", device);
	else
		make_spare_stream(device);
	return df_cudevs[device].lacks || !df_cudevs[device].ctx ? -EOPNOTSUPP : 0;
}

static int stream_new(int device, struct df_stream_info *out)
{
	struct df_mstream *s = NULL;
	int ret = 0;

	if (device >= 0 && device < DF_CUDA_DEVICES_MAX)
		/* ACQUIRE pairs with the RELEASE in spare_make(). */
		s = __atomic_exchange_n(&spares[device], NULL, __ATOMIC_ACQUIRE);
	if (s)
		df_cuda_aside(spare_make, (void *)(intptr_t)device);
	else
		ret = stream_make(device, &s);
	if (!ret)
		df_cuda_stream_describe(s, out);
	return ret;
}

static void write_of(CUstreamBatchMemOpParams *op, const uint64_t *addr, uint64_t value)
{
	*op = (CUstreamBatchMemOpParams){0};
	op->writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
	op->writeValue.address = (CUdeviceptr)(uintptr_t)addr;
	op->writeValue.value64 = value;
	/*
	 * The default flags order it after the stream's earlier work, and its writes, for the whole
	 * system.
	 */
	op->writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
}

static int stream_write(struct df_mstream *s, uint64_t *addr, uint64_t *near, uint64_t value)
{
	int in = df_cuda_enter(s->ctx);
	CUstreamBatchMemOpParams op[2];
	unsigned int nr = 0;
	CUresult r;

	if (in < 0)
		return in;
	if (near)
		write_of(&op[nr++], near, value);
	write_of(&op[nr++], addr, value);
	r = df_drv.stream_batch(s->handle, nr, op, 0);
	df_cuda_leave(in);
	return df_drv_errno(r);
}

static int stream_wait(struct df_mstream *s, const uint64_t *addr, uint64_t value)
{
	int in = df_cuda_enter(s->ctx);
	CUresult r;

	if (in < 0)
		return in;
	r = df_drv.stream_wait64(s->handle, (CUdeviceptr)(uintptr_t)addr, value,
				 CU_STREAM_WAIT_VALUE_GEQ);
	df_cuda_leave(in);
	return df_drv_errno(r);
}

static int stream_idle(struct df_mstream *s)
{
	int in = df_cuda_enter(s->ctx);
	CUresult r;

	if (in < 0)
		return 0;
	r = df_drv.stream_query(s->handle);
	/*
	 * The stream's next work also waits for the legacy stream. But while a thread captures,
	 * querying the legacy stream might invalidate the capture: then it counts as busy.
	 */
	if (r == CUDA_SUCCESS && s->handle != CU_STREAM_LEGACY &&
	    !(s->flags & CU_STREAM_NON_BLOCKING))
		r = __atomic_load_n(&df_cuda_captures, __ATOMIC_RELAXED) != 0
			    ? CUDA_ERROR_NOT_READY
			    : df_drv.stream_query(CU_STREAM_LEGACY);
	df_cuda_leave(in);
	return r == CUDA_SUCCESS;
}

static void look_at_stream(const struct df_stream_info *s, void *arg)
{
	int *idle = arg;

	*idle = *idle && stream_idle(s->stream);
}

static int streams_idle(int device)
{
	int idle = 1;

	df_cuda_stream_each(device, look_at_stream, &idle);
	return idle;
}

/* ---- the table ------------------------------------------------------------------------------- */

static void set_hooks(const struct df_hooks *hooks)
{
	df_cuda_hooks = hooks;
	if (df_cuda_hook)
		df_cuda_hook->set(hooks ? &df_cuda_front : NULL);
	if (df_cuda_hook && df_cuda_hook->sees() >= 0) {
		/* If the driver was never asked for, no thread captures. */
		__atomic_store_n(&undecided, !df_cuda_hook->sees(), __ATOMIC_RELAXED);
		__atomic_store_n(&df_cuda_captures, 0, __ATOMIC_RELAXED);
		return;
	}
	if (hooks)
		unseen();
}

static int kick(int device)
{
	int held;

	/* The device polls its words itself; only the gates of ended replays need this. */
	(void)device;
	(void)df_cuda_graph_poll(&held);
	return held;
}

static const struct df_blocks blocks = {
	.gpu = 1,
	.blocks = df_cuda_blocks,
	.device_id = df_cuda_device_id,
	.queues = 32,
	.open = open_device,
	.ctas = df_cuda_ctas,
	.able = df_cuda_daemon_check,
	.prepare = df_cuda_daemon_prepare,
	.meet = df_cuda_meet,
	.start = df_cuda_daemon_start,
	.reserve = df_cuda_reserve,
	.first_turns = df_cuda_first_turns,
	.submitted = df_cuda_daemon_wake,
	.pass = df_cuda_pass,
	.wait = df_cuda_wait,
	.stop = df_cuda_daemon_stop,
	.resume = df_cuda_daemon_resume,
	.stay = df_cuda_daemon_stay,
	.launches = df_cuda_daemon_launches,
	.shared_alloc = df_cuda_pinned,
	.shared_free = df_cuda_pinned_free,
	.scratch = df_cuda_scratch,
	.scratch_free = df_cuda_scratch_free,
	.near_words = df_cuda_near_words,
	.show = df_cuda_show,
	.hide = df_cuda_hide,
	.aside = df_cuda_aside,
	.far_agreed = df_cuda_agreed,
	.far_alloc = df_cuda_far_alloc,
	.far_free = df_cuda_far_free,
	.far_open = df_cuda_far_chunk,
	.far_close = df_cuda_far_close,
	.far_limit = df_cuda_far_limit,
	.far_bytes = df_cuda_far_bytes,
	.far_rdma = df_cuda_far_rdma,
};

const struct df_backend df_cuda_api = {
	.version = DF_BACKEND_VERSION,
	.blocks = &blocks,
	.pci = pci,
	.set_hooks = set_hooks,
	.device_count = device_count,
	.get_device = df_cuda_get_device,
	.set_device = set_device,
	.stream_info = stream_info,
	.stream_new = stream_new,
	.stream_delete = stream_delete,
	.stream_handle = stream_handle,
	.stream_write = stream_write,
	.stream_wait = stream_wait,
	.stream_idle = stream_idle,
	.event_record = df_cuda_event_record,
	.event_wait = df_cuda_event_wait,
	.event_new = df_cuda_event_new,
	.event_delete = df_cuda_event_delete,
	.streams_idle = streams_idle,
	.capture_nodes = df_cuda_capture_nodes,
	.kick = kick,
	.mem_alloc = df_cuda_mem_alloc,
	.mem_free = df_cuda_mem_free,
	.mem_info = df_cuda_mem_info,
	.reaches = df_cuda_reaches,
};

static void read_pci(struct df_cudev *d)
{
	int domain, bus, slot;

	if (df_drv.device_attribute(&domain, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, d->device) ==
		    CUDA_SUCCESS &&
	    df_drv.device_attribute(&bus, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, d->device) ==
		    CUDA_SUCCESS &&
	    df_drv.device_attribute(&slot, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, d->device) ==
		    CUDA_SUCCESS)
		snprintf(d->pci, sizeof(d->pci), "%04x:%02x:%02x.0", domain & 0xffff, bus & 0xff,
			 slot & 0xff);
}

/* Returns the first requirement that the device does not meet, or NULL. */
static const char *lacks(CUdevice device)
{
	static const struct {
		CUdevice_attribute what;
		int least;
		const char *name;
	} needs[] = {
		{CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 8, "compute capability 8.0"},
		{CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1, "unified addressing"},
		{CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 1,
		 "64-bit stream memory operations"},
		{CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1,
		 "one address for registered memory"},
	};
	size_t k;
	int v = 0;

	for (k = 0; k < DF_ARRAY_LEN(needs); k++)
		if (df_drv.device_attribute(&v, needs[k].what, device) != CUDA_SUCCESS ||
		    v < needs[k].least)
			return needs[k].name;
	return NULL;
}

const struct df_backend *df_cuda_open(char *reason, size_t reason_bytes)
{
	const char *v = getenv("CUDA_LAUNCH_BLOCKING");

	/*
	 * With this variable a launch returns only when the kernel has ended. The poller would
	 * wait in the daemon's launch, and could not note the completions of operations.
	 */
	if (v && *v && strcmp(v, "0") != 0) {
		snprintf(
			reason, reason_bytes,
			"CUDA_LAUNCH_BLOCKING is set: the launch of a collective would not return");
		return NULL;
	}
	return df_cuda_open_driver(reason, reason_bytes);
}

const struct df_backend *df_cuda_open_recording(char *reason, size_t reason_bytes)
{
	const struct df_backend *api = df_cuda_open_driver(reason, reason_bytes);

	df_cuda_recording = api != NULL;
	return api;
}

const struct df_backend *df_cuda_open_driver(char *reason, size_t reason_bytes)
{
	int i, usable = 0;

	if (df_drv_open(reason, reason_bytes))
		return NULL;
	if (df_drv.device_count(&df_nr_cudevs) != CUDA_SUCCESS || df_nr_cudevs < 1) {
		snprintf(reason, reason_bytes, "no usable GPU: the driver has no device");
		return NULL;
	}
	df_nr_cudevs = DF_MIN(df_nr_cudevs, DF_CUDA_DEVICES_MAX);
	for (i = 0; i < df_nr_cudevs; i++) {
		struct df_cudev *d = &df_cudevs[i];

		d->lacks = df_drv.device_get(&d->device, i) == CUDA_SUCCESS ? lacks(d->device)
									    : "number";
		read_pci(d);
		usable += !d->lacks;
	}
	/* A GPU that the daemon cannot run on is refused only when a communicator is made on it. */
	if (usable)
		return &df_cuda_api;
	snprintf(reason, reason_bytes, "GPU 0 has no %s", df_cudevs[0].lacks);
	return NULL;
}
#endif
