/* Functions that the two APIs, cudart/ and driver/, provide to each other. Any thread. */
#ifndef DF_INTERPOSE_HOSTCUDA_SKINS_H
#define DF_INTERPOSE_HOSTCUDA_SKINS_H

#include "interpose/hostcuda/internal.h"

/*
 * Returns the driver's function of that name as cuGetProcAddress() returns it to a program of that
 * version, or NULL if there is none.
 */
void *df_hdriver_find(const char *base, int version, int per_thread);
/*
 * Enqueues a kernel that does nothing. Fails with cudaErrorNotSupported without DFSHIM_HOST_STUB.
 */
cudaError_t df_hlaunch(cudaStream_t stream);
/* Fills rows of `width` elements of 1, 2 or 4 bytes. `sync`: waits where cudaMemset() waits. */
cudaError_t df_hfill(void *dst, size_t pitch, uint32_t value, uint32_t elem_bytes, size_t width,
		     size_t height, cudaStream_t stream, int sync);

#endif
