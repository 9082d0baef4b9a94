/*
 * The machine below the runtime, as one table of functions (struct df_hostcuda_api): streams, events, memory,
 * the current device. The host backend's table comes from libdfhost.so, the GPU's from cuda.c.
 */
#ifndef DF_DEVICE_H
#define DF_DEVICE_H

#include <stddef.h>
#include "interpose/hostcuda/hostcuda.h"

/* The table of the backend that DFSHIM_BACKEND and the machine ask for; NULL with the reason. */
const struct df_hostcuda_api *df_device_open(char *reason, size_t reason_bytes);

/* The same for who only looks on (mode trace): the GPU too where it was not asked for by name. */
const struct df_hostcuda_api *df_device_open_any(char *reason, size_t reason_bytes);

/* Who executes the blocks, after df_device_open(); NULL: the engine's threads. */
struct df_machine;
const struct df_machine *df_device_machine(void);

/* cuda.c, cuda_engine.c: the GPU's; NULL with the reason. */
const struct df_hostcuda_api *df_cuda_open(char *reason, size_t reason_bytes);
const struct df_machine *df_cuda_machine(void);
/* For who only looks on. */
const struct df_hostcuda_api *df_cuda_open_recording(char *reason, size_t reason_bytes);
/* The same without the daemon's code; for tests of what needs the driver only. */
const struct df_hostcuda_api *df_cuda_open_driver(char *reason, size_t reason_bytes);

#endif
