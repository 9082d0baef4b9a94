/*
 * The driver's API over the engine: declarations that its files share. A function of the driver is
 * the runtime's function of the same meaning (forward.def), or is in context.c or query.c; all
 * others of cuda.h are refused (symbols.c). Streams, events, graphs and pools are the same objects
 * in both APIs.
 *
 * A context is a name for a device: contexts of one device share everything. A thread has a stack
 * of them. While it is empty, the device of the runtime's functions is current, once one of them
 * has used it.
 */
#ifndef DF_INTERPOSE_HOSTCUDA_DRIVER_DRIVER_H
#define DF_INTERPOSE_HOSTCUDA_DRIVER_DRIVER_H

/* Declares each symbol under its own name, including those of older releases. */
#define __CUDA_API_VERSION_INTERNAL
#pragma GCC visibility push(default)
#include <cuda.h>
#pragma GCC visibility pop

#include "interpose/hostcuda/skins.h"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

#define PTR(p) ((void *)(uintptr_t)(p))

/* Returns a function of the driver by its symbol, or NULL if there is none. */
void *df_hdriver_symbol(const char *symbol);

/* Returns the current context, or NULL if there is none. */
struct CUctx_st *df_hctx_now(void);
static inline CUresult df_hctx_missing(void)
{
	return df_likely(df_hctx_now() != NULL) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}
/* Returns the device of a context (NULL: of the current one). Returns -1 if `ctx` is no context. */
int df_hctx_device(CUcontext ctx);

/*
 * Converts a result of the runtime's function to the driver's. `before` is the thread's last error,
 * which the driver does not change. The numbers are the same except for errors that the driver
 * lacks.
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

/* words.c: puts a word of 4 or 8 bytes on a stream, which writes it or waits for it. */
cudaError_t df_hword(cudaStream_t stream, enum df_hop_kind kind, CUdeviceptr p, uint64_t value,
		     unsigned int flags, unsigned int bytes);
cudaError_t df_hwords(cudaStream_t stream, unsigned int nr, const CUstreamBatchMemOpParams *ops,
		      unsigned int flags);

#endif
