/*
 * Who outside dfshim, NCCL and CUDA has called: the return addresses above the calling function, found without a walk
 * of the stack where they have been found before. For site.c.
 */
#ifndef DF_TRACE_RECORD_CALLER_H
#define DF_TRACE_RECORD_CALLER_H

/*
 * As many frames of the application tell two calls apart. Of one alone nothing would be told where the application has
 * the CUDA runtime in itself (libcudart_static.a), or waits in a helper of its own.
 */
#define DF_CALLER_FRAMES 4

/*
 * The callers of the function whose canonical frame address (__builtin_dwarf_cfa()) is `from`, into pcs, innermost first;
 * how many. 0: not known. Any thread; with no lock of ours held, as it may take the loader's.
 */
unsigned df_callers(const void *from, const void *pcs[DF_CALLER_FRAMES]);

#endif
