/*
 * The loops of dfk_move() in AVX-512 instructions with F16C conversions. Only kernels/reduce_cpu.c
 * may call them, after it has checked the CPU. No other code may be compiled here, because it would
 * run on other CPUs too.
 */
#ifdef __x86_64__
#ifdef __clang__
#pragma clang attribute push(                                                                      \
	__attribute__((target("avx2,f16c,avx512f,avx512bw,avx512vl,avx512dq"))),                   \
	apply_to = function)
#else
#pragma GCC target("avx2,f16c,avx512f,avx512bw,avx512vl,avx512dq")
#endif

#include "kernels/reduce_int.h"

#define VB	   64
#define LOOPS	   dfk_loops_avx512
#define LOOPS_NAME "avx512"
#include "kernels/reduce_vec.inl"

#ifdef __clang__
#pragma clang attribute pop
#endif
#endif
