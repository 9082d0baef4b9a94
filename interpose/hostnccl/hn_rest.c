/*
 * The names of NCCL's table that nothing else here defines: each is a weak function that refuses by name. So a program that
 * is linked with a newer NCCL starts, and is told what it asked for in vain.
 *
 * Threads: any. No state.
 */
#include <stddef.h>
#include "interpose/hostnccl/hn_api.h"
#include "runtime/base/log.h"

static void refuse(const char *name)
{
	DF_NCCL_WARN("%s : not served by NCCL on the CPU (libdfnccl.so)", name);
}

/* By the result's type, whose last word may be left over: each of these ends inside a cast that is for nothing. */
/* clang-format off */
#define REFUSED_ncclResult_t return ncclInvalidUsage; (void)(int
#define REFUSED_ncclTeam_t return (ncclTeam_t){0}; (void)(int
#define REFUSED_const return NULL; (void)(const
#define REFUSED_int return 0; (void)(int
#define REFUSED_void (void)(int
/* clang-format on */

/* Nobody looks at the arguments. */
#pragma GCC diagnostic ignored "-Wunused-parameter"
#define NCCL_FN(since, kind, result, name, params, args)                                           \
	__attribute__((weak)) result p##name params                                                \
	{                                                                                          \
		refuse(#name);                                                                     \
		REFUSED_##result)0;                                                                \
	}                                                                                          \
	extern __typeof__(p##name) name                                                            \
		__attribute__((weak, alias("p" #name), visibility("default")));
#include "interpose/nccl/nccl_api.def"
#undef NCCL_FN
