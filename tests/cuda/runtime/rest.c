/*
 * Defines every function of the runtime that no other file here defines. Each prints its name and
 * returns cudaErrorNotSupported. The list of functions is libdfhost.so's table. They are declared
 * without parameters, which C's calling convention permits.
 */
#include <stdio.h>

#define REFUSED(name)                                                                              \
	int none_##name(void) __asm__(#name);                                                      \
	__attribute__((weak, visibility("default"))) int none_##name(void)                         \
	{                                                                                          \
		fprintf(stderr, "cudart of the tests: no %s\n", #name);                            \
		return 801; /* cudaErrorNotSupported */                                            \
	}
#define DF_CUDA(name)		 REFUSED(name)
#define DF_CUDA_13(name)	 REFUSED(name)
#define DF_CUDA_REFUSED(name)	 REFUSED(name)
#define DF_CUDA_REFUSED_13(name) REFUSED(name)
#define DF_CUDA_12(name)
#define DF_CUDA_12_AS(name, to)
#define DF_CUDA_REFUSED_12(name)
#include "interpose/hostcuda/cudart/api.def"
