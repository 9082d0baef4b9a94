/*
 * Which backend this process has. libdfhost.so, where it is preloaded, says so by its one extra export. The
 * GPU's has not run on hardware yet: it is taken only when it is asked for by name, so that nobody's job finds
 * out by accident (docs/gpu-results lists what is to be shown first).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include "runtime/base/env.h"
#include "runtime/base/log.h"
#include "runtime/device/device.h"

static int on_gpu;

static const struct df_hostcuda_api *host_api(void)
{
	const struct df_hostcuda_api *(*get)(void) = NULL;

	*(void **)&get = dlsym(RTLD_DEFAULT, "df_hostcuda");
	return get ? get() : NULL;
}

const struct df_hostcuda_api *df_device_open_any(char *reason, size_t reason_bytes)
{
	const struct df_hostcuda_api *api =
		df_env()->backend == DF_BACKEND_CUDA ? NULL : host_api();

	if (api && api->version == DF_HOSTCUDA_VERSION)
		return api;
#if __has_include(<cuda.h>)
	if (df_env()->backend != DF_BACKEND_HOST) {
		api = df_cuda_open_recording(reason, reason_bytes);
		on_gpu = api != NULL;
		return api;
	}
#endif
	snprintf(reason, reason_bytes, "there is no GPU backend, nor libdfhost.so");
	return NULL;
}

static const struct df_hostcuda_api *open_gpu(char *reason, size_t reason_bytes)
{
#if __has_include(<cuda.h>)
	const struct df_hostcuda_api *api = df_cuda_open(reason, reason_bytes);

	on_gpu = api != NULL;
	return api;
#else
	snprintf(reason, reason_bytes,
		 "this dfshim was built without cuda.h and has no GPU backend");
	return NULL;
#endif
}

const struct df_machine *df_device_machine(void)
{
#if __has_include(<cuda.h>)
	return on_gpu ? df_cuda_machine() : NULL;
#else
	return NULL;
#endif
}

const struct df_hostcuda_api *df_device_open(char *reason, size_t reason_bytes)
{
	const struct df_hostcuda_api *(*get)(void) = NULL;
	const struct df_hostcuda_api *api;
	char why[160];

	if (df_env()->backend != DF_BACKEND_CUDA)
		*(void **)&get = dlsym(RTLD_DEFAULT, "df_hostcuda");
	if (!get && df_env()->backend == DF_BACKEND_AUTO) {
		snprintf(
			reason, reason_bytes,
			"no usable GPU (that backend is unproven and runs only with DFSHIM_BACKEND=cuda); "
			"libdfhost.so is not preloaded either "
			"(LD_PRELOAD=\"libdfshim.so libdfhost.so\" runs on the CPU)");
		return NULL;
	}
	if (!get && df_env()->backend == DF_BACKEND_CUDA) {
		api = open_gpu(why, sizeof(why));
		if (!api)
			snprintf(reason, reason_bytes,
				 "%s (LD_PRELOAD=\"libdfshim.so libdfhost.so\" runs on the CPU)",
				 why);
		return api;
	}
	if (!get) {
		snprintf(reason, reason_bytes,
			 "DFSHIM_BACKEND=host, and libdfhost.so is not preloaded "
			 "(LD_PRELOAD=\"libdfshim.so libdfhost.so\" runs on the CPU)");
		return NULL;
	}
	api = get();
	if (!api || api->version != DF_HOSTCUDA_VERSION) {
		snprintf(reason, reason_bytes, "libdfhost.so is of another version of dfshim");
		return NULL;
	}
	return api;
}
