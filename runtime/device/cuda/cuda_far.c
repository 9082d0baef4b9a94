/*
 * GPU memory that only the daemon uses: slots and counters of connectors (the far_ functions of
 * struct df_blocks), and scratch memory of programs. Separate threads take it from the driver in
 * chunks, and arena/pool.c divides it; the next chunk is requested when the last one is half used.
 * A chunk of another process is opened once for each of our devices, and closed when that process
 * has ended.
 *
 * The driver may let an allocation wait for the resident kernel. So allocations are made in a quiet
 * time (the kernel is asked to leave), no thread waits for one longer than a bound, and a caller
 * that finds no room can use host memory instead.
 *
 * One lock for each device and one for opened chunks; no call of the driver is made under them.
 */
#if __has_include(<cuda.h>)
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/lock.h"
#include "runtime/base/log.h"
#include "runtime/base/time.h"
#include "runtime/device/cuda/cuda_far.h"
#include "runtime/transport/arena/pool.h"
#include "runtime/device/cuda/cuda_int.h"

#define CHUNK_BYTES (64ull << 20)
/* Maximum time that a connector waits for a chunk before it uses host memory. */
#define ROOM_NS	 (50 * DF_NS_PER_MS)
#define RETRY_NS DF_NS_PER_S /* pause after the driver had no memory */

struct chunk {
	CUdeviceptr addr;
	uint64_t bytes;
	CUipcMemHandle handle;
	/* addr is 0 if RDMA devices cannot access the chunk; rdma.why is then the reason */
	struct df_far_rdma rdma;
};

struct far_dev {
	struct df_mutex lock;
	struct df_pool pool;
	struct chunk chunks[DF_FAR_CHUNKS_MAX];
	int growing;
	uint64_t since;	     /* when the request for a chunk began */
	uint64_t not_before; /* no further request before this time */
	uint64_t want;	     /* bytes that the requested chunk must have; 0 means any number */
	int told;	     /* whether the lack of room has been logged */
	int frugal; /* the application ran out of memory: nothing is requested in advance */
};

static struct far_dev devs[DF_CUDA_DEVICES_MAX];
static pthread_once_t once = PTHREAD_ONCE_INIT;
static uint64_t limit;

static void init(void)
{
	int i;

	for (i = 0; i < DF_CUDA_DEVICES_MAX; i++)
		df_mutex_init(&devs[i].lock, DF_RANK_ARENA, "GPU memory");
}

static struct far_dev *dev_of(int device)
{
	pthread_once(&once, init);
	return &devs[device];
}

/* ---- chunks ---------------------------------------------------------------------------------- */

static int attribute(int device, CUdevice_attribute what)
{
	int v = 0;

	return df_drv.device_attribute(&v, what, df_cudevs[device].device) == CUDA_SUCCESS ? v : 0;
}

/*
 * Fills in the facts that RDMA devices need. The descriptor is made here, where the driver may be
 * called, and lives as long as the chunk.
 */
static void describe(int device, struct chunk *c)
{
	CUresult (*export)(void *fd, CUdeviceptr p, size_t bytes, CUmemRangeHandleType type,
			   unsigned long long flags);
	struct df_far_rdma *r = &c->rdma;

	*r = (struct df_far_rdma){.dmabuf = -1};
	if (!attribute(device, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED)) {
		r->why = "the GPU has no GPUDirect RDMA";
		return;
	}
	r->addr = c->addr;
	r->bytes = c->bytes;
	r->ordered = attribute(device, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING) >=
		     CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER;
	*(void **)&export = df_drv_find("cuMemGetHandleForAddressRange", 11070);
	if (!df_env()->nccl_dmabuf)
		r->why = "NCCL_DMABUF_ENABLE=0";
	else if (!attribute(device, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED))
		r->why = "the driver has no dma-buf for the GPU";
	else if (!export)
		r->why = "the driver lacks cuMemGetHandleForAddressRange";
	else if (export(&r->dmabuf, c->addr, c->bytes, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0) !=
		 CUDA_SUCCESS)
		r->why = "the driver gives no dma-buf for the GPU's memory";
	if (r->why)
		r->dmabuf = -1;
	else
		/* Programs that the application starts must not inherit the GPU's memory. */
		fcntl(r->dmabuf, F_SETFD, FD_CLOEXEC);
}

