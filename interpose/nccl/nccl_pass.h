/* Declares the lookup in the table of all functions that dfshim exports. */
#ifndef DF_INTERPOSE_NCCL_NCCL_PASS_H
#define DF_INTERPOSE_NCCL_NCCL_PASS_H

#include "interpose/nccl/nccl_types.h"

/* Returns the error of a function that a communicator of ours does not support, and logs it. */
ncclResult_t df_nccl_refuse(const void *comm, const char *name);

/*
 * Returns our function for "ncclX" or "pncclX", or NULL if the table has no such name. Any context.
 */
void *df_nccl_find(const char *name);

#endif
