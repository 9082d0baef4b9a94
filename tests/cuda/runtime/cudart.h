/*
 * Shared by the files of the tests' CUDA runtime (cudart.c). Each function calls the driver as the
 * real runtime does.
 */
#ifndef DF_TESTS_CUDA_RUNTIME_H
#define DF_TESTS_CUDA_RUNTIME_H

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdint.h>

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#define API __attribute__((visibility("default")))

/* Returns a function of the driver. Ends the process if the driver does not have it. */
void *rt_find(const char *name);
/*
 * Stores the result for cudaGetLastError() and returns it. Driver and runtime use the same numbers
 * for errors.
 */
cudaError_t rt_said(CUresult r);
cudaError_t rt_peek(void);
/* rt_ready() makes sure that a context is current. rt_device() returns the thread's device. */
void rt_ready(void);
int rt_device(void);

/*
 * Returns a function of the driver by its base name. `name` is a macro of cuda.h for one form of
 * the function, whose type is used.
 */
#define NAMED(name, text)                                                                          \
	({                                                                                         \
		static void *fn_;                                                                  \
		if (!fn_)                                                                          \
			fn_ = rt_find(text);                                                       \
		(__typeof__(&name))fn_;                                                            \
	})
#define CU(name) NAMED(name, #name)

#define CALL(name, ...) (rt_ready(), rt_said(NAMED(name, #name)(__VA_ARGS__)))
#define PTR(p)		((CUdeviceptr)(uintptr_t)(p))

#endif
