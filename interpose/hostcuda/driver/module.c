/*
 * Modules, libraries and kernels of the driver. Code is accepted and never read: it has every
 * kernel that a program asks for, and no variables. Launches are refused, or skipped as the
 * runtime's are (cudart/kernel.c), unless a test executes them (code.h). A library is a module, a
 * kernel a function. Functions are never freed: a late launch finds that its module was unloaded.
 *
 * Any thread; the lock guards the lists.
 */
#include "interpose/hostcuda/code.h"
#include "interpose/hostcuda/driver/driver.h"
#include "interpose/hostcuda/mem/mem.h"
#include "interpose/hostcuda/mem/vmm.h"

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
	void *code; /* NULL if the code cannot be read */
	int gone;
};

struct CUfunc_st {
	struct CUfunc_st *next;
	struct CUmod_st *module;
	void *code;	 /* NULL if the kernel cannot be executed */
	int most_shared; /* atomic */
	char name[];
};

static struct df_mutex lock = DF_MUTEX_INIT(DF_RANK_LEAF, "host CUDA modules");
static struct CUmod_st *modules;
static struct CUfunc_st *functions;

/* The caller holds the lock. */
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

/* Loads a module. `looked`: the image is known to be in memory, so the test's table may read it. */
static CUresult load_as(CUmodule *out, const void *image, int looked)
{
	CUmodule m;

	if (!out || !image)
		return CUDA_ERROR_INVALID_VALUE;
	m = calloc(1, sizeof(*m));
	if (!m)
		return CUDA_ERROR_OUT_OF_MEMORY;
	df_mutex_lock(&lock);
	if (looked && df_hcode && df_hcode->load)
		m->code = df_hcode->load(image);
	m->next = modules;
	modules = m;
	df_mutex_unlock(&lock);
	*out = m;
	return CUDA_SUCCESS;
}

static CUresult load(CUmodule *out, const void *image)
{
	return load_as(out, image, 1);
}

