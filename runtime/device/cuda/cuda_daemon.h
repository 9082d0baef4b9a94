/*
 * The daemon as a kernel: who launches it, asks it to leave, and takes note of what it has done. Takes the place
 * of runtime/device/host/threads.c on a GPU.
 */
#ifndef DF_RUNTIME_DEVICE_CUDA_CUDA_DAEMON_H
#define DF_RUNTIME_DEVICE_CUDA_CUDA_DAEMON_H

#include <stdint.h>

struct df_execs;

/* fatbin.c: the kernel's code; NULL: this build has none. */
const void *df_cuda_fatbin(void);
/* 0, or -errno with the reason: no kernel in this build. */
int df_cuda_daemon_check(char *reason, unsigned long reason_bytes);
/*
 * Stream and kernel of a device, with the code on it; idempotent. Loading may wait for all that the context has, so it
 * comes before anything there waits for us. -EIO with the reason.
 */
int df_cuda_daemon_prepare(int device, char *reason, unsigned long reason_bytes);
/* Starts the poller; idempotent. -ENOMEM. */
int df_cuda_daemon_start(const struct df_execs *all);
/* 1 after df_cuda_daemon_start(). */
int df_cuda_daemon_started(void);
/* There may be work: any thread, cheap. */
void df_cuda_daemon_wake(void);
/* Returns when no kernel is on the device; none comes until resume. Blocks for as long as a block takes to leave. */
int df_cuda_daemon_stop(int device);
void df_cuda_daemon_resume(int device);
uint64_t df_cuda_daemon_launches(void);
/* Of its grid there; 0: it has not been there. */
uint32_t df_cuda_daemon_blocks(int device);

#endif
