/*
 * Reads ncclCollConfig_t by the size and version that the caller's macro wrote, and records the
 * launch event.
 *
 * Threads: any. No state.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
#include "interpose/nccl/nccl_collconfig.h"
#include "interpose/real/real.h"
#include "runtime/base/dlsym.h"
#include "runtime/base/err.h"
#include "runtime/base/log.h"

/* all bits of NCCL_CTA_POLICY_* */
#define CTA_POLICIES 3

ncclResult_t df_collconfig_parse(const ncclCollConfig_t *config, cudaEvent_t *event)
{
	ncclCollConfig_t c;
	size_t size;

	*event = NULL;
	if (df_likely(!config))
		return ncclSuccess;
	memset(&c, 0, sizeof(c));
	c.forceAlgSelection = 1;
	c.CTAPolicy = NCCL_CONFIG_UNDEF_INT;
	memcpy(&size, config, sizeof(size));
	if (size > sizeof(c))
		size = sizeof(c);
	memcpy(&c, config, size);
	if (size < offsetof(ncclCollConfig_t, ext) || c.magic != DF_NCCL_API_MAGIC) {
		DF_NCCL_WARN("ncclCollConfig_t magic mismatch (got 0x%x, expected 0x%x)", c.magic,
			     DF_NCCL_API_MAGIC);
		return ncclInvalidArgument;
	}
	if (c.forceAlgSelection != 0 && c.forceAlgSelection != 1) {
		DF_NCCL_WARN("config->forceAlgSelection=%d is invalid, accepted values are 0 or 1",
			     c.forceAlgSelection);
		return ncclInvalidArgument;
	}
	if (c.CTAPolicy != NCCL_CONFIG_UNDEF_INT &&
	    (c.CTAPolicy < 1 || c.CTAPolicy > CTA_POLICIES)) {
		DF_NCCL_WARN("config->CTAPolicy=%d is invalid, accepted values are [1, %d]",
			     c.CTAPolicy, CTA_POLICIES);
		return ncclInvalidArgument;
	}
	*event = c.launchCompletionEvent;
	return ncclSuccess;
}

ncclResult_t df_collconfig_record(cudaEvent_t event, cudaStream_t stream)
{
	/*
	 * These are the hooked functions, so that the event follows our collectives that are in
	 * progress.
	 */
	const char *name = df_on_hostcuda() ? "cudaEventRecord" : "cuEventRecord";
	int (*record)(cudaEvent_t event, cudaStream_t stream);
	int err;

	*(void **)&record = df_dlsym(RTLD_DEFAULT, name);
	err = record ? record(event, stream) : -1;
	if (!err)
		return ncclSuccess;
	DF_NCCL_WARN("%s of a launch-completion event failed with %d", name, err);
	return ncclUnhandledCudaError;
}
