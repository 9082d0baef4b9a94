/*
 * The libcuda.so.1 of the tests, as tests see it: a driver whose streams are threads and whose
 * kernels are functions that the test brings. It proves nothing about a GPU; it shows what our side
 * calls, in which order, and that our logic moves.
 */
#ifndef DF_TESTS_FAKE_CUDA_H
#define DF_TESTS_FAKE_CUDA_H

#include <stdint.h>

typedef void (*fake_kernel_fn)(void **params, unsigned int block);

struct fake_cuda {
	/* How often the exported symbol was called, and the same of all symbols. */
	uint64_t (*calls)(const char *symbol);
	/* The body of the kernel of that name, run by one thread for each block. */
	void (*kernel)(const char *name, fake_kernel_fn fn);
	/* Operations enqueued and not finished on all streams. */
	int (*pending)(void);
	/* The next launches of kernels fail with this CUresult; 0: they do not. */
	void (*fail_launch)(int result);
	/* Whether memory functions wait for all streams and kernels, as a driver may. */
	void (*sync_alloc)(int on);
	/* This number of allocations of device memory fails for lack of it. */
	void (*fail_alloc)(int nr);
	/* While it is not 0, another thread keeps the lock of the first device's context. */
	void (*hold)(int on);
	/* That thread has the lock. */
	int (*held)(void);
	/*
	 * While it is 1 this process may not touch the memory of the devices, as the host may not
	 * on a GPU.
	 */
	void (*hide)(int on);
};

const struct fake_cuda *fake_cuda(void);

#endif
