/*
 * The functions of forward.def, and the conversion of the driver's parameters to the runtime's
 * where they differ. Any thread; the contracts are those of the called functions.
 */
#include "interpose/hostcuda/driver/driver.h"

/* These structures are passed on unchanged. */
_Static_assert(sizeof(CUipcMemHandle) == sizeof(cudaIpcMemHandle_t), "the same structure");
_Static_assert(sizeof(CUmemLocation) == sizeof(struct cudaMemLocation), "the same structure");
_Static_assert(sizeof(CUmemPoolProps) == sizeof(struct cudaMemPoolProps), "the same structure");
_Static_assert(sizeof(CUmemAccessDesc) == sizeof(struct cudaMemAccessDesc), "the same structure");
_Static_assert(sizeof(CUgraphEdgeData) == sizeof(cudaGraphEdgeData), "the same structure");
_Static_assert(sizeof(CUDA_HOST_NODE_PARAMS) >= sizeof(struct cudaHostNodeParams),
	       "the same structure");
_Static_assert(sizeof(CUDA_MEMSET_NODE_PARAMS) == sizeof(struct cudaMemsetParams),
	       "the same structure");
_Static_assert(sizeof(CUDA_GRAPH_INSTANTIATE_PARAMS) == sizeof(cudaGraphInstantiateParams),
	       "the same structure");
_Static_assert(sizeof(CUgraphExecUpdateResultInfo) == sizeof(cudaGraphExecUpdateResultInfo),
	       "the same structure");
_Static_assert(sizeof(CUstreamAttrValue) == sizeof(cudaStreamAttrValue), "the same structure");

/* -- copies ------------------------------------------------------------------------------------ */

/* Returns one side of a copy. Returns NULL for an array or an unknown type. */
static const void *side(CUmemorytype type, const void *host, CUdeviceptr dev)
{
	switch (type) {
	case CU_MEMORYTYPE_HOST:
		return host;
	case CU_MEMORYTYPE_DEVICE:
	case CU_MEMORYTYPE_UNIFIED:
		return PTR(dev);
	default:
		return NULL;
	}
}

static enum cudaMemcpyKind kind_of(CUmemorytype from, CUmemorytype to)
{
	static const enum cudaMemcpyKind kinds[2][2] = {
		{cudaMemcpyHostToHost, cudaMemcpyHostToDevice},
		{cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice}};

	if (from == CU_MEMORYTYPE_UNIFIED || to == CU_MEMORYTYPE_UNIFIED)
		return cudaMemcpyDefault;
	return kinds[from == CU_MEMORYTYPE_DEVICE][to == CU_MEMORYTYPE_DEVICE];
}

static cudaError_t from_3d(const CUDA_MEMCPY3D *p, struct cudaMemcpy3DParms *out)
{
	const void *from, *to;

	if (!p)
		return cudaErrorInvalidValue;
	from = side(p->srcMemoryType, p->srcHost, p->srcDevice);
	to = side(p->dstMemoryType, p->dstHost, p->dstDevice);
	if (p->srcMemoryType == CU_MEMORYTYPE_ARRAY || p->dstMemoryType == CU_MEMORYTYPE_ARRAY ||
	    p->srcLOD || p->dstLOD)
		return cudaErrorNotSupported;
	if (!from || !to)
		return cudaErrorInvalidValue;
	*out = (struct cudaMemcpy3DParms){
		.srcPtr = {PTR(from), p->srcPitch ? p->srcPitch : p->WidthInBytes, p->WidthInBytes,
			   p->srcHeight ? p->srcHeight : p->Height},
		.srcPos = {p->srcXInBytes, p->srcY, p->srcZ},
		.dstPtr = {PTR(to), p->dstPitch ? p->dstPitch : p->WidthInBytes, p->WidthInBytes,
			   p->dstHeight ? p->dstHeight : p->Height},
		.dstPos = {p->dstXInBytes, p->dstY, p->dstZ},
		.extent = {p->WidthInBytes, p->Height, p->Depth},
		.kind = kind_of(p->srcMemoryType, p->dstMemoryType)};
	return cudaSuccess;
}

