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
	/* 1: memory functions wait for all streams and kernels, as a driver may. */
	void (*sync_alloc)(int on);
	/* So many allocations of device memory fail for want of it. */
	void (*fail_alloc)(int nr);
	/* 1: somebody keeps the lock of the first device's context, until 0. */
	void (*hold)(int on);
	/* Somebody has that lock. */
	int (*held)(void);
	/*
	 * 1: this process may not touch the memory of the devices any more, as on a GPU the host
	 * may not; 0: it may.
	 */
	void (*hide)(int on);
};

const struct fake_cuda *fake_cuda(void);

#endif
