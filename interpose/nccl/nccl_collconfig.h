/*
 * ncclCollConfig_t, by which a program may tune one collective (ncclAllReduceConfig and its like, NCCL 2.31).
 * What it says about NCCL's own kernels (CTAs, clusters, algorithms, tags for profilers) has no meaning for the
 * daemon, whose programs DFSHIM_ALGO and the tuner choose: it is checked and not followed. What other work of the
 * program can depend on is kept: the event of the launch.
 */
#ifndef DF_INTERPOSE_NCCL_NCCL_COLLCONFIG_H
#define DF_INTERPOSE_NCCL_NCCL_COLLCONFIG_H

#include "interpose/nccl/nccl_types.h"

/*
 * Reads a caller's configuration (NULL: none) by its size and version. *event: the one that is to be recorded at the
 * launch, NULL if there is none. ncclInvalidArgument with NCCL's text when it was not initialised by
 * NCCL's macro or holds a value out of range. Any thread.
 */
ncclResult_t df_collconfig_parse(const ncclCollConfig_t *config, cudaEvent_t *event);

/*
 * Records the event on the stream, by the same way as the application would: NCCL does so before the launch where
 * CUDA (before 12.3) can't say when a kernel has started. ncclUnhandledCudaError.
 */
ncclResult_t df_collconfig_record(cudaEvent_t event, cudaStream_t stream);

#endif
