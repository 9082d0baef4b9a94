/*
 * CUDA_DEVICE_MAX_CONNECTIONS, the number of hardware queues that a device's streams share. A
 * stream that waits for a collective occupies one; when none is left, nothing can be launched, not
 * even the daemon, or the kernel of NCCL that it waits for. So in mode prevent the driver reads 32,
 * while it starts and makes contexts. The application keeps the value that it has set: some
 * programs (Megatron) check it.
 *
 * Any thread. A leaf lock, which is not held between the two.
 */
#ifndef DF_BASE_CONNECTIONS_H
#define DF_BASE_CONNECTIONS_H

#define DF_CONNECTIONS 32 /* the most that the driver accepts */

/* When the library is loaded: sets the variable if the application has not. */
void df_connections_default(void);
/* Around a call in which the driver may read it. Calls of several threads may overlap. */
void df_connections_begin(void);
void df_connections_end(void);

#endif
