/*
 * Memory that the application maps by hand: addresses without memory, memory without an address,
 * and the access rights of mappings. Any thread. Results are 0 or -errno. -EINVAL means that the
 * object was not made here, or is not given as a whole.
 */
#ifndef DF_HOSTCUDA_MEM_VMM_H
#define DF_HOSTCUDA_MEM_VMM_H

#include <stddef.h>
#include <stdint.h>

struct df_mem_info;

/* The unit of addresses and of memory. */
#define DF_HVMM_UNIT ((size_t)2 << 20)

/* Reserves addresses. `align` is a power of two, or 0. `hint` is used if it is free. */
int df_hvmm_reserve(size_t bytes, size_t align, void *hint, void **out);
/* Frees a whole reservation. Fails with -EBUSY if something is mapped there. */
int df_hvmm_unreserve(void *at, size_t bytes);

/*
 * Makes memory of a device (-1: of the host). `shared`: it can be exported. Fails with -ENOMEM if
 * the device has no more.
 */
int df_hvmm_create(int device, size_t bytes, int shared, uint64_t *handle);
/* Ends a handle. The memory is freed with its last handle or mapping. */
int df_hvmm_release(uint64_t handle);
/* Makes another handle of the memory that is mapped there. */
int df_hvmm_retain(const void *at, uint64_t *handle);
int df_hvmm_describe(uint64_t handle, int *device, int *shared);
/* Returns a descriptor that the caller owns. Fails with -ENOTSUP if the memory is not shared. */
int df_hvmm_export(uint64_t handle, int *fd);
/* Makes a handle of exported memory. The descriptor still belongs to the caller. */
int df_hvmm_import(int fd, uint64_t *handle);

/* Maps the beginning of the memory into one reservation, without access rights. */
int df_hvmm_map(void *at, size_t bytes, uint64_t handle);
/* Unmaps whole mappings. */
int df_hvmm_unmap(void *at, size_t bytes);
/* Sets rights (0, DF_HVMM_READ, or both) of a device, or of the host (-1), to whole mappings. */
#define DF_HVMM_READ  1
#define DF_HVMM_WRITE 2
int df_hvmm_allow(void *at, size_t bytes, int device, int rights);
int df_hvmm_allowed(const void *at, int device, int *rights);

/*
 * Finds the readable and writable mapping there, with its neighbours of the same device. Returns 0
 * if there is none.
 */
int df_hvmm_look(const void *at, struct df_mem_info *out);

#endif
