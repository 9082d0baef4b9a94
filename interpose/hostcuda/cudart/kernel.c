/*
 * Kernels. Programs with device code register it when they are loaded, which must succeed.
 * Launching it is refused, or under DFSHIM_HOST_STUB=1 enqueued as an operation that does nothing,
 * so that the communication around kernels can be studied without them. Any thread.
 */
#define _GNU_SOURCE
#include "interpose/hostcuda/skins.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct config {
	dim3 grid, block;
	size_t shared;
	cudaStream_t stream;
};

/*
 * The syntax <<<>>> pushes a configuration, and the stub that nvcc generated pops it. They nest
 * only inside argument lists.
 */
static __thread struct config configs[16];
static __thread unsigned nr_configs;

/*
 * Names the option that users of NVIDIA's nccl-tests need, because that program checks data with a
 * kernel.
 */
static const char *without_kernels(void)
{
	size_t n = strlen(program_invocation_short_name);
	int nccl_tests = n > 5 && !strcmp(program_invocation_short_name + n - 5, "_perf");

	return nccl_tests ? "; nccl-tests runs without them with -c 0" : "";
}

cudaError_t df_hlaunch(cudaStream_t stream)
{
	struct df_hop op = {.kind = DF_HOP_KERNEL};
	struct df_hstream *s;
	cudaError_t err = df_hstream_enter(stream, &s);

	if (err)
		return err;
	if (!df_h.stub) {
		df_warn_once("host CUDA: kernels cannot run here; DFSHIM_HOST_STUB=1 skips them%s",
			     without_kernels());
		return cudaErrorNotSupported;
	}
	return df_hsubmit(s, &op, DF_WORK_KERNEL);
}

static cudaError_t launch(const void *func, cudaStream_t stream)
{
	return func ? df_hlaunch(stream) : cudaErrorInvalidDeviceFunction;
}

DF_H_API cudaError_t cudaLaunchKernel(const void *func, dim3 grid, dim3 block, void **args,
				      size_t shared, cudaStream_t stream)
{
	(void)grid;
	(void)block;
	(void)args;
	(void)shared;
	return df_hret(launch(func, stream));
}

DF_H_API __typeof__(cudaLaunchKernel) cudaLaunchKernel_ptsz;
DF_H_API cudaError_t cudaLaunchKernel_ptsz(const void *func, dim3 grid, dim3 block, void **args,
					   size_t shared, cudaStream_t stream)
{
	return cudaLaunchKernel(func, grid, block, args, shared, df_hpt(stream));
}

DF_H_API cudaError_t cudaLaunchCooperativeKernel(const void *func, dim3 grid, dim3 block,
						 void **args, size_t shared, cudaStream_t stream)
{
	return cudaLaunchKernel(func, grid, block, args, shared, stream);
}

DF_H_API __typeof__(cudaLaunchCooperativeKernel) cudaLaunchCooperativeKernel_ptsz;
DF_H_API cudaError_t cudaLaunchCooperativeKernel_ptsz(const void *func, dim3 grid, dim3 block,
						      void **args, size_t shared,
						      cudaStream_t stream)
{
	return cudaLaunchKernel(func, grid, block, args, shared, df_hpt(stream));
}

DF_H_API cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *func,
					 void **args)
{
	(void)args;
	return df_hret(config ? launch(func, config->stream) : cudaErrorInvalidValue);
}

DF_H_API __typeof__(cudaLaunchKernelExC) cudaLaunchKernelExC_ptsz;
DF_H_API cudaError_t cudaLaunchKernelExC_ptsz(const cudaLaunchConfig_t *config, const void *func,
					      void **args)
{
	(void)args;
	return df_hret(config ? launch(func, df_hpt(config->stream)) : cudaErrorInvalidValue);
}

/* -- functions that nvcc's code calls ---------------------------------------------------------- */

DF_H_API unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared,
					      struct CUstream_st *stream);
DF_H_API unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared,
					      struct CUstream_st *stream)
{
	if (nr_configs == DF_ARRAY_LEN(configs))
		return 1;
	configs[nr_configs++] = (struct config){grid, block, shared, stream};
	return 0;
}

DF_H_API cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared,
						void *stream);
DF_H_API cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared,
						void *stream)
{
	if (!nr_configs)
		return df_hret(cudaErrorMissingConfiguration);
	nr_configs--;
	*grid = configs[nr_configs].grid;
	*block = configs[nr_configs].block;
	*shared = configs[nr_configs].shared;
	memcpy(stream, &configs[nr_configs].stream, sizeof(cudaStream_t));
	return cudaSuccess;
}

/* A kernel's handle is the address of the stub that nvcc made for it. */
DF_H_API cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *func);
DF_H_API cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *func)
{
	if (!kernel || !func)
		return df_hret(cudaErrorInvalidValue);
	*kernel = (cudaKernel_t)(uintptr_t)func;
	return cudaSuccess;
}

