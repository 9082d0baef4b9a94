/*
 * GPU memory that only the daemon uses, and which ranks can access it. Shared by cuda_far.c,
 * cuda_meet.c and the backend. No function waits unless it says so.
 */
#ifndef DF_RUNTIME_DEVICE_CUDA_CUDA_FAR_H
#define DF_RUNTIME_DEVICE_CUDA_CUDA_FAR_H

#include <cuda.h>
#include <stdint.h>
#include "runtime/blocks.h"

/* for struct df_blocks */
int df_cuda_far_alloc(int device, uint64_t bytes, struct df_far_block *out);
void df_cuda_far_free(const struct df_far_block *block);
int df_cuda_far_chunk(int device, uint64_t proc, const struct df_conn_far *far, uint64_t *addr);
void df_cuda_far_close(uint64_t proc);
void df_cuda_far_limit(uint64_t bytes);
uint64_t df_cuda_far_bytes(int device);
int df_cuda_far_rdma(int device, uint32_t seg, struct df_far_rdma *out);

/*
 * The application has no memory left: gives back what is not used yet, by df_cuda_mem_free(), and
 * from now on takes none in advance.
 */
void df_cuda_far_spare(int device);
/* Waits, for at most bound_ns, until the device has its first chunk. Returns 1 if it has. */
int df_cuda_far_ready(int device, uint64_t bound_ns);
/*
 * Gets a handle by which another process can open the first chunk. Returns 0 if that is impossible.
 */
int df_cuda_far_handle(int device, uint8_t handle[64], uint64_t *bytes);
/*
 * Opens a chunk of another process. Returns -EAGAIN while it is being opened, -EIO if the driver
 * refuses, -EPROTO if it is smaller than announced.
 */
int df_cuda_far_open(int device, uint64_t proc, const uint8_t *handle, uint64_t bytes,
		     uint64_t *addr);
/* Allocates scratch memory for a program. Returns 0, or -errno; -EAGAIN means to try later. */
int df_cuda_scratch(int device, uint64_t bytes, void **out);
void df_cuda_scratch_free(void *p);

#endif
