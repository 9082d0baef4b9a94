/*
 * Modules, libraries and kernels of the driver. Code is taken as it is and never looked into: every kernel that is asked
 * for is there, and its launch is refused, or skipped, as the runtime's launches are (cudart/kernel.c), where nobody has brought
 * what executes it (code.h). A library is a
 * module, a kernel a function. Functions live as long as the process: a late launch finds that its module is gone.
 *
 * Any thread; the lock guards the lists.
 */
#include "interpose/hostcuda/code.h"
#include "interpose/hostcuda/driver/driver.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define THREADS_BLOCK 1024
#define SHARED_BLOCK  49152
#define SHARED_MOST   232448
#define CAPABILITY    90
#define BLOCKS_SM     32u
#define WARPS_SM      64u

struct CUmod_st {
	struct CUmod_st *next;
	int gone;
};

struct CUfunc_st {
	struct CUfunc_st *next;
	struct CUmod_st *module;
	void *code;	 /* NULL: nobody executes it */
	int most_shared; /* atomic */
	char name[];
};

static const struct df_hcode *code; /* set before there are functions */

DF_H_API void df_hostcuda_code(const struct df_hcode *table)
{
	code = table;
}

static struct df_mutex lock = DF_MUTEX_INIT(DF_RANK_LEAF, "host CUDA modules");
static struct CUmod_st *modules;
static struct CUfunc_st *functions;

/* Lock held. */
static int module_known(const struct CUmod_st *it)
{
	struct CUmod_st *m;

	for (m = modules; m && m != it; m = m->next)
		;
	return m && !m->gone;
}

