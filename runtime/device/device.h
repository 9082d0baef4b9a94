/*
 * Which machine (runtime/backend.h) a process has, and who executes blocks there (runtime/blocks.h): open.c decides, cuda/
 * has the GPUs, host/ CPU threads, and none.c a machine without devices.
 */
#ifndef DF_RUNTIME_DEVICE_DEVICE_H
#define DF_RUNTIME_DEVICE_DEVICE_H

#include <stddef.h>
#include "runtime/backend.h"
#include "runtime/blocks.h"

/* Sets df_backend, and df_blocks, to what DFSHIM_BACKEND and the machine ask for. -EOPNOTSUPP with the reason. */
int df_device_open(char *reason, size_t reason_bytes);
/* The same for who only looks on (mode trace): the GPU too where it was not asked for by name. */
int df_device_open_any(char *reason, size_t reason_bytes);
/* Back to no device at all, and to CPU threads as those who would execute blocks. */
void df_device_none(void);

/* decide.c: 0: what is known of this machine's GPUs speaks for taking them; -errno with the reason. Blocks, bounded. */
int df_device_decide(char *reason, size_t reason_bytes);
/* After that: 1 if a check of the self-test failed, so nothing of ours is to be put on the application's streams. */
int df_device_failed(void);

/* For open.c, and for tests of one of them; NULL with the reason. */
int df_host_preloaded(void);
extern const struct df_backend df_no_machine;
const struct df_backend *df_host_open(char *reason, size_t reason_bytes);
const struct df_backend *df_cuda_open(char *reason, size_t reason_bytes);
/* For who only looks on. */
const struct df_backend *df_cuda_open_recording(char *reason, size_t reason_bytes);
/* The same without the daemon's code; for tests of what needs the driver only. */
const struct df_backend *df_cuda_open_driver(char *reason, size_t reason_bytes);

#endif
