/*
 * The driver's queries of devices, memory, errors and its own functions, where the runtime has no
 * function of the same form. Any thread.
 */
#include "interpose/hostcuda/driver/driver.h"

#include <stdio.h>
#include <string.h>

static CUresult properties(struct cudaDeviceProp *p, CUdevice dev)
{
	return DF_H_CU(cudaGetDeviceProperties(p, dev));
}

DF_H_API CUresult cuDeviceGet(CUdevice *out, int ordinal)
{
	if (df_henter())
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	if (!df_hdevice_ok(ordinal))
		return CUDA_ERROR_INVALID_DEVICE;
	*out = ordinal;
	return CUDA_SUCCESS;
}

DF_H_API CUresult cuDeviceGetName(char *name, int len, CUdevice dev)
{
	struct cudaDeviceProp p;
	CUresult r = properties(&p, dev);

	if (r == CUDA_SUCCESS && (!name || len < 1))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		snprintf(name, (size_t)len, "%s", p.name);
	return r;
}

DF_H_API CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
	struct cudaDeviceProp p;
	CUresult r = properties(&p, dev);

	if (r == CUDA_SUCCESS && !bytes)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		*bytes = p.totalGlobalMem;
	return r;
}

DF_H_API CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice dev)
{
	struct cudaDeviceProp p;
	CUresult r = properties(&p, dev);

	if (r == CUDA_SUCCESS && !uuid)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		memcpy(uuid, &p.uuid, sizeof(*uuid));
	return r;
}

DF_H_API CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice dev)
{
	return cuDeviceGetUuid_v2(uuid, dev);
}

DF_H_API CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice dev)
{
	struct cudaDeviceProp p;
	CUresult r = properties(&p, dev);

	if (r == CUDA_SUCCESS && (!major || !minor))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS) {
		*major = p.major;
		*minor = p.minor;
	}
	return r;
}

DF_H_API CUresult cuDeviceGetExecAffinitySupport(int *has, CUexecAffinityType type, CUdevice dev)
{
	(void)type, (void)dev;
	if (!has)
		return CUDA_ERROR_INVALID_VALUE;
	*has = 0;
	return CUDA_SUCCESS;
}

DF_H_API CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
	if (!mode)
		return CUDA_ERROR_INVALID_VALUE;
	*mode = CU_MODULE_EAGER_LOADING;
	return CUDA_SUCCESS;
}

/* -- memory ------------------------------------------------------------------------------------ */

