/*
 * The daemon's stream. It has the highest priority, or, with DFSHIM_GPU_QUEUE=green, belongs to a
 * green context that asks for a work queue of its own, so that no stream that waits for a word can
 * block the daemon. Priority alone does not ensure that: an H200 (driver 580.159) has the same
 * hardware queues for all priorities. The green context needs a driver of CUDA 13.1, whose
 * functions and structures are found at run time, because older headers lack them. Runs when a
 * device is prepared for its first communicator, with the device's context current.
 */
#if __has_include(<cuda.h>)
#include <string.h>
#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/log.h"
#include "runtime/device/cuda/cuda_int.h"

#define GREEN_SINCE	 13010
#define WORKQUEUE_CONFIG 1000 /* CU_DEV_RESOURCE_TYPE_WORKQUEUE_CONFIG */
#define SCOPE_BALANCED	 1 /* CU_WORKQUEUE_SCOPE_GREEN_CTX_BALANCED: its own queues, if possible */

/*
 * CUdevResource of cuda.h 13.1 for that type, so that older headers suffice: type, padding, then
 * the union, whose member wqConfig begins with these fields. Larger than any version of it.
 */
struct resource {
	uint32_t type;
	uint8_t pad[92];
	int32_t device;
	uint32_t limit, scope;
	uint8_t rest[400];
};
_Static_assert(offsetof(struct resource, device) == 96, "as in cuda.h");

#define LIMIT_MAX 1024 /* more work queues than any device has */

/*
 * A driver that loads lazily brings the code to the device at its first launch. That may wait for
 * all work of the context, including streams that wait for the very kernel to be launched. So the
 * code is loaded now.
 */
static CUresult load_now(CUfunction fn)
{
	CUresult (*load)(CUfunction);
	int regs;

	*(void **)&load = df_drv_find("cuFuncLoad", 12040);
	/* Before 12.4, querying an attribute loads the function. */
	return load ? load(fn) : df_drv.func_attribute(&regs, CU_FUNC_ATTRIBUTE_NUM_REGS, fn);
}

/* As load_now(), for a kernel of a library and the context in which it will run. */
static CUresult load_for(void *green, void *library_kernel)
{
	CUresult (*context)(CUcontext *, void *);
	CUresult (*function)(CUfunction *, void *);
	CUcontext ctx;
	CUfunction fn;
	CUresult ret;

	*(void **)&context = df_drv_find("cuCtxFromGreenCtx", 12040);
	*(void **)&function = df_drv_find("cuKernelGetFunction", 12000);
	if (!context || !function)
		return CUDA_ERROR_NOT_SUPPORTED;
	ret = context(&ctx, green);
	if (ret == CUDA_SUCCESS)
		ret = df_drv.ctx_push(ctx);
	if (ret != CUDA_SUCCESS)
		return ret;
	ret = function(&fn, library_kernel);
	if (ret == CUDA_SUCCESS)
		ret = load_now(fn);
	df_drv.ctx_pop(&ctx);
	return ret;
}

static CUresult green(int device, CUstream *stream, CUfunction *fn, const char *kernel,
		      const void *image, const char **what)
{
	CUresult (*get)(CUdevice, struct resource *, int);
	CUresult (*describe)(void **, struct resource *, unsigned int);
	CUresult (*create)(void **, void *, CUdevice, unsigned int);
	CUresult (*stream_new)(CUstream *, void *, unsigned int, int);
	CUresult (*load)(void **, const void *, void *, void *, unsigned int, void *, void *,
			 unsigned int);
	CUresult (*kernel_of)(CUfunction *, void *, const char *);
	struct resource r;
	void *desc, *ctx, *library;
	int version = 0;
	CUresult ret;

	*what = "the driver is older than 13.1";
	if (df_drv.driver_version(&version) != CUDA_SUCCESS || version < GREEN_SINCE)
		return CUDA_ERROR_NOT_SUPPORTED;
	*(void **)&get = df_drv_find("cuDeviceGetDevResource", GREEN_SINCE);
	*(void **)&describe = df_drv_find("cuDevResourceGenerateDesc", GREEN_SINCE);
	*(void **)&create = df_drv_find("cuGreenCtxCreate", GREEN_SINCE);
	*(void **)&stream_new = df_drv_find("cuGreenCtxStreamCreate", GREEN_SINCE);
	*(void **)&load = df_drv_find("cuLibraryLoadData", GREEN_SINCE);
	*(void **)&kernel_of = df_drv_find("cuLibraryGetKernel", GREEN_SINCE);
	*what = "a function is missing";
	if (!get || !describe || !create || !stream_new || !load || !kernel_of)
		return CUDA_ERROR_NOT_SUPPORTED;
	memset(&r, 0, sizeof(r));
	*what = "the device has no work queues to configure";
	ret = get(df_cudevs[device].device, &r, WORKQUEUE_CONFIG);
	if (ret != CUDA_SUCCESS)
		return ret;
	*what = "the driver describes work queues in a way that is not known";
	if (r.type != WORKQUEUE_CONFIG || r.device != (int32_t)df_cudevs[device].device ||
	    !r.limit || r.limit > LIMIT_MAX || r.scope > SCOPE_BALANCED)
		return CUDA_ERROR_NOT_SUPPORTED;
	r.scope = SCOPE_BALANCED;
	r.limit = 1;
	*what = "no green context could be made";
	ret = describe(&desc, &r, 1);
	if (ret == CUDA_SUCCESS)
		ret = create(&ctx, desc, df_cudevs[device].device, CU_GREEN_CTX_DEFAULT_STREAM);
	if (ret == CUDA_SUCCESS)
		ret = stream_new(stream, ctx, CU_STREAM_NON_BLOCKING, 0);
	/* A kernel of a library belongs to no context: it runs in that of its stream. */
	if (ret == CUDA_SUCCESS)
		ret = load(&library, image, NULL, NULL, 0, NULL, NULL, 0);
	if (ret == CUDA_SUCCESS)
		ret = kernel_of(fn, library, kernel);
	if (ret == CUDA_SUCCESS)
		ret = load_for(ctx, *fn);
	return ret;
}

CUresult df_cuda_queue(int device, CUstream *stream, CUfunction *fn, const char *kernel,
		       const void *image)
{
	int least = 0, greatest = 0;
	const char *what;
	CUmodule module;
	CUresult r;

	if (df_env()->gpu_queue && !*stream) {
		r = green(device, stream, fn, kernel, image, &what);
		if (r == CUDA_SUCCESS)
			return r;
		*stream = NULL;
		df_warn_once("DFSHIM_GPU_QUEUE=green: %s (%s); the daemon's stream has the highest "
			     "priority instead",
			     what, df_drv_name(r));
	}
	r = df_drv.ctx_priorities(&least, &greatest);
	if (r == CUDA_SUCCESS && !*stream)
		r = df_drv.stream_create(stream, CU_STREAM_NON_BLOCKING, greatest);
	if (r == CUDA_SUCCESS)
		r = df_drv.module_load(&module, image);
	if (r == CUDA_SUCCESS)
		r = df_drv.module_function(fn, module, kernel);
	return r == CUDA_SUCCESS ? load_now(*fn) : r;
}
#endif
