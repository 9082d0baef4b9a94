/*
 * Finds the callers outside dfshim, NCCL and CUDA: their return addresses on the calling thread's
 * stack. Stacks that have been seen before are not unwound again. For site.c.
 */
#ifndef DF_TRACE_RECORD_CALLER_H
#define DF_TRACE_RECORD_CALLER_H

/*
 * Number of the application's frames that distinguish two calls. One frame would not suffice if the
 * application contains the CUDA runtime (libcudart_static.a), or waits in a function of its own.
 */
#define DF_CALLER_FRAMES 4

/*
 * Stores the callers of the function whose canonical frame address (__builtin_dwarf_cfa()) is
 * `from` in pcs, innermost first. Returns their number, or 0 if they are unknown. Any thread; the
 * caller holds no lock of ours, because the function may take the loader's.
 */
unsigned df_callers(const void *from, const void *pcs[DF_CALLER_FRAMES]);

#endif
