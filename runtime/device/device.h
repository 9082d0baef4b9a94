/*
 * The machine below the runtime, as one table of functions (struct df_hostcuda_api): streams, events, memory,
 * the current device. The host backend's table comes from libdfhost.so.
 */
#ifndef DF_DEVICE_H
#define DF_DEVICE_H

#include <stddef.h>
#include "interpose/hostcuda/hostcuda.h"

/* The table of the backend that DFSHIM_BACKEND and the machine ask for; NULL with the reason. */
const struct df_hostcuda_api *df_device_open(char *reason, size_t reason_bytes);

#endif
