/*
 * For programs that use the driver beside the runtime. The driver is opened by its name at run
 * time, as programs do.
 */
#ifndef DF_TEST_DRV_H
#define DF_TEST_DRV_H

#include "tests/hostcuda/programs/cu.h"

static void *driver;

static inline void driver_open(void)
{
	driver = dlopen("libcuda.so.1", RTLD_NOW);
	CHECK(driver);
}

/* Returns the driver's function with this symbol. */
#define DRV(name)                                                                                  \
	({                                                                                         \
		__typeof__(&name) fn_;                                                             \
		*(void **)&fn_ = dlsym(driver, #name);                                             \
		CHECK(fn_);                                                                        \
		fn_;                                                                               \
	})
#define SAYS(want, call)                                                                           \
	do {                                                                                       \
		CUresult got_ = (call);                                                            \
		if (got_ != (want)) {                                                              \
			fprintf(stderr, "%s:%d: %s gave %d, not %d\n", __FILE__, __LINE__, #call,  \
				(int)got_, (int)(want));                                           \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)
#define OK(call) SAYS(CUDA_SUCCESS, call)

#endif
