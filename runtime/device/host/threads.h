/*
 * CPU threads that execute blocks; implements struct df_blocks (runtime/blocks.h). Shared by
 * open.c, host.c and threads.c.
 */
#ifndef DF_RUNTIME_DEVICE_HOST_THREADS_H
#define DF_RUNTIME_DEVICE_HOST_THREADS_H

#include "runtime/blocks.h"

/* Call when another device is used: starts workers. `all` is the same at every call. */
int df_threads_start(const struct df_execs *all);
void df_threads_first_turns(int device);
void df_threads_submitted(void);
int df_threads_pass(int device);
void df_threads_wait(int device, int (*ready)(void *arg), void *arg);
/* Until df_threads_resume(), no slice starts to move without its block's lock. */
void df_threads_stop(int device);
void df_threads_resume(int device);
uint64_t df_threads_launches(void);

#endif
