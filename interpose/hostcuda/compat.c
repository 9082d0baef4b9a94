/*
 * The rest of the table api.def: the functions that are refused, and the second name (version node
 * libcudart.so.12) of every function. So programs of both CUDA releases find all functions here,
 * and no call with our handles reaches NVIDIA's runtime. This file includes no CUDA header: it
 * defines a refused function without parameters, which C's calling convention allows.
 */
#include "interpose/hostcuda/cudart/error.h"
#include "runtime/base/log.h"

#define DF_H_API      __attribute__((visibility("default")))
#define NOT_SUPPORTED 801 /* cudaErrorNotSupported */

/* The jump keeps all arguments as they are. */
#if defined(__x86_64__)
#define JUMP(to) "\tjmp " to "@PLT\n"
#elif defined(__aarch64__)
#define JUMP(to) "\tb " to "\n"
#else
#error "no way known to give a function a second version on this processor"
#endif

#define ALIAS_12(name, to)                                                                         \
	__asm__(".text\n.globl df12_" #name "\n.type df12_" #name ", @function\ndf12_" #name       \
		":\n" JUMP(#to) ".size df12_" #name ", . - df12_" #name "\n.symver df12_" #name    \
				"," #name "@libcudart.so.12,remove\n");

#define REFUSE(symbol, name)                                                                       \
	DF_H_API int symbol(void);                                                                 \
	DF_H_API int symbol(void)                                                                  \
	{                                                                                          \
		static int warned;                                                                 \
                                                                                                   \
		return df_hrefuse(&warned, name);                                                  \
	}

#define DF_CUDA(name) ALIAS_12(name, name)
#define DF_CUDA_13(name)
#define DF_CUDA_12(name)
#define DF_CUDA_12_AS(name, to)	 ALIAS_12(name, to)
#define DF_CUDA_REFUSED(name)	 REFUSE(name, #name) ALIAS_12(name, name)
#define DF_CUDA_REFUSED_13(name) REFUSE(name, #name)
#define DF_CUDA_REFUSED_12(name)                                                                   \
	REFUSE(df12_##name, #name)                                                                 \
	__asm__(".symver df12_" #name "," #name "@libcudart.so.12,remove");
#include "interpose/hostcuda/cudart/api.def"
