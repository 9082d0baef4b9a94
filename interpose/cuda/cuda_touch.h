/*
 * Which bytes the driver's pitched and batched copies touch, for the hook (interpose/cuda/cuda_hook.c). Each
 * function returns 1 with the bytes, or 0: not known. Between rows there are bytes that a copy leaves alone; they count
 * as touched. What an array has for bytes is the driver's secret.
 */
#ifndef DF_INTERPOSE_CUDA_CUDA_TOUCH_H
#define DF_INTERPOSE_CUDA_CUDA_TOUCH_H

#include <cuda.h>
#include "runtime/backend.h"

int df_cuda_touch_2d(const CUDA_MEMCPY2D *c, struct df_touch *t);
int df_cuda_touch_3d(const CUDA_MEMCPY3D *c, struct df_touch *t);
int df_cuda_touch_3d_peer(const CUDA_MEMCPY3D_PEER *c, struct df_touch *t);

/*
 * A batch. On the legacy stream nothing is said, because there the kind of memory that is written counts too, and is
 * looked up only at one place.
 */
int df_cuda_touch_batch(CUstream s, const CUdeviceptr *to, const CUdeviceptr *from,
			const size_t *bytes, size_t nr, struct df_touch *t);
#if CUDA_VERSION >= 12080
int df_cuda_touch_3d_batch(CUstream s, const CUDA_MEMCPY3D_BATCH_OP *ops, size_t nr,
			   struct df_touch *t);
#endif

#endif
