/*
 * Chooses the backend. libdfhost.so, if it is preloaded, is recognised by its one extra export. A
 * GPU is used if DFSHIM_BACKEND names it, or if a self-test of this machine recommends it
 * (decide.c).
 */
#include <errno.h>
#include <stdio.h>
#include "runtime/base/env.h"
#include "runtime/blocks.h"
#include "runtime/device/device.h"
#include "runtime/device/host/threads.h"

#define ON_THE_CPU "(LD_PRELOAD=\"libdfshim.so libdfhost.so\" runs on the CPU)"

#if !__has_include(<cuda.h>)
static const struct df_backend *no_gpu(char *reason, size_t reason_bytes)
{
	snprintf(reason, reason_bytes,
		 "this dfshim was built without cuda.h and has no GPU backend");
	return NULL;
}
#define df_cuda_open	       no_gpu
#define df_cuda_open_recording no_gpu
static int no_decision(char *reason, size_t reason_bytes)
{
	return no_gpu(reason, reason_bytes) ? 0 : -EOPNOTSUPP;
}
#define df_device_decide(by_lanes, reason, bytes) no_decision(reason, bytes)
#define df_device_failed()			  0
#endif

static int by_lanes; /* set once, by df_device_open() */

int df_device_lanes(void)
{
	return by_lanes;
}

/* Makes a backend that was found the one of this process; returns -EOPNOTSUPP for NULL. */
static int taken(const struct df_backend *found)
{
	if (!found)
		return -EOPNOTSUPP;
	df_backend = found;
	df_blocks = found->blocks ? found->blocks : &df_threads;
	return 0;
}

int df_device_open_any(char *reason, size_t reason_bytes)
{
	if (df_env()->backend != DF_BACKEND_CUDA && df_host_preloaded() &&
	    !taken(df_host_open(reason, reason_bytes)))
		return 0;
	if (df_device_failed()) {
		snprintf(reason, reason_bytes, "the GPU's self-test failed");
		return -EOPNOTSUPP;
	}
	/* DFSHIM_BACKEND chooses the executor, but here NCCL executes: ignore it. */
	return taken(df_cuda_open_recording(reason, reason_bytes));
}

int df_device_open(char *reason, size_t reason_bytes)
{
	char why[160];
	int ret = 0;

	by_lanes = df_env()->executor == DF_EXECUTOR_NCCL;
	if (df_env()->backend != DF_BACKEND_CUDA && df_host_preloaded())
		return taken(df_host_open(reason, reason_bytes));
	if (df_env()->backend == DF_BACKEND_HOST) {
		snprintf(reason, reason_bytes,
			 "DFSHIM_BACKEND=host, and libdfhost.so is not preloaded " ON_THE_CPU);
		return -EOPNOTSUPP;
	}
	if (df_env()->backend == DF_BACKEND_AUTO) {
		ret = df_device_decide(&by_lanes, reason, reason_bytes);
		if (ret && ret != -ENODEV)
			return ret;
		snprintf(why, sizeof(why), "%s", reason);
	}
	if (!ret && !taken(df_cuda_open(why, sizeof(why))))
		return 0;
	snprintf(reason, reason_bytes, "%s " ON_THE_CPU, why);
	return -EOPNOTSUPP;
}

void df_device_none(void)
{
	(void)taken(&df_no_machine);
}
