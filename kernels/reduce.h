/*
 * The data path of every instruction: one operation that reads one or two sources and writes one or two
 * destinations, for all of NCCL's types and operations. Freestanding; built for CPU threads and for a GPU
 * block from the same source (kernels/reduce_*.inl hold the loops).
 *
 *   dst[i] = dst2[i] = post(pre_a(a[i]) op pre_b(b[i]))     b NULL: no reduction
 *
 * Sources and destinations may be equal (in place), never partly overlapping. Pointers have the natural
 * alignment of the element at least; nothing more may be assumed. On a GPU all threads of the block call
 * it with the same arguments; it synchronises nothing. The result does not depend on the alignment, on
 * the number of threads, or on which instructions the CPU has: the arithmetic per element is
 * fixed (fp16, bf16: in float, rounded to nearest even after each operation; fp8: through half), so
 * that AllReduce is bitwise equal on all ranks.
 */
#ifndef DFK_REDUCE_H
#define DFK_REDUCE_H

#include "kernels/port.h"
#include "kernels/abi.h"

struct dfk_move {
	void *dst;		/* may be NULL when dst2 is not */
	void *dst2;		/* may be NULL */
	const void *a;
	const void *b;		/* NULL: copy */
	uint64_t elems;
	uint32_t type, redop;	/* enum df_type, enum df_redop */
	uint64_t arg;		/* scalar of PREMULSUM (bits of the type), divisor of SUMPOSTDIV */
	uint32_t pre_a, pre_b;	/* multiply this operand by the scalar first (PREMULSUM only) */
	uint32_t post;		/* divide the result (SUMPOSTDIV only) */
};

DFK void dfk_move(const struct dfk_move *m);

#endif
