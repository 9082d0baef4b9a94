/* A function that the table api.def refuses: for compat.c, without a header of CUDA. */
#ifndef DF_INTERPOSE_HOSTCUDA_CUDART_ERROR_H
#define DF_INTERPOSE_HOSTCUDA_CUDART_ERROR_H

/* Warns once. Returns cudaErrorNotSupported. */
int df_hrefuse(int *warned, const char *name);

#endif
