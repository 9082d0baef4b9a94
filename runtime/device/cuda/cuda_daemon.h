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
/* Starts the poller; may be repeated. Returns 0 or -ENOMEM. */
int df_cuda_daemon_start(const struct df_execs *all);
/* Whether df_cuda_daemon_start() has been called. */
int df_cuda_daemon_started(void);
/* Announces that there may be work. Any thread, cheap. */
void df_cuda_daemon_wake(void);
/*
 * Returns when no kernel is on the device; none is launched until df_cuda_daemon_resume(). Blocks
 * until the running blocks have left. Returns 1 if the device's daemon is dead.
 */
int df_cuda_daemon_stop(int device);
void df_cuda_daemon_resume(int device);
uint64_t df_cuda_daemon_launches(void);
/* Returns the number of the daemon's blocks on the device, or 0 if the device is not in use. */
uint32_t df_cuda_daemon_blocks(int device);

#endif