/* Fails with CUDA_ERROR_INVALID_VALUE if the memory is not ours. */
static CUresult attribute(void *out, CUpointer_attribute what, CUdeviceptr p,
			  const struct df_mem_info *m)
{
	int known = m->kind != DF_MEM_UNKNOWN, dev = m->device < 0 ? 0 : m->device;
	CUcontext ctx;

	switch (what) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		if (known && cuDevicePrimaryCtxRetain(&ctx, dev) == CUDA_SUCCESS) {
			cuDevicePrimaryCtxRelease_v2(dev);
			*(CUcontext *)out = ctx;
		}
		break;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		if (known)
			*(unsigned int *)out =
				m->kind == DF_MEM_HOST ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
		break;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		if (what == CU_POINTER_ATTRIBUTE_HOST_POINTER && m->kind == DF_MEM_DEVICE)
			return CUDA_ERROR_INVALID_VALUE;
		if (known)
			*(CUdeviceptr *)out = p;
		break;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
		if (known)
			*(unsigned long long *)out = (unsigned long long)(uintptr_t)m->base;
		break;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		*(unsigned int *)out = m->kind == DF_MEM_MANAGED;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*(int *)out = known ? dev : -2;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
		*(unsigned int *)out = m->kind == DF_MEM_DEVICE && m->fd >= 0;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
		*(CUdeviceptr *)out = known ? (CUdeviceptr)(uintptr_t)m->base : 0;
		break;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		*(size_t *)out = known ? m->bytes : 0;
		break;
	case CU_POINTER_ATTRIBUTE_MAPPED:
		*(int *)out = known;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
		*(int *)out = known ? CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE
				    : CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
	case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		memset(out, 0, what == CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE ? 8 : 4);
		break;
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

DF_H_API CUresult cuPointerGetAttribute(void *out, CUpointer_attribute what, CUdeviceptr p)
{
	struct df_mem_info info;

	if (df_henter())
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	df_hmem_info(PTR(p), &info, NULL);
	return attribute(out, what, p, &info);
}

/*
 * Works as the driver does: attributes that a pointer does not have stay unchanged, or become
 * zero.
 */
DF_H_API CUresult cuPointerGetAttributes(unsigned int nr, CUpointer_attribute *what, void **data,
					 CUdeviceptr p)
{
	struct df_mem_info info;
	unsigned int i;

	if (df_henter())
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!nr || !what || !data)
		return CUDA_ERROR_INVALID_VALUE;
	df_hmem_info(PTR(p), &info, NULL);
	for (i = 0; i < nr; i++) {
		if (info.kind == DF_MEM_UNKNOWN && what[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
			*(unsigned int *)data[i] = 0;
		else if (attribute(data[i], what[i], p, &info) == CUDA_ERROR_NOT_SUPPORTED)
			return CUDA_ERROR_INVALID_VALUE;
	}
	return CUDA_SUCCESS;
}

/* Does nothing, because copies are ordered with the host's actions in any case. */
DF_H_API CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute what, CUdeviceptr p)
{
	struct df_mem_info info;

	if (df_henter())
		return CUDA_ERROR_NOT_INITIALIZED;
	df_hmem_info(PTR(p), &info, NULL);
	if (!value || info.kind == DF_MEM_UNKNOWN || what != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

DF_H_API CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr p)
{
	struct df_mem_info info;

	if (df_henter())
		return CUDA_ERROR_NOT_INITIALIZED;
	df_hmem_info(PTR(p), &info, NULL);
	if (info.kind == DF_MEM_UNKNOWN)
		return CUDA_ERROR_NOT_FOUND;
	if (base)
		*base = (CUdeviceptr)(uintptr_t)info.base;
	if (bytes)
		*bytes = info.bytes;
	return CUDA_SUCCESS;
}

/* -- errors ------------------------------------------------------------------------------------ */

DF_H_API CUresult cuGetErrorName(CUresult error, const char **name)
{
	static const struct {
		CUresult error;
		const char *name;
	} names[] = {
#define DF_CU_RESULT(name) {name, #name},
#define DF_CUDA_ERROR(name)
#include "interpose/hostcuda/cuda_codes.def"
	};
	size_t i;

	if (!name)
		return CUDA_ERROR_INVALID_VALUE;
	for (i = 0; i < DF_ARRAY_LEN(names) && names[i].error != error; i++)
		;
	*name = i < DF_ARRAY_LEN(names) ? names[i].name : NULL;
	return *name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

DF_H_API CUresult cuGetErrorString(CUresult error, const char **text)
{
	CUresult r = cuGetErrorName(error, text);

	if (r == CUDA_SUCCESS)
		*text = cudaGetErrorString((cudaError_t)error);
	return r;
}

#if CUDA_VERSION >= 12090
/* There are no driver messages. */
DF_H_API CUresult cuLogsRegisterCallback(CUlogsCallback fn, void *arg, CUlogsCallbackHandle *out)
{
	(void)arg;
	if (!fn)
		return CUDA_ERROR_INVALID_VALUE;
	if (out)
		*out = (CUlogsCallbackHandle)(void (*)(void))fn;
	return CUDA_SUCCESS;
}

DF_H_API CUresult cuLogsUnregisterCallback(CUlogsCallbackHandle handle)
{
	return handle ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
#endif

/* -- functions --------------------------------------------------------------------------------- */

static CUresult proc(const char *base, void **out, int version, cuuint64_t flags,
		     CUdriverProcAddressQueryResult *status)
{
	if (!base || !out)
		return CUDA_ERROR_INVALID_VALUE;
	*out = df_hdriver_find(base, version,
			       !!(flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM));
	if (status)
		*status = *out ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	return *out ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

DF_H_API CUresult cuGetProcAddress_v2(const char *base, void **out, int version, cuuint64_t flags,
				      CUdriverProcAddressQueryResult *status)
{
	return proc(base, out, version, flags, status);
}

DF_H_API CUresult cuGetProcAddress(const char *base, void **out, int version, cuuint64_t flags)
{
	return proc(base, out, version, flags, NULL);
}

/* -- the runtime's access to the driver -------------------------------------------------------- */

static cudaError_t entry(const char *symbol, void **out, unsigned version, unsigned long long flags,
			 enum cudaDriverEntryPointQueryResult *status)
{
	if (!symbol || !out)
		return cudaErrorInvalidValue;
	*out = df_hdriver_find(symbol, (int)version,
			       (flags & cudaEnablePerThreadDefaultStream) != 0);
	if (status)
		*status = *out ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
	return *out || status ? cudaSuccess : cudaErrorSymbolNotFound;
}

#define ENTRY(name, params, version, flags)                                                        \
	DF_H_API cudaError_t name params;                                                          \
	DF_H_API cudaError_t name params                                                           \
	{                                                                                          \
		return df_hret(entry(symbol, out, version, flags, status));                        \
	}
#define NAMED                                                                                      \
	(const char *symbol, void **out, unsigned long long flags,                                 \
	 enum cudaDriverEntryPointQueryResult *status)
#define VERSIONED                                                                                  \
	(const char *symbol, void **out, unsigned version, unsigned long long flags,               \
	 enum cudaDriverEntryPointQueryResult *status)
ENTRY(cudaGetDriverEntryPoint, NAMED, CUDART_VERSION, flags)
ENTRY(cudaGetDriverEntryPoint_ptsz, NAMED, CUDART_VERSION, flags | cudaEnablePerThreadDefaultStream)
ENTRY(cudaGetDriverEntryPointByVersion, VERSIONED, version, flags)
ENTRY(cudaGetDriverEntryPointByVersion_ptsz, VERSIONED, version,
      flags | cudaEnablePerThreadDefaultStream)
