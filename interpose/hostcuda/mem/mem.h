/* Declares the memory that counts as a device's (mem.c). The rest is in internal.h. */
#ifndef DF_INTERPOSE_HOSTCUDA_MEM_MEM_H
#define DF_INTERPOSE_HOSTCUDA_MEM_MEM_H

#include <stddef.h>
#include <stdint.h>

/*
 * Adds memory outside of the arena to the device's count; a negative number subtracts. Fails with
 * -ENOMEM.
 */
int df_hmem_aside(int device, int64_t bytes);
/*
 * df_hmem_lend() lets other memory count as the device's from now on. code.h describes
 * df_hmem_hide().
 */
int df_hmem_lend(void *ptr, size_t bytes, int device);
void df_hmem_hide(int on);

#endif
