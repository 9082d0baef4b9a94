/*
 * ncclCollConfig_t, with which a program may tune one collective (ncclAllReduceConfig and similar
 * calls, NCCL 2.31). Its settings for NCCL's own kernels (CTAs, clusters, algorithms, profiler
 * tags) do not apply to the daemon, whose programs DFSHIM_ALGO and the tuner choose: they are
 * checked and ignored. The launch event is honored, because other work of the program can depend on
 * it.
 */
#ifndef DF_INTERPOSE_NCCL_NCCL_COLLCONFIG_H
#define DF_INTERPOSE_NCCL_NCCL_COLLCONFIG_H

#include "interpose/nccl/nccl_types.h"

/*
 * Reads a caller's configuration by its size and version. `config` may be NULL. *event is the event
 * to record at the launch, or NULL. Returns ncclInvalidArgument, with NCCL's text, if NCCL's macro
 * did not initialize the configuration or a value is out of range. Any thread.
 */
ncclResult_t df_collconfig_parse(const ncclCollConfig_t *config, cudaEvent_t *event);

/*
 * Records the event on the stream, through the same hook as an application does. NCCL records it
 * before the launch where CUDA (before 12.3) cannot report the start of a kernel. May return
 * ncclUnhandledCudaError.
 */
ncclResult_t df_collconfig_record(cudaEvent_t event, cudaStream_t stream);

#endif