static CUresult chunk_new(int device, uint64_t bytes, struct chunk *out)
{
	int in = df_cuda_enter(df_cuda_ctx(device));
	CUresult r;

	if (in < 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	memset(out, 0, sizeof(*out));
	out->bytes = bytes;
	df_cuda_quiet(device, 1);
	r = df_drv.mem_alloc(&out->addr, bytes);
	df_cuda_quiet(device, 0);
	/*
	 * Without a handle, as for instances of a divided GPU, only this process uses the chunk:
	 * see cuda_meet.c.
	 */
	if (r == CUDA_SUCCESS && df_drv.ipc_get(&out->handle, out->addr) != CUDA_SUCCESS)
		memset(&out->handle, 0, sizeof(out->handle));
	if (r == CUDA_SUCCESS && df_env()->net_gdr)
		describe(device, out);
	df_cuda_leave(in);
	return r;
}

static void give_back(const struct chunk *c)
{
	if (df_env()->net_gdr && c->rdma.dmabuf >= 0)
		close(c->rdma.dmabuf);
	(void)df_cuda_mem_free((void *)(uintptr_t)c->addr);
}

static void grow(void *arg)
{
	struct far_dev *d = arg;
	int device = (int)(d - devs);
	struct chunk c;
	uint64_t bytes;
	int spare = 0;
	CUresult r;

	df_mutex_lock(&d->lock);
	bytes = CHUNK_BYTES << DF_MIN(d->pool.nr_segs, 3u);
	while (bytes < d->want)
		bytes *= 2;
	df_mutex_unlock(&d->lock);
	r = chunk_new(device, bytes, &c);
	if (r != CUDA_SUCCESS && bytes > CHUNK_BYTES && d->want <= CHUNK_BYTES)
		r = chunk_new(device, CHUNK_BYTES, &c);
	df_mutex_lock(&d->lock);
	/* Requested in advance, and meanwhile the application ran out of memory. */
	if (r == CUDA_SUCCESS && d->frugal && !d->want && d->pool.nr_segs) {
		spare = 1;
	} else if (r == CUDA_SUCCESS) {
		d->chunks[d->pool.nr_segs] = c;
		df_pool_seg(&d->pool, c.bytes);
	} else {
		d->not_before = df_now_ns() + RETRY_NS;
	}
	d->growing = 0;
	d->want = 0;
	df_mutex_unlock(&d->lock);
	if (spare)
		give_back(&c);
	if (r != CUDA_SUCCESS)
		df_log(DF_LOG_INFO,
		       "GPU %d has no %llu MiB for connectors (%s): new ones lie in host memory",
		       device, (unsigned long long)(bytes >> 20), df_drv_name(r));
}

/* Requests a chunk. Returns 1 if one has been requested. The caller holds the lock. */
static int grow_locked(struct far_dev *d, uint64_t bytes)
{
	if (d->growing)
		return 1;
	if (d->pool.nr_segs == DF_FAR_CHUNKS_MAX || df_now_ns() < d->not_before)
		return 0;
	d->want = bytes;
	d->since = df_now_ns();
	d->growing = 1;
	if (df_cuda_aside(grow, d))
		d->growing = 0;
	return d->growing;
}

int df_cuda_far_alloc(int device, uint64_t bytes, struct df_far_block *out)
{
	struct far_dev *d = dev_of(device);
	struct df_pool_piece piece;
	int ret, tell = 0;

	df_mutex_lock(&d->lock);
	if (limit && d->pool.out + bytes > limit)
		ret = -ENOMEM;
	else
		ret = df_pool_take(&d->pool, bytes, &piece);
	if (ret == -ENOSPC) {
		ret = -ENOMEM;
		if (grow_locked(d, piece.bytes) && df_now_ns() - d->since < ROOM_NS)
			ret = -EAGAIN;
	} else if (ret >= 0) {
		const struct chunk *c = &d->chunks[piece.seg];

		out->device = device;
		out->seg = piece.seg;
		out->offset = piece.offset;
		out->bytes = piece.bytes;
		out->addr = c->addr + piece.offset;
		out->chunk_bytes = c->bytes;
		memcpy(out->handle, &c->handle, sizeof(out->handle));
		if (!d->frugal && df_pool_left(&d->pool) < d->pool.seg_bytes / 2)
			(void)grow_locked(d, 0);
	}
	if (ret == -ENOMEM)
		tell = !d->told++;
	df_mutex_unlock(&d->lock);
	if (tell)
		df_log(DF_LOG_INFO,
		       "GPU %d: no room for a connector in its memory at the moment; it is in host "
		       "memory",
		       device);
	return ret > 0 ? 0 : ret;
}

void df_cuda_far_free(const struct df_far_block *b)
{
	struct far_dev *d = dev_of(b->device);

	df_mutex_lock(&d->lock);
	df_pool_give(&d->pool, &(struct df_pool_piece){b->seg, b->offset, b->bytes});
	df_mutex_unlock(&d->lock);
}

void df_cuda_far_spare(int device)
{
	struct far_dev *d = dev_of(device);
	struct chunk c;
	int spare;

	df_mutex_lock(&d->lock);
	d->frugal = 1;
	/*
	 * Peers know of the first chunk, and of a later one once it is divided: such a chunk must
	 * stay.
	 */
	spare = d->pool.nr_segs > 1 && !d->pool.seg_used;
	if (spare) {
		c = d->chunks[d->pool.nr_segs - 1];
		df_pool_drop(&d->pool);
	}
	df_mutex_unlock(&d->lock);
	if (spare)
		give_back(&c);
}

void df_cuda_far_limit(uint64_t bytes)
{
	limit = bytes;
}

uint64_t df_cuda_far_bytes(int device)
{
	size_t bytes = 0;

	return df_drv.device_memory(&bytes, df_cudevs[device].device) == CUDA_SUCCESS ? bytes : 0;
}

int df_cuda_far_rdma(int device, uint32_t seg, struct df_far_rdma *out)
{
	struct far_dev *d = dev_of(device);

	df_mutex_lock(&d->lock);
	*out = d->chunks[seg].rdma;
	df_mutex_unlock(&d->lock);
	return out->addr ? 0 : -EOPNOTSUPP;
}

int df_cuda_far_ready(int device, uint64_t bound_ns)
{
	struct far_dev *d = dev_of(device);
	uint64_t from = df_now_ns();
	int there, comes;

	for (;;) {
		df_mutex_lock(&d->lock);
		there = d->pool.nr_segs > 0;
		comes = !there && grow_locked(d, 0);
		df_mutex_unlock(&d->lock);
		if (there || !comes || df_now_ns() - from > bound_ns)
			return there;
		df_sleep_ns(100000);
	}
}

int df_cuda_far_handle(int device, uint8_t handle[64], uint64_t *bytes)
{
	static const CUipcMemHandle none;
	struct far_dev *d = dev_of(device);
	int ret = 0;

	df_mutex_lock(&d->lock);
	if (d->pool.nr_segs && memcmp(&d->chunks[0].handle, &none, sizeof(none)) != 0) {
		memcpy(handle, &d->chunks[0].handle, sizeof(none));
		*bytes = d->chunks[0].bytes;
		ret = 1;
	}
	df_mutex_unlock(&d->lock);
	return ret;
}

/* ---- scratch --------------------------------------------------------------------------------- */

struct scratch {
	struct scratch *next;
	struct df_far_block block;
};

static pthread_mutex_t scratch_lock = PTHREAD_MUTEX_INITIALIZER;
static struct scratch *scratches;

int df_cuda_scratch(int device, uint64_t bytes, void **out)
{
	struct far_dev *d = dev_of(device);
	struct scratch *s = calloc(1, sizeof(*s));
	int ret;

	if (!s)
		return -ENOMEM;
	ret = df_cuda_far_alloc(device, bytes, &s->block);
	if (ret) {
		free(s);
		/*
		 * Scratch memory cannot be in host memory: the caller waits for the chunk, or until
		 * the driver has memory again.
		 */
		df_mutex_lock(&d->lock);
		ret = d->growing || d->not_before ? -EAGAIN : -ENOMEM;
		df_mutex_unlock(&d->lock);
		return ret;
	}
	pthread_mutex_lock(&scratch_lock);
	s->next = scratches;
	scratches = s;
	pthread_mutex_unlock(&scratch_lock);
	*out = (void *)(uintptr_t)s->block.addr;
	return 0;
}

void df_cuda_scratch_free(void *p)
{
	struct scratch **at, *s;

	pthread_mutex_lock(&scratch_lock);
	for (at = &scratches; (s = *at) && s->block.addr != (uintptr_t)p; at = &s->next)
		;
	if (s)
		*at = s->next;
	pthread_mutex_unlock(&scratch_lock);
	if (s)
		df_cuda_far_free(&s->block);
	free(s);
}

/* ---- chunks of other processes --------------------------------------------------------------- */

enum opened_state { OPENING, OPEN, REFUSED };

struct opened {
	struct opened *next;
	uint64_t proc, bytes;
	int device;
	enum opened_state state;
	/* the chunk's process has ended, so close the chunk as soon as it has been opened */
	uint32_t gone;
	CUipcMemHandle handle;
	CUdeviceptr addr;
};

static struct df_mutex opened_lock = DF_MUTEX_INIT(DF_RANK_ARENA, "opened GPU memory");
static struct opened *opened;

static void close_one(void *arg)
{
	struct opened *o = arg;
	int in = df_cuda_enter(df_cuda_ctx(o->device));

	if (in >= 0 && o->state == OPEN) {
		df_cuda_alone(1);
		df_drv.ipc_close(o->addr);
		df_cuda_alone(0);
	}
	df_cuda_leave(in);
	free(o);
}

static void open_one(void *arg)
{
	struct opened *o = arg;
	int gone, device = o->device, in = df_cuda_enter(df_cuda_ctx(device));
	CUpointer_attribute what = CU_POINTER_ATTRIBUTE_RANGE_SIZE;
	CUresult r = CUDA_ERROR_INVALID_CONTEXT;
	size_t bytes = 0;
	void *data = &bytes;
	CUdeviceptr addr = 0;

	if (in >= 0) {
		df_cuda_quiet(device, 1);
		r = df_drv.ipc_open(&addr, o->handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
		df_cuda_quiet(device, 0);
	}
	/* The size that the other process announced is checked. */
	if (r == CUDA_SUCCESS &&
	    (df_drv.pointer(1, &what, &data, addr) != CUDA_SUCCESS || bytes < o->bytes)) {
		df_drv.ipc_close(addr);
		r = CUDA_ERROR_INVALID_VALUE;
	}
	df_cuda_leave(in);
	df_mutex_lock(&opened_lock);
	o->addr = addr;
	o->state = r == CUDA_SUCCESS ? OPEN : REFUSED;
	gone = (int)o->gone;
	df_mutex_unlock(&opened_lock);
	if (r != CUDA_SUCCESS)
		df_log(DF_LOG_INFO, "cannot open GPU memory of another process for GPU %d: %s",
		       device, df_drv_name(r));
	if (gone)
		close_one(o);
}

/* Finds an opened chunk. The caller holds the lock. */
static struct opened *opened_find(int device, uint64_t proc, const uint8_t *handle)
{
	struct opened *o;

	for (o = opened; o; o = o->next)
		if (o->proc == proc && o->device == device &&
		    memcmp(&o->handle, handle, sizeof(o->handle)) == 0)
			break;
	return o;
}

int df_cuda_far_open(int device, uint64_t proc, const uint8_t *handle, uint64_t bytes,
		     uint64_t *addr)
{
	struct opened *o;
	int ret = -EAGAIN;

	df_mutex_lock(&opened_lock);
	o = opened_find(device, proc, handle);
	if (!o) {
		o = calloc(1, sizeof(*o));
		if (o) {
			o->proc = proc;
			o->device = device;
			o->bytes = bytes;
			memcpy(&o->handle, handle, sizeof(o->handle));
			if (df_cuda_aside(open_one, o)) {
				free(o);
			} else {
				o->next = opened;
				opened = o;
			}
		}
	} else if (o->state == OPEN) {
		*addr = o->addr;
		ret = bytes <= o->bytes ? 0 : -EPROTO;
	} else if (o->state == REFUSED) {
		ret = -EIO;
	}
	df_mutex_unlock(&opened_lock);
	return ret;
}

int df_cuda_far_chunk(int device, uint64_t proc, const struct df_conn_far *far, uint64_t *addr)
{
	int ret = df_cuda_far_open(device, proc, far->handle, far->chunk_bytes, addr);

	if (ret == -EIO || ret == -EPROTO)
		df_warn_once("cannot reach a connector in another process's GPU memory: operations "
			     "that need it do not proceed. Set DFSHIM_P2P=0 to keep connectors in "
			     "host memory");
	return ret ? -EAGAIN : 0;
}

void df_cuda_far_close(uint64_t proc)
{
	struct opened **at = &opened, *o, *list = NULL;

	df_mutex_lock(&opened_lock);
	while ((o = *at)) {
		if (o->proc != proc) {
			at = &o->next;
			continue;
		}
		*at = o->next;
		o->next = NULL;
		/* open_one() closes it. */
		o->gone = 1;
		if (o->state != OPENING) {
			o->next = list;
			list = o;
		}
	}
	df_mutex_unlock(&opened_lock);
	while ((o = list)) {
		list = o->next;
		/* If no thread can be started, the chunk stays open until the process ends. */
		(void)df_cuda_aside(close_one, o);
	}
}
#endif
