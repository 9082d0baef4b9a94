/* Translates dfshim's results to NCCL's. No other file does that. */
#ifndef DF_INTERPOSE_NCCL_NCCL_STATUS_H
#define DF_INTERPOSE_NCCL_NCCL_STATUS_H

#include "interpose/nccl/nccl_types.h"

/* Converts 0 or -errno (runtime/base/err.h) to ncclResult_t. Logs nothing. */
ncclResult_t df_status(int err);

/* Converts like df_status(). For an error, also sets NCCL's last error: why `what` failed. */
ncclResult_t df_status_warn(int err, const char *what);

#endif