static CUresult load_file(CUmodule *out, const char *path)
{
	if (!path)
		return CUDA_ERROR_INVALID_VALUE;
	return access(path, R_OK) ? CUDA_ERROR_FILE_NOT_FOUND : load_as(out, path, 0);
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
	void *executed = NULL;
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
	if (r == CUDA_SUCCESS && !f && df_hcode)
		executed = df_hcode->find(m->code, name);
	if (executed == DF_HCODE_LACKS)
		r = CUDA_ERROR_NOT_FOUND;
	if (r == CUDA_SUCCESS && !f) {
		f = calloc(1, sizeof(*f) + bytes);
		if (f) {
			f->module = m;
			f->most_shared = SHARED_BLOCK;
			memcpy(f->name, name, bytes);
			f->code = executed;
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

static CUresult variable_of(CUdeviceptr *out, size_t *bytes, CUmodule m, const char *name)
{
	size_t size = 0;
	void *p = NULL;
	int known;

	if (!name || (!out && !bytes))
		return CUDA_ERROR_INVALID_VALUE;
	df_mutex_lock(&lock);
	known = module_known(m);
	if (known && m->code && df_hcode && df_hcode->variable)
		p = df_hcode->variable(m->code, name, &size);
	df_mutex_unlock(&lock);
	if (!known)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!p)
		return CUDA_ERROR_NOT_FOUND;
	if (df_hmem_lend(p, size, df_htls.device))
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (out)
		*out = (CUdeviceptr)(uintptr_t)p;
	if (bytes)
		*bytes = size;
	return CUDA_SUCCESS;
}

/* -- modules, libraries ------------------------------------------------------------------------ */

/* NAME(parameters): makes the call if a context is current. */
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
IN_CONTEXT(cuModuleGetGlobal_v2, (CUdeviceptr * p, size_t *bytes, CUmodule m, const char *name),
	   variable_of(p, bytes, m, name))
IN_CONTEXT(cuLibraryGetGlobal, (CUdeviceptr * p, size_t *bytes, CUlibrary l, const char *name),
	   variable_of(p, bytes, (CUmodule)l, name))
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

/* -- attributes of a kernel -------------------------------------------------------------------- */

static unsigned int most_threads(const struct CUfunc_st *f)
{
	return f->code && df_hcode->most_threads ? df_hcode->most_threads(f->code) : THREADS_BLOCK;
}

static CUresult get(int *value, CUfunction_attribute what, CUfunction f)
{
	CUresult r = function_check(f);

	if (r != CUDA_SUCCESS || !value)
		return value ? r : CUDA_ERROR_INVALID_VALUE;
	switch (what) {
	case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
		*value = (int)most_threads(f);
		break;
	case CU_FUNC_ATTRIBUTE_NUM_REGS:
		*value = 32;
		break;
	case CU_FUNC_ATTRIBUTE_PTX_VERSION:
	case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
		/* 0 marks a kernel that does nothing, where other kernels are executed. */
		*value = f->code || !df_hcode ? CAPABILITY : 0;
		break;
	case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
		/* RELAXED: an independent number. */
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
	/* RELAXED for the reason given above. */
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

static CUresult occupancy(int *nr, CUfunction f, int threads, size_t shared)
{
	CUresult r = function_check(f);

	if (r != CUDA_SUCCESS || !nr || threads <= 0)
		return r != CUDA_SUCCESS ? r : CUDA_ERROR_INVALID_VALUE;
	/* RELAXED: as above. */
	*nr = shared <= (size_t)__atomic_load_n(&f->most_shared, __ATOMIC_RELAXED)
		      ? blocks_of(threads)
		      : 0;
	return CUDA_SUCCESS;
}

ANYWHERE(cuOccupancyMaxActiveBlocksPerMultiprocessor,
	 (int *nr, CUfunction f, int threads, size_t shared), occupancy(nr, f, threads, shared))
ANYWHERE(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
	 (int *nr, CUfunction f, int threads, size_t shared, unsigned int flags),
	 ((void)flags, occupancy(nr, f, threads, shared)))

/* -- launches ---------------------------------------------------------------------------------- */

static CUresult execute(CUfunction f, const struct df_hkernel_shape *shape, CUstream stream,
			void **params, void **extra)
{
	struct df_hop op = {.kind = DF_HOP_HOST};
	struct df_hstream *s;
	cudaError_t err = df_hstream_enter(stream, &s);

	if (err)
		return DF_H_CU(err);
	op.host.fn = df_hcode->run;
	op.host.arg = df_hcode->take(f->code, shape, params, extra);
	return op.host.arg ? DF_H_CU(df_hsubmit(s, &op, DF_WORK_KERNEL)) : CUDA_ERROR_INVALID_VALUE;
}

/* The other attributes of a launch. Hints are accepted and have no effect. */
struct wish {
	int cooperative, clustered;
	CUevent started, ended;
};

static CUresult wishes(const CUlaunchConfig *c, struct wish *w)
{
	int least, greatest;
	unsigned int i;

	cudaDeviceGetStreamPriorityRange(&least, &greatest);
	for (i = 0; i < c->numAttrs; i++) {
		const CUlaunchAttribute *a = &c->attrs[i];

		switch (a->id) {
		case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
			w->cooperative = a->value.cooperative;
			break;
		case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
			w->clustered = a->value.clusterDim.x * a->value.clusterDim.y *
					       a->value.clusterDim.z >
				       1;
			break;
		case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
			w->started = a->value.launchCompletionEvent.event;
			break;
		case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
			/*
			 * No kernel triggers the event early, so it is recorded at the kernel's
			 * end.
			 */
			w->ended = a->value.programmaticEvent.event;
			break;
		case CU_LAUNCH_ATTRIBUTE_PRIORITY:
			if (a->value.priority < greatest || a->value.priority > least)
				return CUDA_ERROR_INVALID_VALUE;
			break;
		default:
			break;
		}
	}
	return CUDA_SUCCESS;
}

static CUresult fits(const struct CUfunc_st *f, const struct df_hkernel_shape *s, int cooperative)
{
	uint64_t threads = (uint64_t)s->block[0] * s->block[1] * s->block[2];
	uint64_t grid = (uint64_t)s->grid[0] * s->grid[1] * s->grid[2];
	int nr_sm;

	/* RELAXED: as above. */
	if (!grid || s->grid[1] > 65535 || s->grid[2] > 65535 || !threads ||
	    threads > most_threads(f) || s->block[2] > 64 ||
	    s->shared > (unsigned int)__atomic_load_n(&f->most_shared, __ATOMIC_RELAXED))
		return CUDA_ERROR_INVALID_VALUE;
	if (!cooperative)
		return CUDA_SUCCESS;
	cudaDeviceGetAttribute(&nr_sm, cudaDevAttrMultiProcessorCount, s->device);
	return grid > (uint64_t)nr_sm * (uint64_t)blocks_of((int)threads)
		       ? CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE
		       : CUDA_SUCCESS;
}

static CUresult launch(CUfunction f, struct df_hkernel_shape shape, int cooperative, CUstream s,
		       void **params, void **extra)
{
	CUresult r = df_hctx_missing();

	if (r == CUDA_SUCCESS)
		r = function_check(f);
	shape.device = df_htls.device;
	if (r == CUDA_SUCCESS)
		r = fits(f, &shape, cooperative);
	if (r != CUDA_SUCCESS)
		return r;
	return f->code ? execute(f, &shape, s, params, extra) : DF_H_CU(df_hlaunch(s));
}

#define SHAPE                                                                                      \
	unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx, unsigned int by,       \
		unsigned int bz, unsigned int shared
#define GIVEN ((struct df_hkernel_shape){{gx, gy, gz}, {bx, by, bz}, shared, 0})

ANYWHERE(cuLaunchKernel, (CUfunction f, SHAPE, CUstream s, void **params, void **extra),
	 launch(f, GIVEN, 0, s, params, extra))
ANYWHERE(cuLaunchKernel_ptsz, (CUfunction f, SHAPE, CUstream s, void **params, void **extra),
	 launch(f, GIVEN, 0, df_hpt(s), params, extra))
ANYWHERE(cuLaunchCooperativeKernel, (CUfunction f, SHAPE, CUstream s, void **params),
	 launch(f, GIVEN, 1, s, params, NULL))
ANYWHERE(cuLaunchCooperativeKernel_ptsz, (CUfunction f, SHAPE, CUstream s, void **params),
	 launch(f, GIVEN, 1, df_hpt(s), params, NULL))

static CUresult launch_ex(const CUlaunchConfig *c, CUfunction f, void **params, void **extra,
			  int per_thread)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	struct wish w = {0};
	CUstream s;
	CUresult r;

	if (!c || (c->numAttrs && !c->attrs))
		return CUDA_ERROR_INVALID_VALUE;
	s = per_thread ? df_hpt(c->hStream) : c->hStream;
	r = wishes(c, &w);
	if (r == CUDA_SUCCESS && (w.started || w.ended))
		r = cuStreamIsCapturing(s, &status);
	if (r != CUDA_SUCCESS)
		return r;
	/*
	 * Not supported: in a capture, such events would be edges of the graph; and the test's
	 * table has no clusters.
	 */
	if (status != CU_STREAM_CAPTURE_STATUS_NONE ||
	    (w.clustered && function_check(f) == CUDA_SUCCESS && f->code))
		return CUDA_ERROR_NOT_SUPPORTED;
	/* Record it after the earlier work of the stream, which is where the kernel begins. */
	r = w.started ? cuEventRecord(w.started, s) : CUDA_SUCCESS;
	if (r == CUDA_SUCCESS)
		r = launch(f,
			   (struct df_hkernel_shape){{c->gridDimX, c->gridDimY, c->gridDimZ},
						     {c->blockDimX, c->blockDimY, c->blockDimZ},
						     c->sharedMemBytes,
						     0},
			   w.cooperative, s, params, extra);
	return r == CUDA_SUCCESS && w.ended ? cuEventRecord(w.ended, s) : r;
}

ANYWHERE(cuLaunchKernelEx, (const CUlaunchConfig *c, CUfunction f, void **params, void **extra),
	 launch_ex(c, f, params, extra, 0))
ANYWHERE(cuLaunchKernelEx_ptsz,
	 (const CUlaunchConfig *c, CUfunction f, void **params, void **extra),
	 launch_ex(c, f, params, extra, 1))

/* -- the same in the runtime ------------------------------------------------------------------- */

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

/* Returns the blocks of a kernel in the program itself, whose attributes are unknown. */
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
