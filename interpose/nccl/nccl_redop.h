/* Reduction operators: NCCL's, the user's, and their form in the daemon. */
#ifndef DF_INTERPOSE_NCCL_NCCL_REDOP_H
#define DF_INTERPOSE_NCCL_NCCL_REDOP_H

#include "interpose/nccl/nccl_handle.h"

/*
 * Checks the operator as NCCL does, and sets redop, redop_arg and redop_ptr of *op. The type must
 * have been checked. Returns ncclInvalidArgument with NCCL's text.
 */
ncclResult_t df_redop_lower(struct df_handle *h, const char *name, int redop, ncclDataType_t type,
			    struct df_op *op);

#endif
