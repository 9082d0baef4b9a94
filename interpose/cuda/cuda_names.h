/*
 * Names of the application's kernels, by the handles that the driver gave out for them. A handle
 * may be a CUfunction or a CUkernel, and no documented function of the driver takes both. So the
 * hook notes the name with which the application asked for the handle.
 *
 * Any thread, no lock. The tables are fixed, so that a launch costs one look-up: a kernel that
 * finds no room has no name.
 */
#ifndef DF_INTERPOSE_CUDA_CUDA_NAMES_H
#define DF_INTERPOSE_CUDA_CUDA_NAMES_H

/*
 * Call when the driver has given out the handle under this name. A copy of the name is kept. `name`
 * is NULL if it is unknown.
 */
void df_cuda_name_put(const void *fn, const char *name);
/*
 * Returns the name as a person writes it (runtime/base/demangle.h), or NULL if it is unknown. The
 * text stays valid, and equal names have one pointer.
 */
const char *df_cuda_name_of(const void *fn);

#endif
