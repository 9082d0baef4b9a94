/*
 * For tests that bring libcuda's stand-in themselves: found in the build folder, loaded so that later opens of
 * libcuda.so.1 find it.
 */
#ifndef DF_TESTS_CUDA_LOAD_H
#define DF_TESTS_CUDA_LOAD_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include "tests/cuda/driver/fake.h"
#include "tests/lib/test.h"

static inline const char *fake_path(void)
{
	static char path[512];

	snprintf(path, sizeof(path), "%s/tests/cuda/driver/libcuda.so.1",
		 getenv("B") ? getenv("B") : "build");
	return path;
}

/* lib: its handle; may be NULL. */
static inline const struct fake_cuda *fake_load(void **lib)
{
	const struct fake_cuda *(*get)(void);
	void *so = dlopen(fake_path(), RTLD_NOW | RTLD_GLOBAL);

	ck_assert_msg(so != NULL, "%s", dlerror());
	*(void **)&get = dlsym(so, "fake_cuda");
	if (lib)
		*lib = so;
	return get();
}

#endif
