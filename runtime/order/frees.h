/* Defers the freeing of memory until no operation in flight touches it. Any thread. */
#ifndef DF_RUNTIME_ORDER_FREES_H
#define DF_RUNTIME_ORDER_FREES_H

#include <stddef.h>
#include <stdint.h>

struct df_dev;
struct df_mem_info;

/* The hook for a free. Returns 1 if the free is deferred, 0 if the caller has to free now. */
int df_free_defer(void *ptr, const struct df_mem_info *info);
/*
 * Waits for the deferred frees while any device makes progress. `device` only labels the wait in
 * the trace. Returns 0 if no free was deferred, else 1.
 */
int df_free_flush(int device);
/* Called before the range is unmapped: waits for skipped operations (debt.h) that touch it. */
void df_free_unmap(int device, uintptr_t at, size_t bytes);
void df_frees_look(void); /* frees the memory that no operation uses any more */

#endif
