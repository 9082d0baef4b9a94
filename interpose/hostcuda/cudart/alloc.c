/*
 * The functions of the API that allocate, free, register and describe memory. When memory is freed
 * or pinned, real CUDA waits implicitly for the whole device. The hooks decide about that wait;
 * without hooks, or under NCCL's rules, we wait as CUDA does. Any thread.
 */
#include "interpose/hostcuda/code.h"
#include "interpose/hostcuda/internal.h"

#include <string.h>

static cudaError_t enter(void)
{
	cudaError_t err = df_henter();

	if (!err && df_unlikely(df_htls.in_host_fn))
		err = cudaErrorNotPermitted;
	return err ? err : df_hunsafe();
}

/* Waits for a device implicitly. `always`: CUDA always waits here. */
static void implicit_sync(int device, enum df_sync_kind kind, const void *ptr, int always)
{
	struct df_hdev *dev = df_hdev(device);

	/* If a test executes kernels, it decides which other calls wait. */
	if (!dev || df_hcode)
		return;
	if (DF_H_HOOK(device_sync)) {
		if (!df_hhooks()->device_sync(device, kind, ptr))
			df_hwait_device(dev);
		df_hsync_done(device);
	} else if (always || df_h.nccl_rules) {
		df_hwait_device(dev);
	}
}

static cudaError_t alloc(int device, enum df_mem_kind kind, unsigned flags, size_t bytes,
			 void **out)
{
	void *ptr = NULL;

	if (!out)
		return cudaErrorInvalidValue;
	if (bytes && df_hmem_alloc_patient(device, kind, flags, bytes, &ptr))
		return cudaErrorMemoryAllocation;
	*out = ptr;
	return cudaSuccess;
}

DF_H_API cudaError_t cudaMalloc(void **ptr, size_t bytes)
{
	cudaError_t err = enter();

	if (!err && !df_hdev_current())
		err = cudaErrorMemoryAllocation;
	if (!err)
		err = alloc(df_htls.device, DF_MEM_DEVICE, 0, bytes, ptr);
	return df_hret(err);
}

DF_H_API cudaError_t cudaMallocManaged(void **ptr, size_t bytes, unsigned flags)
{
	cudaError_t err = enter();

	if (!err && (!bytes || (flags != cudaMemAttachGlobal && flags != cudaMemAttachHost)))
		err = cudaErrorInvalidValue;
	if (!err)
		err = alloc(-1, DF_MEM_MANAGED, flags, bytes, ptr);
	return df_hret(err);
}

static cudaError_t host_alloc(void **ptr, size_t bytes, unsigned flags)
{
	cudaError_t err = enter();

	if (err)
		return err;
	if (!ptr || (flags & ~(unsigned)(cudaHostAllocPortable | cudaHostAllocMapped |
					 cudaHostAllocWriteCombined)))
		return cudaErrorInvalidValue;
	implicit_sync(df_htls.device, DF_SYNC_HOST_ALLOC, NULL, 0);
	return alloc(-1, DF_MEM_HOST, flags, bytes, ptr);
}

DF_H_API cudaError_t cudaHostAlloc(void **ptr, size_t bytes, unsigned flags)
{
	return df_hret(host_alloc(ptr, bytes, flags));
}

DF_H_API cudaError_t cudaMallocHost(void **ptr, size_t bytes)
{
	return df_hret(host_alloc(ptr, bytes, cudaHostAllocDefault));
}

static cudaError_t pitched(void **ptr, size_t *pitch, size_t width, size_t rows)
{
	size_t bytes, row;

	if (!pitch || !ptr)
		return cudaErrorInvalidValue;
	if (width > SIZE_MAX - DF_H_ALIGN)
		return cudaErrorMemoryAllocation;
	row = (width + DF_H_ALIGN - 1) / DF_H_ALIGN * DF_H_ALIGN;
	if (__builtin_mul_overflow(row, rows, &bytes))
		return cudaErrorMemoryAllocation;
	if (alloc(df_htls.device, DF_MEM_DEVICE, 0, bytes, ptr))
		return cudaErrorMemoryAllocation;
	*pitch = row;
	return cudaSuccess;
}

