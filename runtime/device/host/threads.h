/*
 * CPU threads that execute blocks, as struct df_blocks (runtime/blocks.h) has them. Between open.c, host.c and threads.c.
 */
#ifndef DF_RUNTIME_DEVICE_HOST_THREADS_H
#define DF_RUNTIME_DEVICE_HOST_THREADS_H

#include "runtime/blocks.h"

extern const struct df_blocks df_threads; /* host.c: the table */

/* A device that came into use, all of them have been told by `all` from the first time on. */
int df_threads_start(const struct df_execs *all);
void df_threads_first_turns(int device);
void df_threads_submitted(void);
int df_threads_pass(int device);
void df_threads_wait(int device, int (*ready)(void *arg), void *arg);
/* No slice of the device's blocks begins to move without its block's lock. */
void df_threads_stop(int device);
void df_threads_resume(int device);
uint64_t df_threads_launches(void);

#endif
