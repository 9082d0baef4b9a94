/*
 * Memory whose release is deferred until no operation in flight touches it. Any thread.
 */
#ifndef DF_RUNTIME_ORDER_FREES_H
#define DF_RUNTIME_ORDER_FREES_H

#include <stddef.h>
#include <stdint.h>

struct df_dev;
struct df_flights;
struct df_mem_info;

int df_free_defer(void *ptr, const struct df_mem_info *info); /* the hook: 1 deferred */
/* Waits, as long as anything moves, for what has been deferred; 0: that is nothing. Any device. */
int df_free_flush(int device);
/* Before addresses lose their memory: waits for operations of a debt that touch it. */
void df_free_unmap(int device, uintptr_t at, size_t bytes);
void df_frees_look(void); /* gives back what is not in use any more */
int df_frees_flights(struct df_dev *dev, struct df_flights *set); /* all in flight; dev->lock */

#endif
