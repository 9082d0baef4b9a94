/*
 * Between the files of the CUDA runtime of the tests (cudart.c): each function asks the driver as
 * the real one does.
 */
#ifndef DF_TESTS_CUDA_RUNTIME_H
#define DF_TESTS_CUDA_RUNTIME_H

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdint.h>

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#define API __attribute__((visibility("default")))

/* A function of the driver; ends the process if there is none. */
void *rt_find(const char *name);
/*
 * Sets the result of the next cudaGetLastError(). The errors of driver and runtime have the same
 * numbers.
 */
cudaError_t rt_said(CUresult r);
cudaError_t rt_peek(void);
/* A context is current; the device that it is of. */
void rt_ready(void);
int rt_device(void);

/* Asked for by its base name, which is a macro of cuda.h for the form that its type is of. */
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
