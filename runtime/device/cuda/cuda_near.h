/* Words in the memory of each device that its streams write and its blocks poll. */
#ifndef DF_RUNTIME_DEVICE_CUDA_CUDA_NEAR_H
#define DF_RUNTIME_DEVICE_CUDA_CUDA_NEAR_H

#include <cuda.h>
#include <stdint.h>

struct df_mstream;

/*
 * Allocates and clears the words of a device. Call with the primary context current and nothing on
 * the stream; waits for a bounded time.
 */
void df_cuda_near_make(int device, CUstream stream);
/* Returns the words of the stream's device, if the stream can write them, else NULL. */
uint64_t *df_cuda_near_words(const struct df_mstream *s);

#endif
