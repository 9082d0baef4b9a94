/*
 * The only translation between the results of dfshim and those of NCCL.
 */
#ifndef DF_INTERPOSE_NCCL_NCCL_STATUS_H
#define DF_INTERPOSE_NCCL_NCCL_STATUS_H

#include "interpose/nccl/nccl_types.h"

/* 0 or -errno (runtime/base/err.h) as ncclResult_t. Logs nothing. */
ncclResult_t df_status(int err);

/* Says (once per call) why `what` failed, as NCCL's last error; returns df_status(err). 0: silent. */
ncclResult_t df_status_warn(int err, const char *what);

#endif
