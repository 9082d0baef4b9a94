/*
 * The test driver (libcuda.so.1 of the tests), as tests see it. Its streams are threads; its
 * kernels are functions that a test registers. It shows which driver functions dfshim calls, in
 * which order, and that dfshim's logic works. It shows nothing about a real GPU.
 */
#ifndef DF_TESTS_FAKE_CUDA_H
#define DF_TESTS_FAKE_CUDA_H

#include <stdint.h>

typedef void (*fake_kernel_fn)(void **params, unsigned int block);

struct fake_cuda {
	/* Returns how often the exported function was called. NULL: all functions together. */
	uint64_t (*calls)(const char *symbol);
	/*
	 * Registers the body of the kernel `name`. A launch runs it in one thread for each block.
	 */
	void (*kernel)(const char *name, fake_kernel_fn fn);
	/* Returns the number of unfinished operations on the CUstream. NULL: on all streams. */
	int (*pending)(void *stream);
	/* Makes all later launches fail with this CUresult, until it is set to 0. */
	void (*fail_launch)(int result);
	/* If `on`, memory functions wait until all streams are idle, as a driver may. */
	void (*sync_alloc)(int on);
	/* Makes the next `nr` allocations of device memory fail with CUDA_ERROR_OUT_OF_MEMORY. */
	void (*fail_alloc)(int nr);
	/*
	 * If `on`, takes the lock of the first device's context for a thread outside this process.
	 * Otherwise releases that lock.
	 */
	void (*hold)(int on);
	/* Returns whether the lock of the first device's context is taken. */
	int (*held)(void);
	/*
	 * If `on`, makes device memory inaccessible to this process's CPU threads, as on a GPU.
	 * Otherwise makes it accessible again.
	 */
	void (*hide)(int on);
};

const struct fake_cuda *fake_cuda(void);

#endif
