/*
 * The daemon as a kernel: launching it, asking it to leave, noting what it has done. The GPU's
 * counterpart of runtime/device/host/threads.c.
 */
#ifndef DF_RUNTIME_DEVICE_CUDA_CUDA_DAEMON_H
#define DF_RUNTIME_DEVICE_CUDA_CUDA_DAEMON_H

#include <stddef.h>
#include <stdint.h>

struct df_execs;

/* Returns 0, or -errno and the reason if this build has no kernel. */
int df_cuda_daemon_check(char *reason, size_t reason_bytes);
/*
 * Makes the stream of a device's daemon and loads the kernel there; may be repeated. Loading may
 * wait for all work of the context, so it is done before any work there can wait for us. Returns
 * -errno and the reason if that fails.
 */
int df_cuda_daemon_prepare(int device, char *reason, unsigned long reason_bytes);
/*
 * Starts the pollers of the devices in use that have none; may be repeated. Returns 0 or -ENOMEM.
 */
int df_cuda_daemon_start(const struct df_execs *all);
/* Whether df_cuda_daemon_start() has been called. */
int df_cuda_daemon_started(void);
/* Announces that there may be work. Any thread, cheap. */
void df_cuda_daemon_wake(void);
/* For struct df_blocks; waits for DFSHIM_TIMEOUT_MS at most, or 10 s if that is more. */
int df_cuda_daemon_stop(int device);
void df_cuda_daemon_resume(int device);
int df_cuda_daemon_stay(int device);
uint64_t df_cuda_daemon_launches(void);
/* The application has no memory left on a device: df_block_hooks.frugal(). */
void df_cuda_daemon_frugal(void);
/* Returns the number of the daemon's blocks there; 0: it is not in use. */
uint32_t df_cuda_daemon_blocks(int device);

#endif
