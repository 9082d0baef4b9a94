/*
 * CUDA_DEVICE_MAX_CONNECTIONS is the number of hardware queues that a device's streams share. A
 * stream that waits for a collective occupies one. When none is left, nothing can be launched, not
 * even the daemon, or the kernel of NCCL that the stream waits for. So in mode prevent dfshim sets
 * it to 32 while the driver starts or makes contexts, which is when the driver reads it. Between
 * these calls the application sees its own value, because some programs (Megatron) check it.
 *
 * Threads: any. Each function takes a leaf lock and releases it before it returns. A forked child
 * sees the application's own value.
 */
#ifndef DF_BASE_CONNECTIONS_H
#define DF_BASE_CONNECTIONS_H

#define DF_CONNECTIONS 32 /* the most that the driver accepts */

/* Call when the library is loaded: sets the variable if the application has not. */
void df_connections_default(void);
/* Returns how many the driver uses; 0: its own default. */
int df_connections(void);
/* Call around a driver call that may read the variable. Calls of several threads may overlap. */
void df_connections_begin(void);
void df_connections_end(void);

#endif
