/*
 * The data path of every instruction: one operation that reads one or two sources and writes one or
 * two destinations, for all of NCCL's types and operations. Built for CPU threads and for a GPU
 * block: kernels/reduce_cuda.inl holds the loops of the GPU, kernels/reduce_vec.inl those of the
 * CPU, which are compiled once per instruction set and chosen at run time by kernels/reduce_cpu.c.
 *
 *   dst[i] = dst2[i] = post(pre_a(a[i]) op pre_b(b[i]))     b NULL: no reduction
 *
 * Sources and destinations may be equal (in place), but must not overlap partly. Pointers have at
 * least the natural alignment of the element. On a GPU all threads of the block call it with the
 * same arguments; it does not synchronize them. Zero elements are allowed.
 *
 * The result does not depend on the alignment, the number of threads, or the CPU's instruction
 * sets: the arithmetic per element is fixed, so that AllReduce is bitwise equal on all ranks:
 *
 *   integers   modulo 2^bits; division truncates toward zero
 *   fp32 fp64  IEEE, to nearest even, denormals kept, multiplication and addition never fused
 *   fp16 bf16  in float, rounded to nearest even after each operation
 *   fp8        the same; too large values and infinity become the largest finite value, as in
 *              CUDA's conversions. NCCL computes in half, with the same result: sums and products
 *              of these formats are exact there wherever the difference would be visible
 *   max, min   a number wins over NaN; -0 < +0
 *   NaN        an operation whose result is NaN gives the NaN with a positive sign and all mantissa
 *              bits set
 *
 * A copy moves bits. The calling thread's rounding mode, flush-to-zero and trap bits have no
 * effect.
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
/*
 * The same of eight bytes in registers: a op b for SUM, PROD, MAX, MIN. Where the elements are
 * fewer, what results for the others does not matter.
 */
DFK uint64_t dfk_unit(uint32_t type, uint32_t redop, uint64_t a, uint64_t b);

/* Bytes of one element; type is valid. */
DFK uint32_t dfk_type_bytes(uint32_t type)
{
	/* Four bits per type in the order of enum df_type. */
	return (uint32_t)(0x112842884411ull >> (4 * type)) & 15;
}

#ifdef __CUDACC__

#include "kernels/reduce_cuda.inl"

#else

/* The compiled body. Any thread may call it at any time, also before constructors have run. */
void dfk_move_cpu(const struct dfk_move *m);

DFK void dfk_move(const struct dfk_move *m)
{
	dfk_move_cpu(m);
}

DFK uint64_t dfk_unit(uint32_t type, uint32_t redop, uint64_t a, uint64_t b)
{
	uint64_t r;
	struct dfk_move m = {.dst = &r,
			     .a = &a,
			     .b = &b,
			     .elems = 8 / dfk_type_bytes(type),
			     .type = type,
			     .redop = redop};

	dfk_move_cpu(&m);
	return r;
}

/*
 * For tests and benchmarks: the instruction set of the loops. AUTO is the best one that is
 * available.
 */
enum dfk_path { DFK_PATH_AUTO, DFK_PATH_BASE, DFK_PATH_AVX2, DFK_PATH_AVX512, DFK_NR_PATHS };

/*
 * Returns -ENOTSUP, and changes nothing, if this CPU or this build lacks it. Applies to all
 * threads.
 */
int dfk_path_set(enum dfk_path path);
/* The name of the path in use: "base", "avx2", "avx512". */
const char *dfk_path_name(void);

#endif
#endif
