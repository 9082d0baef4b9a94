/*
 * Contexts of the driver: names for devices (driver.h). A primary context exists from the first
 * query of it. It is active while it is retained or the device is in use. Any thread; the lock
 * guards the list.
 */
#include "interpose/hostcuda/driver/driver.h"

#include <stdlib.h>

struct CUctx_st {
	int device, primary;
	uint64_t id;
	/* under the lock */
	int refs; /* of a primary context */
	unsigned int flags;
	struct CUctx_st *next;
};

#define DEPTH 64
static __thread struct CUctx_st *stack[DEPTH];
static __thread int depth;

static struct df_mutex lock = DF_MUTEX_INIT(DF_RANK_LEAF, "host CUDA contexts");
/* Destroyed contexts are not freed, because other threads may have them on their stacks. */
static struct CUctx_st *contexts, *ended;

static struct CUctx_st *add(int device, int primary, unsigned int flags)
{
	struct CUctx_st *ctx = calloc(1, sizeof(*ctx));

	if (!ctx)
		return NULL;
	ctx->device = device;
	ctx->primary = primary;
	ctx->flags = flags;
	ctx->id = df_hid();
	ctx->next = contexts;
	contexts = ctx;
	return ctx;
}

/* Returns the primary context of a device, or NULL if memory is short. */
static struct CUctx_st *primary_of(int device)
{
	static __thread struct CUctx_st *last;
	struct CUctx_st *ctx = last;

	if (ctx && ctx->device == device)
		return ctx;
	df_mutex_lock(&lock);
	for (ctx = contexts; ctx && !(ctx->primary && ctx->device == device); ctx = ctx->next)
		;
	if (!ctx)
		ctx = add(device, 1, 0);
	df_mutex_unlock(&lock);
	last = ctx;
	return ctx;
}

static int is_context(const struct CUctx_st *it)
{
	struct CUctx_st *ctx;

	df_mutex_lock(&lock);
	for (ctx = contexts; ctx && ctx != it; ctx = ctx->next)
		;
	df_mutex_unlock(&lock);
	return ctx != NULL;
}

struct CUctx_st *df_hctx_now(void)
{
	if (df_likely(depth))
		return stack[depth - 1];
	return df_htls.bound ? primary_of(df_htls.device) : NULL;
}

int df_hctx_device(CUcontext ctx)
{
	if (!ctx)
		ctx = df_hctx_now();
	return ctx && is_context(ctx) ? ctx->device : -1;
}

/* Makes the calling thread use the device, in both APIs. */
DF_H_API cudaError_t cudaSetDevice(int device)
{
	cudaError_t err = df_henter();

	if (!err && !df_hdevice_ok(device))
		err = cudaErrorInvalidDevice;
	if (err)
		return df_hret(err);
	df_htls.device = device;
	df_htls.bound = 1;
	if (depth)
		stack[depth - 1] = primary_of(device);
	df_log_set_device(device);
	return df_hret(cudaSuccess);
}

/* Makes the device of the context on top of the stack the thread's device in the runtime API. */
static void settle(void)
{
	if (depth && stack[depth - 1])
		df_htls.device = stack[depth - 1]->device;
	else
		df_htls.bound = 0;
}

static CUresult device_arg(CUdevice dev)
{
	if (df_henter())
		return CUDA_ERROR_NOT_INITIALIZED;
	return df_hdevice_ok(dev) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

DF_H_API CUresult cuInit(unsigned int flags)
{
	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	return df_henter() ? CUDA_ERROR_NOT_INITIALIZED : CUDA_SUCCESS;
}

/* -- the current context ----------------------------------------------------------------------- */

DF_H_API CUresult cuCtxGetCurrent(CUcontext *out)
{
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	*out = df_hctx_now();
	return CUDA_SUCCESS;
}

DF_H_API CUresult cuCtxSetCurrent(CUcontext ctx)
{
	if (ctx && !is_context(ctx))
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!ctx && depth)
		depth--;
	else if (ctx && depth)
		stack[depth - 1] = ctx;
	else if (ctx)
		stack[depth++] = ctx;
	settle();
	return CUDA_SUCCESS;
}

