/*
 * The driver's functions for memory that is mapped by hand: checks their parameters and converts
 * them to those of mem/vmm.h. Memory can be shared by file descriptors only. No call waits for
 * work: as in CUDA, a program unmaps only what its work no longer uses. Any thread.
 */
#include "interpose/hostcuda/driver/driver.h"
#include "interpose/hostcuda/mem/vmm.h"

#include <string.h>

static CUresult said(int err)
{
	switch (err) {
	case 0:
		return CUDA_SUCCESS;
	case -ENOMEM:
		return CUDA_ERROR_OUT_OF_MEMORY;
	case -ENOTSUP:
		return CUDA_ERROR_NOT_SUPPORTED;
	case -ENODEV:
		return CUDA_ERROR_INVALID_DEVICE;
	case -EMFILE:
	case -ENFILE:
		return CUDA_ERROR_OPERATING_SYSTEM;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

/* Reads a location. *device is -1 for the host. */
static CUresult location(const CUmemLocation *l, int *device)
{
	switch (l->type) {
	case CU_MEM_LOCATION_TYPE_DEVICE:
		*device = l->id;
		return df_hdevice_ok(l->id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
	case CU_MEM_LOCATION_TYPE_HOST:
	case CU_MEM_LOCATION_TYPE_HOST_NUMA:
	case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
		*device = -1;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

static CUresult properties(const CUmemAllocationProp *p, int *device)
{
	unsigned int types = (unsigned int)p->requestedHandleTypes;

	if (p->type != CU_MEM_ALLOCATION_TYPE_PINNED || p->win32HandleMetaData)
		return CUDA_ERROR_INVALID_VALUE;
	if (types & ~(unsigned int)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_NOT_SUPPORTED;
	return location(&p->location, device);
}

#define ENTER                                                                                      \
	do {                                                                                       \
		if (df_henter())                                                                   \
			return CUDA_ERROR_NOT_INITIALIZED;                                         \
	} while (0)

DF_H_API CUresult cuMemGetAllocationGranularity(size_t *out, const CUmemAllocationProp *p,
						CUmemAllocationGranularity_flags what)
{
	CUresult r;
	int device;

	ENTER;
	if (!out || !p ||
	    (what != CU_MEM_ALLOC_GRANULARITY_MINIMUM &&
	     what != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED))
		return CUDA_ERROR_INVALID_VALUE;
	r = properties(p, &device);
	if (r == CUDA_SUCCESS)
		*out = DF_HVMM_UNIT;
	return r;
}

/* -- addresses --------------------------------------------------------------------------------- */

DF_H_API CUresult cuMemAddressReserve(CUdeviceptr *out, size_t bytes, size_t align,
				      CUdeviceptr hint, unsigned long long flags)
{
	void *at;
	int err;

	ENTER;
	if (!out || flags)
		return CUDA_ERROR_INVALID_VALUE;
	err = df_hvmm_reserve(bytes, align, PTR(hint), &at);
	if (!err)
		*out = (CUdeviceptr)(uintptr_t)at;
	return said(err);
}

DF_H_API CUresult cuMemAddressFree(CUdeviceptr p, size_t bytes)
{
	ENTER;
	return said(df_hvmm_unreserve(PTR(p), bytes));
}

/* -- memory ------------------------------------------------------------------------------------ */

DF_H_API CUresult cuMemCreate(CUmemGenericAllocationHandle *out, size_t bytes,
			      const CUmemAllocationProp *p, unsigned long long flags)
{
	uint64_t handle;
	CUresult r;
	int device, err;

	ENTER;
	if (!out || !p || flags)
		return CUDA_ERROR_INVALID_VALUE;
	r = properties(p, &device);
	if (r != CUDA_SUCCESS)
		return r;
	err = df_hvmm_create(device, bytes, p->requestedHandleTypes != 0, &handle);
	if (!err)
		*out = handle;
	return said(err);
}

DF_H_API CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
	ENTER;
	return said(df_hvmm_release(handle));
}

DF_H_API CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *out, void *at)
{
	uint64_t handle;
	int err;

	ENTER;
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	err = df_hvmm_retain(at, &handle);
	if (!err)
		*out = handle;
	return said(err);
}

DF_H_API CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *p,
							 CUmemGenericAllocationHandle handle)
{
	int device, shared, err;

	ENTER;
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	err = df_hvmm_describe(handle, &device, &shared);
	if (err)
		return said(err);
	memset(p, 0, sizeof(*p));
	p->type = CU_MEM_ALLOCATION_TYPE_PINNED;
	p->location.type =
		device < 0 ? CU_MEM_LOCATION_TYPE_HOST_NUMA : CU_MEM_LOCATION_TYPE_DEVICE;
	p->location.id = DF_MAX(device, 0);
	if (shared)
		p->requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	return CUDA_SUCCESS;
}

static CUresult handle_type(CUmemAllocationHandleType type)
{
	switch ((unsigned int)type) {
	case CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR:
		return CUDA_SUCCESS;
	case CU_MEM_HANDLE_TYPE_FABRIC:
		return CUDA_ERROR_NOT_SUPPORTED;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

/* `out` points to an int. */
DF_H_API CUresult cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle handle,
					       CUmemAllocationHandleType type,
					       unsigned long long flags)
{
	CUresult r;

	ENTER;
	if (!out || flags)
		return CUDA_ERROR_INVALID_VALUE;
	r = handle_type(type);
	return r == CUDA_SUCCESS ? said(df_hvmm_export(handle, out)) : r;
}

/* The descriptor is passed as the value of the pointer `from`. */
DF_H_API CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *out, void *from,
						 CUmemAllocationHandleType type)
{
	uint64_t handle;
	CUresult r;
	int err;

	ENTER;
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	r = handle_type(type);
	if (r != CUDA_SUCCESS)
		return r;
	err = (uintptr_t)from > INT32_MAX ? -EINVAL : df_hvmm_import((int)(uintptr_t)from, &handle);
	if (!err)
		*out = handle;
	return said(err);
}

/* -- mapping ----------------------------------------------------------------------------------- */

DF_H_API CUresult cuMemMap(CUdeviceptr p, size_t bytes, size_t offset,
			   CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	ENTER;
	if (offset || flags)
		return CUDA_ERROR_INVALID_VALUE;
	return said(df_hvmm_map(PTR(p), bytes, handle));
}

DF_H_API CUresult cuMemUnmap(CUdeviceptr p, size_t bytes)
{
	ENTER;
	return said(df_hvmm_unmap(PTR(p), bytes));
}

static int rights_of(CUmemAccess_flags flags)
{
	switch (flags) {
	case CU_MEM_ACCESS_FLAGS_PROT_NONE:
		return 0;
	case CU_MEM_ACCESS_FLAGS_PROT_READ:
		return DF_HVMM_READ;
	case CU_MEM_ACCESS_FLAGS_PROT_READWRITE:
		return DF_HVMM_READ | DF_HVMM_WRITE;
	default:
		return -1;
	}
}

DF_H_API CUresult cuMemSetAccess(CUdeviceptr p, size_t bytes, const CUmemAccessDesc *d, size_t nr)
{
	CUresult r = CUDA_SUCCESS;
	size_t i;
	int device;

	ENTER;
	if (!d || !nr)
		return CUDA_ERROR_INVALID_VALUE;
	/* Check all of it before anything changes. */
	for (i = 0; i < nr && r == CUDA_SUCCESS; i++)
		r = rights_of(d[i].flags) < 0 ? CUDA_ERROR_INVALID_VALUE
					      : location(&d[i].location, &device);
	for (i = 0; i < nr && r == CUDA_SUCCESS; i++) {
		location(&d[i].location, &device);
		r = said(df_hvmm_allow(PTR(p), bytes, device, rights_of(d[i].flags)));
	}
	return r;
}

DF_H_API CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *l, CUdeviceptr p)
{
	CUresult r;
	int device, rights, err;

	ENTER;
	if (!flags || !l)
		return CUDA_ERROR_INVALID_VALUE;
	r = location(l, &device);
	if (r != CUDA_SUCCESS)
		return r;
	err = df_hvmm_allowed(PTR(p), device, &rights);
	if (!err)
		*flags = rights & DF_HVMM_WRITE ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
			 : rights		? CU_MEM_ACCESS_FLAGS_PROT_READ
						: CU_MEM_ACCESS_FLAGS_PROT_NONE;
	return said(err);
}
