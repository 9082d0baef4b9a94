/*
 * Handles the application's memory on the driver: finds out what a pointer refers to, allocates,
 * and frees without waiting. Memory shared by daemon and host is in cuda_mem.c and cuda_far.c.
 */
#if __has_include(<cuda.h>)
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/base/err.h"
#include "runtime/base/thread.h"
#include "runtime/base/time.h"
#include "runtime/device/cuda/cuda_int.h"

int df_cuda_mem_info(const void *ptr, struct df_mem_info *out)
{
	unsigned int type = 0, managed = 0, whole = 0;
	CUcontext ctx = NULL;
	int device = -1;
	CUdeviceptr base = 0;
	size_t bytes = 0;
	CUpointer_attribute what[] = {
		CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
		CU_POINTER_ATTRIBUTE_IS_MANAGED,
		CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
		CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
		CU_POINTER_ATTRIBUTE_RANGE_SIZE,
		CU_POINTER_ATTRIBUTE_CONTEXT,
		CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
	};
	void *data[] = {&type, &managed, &device, &base, &bytes, &ctx, &whole};

	memset(out, 0, sizeof(*out));
	out->fd = -1;
	out->kind = DF_MEM_UNKNOWN;
	if (df_drv.pointer(DF_ARRAY_LEN(what), what, data, (CUdeviceptr)(uintptr_t)ptr) !=
	    CUDA_SUCCESS)
		return 0;
	if (managed)
		out->kind = DF_MEM_MANAGED;
	else if (type == CU_MEMORYTYPE_DEVICE)
		out->kind = DF_MEM_DEVICE;
	else if (type == CU_MEMORYTYPE_HOST)
		out->kind = DF_MEM_HOST;
	out->device = device;
	out->base = (void *)(uintptr_t)base;
	out->bytes = bytes;
	/*
	 * Peer access is between contexts, and covers memory from cuMemAlloc() there. It does not
	 * cover memory that is mapped explicitly or belongs to a pool: such memory has its own
	 * access settings (CUDA driver API, cuCtxEnablePeerAccess). RELAXED: the contexts that the
	 * daemon uses are never released; others do not matter here.
	 */
	out->shown = out->kind == DF_MEM_DEVICE && whole && ctx && device >= 0 &&
		     device < df_nr_cudevs &&
		     ctx == __atomic_load_n(&df_cudevs[device].ctx, __ATOMIC_RELAXED);
	return 0;
}

int df_cuda_mem_alloc(int device, size_t bytes, void **out)
{
	int in = df_cuda_enter(df_cuda_ctx(device));
	CUdeviceptr p = 0;
	CUresult r;

	if (in < 0)
		return in;
	df_cuda_quiet(device, 1);
	r = df_drv.mem_alloc(&p, bytes);
	df_cuda_quiet(device, 0);
	df_cuda_leave(in);
	if (r != CUDA_SUCCESS)
		return df_drv_errno(r);
	*out = (void *)(uintptr_t)p;
	return 0;
}

/*
 * Memory to free. The driver's free waits for earlier work while it holds a lock that other threads
 * need. So a separate thread frees when no stream waits for an operation.
 */
struct dead {
	struct dead *next;
	void *ptr;
	int device;
	enum df_mem_kind kind;
};

static pthread_mutex_t dead_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t dead_more = PTHREAD_COND_INITIALIZER;
static struct dead *dead_list;
static int dead_thread;
static uint32_t nr_dead; /* number of entries that are not freed yet; read without the lock */

static void *undertaker(void *arg)
{
	pthread_mutex_lock(&dead_lock);
	for (;;) {
		struct dead *d = dead_list;
		int in;

		if (!d) {
			pthread_cond_wait(&dead_more, &dead_lock);
			continue;
		}
		dead_list = d->next;
		pthread_mutex_unlock(&dead_lock);
		in = df_cuda_enter(df_cuda_ctx(d->device));
		if (in >= 0) {
			df_cuda_alone(1);
			if (d->kind == DF_MEM_HOST)
				df_drv.host_free(d->ptr);
			else
				df_drv.mem_free((CUdeviceptr)(uintptr_t)d->ptr);
			df_cuda_alone(0);
			df_cuda_leave(in);
		}
		free(d);
		/*
		 * RELEASE pairs with the ACQUIRE in df_cuda_frees_settle(): without it that thread
		 * could allocate before the driver has the memory back.
		 */
		__atomic_sub_fetch(&nr_dead, 1, __ATOMIC_RELEASE);
		pthread_mutex_lock(&dead_lock);
	}
	return arg;
}

int df_cuda_mem_free(void *ptr)
{
	struct df_mem_info info;
	struct dead *d;
	int ret = 0;

	df_cuda_mem_info(ptr, &info);
	if (info.kind == DF_MEM_UNKNOWN || info.base != ptr)
		return -EINVAL;
	d = calloc(1, sizeof(*d));
	if (!d)
		return -ENOMEM;
	d->ptr = ptr;
	d->device = info.device;
	d->kind = info.kind;
	pthread_mutex_lock(&dead_lock);
	if (!dead_thread) {
		ret = df_thread_start("dfshim-free", 0, undertaker, NULL);
		dead_thread = !ret;
	}
	if (!ret) {
		__atomic_add_fetch(&nr_dead, 1, __ATOMIC_RELAXED);
		d->next = dead_list;
		dead_list = d;
		pthread_cond_signal(&dead_more);
	}
	pthread_mutex_unlock(&dead_lock);
	if (ret)
		free(d);
	return ret ? -ENOMEM : 0;
}

#define SETTLE_NS (2000 * DF_NS_PER_MS)

void df_cuda_frees_settle(void)
{
	uint64_t since = df_now_ns();

	/*
	 * ACQUIRE pairs with the RELEASE in undertaker(): without it the allocation could still
	 * find no room.
	 */
	while (__atomic_load_n(&nr_dead, __ATOMIC_ACQUIRE) && df_now_ns() - since < SETTLE_NS)
		sched_yield();
}
#endif
