/*
 * Stream-ordered allocation. The call gets an address from the device's arena; freeing is an
 * operation of the stream. A pool is a name for settings: its memory is the device's. Any thread;
 * the lock guards pools and is a leaf.
 */
#include "interpose/hostcuda/internal.h"

#include <string.h>

struct pool {
	struct df_hslot slot;
	int device, is_default;
	uint64_t attr[9]; /* by enum cudaMemPoolAttr */
};

static struct df_mutex lock = DF_MUTEX_INIT(DF_RANK_HOSTCUDA_TABLE, "host CUDA pools");
static struct pool *defaults[DF_H_MAX_DEVICES], *current[DF_H_MAX_DEVICES];

int df_hpool_init(void)
{
	return df_hslab_init(&df_h.pools, "memory pools", sizeof(struct pool), 1 << 16);
}

static struct pool *pool_new(int device, int is_default)
{
	struct pool *p = df_hslab_get(&df_h.pools);

	if (!p)
		return NULL;
	p->device = device;
	p->is_default = is_default;
	memset(p->attr, 0, sizeof(p->attr));
	p->attr[cudaMemPoolReuseFollowEventDependencies] = 1;
	p->attr[cudaMemPoolReuseAllowOpportunistic] = 1;
	p->attr[cudaMemPoolReuseAllowInternalDependencies] = 1;
	df_hslot_publish(&p->slot);
	return p;
}

static cudaError_t get(cudaMemPool_t *out, int device, int want_default)
{
	cudaError_t err = df_henter();
	struct pool *p;

	if (!err && !out)
		err = cudaErrorInvalidValue;
	if (!err && !df_hdevice_ok(device))
		err = cudaErrorInvalidDevice;
	if (err)
		return err;
	df_mutex_lock(&lock);
	if (!defaults[device])
		defaults[device] = pool_new(device, 1);
	p = want_default || !current[device] ? defaults[device] : current[device];
	df_mutex_unlock(&lock);
	if (!p)
		return cudaErrorMemoryAllocation;
	*out = (cudaMemPool_t)p;
	return cudaSuccess;
}

static cudaError_t pool_arg(cudaMemPool_t pool, struct pool **out)
{
	cudaError_t err = df_henter();

	*out = err ? NULL : df_hslab_find(&df_h.pools, pool);
	return err ? err : *out ? cudaSuccess : cudaErrorInvalidValue;
}

DF_H_API cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *out, int device)
{
	return df_hret(get(out, device, 1));
}

DF_H_API cudaError_t cudaDeviceGetMemPool(cudaMemPool_t *out, int device)
{
	return df_hret(get(out, device, 0));
}

DF_H_API cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t pool)
{
	struct pool *p;
	cudaError_t err = pool_arg(pool, &p);

	if (!err && !df_hdevice_ok(device))
		err = cudaErrorInvalidDevice;
	if (!err && p->device != device)
		err = cudaErrorInvalidValue;
	if (err)
		return df_hret(err);
	df_mutex_lock(&lock);
	current[device] = p;
	df_mutex_unlock(&lock);
	return cudaSuccess;
}

DF_H_API cudaError_t cudaMemPoolCreate(cudaMemPool_t *out, const struct cudaMemPoolProps *props)
{
	cudaError_t err = df_henter();
	struct pool *p;

	if (!err && (!out || !props || props->allocType != cudaMemAllocationTypePinned ||
		     props->location.type != cudaMemLocationTypeDevice))
		err = cudaErrorInvalidValue;
	if (!err && props->handleTypes != cudaMemHandleTypeNone)
		err = cudaErrorNotSupported;
	if (!err && !df_hdevice_ok(props->location.id))
		err = cudaErrorInvalidDevice;
	if (err)
		return df_hret(err);
	p = pool_new(props->location.id, 0);
	if (!p)
		return df_hret(cudaErrorMemoryAllocation);
	*out = (cudaMemPool_t)p;
	return cudaSuccess;
}

DF_H_API cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool)
{
	struct pool *p;
	cudaError_t err = pool_arg(pool, &p);

	if (!err && (p->is_default || !df_hslot_retire(&p->slot)))
		err = cudaErrorInvalidValue;
	if (err)
		return df_hret(err);
	df_mutex_lock(&lock);
	if (current[p->device] == p)
		current[p->device] = NULL;
	df_mutex_unlock(&lock);
	df_hslab_put(&df_h.pools, p);
	return cudaSuccess;
}

DF_H_API cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t keep)
{
	struct pool *p;

	(void)keep;
	return df_hret(pool_arg(pool, &p));
}

static int is_flag(enum cudaMemPoolAttr attr)
{
	return attr <= cudaMemPoolReuseAllowInternalDependencies;
}

DF_H_API cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attr,
					     void *value)
{
	struct pool *p;
	cudaError_t err = pool_arg(pool, &p);

	if (!err && (!value || attr < cudaMemPoolReuseFollowEventDependencies ||
		     attr > cudaMemPoolAttrUsedMemHigh))
		err = cudaErrorInvalidValue;
	if (err)
		return df_hret(err);
	df_mutex_lock(&lock);
	if (is_flag(attr))
		p->attr[attr] = (uint64_t) * (int *)value;
	else
		memcpy(&p->attr[attr], value, sizeof(uint64_t));
	df_mutex_unlock(&lock);
	return cudaSuccess;
}

