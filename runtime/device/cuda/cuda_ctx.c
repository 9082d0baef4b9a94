/*
 * The devices and their primary contexts, making one current for our calls, and the settings that
 * all files of the backend share. Any thread.
 */
#if __has_include(<cuda.h>)
#include <errno.h>
#include "runtime/base/connections.h"
#include "runtime/base/err.h"
#include "runtime/device/cuda/cuda_int.h"

struct df_cudev df_cudevs[DF_CUDA_DEVICES_MAX];
int df_nr_cudevs;
int df_cuda_captures = -1;
const struct df_hooks *df_cuda_hooks;
int df_cuda_recording;

CUcontext df_cuda_ctx(int device)
{
	CUcontext ctx;
	CUresult r;

	if (device < 0 || device >= df_nr_cudevs)
		return NULL;
	/* ACQUIRE pairs with the RELEASE below: without it the context might not be usable yet. */
	ctx = __atomic_load_n(&df_cudevs[device].ctx, __ATOMIC_ACQUIRE);
	if (df_likely(ctx != NULL))
		return ctx;
	/*
	 * Two threads may do this at the same time: both get the same context, which is never
	 * released.
	 */
	df_connections_begin();
	r = df_drv.primary_retain(&ctx, df_cudevs[device].device);
	df_connections_end();
	if (r != CUDA_SUCCESS)
		return NULL;
	/* RELEASE pairs with the ACQUIRE above, which says why. */
	__atomic_store_n(&df_cudevs[device].ctx, ctx, __ATOMIC_RELEASE);
	return ctx;
}

int df_cuda_get_device(void)
{
	CUdevice dev;
	int i;

	/*
	 * A thread without a context is where the CUDA runtime would put it: on the first device.
	 */
	if (df_drv.ctx_device(&dev) != CUDA_SUCCESS)
		return 0;
	for (i = 0; i < df_nr_cudevs; i++)
		if (df_cudevs[i].device == dev)
			return i;
	return 0;
}

/*
 * Returns a device whose context exists already, if there is one: each further context costs memory
 * on its device, which another process may use alone.
 */
int df_cuda_device_any(void)
{
	int i;

	for (i = 0; i < df_nr_cudevs; i++)
		/* RELAXED: df_cuda_ctx() loads it again. */
		if (__atomic_load_n(&df_cudevs[i].ctx, __ATOMIC_RELAXED))
			return i;
	return df_cuda_get_device();
}

CUcontext df_cuda_ctx_any(void)
{
	return df_cuda_ctx(df_cuda_device_any());
}

/*
 * While a thread captures in the global mode, CUDA refuses calls of all other threads that might
 * synchronise, and invalidates the capture. Our calls do not affect that capture, so they run in
 * the relaxed mode.
 */
#define ENTER_PUSHED  1
#define ENTER_RELAXED 2

static __thread CUstreamCaptureMode mode_before;

int df_cuda_enter(CUcontext ctx)
{
	CUcontext now = NULL;
	int entered = 0;
	CUresult r;

	if (!ctx)
		return -ENODEV;
	if (df_drv.ctx_current(&now) != CUDA_SUCCESS || now != ctx) {
		r = df_drv.ctx_push(ctx);
		if (r != CUDA_SUCCESS)
			return r == CUDA_ERROR_DEINITIALIZED ? -ESHUTDOWN : -ENODEV;
		entered = ENTER_PUSHED;
	}
	if (__atomic_load_n(&df_cuda_captures, __ATOMIC_RELAXED) != 0) {
		mode_before = CU_STREAM_CAPTURE_MODE_RELAXED;
		if (df_drv.capture_mode(&mode_before) == CUDA_SUCCESS)
			entered |= ENTER_RELAXED;
	}
	return entered;
}

void df_cuda_leave(int entered)
{
	CUcontext ctx;

	if (entered < 0)
		return;
	if (entered & ENTER_RELAXED)
		df_drv.capture_mode(&mode_before);
	if (entered & ENTER_PUSHED)
		df_drv.ctx_pop(&ctx);
}
#endif
