/*
 * The only name that libdfhost.so exports beyond CUDA's: its struct df_backend (runtime/backend.h:
 * devices, streams, events, memory) for libdfshim.so, which finds it with dlsym() and then uses CPU
 * threads (runtime/device/host). Without libdfshim.so, libdfhost.so is a CUDA runtime for programs
 * without kernels.
 */
#ifndef DF_HOSTCUDA_H
#define DF_HOSTCUDA_H

#include "runtime/backend.h"

const struct df_backend *df_hostcuda(void);

#endif
