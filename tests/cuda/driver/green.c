/*
 * Green contexts with work queues, as in a driver of CUDA 13.1. FAKE_CUDA_GREEN=1: the driver has
 * them. "other": the driver fills the resource in an unknown layout. Unset: it does not have them.
 * Streams of a green context are created in the current context.
 */
#include <stdlib.h>
#include <string.h>
#include "tests/cuda/driver/internal.h"

/* Layout of the resource in CUDA 13.1: type, 92 bytes, then device, limit and sharing scope. */
API CUresult cuDeviceGetDevResource(CUdevice dev, CUdevResource *r, CUdevResourceType type)
{
	const char *how = getenv("FAKE_CUDA_GREEN");
	int32_t known[3] = {dev, 8, 0}, *p = (int32_t *)((char *)r + 96);

	SEEN(cuDeviceGetDevResource);
	if (!how || (int)type != 1000)
		return CUDA_ERROR_NOT_SUPPORTED;
	memcpy(r, &type, sizeof(type));
	memcpy(p, known, sizeof(known));
	if (atoi(how) != 1)
		p[1] = -1;
	return CUDA_SUCCESS;
}
API CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *desc, CUdevResource *r, unsigned int nr)
{
	const int32_t *p = (const int32_t *)((const char *)r + 96);

	SEEN(cuDevResourceGenerateDesc);
	*desc = (CUdevResourceDesc)r;
	return nr == 1 && p[1] == 1 && p[2] == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
API CUresult cuGreenCtxCreate(CUgreenCtx *out, CUdevResourceDesc desc, CUdevice dev,
			      unsigned int flags)
{
	(void)desc, (void)dev;
	SEEN(cuGreenCtxCreate);
	CUcontext now = NULL;

	REAL(cuCtxGetCurrent)(&now);
	*out = (CUgreenCtx)now;
	return flags == CU_GREEN_CTX_DEFAULT_STREAM ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
API CUresult cuCtxFromGreenCtx(CUcontext *out, CUgreenCtx green)
{
	SEEN(cuCtxFromGreenCtx);
	*out = (CUcontext)green;
	return CUDA_SUCCESS;
}
API CUresult cuGreenCtxStreamCreate(CUstream *out, CUgreenCtx green, unsigned int flags,
				    int priority)
{
	(void)green;
	SEEN(cuGreenCtxStreamCreate);
	return cuStreamCreateWithPriority(out, flags, priority);
}
