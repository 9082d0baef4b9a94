/*
 * Reduction operators: NCCL's, made by the user, and as the daemon executes them.
 */
#ifndef DF_INTERPOSE_NCCL_NCCL_REDOP_H
#define DF_INTERPOSE_NCCL_NCCL_REDOP_H

#include "interpose/nccl/nccl_handle.h"

/*
 * NCCL's check of the operator and its lowering: sets redop, redop_arg and redop_ptr of *op. The type has
 * been checked. ncclInvalidArgument with NCCL's text.
 */
ncclResult_t df_redop_lower(struct df_handle *h, const char *name, int redop, ncclDataType_t type,
			    struct df_op *op);

#endif
