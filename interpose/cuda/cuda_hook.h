/*
 * The hook in front of the CUDA driver: names are answered with functions of ours.
 */
#ifndef DF_INTERPOSE_CUDA_CUDA_HOOK_H
#define DF_INTERPOSE_CUDA_CUDA_HOOK_H

/*
 * Our function for a function of libcuda that was found at `real` under its exported name, or NULL: not one of the
 * table, or the process has no use for the hook. Any thread, any time; no lock.
 */
void *df_cuda_answer(const char *symbol, void *real);

/* 1 for a name that df_cuda_answer() may know; cheap. */
static inline int df_cuda_is_name(const char *name)
{
	return name[0] == 'c' && name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z';
}

#endif
