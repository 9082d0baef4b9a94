/*
 * Finds the bytes that the driver's pitched and batched copies touch, for the hook
 * (interpose/cuda/cuda_hook.c). Each function returns 1 with the bytes, or 0 if they are unknown.
 * Bytes between rows, which a copy does not access, count as touched. The layout of an array is not
 * documented, so its bytes are unknown.
 */
#ifndef DF_INTERPOSE_CUDA_CUDA_TOUCH_H
#define DF_INTERPOSE_CUDA_CUDA_TOUCH_H

#include <cuda.h>
#include "runtime/backend.h"

int df_cuda_touch_2d(const CUDA_MEMCPY2D *c, struct df_touch *t);
int df_cuda_touch_3d(const CUDA_MEMCPY3D *c, struct df_touch *t);
int df_cuda_touch_3d_peer(const CUDA_MEMCPY3D_PEER *c, struct df_touch *t);

/*
 * Finds the bytes of a batch of copies. On the legacy stream they are always unknown: there the
 * kind of the written memory matters, too, and this function does not look it up.
 */
int df_cuda_touch_batch(CUstream s, const CUdeviceptr *to, const CUdeviceptr *from,
			const size_t *bytes, size_t nr, struct df_touch *t);
#if CUDA_VERSION >= 12080
int df_cuda_touch_3d_batch(CUstream s, const CUDA_MEMCPY3D_BATCH_OP *ops, size_t nr,
			   struct df_touch *t);
#endif

#endif
