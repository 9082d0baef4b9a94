/*
 * A program's own kernels and variables, as nvcc registers them. Their code is given to the driver
 * unchanged when the first of them is needed. The test driver executes code that contains
 * uncompressed PTX (tests/cuda/driver/module.c). Launching any other kernel fails, with a message
 * that names the kernel, once for each kernel.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <pthread.h>
#include <uthash.h>
#include "tests/cuda/runtime/cudart.h"

struct binary {
	void *image;
	CUlibrary library;
	int tried;
};

/*
 * A kernel or a variable, by its address in the program. `name` points into the program, which is
 * never unloaded.
 */
struct registered {
	const void *host;
	const char *name;
	struct binary *from;
	CUkernel kernel;
	int told;
	UT_hash_handle hh;
};

static pthread_mutex_t lock =
	PTHREAD_MUTEX_INITIALIZER; /* protects the tables; not held across driver calls */
static struct registered *kernels, *variables;

static struct registered *find(struct registered **in, const void *host)
{
	struct registered *r;

	pthread_mutex_lock(&lock);
	HASH_FIND(hh, *in, &host, sizeof(host), r);
	pthread_mutex_unlock(&lock);
	return r;
}
static void add(struct registered **in, void **handle, const void *host, const char *name)
{
	struct registered *r = find(in, host);

	if (r)
		return;
	r = calloc(1, sizeof(*r));
	r->host = host;
	r->name = name;
	r->from = (struct binary *)handle;
	pthread_mutex_lock(&lock);
	HASH_ADD(hh, *in, host, sizeof(r->host), r);
	pthread_mutex_unlock(&lock);
}

API void **__cudaRegisterFatBinary(void *image)
{
	struct binary *b = calloc(1, sizeof(*b));

	b->image = image;
	return (void **)b;
}
API void __cudaRegisterFatBinaryEnd(void **handle)
{
	(void)handle;
}
/* Called at exit, when the program's kernels may still run, so nothing is freed. */
API void __cudaUnregisterFatBinary(void **handle)
{
	(void)handle;
}
API char __cudaInitModule(void **handle)
{
	(void)handle;
	return 1;
}
API void __cudaRegisterVar(void **handle, char *var, char *address, const char *name, int ext,
			   size_t size, int constant, int global)
{
	(void)address, (void)ext, (void)size, (void)constant, (void)global;
	add(&variables, handle, var, name);
}
API void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name,
				int limit, uint3 *tid, uint3 *bid, dim3 *block, dim3 *grid,
				int *warp)
{
	(void)device, (void)limit, (void)tid, (void)bid;
	(void)block, (void)grid, (void)warp;
	add(&kernels, handle, host, name);
}

/*
 * Loads the code into the driver at the first call. Returns an error if loading failed, now or
 * before.
 */
static CUresult loaded(struct binary *b)
{
	static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
	CUresult r = CUDA_SUCCESS;

	rt_ready();
	pthread_mutex_lock(&one);
	if (!b->tried)
		r = CU(cuLibraryLoadData)(&b->library, b->image, NULL, NULL, 0, NULL, NULL, 0);
	b->tried = 1;
	pthread_mutex_unlock(&one);
	return r != CUDA_SUCCESS || b->library ? r : CUDA_ERROR_INVALID_IMAGE;
}

/*
 * Returns NULL if the kernel cannot be executed here; the error is stored for cudaGetLastError().
 */
static CUfunction function_of(const void *host)
{
	struct registered *k = find(&kernels, host);
	CUkernel kernel;
	int code = 0;

	if (!k) {
		rt_said(CUDA_ERROR_INVALID_HANDLE);
		return NULL;
	}
	kernel = __atomic_load_n(&k->kernel, __ATOMIC_RELAXED);
	if (!kernel) {
		CUresult r = loaded(k->from);

		if (r == CUDA_SUCCESS)
			r = CU(cuLibraryGetKernel)(&kernel, k->from->library, k->name);
		if (r != CUDA_SUCCESS) {
			rt_said(r);
			return NULL;
		}
		__atomic_store_n(&k->kernel, kernel, __ATOMIC_RELAXED);
	}
	CALL(cuFuncGetAttribute, &code, CU_FUNC_ATTRIBUTE_BINARY_VERSION, (CUfunction)kernel);
	if (code)
		return (CUfunction)kernel;
	if (!__atomic_exchange_n(&k->told, 1, __ATOMIC_RELAXED))
		fprintf(stderr, "cudart of the tests: no GPU for the kernel %s\n", k->name);
	rt_said(CUDA_ERROR_NOT_SUPPORTED);
	return NULL;
}

/* ---- launches -------------------------------------------------------------------------------- */

static __thread struct {
	dim3 grid, block;
	size_t shared;
	void *stream;
} launch;