static CUresult function_check(const struct CUfunc_st *it)
{
	struct CUfunc_st *f;
	int ok;

	df_mutex_lock(&lock);
	for (f = functions; f && f != it; f = f->next)
		;
	ok = f && !f->module->gone;
	df_mutex_unlock(&lock);
	return ok ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult load(CUmodule *out, const void *image)
{
	CUmodule m;

	if (!out || !image)
		return CUDA_ERROR_INVALID_VALUE;
	m = calloc(1, sizeof(*m));
	if (!m)
		return CUDA_ERROR_OUT_OF_MEMORY;
	df_mutex_lock(&lock);
	m->next = modules;
	modules = m;
	df_mutex_unlock(&lock);
	*out = m;
	return CUDA_SUCCESS;
}

static CUresult load_file(CUmodule *out, const char *path)
{
	if (!path)
		return CUDA_ERROR_INVALID_VALUE;
	return access(path, R_OK) ? CUDA_ERROR_FILE_NOT_FOUND : load(out, path);
}

static CUresult unload(CUmodule m)
{
	int known;

	df_mutex_lock(&lock);
	known = module_known(m);
	if (known)
		m->gone = 1;
	df_mutex_unlock(&lock);
	return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult function_of(CUfunction *out, CUmodule m, const char *name)
{
	CUresult r = CUDA_SUCCESS;
	CUfunction f = NULL;
	size_t bytes;

	if (!out || !name || !*name)
		return CUDA_ERROR_INVALID_VALUE;
	bytes = strlen(name) + 1;
	df_mutex_lock(&lock);
	if (!module_known(m))
		r = CUDA_ERROR_INVALID_HANDLE;
	else
		for (f = functions; f && (f->module != m || strcmp(f->name, name) != 0);
		     f = f->next)
			;
	if (r == CUDA_SUCCESS && !f) {
		f = calloc(1, sizeof(*f) + bytes);
		if (f) {
			f->module = m;
			f->most_shared = SHARED_BLOCK;
			memcpy(f->name, name, bytes);
			f->code = code ? code->find(name) : NULL;
			f->next = functions;
			functions = f;
		} else {
			r = CUDA_ERROR_OUT_OF_MEMORY;
		}
	}
	df_mutex_unlock(&lock);
	if (r == CUDA_SUCCESS)
		*out = f;
	return r;
}

/* -- modules, libraries ------------------------------------------------------------------------------ */

/* NAME(parameters): the call, where a context is current. */
#define IN_CONTEXT(name, params, call)                                                             \
	DF_H_API CUresult name params                                                              \
	{                                                                                          \
		CUresult missing = df_hctx_missing();                                              \
                                                                                                   \
		return missing ? missing : (call);                                                 \
	}
#define ANYWHERE(name, params, call)                                                               \
	DF_H_API CUresult name params                                                              \
	{                                                                                          \
		return call;                                                                       \
	}

IN_CONTEXT(cuModuleLoad, (CUmodule * m, const char *path), load_file(m, path))
IN_CONTEXT(cuModuleLoadData, (CUmodule * m, const void *image), load(m, image))
IN_CONTEXT(cuModuleLoadDataEx,
	   (CUmodule * m, const void *image, unsigned int nr, CUjit_option *what, void **values),
	   ((void)nr, (void)what, (void)values, load(m, image)))
IN_CONTEXT(cuModuleLoadFatBinary, (CUmodule * m, const void *image), load(m, image))
ANYWHERE(cuModuleUnload, (CUmodule m), unload(m))
IN_CONTEXT(cuModuleGetFunction, (CUfunction * f, CUmodule m, const char *name),
	   function_of(f, m, name))
ANYWHERE(cuLibraryLoadData,
	 (CUlibrary * l, const void *image, CUjit_option *jit, void **jit_values,
	  unsigned int nr_jit, CUlibraryOption *what, void **values, unsigned int nr),
	 ((void)jit, (void)jit_values, (void)nr_jit, (void)what, (void)values, (void)nr,
	  load((CUmodule *)l, image)))
ANYWHERE(cuLibraryLoadFromFile,
	 (CUlibrary * l, const char *path, CUjit_option *jit, void **jit_values,
	  unsigned int nr_jit, CUlibraryOption *what, void **values, unsigned int nr),
	 ((void)jit, (void)jit_values, (void)nr_jit, (void)what, (void)values, (void)nr,
	  load_file((CUmodule *)l, path)))
ANYWHERE(cuLibraryUnload, (CUlibrary l), unload((CUmodule)l))
ANYWHERE(cuLibraryGetKernel, (CUkernel * k, CUlibrary l, const char *name),
	 function_of((CUfunction *)k, (CUmodule)l, name))

DF_H_API CUresult cuLibraryGetModule(CUmodule *m, CUlibrary l)
{
	if (m)
		*m = (CUmodule)l;
	return m ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* -- what is known of a kernel ------------------------------------------------------------------------- */

static CUresult get(int *value, CUfunction_attribute what, CUfunction f)
{
	CUresult r = function_check(f);

	if (r != CUDA_SUCCESS || !value)
		return value ? r : CUDA_ERROR_INVALID_VALUE;
	switch (what) {
	case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
		*value = THREADS_BLOCK;
		break;
	case CU_FUNC_ATTRIBUTE_NUM_REGS:
		*value = 32;
		break;
	case CU_FUNC_ATTRIBUTE_PTX_VERSION:
	case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
		*value = CAPABILITY;
		break;
	case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
		/* RELAXED: a number by itself. */
		*value = __atomic_load_n(&f->most_shared, __ATOMIC_RELAXED);
		break;
	default:
		*value = 0;
	}
	return CUDA_SUCCESS;
}

static CUresult set(CUfunction_attribute what, int value, CUfunction f)
{
	CUresult r = function_check(f);

	if (r != CUDA_SUCCESS || what != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
		return r;
	if (value < 0 || value > SHARED_MOST)
		return CUDA_ERROR_INVALID_VALUE;
	/* RELAXED: as above. */
	__atomic_store_n(&f->most_shared, value, __ATOMIC_RELAXED);
	return CUDA_SUCCESS;
}

static CUresult name_of(const char **name, CUfunction f)
{
	CUresult r = function_check(f);

	if (r == CUDA_SUCCESS && name)
		*name = f->name;
	return name ? r : CUDA_ERROR_INVALID_VALUE;
}

static CUresult module_of(CUmodule *m, CUfunction f)
{
	CUresult r = function_check(f);

	if (r == CUDA_SUCCESS && m)
		*m = f->module;
	return m ? r : CUDA_ERROR_INVALID_VALUE;
}

ANYWHERE(cuFuncGetAttribute, (int *value, CUfunction_attribute what, CUfunction f),
	 get(value, what, f))
ANYWHERE(cuKernelGetAttribute, (int *value, CUfunction_attribute what, CUkernel k, CUdevice dev),
	 ((void)dev, get(value, what, (CUfunction)k)))
ANYWHERE(cuFuncSetAttribute, (CUfunction f, CUfunction_attribute what, int value),
	 set(what, value, f))
ANYWHERE(cuKernelSetAttribute, (CUfunction_attribute what, int value, CUkernel k, CUdevice dev),
	 ((void)dev, set(what, value, (CUfunction)k)))
ANYWHERE(cuFuncSetCacheConfig, (CUfunction f, CUfunc_cache config),
	 ((void)config, function_check(f)))
ANYWHERE(cuKernelSetCacheConfig, (CUkernel k, CUfunc_cache config, CUdevice dev),
	 ((void)config, (void)dev, function_check((CUfunction)k)))
ANYWHERE(cuFuncLoad, (CUfunction f), function_check(f))
ANYWHERE(cuFuncGetName, (const char **name, CUfunction f), name_of(name, f))
ANYWHERE(cuKernelGetName, (const char **name, CUkernel k), name_of(name, (CUfunction)k))
ANYWHERE(cuFuncGetModule, (CUmodule * m, CUfunction f), module_of(m, f))
ANYWHERE(cuKernelGetLibrary, (CUlibrary * l, CUkernel k), module_of((CUmodule *)l, (CUfunction)k))

DF_H_API CUresult cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction f)
{
	if (!state)
		return CUDA_ERROR_INVALID_VALUE;
	*state = CU_FUNCTION_LOADING_STATE_LOADED;
	return function_check(f);
}

DF_H_API CUresult cuKernelGetFunction(CUfunction *f, CUkernel k)
{
	CUresult r = function_check((CUfunction)k);

	if (r == CUDA_SUCCESS && f)
		*f = (CUfunction)k;
	return f ? r : CUDA_ERROR_INVALID_VALUE;
}

static int blocks_of(int threads)
{
	unsigned int warps = ((unsigned int)threads + 31) / 32;

	return threads > 0 && threads <= THREADS_BLOCK ? (int)DF_MIN(BLOCKS_SM, WARPS_SM / warps)
						       : 0;
}

static CUresult occupancy(int *nr, CUfunction f, int threads)
{
	CUresult r = function_check(f);

	if (r != CUDA_SUCCESS || !nr || threads <= 0)
		return r != CUDA_SUCCESS ? r : CUDA_ERROR_INVALID_VALUE;
	*nr = blocks_of(threads);
	return CUDA_SUCCESS;
}

ANYWHERE(cuOccupancyMaxActiveBlocksPerMultiprocessor,
	 (int *nr, CUfunction f, int threads, size_t shared),
	 ((void)shared, occupancy(nr, f, threads)))
ANYWHERE(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
	 (int *nr, CUfunction f, int threads, size_t shared, unsigned int flags),
	 ((void)shared, (void)flags, occupancy(nr, f, threads)))

/* -- launches -------------------------------------------------------------------------------------------- */

static CUresult execute(CUfunction f, const struct df_hkernel_shape *shape, CUstream stream,
			void **params, void **extra)
{
	struct df_hop op = {.kind = DF_HOP_HOST};
	struct df_hstream *s;
	cudaError_t err = df_hstream_enter(stream, &s);

	if (err)
		return DF_H_CU(err);
	op.host.fn = code->run;
	op.host.arg = code->take(f->code, shape, params, extra);
	return op.host.arg ? DF_H_CU(df_hsubmit(s, &op, DF_WORK_KERNEL)) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult launch(CUfunction f, struct df_hkernel_shape shape, CUstream s, void **params,
		       void **extra)
{
	uint64_t threads = (uint64_t)shape.block[0] * shape.block[1] * shape.block[2];
	CUresult r = df_hctx_missing();

	if (r == CUDA_SUCCESS)
		r = function_check(f);
	if (r != CUDA_SUCCESS)
		return r;
	/* RELAXED: as above. */
	if (!shape.grid[0] || !shape.grid[1] || !shape.grid[2] || !threads ||
	    threads > THREADS_BLOCK ||
	    shape.shared > (unsigned int)__atomic_load_n(&f->most_shared, __ATOMIC_RELAXED))
		return CUDA_ERROR_INVALID_VALUE;
	shape.device = df_htls.device;
	return f->code ? execute(f, &shape, s, params, extra) : DF_H_CU(df_hlaunch(s));
}

#define SHAPE                                                                                      \
	unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx, unsigned int by,       \
		unsigned int bz, unsigned int shared
#define GIVEN ((struct df_hkernel_shape){{gx, gy, gz}, {bx, by, bz}, shared, 0})

ANYWHERE(cuLaunchKernel, (CUfunction f, SHAPE, CUstream s, void **params, void **extra),
	 launch(f, GIVEN, s, params, extra))
ANYWHERE(cuLaunchKernel_ptsz, (CUfunction f, SHAPE, CUstream s, void **params, void **extra),
	 launch(f, GIVEN, df_hpt(s), params, extra))
ANYWHERE(cuLaunchCooperativeKernel, (CUfunction f, SHAPE, CUstream s, void **params),
	 launch(f, GIVEN, s, params, NULL))
ANYWHERE(cuLaunchCooperativeKernel_ptsz, (CUfunction f, SHAPE, CUstream s, void **params),
	 launch(f, GIVEN, df_hpt(s), params, NULL))

static CUresult launch_ex(const CUlaunchConfig *c, CUfunction f, void **params, void **extra,
			  int per_thread)
{
	if (!c)
		return CUDA_ERROR_INVALID_VALUE;
	return launch(f,
		      (struct df_hkernel_shape){{c->gridDimX, c->gridDimY, c->gridDimZ},
						{c->blockDimX, c->blockDimY, c->blockDimZ},
						c->sharedMemBytes,
						0},
		      per_thread ? df_hpt(c->hStream) : c->hStream, params, extra);
}

ANYWHERE(cuLaunchKernelEx, (const CUlaunchConfig *c, CUfunction f, void **params, void **extra),
	 launch_ex(c, f, params, extra, 0))
ANYWHERE(cuLaunchKernelEx_ptsz,
	 (const CUlaunchConfig *c, CUfunction f, void **params, void **extra),
	 launch_ex(c, f, params, extra, 1))

/* -- the same in the runtime ------------------------------------------------------------------------------- */

#define FORWARD(name, params, call)                                                                \
	DF_H_API cudaError_t name params                                                           \
	{                                                                                          \
		cudaError_t err = df_henter();                                                     \
                                                                                                   \
		return df_hret(err ? err : (cudaError_t)(call));                                   \
	}

FORWARD(cudaLibraryLoadData,
	(cudaLibrary_t * l, const void *image, enum cudaJitOption *jit, void **jit_values,
	 unsigned int nr_jit, enum cudaLibraryOption *what, void **values, unsigned int nr),
	((void)jit, (void)jit_values, (void)nr_jit, (void)what, (void)values, (void)nr,
	 load((CUmodule *)l, image)))
FORWARD(cudaLibraryLoadFromFile,
	(cudaLibrary_t * l, const char *path, enum cudaJitOption *jit, void **jit_values,
	 unsigned int nr_jit, enum cudaLibraryOption *what, void **values, unsigned int nr),
	((void)jit, (void)jit_values, (void)nr_jit, (void)what, (void)values, (void)nr,
	 load_file((CUmodule *)l, path)))
FORWARD(cudaLibraryUnload, (cudaLibrary_t l), unload((CUmodule)l))
FORWARD(cudaLibraryGetKernel, (cudaKernel_t * k, cudaLibrary_t l, const char *name),
	function_of((CUfunction *)k, (CUmodule)l, name))
FORWARD(cudaKernelSetAttributeForDevice,
	(cudaKernel_t k, enum cudaFuncAttribute what, int value, int dev),
	((void)dev, set((CUfunction_attribute)what, value, (CUfunction)k)))

/* Of a kernel in the program itself, of which nothing is known. */
static cudaError_t blocks(int *nr, const void *f, int threads)
{
	if (!nr || threads <= 0)
		return cudaErrorInvalidValue;
	if (!f)
		return cudaErrorInvalidDeviceFunction;
	*nr = blocks_of(threads);
	return cudaSuccess;
}

FORWARD(cudaOccupancyMaxActiveBlocksPerMultiprocessor,
	(int *nr, const void *f, int threads, size_t shared),
	((void)shared, blocks(nr, f, threads)))
FORWARD(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
	(int *nr, const void *f, int threads, size_t shared, unsigned int flags),
	((void)shared, (void)flags, blocks(nr, f, threads)))