DF_H_API cudaError_t cudaMallocPitch(void **ptr, size_t *pitch, size_t width, size_t height)
{
	cudaError_t err = enter();

	return df_hret(err ? err : pitched(ptr, pitch, width, height));
}

DF_H_API cudaError_t cudaMalloc3D(struct cudaPitchedPtr *out, struct cudaExtent extent)
{
	cudaError_t err = enter();
	size_t rows, pitch = 0;
	void *ptr = NULL;

	if (!err && !out)
		err = cudaErrorInvalidValue;
	if (!err && __builtin_mul_overflow(extent.height, extent.depth, &rows))
		err = cudaErrorMemoryAllocation;
	if (!err)
		err = pitched(&ptr, &pitch, extent.width, rows);
	if (!err)
		*out = (struct cudaPitchedPtr){ptr, pitch, extent.width, extent.height};
	return df_hret(err);
}

static cudaError_t release(void *ptr, int host)
{
	struct df_mem_info info;
	cudaError_t err = enter();

	if (err || !ptr)
		return err;
	df_hmem_info(ptr, &info, NULL);
	if (info.kind == DF_MEM_UNKNOWN || info.base != ptr || (info.kind == DF_MEM_HOST) != host)
		return cudaErrorInvalidValue;
	if (df_hmem_retire(ptr))
		return cudaErrorInvalidValue;
	if (DF_H_HOOK(free) && df_hhooks()->free(ptr, &info))
		return cudaSuccess;
	implicit_sync(info.device < 0 ? df_htls.device : info.device, DF_SYNC_FREE, ptr, 1);
	return df_herr(df_hreap(ptr, info.device));
}

DF_H_API cudaError_t cudaFree(void *ptr)
{
	return df_hret(release(ptr, 0));
}

DF_H_API cudaError_t cudaFreeHost(void *ptr)
{
	return df_hret(release(ptr, 1));
}

DF_H_API cudaError_t cudaHostRegister(void *ptr, size_t bytes, unsigned flags)
{
	cudaError_t err = enter();
	int ret;

	if (!err && (!ptr || !bytes || flags > 15))
		err = cudaErrorInvalidValue;
	if (err)
		return df_hret(err);
	implicit_sync(df_htls.device, DF_SYNC_HOST_REGISTER, ptr, 0);
	ret = df_hmem_register(ptr, bytes, flags);
	return df_hret(ret == -EEXIST ? cudaErrorHostMemoryAlreadyRegistered : df_herr(ret));
}

DF_H_API cudaError_t cudaHostUnregister(void *ptr)
{
	cudaError_t err = enter();

	if (!err && !ptr)
		err = cudaErrorInvalidValue;
	if (err)
		return df_hret(err);
	implicit_sync(df_htls.device, DF_SYNC_HOST_REGISTER, ptr, 0);
	return df_hret(df_hmem_unregister(ptr) ? cudaErrorHostMemoryNotRegistered : cudaSuccess);
}

/* -- descriptions of memory -------------------------------------------------------------------- */

static int host_visible(const struct df_mem_info *info)
{
	return info->kind == DF_MEM_HOST || info->kind == DF_MEM_MANAGED;
}

DF_H_API cudaError_t cudaHostGetDevicePointer(void **out, void *ptr, unsigned flags)
{
	struct df_mem_info info;
	cudaError_t err = df_henter();

	if (!err && (!out || !ptr || flags))
		err = cudaErrorInvalidValue;
	if (err)
		return df_hret(err);
	df_hmem_info(ptr, &info, NULL);
	if (!host_visible(&info))
		return df_hret(cudaErrorInvalidValue);
	*out = ptr;
	return cudaSuccess;
}

