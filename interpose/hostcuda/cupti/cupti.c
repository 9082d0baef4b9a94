/*
 * Defines CUPTI's names (dfhost/libcupti.so.12 and .13). NVIDIA's library asks the driver for
 * undocumented tables, and programs that profile crash in it. Here each function returns
 * CUPTI_ERROR_NOT_SUPPORTED, except those that need no device; one line reports it. A refused
 * function is defined without parameters, which C's calling convention allows.
 *
 * Threads: any. No state.
 */
#include <stdint.h>
#include <time.h>
#include "runtime/base/log.h"

/* From cupti_result.h, which not every toolkit has. */
enum { CUPTI_SUCCESS, CUPTI_ERROR_INVALID_PARAMETER, CUPTI_ERROR_NOT_SUPPORTED = 27 };
/* From cupti_version.h of CUDA 13.0, whose runtime and driver libdfhost.so has. */
#define CUPTI_API_VERSION 130001

static int refuse(const char *name)
{
	df_warn_once("host CUDA: %s and the rest of CUPTI return CUPTI_ERROR_NOT_SUPPORTED: "
		     "a profiler sees the CPU's side only",
		     name);
	return CUPTI_ERROR_NOT_SUPPORTED;
}

#define DF_CUPTI(symbol)                                                                           \
	int none_##symbol(void) __asm__(#symbol);                                                  \
	__attribute__((visibility("default"))) int none_##symbol(void)                             \
	{                                                                                          \
		return refuse(#symbol);                                                            \
	}
#define DF_CUPTI_SERVED(symbol)
#include "interpose/hostcuda/cupti/cupti.def"
#undef DF_CUPTI
#undef DF_CUPTI_SERVED

#define SERVED(symbol, ...)                                                                        \
	__attribute__((visibility("default"))) int df_##symbol(__VA_ARGS__) __asm__(#symbol);      \
	int df_##symbol(__VA_ARGS__)

SERVED(cuptiGetVersion, uint32_t *version)
{
	if (!version)
		return CUPTI_ERROR_INVALID_PARAMETER;
	*version = CUPTI_API_VERSION;
	return CUPTI_SUCCESS;
}

/* Stores the time of day in ns, as CUPTI does unless the program sets a clock. */
SERVED(cuptiGetTimestamp, uint64_t *ns)
{
	struct timespec now;

	if (!ns)
		return CUPTI_ERROR_INVALID_PARAMETER;
	clock_gettime(CLOCK_REALTIME, &now);
	*ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
	return CUPTI_SUCCESS;
}

SERVED(cuptiGetResultString, int result, const char **text)
{
	if (!text)
		return CUPTI_ERROR_INVALID_PARAMETER;
	*text = result == CUPTI_SUCCESS			  ? "CUPTI_SUCCESS"
		: result == CUPTI_ERROR_INVALID_PARAMETER ? "CUPTI_ERROR_INVALID_PARAMETER"
		: result == CUPTI_ERROR_NOT_SUPPORTED	  ? "CUPTI_ERROR_NOT_SUPPORTED"
							  : "not an error of CUPTI on the CPU";
	return CUPTI_SUCCESS;
}
