/*
 * Names of the application's kernels, by the handles that the driver gave out for them. A handle
 * may be a CUfunction or a CUkernel, and the driver documents no question that takes either. So the
 * hook notes the name with which the application asked for the handle.
 *
 * Any thread, no lock. The tables are fixed, so that a launch costs one look-up: a kernel that
 * finds no room has no name.
 */
#ifndef DF_INTERPOSE_CUDA_CUDA_NAMES_H
#define DF_INTERPOSE_CUDA_CUDA_NAMES_H

/* The driver has given out the handle under this name (NULL: unknown), of which a copy is kept. */
void df_cuda_name_put(const void *fn, const char *name);
/*
 * Returns the name as a person writes it (runtime/base/demangle.h), which stays valid and is one
 * pointer for equal names; NULL: unknown.
 */
const char *df_cuda_name_of(const void *fn);

#endif
