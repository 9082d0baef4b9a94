/*
 * The real NCCL library, found at the first need and never linked.
 */
#ifndef DF_INTERPOSE_REAL_REAL_H
#define DF_INTERPOSE_REAL_REAL_H

#include "interpose/hostnccl/hostnccl.h"
#include "interpose/nccl/nccl_api.h"

/*
 * The real library's functions: the next library's pncclX, else those of libnccl.so.2, which is opened
 * for that (not on the host backend: only a library that is loaded already counts there). The result is
 * never NULL; functions that were not found are. Thread-safe; slow the first time.
 */
const struct df_nccl_real *df_real(void);

/* Calls the real library's function, or says that it has none. */
#define DF_REAL(fn, ...) (df_real()->fn ? df_real()->fn(__VA_ARGS__) : df_real_missing(#fn))

/* Says once per function that the real library is missing or too old; returns ncclSystemError. */
ncclResult_t df_real_missing(const char *name);

/* The version of the real library, DF_NCCL_VERSION where there is none. */
int df_real_version(void);

/* 1 in a process that runs on the CUDA runtime on the CPU (libdfhost.so is preloaded). */
int df_on_hostcuda(void);

/* What the real library is besides NCCL where it can use the memory of libdfhost.so (libdfnccl.so); else NULL. */
const struct df_hostnccl_api *df_real_on_cpu(void);

#endif
