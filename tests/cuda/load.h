/*
 * For tests that load the test driver themselves. It is opened from the build folder with
 * RTLD_GLOBAL, so that later opens of libcuda.so.1 find it.
 */
#ifndef DF_TESTS_CUDA_LOAD_H
#define DF_TESTS_CUDA_LOAD_H

#include <dlfcn.h>
#include <libgen.h>
#include <stdio.h>
#include <unistd.h>
#include "tests/cuda/driver/fake.h"
#include "tests/lib/test.h"

/* The path is relative to the test program, so it does not depend on the working directory. */
static inline const char *fake_path(void)
{
	static char path[512];
	char self[400] = "";

	if (readlink("/proc/self/exe", self, sizeof(self) - 1) > 0)
		snprintf(path, sizeof(path), "%s/../cuda/driver/libcuda.so.1", dirname(self));
	return path;
}

/* Returns the test driver's functions. Stores its handle to *lib, unless `lib` is NULL. */
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
