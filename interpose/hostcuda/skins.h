/*
 * What the two skins, cudart/ and driver/, have of one another. Any thread.
 */
#ifndef DF_INTERPOSE_HOSTCUDA_SKINS_H
#define DF_INTERPOSE_HOSTCUDA_SKINS_H

#include "interpose/hostcuda/internal.h"

/* The calling thread works on that device from now on: cudaSetDevice() to the driver's contexts. */
void df_hctx_use(int device);
/* The driver's function of that name as a program of that version knows it, as cuGetProcAddress; NULL: none. */
void *df_hdriver_find(const char *base, int version, int per_thread);
/* A kernel's place on the stream, where nothing is executed; cudaErrorNotSupported without DFSHIM_HOST_STUB. */
cudaError_t df_hlaunch(cudaStream_t stream);
/* Rows of so many elements, each of 1, 2 or 4 bytes; sync: as cudaMemset(), which waits where the API does. */
cudaError_t df_hfill(void *dst, size_t pitch, uint32_t value, uint32_t elem_bytes, size_t width,
		     size_t height, cudaStream_t stream, int sync);

#endif
