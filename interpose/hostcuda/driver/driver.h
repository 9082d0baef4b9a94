/*
 * The driver's API over the engine: what its files share. A function of the driver is the runtime's function of the
 * same meaning (forward.def), or stands in context.c and query.c; all others of cuda.h are refused (symbols.c). Handles
 * of streams, events, graphs and pools are the same objects in both APIs.
 *
 * A context is a name for a device: contexts of one device share everything. A thread has a stack of them; while that
 * is empty, the device that the runtime's functions work on counts as current once one of them has used it.
 */
#ifndef DF_INTERPOSE_HOSTCUDA_DRIVER_DRIVER_H
#define DF_INTERPOSE_HOSTCUDA_DRIVER_DRIVER_H

/* Each symbol under its own name, those of older releases too. */
#define __CUDA_API_VERSION_INTERNAL
#pragma GCC visibility push(default)
#include <cuda.h>
#pragma GCC visibility pop

#include "interpose/hostcuda/skins.h"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

#define PTR(p) ((void *)(uintptr_t)(p))

/* A function of the driver by its symbol; NULL: none. */
void *df_hdriver_symbol(const char *symbol);

/* The context that is current; NULL: none. */
struct CUctx_st *df_hctx_now(void);
static inline CUresult df_hctx_missing(void)
{
	return df_likely(df_hctx_now() != NULL) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}
/* NULL: the current one. -1: not a context. */
int df_hctx_device(CUcontext ctx);

/*
 * What a function of the runtime said, as the driver says it; before: the thread's last error, which the driver does not
 * touch. The numbers are the same but for errors that the driver does not have.
 */
static inline CUresult df_hcu(cudaError_t before, cudaError_t err)
{
	if (df_likely(err == cudaSuccess))
		return CUDA_SUCCESS;
	df_htls.last_error = before;
	switch (err) {
	case cudaErrorInvalidConfiguration:
	case cudaErrorInvalidPitchValue:
	case cudaErrorInvalidSymbol:
	case cudaErrorInvalidHostPointer:
	case cudaErrorInvalidDevicePointer:
	case cudaErrorInvalidTexture:
	case cudaErrorInvalidMemcpyDirection:
	case cudaErrorInvalidFilterSetting:
		return CUDA_ERROR_INVALID_VALUE;
	case cudaErrorMissingConfiguration:
	case cudaErrorInvalidDeviceFunction:
		return CUDA_ERROR_INVALID_HANDLE;
	default:
		return (CUresult)err;
	}
}
#define DF_H_CU(call) df_hcu(df_htls.last_error, call)

/* Of words.c: a word that a stream writes or waits for, of 4 or 8 bytes; several. */
cudaError_t df_hword(cudaStream_t stream, enum df_hop_kind kind, CUdeviceptr p, uint64_t value,
		     unsigned int flags, unsigned int bytes);
cudaError_t df_hwords(cudaStream_t stream, unsigned int nr, const CUstreamBatchMemOpParams *ops,
		      unsigned int flags);

#endif
