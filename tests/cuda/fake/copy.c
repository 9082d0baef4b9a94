/* Copies and fills of the stand-in driver: operations of streams, and those that wait. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "tests/cuda/fake/internal.h"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

static CUresult copy(const void *to, const void *from, size_t bytes, CUstream s)
{
	fake_put(fake_stream_of(s, 0), &(struct op){.kind = OP_COPY,
						    .to = (void *)to,
						    .from = from,
						    .bytes = bytes,
						    .rows = 1});
	return CUDA_SUCCESS;
}
static CUresult fill(CUdeviceptr to, size_t pitch, uint64_t value, size_t width, size_t nr,
		     size_t rows, CUstream s)
{
	fake_put(fake_stream_of(s, 0), &(struct op){.kind = OP_FILL,
						    .to = (void *)to,
						    .to_pitch = pitch,
						    .value = value,
						    .width = width,
						    .bytes = nr * width,
						    .rows = rows});
	return CUDA_SUCCESS;
}
static CUresult waited(void)
{
	fake_stream_drain(fake_stream_of(NULL, 0));
	return fake_ctx_error(fake_ctx_now());
}

#define COPY(name, to_type, from_type)                                                             \
	API CUresult name##Async_v2(to_type to, from_type from, size_t bytes, CUstream s)          \
	{                                                                                          \
		SEEN();                                                                            \
		return copy((void *)to, (const void *)from, bytes, s);                             \
	}                                                                                          \
	API CUresult name##_v2(to_type to, from_type from, size_t bytes)                           \
	{                                                                                          \
		SEEN();                                                                            \
		copy((void *)to, (const void *)from, bytes, NULL);                                 \
		return waited();                                                                   \
	}
COPY(cuMemcpyDtoH, void *, CUdeviceptr)
COPY(cuMemcpyDtoD, CUdeviceptr, CUdeviceptr)

/*
 * From pageable memory the driver takes a copy of its own, and may return before that has arrived on the device.
 */
static CUresult upload(CUdeviceptr to, const void *from, size_t bytes, CUstream s, int wait)
{
	void *own;

	if (fake_mem_known((uintptr_t)from)) {
		copy((void *)to, from, bytes, s);
		return wait ? waited() : CUDA_SUCCESS;
	}
	own = malloc(bytes + 1);
	memcpy(own, from, bytes);
	fake_put(fake_stream_of(s, 0), &(struct op){.kind = OP_COPY,
						    .to = (void *)to,
						    .from = own,
						    .own = own,
						    .own_bytes = bytes,
						    .bytes = bytes,
						    .rows = 1});
	return CUDA_SUCCESS;
}
API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream s)
{
	SEEN();
	return upload(to, from, bytes, s, 0);
}
API CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes)
{
	SEEN();
	return upload(to, from, bytes, NULL, 1);
}
API CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream s)
{
	SEEN();
	return copy((void *)to, (const void *)from, bytes, s);
}
API CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
	SEEN();
	copy((void *)to, (const void *)from, bytes, NULL);
	return waited();
}
API CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext a, CUdeviceptr from, CUcontext b,
			       size_t bytes, CUstream s)
{
	(void)a, (void)b;
	SEEN();
	return copy((void *)to, (const void *)from, bytes, s);
}
/* Of linear memory; the same structure says it for 2D and 3D. */
API CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *c, CUstream s)
{
	const char *from =
		c->srcMemoryType == CU_MEMORYTYPE_HOST ? c->srcHost : (void *)c->srcDevice;
	char *to = c->dstMemoryType == CU_MEMORYTYPE_HOST ? c->dstHost : (void *)c->dstDevice;

	SEEN();
	fake_put(fake_stream_of(s, 0),
		 &(struct op){.kind = OP_COPY,
			      .to = to + c->dstY * c->dstPitch + c->dstXInBytes,
			      .from = from + c->srcY * c->srcPitch + c->srcXInBytes,
			      .to_pitch = c->dstPitch,
			      .from_pitch = c->srcPitch,
			      .bytes = c->WidthInBytes,
			      .rows = c->Height});
	return CUDA_SUCCESS;
}
API CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char v, size_t nr, CUstream s)
{
	SEEN();
	return fill(to, 0, v, 1, nr, 1, s);
}
API CUresult cuMemsetD32Async(CUdeviceptr to, unsigned int v, size_t nr, CUstream s)
{
	SEEN();
	return fill(to, 0, v, 4, nr, 1, s);
}
API CUresult cuMemsetD2D8Async(CUdeviceptr to, size_t pitch, unsigned char v, size_t width,
			       size_t height, CUstream s)
{
	SEEN();
	return fill(to, pitch, v, 1, width, height, s);
}
/* Of device memory: nobody waits for it, but the legacy stream has it. */
API CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char v, size_t nr)
{
	SEEN();
	return fill(to, 0, v, 1, nr, 1, NULL);
}
