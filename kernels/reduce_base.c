/*
 * The loops of dfk_move() for any CPU: 16-byte vectors, SSE2 on x86-64. See kernels/reduce_vec.inl.
 */
#include "kernels/reduce_int.h"

#define VB	   16
#define LOOPS	   dfk_loops_base
#define LOOPS_NAME "base"
#include "kernels/reduce_vec.inl"
