/* Which memory counts as that of a device (mem.c). Beside internal.h, which has the rest. */
#ifndef DF_INTERPOSE_HOSTCUDA_ENGINE_MEM_H
#define DF_INTERPOSE_HOSTCUDA_ENGINE_MEM_H

#include <stddef.h>
#include <stdint.h>

/* Counts memory outside the device's arena; negative: no longer. Fails with -ENOMEM. */
int df_hmem_aside(int device, int64_t bytes);
/* Other memory counts as the device's from now on; for df_hmem_hide() see code.h. */
int df_hmem_lend(void *ptr, size_t bytes, int device);
void df_hmem_hide(int on);

#endif
