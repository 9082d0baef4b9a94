/*
 * Chooses the backend of a process (runtime/backend.h) and the executor of its blocks
 * (runtime/blocks.h). open.c decides; cuda/ is the GPU backend, host/ the CPU threads, none.c a
 * backend without devices.
 */
#ifndef DF_RUNTIME_DEVICE_DEVICE_H
#define DF_RUNTIME_DEVICE_DEVICE_H

#include <stddef.h>
#include "runtime/backend.h"
#include "runtime/blocks.h"

/*
 * decide.c. Returns 0 if the self-test of this machine's GPUs recommends them, and stores whether
 * it recommends lanes instead of the daemon. Else returns -errno and the reason. Blocks for a
 * bounded time.
 */
int df_device_decide(int *by_lanes, char *reason, size_t reason_bytes);
/*
 * Call after df_device_decide(). Returns whether a check of the self-test failed: then dfshim puts
 * nothing on the application's streams.
 */
int df_device_failed(void);

int df_host_preloaded(void); /* whether libdfhost.so is in this process */
/*
 * The backends, for open.c and for tests of one of them. The functions return NULL and the reason
 * if the backend cannot be used.
 */
extern const struct df_backend df_no_machine;
const struct df_backend *df_host_open(char *reason, size_t reason_bytes);
const struct df_backend *df_cuda_open(char *reason, size_t reason_bytes);
/* The GPU backend of a process that only records. */
const struct df_backend *df_cuda_open_recording(char *reason, size_t reason_bytes);
/* The GPU backend without the daemon's code, for tests that need only the driver. */
const struct df_backend *df_cuda_open_driver(char *reason, size_t reason_bytes);

/* The table of functions of CPU threads that execute blocks (host/host.c). */
extern const struct df_blocks df_threads;

#endif
