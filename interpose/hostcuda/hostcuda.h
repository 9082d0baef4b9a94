/*
 * The one name that libdfhost.so exports beyond CUDA's: what it offers to libdfshim.so, which finds it with dlsym and is
 * then on CPU threads. It is a struct df_backend (runtime/backend.h): devices, streams, events and memory; who executes
 * blocks on them is runtime/device/host. Without libdfshim.so it stands alone as a
 * CUDA runtime for programs without kernels.
 */
#ifndef DF_HOSTCUDA_H
#define DF_HOSTCUDA_H

#include "runtime/backend.h"

const struct df_backend *df_hostcuda(void);

#endif
