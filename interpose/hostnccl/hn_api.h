/*
 * Declares NCCL's functions as pncclX, from the table, so that the compiler checks their
 * definitions.
 */
#ifndef DF_HOSTNCCL_API_H
#define DF_HOSTNCCL_API_H

#include "interpose/hostnccl/hn.h"

#define NCCL_FN(since, kind, result, name, params, args) DF_HN_EXPORT result p##name params;
#include "interpose/nccl/nccl_api.def"
#undef NCCL_FN

#endif