DF_H_API cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attr,
					     void *value)
{
	struct pool *p;
	cudaError_t err = pool_arg(pool, &p);
	size_t total, unused;
	uint64_t v;

	if (!err && (!value || attr < cudaMemPoolReuseFollowEventDependencies ||
		     attr > cudaMemPoolAttrUsedMemHigh))
		err = cudaErrorInvalidValue;
	if (err)
		return df_hret(err);
	df_mutex_lock(&lock);
	v = p->attr[attr];
	df_mutex_unlock(&lock);
	if (attr == cudaMemPoolAttrUsedMemCurrent || attr == cudaMemPoolAttrReservedMemCurrent) {
		df_hmem_usage(p->device, &unused, &total);
		v = total - unused;
	}
	if (is_flag(attr))
		*(int *)value = (int)v;
	else
		memcpy(value, &v, sizeof(v));
	return cudaSuccess;
}

/* Every device reaches all memory. */
DF_H_API cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool,
					  const struct cudaMemAccessDesc *access, size_t nr)
{
	struct pool *p;
	cudaError_t err = pool_arg(pool, &p);
	size_t i;

	if (!err && nr && !access)
		err = cudaErrorInvalidValue;
	for (i = 0; !err && i < nr; i++)
		if (access[i].location.type == cudaMemLocationTypeDevice &&
		    !df_hdevice_ok(access[i].location.id))
			err = cudaErrorInvalidDevice;
	return df_hret(err);
}

DF_H_API cudaError_t cudaMemPoolGetAccess(enum cudaMemAccessFlags *flags, cudaMemPool_t pool,
					  struct cudaMemLocation *location)
{
	struct pool *p;
	cudaError_t err = pool_arg(pool, &p);

	if (!err && (!flags || !location))
		err = cudaErrorInvalidValue;
	if (!err)
		*flags = cudaMemAccessFlagsProtReadWrite;
	return df_hret(err);
}

static cudaError_t alloc_async(void **out, size_t bytes, int device, cudaStream_t stream)
{
	struct df_hstream *s;
	cudaError_t err = df_hstream_enter(stream, &s);
	void *ptr = NULL;

	if (!err && !out)
		err = cudaErrorInvalidValue;
	if (!err && df_hstream_capturing(s))
		err = cudaErrorStreamCaptureUnsupported;
	if (err)
		return err;
	df_hbefore_work(s, DF_WORK_ALLOC, NULL);
	if (bytes &&
	    df_hmem_alloc_patient(device < 0 ? s->device : device, DF_MEM_DEVICE, 0, bytes, &ptr))
		return cudaErrorMemoryAllocation;
	*out = ptr;
	return cudaSuccess;
}

DF_H_API cudaError_t cudaMallocAsync(void **out, size_t bytes, cudaStream_t stream)
{
	return df_hret(alloc_async(out, bytes, -1, stream));
}

DF_H_API cudaError_t cudaMallocFromPoolAsync(void **out, size_t bytes, cudaMemPool_t pool,
					     cudaStream_t stream)
{
	struct pool *p;
	cudaError_t err = pool_arg(pool, &p);

	return df_hret(err ? err : alloc_async(out, bytes, p->device, stream));
}

DF_H_API cudaError_t cudaFreeAsync(void *ptr, cudaStream_t stream)
{
	struct df_hop op = {.kind = DF_HOP_FREE, .ptr = ptr};
	struct df_mem_info info;
	struct df_hstream *s;
	cudaError_t err = df_hstream_enter(stream, &s);

	if (err || !ptr)
		return df_hret(err);
	df_hmem_info(ptr, &info, NULL);
	if (info.kind != DF_MEM_DEVICE || info.base != ptr)
		return df_hret(cudaErrorInvalidValue);
	if (df_hstream_capturing(s))
		return df_hret(cudaErrorStreamCaptureUnsupported);
	if (df_hmem_retire(ptr))
		return df_hret(cudaErrorInvalidValue);
	return df_hret(df_hsubmit(s, &op, DF_WORK_FREE));
}

DF_H_API __typeof__(cudaMallocAsync) cudaMallocAsync_ptsz;
DF_H_API cudaError_t cudaMallocAsync_ptsz(void **out, size_t bytes, cudaStream_t stream)
{
	return cudaMallocAsync(out, bytes, df_hpt(stream));
}

DF_H_API __typeof__(cudaMallocFromPoolAsync) cudaMallocFromPoolAsync_ptsz;
DF_H_API cudaError_t cudaMallocFromPoolAsync_ptsz(void **out, size_t bytes, cudaMemPool_t pool,
						  cudaStream_t stream)
{
	return cudaMallocFromPoolAsync(out, bytes, pool, df_hpt(stream));
}

DF_H_API __typeof__(cudaFreeAsync) cudaFreeAsync_ptsz;
DF_H_API cudaError_t cudaFreeAsync_ptsz(void *ptr, cudaStream_t stream)
{
	return cudaFreeAsync(ptr, df_hpt(stream));
}
