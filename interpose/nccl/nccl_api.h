/*
 * Prototypes of NCCL's API as the table declares them, the functions of the real library, and the
 * lookup by name for the dlsym hook.
 */
#ifndef DF_INTERPOSE_NCCL_NCCL_API_H
#define DF_INTERPOSE_NCCL_NCCL_API_H

#include "interpose/nccl/nccl_types.h"

#pragma GCC visibility push(default)
#define NCCL_FN(since, kind, result, name, params, args) result name params;
#include "interpose/nccl/nccl_api.def"
#undef NCCL_FN
#pragma GCC visibility pop

/*
 * Use after the definition of a function of the table: also exports its profiling name
 * (pnccl...).
 */
#define DF_NCCL_EXPORT(name)                                                                       \
	extern __typeof__(name) p##name __attribute__((alias(#name), visibility("default")))

/* The functions of the real library. A member is NULL if the library lacks the name. */
struct df_nccl_real {
#define NCCL_FN(since, kind, result, name, params, args) __typeof__(name) *name;
#include "interpose/nccl/nccl_api.def"
#undef NCCL_FN
};

enum df_nccl_fn {
#define NCCL_FN(since, kind, result, name, params, args) DF_FN_##name,
#include "interpose/nccl/nccl_api.def"
#undef NCCL_FN
	DF_FN_NR
};

#endif