DF_H_API cudaError_t cudaHostGetFlags(unsigned *out, void *ptr)
{
	struct df_mem_info info;
	unsigned flags = 0;
	cudaError_t err = df_henter();

	if (!err && (!out || !ptr))
		err = cudaErrorInvalidValue;
	if (err)
		return df_hret(err);
	df_hmem_info(ptr, &info, &flags);
	if (info.kind != DF_MEM_HOST)
		return df_hret(cudaErrorInvalidValue);
	*out = flags | cudaHostAllocMapped;
	return cudaSuccess;
}

DF_H_API cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *out, const void *ptr)
{
	struct df_mem_info info;
	cudaError_t err = df_henter();

	if (!err && !out)
		err = cudaErrorInvalidValue;
	if (err)
		return df_hret(err);
	df_hmem_info(ptr, &info, NULL);
	memset(out, 0, sizeof(*out));
	out->device = info.device >= 0 ? info.device : df_htls.device;
	switch (info.kind) {
	case DF_MEM_DEVICE:
		out->type = cudaMemoryTypeDevice;
		out->devicePointer = (void *)(uintptr_t)ptr;
		break;
	case DF_MEM_HOST:
		out->type = cudaMemoryTypeHost;
		out->devicePointer = out->hostPointer = (void *)(uintptr_t)ptr;
		break;
	case DF_MEM_MANAGED:
		out->type = cudaMemoryTypeManaged;
		out->devicePointer = out->hostPointer = (void *)(uintptr_t)ptr;
		break;
	default:
		out->type = cudaMemoryTypeUnregistered;
		out->device = -2;
		out->hostPointer = (void *)(uintptr_t)ptr;
	}
	return cudaSuccess;
}

DF_H_API cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
	size_t f, t;
	cudaError_t err = df_henter();

	if (!err && (!free_bytes || !total_bytes))
		err = cudaErrorInvalidValue;
	if (err)
		return df_hret(err);
	df_hmem_usage(df_htls.device, &f, &t);
	*free_bytes = f;
	*total_bytes = t;
	return cudaSuccess;
}

/* -- hints about managed memory: all memory is in one place here ------------------------------ */

static cudaError_t managed(const void *ptr, size_t bytes)
{
	struct df_mem_info info;

	df_hmem_info(ptr, &info, NULL);
	if (info.kind != DF_MEM_MANAGED || !bytes ||
	    (const char *)ptr + bytes > (char *)info.base + info.bytes)
		return cudaErrorInvalidValue;
	return cudaSuccess;
}

DF_H_API cudaError_t cudaMemAdvise(const void *ptr, size_t bytes, enum cudaMemoryAdvise advice,
				   struct cudaMemLocation location)
{
	cudaError_t err = df_henter();

	(void)location;
	if (!err && (advice < cudaMemAdviseSetReadMostly || advice > cudaMemAdviseUnsetAccessedBy))
		err = cudaErrorInvalidValue;
	return df_hret(err ? err : managed(ptr, bytes));
}

DF_H_API cudaError_t cudaMemPrefetchAsync(const void *ptr, size_t bytes,
					  struct cudaMemLocation location, unsigned flags,
					  cudaStream_t stream)
{
	struct df_hop op = {.kind = DF_HOP_MARK};
	struct df_hstream *s;
	cudaError_t err = df_hstream_enter(stream, &s);

	(void)location;
	if (!err)
		err = flags ? cudaErrorInvalidValue : managed(ptr, bytes);
	if (!err)
		err = df_hsubmit(s, &op, DF_WORK_MEMOP);
	return df_hret(err);
}

DF_H_API __typeof__(cudaMemPrefetchAsync) cudaMemPrefetchAsync_ptsz;
DF_H_API cudaError_t cudaMemPrefetchAsync_ptsz(const void *ptr, size_t bytes,
					       struct cudaMemLocation location, unsigned flags,
					       cudaStream_t stream)
{
	return cudaMemPrefetchAsync(ptr, bytes, location, flags, df_hpt(stream));
}
