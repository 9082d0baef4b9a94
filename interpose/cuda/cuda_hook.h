/* The hook in front of the CUDA driver: lookups of the driver's functions return dfshim's. */
#ifndef DF_INTERPOSE_CUDA_CUDA_HOOK_H
#define DF_INTERPOSE_CUDA_CUDA_HOOK_H

/*
 * Returns our function for a function of libcuda that was found at `real` under its exported name.
 * Returns NULL if the table does not have it or the process does not need the hook. Any thread, any
 * time; no lock.
 */
void *df_cuda_answer(const char *symbol, void *real);

/* Whether this thread is in a hooked call of the driver. */
int df_cuda_in_driver(void);

/* Whether df_cuda_answer() may know the name. Cheap. */
static inline int df_cuda_is_name(const char *name)
{
	return name[0] == 'c' && name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z';
}

#endif
