/*
 * Code given to the stand-in driver: PTX itself, or containers of nvcc's with PTX that is not compressed; of several the
 * newest that the devices could execute. What can't be read has no code of its own: its kernels are found by name, first
 * in the files FAKE_CUDA_PTX=FILE[:FILE...], then among the functions that tests registered.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/cuda/fake/internal.h"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

#define CAPABILITY 90

struct CUmod_st {
	struct ptx_module *ptx; /* NULL: its kernels are known by name alone */
	CUfunction functions;
	struct CUmod_st *next;
};

/* A container: this, then entries one after the other. */
struct container {
	uint32_t magic;
	uint16_t version, header;
	uint64_t bytes; /* behind the header */
};
struct entry {
	uint16_t kind, version;
	uint32_t header;
	uint64_t bytes; /* behind the header */
	uint32_t pad[3];
	uint32_t capability;
};
#define CONTAINER_MAGIC 0xba55ed50u
#define KIND_PTX	1
/* What a program's constructors register points to the container. */
struct wrapper {
	uint32_t magic, version;
	const void *data;
};
#define WRAPPER_MAGIC 0x466243b1u

static struct ptx_module *named[8]; /* FAKE_CUDA_PTX */
static pthread_once_t named_once = PTHREAD_ONCE_INIT;
static struct CUmod_st without; /* of functions that are asked for by name alone */

static void read_named(void)
{
	const char *v = getenv("FAKE_CUDA_PTX");
	char *all = strdup(v ? v : ""), *rest = all, *path;
	size_t nr = 0;

	while ((path = strsep(&rest, ":"))) {
		size_t len = 0;
		char *text = NULL;
		FILE *f;

		if (!*path)
			continue;
		f = fopen(path, "re");
		if (!f || getdelim(&text, &len, 0, f) <= 0 || nr == 8 ||
		    !(named[nr++] = ptx_load(text, strlen(text), path))) {
			fprintf(stderr, "fake libcuda: FAKE_CUDA_PTX: %s can't be used\n", path);
			_Exit(99);
		}
		free(text);
		fclose(f);
	}
	free(all);
}

static int is_text(const char *p, size_t bytes)
{
	size_t i = 0;

	while (i < bytes && strchr(" \t\r\n", p[i]) && p[i])
		i++;
	return i + 2 < bytes &&
	       (p[i] == '.' || (p[i] == '/' && (p[i + 1] == '/' || p[i + 1] == '*')));
}

/* The text of a container's best entry; NULL: it has none. */
static const char *best_of(const void *at, size_t *len)
{
	const char *p = at, *end, *best = NULL;
	struct container c;
	uint32_t capability = 0;

	memcpy(&c, p, sizeof(c));
	if (c.magic != CONTAINER_MAGIC || c.header < sizeof(c))
		return NULL;
	p += c.header;
	end = p + c.bytes;
	while ((size_t)(end - p) >= sizeof(struct entry)) {
		struct entry e;

		memcpy(&e, p, sizeof(e));
		if (e.header < sizeof(e) || e.header > (size_t)(end - p) ||
		    e.bytes > (size_t)(end - p) - e.header)
			break;
		p += e.header;
		if (e.kind == KIND_PTX && e.capability <= CAPABILITY &&
		    e.capability >= capability && is_text(p, e.bytes)) {
			capability = e.capability;
			best = p;
			*len = strnlen(p, e.bytes);
		}
		p += e.bytes;
	}
	return best;
}

/* NULL: there is no code that could be read. */
static struct ptx_module *ptx_of(const void *image)
{
	const char *text = image;
	struct wrapper w;
	uint32_t magic;
	size_t len;

	memcpy(&magic, image, sizeof(magic));
	if (magic == WRAPPER_MAGIC) {
		memcpy(&w, image, sizeof(w));
		return w.data ? ptx_of(w.data) : NULL;
	}
	if (magic == CONTAINER_MAGIC)
		text = best_of(image, &len);
	else if (is_text(text, strnlen(text, 4096)))
		len = strlen(text);
	else
		text = NULL;
	return text ? ptx_load(text, len, "image") : NULL;
}

static CUresult module_load(CUmodule *out, const void *image)
{
	const char *no = getenv("FAKE_CUDA_NO_CODE");
	CUmodule m;

	/* Code for another kind of device, or of a newer toolkit. */
	if (no && fake_ctx_now() && atoi(no) == fake_ctx_now()->device)
		return CUDA_ERROR_NO_BINARY_FOR_GPU;
	m = calloc(1, sizeof(*m));
	m->ptx = image ? ptx_of(image) : NULL;
	*out = m;
	return CUDA_SUCCESS;
}