API unsigned int __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared,
					     struct CUstream_st *stream)
{
	launch.grid = grid;
	launch.block = block;
	launch.shared = shared;
	launch.stream = stream;
	return 0;
}
API cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream)
{
	*grid = launch.grid;
	*block = launch.block;
	*shared = launch.shared;
	*(void **)stream = launch.stream;
	return cudaSuccess;
}
API cudaError_t cudaLaunchKernel(const void *fn, dim3 grid, dim3 block, void **args, size_t shared,
				 cudaStream_t s)
{
	CUfunction f = function_of(fn);

	if (!f)
		return rt_peek();
	return CALL(cuLaunchKernel, f, grid.x, grid.y, grid.z, block.x, block.y, block.z,
		    (unsigned int)shared, s, args, NULL);
}
API cudaError_t cudaLaunchCooperativeKernel(const void *fn, dim3 grid, dim3 block, void **args,
					    size_t shared, cudaStream_t s)
{
	CUfunction f = function_of(fn);

	if (!f)
		return rt_peek();
	return CALL(cuLaunchCooperativeKernel, f, grid.x, grid.y, grid.z, block.x, block.y, block.z,
		    (unsigned int)shared, s, args);
}
API cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *fn, void **args)
{
	CUfunction f = function_of(fn);
	CUlaunchConfig c = {.gridDimX = config->gridDim.x,
			    .gridDimY = config->gridDim.y,
			    .gridDimZ = config->gridDim.z,
			    .blockDimX = config->blockDim.x,
			    .blockDimY = config->blockDim.y,
			    .blockDimZ = config->blockDim.z,
			    .sharedMemBytes = (unsigned int)config->dynamicSmemBytes,
			    .hStream = config->stream,
			    .attrs = (CUlaunchAttribute *)(void *)config->attrs,
			    .numAttrs = config->numAttrs};

	_Static_assert(sizeof(CUlaunchAttribute) == sizeof(cudaLaunchAttribute),
		       "the driver's and the runtime's are one");
	if (!f)
		return rt_peek();
	return CALL(cuLaunchKernelEx, &c, f, args, NULL);
}
API cudaError_t __cudaGetKernel(cudaKernel_t *out, const void *fn)
{
	*out = (cudaKernel_t)(uintptr_t)fn;
	return cudaSuccess;
}
API cudaError_t __cudaLaunchKernel(cudaKernel_t fn, dim3 grid, dim3 block, void **args,
				   size_t shared, cudaStream_t s)
{
	return cudaLaunchKernel((const void *)fn, grid, block, args, shared, s);
}

/* ---- what is known of kernels ---------------------------------------------------------------- */

/*
 * Programs call these before they launch anything, so kernels that cannot be launched get an answer
 * too.
 */
API cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *out, const void *fn)
{
	struct registered *k = find(&kernels, fn);
	CUkernel kernel = NULL;

	memset(out, 0, sizeof(*out));
	out->maxThreadsPerBlock = 1024;
	if (k && loaded(k->from) == CUDA_SUCCESS &&
	    CU(cuLibraryGetKernel)(&kernel, k->from->library, k->name) == CUDA_SUCCESS)
		return CALL(cuFuncGetAttribute, &out->maxThreadsPerBlock,
			    CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, (CUfunction)kernel);
	return cudaSuccess;
}
API cudaError_t cudaFuncSetAttribute(const void *fn, enum cudaFuncAttribute what, int value)
{
	struct registered *k = find(&kernels, fn);
	CUkernel kernel = NULL;

	if (k && loaded(k->from) == CUDA_SUCCESS &&
	    CU(cuLibraryGetKernel)(&kernel, k->from->library, k->name) == CUDA_SUCCESS)
		return CALL(cuFuncSetAttribute, (CUfunction)kernel, (CUfunction_attribute)what,
			    value);
	return cudaSuccess;
}
API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *nr, const void *fn,
								       int block, size_t shared,
								       unsigned int flags)
{
	struct registered *k = find(&kernels, fn);
	CUkernel kernel = NULL;

	(void)flags;
	*nr = 1;
	if (k && loaded(k->from) == CUDA_SUCCESS &&
	    CU(cuLibraryGetKernel)(&kernel, k->from->library, k->name) == CUDA_SUCCESS)
		return CALL(cuOccupancyMaxActiveBlocksPerMultiprocessor, nr, (CUfunction)kernel,
			    block, shared);
	return cudaSuccess;
}
API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *nr, const void *fn, int block,
							      size_t shared)
{
	return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(nr, fn, block, shared, 0);
}

/* ---- variables ------------------------------------------------------------------------------- */

static cudaError_t address(CUdeviceptr *at, size_t *bytes, const void *symbol)
{
	struct registered *v = find(&variables, symbol);
	CUresult r = v ? loaded(v->from) : CUDA_ERROR_INVALID_VALUE;

	if (r == CUDA_SUCCESS)
		r = CU(cuLibraryGetGlobal)(at, bytes, v->from->library, v->name);
	return rt_said(r == CUDA_ERROR_NOT_FOUND ? (CUresult)cudaErrorInvalidSymbol : r);
}
API cudaError_t cudaGetSymbolAddress(void **at, const void *symbol)
{
	size_t bytes;

	return address((CUdeviceptr *)at, &bytes, symbol);
}
API cudaError_t cudaGetSymbolSize(size_t *bytes, const void *symbol)
{
	CUdeviceptr at;

	return address(&at, bytes, symbol);
}
API cudaError_t cudaMemcpyToSymbol(const void *symbol, const void *from, size_t bytes,
				   size_t offset, enum cudaMemcpyKind kind)
{
	CUdeviceptr at;
	size_t size;

	if (address(&at, &size, symbol))
		return rt_peek();
	if (offset > size || bytes > size - offset)
		return rt_said(CUDA_ERROR_INVALID_VALUE);
	return cudaMemcpy((void *)(uintptr_t)(at + offset), from, bytes, kind);
}
API cudaError_t cudaMemcpyFromSymbol(void *to, const void *symbol, size_t bytes, size_t offset,
				     enum cudaMemcpyKind kind)
{
	CUdeviceptr at;
	size_t size;

	if (address(&at, &size, symbol))
		return rt_peek();
	if (offset > size || bytes > size - offset)
		return rt_said(CUDA_ERROR_INVALID_VALUE);
	return cudaMemcpy(to, (const void *)(uintptr_t)(at + offset), bytes, kind);
}
