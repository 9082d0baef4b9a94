/*
 * Code given to the test driver: PTX text, or nvcc's containers with uncompressed PTX. If there are
 * several PTX entries, the one for the highest capability that the devices have is used. A kernel
 * is looked up by name first in the files FAKE_CUDA_PTX=FILE[:FILE...], then in the PTX of its own
 * module. Code without readable PTX falls back to the functions that tests registered.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/cuda/driver/internal.h"
#include "tests/cuda/ptx/ptx.h"

#define CAPABILITY 90

/* A container is this header, followed by entries. */
struct container {
	uint32_t magic;
	uint16_t version, header;
	uint64_t bytes; /* after the header */
};
struct entry {
	uint16_t kind, version;
	uint32_t header;
	uint64_t bytes; /* after the header */
	uint32_t pad[3];
	uint32_t capability;
};
#define CONTAINER_MAGIC 0xba55ed50u
#define KIND_PTX	1
/* The object that a program's constructors register; `data` points to the container. */
struct wrapper {
	uint32_t magic, version;
	const void *data;
};
#define WRAPPER_MAGIC 0x466243b1u

static struct ptx_module *named[8]; /* the modules of FAKE_CUDA_PTX */
static pthread_once_t named_once = PTHREAD_ONCE_INIT;

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

/*
 * Returns the PTX of a container's best entry and its length, or NULL if the container has no
 * usable PTX.
 */
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

/* Returns the module of `image`, or NULL if there is no readable PTX. */
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

void *fake_code_load(const void *image)
{
	return ptx_of(image);
}

void *fake_code_find(void *code, const char *name)
{
	const struct ptx_kernel *k = NULL;
	struct fake_kernel *f;
	int i;

	pthread_once(&named_once, read_named);
	for (i = 0; i < 8 && named[i] && !k; i++)
		k = ptx_kernel(named[i], name);
	if (!k && code) {
		k = ptx_kernel(code, name);
		if (!k)
			return DF_HCODE_LACKS;
	}
	if (!k && !fake_function(name))
		return NULL;
	f = calloc(1, sizeof(*f));
	f->ptx = k;
	f->fn = k ? NULL : fake_function(name);
	return f;
}

void *fake_code_variable(void *code, const char *name, size_t *bytes)
{
	return ptx_variable(code, name, bytes);
}

/* ---- loading --------------------------------------------------------------------------------- */

/* Whether FAKE_CUDA_NO_CODE makes the current device refuse code. */
static int refused(void)
{
	const char *no = getenv("FAKE_CUDA_NO_CODE");

	return no && fake_device() >= 0 && atoi(no) == fake_device();
}
#define LOADS(name, params, args)                                                                  \
	API CUresult name params                                                                   \
	{                                                                                          \
		SEEN(name);                                                                        \
		fake_limit_drain(fake_device());                                                   \
		return refused() ? CUDA_ERROR_NO_BINARY_FOR_GPU : REAL(name) args;                 \
	}
LOADS(cuModuleLoadData, (CUmodule * module, const void *image), (module, image))
LOADS(cuModuleLoadDataEx,
      (CUmodule * module, const void *image, unsigned int nr, CUjit_option *what, void **values),
      (module, image, nr, what, values))
LOADS(cuModuleLoadFatBinary, (CUmodule * module, const void *image), (module, image))
LOADS(cuLibraryLoadData,
      (CUlibrary * library, const void *image, CUjit_option *jit, void **jit_values,
       unsigned int nr_jit, CUlibraryOption *options, void **values, unsigned int nr),
      (library, image, jit, jit_values, nr_jit, options, values, nr))