DF_H_API cudaError_t cudaGetKernel(cudaKernel_t *kernel, const void *func)
{
	return __cudaGetKernel(kernel, func);
}

DF_H_API cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **args,
					size_t shared, cudaStream_t stream);
DF_H_API cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **args,
					size_t shared, cudaStream_t stream)
{
	return cudaLaunchKernel((const void *)kernel, grid, block, args, shared, stream);
}

DF_H_API cudaError_t __cudaLaunchKernel_ptsz(cudaKernel_t kernel, dim3 grid, dim3 block,
					     void **args, size_t shared, cudaStream_t stream);
DF_H_API cudaError_t __cudaLaunchKernel_ptsz(cudaKernel_t kernel, dim3 grid, dim3 block,
					     void **args, size_t shared, cudaStream_t stream)
{
	return cudaLaunchKernel((const void *)kernel, grid, block, args, shared, df_hpt(stream));
}

DF_H_API void **__cudaRegisterFatBinary(void *binary);
DF_H_API void **__cudaRegisterFatBinary(void *binary)
{
	void **handle = malloc(sizeof(*handle));

	if (handle)
		*handle = binary;
	return handle;
}

DF_H_API void __cudaRegisterFatBinaryEnd(void **handle);
DF_H_API void __cudaRegisterFatBinaryEnd(void **handle)
{
	(void)handle;
}

DF_H_API void __cudaUnregisterFatBinary(void **handle);
DF_H_API void __cudaUnregisterFatBinary(void **handle)
{
	free(handle);
}

DF_H_API char __cudaInitModule(void **handle);
DF_H_API char __cudaInitModule(void **handle)
{
	(void)handle;
	return 1;
}

DF_H_API void __cudaRegisterFunction(void **handle, const char *host, char *device,
				     const char *name, int limit, uint3 *tid, uint3 *bid,
				     dim3 *block, dim3 *grid, int *warp);
DF_H_API void __cudaRegisterFunction(void **handle, const char *host, char *device,
				     const char *name, int limit, uint3 *tid, uint3 *bid,
				     dim3 *block, dim3 *grid, int *warp)
{
	(void)handle, (void)host, (void)device, (void)name, (void)limit;
	(void)tid, (void)bid, (void)block, (void)grid, (void)warp;
}

DF_H_API void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int ext,
				size_t size, int constant, int global);
DF_H_API void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int ext,
				size_t size, int constant, int global)
{
	(void)handle, (void)host, (void)device, (void)name, (void)ext;
	(void)size, (void)constant, (void)global;
}

/* A managed variable is host memory as well: allocate it. */
DF_H_API void __cudaRegisterManagedVar(void **handle, void **host, char *device, const char *name,
				       int ext, size_t size, int constant, int global);
DF_H_API void __cudaRegisterManagedVar(void **handle, void **host, char *device, const char *name,
				       int ext, size_t size, int constant, int global)
{
	(void)handle, (void)device, (void)ext, (void)constant, (void)global;
	if (df_henter() || df_hmem_alloc(-1, DF_MEM_MANAGED, 0, size ? size : 1, 1, host)) {
		df_warn("host CUDA: no memory for the managed variable %s", name);
		return;
	}
	memset(*host, 0, size);
}

DF_H_API void __cudaRegisterHostVar(void **handle, const char *name, char *host, size_t size);
DF_H_API void __cudaRegisterHostVar(void **handle, const char *name, char *host, size_t size)
{
	(void)handle, (void)name, (void)host, (void)size;
}

DF_H_API void __cudaRegisterUnifiedTable(void **handle, void *table);
DF_H_API void __cudaRegisterUnifiedTable(void **handle, void *table)
{
	(void)handle, (void)table;
}

/* -- attributes of a kernel -------------------------------------------------------------------- */

DF_H_API cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attr, const void *func)
{
	if (!attr || !func)
		return df_hret(attr ? cudaErrorInvalidDeviceFunction : cudaErrorInvalidValue);
	memset(attr, 0, sizeof(*attr));
	attr->maxThreadsPerBlock = 1024;
	attr->numRegs = 32;
	attr->ptxVersion = attr->binaryVersion = 90;
	attr->maxDynamicSharedSizeBytes = 49152;
	return df_hret(df_henter());
}

DF_H_API cudaError_t cudaFuncSetAttribute(const void *func, enum cudaFuncAttribute attr, int value)
{
	cudaError_t err = df_henter();

	(void)value;
	if (!err && (!func || (unsigned)attr > cudaFuncAttributeMax))
		err = func ? cudaErrorInvalidValue : cudaErrorInvalidDeviceFunction;
	return df_hret(err);
}

DF_H_API cudaError_t cudaFuncSetCacheConfig(const void *func, enum cudaFuncCache config)
{
	cudaError_t err = df_henter();

	(void)config;
	return df_hret(err ? err : func ? cudaSuccess : cudaErrorInvalidDeviceFunction);
}
