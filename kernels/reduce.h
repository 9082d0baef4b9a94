/*
 * The data path of every instruction: one operation that reads one or two sources and writes one or two
 * destinations, for all of NCCL's types and operations. Built for CPU threads and for a GPU block:
 * kernels/reduce_cuda.inl holds the loops of the GPU, kernels/reduce_vec.inl those of the CPU, which are
 * compiled once for each instruction set and chosen at run time by kernels/reduce_cpu.c.
 *
 *   dst[i] = dst2[i] = post(pre_a(a[i]) op pre_b(b[i]))     b NULL: no reduction
 *
 * Sources and destinations may be equal (in place), never partly overlapping. Pointers have the natural
 * alignment of the element at least; nothing more may be assumed. On a GPU all threads of the block call
 * it with the same arguments; it synchronises nothing. No elements is fine.
 *
 * The result does not depend on the alignment, on the number of threads, or on which instructions the
 * CPU has: the arithmetic per element is fixed, so that AllReduce is bitwise equal on all ranks. It is
 *
 *   integers   modulo 2^bits; division truncates toward zero
 *   fp32 fp64  IEEE, to nearest even, denormals kept, a multiplication and an addition never fused
 *   fp16 bf16  in float, rounded to nearest even after each operation
 *   fp8        likewise; what is too large, and infinity, becomes the largest finite value, as with CUDA's
 *              conversions. NCCL goes through half, which gives the same: sums and products of these
 *              formats are exact there wherever that could be seen
 *   max, min   the operand that is a number wins over NaN; -0 < +0
 *   NaN        an operation whose result is NaN gives the NaN with a positive sign and all mantissa bits
 *              set
 *
 * A copy moves bits. The calling thread's rounding mode, flush-to-zero and trap bits play no role.
 */
#ifndef DFK_REDUCE_H
#define DFK_REDUCE_H

#include "kernels/port.h"
#include "kernels/abi.h"

struct dfk_move {
	void *dst;  /* may be NULL when dst2 is not */
	void *dst2; /* may be NULL */
	const void *a;
	const void *b; /* NULL: copy */
	uint64_t elems;
	uint32_t type, redop;  /* enum df_type, enum df_redop */
	uint64_t arg;	       /* scalar of PREMULSUM (bits of the type), divisor of SUMPOSTDIV */
	uint32_t pre_a, pre_b; /* multiply this operand by the scalar first (PREMULSUM only) */
	uint32_t post;	       /* divide the result (SUMPOSTDIV only; by 0 and by 1: nothing) */
};

DFK void dfk_move(const struct dfk_move *m);

/* Bytes of one element; type is valid. */
DFK uint32_t dfk_type_bytes(uint32_t type)
{
	/* Four bits per type in the order of enum df_type. */
	return (uint32_t)(0x112842884411ull >> (4 * type)) & 15;
}

#ifdef __CUDACC__

#include "kernels/reduce_cuda.inl"

#else

/* The compiled body; safe from any thread at any time, also before constructors have run. */
void dfk_move_cpu(const struct dfk_move *m);

DFK void dfk_move(const struct dfk_move *m)
{
	dfk_move_cpu(m);
}

/* For tests and benchmarks: the instruction set that the loops use. AUTO is the best there is. */
enum dfk_path { DFK_PATH_AUTO, DFK_PATH_BASE, DFK_PATH_AVX2, DFK_PATH_AVX512, DFK_NR_PATHS };

/* -ENOTSUP, and no change, if this CPU or this build lacks it. Holds for all threads. */
int dfk_path_set(enum dfk_path path);
/* The name of the path in use: "base", "avx2", "avx512". */
const char *dfk_path_name(void);

#endif
#endif