/* Calls `call` with the driver's parameters of a copy, converted to the runtime's in `box`. */
#define with_3d(p, call)                                                                           \
	({                                                                                         \
		struct cudaMemcpy3DParms box;                                                      \
		cudaError_t err_ = from_3d(p, &box);                                               \
		err_ ? err_ : (call);                                                              \
	})

static cudaError_t copy_3d(const CUDA_MEMCPY3D *p, cudaStream_t s, int sync)
{
	if (!sync)
		return with_3d(p, cudaMemcpy3DAsync(&box, s));
	return with_3d(p, s == cudaStreamPerThread ? cudaMemcpy3D_ptds(&box) : cudaMemcpy3D(&box));
}

static cudaError_t copy_2d(const CUDA_MEMCPY2D *p, cudaStream_t s, int sync)
{
	CUDA_MEMCPY3D q;

	if (!p)
		return cudaErrorInvalidValue;
	q = (CUDA_MEMCPY3D){.srcXInBytes = p->srcXInBytes,
			    .srcY = p->srcY,
			    .srcMemoryType = p->srcMemoryType,
			    .srcHost = p->srcHost,
			    .srcDevice = p->srcDevice,
			    .srcPitch = p->srcPitch,
			    .dstXInBytes = p->dstXInBytes,
			    .dstY = p->dstY,
			    .dstMemoryType = p->dstMemoryType,
			    .dstHost = p->dstHost,
			    .dstDevice = p->dstDevice,
			    .dstPitch = p->dstPitch,
			    .WidthInBytes = p->WidthInBytes,
			    .Height = p->Height,
			    .Depth = 1};
	return copy_3d(&q, s, sync);
}

/* -- the functions ----------------------------------------------------------------------------- */

#define FREE(symbol, params, call)                                                                 \
	DF_H_API CUresult symbol params                                                            \
	{                                                                                          \
		cudaError_t before = df_htls.last_error;                                           \
                                                                                                   \
		return df_hcu(before, (call));                                                     \
	}
#define BOUND(symbol, params, call)                                                                \
	DF_H_API CUresult symbol params                                                            \
	{                                                                                          \
		cudaError_t before = df_htls.last_error;                                           \
		CUresult missing = df_hctx_missing();                                              \
                                                                                                   \
		return df_unlikely(missing) ? missing : df_hcu(before, (call));                    \
	}

/*
 * A stream's handle determines its context; only the default streams are those of the current
 * context.
 */
#define OF_STREAM(symbol, params, call)                                                            \
	DF_H_API CUresult symbol params                                                            \
	{                                                                                          \
		cudaError_t before = df_htls.last_error;                                           \
		CUresult missing = !s || s == CU_STREAM_LEGACY || s == CU_STREAM_PER_THREAD        \
					   ? df_hctx_missing()                                     \
					   : CUDA_SUCCESS;                                         \
                                                                                                   \
		return df_unlikely(missing) ? missing : df_hcu(before, (call));                    \
	}

#define DF_FWD(symbol, params, call)	 FREE(symbol, params, call)
#define DF_FWD_CTX(symbol, params, call) BOUND(symbol, params, call)
#define DF_FWD_S(symbol, params, call)	 OF_STREAM(symbol, params, call)
#define DF_FWD_D(symbol, params, call)	 BOUND(symbol, params, call)
#define at(s)				 (s)
#define sync(name)			 name
#define thread_stream			 cudaStreamLegacy
#include "interpose/hostcuda/driver/forward.def"
#undef DF_FWD
#undef DF_FWD_CTX
#undef DF_FWD_S
#undef DF_FWD_D
#undef at
#undef sync
#undef thread_stream

#define DF_FWD(symbol, params, call)
#define DF_FWD_CTX(symbol, params, call)
#define DF_FWD_S(symbol, params, call) OF_STREAM(symbol##_ptsz, params, call)
#define DF_FWD_D(symbol, params, call) BOUND(symbol##_ptds, params, call)
#define at(s)			       df_hpt(s)
#define sync(name)		       name##_ptds
#define thread_stream		       cudaStreamPerThread
#include "interpose/hostcuda/driver/forward.def"
