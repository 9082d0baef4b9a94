/*
 * Which backend this process has. libdfhost.so, where it is preloaded, says so by its one extra export.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include "runtime/base/env.h"
#include "runtime/base/log.h"
#include "runtime/device/device.h"

const struct df_hostcuda_api *df_device_open(char *reason, size_t reason_bytes)
{
	const struct df_hostcuda_api *(*get)(void);
	const struct df_hostcuda_api *api;

	if (df_env()->backend == DF_BACKEND_CUDA) {
		snprintf(reason, reason_bytes,
			 "DFSHIM_BACKEND=cuda: this build of dfshim has no GPU backend");
		return NULL;
	}
	*(void **)&get = dlsym(RTLD_DEFAULT, "df_hostcuda");
	if (!get) {
		snprintf(reason, reason_bytes,
			 "no usable GPU, and libdfhost.so is not preloaded "
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
