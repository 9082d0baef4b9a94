/*
 * Memory that the application maps by hand: addresses without memory, memory without an address, and who may touch what
 * of it where they meet. Any thread. Results: 0 or -errno; -EINVAL: not what was made here, or not whole.
 */
#ifndef DF_HOSTCUDA_ENGINE_VMM_H
#define DF_HOSTCUDA_ENGINE_VMM_H

#include <stddef.h>
#include <stdint.h>

struct df_mem_info;

/* Of addresses and of memory. */
#define DF_HVMM_UNIT ((size_t)2 << 20)

/* align: a power of two, or 0. hint: taken where it is free. */
int df_hvmm_reserve(size_t bytes, size_t align, void *hint, void **out);
/* A whole reservation with nothing mapped; -EBUSY: there is. */
int df_hvmm_unreserve(void *at, size_t bytes);

/* device -1: the host's. shared: other processes may get it. -ENOMEM: the device has no more. */
int df_hvmm_create(int device, size_t bytes, int shared, uint64_t *handle);
/* One of its handles; the memory ends with the last of them and of its mappings. */
int df_hvmm_release(uint64_t handle);
/* Another handle of what is mapped there. */
int df_hvmm_retain(const void *at, uint64_t *handle);
int df_hvmm_describe(uint64_t handle, int *device, int *shared);
/* A descriptor that is the caller's; -ENOTSUP: it is not shared. */
int df_hvmm_export(uint64_t handle, int *fd);
/* The descriptor stays the caller's. */
int df_hvmm_import(int fd, uint64_t *handle);

/* From the memory's beginning, into one reservation. Nobody may touch it yet. */
int df_hvmm_map(void *at, size_t bytes, uint64_t handle);
/* Whole mappings. */
int df_hvmm_unmap(void *at, size_t bytes);
/* rights: 0, DF_HVMM_READ, or both; of a device, or of the host (-1), to whole mappings. */
#define DF_HVMM_READ  1
#define DF_HVMM_WRITE 2
int df_hvmm_allow(void *at, size_t bytes, int device, int rights);
int df_hvmm_allowed(const void *at, int device, int *rights);

/* What is mapped there and may be read and written, neighbours of one device included. 0: nothing. */
int df_hvmm_look(const void *at, struct df_mem_info *out);
/* Of mem.c: memory that is not in the device's arena, and counts all the same; negative: no more. -ENOMEM. */
int df_hmem_aside(int device, int64_t bytes);
/* ... memory of others that counts as the device's from now on; and see code.h. */
int df_hmem_lend(void *ptr, size_t bytes, int device);
void df_hmem_hide(int on);

#endif
