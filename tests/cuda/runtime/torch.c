/*
 * Further functions that PyTorch uses: device properties, state of captures. PyTorch's kernels
 * cannot run here (kernel.c); interpose/python/dfshim/host computes on the CPU instead.
 */
#include <stdio.h>
#include <string.h>
#include "tests/cuda/runtime/cudart.h"

/* ---- device ---------------------------------------------------------------------------------- */

API cudaError_t cudaDriverGetVersion(int *version)
{
	return rt_said(CU(cuDriverGetVersion)(version));
}
API cudaError_t cudaRuntimeGetVersion(int *version)
{
	*version = CUDART_VERSION;
	return cudaSuccess;
}
API cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr what, int dev)
{
	return CALL(cuDeviceGetAttribute, value, (CUdevice_attribute)what, dev);
}
API cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int dev)
{
	memset(p, 0, sizeof(*p));
	if (cudaDeviceGetAttribute(&p->major, cudaDevAttrComputeCapabilityMajor, dev) ||
	    cudaDeviceGetAttribute(&p->minor, cudaDevAttrComputeCapabilityMinor, dev) ||
	    cudaDeviceGetAttribute(&p->multiProcessorCount, cudaDevAttrMultiProcessorCount, dev) ||
	    CALL(cuDeviceGetName, p->name, sizeof(p->name), dev) ||
	    CALL(cuDeviceTotalMem, &p->totalGlobalMem, dev))
		return rt_peek();
	p->warpSize = 32;
	p->maxThreadsPerBlock = 1024;
	p->maxThreadsPerMultiProcessor = 2048;
	p->maxBlocksPerMultiProcessor = 32;
	p->regsPerBlock = p->regsPerMultiprocessor = 65536;
	p->sharedMemPerBlock = 48 << 10;
	p->sharedMemPerBlockOptin = 227 << 10;
	p->sharedMemPerMultiprocessor = 228 << 10;
	p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
	p->maxThreadsDim[2] = 64;
	p->maxGridSize[0] = 0x7fffffff;
	p->maxGridSize[1] = p->maxGridSize[2] = 65535;
	p->unifiedAddressing = p->managedMemory = p->concurrentKernels = 1;
	return cudaSuccess;
}
API cudaError_t cudaDeviceGetPCIBusId(char *id, int len, int dev)
{
	snprintf(id, (size_t)len, "0000:%02x:00.0", dev + 1);
	return cudaSuccess;
}
API cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
	return CALL(cuCtxGetStreamPriorityRange, least, greatest);
}
API cudaError_t cudaDeviceCanAccessPeer(int *can, int dev, int peer)
{
	return CALL(cuDeviceCanAccessPeer, can, dev, peer);
}
API cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int flags)
{
	CUcontext ctx;

	if (CALL(cuDevicePrimaryCtxRetain, &ctx, peer))
		return rt_peek();
	return CALL(cuCtxEnablePeerAccess, ctx, flags);
}
API cudaError_t cudaProfilerStart(void)
{
	return cudaSuccess;
}
API cudaError_t cudaProfilerStop(void)
{
	return cudaSuccess;
}
API cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **fn, unsigned int version,
						 unsigned long long flags,
						 enum cudaDriverEntryPointQueryResult *status)
{
	CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	CUresult r = CU(cuGetProcAddress)(name, fn, (int)version, flags, &found);

	if (status)
		*status = (enum cudaDriverEntryPointQueryResult)found;
	return rt_said(r);
}

/* ---- memory ---------------------------------------------------------------------------------- */

API cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *out, const void *p)
{
	unsigned int type = 0, managed = 0;
	int dev = -2;
	CUpointer_attribute what[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
				      CU_POINTER_ATTRIBUTE_IS_MANAGED,
				      CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
	void *data[] = {&type, &managed, &dev};

	memset(out, 0, sizeof(*out));
	if (CALL(cuPointerGetAttributes, 3, what, data, PTR(p)))
		return rt_peek();
	out->device = dev;
	out->type = managed			   ? cudaMemoryTypeManaged
		    : type == CU_MEMORYTYPE_DEVICE ? cudaMemoryTypeDevice
		    : type == CU_MEMORYTYPE_HOST   ? cudaMemoryTypeHost
						   : cudaMemoryTypeUnregistered;
	if (out->type == cudaMemoryTypeDevice || managed)
		out->devicePointer = (void *)(uintptr_t)p;
	if (out->type != cudaMemoryTypeDevice)
		out->hostPointer = (void *)(uintptr_t)p;
	return cudaSuccess;
}
API cudaError_t cudaMemcpyPeerAsync(void *to, int to_dev, const void *from, int from_dev,
				    size_t bytes, cudaStream_t s)
{
	(void)to_dev;
	(void)from_dev;
	return CALL(cuMemcpyDtoDAsync, PTR(to), PTR(from), bytes, s);
}
API cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *h, void *p)
{
	return CALL(cuIpcGetMemHandle, (CUipcMemHandle *)h, PTR(p));
}
API cudaError_t cudaIpcOpenMemHandle(void **p, cudaIpcMemHandle_t h, unsigned int flags)
{
	CUipcMemHandle handle;

	memcpy(&handle, &h, sizeof(handle));
	return CALL(cuIpcOpenMemHandle, (CUdeviceptr *)p, handle, flags);
}
API cudaError_t cudaIpcCloseMemHandle(void *p)
{
	return CALL(cuIpcCloseMemHandle, PTR(p));
}

/* ---- streams, events, graphs ----------------------------------------------------------------- */

API cudaError_t cudaStreamGetPriority(cudaStream_t s, int *priority)
{
	return CALL(cuStreamGetPriority, s, priority);
}
API cudaError_t cudaStreamIsCapturing(cudaStream_t s, enum cudaStreamCaptureStatus *status)
{
	return CALL(cuStreamIsCapturing, s, (CUstreamCaptureStatus *)status);
}
API cudaError_t cudaStreamGetCaptureInfo(cudaStream_t s, enum cudaStreamCaptureStatus *status,
					 unsigned long long *id, cudaGraph_t *graph,
					 const cudaGraphNode_t **nodes,
					 const cudaGraphEdgeData **edges, size_t *nr)
{
	CUresult (*fn)(CUstream, CUstreamCaptureStatus *, cuuint64_t *, CUgraph *,
		       const CUgraphNode **, size_t *);
	CUdriverProcAddressQueryResult found;
	void *at = NULL;

	rt_ready();
	if (CU(cuGetProcAddress)("cuStreamGetCaptureInfo", &at, 11030, 0, &found) || !at)
		return rt_said(CUDA_ERROR_NOT_FOUND);
	*(void **)&fn = at;
	if (edges)
		*edges = NULL;
	return rt_said(fn(s, (CUstreamCaptureStatus *)status, (cuuint64_t *)id, graph, nodes, nr));
}
API cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
	return CALL(cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode *)mode);
}
API cudaError_t cudaEventRecordWithFlags(cudaEvent_t e, cudaStream_t s, unsigned int flags)
{
	return CALL(cuEventRecordWithFlags, e, s, flags);
}
API cudaError_t cudaUserObjectCreate(cudaUserObject_t *o, void *p, cudaHostFn_t destroy,
				     unsigned int refs, unsigned int flags)
{
	return CALL(cuUserObjectCreate, o, p, destroy, refs, flags);
}
API cudaError_t cudaGraphRetainUserObject(cudaGraph_t g, cudaUserObject_t o, unsigned int refs,
					  unsigned int flags)
{
	return CALL(cuGraphRetainUserObject, g, o, refs, flags);
}
API cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec, cudaGraph_t g,
					      unsigned long long flags)
{
	return CALL(cuGraphInstantiateWithFlags, exec, g, flags);
}