DF_H_API CUresult cuCtxPushCurrent_v2(CUcontext ctx)
{
	if (!ctx || !is_context(ctx))
		return CUDA_ERROR_INVALID_CONTEXT;
	/* The context that the runtime uses is below it on the stack. */
	if (!depth && df_htls.bound)
		stack[depth++] = primary_of(df_htls.device);
	if (depth == DEPTH)
		return CUDA_ERROR_OUT_OF_MEMORY;
	stack[depth++] = ctx;
	settle();
	return CUDA_SUCCESS;
}

DF_H_API CUresult cuCtxPushCurrent(CUcontext ctx)
{
	return cuCtxPushCurrent_v2(ctx);
}

DF_H_API CUresult cuCtxPopCurrent_v2(CUcontext *out)
{
	struct CUctx_st *ctx = df_hctx_now();

	if (!ctx)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (depth)
		depth--;
	settle();
	if (out)
		*out = ctx;
	return CUDA_SUCCESS;
}

DF_H_API CUresult cuCtxPopCurrent(CUcontext *out)
{
	return cuCtxPopCurrent_v2(out);
}

static CUresult device_of(CUdevice *out, CUcontext ctx)
{
	int dev = df_hctx_device(ctx);

	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	if (dev < 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	*out = dev;
	return CUDA_SUCCESS;
}

DF_H_API CUresult cuCtxGetDevice(CUdevice *out)
{
	return device_of(out, NULL);
}

DF_H_API CUresult cuCtxGetId(CUcontext ctx, unsigned long long *id)
{
	ctx = ctx ? ctx : df_hctx_now();
	if (!id)
		return CUDA_ERROR_INVALID_VALUE;
	if (!ctx || !is_context(ctx))
		return ctx ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_CONTEXT;
	*id = ctx->id;
	return CUDA_SUCCESS;
}

DF_H_API CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned int *version)
{
	if (!version)
		return CUDA_ERROR_INVALID_VALUE;
	if (df_hctx_device(ctx) < 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	*version = 3020;
	return CUDA_SUCCESS;
}

DF_H_API CUresult cuCtxGetFlags(unsigned int *flags)
{
	struct CUctx_st *ctx = df_hctx_now();

	if (!flags || !ctx)
		return ctx ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_CONTEXT;
	df_mutex_lock(&lock);
	*flags = ctx->flags;
	df_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

DF_H_API CUresult cuCtxSetFlags(unsigned int flags)
{
	struct CUctx_st *ctx = df_hctx_now();

	if (!ctx)
		return CUDA_ERROR_INVALID_CONTEXT;
	df_mutex_lock(&lock);
	ctx->flags = flags;
	df_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

/*
 * Returns the context of a stream: its device's primary context. Every address is valid on every
 * device.
 */
static CUresult context_of(cudaStream_t stream, CUcontext *out)
{
	int dev;
	CUresult r = DF_H_CU(cudaStreamGetDevice(stream, &dev));

	if (r == CUDA_SUCCESS && !out)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		*out = primary_of(dev);
	return r;
}

DF_H_API CUresult cuStreamGetCtx(CUstream s, CUcontext *out)
{
	return context_of(s, out);
}

DF_H_API CUresult cuStreamGetCtx_ptsz(CUstream s, CUcontext *out)
{
	return context_of(df_hpt(s), out);
}

#if CUDA_VERSION >= 12050
DF_H_API CUresult cuStreamGetCtx_v2(CUstream s, CUcontext *out, CUgreenCtx *green)
{
	if (green)
		*green = NULL;
	return context_of(s, out);
}

DF_H_API CUresult cuStreamGetCtx_v2_ptsz(CUstream s, CUcontext *out, CUgreenCtx *green)
{
	return cuStreamGetCtx_v2(df_hpt(s), out, green);
}
#endif

#if CUDA_VERSION >= 13000
DF_H_API CUresult cuCtxGetDevice_v2(CUdevice *out, CUcontext ctx)
{
	return device_of(out, ctx);
}

DF_H_API CUresult cuCtxSynchronize_v2(CUcontext ctx)
{
	int dev = df_hctx_device(ctx), was = df_htls.device;
	CUresult r;

	if (dev < 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	df_htls.device = dev;
	r = DF_H_CU(cudaDeviceSynchronize());
	df_htls.device = was;
	return r;
}
#endif

/* -- creating and destroying ------------------------------------------------------------------- */

static CUresult create(CUcontext *out, unsigned int flags, CUdevice dev)
{
	CUresult r = device_arg(dev);
	struct CUctx_st *ctx;

	if (r == CUDA_SUCCESS && !out)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	df_mutex_lock(&lock);
	ctx = add(dev, 0, flags);
	df_mutex_unlock(&lock);
	if (!ctx)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = cuCtxPushCurrent_v2(ctx);
	if (r == CUDA_SUCCESS)
		*out = ctx;
	return r;
}

DF_H_API CUresult cuCtxCreate_v2(CUcontext *out, unsigned int flags, CUdevice dev)
{
	return create(out, flags, dev);
}

#if CUDA_VERSION >= 12050
DF_H_API CUresult cuCtxCreate_v4(CUcontext *out, CUctxCreateParams *params, unsigned int flags,
				 CUdevice dev)
{
	if (params && (params->numExecAffinityParams || params->cigParams))
		return CUDA_ERROR_NOT_SUPPORTED;
	return create(out, flags, dev);
}
#endif

DF_H_API CUresult cuCtxDestroy_v2(CUcontext it)
{
	struct CUctx_st **at;
	int found;

	df_mutex_lock(&lock);
	for (at = &contexts; *at && (*at != it || it->primary); at = &(*at)->next)
		;
	found = *at != NULL;
	if (found) {
		*at = it->next;
		it->next = ended;
		ended = it;
	}
	df_mutex_unlock(&lock);
	if (!found)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (depth && stack[depth - 1] == it) {
		depth--;
		settle();
	}
	return CUDA_SUCCESS;
}

DF_H_API CUresult cuCtxDestroy(CUcontext ctx)
{
	return cuCtxDestroy_v2(ctx);
}

/* -- primary contexts -------------------------------------------------------------------------- */

static CUresult retain(CUdevice dev, int by, CUcontext *out)
{
	CUresult r = device_arg(dev);
	struct CUctx_st *ctx;

	if (r != CUDA_SUCCESS)
		return r;
	ctx = primary_of(dev);
	if (!ctx || (by > 0 && !df_hdev_get(dev)))
		return CUDA_ERROR_OUT_OF_MEMORY;
	df_mutex_lock(&lock);
	if (ctx->refs + by < 0)
		r = CUDA_ERROR_INVALID_CONTEXT;
	else
		ctx->refs += by;
	df_mutex_unlock(&lock);
	if (r == CUDA_SUCCESS && out)
		*out = ctx;
	return r;
}

DF_H_API CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice dev)
{
	return out ? retain(dev, 1, out) : CUDA_ERROR_INVALID_VALUE;
}

DF_H_API CUresult cuDevicePrimaryCtxRelease(CUdevice dev)
{
	return retain(dev, -1, NULL);
}

DF_H_API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
	return retain(dev, -1, NULL);
}

DF_H_API CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active)
{
	CUresult r = device_arg(dev);
	struct CUctx_st *ctx;

	if (r != CUDA_SUCCESS)
		return r;
	ctx = primary_of(dev);
	if (!ctx || !flags || !active)
		return ctx ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
	df_mutex_lock(&lock);
	*flags = ctx->flags;
	*active = ctx->refs > 0 || df_hdev(dev) != NULL;
	df_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

DF_H_API CUresult cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned int flags)
{
	CUresult r = device_arg(dev);
	struct CUctx_st *ctx;

	if (r != CUDA_SUCCESS)
		return r;
	ctx = primary_of(dev);
	if (!ctx)
		return CUDA_ERROR_OUT_OF_MEMORY;
	df_mutex_lock(&lock);
	ctx->flags = flags;
	df_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

DF_H_API CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags)
{
	return cuDevicePrimaryCtxSetFlags(dev, flags);
}

DF_H_API CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
	CUresult r = device_arg(dev);
	int was = df_htls.device;

	if (r != CUDA_SUCCESS)
		return r;
	df_htls.device = dev;
	r = DF_H_CU(cudaDeviceReset());
	df_htls.device = was;
	return r;
}

DF_H_API CUresult cuDevicePrimaryCtxReset(CUdevice dev)
{
	return cuDevicePrimaryCtxReset_v2(dev);
}
