/* The real NCCL library, found when first needed and never linked. */
#ifndef DF_INTERPOSE_REAL_REAL_H
#define DF_INTERPOSE_REAL_REAL_H

#include "interpose/hostnccl/hostnccl.h"
#include "interpose/nccl/nccl_api.h"

/*
 * Returns the real library's functions: pncclX of the next library, else those of libnccl.so.2,
 * which is opened for that. With the CPU backend libnccl.so.2 is used only if it is loaded already.
 * Never returns NULL, but members are NULL for functions that were not found. Thread-safe; slow the
 * first time.
 */
const struct df_nccl_real *df_real(void);

/* Calls the real library's function, or reports that the library does not have it. */
#define DF_REAL(fn, ...) (df_real()->fn ? df_real()->fn(__VA_ARGS__) : df_real_missing(#fn))

/*
 * Reports, once for each function, that the real library is missing (returns ncclSystemError) or
 * too old (returns ncclInvalidUsage).
 */
ncclResult_t df_real_missing(const char *name);

/* Returns the version of the real library, or DF_NCCL_VERSION if there is none. */
int df_real_version(void);

/* Whether the process runs on the CUDA runtime on the CPU (libdfhost.so is preloaded). */
int df_on_hostcuda(void);

/*
 * Returns the additional functions of the real library if it can use the memory of libdfhost.so
 * (libdfnccl.so), else NULL.
 */
const struct df_hostnccl_api *df_real_on_cpu(void);

#endif