static CUresult function_of(CUfunction *out, CUmodule m, const char *name)
{
	const struct ptx_kernel *k = NULL;
	CUfunction f;
	int i;

	pthread_once(&named_once, read_named);
	if (!m)
		m = &without;
	for (i = 0; i < 8 && named[i] && !k; i++)
		k = ptx_kernel(named[i], name);
	if (!k && m->ptx) {
		k = ptx_kernel(m->ptx, name);
		if (!k)
			return CUDA_ERROR_NOT_FOUND;
	}
	pthread_mutex_lock(&fake_lock);
	for (f = m->functions; f && strcmp(f->name, name) != 0; f = f->next)
		;
	if (!f) {
		f = calloc(1, sizeof(*f));
		f->name = strdup(name);
		f->ptx = k;
		f->module = m;
		f->most_shared = 48 << 10;
		f->next = m->functions;
		m->functions = f;
	}
	pthread_mutex_unlock(&fake_lock);
	*out = f;
	return CUDA_SUCCESS;
}

static CUresult variable_of(CUdeviceptr *out, size_t *bytes, CUmodule m, const char *name)
{
	size_t size = 0;
	void *p = m->ptx ? ptx_variable(m->ptx, name, &size) : NULL;

	if (!p)
		return CUDA_ERROR_NOT_FOUND;
	if (out)
		*out = (CUdeviceptr)(uintptr_t)p;
	if (bytes)
		*bytes = size;
	return CUDA_SUCCESS;
}

API CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
	SEEN();
	return module_load(module, image);
}
API CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int nr,
				CUjit_option *what, void **values)
{
	(void)nr, (void)what, (void)values;
	SEEN();
	return module_load(module, image);
}
API CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image)
{
	SEEN();
	return module_load(module, image);
}
API CUresult cuModuleGetFunction(CUfunction *f, CUmodule module, const char *name)
{
	SEEN();
	return function_of(f, module, name);
}
API CUresult cuModuleGetGlobal_v2(CUdeviceptr *at, size_t *bytes, CUmodule module, const char *name)
{
	SEEN();
	return variable_of(at, bytes, module, name);
}

/* A library is a module that all contexts have, and its kernels are functions. */
API CUresult cuLibraryLoadData(CUlibrary *library, const void *image, CUjit_option *jit,
			       void **jit_values, unsigned int nr_jit, CUlibraryOption *options,
			       void **values, unsigned int nr)
{
	(void)jit, (void)jit_values, (void)nr_jit, (void)options, (void)values, (void)nr;
	SEEN();
	return module_load((CUmodule *)library, image);
}
API CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
	SEEN();
	return function_of((CUfunction *)kernel, (CUmodule)library, name);
}
API CUresult cuLibraryGetModule(CUmodule *module, CUlibrary library)
{
	SEEN();
	*module = (CUmodule)library;
	return CUDA_SUCCESS;
}
API CUresult cuLibraryGetGlobal(CUdeviceptr *at, size_t *bytes, CUlibrary library, const char *name)
{
	SEEN();
	return variable_of(at, bytes, (CUmodule)library, name);
}
API CUresult cuKernelGetFunction(CUfunction *f, CUkernel kernel)
{
	SEEN();
	*f = (CUfunction)kernel;
	return CUDA_SUCCESS;
}

static CUresult attribute(int *value, CUfunction_attribute what, CUfunction f)
{
	switch (what) {
	case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
		*value = f->ptx ? (int)ptx_max_threads(f->ptx) : 1024;
		break;
	case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
		*value = (int)f->most_shared;
		break;
	/* 0: a kernel that does nothing here. */
	case CU_FUNC_ATTRIBUTE_PTX_VERSION:
	case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
		*value = f->ptx || fake_function(f->name) ? CAPABILITY : 0;
		break;
	default:
		*value = 0;
	}
	return CUDA_SUCCESS;
}
API CUresult cuFuncGetAttribute(int *value, CUfunction_attribute what, CUfunction f)
{
	SEEN();
	return attribute(value, what, f);
}
API CUresult cuKernelGetAttribute(int *value, CUfunction_attribute what, CUkernel k, CUdevice dev)
{
	(void)dev;
	SEEN();
	return attribute(value, what, (CUfunction)k);
}
static CUresult set_attribute(CUfunction_attribute what, int value, CUfunction f)
{
	if (what == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
		if (value < 0 || value > 227 << 10)
			return CUDA_ERROR_INVALID_VALUE;
		f->most_shared = (size_t)value;
	}
	return CUDA_SUCCESS;
}
API CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute what, int value)
{
	SEEN();
	return set_attribute(what, value, f);
}
API CUresult cuKernelSetAttribute(CUfunction_attribute what, int value, CUkernel k, CUdevice dev)
{
	(void)dev;
	SEEN();
	return set_attribute(what, value, (CUfunction)k);
}
