/*
 * Defines every name of NCCL's table that no other file here defines. Each is a weak function that
 * fails and logs its name. So a program that was linked with a newer NCCL starts, and the log shows
 * which function is missing.
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

/*
 * The value to return, by the first word of the result's type. The rest of the type may follow, so
 * each of these ends inside an unused cast.
 */
/* clang-format off */
#define REFUSED_ncclResult_t return ncclInvalidUsage; (void)(int
#define REFUSED_ncclTeam_t return (ncclTeam_t){0}; (void)(int
#define REFUSED_const return NULL; (void)(const
#define REFUSED_int return 0; (void)(int
#define REFUSED_void (void)(int
/* clang-format on */

/* The arguments are not used. */
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
