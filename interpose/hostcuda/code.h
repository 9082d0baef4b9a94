/*
 * Who executes kernels that the driver is asked to launch. In the product nobody does: they are refused or skipped. Tests
 * bring what they need (the daemon on CPU threads) before the first module is loaded. A launch is an operation of its stream
 * on a thread of its own, as a host function is, and in a graph it is a host node.
 */
#ifndef DF_HOSTCUDA_CODE_H
#define DF_HOSTCUDA_CODE_H

#include <stddef.h>

struct df_hkernel_shape {
	unsigned int grid[3], block[3], shared;
	int device;
};

struct df_hcode {
	/* A kernel of that name; NULL: not one that can be executed. */
	void *(*find)(const char *name);
	/* Takes the parameters, as cuLaunchKernel's: what run() gets, as often as the launch is repeated by a graph. NULL: wrong. */
	void *(*take)(void *kernel, const struct df_hkernel_shape *shape, void **params,
		      void **extra);
	void (*run)(void *launch);
};

/* The table stays the caller's, and valid. */
void df_hostcuda_code(const struct df_hcode *code);

#endif
