/* The memory of the stand-in driver: a list of what is there. What processes share is in share.c. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
#include "tests/cuda/fake/internal.h"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

static struct mem *mems;
uint64_t fake_mem_generation;
int fake_alloc_waits, fake_alloc_fails;

static void alloc_wait(void)
{
	CUcontext ctx = fake_ctx_now();

	fake_fault_hang("hang");
	fake_limit_lock(ctx);
	pthread_mutex_lock(&fake_lock);
	while (!fake_is_over() &&
	       ((fake_alloc_waits && fake_all_pending(NULL)) ||
		(ctx && fake_limit("sync") && !fake_ctx_error(ctx) && fake_all_pending(ctx))))
		pthread_cond_wait(&fake_moved, &fake_lock);
	pthread_mutex_unlock(&fake_lock);
}

static void *mem_new(size_t bytes, int host)
{
	int fd = -1;
	void *p = host ? aligned_alloc(4096, (bytes + 4095) / 4096 * 4096) : fake_pages(bytes, &fd);

	fake_mem_add(p, bytes, host, fd);
	return p;
}
/* RELEASE pairs with a kernel's acquire before it trusts an earlier answer: it then asks the table as it is now. */
static void changed(void)
{
	__atomic_fetch_add(&fake_mem_generation, 1, __ATOMIC_RELEASE);
}
void fake_mem_add(void *p, size_t bytes, int host, int fd)
{
	struct mem *m = calloc(1, sizeof(*m));

	m->at = (uintptr_t)p;
	m->bytes = bytes;
	m->host = host;
	m->fd = fd;
	m->device = fake_ctx_now() ? fake_ctx_now()->device : 0;
	pthread_mutex_lock(&fake_lock);
	m->next = mems;
	mems = m;
	changed();
	pthread_mutex_unlock(&fake_lock);
}
int fake_mem_fd(uintptr_t at, size_t *bytes)
{
	struct mem *m;
	int fd = -1;

	pthread_mutex_lock(&fake_lock);
	for (m = mems; m && m->at != at; m = m->next)
		;
	if (m && !m->host) {
		fd = m->fd;
		*bytes = m->bytes;
	}
	pthread_mutex_unlock(&fake_lock);
	return fd;
}
void fake_mem_each(void (*fn)(void *at, size_t bytes, int arg), int arg)
{
	struct mem *m;

	pthread_mutex_lock(&fake_lock);
	for (m = mems; m; m = m->next)
		if (!m->host)
			fn((void *)m->at, m->bytes, arg);
	pthread_mutex_unlock(&fake_lock);
}
void fake_mem_gone(uintptr_t at)
{
	struct mem **p, *m;

	pthread_mutex_lock(&fake_lock);
	for (p = &mems; *p && (*p)->at != at; p = &(*p)->next)
		;
	m = *p;
	if (m) {
		*p = m->next;
		changed();
	}
	pthread_mutex_unlock(&fake_lock);
	if (m && m->host == 1)
		free((void *)at);
	else if (m && !m->host)
		fake_unmap((void *)at, m->bytes, m->fd);
	free(m);
}
static size_t used(int device)
{
	size_t bytes = 0;
	struct mem *m;

	for (m = mems; m; m = m->next)
		bytes += !m->host && m->fd >= 0 && m->device == device ? m->bytes : 0;
	return bytes;
}
static CUresult device_alloc(CUdeviceptr *out, size_t bytes, int managed)
{
	int room;

	if (fake_ctx_error(fake_ctx_now()))
		return fake_ctx_error(fake_ctx_now());
	if (__atomic_fetch_sub(&fake_alloc_fails, 1, __ATOMIC_RELAXED) > 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	__atomic_store_n(&fake_alloc_fails, 0, __ATOMIC_RELAXED);
	pthread_mutex_lock(&fake_lock);
	room = used(fake_ctx_now() ? fake_ctx_now()->device : 0) + bytes <= FAKE_DEVICE_BYTES;
	pthread_mutex_unlock(&fake_lock);
	if (!room)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*out = (CUdeviceptr)mem_new(bytes, 0);
	if (managed) {
		struct mem *m;

		pthread_mutex_lock(&fake_lock);
		for (m = mems; m->at != *out; m = m->next)
			;
		m->managed = 1;
		pthread_mutex_unlock(&fake_lock);
	}
	return CUDA_SUCCESS;
}
API CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t bytes)
{
	SEEN();
	alloc_wait();
	return device_alloc(out, bytes, 0);
}
API CUresult cuMemAllocManaged(CUdeviceptr *out, size_t bytes, unsigned int flags)
{
	(void)flags;
	SEEN();
	alloc_wait();
	return device_alloc(out, bytes, 1);
}
API CUresult cuMemAllocAsync(CUdeviceptr *out, size_t bytes, CUstream s)
{
	(void)s;
	SEEN();
	return device_alloc(out, bytes, 0);
}
static void gone(void *at)
{
	fake_mem_gone((uintptr_t)at);
}
API CUresult cuMemFreeAsync(CUdeviceptr p, CUstream s)
{
	SEEN();
	fake_put(fake_stream_of(s, 0),
		 &(struct op){.kind = OP_HOST, .fn = gone, .data = (void *)p});
	return CUDA_SUCCESS;
}
API CUresult cuMemGetInfo_v2(size_t *room, size_t *all)
{
	SEEN();
	pthread_mutex_lock(&fake_lock);
	*all = FAKE_DEVICE_BYTES;
	*room = *all - used(fake_ctx_now() ? fake_ctx_now()->device : 0);
	pthread_mutex_unlock(&fake_lock);
	return CUDA_SUCCESS;
}
API CUresult cuMemHostRegister_v2(void *p, size_t bytes, unsigned int flags)
{
	(void)flags;
	SEEN();
	/* It takes a while; whoever does not wait for it has work on streams by then. */
	if (fake_alloc_waits)
		usleep(30000);
	alloc_wait();
	fake_mem_add(p, bytes, 2, -1);
	return CUDA_SUCCESS;
}
API CUresult cuMemHostUnregister(void *p)
{
	SEEN();
	alloc_wait();
	fake_mem_gone((uintptr_t)p);
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
/* Memory of the driver's, by any address in it. fake_lock held. */
static struct mem *mem_of(uintptr_t at)
{
	struct mem *m;

	for (m = mems; m && (at < m->at || at >= m->at + m->bytes); m = m->next)
		;
	return m;
}
int fake_mem_known(uintptr_t at)
{
	int known;

	pthread_mutex_lock(&fake_lock);
	known = mem_of(at) != NULL;
	pthread_mutex_unlock(&fake_lock);
	return known;
}
/* Host memory the driver has made is for all devices, also what was registered; that of another device after peer access. */
int fake_mem_usable(const struct CUctx_st *ctx, uintptr_t at, size_t bytes, uintptr_t *from,
		    uintptr_t *to)
{
	struct mem *m;
	int usable;

	pthread_mutex_lock(&fake_lock);
	m = mem_of(at);
	usable = m && at + bytes <= m->at + m->bytes &&
		 (m->host || m->managed || m->device == ctx->device || ctx->peers >> m->device & 1);
	if (usable) {
		*from = m->at;
		*to = m->at + m->bytes;
	}
	pthread_mutex_unlock(&fake_lock);
	return usable;
}
API CUresult cuPointerGetAttributes(unsigned int nr, CUpointer_attribute *what, void **data,
				    CUdeviceptr at)
{
	struct mem *m;
	unsigned int i;

	SEEN();
	pthread_mutex_lock(&fake_lock);
	m = mem_of(at);
	for (i = 0; i < nr; i++)
		switch (what[i]) {
		case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
			*(unsigned int *)data[i] = !m	     ? 0
						   : m->host ? CU_MEMORYTYPE_HOST
							     : CU_MEMORYTYPE_DEVICE;
			break;
		case CU_POINTER_ATTRIBUTE_IS_MANAGED:
			*(unsigned int *)data[i] = m && m->managed;
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
	pthread_mutex_unlock(&fake_lock);
	return CUDA_SUCCESS;
}
