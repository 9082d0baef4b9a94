/* Refuses a function of the table api.def. For compat.c, which has no header of CUDA. */
#ifndef DF_INTERPOSE_HOSTCUDA_CUDART_ERROR_H
#define DF_INTERPOSE_HOSTCUDA_CUDART_ERROR_H

/* Warns once. Returns cudaErrorNotSupported. */
int df_hrefuse(int *warned, const char *name);

#endif
